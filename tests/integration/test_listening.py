"""Where a broker listens, and what it says of that."""

import asyncio
import errno
import logging
import os
import socket

import pytest

from tests.support.served import Serve
from tidelog.broker.net import server

HAS_IPV6 = socket.has_dualstack_ipv6()
WARNS = "no authentication"


async def answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "first", "ipv4", "ipv6"),
    [
        ("", "0.0.0.0", True, True),
        ("0.0.0.0", "0.0.0.0", True, False),
        ("[::]", "::", False, True),
        ("127.0.0.1", "127.0.0.1", True, False),
        ("[::1]", "::1", False, True),
    ],
)
async def test_it_listens_where_it_is_told_and_warns_where_others_can_connect(
    serve: Serve, caplog: pytest.LogCaptureFixture, host: str, first: str, ipv4: bool, ipv6: bool
) -> None:
    caplog.set_level(logging.INFO)
    served = await serve(listeners=f"PLAINTEXT://{host}:0")
    (address,) = served.server.addresses
    assert address == (first, served.address[1])
    assert (await answers("127.0.0.1", address[1]), await answers("::1", address[1])) == (ipv4, ipv6)
    warnings = [record.getMessage() for record in caplog.records if WARNS in record.getMessage()]
    assert len(warnings) == (first in {"0.0.0.0", "::"})
    assert all(first in warning and f"PLAINTEXT://127.0.0.1:{address[1]}" in warning for warning in warnings)
    listening = [record for record in caplog.records if record.getMessage().startswith("listening name=")]
    assert len(listening) == (2 if not host else 1)


def addresses_of(bound: list[socket.socket]) -> list[tuple[str, int]]:
    """Return where sockets are bound, and close them."""
    addresses = [each.getsockname()[:2] for each in bound]
    for each in bound:
        each.close()
    return addresses


def refusing(monkeypatch: pytest.MonkeyPatch, family: int, error: int, times: int = 1 << 30) -> None:
    """Have so many sockets of a protocol refused."""
    real, left = socket.socket, [error] * min(times, 1000)

    def make(wanted: int, kind: int) -> socket.socket:
        if wanted == family and left:
            raise OSError(left.pop(), os.strerror(error))
        return real(wanted, kind)

    monkeypatch.setattr(server.socket, "socket", make)


def test_a_port_that_is_named_is_that_of_both_and_one_that_is_taken_is_refused() -> None:
    port = addresses_of(server.bind_everywhere(0))[0][1]
    bound = server.bind_everywhere(port)
    bound[0].listen()
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        server.bind_everywhere(port)
    assert {port for _, port in addresses_of(bound)} == {port}


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_has_one_socket_and_one_without_any_protocol_none(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    refusing(monkeypatch, socket.AF_INET6, error)
    ((host, port),) = addresses_of(server.bind_everywhere(0))
    assert host == "0.0.0.0"
    assert port > 0
    refusing(monkeypatch, socket.AF_INET, error)
    with pytest.raises(OSError, match=os.strerror(errno.EAFNOSUPPORT)):
        server.bind_everywhere(0)


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
def test_a_free_port_that_is_taken_by_ipv6_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refusing(patch, socket.AF_INET6, errno.EADDRINUSE, times=3)
        first, second = addresses_of(server.bind_everywhere(0))
        assert first[1] == second[1]
    refusing(monkeypatch, socket.AF_INET6, errno.EADDRINUSE)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        server.bind_everywhere(0)
