"""When answers leave: at once for one client, together for several, and always in order."""

from collections.abc import Callable
from typing import Any, cast

from tidelog.broker.outbox import TRY_EVERY, Outbox


class Transport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)


class Turns:
    """A loop whose turns end by hand."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.call_soon = self.ready.append
        self.outbox = Outbox(cast(Any, self))

    def send(self, to: Transport, *answers: bytes) -> None:
        self.outbox.send(cast(Any, to), list(answers))

    def end(self) -> None:
        due, self.ready[:] = self.ready[:], []
        for call in due:
            call()


def test_one_client_is_answered_at_once_but_for_a_try() -> None:
    turns, client = Turns(), Transport()
    held = 0
    for number in range(1, 10 * (TRY_EVERY + 1) + 1):
        before = len(client.written)
        turns.send(client, b"a")
        held += len(client.written) == before
        turns.end()
        assert len(client.written) == number
    assert held == 10


def test_several_clients_are_answered_together() -> None:
    turns, clients = Turns(), [Transport() for _ in range(3)]
    for _ in range(TRY_EVERY):
        turns.send(clients[0], b"-")
    for _ in range(5):
        before = [client.written for client in clients]
        for client in clients:
            turns.send(client, b"a", b"b")
        assert [client.written for client in clients] == before
        turns.end()
        assert [client.written for client in clients] == [written + b"ab" for written in before]


def test_answers_of_a_connection_stay_in_order_and_closing_loses_none() -> None:
    turns, client = Turns(), Transport()
    for number in range(TRY_EVERY + 3):
        turns.send(client, b"%d " % number)
    turns.outbox.flush()
    assert client.written.split() == [b"%d" % number for number in range(TRY_EVERY + 3)]
    turns.end()
    turns.send(client, b"behind")
    turns.end()
    assert client.written.endswith(b" behind")
