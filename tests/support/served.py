"""A broker and its clients in the process of the test, over loopback: for what is told by looking inside."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import (
    creatable,
    create_request,
    delete_request,
    fetch_request,
    list_offsets_request,
    produce_request,
)
from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.server import Server
from tidelog.config.load import load
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.create_topics import CREATE_TOPICS
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest
from tidelog.protocol.messages.produce import PRODUCE
from tidelog.protocol.wire.api import Api
from tidelog.storage.log import Log


def versions(api: Api) -> pytest.MarkDecorator:
    """Run a test in every version of an API that is announced."""
    return pytest.mark.parametrize("version", range(api.min_version, api.max_version + 1))


class Client:
    """A client that sends and receives whole frames. It knows the ids of the topics that it made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.client_id = "test"
        self.local = writer.get_extra_info("sockname")[:2]
        self.topic_ids: dict[str, bytes] = {}

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

    # -- short forms: each returns what the answer says of the one topic or partition that it asks about ----------

    async def create(self, name: str, partitions: int = -1, **options: str) -> Any:
        """Create a topic, with as many partitions as the broker has it by default if none are given."""
        configs = {option.replace("_", "."): value for option, value in options.items()}
        request = create_request(creatable(name, partitions, configs))
        (topic,) = (await self.ask(CREATE_TOPICS, 7, request)).topics
        self.topic_ids[name] = bytes(topic.topic_id)
        return topic

    async def make_topic(self, name: str, partitions: int = -1, **options: str) -> bytes:
        """Create a topic that can be created; return its id."""
        topic = await self.create(name, partitions, **options)
        assert topic.error_code == 0, topic.error_message
        return self.topic_ids[name]

    async def delete(self, name: str) -> int:
        (topic,) = (await self.ask(DELETE_TOPICS, 5, delete_request(name))).responses
        return int(topic.error_code)

    async def topics(self) -> dict[str, Any]:
        return {
            topic.name: topic for topic in (await self.ask(METADATA, 12, MetadataRequest(topics=None))).topics
        }

    async def produce(
        self,
        topic: str,
        data: bytes | memoryview | None,
        partition: int = 0,
        *,
        acks: int = 1,
        version: int = 9,
    ) -> Any:
        request = produce_request(self._named(topic, version), data, partition, acks=acks)
        answer = await self.ask(PRODUCE, version, request)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self, topic: str, offset: int = 0, partition: int = 0, *, version: int = 11, **fields: Any
    ) -> Any:
        request = fetch_request(self._named(topic, version), offset, partition, **fields)
        answer = await self.ask(FETCH, version, request)
        assert (answer.error_code, answer.session_id) == (0, 0)
        return answer.responses[0].partitions[0]

    async def fetched(self, topic: str, offset: int = 0, *, version: int = 11) -> bytes:
        """Return the bytes of what can be fetched."""
        part = await self.fetch(topic, offset, version=version)
        assert part.error_code == 0
        return bytes(part.records)

    async def list_offsets(
        self, topic: str, timestamp: int, partition: int = 0, *, version: int = 7, isolation_level: int = 0
    ) -> Any:
        request = list_offsets_request(topic, timestamp, partition, isolation_level=isolation_level)
        return (await self.ask(LIST_OFFSETS, version, request)).topics[0].partitions[0]

    def _named(self, topic: str, version: int) -> str | bytes:
        """Return what Produce and Fetch call a topic by in a version."""
        return topic if version < 13 else self.topic_ids.get(topic, b"?" * 16)


async def until(condition: Callable[[], bool]) -> None:
    """Give the broker, which runs on this loop, turns until the condition holds."""
    turns = 0
    while not condition():
        turns += 1
        # A long wait is one for another thread or process, which needs the processor.
        await asyncio.sleep(0 if turns < 1000 else 0.001)


def log_of(broker: Broker, topic: str, partition: int = 0) -> Log:
    return broker.topics.by_name[topic].partitions[partition].log


class Served:
    """A broker and its server in this process."""

    def __init__(
        self, broker: Broker, server: Server, address: tuple[str, int], running: asyncio.Task[None]
    ) -> None:
        self.broker, self.server, self.address = broker, server, address
        self._running = running
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        # A small receive buffer: what a client does not read piles up with the broker, not in the kernel.
        receiver = socket.socket()
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        receiver.setblocking(False)
        await asyncio.get_running_loop().sock_connect(receiver, self.address)
        reader, writer = await asyncio.open_connection(sock=receiver)
        self._writers.append(writer)
        return Client(reader, writer)

    async def disconnect(self) -> None:
        """End the connections of all clients."""
        for writer in self._writers:
            writer.close()
            # The broker may have ended the connection first, and in any way.
            with suppress(OSError):
                await asyncio.wait_for(writer.wait_closed(), 20)

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
        await served.disconnect()
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
async def served(serve: Serve) -> Served:
    """A broker with the options that it has by itself."""
    return await serve()


@pytest.fixture
def broker(served: Served) -> Broker:
    return served.broker


@pytest.fixture
async def client(served: Served) -> Client:
    """A client of that broker."""
    return await served.connect()
