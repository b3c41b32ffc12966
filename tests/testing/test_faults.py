"""Faults on demand: each kind of them, whom they are for, and what clients make of them."""

import asyncio
import select
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.support.builders import produce_request
from tests.support.raw_client import FETCH, METADATA, PRODUCE, PeerClosedError, RawClient
from tests.support.tested import batch_at, member, raw, values
from tidelog.broker import faults as broker_faults
from tidelog.broker.clock import Clock as BrokerClock
from tidelog.broker.control_protocol import FaultOptions
from tidelog.broker.running import Running
from tidelog.broker.timers import Timers
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.heartbeat import HEARTBEAT as HEARTBEAT_API
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import PartitionProduceData, TopicProduceData
from tidelog.testing import Broker, Clock, ControlError, Faults, Topic

pytestmark = pytest.mark.e2e
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOW_MS = 1_700_000_000_000
HEARTBEAT = HEARTBEAT_API.key


@pytest.fixture
def client(tidelog: Broker) -> Iterator[RawClient]:
    with raw(tidelog) as client:
        yield client


@pytest.fixture
def producer(tidelog: Broker) -> Iterator[KafkaProducer]:
    """An idempotent producer, which tries again at once."""
    producer = KafkaProducer(
        bootstrap_servers=tidelog.bootstrap, enable_idempotence=True, acks="all", retry_backoff_ms=1, client_id="real",
        request_timeout_ms=2_000, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1,
    )  # fmt: skip
    yield producer
    producer.close()


def _produce(client: RawClient, topic: Topic) -> int:
    return int(client.produce(topic.name, batch_at(NOW_MS)).error_code)


def test_an_error_comes_as_often_as_it_was_asked_for(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    fault = tidelog_faults.next("produce", times=2, error="NOT_LEADER_OR_FOLLOWER", topic=tidelog_topic)
    assert [_produce(client, tidelog_topic) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, 0]
    assert len(tidelog_topic.records()) == 1
    assert len(fault.seen()) == len(tidelog_faults.seen()) == 2
    seen = tidelog_faults.seen()[0]
    assert (seen["api"], seen["error"], seen["topic"]) == (
        "Produce",
        "NOT_LEADER_OR_FOLLOWER",
        tidelog_topic.name,
    )
    assert seen["client_id"] == "raw"


def test_a_fault_lasts_until_it_is_cleared(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    fault = tidelog_faults.always("Produce", error=int(NOT_LEADER))
    assert {_produce(client, tidelog_topic) for _ in range(5)} == {NOT_LEADER}
    fault.clear()
    assert _produce(client, tidelog_topic) == 0


def test_chance_is_the_same_for_the_same_seed(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    def codes(seed: int) -> list[int]:
        tidelog_faults.chance("produce", 0.5, seed, error="NOT_LEADER_OR_FOLLOWER")
        found = [_produce(client, tidelog_topic) for _ in range(30)]
        tidelog_faults.clear()
        return found

    one = codes(1)
    assert set(one) == {0, NOT_LEADER}
    assert codes(1) == one != codes(2)


def test_only_whom_it_is_for_meets_a_fault(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    topic, other = tidelog.topic(partitions=2), tidelog.topic()
    for filters in ({"topic": other}, {"topic": topic, "partition": 1}, {"client_id": "somebody else"}):
        tidelog_faults.always("produce", error="NOT_LEADER_OR_FOLLOWER", **filters)
    assert _produce(client, topic) == 0
    assert _produce(client, other) == NOT_LEADER
    assert client.produce(topic.name, batch_at(NOW_MS), 1).error_code == NOT_LEADER
    tidelog_faults.always("produce", error="REQUEST_TIMED_OUT", client_id="raw")
    assert _produce(client, topic) == ErrorCode.REQUEST_TIMED_OUT


def test_of_a_request_for_two_topics_one_is_refused_and_the_other_stored(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    refused, served = tidelog.topic(), tidelog.topic()
    tidelog_faults.next("produce", error="NOT_LEADER_OR_FOLLOWER", topic=refused)
    request = produce_request(refused.name, batch_at(NOW_MS))
    part = PartitionProduceData(index=0, records=memoryview(batch_at(NOW_MS)))
    request.topic_data.append(TopicProduceData(name=served.name, partition_data=[part]))
    response = client.ask(PRODUCE, 9, request)
    assert {topic.name: topic.partition_responses[0].error_code for topic in response.responses} == {
        refused.name: NOT_LEADER,
        served.name: 0,
    }
    assert (len(refused.records()), len(served.records())) == (0, 1)


def _fetch(client: RawClient, *topics: str, session: int = 0, epoch: int = -1) -> Any:
    wanted = [
        FetchTopic(
            topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        )
        for topic in topics
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=wanted,
    )  # fmt: skip
    return client.ask(FETCH, 12, request)


def test_a_fetch_of_two_topics_fails_for_one(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    spoiled, served = tidelog.topic(), tidelog.topic()
    for topic in (spoiled, served):
        _produce(client, topic)
    tidelog_faults.next("fetch", error="OFFSET_OUT_OF_RANGE", topic=spoiled)
    parts = {each.topic: each.partitions[0] for each in _fetch(client, spoiled.name, served.name).responses}
    assert parts[spoiled.name].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not parts[spoiled.name].records
    assert parts[served.name].error_code == 0
    assert parts[served.name].records
    assert client.fetch(spoiled.name, 0).error_code == 0


def test_a_fetch_of_a_session_fails_once_its_client_has_named_all_again(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    spoiled, served = tidelog.topic(), tidelog.topic()
    session = _fetch(client, spoiled.name, served.name, epoch=0).session_id
    assert session
    assert _fetch(client, session=session, epoch=1).error_code == 0
    tidelog_faults.next("fetch", error="NOT_LEADER_OR_FOLLOWER", topic=spoiled)
    assert _fetch(client, session=session, epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    parts = _fetch(client, spoiled.name, served.name, epoch=0).responses
    assert {each.topic: each.partitions[0].error_code for each in parts}[spoiled.name] == NOT_LEADER


def test_a_consumer_with_a_session_goes_on_after_an_error(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    spoiled, served = tidelog.topic(), tidelog.topic()
    consumer = KafkaConsumer(
        bootstrap_servers=tidelog.bootstrap, consumer_timeout_ms=30_000, auto_offset_reset="earliest",
        fetch_max_wait_ms=20, retry_backoff_ms=1,
    )  # fmt: skip
    consumer.assign([TopicPartition(topic.name, 0) for topic in (spoiled, served)])
    for topic in (spoiled, served):
        _produce(client, topic)
    assert {next(consumer).topic for _ in range(2)} == {spoiled.name, served.name}
    fault = tidelog_faults.next("fetch", error="NOT_LEADER_OR_FOLLOWER", topic=spoiled)
    _produce(client, served)
    assert next(consumer).topic == served.name
    _produce(client, spoiled)
    assert next(consumer).topic == spoiled.name
    assert len(fault.seen()) == 1
    consumer.close()


def test_metadata_says_an_error_of_one_topic(
    tidelog: Broker, tidelog_faults: Faults, client: RawClient
) -> None:
    spoiled, served = tidelog.topic(), tidelog.topic()
    tidelog_faults.next("metadata", error="LEADER_NOT_AVAILABLE", topic=spoiled)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=each.name) for each in (spoiled, served)])
    found = {topic.name: topic.error_code for topic in client.ask(METADATA, 12, request).topics}
    assert found == {spoiled.name: ErrorCode.LEADER_NOT_AVAILABLE, served.name: 0}


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
def test_a_connection_is_dropped_before_or_after_the_records_are_stored(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient, when: Any, stored: int
) -> None:
    tidelog_faults.next("produce", drop=when)
    with pytest.raises(PeerClosedError):
        _produce(client, tidelog_topic)
    assert len(tidelog_topic.records()) == stored


@pytest.mark.parametrize(
    "what",
    [
        {"drop": "before"},
        {"drop": "after"},
        {"truncate": True},
        {"unanswered": True},
        {"error": "NOT_LEADER_OR_FOLLOWER", "times": 3},
        {"error": "REQUEST_TIMED_OUT"},
        {"delay_ms": 5},
        {"throttle_ms": 1},
    ],
    ids=str,
)
def test_an_idempotent_producer_stores_each_record_once_whatever_goes_wrong(
    tidelog_topic: Topic, tidelog_faults: Faults, producer: KafkaProducer, what: dict[str, Any]
) -> None:
    producer.send(tidelog_topic.name, b"before").get(30)
    fault = tidelog_faults.next("produce", topic=tidelog_topic, client_id="real", **what)
    sent = producer.send(tidelog_topic.name, b"once")
    assert sent.get(30).offset == 1
    assert values(tidelog_topic.records()) == [b"before", b"once"]
    assert len(fault.seen()) == what.get("times", 1)


def test_what_is_not_answered_is_stored(
    tidelog_topic: Topic, tidelog_faults: Faults, tidelog: Broker, client: RawClient
) -> None:
    tidelog_faults.next("produce", unanswered=True)
    client.send(PRODUCE, 9, produce_request(tidelog_topic.name, batch_at(NOW_MS)))
    with raw(tidelog) as other:
        assert _produce(other, tidelog_topic) == 0
    assert len(tidelog_topic.records()) == 2
    assert not select.select([client._socket], [], [], 0)[0]
    tidelog_faults.clear()
    assert client.is_closed_by_peer()


def test_an_answer_is_cut_short(tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient) -> None:
    tidelog_faults.next("metadata", truncate=True)
    client.send(METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=tidelog_topic.name)]))
    head = client._stream.read(4)
    promised = int.from_bytes(head, "big")
    rest = client._stream.read(promised)
    assert 0 < len(rest) < promised


def test_an_answer_says_that_its_client_is_throttled(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    tidelog_faults.next("produce", throttle_ms=77)
    response = client.ask(PRODUCE, 9, produce_request(tidelog_topic.name, batch_at(NOW_MS)))
    assert response.throttle_time_ms == 77
    assert len(tidelog_topic.records()) == 1


def test_a_delay_goes_by_the_clock_that_is_held(
    tidelog_topic: Topic, tidelog_faults: Faults, tidelog_clock: Clock, client: RawClient
) -> None:
    tidelog_faults.next("produce", delay_ms=5_000)
    client.send(PRODUCE, 9, produce_request(tidelog_topic.name, batch_at(NOW_MS)))
    tidelog_clock.advance(milliseconds=4_999)
    assert not select.select([client._socket], [], [], 0)[0]
    assert tidelog_topic.records() == []
    tidelog_clock.advance(milliseconds=1)
    _, response = client.receive(PRODUCE, 9)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("end", ["free_disk", "clear"])
def test_a_full_disk_refuses_records_until_it_is_free(
    tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient, end: str
) -> None:
    assert _produce(client, tidelog_topic) == 0
    tidelog_faults.fill_disk()
    assert _produce(client, tidelog_topic) == ErrorCode.KAFKA_STORAGE_ERROR
    getattr(tidelog_faults, end)()
    assert _produce(client, tidelog_topic) == 0
    assert len(tidelog_topic.records()) == 2


def test_a_broker_whose_disk_was_full_to_the_end_stops_in_order(fresh_tidelog: Broker) -> None:
    topic = fresh_tidelog.topic()
    with raw(fresh_tidelog) as client:
        _produce(client, topic)
        fresh_tidelog.faults.fill_disk()
        assert _produce(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR
    fresh_tidelog.restart()
    with raw(fresh_tidelog) as client:
        assert _produce(client, topic) == 0
    assert len(topic.records()) == 2


async def test_members_are_told_once_that_their_coordinator_has_moved(
    tidelog: Broker, tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    one = member(client, f"g-{tidelog_topic}")
    await one.join_and_sync()
    tidelog_faults.move_coordinator(one.group)
    assert await one.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert await one.heartbeat() == ErrorCode.NONE
    assert [seen["error"] for seen in tidelog_faults.seen()] == ["NOT_COORDINATOR"]


def test_a_consumer_of_a_group_goes_on_when_its_coordinator_moves(
    tidelog: Broker, tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    consumer = KafkaConsumer(
        tidelog_topic.name, bootstrap_servers=tidelog.bootstrap, group_id=f"g-{tidelog_topic}",
        auto_offset_reset="earliest", consumer_timeout_ms=30_000, retry_backoff_ms=1, enable_auto_commit=False,
    )  # fmt: skip
    _produce(client, tidelog_topic)
    next(consumer)
    tidelog_faults.move_coordinator()
    consumer.commit()
    _produce(client, tidelog_topic)
    assert next(consumer).offset == 1
    assert consumer.committed(TopicPartition(tidelog_topic.name, 0)) == 1
    assert "NOT_COORDINATOR" in [seen["error"] for seen in tidelog_faults.seen()]
    consumer.close(autocommit=False)


def test_a_leader_epoch_is_raised(
    tidelog: Broker, tidelog_topic: Topic, tidelog_faults: Faults, client: RawClient
) -> None:
    _produce(client, tidelog_topic)
    before = client.metadata(tidelog_topic.name).topics[0].partitions[0].leader_epoch
    assert tidelog_faults.raise_leader_epoch(tidelog_topic) == before + 1
    assert client.metadata(tidelog_topic.name).topics[0].partitions[0].leader_epoch == before + 1
    _produce(client, tidelog_topic)
    epochs = [data[12:16] for _, data in client.batches(tidelog_topic.name)]
    assert [int.from_bytes(epoch, "big") for epoch in epochs] == [before, before + 1]
    with pytest.raises(ControlError, match="no partition 4"):
        tidelog_faults.raise_leader_epoch(tidelog_topic, 4)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"api": "prodduce", "error": "NONE"}, r"did you mean Produce\?"),
        ({"api": "produce", "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"api": "produce"}, "say what goes wrong"),
        ({"api": "produce", "drop": "never"}, "'before' or 'after'"),
        ({"api": "produce", "error": "UNKNOWN_SERVER_ERROR", "times": 0}, "times is 1 or more"),
        ({"api": "heartbeat", "error": "UNKNOWN_SERVER_ERROR", "topic": "t"}, "names no topics"),
        ({"api": "produce", "error": "UNKNOWN_SERVER_ERROR", "partition": 1}, "needs its topic"),
        (
            {"api": "produce", "error": "UNKNOWN_SERVER_ERROR", "topic": "t", "partition": -1},
            "0 to 2147483647",
        ),
        (
            {"api": "create_topics", "error": "UNKNOWN_SERVER_ERROR", "topic": "t", "partition": 0},
            "whole topics",
        ),
        ({"api": "produce", "throttle_ms": 2**31}, "0 to 2147483647"),
        ({"api": "produce", "delay_ms": -1}, "0 to 2147483647"),
        ({"api": [], "error": "UNKNOWN_SERVER_ERROR"}, "name an API"),
        ({"api": [1], "error": "UNKNOWN_SERVER_ERROR"}, "the name of an API cannot be 1"),
    ],
)
def test_what_is_no_fault_is_refused_at_once(tidelog_faults: Faults, what: dict[str, Any], why: str) -> None:
    with pytest.raises(ControlError, match=why):
        tidelog_faults.next(**what)
    with pytest.raises(ControlError, match="between 0 and 1"):
        tidelog_faults.chance("produce", 1.5, error="UNKNOWN_SERVER_ERROR")


def _waits(topic: Topic) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic.name, partitions=[part])]
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)


@pytest.mark.parametrize(
    "what", [{"unanswered": True}, {"delay_ms": 1000}, {"unanswered": True, "delay_ms": 1000}]
)
def test_nobody_who_waits_holds_up_a_stop(fresh_tidelog: Broker, what: dict[str, Any]) -> None:
    fresh_tidelog.clock.hold()
    topic = fresh_tidelog.topic()
    fresh_tidelog.faults.always("fetch", **what)
    with raw(fresh_tidelog) as client:
        client.send(FETCH, 12, _waits(topic))
        fresh_tidelog.clock.now()
        began_s = time.monotonic()
        fresh_tidelog.stop()
        assert time.monotonic() - began_s < 20


def test_who_waits_when_the_faults_are_cleared_is_not_left_without_an_end(
    tidelog_topic: Topic, tidelog_faults: Faults, tidelog_clock: Clock, client: RawClient
) -> None:
    tidelog_faults.always("fetch", unanswered=True)
    client.send(FETCH, 12, _waits(tidelog_topic))
    tidelog_clock.now()
    tidelog_faults.clear()
    tidelog_clock.advance(seconds=60)
    assert client.is_closed_by_peer()


def test_a_producer_that_gives_up_hears_the_error(
    tidelog: Broker, tidelog_topic: Topic, tidelog_faults: Faults
) -> None:
    tidelog_faults.always("produce", error="TOPIC_AUTHORIZATION_FAILED", topic=tidelog_topic)
    producer = KafkaProducer(bootstrap_servers=tidelog.bootstrap)
    with pytest.raises(KafkaError):
        producer.send(tidelog_topic.name, b"x").get(30)
    producer.close()
    assert tidelog_topic.records() == []


def test_a_fault_for_a_group_leaves_the_others_alone(tidelog_faults: Faults, client: RawClient) -> None:
    tidelog_faults.always("heartbeat", error="REQUEST_TIMED_OUT", group="its")
    codes = [
        client.ask(HEARTBEAT, 4, HeartbeatRequest(group_id=group, generation_id=1, member_id="m")).error_code
        for group in ("its", "other", "its")
    ]
    assert codes[0] == codes[2] == ErrorCode.REQUEST_TIMED_OUT
    assert codes[1] == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(tidelog_faults.seen()) == 2


def test_chance_is_as_great_as_it_was_asked_for(tidelog_faults: Faults, client: RawClient) -> None:
    tidelog_faults.chance("heartbeat", 0.9, error="REQUEST_TIMED_OUT")
    for _ in range(100):
        client.ask(HEARTBEAT, 4, HeartbeatRequest(group_id="its", generation_id=1, member_id="m"))
    assert 75 < len(tidelog_faults.seen()) < 100


def test_a_fetch_by_id_that_fails_is_not_waited_for(
    tidelog_topic: Topic, tidelog_faults: Faults, tidelog_clock: Clock, client: RawClient
) -> None:
    topic_id = client.metadata(tidelog_topic.name).topics[0].topic_id
    tidelog_faults.next("fetch", error="NOT_LEADER_OR_FOLLOWER", topic=tidelog_topic)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=topic_id, partitions=[part])]
    client.send(FETCH, 13, FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics))
    assert client.is_answered(10)  # the clock is held
    _, response = client.receive(FETCH, 13)
    assert response.responses[0].partitions[0].error_code == NOT_LEADER


@pytest.mark.parametrize("what", [{"delay_ms": 1000}, {"unanswered": True}], ids=str)
async def test_nothing_is_held_for_a_client_that_has_left(what: FaultOptions) -> None:
    loop, clock = asyncio.get_running_loop(), BrokerClock()
    clock.hold()
    faults = broker_faults.Faults(loop, clock, Timers(loop, clock))
    faults.add("heartbeat", **what)
    handle = faults.handle_of(HEARTBEAT_API, lambda *_: HeartbeatResponse(error_code=0))
    session: Any = Mock(client_id=None, peer="here")
    request = HeartbeatRequest(group_id="its", generation_id=1, member_id="m")
    waits = Running(Mock(), None, handle(session, request, 4))
    assert waits.begin() is waits
    left = weakref.ref(session)
    waits.cancel()
    del session
    assert left() is None
    clock.set(clock.now_ms() + 1000)
    faults.clear()
    await asyncio.sleep(0)
    assert waits.response is None


def test_each_option_of_a_fault_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    assert not [name for name in FaultOptions.__annotations__ if f"`{name}" not in page]
