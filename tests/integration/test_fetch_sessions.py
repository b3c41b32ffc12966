"""Fetch sessions over a socket, by name and by id: what responses name, what wakes a fetch, how sessions end."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.builders import T0, records
from tests.support.faulty_disk import FaultyDisk
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker import fetch_sessions
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

IDS_SINCE = 13
every_version = pytest.mark.parametrize("version", range(7, FETCH.max_version + 1))


class Consumer:
    """A client with a session, which keeps its id, its epoch and its offsets as clients do."""

    def __init__(self, client: Client, version: int, topic_id: bytes, name: str = "t") -> None:
        self.client, self.version = client, version
        self.by_id = version >= IDS_SINCE
        self.named: dict[str, Any] = {"topic_id": topic_id} if self.by_id else {"topic": name}
        self.session_id, self.epoch = 0, 0

    def request(
        self, wanted: dict[int, int] | None = None, forgotten: Iterable[int] = (), **more: Any
    ) -> FetchRequest:
        wants = [
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=more.get("most_bytes", 1 << 20)
            )
            for index, offset in (wanted or {}).items()
        ]
        return FetchRequest(
            max_wait_ms=more.get("max_wait_ms", 0),
            min_bytes=more.get("min_bytes", 1),
            max_bytes=more.get("max_bytes", 1 << 20),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(**self.named, partitions=wants)] if wants else [],
            forgotten_topics_data=(
                [ForgottenTopic(**self.named, partitions=list(forgotten))] if forgotten else []
            ),
        )

    def send(self, wanted: dict[int, int] | None = None, **more: Any) -> None:
        self.client.send(FETCH, self.version, 1, self.request(wanted, **more))

    async def receive(self) -> Any:
        response = (await self.client.receive(FETCH, self.version))[1]
        if not response.error_code:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if response.session_id else 0
        return response

    async def poll(self, wanted: dict[int, int] | None = None, **more: Any) -> Any:
        self.send(wanted, **more)
        return await self.receive()


def partitions_in(response: Any) -> dict[int, tuple[int, int, int]]:
    """Return (error, end, bytes of records) of each partition in a response."""
    assert not response.error_code, response.error_code
    return {
        part.partition_index: (part.error_code, part.high_watermark, len(part.records or b""))
        for topic in response.responses
        for part in topic.partitions
    }


def with_records(response: Any) -> dict[int, tuple[int, int, int]]:
    return {index: part for index, part in partitions_in(response).items() if part[2]}


BATCH = records(b"v" * 100)
SIZE = len(BATCH)


async def append(client: Client, index: int) -> None:
    assert not (await client.produce("t", BATCH, index)).error_code


async def started(
    serve: Serve, version: int, partitions: int = 3, **options: str
) -> tuple[Served, Client, Consumer]:
    """Serve a topic; return the broker, a client that produces, and one that consumes."""
    served = await serve(**{"log_retention_ms": "-1", **options})
    client = await served.connect()
    topic_id = await client.make_topic("t", partitions)
    return served, client, Consumer(await served.connect(), version, topic_id)


EVERY = {0: 0, 1: 0, 2: 0}
EMPTY, NEW = (0, 0, 0), (0, 1, SIZE)


@every_version
async def test_a_session_from_its_begin_to_its_end(serve: Serve, version: int) -> None:
    served, client, consumer = await started(serve, version)
    await append(client, 1)
    first = await consumer.poll(EVERY)
    assert partitions_in(first) == {0: EMPTY, 1: NEW, 2: EMPTY}
    assert first.session_id > 0
    assert partitions_in(await consumer.poll({1: 1})) == {}
    await append(client, 2)
    assert partitions_in(await consumer.poll()) == {2: NEW}
    assert partitions_in(await consumer.poll()) == {2: NEW}, "it has not moved on, and gets them again"
    assert partitions_in(await consumer.poll({2: 1}, forgotten=[0])) == {}
    await append(client, 0)
    assert partitions_in(await consumer.poll()) == {}, "it was forgotten"
    assert partitions_in(await consumer.poll({0: 0})) == {0: NEW}
    assert len(served.broker.fetch_sessions) == 1
    consumer.epoch = -1
    closing = await consumer.poll()
    assert (closing.error_code, closing.session_id, closing.responses) == (0, 0, [])
    assert len(served.broker.fetch_sessions) == 0


@every_version
async def test_what_is_wrong_with_a_session_is_told(serve: Serve, version: int) -> None:
    served, _, consumer = await started(serve, version)
    await consumer.poll(EVERY)
    session = consumer.session_id
    other = Consumer(consumer.client, 12 if version >= IDS_SINCE else 13, b"?" * 16)
    for who, session_id, epoch, code in (
        (consumer, session, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (consumer, session, -2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (consumer, session ^ 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (consumer, 0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (other, session, 1, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        who.session_id, who.epoch = session_id, epoch
        refused = await who.poll()
        assert (refused.error_code, refused.session_id, refused.responses) == (code, 0, [])
    consumer.session_id, consumer.epoch = session, 1
    assert partitions_in(await consumer.poll()) == {}
    consumer.epoch = 0  # A full fetch that names a session ends it, and begins another.
    assert partitions_in(await consumer.poll(EVERY)) == dict.fromkeys(EVERY, EMPTY)
    assert consumer.session_id != session
    assert len(served.broker.fetch_sessions) == 1
    assert partitions_in(await consumer.poll(forgotten=[0, 1, 2])) == {}
    assert (consumer.session_id, len(served.broker.fetch_sessions)) == (0, 0)


@every_version
async def test_a_fetch_in_a_session_waits_for_what_comes(serve: Serve, version: int) -> None:
    served, client, consumer = await started(serve, version)
    await consumer.poll(EVERY)
    consumer.send(max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    await append(client, 2)
    assert partitions_in(await consumer.receive()) == {2: NEW}
    consumer.send({2: 1}, max_wait_ms=60_000, min_bytes=2 * SIZE)
    await until(lambda: len(served.broker.parked) == 1)
    await append(client, 2)
    assert len(served.broker.parked) == 1, "the half of what it waits for"
    await append(client, 0)
    assert partitions_in(await consumer.receive()) == {0: NEW, 2: (0, 2, SIZE)}
    assert partitions_in(await consumer.poll({0: 1, 2: 2}, max_wait_ms=1)) == {}, "its time was up"
    assert served.broker.queued_fetches.total_bytes == 0


@every_version
async def test_a_topic_that_is_deleted_and_made_again(serve: Serve, version: int) -> None:
    _, client, consumer = await started(serve, version)
    await consumer.poll(EVERY)
    consumer.send(max_wait_ms=60_000)
    assert await client.delete("t") == 0
    code = ErrorCode.UNKNOWN_TOPIC_ID if consumer.by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = dict.fromkeys(EVERY, (code, -1, 0))
    first = partitions_in(await consumer.receive())
    assert first, "it does not wait for the rest of a minute"
    assert first.items() <= gone.items()
    assert partitions_in(await consumer.poll()) == gone
    await client.make_topic("t", 3)
    await append(client, 1)
    expected = gone if consumer.by_id else {0: EMPTY, 1: NEW, 2: EMPTY}
    assert partitions_in(await consumer.poll()) == expected


async def test_every_partition_has_its_turn_and_the_first_batch_is_whole(serve: Serve) -> None:
    _, client, consumer = await started(serve, 12)
    await consumer.poll(EVERY)
    for index in EVERY:
        for _ in range(2):
            await append(client, index)
    offsets, turns = dict(EVERY), []
    answer = await consumer.poll(max_bytes=1)
    for _ in range(6):
        ((index, (code, _, size)),) = with_records(answer).items()
        assert (code, size) == (0, SIZE), "the first batch, though more than was asked for"
        turns.append(index)
        offsets[index] += 1
        answer = await consumer.poll({index: offsets[index]}, max_bytes=1)
    assert turns == [0, 1, 2, 0, 1, 2]
    assert partitions_in(answer) == {}
    for index in EVERY:
        for _ in range(3):
            await append(client, index)
    answer = with_records(
        await consumer.poll(dict.fromkeys(EVERY, 2), most_bytes=2 * SIZE, max_bytes=3 * SIZE)
    )
    assert sorted(size for _, _, size in answer.values()) == [SIZE, 2 * SIZE], "at each level what fits"


async def test_where_a_log_starts_is_told(serve: Serve) -> None:
    served, client, consumer = await started(serve, 12)
    await append(client, 1)
    await consumer.poll({0: 0, 1: 1})
    log_of(served.broker, "t", 1).advance_start(1)
    (topic,) = (await consumer.poll()).responses
    (part,) = topic.partitions
    assert (part.partition_index, part.error_code, part.log_start_offset) == (1, 0, 1)
    assert (part.preferred_read_replica, part.last_stable_offset) == (-1, 1)
    assert partitions_in(await consumer.poll()) == {}


async def test_segments_that_expire_are_told(serve: Serve) -> None:
    served, client, consumer = await started(serve, 12, log_retention_ms="3600000")
    await append(client, 1)
    await consumer.poll({1: 1})
    log = log_of(served.broker, "t", 1)
    moves = served.broker.logs.shared.start_moves
    log.roll(T0)
    with log.lock:
        log.drop_segments(1, T0)
    assert served.broker.logs.shared.start_moves != moves
    assert partitions_in(await consumer.poll()) == {1: (0, 1, 0)}


async def test_what_is_not_in_memory_is_told_too(serve: Serve, disk: FaultyDisk) -> None:
    """A reader thread looks, and the loop tells; what comes meanwhile is not waited for."""
    served, client, consumer = await started(serve, 12)
    await append(client, 0)
    await consumer.poll({1: 0, 2: 0})
    disk.is_cold = True
    assert partitions_in(await consumer.poll({0: 0})) == {0: NEW}
    consumer.send({0: 0}, min_bytes=2 * SIZE, max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    await append(client, 1)
    assert partitions_in(await consumer.receive()) == {0: NEW, 1: NEW}
    assert partitions_in(await consumer.poll({0: 1, 1: 1})) == {}


async def test_one_more_session_than_there_may_be(serve: Serve) -> None:
    served, client, consumer = await started(
        serve,
        12,
        max_incremental_fetch_session_cache_slots="1",
        min_incremental_fetch_session_eviction_ms="1000",
    )
    clock = served.broker.clock
    clock.hold()
    await consumer.poll(EVERY)
    other = Consumer(client, 12, b"")
    assert partitions_in(await other.poll(EVERY)) == dict.fromkeys(EVERY, EMPTY)
    assert other.session_id == 0
    assert partitions_in(await other.poll(EVERY)) == dict.fromkeys(EVERY, EMPTY), (
        "it goes on with full fetches"
    )
    clock.advance(milliseconds=1001)
    await other.poll(EVERY)
    assert other.session_id
    assert (await consumer.poll()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer.epoch = 0
    assert partitions_in(await consumer.poll(EVERY)) == dict.fromkeys(EVERY, EMPTY)
    assert consumer.session_id == 0


async def test_a_session_that_goes_answers_the_fetch_that_waits(serve: Serve) -> None:
    served, client, consumer = await started(serve, 12)
    await consumer.poll(EVERY)
    session = consumer.session_id
    consumer.send(max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    other = Consumer(client, 12, b"")
    other.session_id, other.epoch = session, -1
    assert partitions_in(await other.poll()) == {}
    late = await consumer.receive()
    assert (late.error_code, late.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


async def test_a_session_outlives_its_connection(serve: Serve) -> None:
    served, client, consumer = await started(serve, 12)
    await consumer.poll(EVERY)
    consumer.send(max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    consumer.client.writer.close()
    await until(lambda: not served.broker.parked)
    await append(client, 1)
    consumer.client, consumer.epoch = await served.connect(), 2
    assert partitions_in(await consumer.poll()) == {1: NEW}


async def test_thousands_of_partitions_are_told_in_turns(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_A_TURN", 10)
    served, client, consumer = await started(serve, 12, partitions=100)
    assert len(partitions_in(await consumer.poll(dict.fromkeys(range(100), 0)))) == 100
    assert partitions_in(await consumer.poll()) == {}
    for index in range(0, 100, 2):
        await append(client, index)
    assert partitions_in(await consumer.poll()) == dict.fromkeys(range(0, 100, 2), NEW)
    consumer.send(dict.fromkeys(range(0, 100, 2), 1), max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    await append(client, 99)
    assert partitions_in(await consumer.receive()) == {99: NEW}
    assert partitions_in(await consumer.poll({99: 1})) == {}
    assert served.broker.fetch_sessions.held_bytes < 100_000


async def test_two_requests_of_a_session_at_once(serve: Serve) -> None:
    served, _, consumer = await started(serve, 12)
    await consumer.poll(EVERY)
    consumer.send(max_wait_ms=60_000)
    await until(lambda: len(served.broker.parked) == 1)
    consumer.epoch += 1
    consumer.send()
    first = await consumer.receive()
    assert first.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert partitions_in(await consumer.receive()) == {}
