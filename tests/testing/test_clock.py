"""The clock in a test's hand: all that was due by then has been done when a call returns."""

from datetime import UTC, datetime

import pytest

from tests.support.raw_client import FETCH, LIST_OFFSETS, RawClient
from tests.support.tested import batch_at, member, raw
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest
from tidelog.testing import Broker, Clock, ControlError, Topic

pytestmark = pytest.mark.e2e
EARLIEST = -2


@pytest.fixture
def client(tidelog: Broker, tidelog_clock: Clock):  # type: ignore[no-untyped-def]
    with raw(tidelog) as client:
        yield client


def test_a_clock_is_held_moved_and_let_go(tidelog: Broker) -> None:
    clock = tidelog.clock
    held = clock.hold()
    assert held.tzinfo is UTC
    assert clock.now() == held
    assert (clock.advance(hours=48) - held).total_seconds() == 48 * 3600
    before = clock.now()
    assert (clock.advance("1h 30m") - before).total_seconds() == 5400
    assert clock.set(datetime(2026, 3, 1, 9, tzinfo=UTC)).isoformat() == "2026-03-01T09:00:00+00:00"
    assert clock.now_ms == clock.held_ms == 1_772_355_600_000
    with pytest.raises(ControlError, match="set puts it back"):
        clock.advance(hours=-1)
    assert abs((clock.release() - held).total_seconds()) < 600
    assert clock.held_ms is None


def test_a_segment_is_rolled_by_time(tidelog: Broker, tidelog_clock: Clock, client: RawClient) -> None:
    topic = tidelog.topic(**{"segment.ms": 60_000})
    client.produce(topic.name, batch_at(tidelog_clock.now_ms))
    tidelog_clock.advance(minutes=10)
    folder = tidelog.data_dir / f"{topic.name}-0"
    assert sorted(path.name for path in folder.glob("*.log")) == [f"{0:020d}.log", f"{1:020d}.log"]


async def test_a_member_that_is_silent_for_its_session_timeout_is_gone(
    tidelog_topic: Topic, tidelog_clock: Clock, client: RawClient
) -> None:
    one = member(client, f"g-{tidelog_topic}")
    await one.join_and_sync()
    tidelog_clock.advance(seconds=9)
    assert await one.heartbeat() == ErrorCode.NONE
    tidelog_clock.advance(seconds=11)
    assert await one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.tidelog(config={"offsets.retention.minutes": 1})
async def test_committed_offsets_expire(
    tidelog_topic: Topic, tidelog_clock: Clock, client: RawClient
) -> None:
    """To the second, though the broker looks for them every ten minutes."""
    one = member(client, f"g-{tidelog_topic}")
    assert await one.commit(tidelog_topic.name, 5) == [ErrorCode.NONE]
    for seconds, offset in ((59, 5), (2, -1)):
        tidelog_clock.advance(seconds=seconds)
        assert await one.offsets(**{tidelog_topic.name: 1}) == {(tidelog_topic.name, 0): offset}


def for_a_minute(topic: Topic) -> FetchRequest:
    """Ask for records of a topic, and wait for them so long."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = [FetchTopic(topic=topic.name, partitions=[part])]
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=wanted)


def test_who_waits_for_records_is_answered_when_his_time_has_passed(
    tidelog: Broker, tidelog_topic: Topic, tidelog_clock: Clock
) -> None:
    request = for_a_minute(tidelog_topic)
    for _ in range(10):  # each over a connection that the broker has not seen when the clock is moved
        with raw(tidelog) as client:
            client.send(FETCH, 12, request)
            tidelog_clock.advance(seconds=60)
            _, response = client.receive(FETCH, 12)
        assert not response.responses or not response.responses[0].partitions[0].records


def test_a_fetch_that_waits_on_a_held_clock_lets_its_client_ask_for_more(
    tidelog_topic: Topic, tidelog_clock: Clock, client: RawClient
) -> None:
    request = for_a_minute(tidelog_topic)
    with raw(tidelog_topic.broker) as other:
        other.send(FETCH, 12, request)
        client.send(FETCH, 12, request)
        assert client.send(LIST_OFFSETS, 1, ListOffsetsRequest(replica_id=-1, topics=[]))
        assert client.receive(FETCH, 12)[1].error_code == 0
        assert client.receive(LIST_OFFSETS, 1)[1].topics == []
        # Who asks for nothing else waits on.
        client.produce(tidelog_topic.name, batch_at(tidelog_clock.now_ms))
        assert other.receive(FETCH, 12)[1].responses[0].partitions[0].high_watermark == 1


def test_append_times_do_not_go_back_with_the_clock(
    tidelog: Broker, tidelog_clock: Clock, client: RawClient
) -> None:
    topic = tidelog.topic(**{"message.timestamp.type": "LogAppendTime"})
    start_ms = tidelog_clock.now_ms
    for step_ms in (0, -3_600_000, 0, 5_000):
        tidelog_clock.set(start_ms + step_ms)
        client.produce(topic.name, batch_at(start_ms))
    assert [record.timestamp - start_ms for record in topic.records()] == [0, 0, 0, 5_000]


@pytest.mark.parametrize("wait_ms", [1, 7, 501, 30_000])
def test_a_fetch_is_answered_when_its_time_has_come_and_not_before(
    tidelog_topic: Topic, tidelog_clock: Clock, client: RawClient, wait_ms: int
) -> None:
    waits = FetchRequest(
        replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1000,
        topics=[FetchTopic(topic=tidelog_topic.name, partitions=[
            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])],
    )  # fmt: skip
    client.send(FETCH, 4, waits)
    tidelog_clock.advance(milliseconds=wait_ms - 1)
    assert not client.is_answered(0.02)
    tidelog_clock.advance(milliseconds=1)
    assert client.is_answered(10)


def test_what_is_looked_for_from_time_to_time_is_due_to_the_millisecond(
    tidelog: Broker, tidelog_clock: Clock, client: RawClient
) -> None:
    for retention_ms in (1, 299_000, 86_400_000):
        topic = tidelog.topic(**{"retention.ms": retention_ms})
        client.produce(topic.name, batch_at(tidelog_clock.now_ms))
        tidelog_clock.advance(milliseconds=retention_ms)
        assert len(topic.records()) == 1
        tidelog_clock.advance(milliseconds=1)
        assert not topic.records()
        topic.delete()  # Retention looks often where records live for a millisecond.


def test_a_log_is_compacted_when_its_records_are_old_enough(
    tidelog: Broker, tidelog_clock: Clock, client: RawClient
) -> None:
    lag = {"min.compaction.lag.ms": 5_000, "segment.ms": 1_000, "min.cleanable.dirty.ratio": 0}
    topic = tidelog.topic(**{"cleanup.policy": "compact", **lag})
    first_ms = tidelog_clock.now_ms
    for _ in range(3):
        client.produce(topic.name, batch_at(first_ms))
    tidelog_clock.advance(seconds=2)
    client.produce(topic.name, batch_at(first_ms + 2_000))
    tidelog_clock.advance(seconds=2)
    assert len(topic.records()) == 4
    tidelog_clock.advance(seconds=2)
    assert len(topic.records()) == 2


def test_a_clock_stays_within_the_years_that_can_be_told(tidelog: Broker, tidelog_clock: Clock) -> None:
    for at_ms in (-1, 253_402_300_800_000, 10**400):
        with pytest.raises(ControlError, match="1970 to the end of 9999"):
            tidelog_clock.set(at_ms)
        with pytest.raises(ControlError, match=r"back|1970 to the end of 9999"):
            tidelog.ask("advance", ms=at_ms)
    for at_ms in (253_402_300_799_999, 0):
        tidelog_clock.set(at_ms)
        assert tidelog_clock.now_ms == at_ms
