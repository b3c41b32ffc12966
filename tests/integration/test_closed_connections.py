"""What is left of a closed connection: nothing.

The collector does not run here, as in a broker that nobody asks for anything: what only a cycle holds stays.
"""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from tests.support.builders import fetch_request, produce_request, records
from tests.support.served import Served, until
from tidelog.broker.net.connection import Connection
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.produce import PRODUCE


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(each, Connection) for each in gc.get_objects())


async def test_a_connection_goes_at_once_when_its_client_has_left(served: Served) -> None:
    before = connections()
    maker = await served.connect()
    await maker.make_topic("t")
    await maker.ask(PRODUCE, 9, produce_request("t", records(bytes(200_000)), acks=-1))
    for number in range(3):
        client = await served.connect()
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
        if number:
            client.send(FETCH, 11, 1, fetch_request("t", 0))  # a large answer
        if number == 2:
            client.send(FETCH, 11, 2, fetch_request("t", 1, max_wait_ms=60_000))  # waits
        client.writer.close()
    maker.writer.close()
    await until(lambda: not served.server.connections)
    for _ in range(100):  # turns in which the loop calls what it was asked to
        await asyncio.sleep(0)
    assert connections() == before
