"""The HTTP port: what it answers, its bounds, and that it leaves the broker's own clients their turn."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.support.served import Serve, Served, until
from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.metrics.collect import Collector
from tidelog.broker.net import http
from tidelog.broker.net.server import CannotListen, Server
from tidelog.broker.work import SHORT
from tidelog.config.load import load

GET = b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n"
Answer = tuple[int, dict[str, str], bytes]


class Web:
    """A connection to the HTTP port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str) -> None:
        self.writer.write(GET % path.encode())

    async def receive(self) -> Answer:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode()
        status, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), 20)
        return int(status.split()[1]), headers, body

    async def get(self, path: str) -> Answer:
        self.send(path)
        return await self.receive()

    async def ended(self) -> bool:
        """Wait until the broker has closed the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), 20) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def web(served: Served, from_address: str = "127.0.0.1") -> AsyncIterator[Web]:
    assert served.server.http_address is not None
    reader, writer = await asyncio.open_connection(*served.server.http_address, local_addr=(from_address, 0))
    try:
        yield Web(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def served(serve: Serve, unused_tcp_port: int) -> Served:
    return await serve(http_port=str(unused_tcp_port))


def http_of(served: Served) -> http.Http:
    assert served.server._http is not None
    return served.server._http


async def test_metrics_and_health_are_answered_on_one_connection(served: Served) -> None:
    await (await served.connect()).make_topic("t")
    async with web(served) as asking:
        status, headers, body = await asking.get("/metrics")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert b'tidelog_requests_total{api="CreateTopics"} 1\n' in body
        assert b"tidelog_connections 1\n" in body
        assert b"tidelog_connections_accepted_total 1\n" in body
        status, headers, body = await asking.get("/health")
        assert (status, headers["content-type"], json.loads(body)["status"]) == (
            200,
            "application/json",
            "ok",
        )
        assert (await asking.get("/"))[0] == 404
        asking.writer.write(b"POST /metrics HTTP/1.1\r\nHost: here\r\ncontent-length: 2\r\n\r\nhi")
        assert (await asking.receive())[0] == 405


async def test_what_refuses_and_what_cannot_be_understood_is_counted(served: Served) -> None:
    served.broker.config = replace(served.broker.config, max_connections=1)
    client, other = await served.connect(), await served.connect()
    assert await asyncio.wait_for(other.reader.read(), 20) == b""
    client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await asyncio.wait_for(client.reader.read(), 20) == b""
    async with web(served) as asking:
        _, _, body = await asking.get("/metrics")
    for line in (b"connections_refused_total 1", b"connections_accepted_total 1", b"bad_requests_total 1"):
        assert b"tidelog_" + line + b"\n" in body


async def test_it_listens_where_the_first_listener_does(served: Served) -> None:
    assert served.server.http_address == ("127.0.0.1", served.broker.config.http_port)


async def test_a_port_that_is_taken_is_told_by_its_name(tmp_path: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        config = load(None, {}, {"log.dir": str(tmp_path), "http.port": port}).on_port(0)
        broker = Broker(config, Clock())
        broker.start()
        try:
            with pytest.raises(CannotListen, match=f"cannot listen on HTTP://127.0.0.1:{port}"):
                await Server(broker).run(lambda _: None)
        finally:
            broker.stop()


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Callable[[], None]]:
    """Have scrapes last until they are let go; return how many have begun, and what lets them go."""
    begun: list[int] = []
    is_over = False

    def scrape(_self: Collector) -> Any:
        begun.append(1)
        yield SHORT
        while not is_over:
            yield SHORT
        return [b"piece %d\n" % len(begun), b"end\n"]

    def let_go() -> None:
        nonlocal is_over
        is_over = True

    monkeypatch.setattr(Collector, "scrape", scrape)
    return begun, let_go


async def test_those_that_ask_meanwhile_get_the_scrape_that_is_under_way(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = held_up(monkeypatch)
    async with web(served) as first, web(served) as second:
        for asking in (first, second):
            asking.send("/metrics")
        await until(lambda: len(http_of(served)._state.tasks) == 2)
        let_go()
        assert (await first.receive())[2] == (await second.receive())[2] == b"piece 1\nend\n"
        assert len(begun) == 1
        assert (await first.get("/metrics"))[2] == b"piece 2\nend\n"


async def test_a_scrape_that_fails_is_answered_and_the_next_is_made(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for where, status in (("_of_logs", 503), ("_look", 500)):  # a reader thread, the event loop
        with monkeypatch.context() as patch:
            patch.setattr(Collector, where, lambda *_: 1 / 0)
            async with web(served) as asking:
                assert (await asking.get("/metrics"))[0] == status
        async with web(served) as asking:
            assert (await asking.get("/metrics"))[0] == 200
    assert "a scrape was ended by a fault" in caplog.text


async def test_a_stop_is_told_and_waits_for_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers are pending, health says that it stops; a scrape that waits then is answered."""
    begun, _ = held_up(monkeypatch)
    client = await served.connect()
    await client.make_topic("t")
    left = asyncio.Event()

    async def all_left(_timeout_s: float) -> bool:
        await left.wait()
        return True

    monkeypatch.setattr(served.server.shared.admission, "all_left", all_left)
    async with web(served) as waiting, web(served) as asking, web(served) as silent:
        waiting.send("/metrics")
        await until(lambda: bool(begun))
        served.server.stop()
        status, _, body = await asking.get("/health")
        assert (status, json.loads(body)["status"]) == (503, "stopping")
        assert (await asking.get("/metrics"))[0] == 503
        left.set()
        status, _, body = await waiting.receive()
        assert (status, body) == (503, http.STOPPING.encode())
        await served.stop()
        assert await silent.ended()


async def test_slow_clients_shut_out_no_probe(served: Served) -> None:
    """As many connections as there may be, whose requests never come to an end: a probe takes the place of one."""
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(web(served)) for _ in range(http.MOST_CONNECTIONS)]
        for each in slow:
            each.writer.write(b"GET /metrics HTTP/1.1\r\nX: ")
        await until(lambda: len(http_of(served)._state.connections) == http.MOST_CONNECTIONS)
        probe = await stack.enter_async_context(web(served))
        assert (await probe.get("/health"))[0] == 200
        assert await slow[0].ended()
        assert not slow[1].reader.at_eof()
        assert len(http_of(served)._state.connections) == http.MOST_CONNECTIONS


async def test_where_there_are_too_many_one_of_the_address_with_most_goes_and_one_that_is_answered_last(
    served: Served, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 3)
    begun, left = held_up(monkeypatch)
    async with web(served, "127.0.0.2") as other, web(served) as asking, web(served) as silent:
        asking.send("/metrics")
        await until(lambda: bool(begun) and len(http_of(served)._state.connections) == 3)
        async with web(served) as third:
            assert (await third.get("/health"))[0] == 200
            assert await silent.ended()
            async with web(served, "127.0.0.3") as fourth:
                assert (await fourth.get("/health"))[0] == 200
                assert await third.ended()
                assert (await other.get("/health"))[0] == 200
                left()
                assert (await asking.receive())[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT"], ids=["silent", "half a request"])
async def test_a_request_has_so_long_to_come_and_no_longer(
    served: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    async with web(served) as asking:
        asking.writer.write(sent)
        assert await asking.ended()


async def test_a_connection_lives_for_so_long_and_no_longer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.1)
    monkeypatch.setattr(http, "LONGEST_S", 0.2)
    held_up(monkeypatch)
    async with web(served) as asking:
        asking.send("/metrics")
        assert await asking.ended()


async def test_who_does_not_read_its_answer_holds_no_more_than_a_little(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of 64 MB leaves piece by piece; others are answered meanwhile."""
    pieces = [bytes(1 << 16)] * 1000

    def scrape(_self: Collector) -> Any:
        yield SHORT
        return pieces

    monkeypatch.setattr(Collector, "scrape", scrape)
    async with web(served) as greedy, web(served) as other:
        greedy.send("/metrics")
        state = http_of(served)._state
        await until(
            lambda: any(connection.flow and connection.flow.write_paused for connection in state.connections)
        )
        assert all(connection.transport.get_write_buffer_size() < 1 << 20 for connection in state.connections)
        assert (await other.get("/health"))[0] == 200


async def test_a_header_without_end_is_refused(served: Served) -> None:
    async with web(served) as asking:
        asking.writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * (http.MOST_HEADER_BYTES + 1))
        assert (await asyncio.wait_for(asking.reader.read(), 20)).startswith(b"HTTP/1.1 400")


async def test_health_gives_way_in_the_middle(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.broker.metrics.health.STEP_LOGS", 1)
    await (await served.connect()).make_topic("t")
    async with web(served) as asking:
        assert json.loads((await asking.get("/health"))[2])["partitions"] == 1
