"""The reasons of a connection to take no further requests: it is read from exactly while there are none."""

import random
from typing import Any, cast

from tests.support.served import Client, Served, until
from tidelog.broker.net.connection import (
    CLOSING,
    FINISHING,
    MEMORY,
    PENDING,
    TURN,
    UNSENT,
    Reading,
)
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest


class Transport:
    """Remembers whether it is paused, and refuses to be paused or resumed twice."""

    is_paused = False

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def test_reading_is_paused_exactly_while_there_are_reasons_to_hold() -> None:
    transport = Transport()
    reading, reasons = Reading(cast(Any, transport)), set[int]()
    chance = random.Random(1)
    for _ in range(1000):
        reason = chance.choice([TURN, UNSENT, PENDING, MEMORY])
        if chance.random() < 0.5:
            reading.pause(reason)
            reasons.add(reason)
        else:
            reasons.discard(reason)
            assert reading.resume(reason) == (not reasons)
        assert reading.reasons == sum(reasons)
        assert transport.is_paused == bool(reasons)


async def test_the_transport_of_a_connection_is_held_and_let_go_with_it(
    served: Served, client: Client
) -> None:
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection = served.connection_of(client)
    assert connection._reading.reasons == 0
    assert connection._transport.is_reading()
    connection.pause_writing()
    assert connection._reading.reasons == UNSENT
    assert not connection._transport.is_reading()
    connection.resume_writing()
    assert connection._reading.reasons == 0
    assert connection._transport.is_reading()
    assert await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection.finish()
    assert connection._reading.reasons == FINISHING | CLOSING
    await until(lambda: not served.server.connections)
