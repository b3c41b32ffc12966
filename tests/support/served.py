"""A broker and its clients in the process of the test, over loopback: for what is told by looking inside."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.server import Server
from tidelog.config.load import load
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.wire.api import Api


class Client:
    """A client that sends and receives whole frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.client_id = "test"
        self.local = writer.get_extra_info("sockname")[:2]

    def send(self, api: Api, version: int, correlation_id: int, request: object) -> None:
        self.writer.write(encode_request(api, version, correlation_id, self.client_id, request))

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def receive(self, api: Api, version: int) -> tuple[int, Any]:
        return decode_response(api, version, await asyncio.wait_for(self.frame(), 20))

    async def ask(self, api: Api, version: int, request: object) -> Any:
        self.send(api, version, 1, request)
        return (await self.receive(api, version))[1]

    async def make_topic(self, name: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        response = await self.ask(METADATA, 9, request)
        assert response.topics[0].error_code == 0


async def until(condition: Callable[[], bool]) -> None:
    """Give the broker, which runs on this loop, turns until the condition holds."""
    while not condition():  # noqa: ASYNC110  (what is waited for is state of the broker, which signals nobody)
        await asyncio.sleep(0)


class Served:
    """A broker and its server in this process."""

    def __init__(
        self, broker: Broker, server: Server, address: tuple[str, int], running: asyncio.Task[None]
    ) -> None:
        self.broker, self.server, self.address = broker, server, address
        self._running = running

    async def stop(self) -> None:
        """Stop in order, if that was not done before."""
        if not self._running.done():
            self.server.stop()
            await asyncio.wait_for(self._running, 20)
            self.broker.stop()

    def dispatch_by(self, dispatch: Callable[..., Any]) -> None:
        """Have the requests of all connections that there are dispatched in another way."""
        for connection in self.server.connections:
            connection._dispatch = dispatch

    def connection_of(self, client: Client) -> Connection:
        peer = f"{client.local[0]}:{client.local[1]}"
        return next(found for found in self.server.connections if found.session.peer == peer)


Serve = Callable[..., Awaitable[Served]]
Connect = Callable[[Served], Awaitable[Client]]


@asynccontextmanager
async def _serving(folder: Path, options: dict[str, str]) -> AsyncIterator[Served]:
    config = load(None, {}, {"log.dir": str(folder), **options}).on_port(0)
    broker = Broker(config, Clock())
    broker.start()
    server = Server(broker)
    ready: asyncio.Future[list[tuple[str, int]]] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run(ready.set_result))
    served = Served(broker, server, (await ready)[0], running)
    try:
        yield served
    finally:
        await served.stop()


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a broker with these options."""
    async with AsyncExitStack() as stack:

        async def start(**options: str) -> Served:
            named = {name.replace("_", "."): value for name, value in options.items()}
            return await stack.enter_async_context(_serving(tmp_path / "data", named))

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a broker."""
    writers: list[asyncio.StreamWriter] = []

    async def open_one(served: Served) -> Client:
        # A small receive buffer: what a client does not read piles up with the broker, not in the kernel.
        receiver = socket.socket()
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        receiver.setblocking(False)
        await asyncio.get_running_loop().sock_connect(receiver, served.address)
        reader, writer = await asyncio.open_connection(sock=receiver)
        writers.append(writer)
        return Client(reader, writer)

    yield open_one
    for writer in writers:
        writer.close()
        # The broker may have ended the connection first, and in any way.
        with suppress(OSError):
            await asyncio.wait_for(writer.wait_closed(), 20)
