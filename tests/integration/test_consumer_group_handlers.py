"""The consumer group APIs in every version: answers, refusals, and groups after a restart."""

import asyncio
import socket
import struct
import threading
from typing import Any

import pytest

from tests.support.group_member import (
    ConsumerGroupMember,
    GroupMember,
    consumer_member,
    delete_topic,
    fail_flushes,
    subscribed_member,
)
from tests.support.served import Client, Serve, Served, until, versions
from tidelog.broker.broker import Broker
from tidelog.broker.groups import log as log_module
from tidelog.broker.groups import services, subscriptions, topic_patterns
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.handlers import consumer_group_heartbeat
from tidelog.broker.work import step
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_protocol import assignment_of, written_subscription
from tidelog.protocol.coordinator.messages import ConsumerGroupMetadataKey
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    TopicPartitions,
)
from tidelog.protocol.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.records.errors import BatchTooLarge

NONE = ErrorCode.NONE
REFUSED = ErrorCode.INVALID_REQUEST


@pytest.fixture
async def one(served: Served) -> ConsumerGroupMember:
    """The member `m` of the group `g`, which has not joined yet."""
    return await consumer_member(served)


async def describe(client: Client, group: str = "g", version: int = 1) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group] * 3, include_authorized_operations=False)
    (found,) = (await client.ask(CONSUMER_GROUP_DESCRIBE, version, request)).groups
    return found  # once, however often it is named


async def kinds(client: Client) -> dict[str, tuple[str, str]]:
    listed = (await client.ask(LIST_GROUPS, 5, ListGroupsRequest())).groups
    assert {group.protocol_type for group in listed} <= {"consumer", ""}
    return {group.group_id: (group.group_type, group.group_state) for group in listed}


@versions(CONSUMER_GROUP_HEARTBEAT)
async def test_consumer_group_heartbeat(broker: Broker, one: ConsumerGroupMember, version: int) -> None:
    await one.client.make_topic("t", 3)
    one.member_id = one.member_id if version else ""
    joined = await one.heartbeat(version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (NONE, 1, 5000)
    assert joined.member_id == "m" if version else joined.member_id
    assert [(each.topic_id, each.partitions) for each in joined.assignment.topic_partitions] == [
        (broker.topics.by_name["t"].id, [0, 1, 2])
    ]
    one.member_id = joined.member_id
    nothing_new = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
    again = await one.heartbeat(version, **nothing_new)
    assert (again.error_code, again.member_epoch, again.assignment) == (NONE, 1, None)
    left = await one.heartbeat(version, member_epoch=-1, **nothing_new)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (NONE, -1, 0)


@versions(CONSUMER_GROUP_DESCRIBE)
async def test_consumer_group_describe(served: Served, version: int) -> None:
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2")
    await one.client.make_topic("t", 3)
    await one.heartbeat(rack_id="r", server_assignor="range")
    await other.heartbeat(instance_id="i")
    found = await describe(one.client, version=version)
    assert (found.error_code, found.group_state, found.assignor_name) == (NONE, "Reconciling", "range")
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    first, second = found.members
    assert (first.member_id, first.rack_id, first.instance_id, first.member_epoch) == ("m1", "r", None, 1)
    assert (second.instance_id, second.client_id, second.client_host) == ("i", "test", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
    (assigned,) = first.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1, 2])
    assert len(first.target_assignment.topic_partitions[0].partitions) == 2
    assert first.member_type == (1 if version else -1)
    missing = await describe(one.client, "who", version)
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group who not found.",
    )
    assert (await describe(one.client, "", version)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_who_is_a_member_says_which_one(one: ConsumerGroupMember) -> None:
    one.epoch, one.member_id = 1, ""
    assert (await one.heartbeat(0)).error_code == REFUSED


@pytest.mark.parametrize("count", [1, 2000])
async def test_what_one_says_it_has_who_is_no_member_is_not_looked_at(
    served: Served, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    seen: list[bytes] = []
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2")
    await one.heartbeat()

    def owned_of(topic_partitions: Any) -> dict[bytes, frozenset[int]]:
        seen.extend(each[0] for each in topic_partitions)
        return {}

    monkeypatch.setattr(consumer_group_heartbeat, "owned_of", owned_of)
    for each, code in ((other, ErrorCode.UNKNOWN_MEMBER_ID), (one, NONE)):
        assert seen == []
        each.epoch, each.owned = 1, [TopicPartitions(topic_id=bytes(16), partitions=[0])] * count
        assert (await each.heartbeat()).error_code == code
    assert seen == [bytes(16)] * count


@pytest.mark.parametrize("count", [1, 2000])
async def test_what_a_member_says_at_length_is_read_on_another_thread_and_answered_on_the_loop(
    one: ConsumerGroupMember, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await one.heartbeat()
    owned_of, heartbeat_of = consumer_group_heartbeat.owned_of, ConsumerGroup.consumer_heartbeat
    threads: list[threading.Thread] = []

    def read(topic_partitions: Any) -> Any:
        threads.append(threading.current_thread())
        return owned_of(topic_partitions)

    def answer(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return heartbeat_of(*asked)

    monkeypatch.setattr(consumer_group_heartbeat, "owned_of", read)
    monkeypatch.setattr(ConsumerGroup, "consumer_heartbeat", answer)
    one.owned = [TopicPartitions(topic_id=bytes(16), partitions=[0])] * count
    assert (await one.heartbeat()).error_code == NONE
    assert [thread is threading.main_thread() for thread in threads] == [count == 1, True]


async def test_a_member_that_says_nothing_of_what_it_has_has_given_up_nothing(served: Served) -> None:
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2")
    await one.client.make_topic("t", 4)
    for each in (one, other, one):
        await each.heartbeat()
    assert len(one.partitions) == 2, "it hears what it is to keep"
    nothing = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
    for said, count in ((nothing, 0), ({}, 2)):
        await one.heartbeat(**said)
        await other.heartbeat()
        assert len(other.partitions) == count


async def test_the_names_of_groups_are_counted(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one = await consumer_member(served)
    codes = []
    for number in range(12):
        one.group, one.epoch = f"{number:030000}", 0
        codes.append((await one.heartbeat()).error_code)
    assert codes == [NONE] * 8 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    assert served.broker.groups.memory.held_bytes <= 1 << 19


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"group_id": ""}, REFUSED),
        ({"member_id": ""}, REFUSED),
        ({"instance_id": ""}, REFUSED),
        ({"rack_id": " "}, REFUSED),
        ({"member_epoch": -3}, REFUSED),
        ({"member_epoch": -2}, REFUSED),
        ({"rebalance_timeout_ms": -1}, REFUSED),
        ({"topic_partitions": None}, REFUSED),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]}, REFUSED),
        ({"subscribed_topic_names": None}, REFUSED),
        ({"subscribed_topic_names": ["x" * 200] * 700}, REFUSED),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a" * 251}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    broker: Broker, one: ConsumerGroupMember, said: dict[str, Any], code: ErrorCode
) -> None:
    refused = await one.heartbeat(**said)
    assert refused.error_code == code
    assert refused.error_message
    assert not broker.groups.groups
    assert broker.groups.memory.held_bytes == 0


async def test_a_member_for_whom_there_is_no_room_is_refused_and_the_group_goes_on(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one = await consumer_member(served)
    assert (await one.heartbeat()).error_code == NONE
    many = [f"topic-{number}" for number in range(6000)]
    code, count = NONE, 0
    while code == NONE:
        count += 1
        other = await consumer_member(served, f"x{count}")
        code = (await other.heartbeat(subscribed_topic_names=many)).error_code
    assert code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert count == 2
    assert (await one.heartbeat()).error_code == NONE


async def test_topics_that_match_find_room_or_their_member_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "NAME_BYTES", 200_000)
    match, most = topic_patterns.matches, 0

    def looked_at(regexes: Any, names: Any, room: int) -> Any:
        nonlocal most
        most = max(most, room)
        return match(regexes, names, room)

    monkeypatch.setattr(topic_patterns, "matches", looked_at)
    served = await serve(group_state_max_bytes=str(1 << 20))
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2", "other")
    for name in ("a1", "a2", "a3"):
        await one.client.make_topic(name, 1)
    said: dict[str, Any] = {"subscribed_topic_names": []}
    assert (await one.heartbeat(**said, subscribed_topic_regex="a[12]")).error_code == NONE
    for regex, code in (("a.", ErrorCode.GROUP_MAX_SIZE_REACHED), ("a3", ErrorCode.GROUP_MAX_SIZE_REACHED)):
        refused = await other.heartbeat(**said, subscribed_topic_regex=regex)
        assert (refused.error_code, "group.state.max.bytes" in refused.error_message) == (code, True)
    assert 400_000 < served.broker.groups.memory.held_bytes < 410_000
    await one.heartbeat(member_epoch=-1)
    assert (await other.heartbeat(**said, subscribed_topic_regex="a3")).error_code == NONE
    assert most == 2, "no more is held while they are looked for, either"


async def test_a_member_that_is_too_large_to_be_stored_is_told_of_an_error_that_members_know(
    served: Served, one: ConsumerGroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await one.heartbeat()).error_code == NONE

    def append(*_: Any, **__: Any) -> None:
        raise BatchTooLarge("the test says so")

    monkeypatch.setattr(log_module, "build_batch", append)
    other = await consumer_member(served, "m2")
    assert (await other.heartbeat()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_regular_expressions_are_matched_away_from_the_event_loop(one: ConsumerGroupMember) -> None:
    for name in ("ab", "abc", "b"):
        await one.client.make_topic(name, 1)
    await one.heartbeat(subscribed_topic_names=[], subscribed_topic_regex="a[bc]+")
    assert len(one.owned) == 2
    described = await describe(one.client)
    assert described.members[0].subscribed_topic_regex == "a[bc]+"
    await delete_topic(one.client, "ab")
    await one.heartbeat(subscribed_topic_names=None)
    assert len(one.owned) == 1


async def test_topics_that_come_and_go_are_matched_as_they_are(served: Served) -> None:
    first, second, third = [await consumer_member(served, group=group) for group in "abc"]
    said: dict[str, Any] = {"subscribed_topic_names": [], "subscribed_topic_regex": "t.*"}
    await first.client.make_topic("t1", 1)
    await first.heartbeat(**said)
    await first.client.make_topic("t2", 1)
    await second.heartbeat(**said)
    await delete_topic(first.client, "t1")
    await third.heartbeat(**said)
    assert [len(each.owned) for each in (first, second, third)] == [1, 2, 1]
    group = served.broker.groups.groups["c"]
    assert isinstance(group, ConsumerGroup)
    assert group.regexes["t.*"] == {"t2"}


async def test_a_group_whose_regular_expression_takes_long_keeps_no_other_group_waiting(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    match, gate = topic_patterns.matches, threading.Event()

    async def slowly(regexes: Any, names: Any, most: int) -> Any:
        while "slow" in regexes and not gate.wait(0.001):
            await step()
        return await match(regexes, names, most)

    monkeypatch.setattr(topic_patterns, "matches", slowly)
    monkeypatch.setattr(services, "AT_ONCE", 0)
    served = await serve()
    slow, other = await consumer_member(served, group="slow"), await consumer_member(served, group="other")
    await other.client.make_topic("t", 2)
    said: dict[str, Any] = {"subscribed_topic_names": []}
    waiting = asyncio.create_task(slow.heartbeat(**said, subscribed_topic_regex="slow"))
    await until(lambda: served.broker.groups.group("slow") is not None)
    for regex in ("t", "t|u"):
        beat = other.heartbeat(**said, subscribed_topic_regex=regex)
        assert (await asyncio.wait_for(beat, 10)).error_code == NONE
        assert other.partitions == [0, 1]
    assert not waiting.done()
    gate.set()
    assert (await waiting).error_code == NONE


async def test_a_heartbeat_is_carried_out_though_its_client_is_reset_while_topics_are_matched(
    served: Served, one: ConsumerGroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    match, gate = topic_patterns.matches, threading.Event()

    async def slowly(regexes: Any, names: Any, most: int) -> Any:
        while not gate.wait(0.001):
            await step()
        return await match(regexes, names, most)

    monkeypatch.setattr(topic_patterns, "matches", slowly)
    await one.client.make_topic("t", 2)
    waiting = asyncio.create_task(one.heartbeat(subscribed_topic_names=[], subscribed_topic_regex="t"))
    await until(lambda: served.broker.groups.group("g") is not None)
    its_socket = one.client.writer.get_extra_info("socket")
    its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.client.writer.transport.abort()
    await asyncio.wait_for(until(lambda: not served.server.connections), 20)
    with pytest.raises(asyncio.IncompleteReadError):
        await waiting
    gate.set()
    group = served.broker.groups.group("g")
    assert isinstance(group, ConsumerGroup)
    await asyncio.wait_for(until(lambda: group.members["m"].current.epoch == group.epoch > 0), 10)


async def test_topics_that_are_made_deleted_and_made_again_are_followed(
    broker: Broker, one: ConsumerGroupMember
) -> None:
    await one.heartbeat()
    assert one.owned == []
    for partitions in (2, 1):
        await one.client.make_topic("t", partitions)
        await one.heartbeat()
        assert one.partitions == list(range(partitions))
        assert one.owned[0].topic_id == broker.topics.by_name["t"].id
        await delete_topic(one.client, "t")
        await one.heartbeat()
        await one.heartbeat()
        assert one.owned == []


async def test_partitions_that_are_added_are_read(one: ConsumerGroupMember) -> None:
    await one.client.make_topic("t", 2)
    await one.heartbeat()
    topic = CreatePartitionsTopic(name="t", count=5, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=9000, validate_only=False)
    assert (await one.client.ask(CREATE_PARTITIONS, 3, request)).results[0].error_code == NONE
    await one.heartbeat(subscribed_topic_names=None)
    assert one.partitions == [0, 1, 2, 3, 4]


async def test_groups_go_on_in_their_epoch_after_a_restart(served: Served, serve: Serve) -> None:
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2")
    await one.client.make_topic("t", 4)
    await one.client.make_topic("other", 1)
    await one.heartbeat()
    await other.heartbeat(subscribed_topic_regex="oth.*")
    for each in (one, one, other):
        await each.heartbeat(subscribed_topic_names=None)
    before = await describe(one.client)
    assert before.group_state == "Stable"
    await served.stop()
    again = await serve()
    one.client, other.client = await again.connect(), await again.connect()
    await until(lambda: not again.broker.groups.is_loading)
    assert await describe(one.client) == before
    for each in (one, other):
        kept = each.partitions
        answered = await each.heartbeat(subscribed_topic_names=None)
        assert (answered.error_code, answered.member_epoch) == (NONE, each.epoch)
        assert each.partitions == kept
    assert (await describe(one.client)).group_epoch == before.group_epoch


async def test_members_that_are_silent_are_taken_out_by_the_clock(served: Served) -> None:
    clock = served.broker.clock
    clock.hold()
    one, other = await consumer_member(served, "m1"), await consumer_member(served, "m2")
    await one.client.make_topic("t", 4)
    for each in (one, other, one, one, other):
        await each.heartbeat()
    assert len(one.partitions) == len(other.partitions) == 2
    clock.advance(seconds=44)
    await one.heartbeat()
    clock.advance(seconds=2)
    group = served.broker.groups.groups["g"]
    await until(lambda: len(group.members) == 1)
    await one.heartbeat()
    assert one.partitions == [0, 1, 2, 3]


async def test_offsets_are_committed_and_told_in_the_members_epoch(one: ConsumerGroupMember) -> None:
    await one.client.make_topic("t", 1)
    await one.heartbeat()
    committer = GroupMember(one.client)
    committer.id, committer.generation = "m", 1
    assert await committer.commit("t", 5, version=9) == [NONE]
    assert await committer.commit("t", 5, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    committer.generation = 2
    assert await committer.commit("t", 6, version=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    for member_id, epoch, code in (
        ("m", 1, NONE),
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        (None, -1, NONE),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
        (found,) = (await one.client.ask(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[asked]))).groups
        assert found.error_code == code
        if not code:
            assert found.topics[0].partitions[0].committed_offset == 5


async def test_a_consumer_group_is_listed_by_its_type_deleted_when_empty_and_no_classic_one(
    serve: Serve, served: Served, one: ConsumerGroupMember
) -> None:
    await one.client.make_topic("t", 1)
    await one.heartbeat()
    assert await kinds(one.client) == {"g": ("consumer", "Stable")}
    for version, code in ((6, ErrorCode.GROUP_ID_NOT_FOUND), (5, NONE)):
        request = DescribeGroupsRequest(groups=["g"])
        (found,) = (await one.client.ask(DESCRIBE_GROUPS, version, request)).groups
        assert (found.error_code, found.group_state) == (code, "Dead")
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert (await one.client.ask(DELETE_GROUPS, 2, delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await one.heartbeat(member_epoch=-1)
    assert await kinds(one.client) == {"g": ("consumer", "Empty")}
    assert (await one.client.ask(DELETE_GROUPS, 2, delete)).results[0].error_code == NONE
    assert await kinds(one.client) == {}
    assert served.broker.groups.memory.held_bytes == 0
    await served.stop()
    again = await serve()
    client = await again.connect()
    await until(lambda: not again.broker.groups.is_loading)
    assert await kinds(client) == {}


async def test_a_classic_group_becomes_a_consumer_group_and_a_classic_one_again(
    served: Served, serve: Serve
) -> None:
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    assert await old.commit("t", 1, version=7) == [NONE]
    await new.heartbeat()
    assert await kinds(new.client) == {"g": ("consumer", "Reconciling")}
    assert (await describe(new.client)).members[0].member_type == 0
    assert await old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    # As one of Kafka's older assignors it has given up everything before it joins.
    joined = await old.join()
    assert (joined.error_code, joined.leader, joined.members) == (NONE, "", [])
    synced = await old.sync()
    (assigned,) = assignment_of(synced.assignment).assigned_partitions
    await new.heartbeat()
    assert sorted([*assigned.partitions, *new.partitions]) == [0, 1, 2, 3]
    assert await old.offsets(t=1) == {("t", 0): 1}
    await new.heartbeat(member_epoch=-1)
    assert (await kinds(new.client))["g"][0] == "classic"
    assert await old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await served.stop()
    again = await serve()
    old.client = await again.connect()
    await until(lambda: not again.broker.groups.is_loading)
    assert (await kinds(old.client))["g"][0] == "classic"
    assert (await old.join()).leader == old.id


def large(count: int) -> list[tuple[str, bytes]]:
    """Return `count` protocols of 100 KiB each, none of which is chosen."""
    return [(f"p{number}", bytes(100 << 10)) for number in range(count)]


async def test_an_upgrade_takes_as_many_batches_as_there_have_to_be(served: Served, serve: Serve) -> None:
    old, other = await subscribed_member(served), await subscribed_member(served)
    new = await consumer_member(served)
    await new.client.make_topic("t", 4)
    old.protocols += large(6)
    other.protocols += large(6)
    await old.join()
    joining = asyncio.create_task(other.join())
    await until(lambda: len(served.broker.groups.groups["g"].members) == 2)
    await old.join()
    await joining
    await old.sync()
    await other.sync()
    assert (await new.heartbeat()).error_code == NONE
    assert await other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await served.stop()
    again = await serve()
    await until(lambda: not again.broker.groups.is_loading)
    restored = again.broker.groups.groups["g"]
    assert isinstance(restored, ConsumerGroup)
    assert restored.members.keys() == {old.id, other.id, "m"}


@pytest.mark.parametrize(
    ("option", "value", "size_bytes"),
    [
        ("max.message.bytes", "2000", 90),
        ("compression.type", "gzip", 10_000),
        ("message.format.version", "1", 5_000),
    ],
)
async def test_what_a_group_writes_is_cut_to_what_its_topic_takes(
    served: Served, option: str, value: str, size_bytes: int
) -> None:
    await (await consumer_member(served)).heartbeat()
    group_log = served.broker.groups.log
    log = group_log.partition("g").log
    log.update_config(log.config.override({option: value}))
    end, codes = log.log_end_offset, list[ErrorCode]()
    group_log.store("g", {b"%d" % number: bytes(size_bytes) for number in range(120)}, codes.append)
    await until(lambda: bool(codes))
    assert (codes, log.log_end_offset) == ([NONE], end + 120)


async def test_where_there_is_no_topic_of_groups_yet_nothing_is_written(serve: Serve) -> None:
    group_log = (await serve()).broker.groups.log
    assert group_log.append_all("g", {b"k": None}) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_what_a_group_writes_ends_with_the_first_batch_that_is_refused(served: Served) -> None:
    await (await consumer_member(served)).heartbeat()
    group_log = served.broker.groups.log
    log = group_log.partition("g").log
    end, codes = log.log_end_offset, list[ErrorCode]()
    group_log.store("g", {b"1": b"", b"2": bytes(2 << 20), b"3": b""}, codes.append)
    await until(lambda: bool(codes))
    assert (codes, log.log_end_offset) == ([ErrorCode.UNKNOWN_SERVER_ERROR], end + 1)


async def test_a_classic_member_that_is_too_large_to_be_stored_is_refused_alone(served: Served) -> None:
    old, liar = await subscribed_member(served), await subscribed_member(served)
    new = await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    assert (await new.heartbeat()).error_code == NONE
    liar.protocols += large(11)
    assert (await liar.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    liar.protocols = [(old.protocols[0][0], b"\xff" * (1 << 20))]  # And is not read first.
    assert (await liar.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await old.join()).error_code == NONE
    assert (await new.heartbeat()).error_code == NONE
    assert served.broker.groups.groups["g"].members.keys() == {old.id, "m"}


@pytest.mark.parametrize("is_by_topics", [False, True])
async def test_a_classic_group_with_a_member_that_is_too_large_to_be_stored_in_another_stays_classic(
    served: Served, is_by_topics: bool
) -> None:
    """The topics are stored twice: within the subscription, and on their own."""
    old, new = await subscribed_member(served), await consumer_member(served)
    if is_by_topics:
        old.protocols = [("range", written_subscription([f"{number:0240d}" for number in range(2300)]))]
        assert len(old.protocols[0][1]) < 600_000
    else:
        old.protocols += large(11)
    await old.join()
    await old.sync()
    assert (await new.heartbeat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await old.heartbeat() == NONE


async def test_a_classic_group_with_one_member_of_several_that_is_too_large_stays_classic(
    served: Served,
) -> None:
    small, large_one = await subscribed_member(served), await subscribed_member(served)
    new = await consumer_member(served)
    large_one.protocols += large(11)
    await small.join()
    joining = asyncio.create_task(large_one.join())
    await until(lambda: len(served.broker.groups.groups["g"].members) == 2)
    await small.join()
    await joining
    await small.sync()
    await large_one.sync()
    assert (await new.heartbeat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await small.heartbeat() == await large_one.heartbeat() == NONE


async def test_a_classic_member_that_becomes_too_large_to_be_stored_is_refused_alone(served: Served) -> None:
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    assert (await new.heartbeat()).error_code == NONE
    assert (await old.join()).error_code == NONE
    old.protocols += large(11)
    assert (await old.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await new.heartbeat()).error_code == NONE
    assert (await (await consumer_member(served, "m2")).heartbeat()).error_code == NONE


async def test_a_change_of_a_group_is_one_batch_and_so_is_there_as_a_whole_or_not_at_all(
    served: Served,
) -> None:
    await (await consumer_member(served)).heartbeat()
    group_log = served.broker.groups.log
    log = group_log.partition("g").log
    end, codes = log.log_end_offset, list[ErrorCode]()
    group_log.store("g", {b"%d" % number: bytes(1000) for number in range(1000)}, codes.append)
    await until(lambda: bool(codes))
    counts = [header.record_count for _, _, header in log.headers(end)]
    assert (codes, counts) == ([NONE], [1000])


async def test_a_group_that_has_become_a_classic_one_is_counted_and_its_members_are_missed(
    serve: Serve,
) -> None:
    served = await serve(group_max_size="1")
    old, new = await subscribed_member(served), await consumer_member(served)
    await old.join()
    await old.sync()
    await new.heartbeat()
    assert (await new.heartbeat(member_epoch=-1)).error_code == NONE, "one is left: as many as there may be"
    groups = served.broker.groups
    assert (await kinds(new.client))["g"][0] == "classic"
    assert groups.memory.held_bytes == groups.groups["g"].memory.size_bytes
    served.broker.clock.hold()
    served.broker.clock.advance(seconds=10)  # a session, no rebalance yet
    await until(lambda: not groups.groups["g"].members)


async def test_who_waits_in_a_classic_group_that_is_upgraded_is_to_join_again(served: Served) -> None:
    old, other = await subscribed_member(served), await subscribed_member(served)
    new = await consumer_member(served)
    await old.join()
    await old.sync()
    joining = asyncio.create_task(other.join(3))
    await until(lambda: len(served.broker.groups.groups["g"].members) == 2)
    await new.heartbeat()
    assert (await joining).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_group_that_has_become_a_classic_one_is_answered_when_that_is_on_disk(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    await new.heartbeat()
    fail_flushes(served, monkeypatch)
    assert (await new.heartbeat(member_epoch=-1)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await kinds(new.client))["g"][0] == "classic"


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("bidirectional", True, True),
        ("UPGRADE", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
async def test_the_policy_says_which_way_groups_may_go(
    serve: Serve, policy: str, upgrades: bool, downgrades: bool
) -> None:
    served = await serve(group_consumer_migration_policy=policy)
    old, new = await subscribed_member(served, "old"), await consumer_member(served, group="old")
    await new.client.make_topic("t", 4)
    await old.join()
    await old.sync()
    answered = await new.heartbeat()
    assert answered.error_code == (NONE if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    # A classic member may join a consumer group under any policy.
    new, old = await consumer_member(served, group="new"), await subscribed_member(served, "new")
    await new.heartbeat()
    assert (await old.join()).error_code == NONE
    await new.heartbeat(member_epoch=-1)
    assert (await kinds(new.client))["new"][0] == ("classic" if downgrades else "consumer")


async def test_what_was_stored_of_a_classic_group_is_taken_back_before_it_is_one_of_consumers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Kafka, which reads them in this order, would lose the group."""
    new = await consumer_member(served)
    old = GroupMember(new.client)
    old.protocols = [("range", written_subscription(["t"]))]
    await old.join()
    await old.sync()
    groups, keys = served.broker.groups, []
    append = groups.log.append
    monkeypatch.setattr(
        groups.log, "append", lambda group_id, entries: keys.extend(entries) or append(group_id, entries)
    )
    assert (await new.heartbeat()).error_code == NONE
    assert keys[0][:2] == (records.group_key("g"), None)
    assert (
        records.written_key(ConsumerGroupMetadataKey(group_id="g")) in {key for key, *_ in keys},
        len(groups.groups),
    ) == (True, 1)


async def test_an_empty_group_becomes_of_the_kind_that_is_asked_for(serve: Serve) -> None:
    served = await serve(group_consumer_migration_policy="disabled")
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 1)
    await old.join()
    await old.sync()
    await old.commit("t", 1, version=7)
    await old.leave()
    assert (await new.heartbeat()).error_code == NONE
    await new.heartbeat(member_epoch=-1)
    assert await kinds(new.client) == {"g": ("consumer", "Empty")}
    old.id, old.generation = "", -1
    assert (await old.join()).error_code == NONE
    assert (await kinds(new.client))["g"][0] == "classic"
    assert await old.offsets(t=1) == {("t", 0): 1}


@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_member_that_is_refused_leaves_a_classic_group_what_it_is(
    serve: Serve, is_empty: bool
) -> None:
    served = await serve(group_consumer_max_size="1")
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.client.make_topic("t", 1)
    await old.join()
    await old.sync()
    await old.commit("t", 1, version=7)
    if is_empty:
        await old.leave()
    groups = served.broker.groups
    group, held_bytes = groups.groups["g"], groups.memory.held_bytes
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "("}
    codes = [(await new.heartbeat(**regex, member_id=old.id)).error_code]
    codes += [] if is_empty else [(await new.heartbeat()).error_code]
    assert codes == [ErrorCode.INVALID_REGULAR_EXPRESSION, ErrorCode.GROUP_MAX_SIZE_REACHED][: len(codes)]
    assert (groups.groups["g"], groups.memory.held_bytes) == (group, held_bytes)
    assert await old.heartbeat() == (ErrorCode.UNKNOWN_MEMBER_ID if is_empty else NONE)
    await served.stop()
    again = await serve()
    client = await again.connect()
    await until(lambda: not again.broker.groups.is_loading)
    assert await kinds(client) == {"g": ("classic", "Empty" if is_empty else "Stable")}


async def test_a_static_member_of_a_full_classic_group_comes_back_by_the_newer_protocol(serve: Serve) -> None:
    served = await serve(group_consumer_max_size="1")
    old, new = await subscribed_member(served), await consumer_member(served)
    old.instance = "i"
    await old.join()
    await old.sync()
    assert (await new.heartbeat()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await new.heartbeat(instance_id="i")).error_code == NONE
    assert await kinds(new.client) == {"g": ("consumer", "Stable")}


@pytest.mark.parametrize("others", [[], ["range", "sticky"]])
async def test_the_last_static_member_of_the_newer_protocol_comes_back_by_any_classic_one(
    serve: Serve, others: list[str]
) -> None:
    """Even if the group is full and would refuse another member."""
    served = await serve(group_max_size=str(1 + bool(others)))
    new, old, other = await consumer_member(served), await subscribed_member(served), None
    await new.client.make_topic("t", 4)
    await new.heartbeat(instance_id="i")
    if others:
        other = await subscribed_member(served)
        other.protocols = [(name, written_subscription(["t"])) for name in others]
        await other.join()
        await other.sync()
        await new.heartbeat(instance_id="i")
    generation = served.broker.groups.groups["g"].generation
    old.instance, old.protocols = "i", [("sticky", written_subscription(["t"]))]
    joined = await old.join()
    assert (joined.error_code, joined.protocol_name, joined.generation_id) == (NONE, "sticky", generation)
    assert (await kinds(new.client))["g"] == ("classic", "Stable")
    assert (await old.heartbeat(), other and await other.heartbeat()) == (NONE, other and NONE)
    (assigned,) = assignment_of((await old.sync()).assignment).assigned_partitions
    assert len(assigned.partitions) == (2 if others else 4)


async def test_a_static_member_that_is_refused_by_a_classic_protocol_leaves_a_consumer_group_what_it_is(
    served: Served,
) -> None:
    new, other, old = (
        await consumer_member(served),
        await subscribed_member(served),
        await subscribed_member(served),
    )
    await new.client.make_topic("t", 4)
    await new.heartbeat(instance_id="i")
    await other.join()
    old.instance, old.protocols = "i", [("sticky", written_subscription(["t"]))]
    assert (await old.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await kinds(new.client))["g"][0] == "consumer"
    assert (await new.heartbeat(instance_id="i")).error_code == NONE


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_classic_member_that_is_refused_leaves_an_empty_consumer_group_what_it_is(
    served: Served, said: dict[str, Any], code: ErrorCode
) -> None:
    old, new = await subscribed_member(served), await consumer_member(served)
    await new.heartbeat()
    await new.heartbeat(member_epoch=-1)
    for name, value in said.items():
        setattr(old, name, value)
    assert (await old.join()).error_code == code
    assert await kinds(new.client) == {"g": ("consumer", "Empty")}


async def test_a_group_whose_first_records_wait_for_the_topic_is_stored_in_order(
    served: Served, serve: Serve
) -> None:
    members = [await consumer_member(served, f"m{number}") for number in range(3)]
    await members[0].client.make_topic("t", 3)
    # All at once, while `__consumer_offsets` is being made.
    answers = await asyncio.gather(*(each.heartbeat() for each in members))
    assert [answer.error_code for answer in answers] == [NONE] * 3
    epochs = {each.member_id: each.epoch for each in members}
    await served.stop()
    again = await serve()
    await until(lambda: not again.broker.groups.is_loading)
    group = again.broker.groups.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert {found.id: found.current.epoch for found in group} == epochs
