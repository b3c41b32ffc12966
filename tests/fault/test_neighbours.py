"""No client takes what belongs to all: every scenario of neighbours.py keeps its bounds.

`python -m tests.fault.neighbours` prints their figures.
"""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from tests.fault.neighbours import SCENARIOS
from tests.support.served import Client, Serve, until
from tests.support.stage import Scenario, measure, place_for
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.storage.log import Log

# A busy machine makes anything late now and then; what harms others does so each time. A fault is never tried again.
TRIES = 3


@pytest.mark.e2e
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(scenario, marks=[pytest.mark.all] if scenario.is_slow else [], id=scenario.name)
        for scenario in SCENARIOS.values()
    ],
)
def test_nobody_else_is_harmed(tmp_path: Path, what: Scenario) -> None:
    for attempt in range(TRIES):
        try:
            with place_for(what, tmp_path / f"place-{attempt}") as folder:
                row = measure(what, folder)
        except OSError as error:
            pytest.skip(str(error))
        if row.faults or not row.misses(what.bounds):
            break
    assert row.misses(what.bounds) == [], row


def parked(topic: str) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic=topic, partitions=[part])]
    )


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError("no more"), LookupError("a slip")],
    ids=repr,
)
async def test_a_parked_fetch_that_fails_takes_no_other_with_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """All are due in the same moment: the failing one is answered or its connection ends, the others are answered."""
    served = await serve()
    clients = {topic: await served.connect() for topic in ("first", "bad", "last")}
    for topic, client in clients.items():
        await client.make_topic(topic)
    read = Log.read

    def bad_read(log: Log, *wanted: int, **how: bool) -> object:
        if log.topic == "bad" and len(served.broker.parked) < 3:
            raise fault
        return read(log, *wanted, **how)

    for client, topic in zip(clients.values(), clients, strict=True):
        client.send(FETCH, 12, 1, parked(topic))
        await until(lambda: len(served.broker.parked) == list(clients).index(topic) + 1)  # noqa: B023
    monkeypatch.setattr(Log, "read", bad_read)
    for topic in ("first", "last"):
        assert (await code_of(clients[topic])) == ErrorCode.NONE
    assert (await code_of(clients["bad"])) in (ErrorCode.KAFKA_STORAGE_ERROR, None)


async def code_of(client: Client) -> int | None:
    """Return the error code of the fetch that is due, None if the connection ended instead."""
    try:
        _, answer = await asyncio.wait_for(client.receive(FETCH, 12), 10)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return answer.responses[0].partitions[0].error_code
