"""The group APIs in every announced version, and requests that a group must refuse."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.builders import delete_request
from tests.support.group_member import GroupMember, classic_member, delete_topic, fail_flushes, loaded
from tests.support.served import Client, Serve, Served, log_of, until, versions
from tidelog.broker.answers import Later
from tidelog.broker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.groups import coordinator as coordinator_module
from tidelog.broker.groups import loading
from tidelog.broker.groups.classic import ClassicGroup, State
from tidelog.broker.groups.log import partition_of, read
from tidelog.broker.groups.offsets import Committed, GroupOffsets
from tidelog.broker.handlers import join_group, offset_commit, offset_fetch
from tidelog.broker.session import ADMIN_CLIENT
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.messages import OffsetCommitValue
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HEARTBEAT
from tidelog.protocol.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.join_group import JOIN_GROUP
from tidelog.protocol.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import OFFSET_COMMIT
from tidelog.protocol.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.sync_group import SYNC_GROUP
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.storage.errors import ReadFailed
from tidelog.storage.log import Checked, Log

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
DAY_MS = 86_400_000


@pytest.fixture
async def one(served: Served) -> GroupMember:
    """A member of the group `g` that has not joined yet."""
    return await classic_member(served)


async def states(client: Client, version: int = 5) -> dict[str, str]:
    response = await client.ask(LIST_GROUPS, version, ListGroupsRequest())
    assert response.error_code == NONE
    return {group.group_id: group.group_state for group in response.groups}


# Every API, every version.


@versions(FIND_COORDINATOR)
async def test_find_coordinator(served: Served, client: Client, version: int) -> None:

    async def ask(key: str, kind: int = 0) -> Any:
        request = FindCoordinatorRequest(key=key, key_type=kind)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            found = (await client.ask(FIND_COORDINATOR, version, request)).coordinators
            assert [each.key for each in found] == [key]
            return found[0]
        return await client.ask(FIND_COORDINATOR, version, request)

    found = await ask("g")
    assert (found.error_code, found.node_id, (found.host, found.port)) == (NONE, 1, served.address)
    codes = {1: ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 2: ErrorCode.INVALID_REQUEST}
    for kind, code in codes.items() if version else ():
        refused = await ask("tx", kind)
        assert (refused.error_code, refused.node_id) == (code, -1)
        assert ("transactions are not supported" in refused.error_message) == (kind == 1)


@versions(JOIN_GROUP)
async def test_join_group(one: GroupMember, version: int) -> None:
    response = await one.join(version)
    assert (response.error_code, response.generation_id, response.leader) == (NONE, 1, one.id)
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert [(each.member_id, each.metadata) for each in response.members] == [(one.id, b"r")]
    assert one.id.startswith("test-")
    one.id = "who"
    refused = await one.join(version)
    assert (refused.error_code, refused.protocol_name) == (UNKNOWN, None if version >= 7 else "")


@pytest.mark.parametrize("version", range(10))
async def test_who_has_no_member_id_is_given_one_first_where_it_understands_that(
    one: GroupMember, version: int
) -> None:
    """KIP-394: a client that loses the answer must not leave an unused member in the group."""
    response = await one.client.ask(JOIN_GROUP, version, one.join_request())
    expected = ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else NONE
    assert (response.error_code, bool(response.member_id)) == (expected, True)


@versions(SYNC_GROUP)
async def test_sync_group(one: GroupMember, version: int) -> None:
    await one.join()
    response = await one.sync(version, **{one.id: b"all"})
    assert (response.error_code, response.assignment) == (NONE, b"all")
    assert response.protocol_name == ("range" if version >= 5 else None)
    one.generation += 1
    assert (await one.sync(version)).error_code == ErrorCode.ILLEGAL_GENERATION
    one.group = "no"
    assert (await one.sync(version)).error_code == UNKNOWN


async def test_who_syncs_must_say_by_which_protocol_where_it_can(one: GroupMember) -> None:
    await one.join()
    one.protocol_type = None  # type: ignore[assignment]
    for group in ("g", "no", ""):
        one.group = group
        assert (await one.sync(5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@versions(HEARTBEAT)
async def test_heartbeat(one: GroupMember, version: int) -> None:
    await one.join_and_sync()
    assert await one.heartbeat(version) == NONE
    one.generation = 7
    assert await one.heartbeat(version) == ErrorCode.ILLEGAL_GENERATION
    one.id = "who"
    assert await one.heartbeat(version) == UNKNOWN
    one.group = "no"
    assert await one.heartbeat(version) == UNKNOWN
    one.group = ""
    assert await one.heartbeat(version) == ErrorCode.INVALID_GROUP_ID


@versions(LEAVE_GROUP)
async def test_leave_group(one: GroupMember, version: int) -> None:
    await one.join_and_sync()
    response = await one.leave(version)
    assert response.error_code == NONE
    again = await one.leave(version)
    if version < 3:
        assert again.error_code == UNKNOWN
    else:
        assert [(each.member_id, each.error_code) for each in response.members] == [(one.id, NONE)]
        assert [each.error_code for each in again.members] == [UNKNOWN]
    assert (await states(one.client))["g"] == "Empty"


async def test_an_operator_removes_static_members_by_their_instances(served: Served) -> None:
    """KIP-345."""
    one = await classic_member(served, instance="i")
    await one.join_and_sync()
    admin = await served.connect()
    members = [MemberIdentity(member_id="", group_instance_id=name) for name in ("i", "who")]
    response = await admin.ask(LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=members))
    assert [each.error_code for each in response.members] == [NONE, UNKNOWN]
    assert await one.heartbeat() == UNKNOWN


@versions(OFFSET_COMMIT)
async def test_offset_commit(one: GroupMember, version: int) -> None:
    await one.client.make_topic("t", 2)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await one.commit("t", 5, 6, 7, version=version, metadata="m") == [NONE, NONE, unknown]
    assert await one.commit("no", 5, version=version) == [unknown]
    assert await one.offsets(t=3) == {("t", 0): 5, ("t", 1): 6, ("t", 2): -1}
    if version >= 1:
        await one.join_and_sync()
        assert await one.commit("t", 8, version=version) == [NONE]
        one.generation += 1
        assert await one.commit("t", 9, version=version) == [ErrorCode.ILLEGAL_GENERATION]
        one.group = "no"
        missing = ErrorCode.ILLEGAL_GENERATION if version < 9 else ErrorCode.GROUP_ID_NOT_FOUND
        assert await one.commit("t", 9, version=version) == [missing]
        one.group = "g"
        assert await one.offsets(t=1) == {("t", 0): 8}


@versions(OFFSET_FETCH)
async def test_offset_fetch(one: GroupMember, version: int) -> None:
    await one.client.make_topic("t", 2)
    await one.client.make_topic("u")
    await one.commit("t", 5, metadata="m")
    await one.commit("u", 6)
    (topic,) = await one.fetch(version, t=2)
    found, missing = topic.partitions
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", NONE)
    assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", NONE)
    if version >= 2:
        everything = {
            topic.name: [each.committed_offset for each in topic.partitions]
            for topic in await one.fetch(version)
        }
        assert everything == {"t": [5], "u": [6]}
    one.group = "no"
    assert [each.committed_offset for each in (await one.fetch(version, t=1))[0].partitions] == [-1]
    (topic,) = await one.fetch(version, nowhere=1)
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [(-1, NONE)]


async def test_a_group_that_is_named_again_and_again_is_told_once(one: GroupMember) -> None:
    """The answer with all offsets of a group is large, but the request is small."""
    await one.client.make_topic("t")
    await one.commit("t", 5)
    asked = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 100
    response = await one.client.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=asked))
    (group,) = response.groups
    assert [each.committed_offset for each in group.topics[0].partitions] == [5]


@pytest.mark.parametrize("version", [7, 8])
async def test_a_partition_that_is_named_again_and_again_is_told_once(one: GroupMember, version: int) -> None:
    """Its metadata may have kilobytes, but it takes four bytes in the request."""
    for name in ("t", "u"):
        await one.client.make_topic(name)
        await one.commit(name, 5)
    named = [("t", [0, 1, 0]), ("u", [0] * 100), ("t", [1, 2])]
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in named]
        asked = OffsetFetchRequest(group_id="g", topics=topics)
    else:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in named]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    response = await one.client.ask(OFFSET_FETCH, version, asked)
    told = response.topics if version < 8 else response.groups[0].topics
    assert {
        topic.name: [(each.partition_index, each.committed_offset) for each in topic.partitions]
        for topic in told
    } == {"t": [(0, 5), (1, -1), (2, -1)], "u": [(0, 5)]}
    assert len(told) == 2


@versions(DESCRIBE_GROUPS)
async def test_describe_groups(serve: Serve, version: int) -> None:
    one = await classic_member(await serve(), instance="i")

    async def describe(*groups: str) -> Any:
        request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=version >= 3)
        return (await one.client.ask(DESCRIBE_GROUPS, version, request)).groups

    await one.join()
    (joined,) = await describe("g")
    assert (joined.group_state, joined.protocol_data) == ("CompletingRebalance", "")
    assert [(each.member_id, each.member_metadata) for each in joined.members] == [(one.id, b"")]
    await one.sync(**{one.id: b"all"})
    stable, missing = await describe("g", "no", "g", "no", "g")
    assert (stable.error_code, stable.group_state) == (NONE, "Stable")
    assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
    (told,) = stable.members
    assert (told.member_id, told.client_id, told.client_host) == (one.id, "test", "/127.0.0.1")
    assert (told.member_metadata, told.member_assignment) == (b"r", b"all")
    assert told.group_instance_id == ("i" if version >= 4 else None)
    assert stable.authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_ASKED)
    # READ, DELETE, DESCRIBE, and of its options DESCRIBE_CONFIGS, ALTER_CONFIGS, as in Kafka 4.
    assert GROUP_OPERATIONS == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert (missing.error_code, missing.group_state) == (
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE,
        "Dead",
    )
    assert bool(missing.error_message) == (version >= 6)


async def test_who_reads_what_is_told_while_a_group_rebalances(served: Served, one: GroupMember) -> None:
    """Otherwise monitoring would see all partitions without a reader each time a member joins."""
    two = await classic_member(served)

    async def described() -> tuple[str, dict[str, tuple[bytes, bytes]]]:
        (group,) = (await one.client.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"]))).groups
        told = {each.member_id: (each.member_metadata, each.member_assignment) for each in group.members}
        return group.group_state, told

    await one.join_and_sync()
    joining = asyncio.create_task(two.join())
    await until(lambda: len(served.broker.groups.groups["g"].members) == 2)
    assert await described() == ("PreparingRebalance", {one.id: (b"", b"all"), two.id: (b"", b"")})
    await one.join()
    await joining
    assert await described() == ("CompletingRebalance", {one.id: (b"", b"all"), two.id: (b"", b"")})
    # What a leader was to assign is broken off, and as in Kafka nobody has anything until the next one has.
    await two.leave()
    assert await described() == ("PreparingRebalance", {one.id: (b"", b"")})


@versions(LIST_GROUPS)
async def test_list_groups(served: Served, one: GroupMember, version: int) -> None:
    other = await classic_member(served, "simple")
    await one.client.make_topic("t")
    await one.join_and_sync()
    await other.commit("t", 5)

    async def listed(**asked: list[str]) -> dict[str, Any]:
        response = await one.client.ask(LIST_GROUPS, version, ListGroupsRequest(**asked))
        assert response.error_code == NONE
        return {group.group_id: group for group in response.groups}

    found = await listed()
    assert {name: group.protocol_type for name, group in found.items()} == {"g": "consumer", "simple": ""}
    if version >= 4:
        assert [found["g"].group_state, found["simple"].group_state] == ["Stable", "Empty"]
        assert set(await listed(states_filter=["stable", "Dead"])) == {"g"}
    if version >= 5:
        assert found["g"].group_type == "classic"
        assert set(await listed(types_filter=["CLASSIC"])) == {"g", "simple"}
        assert await listed(types_filter=["consumer"]) == {}


@versions(DELETE_GROUPS)
async def test_delete_groups(served: Served, one: GroupMember, version: int, serve: Serve) -> None:
    other = await classic_member(served, "gone")
    await one.client.make_topic("t", 300)
    await one.join_and_sync()
    await other.join_and_sync()
    assert await other.commit("t", *range(300)) == [NONE] * 300
    await other.leave()
    response = await one.client.ask(
        DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=["g", "gone", "no", "gone"])
    )
    assert {each.group_id: each.error_code for each in response.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "gone": NONE,
        "no": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert set(await states(one.client)) == {"g"}
    assert await other.fetch() == []
    await served.stop()
    one.client = other.client = await (await serve()).connect()
    await loaded(one.client)
    assert set(await states(one.client)) == {"g"}


@versions(OFFSET_DELETE)
async def test_offset_delete(one: GroupMember, version: int) -> None:
    await one.client.make_topic("t", 2)
    await one.client.make_topic("read")
    one.protocols = [("range", b"\x00\x00\x00\x00\x00\x01\x00\x04read\x00\x00\x00\x00")]
    await one.join_and_sync()
    await one.commit("t", 5, 6)
    await one.commit("read", 7)

    async def delete(group: str, topic: str, *indexes: int) -> tuple[int, list[int]]:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        response = await one.client.ask(
            OFFSET_DELETE, version, OffsetDeleteRequest(group_id=group, topics=topics)
        )
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
        return response.error_code, codes

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await delete("g", "t", 0, 9) == (NONE, [NONE, unknown])
    assert await delete("g", "read", 0) == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    assert await delete("no", "t", 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert await delete("", "t", 0) == (ErrorCode.INVALID_GROUP_ID, [])
    assert await one.offsets() == {("t", 1): 6, ("read", 0): 7}
    other = GroupMember(one.client, "connect")
    other.protocol_type = "connect"
    await other.join_and_sync()
    assert await delete("connect", "t", 0) == (ErrorCode.NON_EMPTY_GROUP, [])


# What a group is told that is not so, or too much.


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
async def test_a_session_timeout_may_be_as_short_and_as_long_as_the_bounds(
    one: GroupMember, timeout_ms: int
) -> None:
    assert (await one.join(session_timeout_ms=timeout_ms)).error_code == NONE


def test_of_a_client_s_name_so_much_is_kept() -> None:
    session: Any = SimpleNamespace(client_id="x" * 2000, address="a")
    joining = join_group._joining(session, GroupMember(session).join_request(), 5)
    assert (joining.client_id, joining.client_host) == ("x" * 1000, "/a")


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_999, 1_800_001])
async def test_session_timeouts_are_bounded(one: GroupMember, timeout_ms: int) -> None:
    response = await one.join(session_timeout_ms=timeout_ms)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert await states(one.client) == {}


async def test_an_empty_list_of_protocols_joins_nothing_and_leaves_no_group(
    served: Served, one: GroupMember
) -> None:
    other = await classic_member(served, "other")
    await one.join_and_sync()
    for liar in (other, await classic_member(served)):
        liar.protocols = []
        assert (await liar.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await states(one.client), await one.heartbeat()) == ({"g": "Stable"}, NONE)
    assert served.broker.groups.memory.held_bytes == served.broker.groups.groups["g"].memory.size_bytes


async def test_a_protocol_that_is_named_twice_is_known_once(served: Served, one: GroupMember) -> None:
    liar = await classic_member(served)
    await one.join_and_sync()
    liar.protocols = [("x", b""), ("x", b"")]
    assert (await liar.join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.protocols = [("range", b"first"), ("range", b"second")]
    assert [each.metadata for each in (await one.join()).members] == [b"first"]


async def test_members_belong_to_a_group_that_has_a_name(serve: Serve) -> None:
    one = await classic_member(await serve(), "")
    await one.client.make_topic("t")
    invalid = ErrorCode.INVALID_GROUP_ID
    assert {(await one.join()).error_code, (await one.sync()).error_code} == {invalid}
    assert {await one.heartbeat(), (await one.leave()).error_code} == {invalid}
    assert await one.commit("t", 5) == [NONE]  # as ever in Kafka
    assert await one.offsets() == {("t", 0): 5}


async def test_a_group_id_may_be_long_and_one_of_100_kilobytes_ends_the_connection(served: Served) -> None:
    """As in Kafka, where strings have 32,767 bytes at most in every version."""
    one = await classic_member(served, "x" * 32_767)
    await one.client.make_topic("t")
    await one.join_and_sync()
    assert await one.commit("t", 5) == [NONE]
    body = bytes.fromhex("000b 0009 00000001 0001 63 00") + b"\xa1\x8d\x06" + b"x" * 100_000
    liar = await served.connect()
    liar.writer.write(len(body).to_bytes(4, "big") + body)
    with pytest.raises(asyncio.IncompleteReadError):
        await liar.frame()
    assert (await one.heartbeat(), len(served.broker.groups.groups)) == (NONE, 1)


@pytest.mark.parametrize("named", [{"instance": "i" * 32_767}])
async def test_an_instance_whose_name_leaves_no_room_for_an_id_is_refused(
    serve: Serve, named: dict[str, str]
) -> None:
    one = await classic_member(await serve(), **named)
    assert (await one.join()).error_code == ErrorCode.INVALID_REQUEST


async def test_metadata_that_is_too_long_is_refused_and_the_group_goes_on(
    broker: Broker, one: GroupMember
) -> None:
    await one.client.make_topic("t", 2)
    await one.join_and_sync()
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await one.commit("t", 5, version=7, metadata="x" * 4_097) == [too_large]
    assert await one.commit("t", 5, version=9, metadata="x" * 32_000) == [too_large]
    held = broker.groups.memory.held_bytes
    assert await one.commit("t", 6, metadata="x" * 4_096) == [NONE]
    assert held < broker.groups.memory.held_bytes < held + 10_000
    assert await one.heartbeat() == NONE


async def test_a_member_with_ten_megabytes_to_say_finds_no_room_and_the_group_goes_on(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one, liar = await classic_member(served), await classic_member(served)
    await one.client.make_topic("t")
    await one.join_and_sync()
    liar.protocols = [("range", b"x" * (10 << 20))]
    refused = await liar.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (await one.heartbeat(), await one.commit("t", 5)) == (NONE, [NONE])
    one.protocols = [("range", b"y" * 1000)]
    assert (await one.join()).error_code == NONE


@pytest.mark.parametrize("size", [1 << 20, 10 << 20])
async def test_a_member_with_more_to_say_than_can_be_stored_does_not_join_and_the_group_goes_on(
    served: Served, one: GroupMember, size: int
) -> None:
    liar = await classic_member(served)
    await one.join_and_sync()
    honest, liar.protocols = liar.protocols, [("range", b"x" * size)]
    for _ in range(2):
        assert (await liar.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await one.heartbeat() == NONE

    liar.protocols = honest
    joining = asyncio.create_task(liar.join())
    await until(lambda: served.broker.groups.groups[one.group].state is State.PREPARING_REBALANCE)
    await one.join()
    assert (await joining).error_code == NONE
    assert (await one.sync(**{one.id: b"1", liar.id: b"2"})).error_code == NONE
    liar.protocols = [("range", b"x" * size)]
    assert (await liar.join()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "nor does it grow"
    assert await one.heartbeat() == NONE


async def test_an_assignment_of_ten_megabytes_is_not_stored_and_the_group_goes_on(
    broker: Broker, one: GroupMember
) -> None:
    await one.join()
    refused = await one.sync(**{one.id: b"x" * (10 << 20)})
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await one.join_and_sync()
    assert broker.groups.memory.held_bytes < 20_000


async def test_a_group_with_a_name_of_32_kilobytes_is_deleted(served: Served) -> None:
    """The tombstones of its offsets do not fit into one batch."""
    one = await classic_member(served, "g" * 32_000)
    for topic in ("t", "u"):
        await one.client.make_topic(topic, 30)
        assert await one.commit(topic, *range(30)) == [NONE] * 30
    response = await one.client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[one.group]))
    assert response.results[0].error_code == NONE
    assert not served.broker.groups.offsets


async def test_where_there_is_no_room_what_was_committed_before_is_committed_on(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one = await classic_member(served)
    await one.client.make_topic("t", 400)
    codes = await one.commit("t", *range(400), version=9, metadata="x" * 4000)
    stored = codes.count(NONE)
    assert 100 < stored < 150, "half of all: they come from one address"
    assert codes == [NONE] * stored + [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * (400 - stored)
    assert served.broker.groups.memory.held_bytes <= 1 << 19
    assert await one.commit("t", *range(1, stored + 1), metadata="y" * 4000) == [NONE] * stored
    assert len(await one.offsets()) == stored


def test_what_is_committed_or_forgotten_while_offsets_are_told_disturbs_nobody() -> None:
    offsets = GroupOffsets()
    for topic in ("t", "u"):
        for partition in range(2):
            offsets.put(topic, partition, Committed(5, -1, "", 0, -1, b"id"))
    groups: Any = SimpleNamespace(offsets={"g": offsets}, topic_id=lambda _name: b"id")
    telling = offset_fetch._topics(groups, "g", None).__await__()
    next(telling)
    offsets.remove("t", 1)
    offsets.remove("u", 0)
    offsets.remove("u", 1)
    offsets.put("v", 0, Committed(5, -1, "", 0, -1, b"id"))
    ((topic, partitions),) = at_once(telling)
    assert (topic, [each["partition_index"] for each in partitions]) == ("t", [0, 1])


@pytest.mark.parametrize("joins_as", ["consumer", "classic"])
async def test_nobody_joins_or_commits_while_a_group_is_deleted(
    broker: Broker, one: GroupMember, joins_as: str
) -> None:
    """A deletion takes several turns. It must delete all of the group, and nothing of a later one."""
    await one.client.make_topic("t", 300)
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    async def ask(epoch: int = 0) -> int:
        joining.member_epoch = epoch
        return (await one.client.ask(CONSUMER_GROUP_HEARTBEAT, 1, joining)).error_code  # type: ignore[no-any-return]

    async def deleted() -> int:
        response = await one.client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
        return response.results[0].error_code  # type: ignore[no-any-return]

    assert (await ask(), await ask(-1)) == (NONE, NONE)
    assert await one.commit("t", *range(300), version=9) == [NONE] * 300
    groups = broker.groups
    deleting = groups.delete(groups.groups["g"]).__await__()
    next(deleting)
    again = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await ask() if joins_as == "consumer" else (await one.join(3)).error_code) == again
    assert await deleted() == again
    assert await one.commit("t", 7, version=9) == [again]
    assert len(list(deleting)) == 2, "a turn for others after each hundred offsets"
    assert (groups.groups, groups.offsets, groups.memory.held_bytes) == ({}, {}, 0)
    assert await deleted() == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await ask() if joins_as == "consumer" else (await one.join(3)).error_code) == NONE


async def test_a_group_that_the_disk_does_not_let_go_is_not_deleted(broker: Broker, one: GroupMember) -> None:
    await one.client.make_topic("t")
    await one.commit("t", 5)

    log = log_of(broker, "__consumer_offsets")
    log.refuse_writes("the test says so")
    request = DeleteGroupsRequest(groups_names=["g"])
    (result,) = (await one.client.ask(DELETE_GROUPS, 2, request)).results
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert await one.offsets() == {("t", 0): 5}


async def test_who_waits_for_others_when_all_groups_go_is_answered(served: Served, one: GroupMember) -> None:
    other = await classic_member(served)
    await one.join_and_sync()
    joining = asyncio.create_task(other.join(3))
    await until(lambda: served.broker.groups.groups["g"].state is State.PREPARING_REBALANCE)
    await delete_topic(one.client, OFFSETS_TOPIC)
    assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
    assert served.broker.groups.memory.held_bytes == 0


async def test_what_a_follower_would_assign_is_not_looked_at(serve: Serve) -> None:
    served = await serve(group_state_max_bytes=str(1 << 20))
    one, other = await classic_member(served), await classic_member(served)
    await one.join_and_sync()
    rejoining = asyncio.create_task(other.join(3))
    await until(lambda: served.broker.groups.groups["g"].state is State.PREPARING_REBALANCE)
    await one.join()
    await rejoining
    syncing = asyncio.create_task(other.sync(**{other.id: b"x" * 600_000}))
    assert (await one.sync(**{other.id: b"1"})).error_code == NONE
    assert (await syncing).assignment == b"1"


# The topic, the disk, the clock.


async def test_the_topic_is_made_on_first_use_and_is_the_brokers_own(serve: Serve) -> None:
    one = await classic_member(await serve(offsets_topic_num_partitions="3"))
    await one.client.make_topic("t")
    topics = one.client.topics
    assert set(await topics()) == {"t"}
    await one.commit("t", 5)
    internal = (await topics())["__consumer_offsets"]
    assert (internal.is_internal, len(internal.partitions)) == (True, 3)
    assert not (await topics())["t"].is_internal
    data = build_batch([Record(0, 1, b"k", b"v")])
    for client_id, code in (("test", ErrorCode.INVALID_TOPIC_EXCEPTION), (ADMIN_CLIENT, NONE)):
        one.client.client_id = client_id
        assert (await one.client.produce("__consumer_offsets", data)).error_code == code


async def test_the_topic_is_made_as_it_is_to_be_whoever_asks_for_it_first(serve: Serve) -> None:
    served = await serve(num_partitions="7")
    client = await served.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")])
    (topic,) = (await client.ask(METADATA, 9, request)).topics
    assert (topic.error_code, len(topic.partitions)) == (NONE, 1)
    made = served.broker.topics.by_name["__consumer_offsets"]
    assert (made.config.cleanup_policy, made.config.segment_bytes) == (("compact",), 100 << 20)


async def test_a_folder_that_kafka_wrote_opens_with_its_groups(serve: Serve, tmp_path: Path) -> None:
    """Retention would delete records older than a week, but it does not apply."""
    names = [f"group-{number}" for number in range(9)]
    await (await serve()).stop()
    written: list[list[Record]] = [[], [], [], []]
    now_ms = Clock().now_ms()
    for number, name in enumerate(names):
        value = OffsetCommitValue(offset=number, leader_epoch=0, metadata="", commit_timestamp=now_ms)
        of_partition = written[partition_of(name, 4)]
        key = records.offset_key(name, "t", 0)
        of_partition.append(Record(len(of_partition), 1, key, records.written_value(value, 3)))
    for folder, made in {
        "t-0": [],
        **{f"__consumer_offsets-{n}": each for n, each in enumerate(written)},
    }.items():
        (tmp_path / "data" / folder).mkdir(parents=True)
        data = build_batch(made) if made else b""
        (tmp_path / "data" / folder / "00000000000000000000.log").write_bytes(data)
    served = await serve(log_retention_ms="1000", log_retention_check_interval_ms="1")
    one = await classic_member(served)
    await loaded(one.client)
    for number, name in enumerate(names):
        one.group = name
        assert await one.offsets() == {("t", 0): number}
    topic = served.broker.topics.by_name["__consumer_offsets"]
    assert (len(topic.partitions), topic.config.cleanup_policy) == (4, ("compact",))
    assert await one.commit("t", 77) == [NONE]
    await served.stop()
    one.client = await (await serve(offsets_topic_num_partitions="50")).connect()
    await loaded(one.client)
    assert await one.offsets() == {("t", 0): 77}


async def test_groups_their_members_and_offsets_survive_a_restart(serve: Serve) -> None:
    served = await serve(offsets_topic_num_partitions="5")
    names = [f"group-{number}" for number in range(12)]
    members = {name: await classic_member(served, name, instance="i") for name in names}
    await members[names[0]].client.make_topic("t", 2)
    for number, one in enumerate(members.values()):
        await one.join_and_sync()
        assert await one.commit("t", number, number + 100, metadata=f"m{number}") == [NONE, NONE]
    await served.stop()
    served = await serve()
    for number, one in enumerate(members.values()):
        one.client = await served.connect()
        await loaded(one.client)
        assert await one.heartbeat() == NONE
        assert (await one.sync()).assignment == b"all"
        assert await one.offsets(t=2) == {("t", 0): number, ("t", 1): number + 100}
        assert (await one.fetch(t=1))[0].partitions[0].metadata == f"m{number}"
    assert set((await states(one.client)).values()) == {"Stable"}


async def test_groups_that_were_read_are_served_in_turns(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "TURN_S", 0)
    served = await serve()
    client = await served.connect()
    for name in "abc":
        await GroupMember(client, name).join_and_sync()
    await served.stop()
    served = await serve()
    client = await served.connect()
    await loaded(client)
    assert await states(client) == dict.fromkeys("abc", "Stable")
    groups = served.broker.groups
    groups._serve(iter([ClassicGroup("late", groups.services)]), Later())
    assert set(groups.groups) == set("abc"), "their topic was deleted meanwhile"


async def test_while_groups_are_read_nobody_is_told_what_is_not_so(
    serve: Serve, served: Served, one: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.client.make_topic("t")
    await one.join_and_sync()
    await one.commit("t", 5)
    await served.stop()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    has_loaded = coordinator_module.Coordinator._loaded

    def hold_back(self: Any, *loaded: Any) -> None:
        async def later() -> None:
            await gate.wait()
            has_loaded(self, *loaded)

        self.held_back = loop.create_task(later())

    monkeypatch.setattr(coordinator_module.Coordinator, "_loaded", hold_back)
    served = await serve()
    one.client = await served.connect()
    is_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await one.join()).error_code == is_loading
    assert (await one.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await one.heartbeat(), await one.commit("t", 6)) == (NONE, [is_loading])
    response = await one.client.ask(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"]))
    assert response.groups[0].error_code == is_loading
    assert (await one.client.ask(LIST_GROUPS, 5, ListGroupsRequest())).error_code == is_loading
    with pytest.raises(AssertionError):
        await one.offsets(t=1)
    gate.set()
    await loaded(one.client)
    assert (await one.offsets(t=1), await one.heartbeat()) == ({("t", 0): 5}, NONE)


async def test_groups_that_cannot_be_read_are_read_again_until_they_can(
    serve: Serve,
    served: Served,
    one: GroupMember,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await one.client.make_topic("t")
    await one.join_and_sync()
    await one.commit("t", 5)
    await served.stop()
    fails = True

    async def read_badly(logs: list[Log], note: Any) -> Any:
        if fails:
            raise ReadFailed(f"{logs[0]}: the disk does not give it")
        return await read(logs, note)

    monkeypatch.setattr(loading, "read", read_badly)
    served = await serve()
    served.broker.clock.hold()
    one.client = await served.connect()
    for wait_ms in (1000, 2000, 4000):
        await until(lambda wait_ms=wait_ms: f"again in {wait_ms} ms" in caplog.text)
        assert (await one.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fails = wait_ms < 4000
        served.broker.clock.advance(milliseconds=wait_ms)
    await loaded(one.client)
    assert (await one.heartbeat(), await one.offsets()) == (NONE, {("t", 0): 5})
    assert "error='" in caplog.text
    assert "__consumer_offsets-0: the disk does not give it" in caplog.text


async def test_groups_that_could_not_be_read_are_no_more_when_their_topic_is_deleted(
    serve: Serve,
    served: Served,
    one: GroupMember,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await one.client.make_topic("t")
    await one.commit("t", 5)
    await served.stop()

    async def read_badly(logs: list[Log], _note: Any) -> Any:
        raise ReadFailed(f"{logs[0]}: the disk does not give it")

    monkeypatch.setattr(loading, "read", read_badly)
    served = await serve()
    served.broker.clock.hold()
    one.client = await served.connect()
    await until(lambda: "again in 1000 ms" in caplog.text)
    await delete_topic(one.client, OFFSETS_TOPIC)
    await one.commit("t", 7)
    served.broker.clock.advance(minutes=2)
    await one.client.ask(LIST_GROUPS, 5, ListGroupsRequest())
    assert await one.offsets() == {("t", 0): 7}
    assert "again in 2000 ms" not in caplog.text


async def test_the_topic_of_groups_may_go_between_two_steps_of_forgetting_what_has_expired(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator_module, "COMMITTED_AT_ONCE", 1)
    served = await serve()
    one = await classic_member(served)
    await one.client.make_topic("t", 3)
    groups = served.broker.groups
    await one.commit("t", 5, 6, 7, version=2, retention_time_ms=0)
    cleaning = groups._clean_all(with_groups=True)
    while len(groups.offsets["g"].topics["t"]) == 3:
        cleaning.send(None)
    await delete_topic(one.client, OFFSETS_TOPIC)
    await one.commit("t", 8)
    at_once(cleaning)
    assert await one.offsets() == {("t", 0): 8}


async def test_an_unexpected_error_while_offsets_expire_is_logged_and_the_next_round_begins(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()
    one = await classic_member(served)
    await one.client.make_topic("t")
    groups = served.broker.groups
    await one.commit("t", 5, version=2, retention_time_ms=0)
    with monkeypatch.context() as patch:
        patch.setattr(GroupOffsets, "expired", lambda *_: 1 // 0)
        groups.clean_soon()
        await until(lambda: groups.is_settled)
    assert "ZeroDivisionError" in caplog.text
    assert groups.committed_count == 1
    groups.clean_soon()
    await until(lambda: groups.is_settled)
    assert groups.committed_count == 0


async def test_offsets_are_kept_once_a_member_reads_their_topic_though_others_of_it_have_been_forgotten(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "COMMITTED_AT_ONCE", 1)
    served = await serve(offsets_retention_check_interval_ms="2000000000")
    groups, clock = served.broker.groups, served.broker.clock
    clock.hold()
    one = await classic_member(served)
    await one.client.make_topic("t", 3)
    await one.commit("t", 5, 6, 7)
    clock.advance(days=8)
    cleaning = groups._clean_all(with_groups=True)
    while len(groups.offsets["g"].topics["t"]) == 3:
        cleaning.send(None)
    one.protocols = [("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00")]
    await one.join_and_sync()
    at_once(cleaning)
    assert await one.offsets() == {("t", 1): 6, ("t", 2): 7}
    clock.release()


async def commit_while(
    served: Served, one: GroupMember, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> list[int]:
    """Commit three offsets; call `happens` when the first is written."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)
    groups = served.broker.groups
    put = groups.put

    def put_first(*args: Any) -> Any:
        written = put(*args)
        monkeypatch.setattr(groups, "put", put)
        happens()
        return written

    monkeypatch.setattr(groups, "put", put_first)
    return await one.commit("t", 5, 6, 7, version=9)


async def test_a_commit_under_way_is_refused_from_where_its_member_has_left(
    served: Served, one: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not overwrite commits of the next member."""
    await one.client.make_topic("t", 3)
    await one.join_and_sync()
    group = served.broker.groups.groups["g"]
    codes = await commit_while(served, one, monkeypatch, lambda: group.leave([(one.id, None)]))
    assert codes == [NONE, UNKNOWN, UNKNOWN]
    assert await one.offsets() == {("t", 0): 5}


async def test_a_commit_under_way_brings_back_no_group_that_is_deleted(
    served: Served, one: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.client.make_topic("t", 3)
    groups = served.broker.groups
    codes = await commit_while(
        served, one, monkeypatch, lambda: list(groups.delete(groups.groups["g"]).__await__())
    )
    assert codes == [NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND]
    assert (groups.groups, groups.offsets) == ({}, {})


async def test_what_was_committed_of_a_deleted_topic_is_not_of_one_that_has_its_name_now(
    serve: Serve, served: Served, one: GroupMember
) -> None:
    await one.client.make_topic("t", 2)
    await one.client.make_topic("kept")
    await one.commit("t", 5, 6)
    await one.commit("kept", 7)
    await delete_topic(one.client, "t")
    await one.client.make_topic("t", 2)
    assert await one.offsets(t=2) == {("t", 0): -1, ("t", 1): -1}
    assert await one.offsets() == {("kept", 0): 7}
    await one.commit("t", 1)
    await until(lambda: [*served.broker.groups.offsets["g"].topics["t"]] == [0])
    await served.stop()
    one.client = await (await serve()).connect()
    await loaded(one.client)
    assert await one.offsets() == {("kept", 0): 7, ("t", 0): 1}


async def test_an_offset_that_expires_is_not_of_a_topic_that_has_its_name_after_a_crash(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module.Coordinator, "_clean", lambda _, **__: None)
    served = await serve()
    one = await classic_member(served)
    await one.client.make_topic("t")
    await one.client.make_topic("kept")
    for topic in ("t", "kept"):
        assert await one.commit(topic, 5, version=2, retention_time_ms=DAY_MS) == [NONE]
    await delete_topic(one.client, "t")
    await one.client.make_topic("t")
    await served.stop()
    one.client = await (await serve()).connect()
    await loaded(one.client)
    assert await one.offsets() == {("kept", 0): 5}


async def test_offsets_expire_once_nobody_is_a_member_by_the_clock(serve: Serve) -> None:
    """KIP-211: the group goes with the last of them."""
    served = await serve(offsets_retention_minutes="1440", offsets_retention_check_interval_ms="60000")
    one, simple, old = (
        await classic_member(served),
        await classic_member(served, "simple"),
        await classic_member(served, "old"),
    )
    groups, clock = served.broker.groups, served.broker.clock
    clock.hold()
    await one.client.make_topic("t", 2)
    one.protocols = [("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00")]
    await one.join(session_timeout_ms=1_800_000)
    await one.sync()
    assert await one.commit("t", 5) == await simple.commit("t", 6) == [NONE]
    assert await old.commit("t", 7, version=2, retention_time_ms=1000) == [NONE]
    clock.advance(minutes=2)
    await until(lambda: "old" not in groups.groups)
    for _ in range(48):
        clock.advance(minutes=29)
        assert await one.heartbeat() == NONE
    assert "simple" in groups.groups
    clock.advance(minutes=29)
    await one.heartbeat()
    clock.advance(minutes=29)
    await until(lambda: "simple" not in groups.groups)
    assert await one.offsets() == {("t", 0): 5}  # it reads the topic
    await one.leave()
    clock.advance(hours=23, minutes=58)
    assert await one.offsets() == {("t", 0): 5}
    clock.advance(minutes=5)
    await until(lambda: not groups.groups)
    assert (await one.fetch(), groups.offsets, groups.memory.held_bytes) == ([], {}, 0)
    clock.release()
    await served.stop()
    again = await serve()
    await until(lambda: not again.broker.groups.is_loading)
    assert (again.broker.groups.groups, again.broker.groups.offsets) == ({}, {})


async def test_a_group_of_nothing_outlives_the_deletion_of_a_topic_but_not_the_next_round(
    serve: Serve,
) -> None:
    served = await serve(offsets_retention_check_interval_ms="60000")
    groups, clock = served.broker.groups, served.broker.clock
    clock.hold()
    one, reader = await classic_member(served), await classic_member(served, "reader")
    for topic in ("t", "kept"):
        await one.client.make_topic(topic)
    await one.join_and_sync()
    await one.leave()
    await reader.commit("t", 5)
    await delete_topic(one.client, "t")
    await until(lambda: "reader" not in groups.offsets and groups._cleaning is None)
    assert {"g", "reader"} <= groups.groups.keys()
    clock.advance(minutes=2)
    await until(lambda: not groups.groups)
    clock.release()


async def test_a_group_of_nothing_outlives_the_deletion_of_a_topic_after_a_round_too(served: Served) -> None:
    groups = served.broker.groups
    one, reader = await classic_member(served), await classic_member(served, "reader")
    await one.client.make_topic("t")
    groups._clean(with_groups=True)
    await until(lambda: groups._cleaning is None)
    await one.join_and_sync()
    await one.leave()
    await reader.commit("t", 5)
    await delete_topic(one.client, "t")
    await until(lambda: "reader" not in groups.offsets and groups._cleaning is None)
    assert {"g", "reader"} <= groups.groups.keys()


async def test_a_round_that_is_due_while_offsets_are_forgotten_forgets_groups_of_nothing_after_that(
    served: Served,
) -> None:
    groups = served.broker.groups
    one = await classic_member(served)
    await one.join_and_sync()
    await one.leave()
    # Between two topics that are deleted.
    for with_groups in (False, True, False):
        groups._clean(with_groups=with_groups)
    await until(lambda: groups._cleaning is None)
    assert not groups.groups


async def test_a_step_of_the_time_of_day_ends_no_session(broker: Broker, one: GroupMember) -> None:
    await one.join_and_sync()
    broker.clock._held = (broker.clock.now_ms() + DAY_MS, broker.clock.monotonic_ms())
    broker.clock._notify()
    assert await one.heartbeat() == NONE
    broker.clock.release()


async def test_a_stop_answers_members_that_wait_for_others(served: Served, one: GroupMember) -> None:
    other = await classic_member(served)
    await one.join_and_sync()
    joining = asyncio.create_task(other.join())
    await until(lambda: served.broker.groups.groups["g"].state is State.PREPARING_REBALANCE)
    await served.stop()
    assert (await joining).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("option", "is_kept"),
    [
        ({}, True),
        ({"log_message_timestamp_type": "LogAppendTime"}, False),
        ({"log_message_format_version": "0.10.0"}, False),
        ({"compression_type": "gzip"}, False),
    ],
    ids=str,
)
async def test_batches_of_groups_are_stored_without_a_check_that_finds_the_same(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, option: dict[str, str], is_kept: bool
) -> None:
    one = await classic_member(await serve(**option))
    await one.client.make_topic("t", 3)
    append = Log.append
    appended: list[Checked | None] = []

    def append_and_check(log: Log, data: bytearray, now_ms: int, checked: Checked | None, *rest: bool) -> Any:
        if log.topic == OFFSETS_TOPIC:
            appended.append(checked)
            if checked is not None:
                assert checked == log._rules.check_promptly(bytearray(data), now_ms, 0, any_format=False)
        return append(log, data, now_ms, checked, *rest)

    monkeypatch.setattr(Log, "append", append_and_check)
    await one.join_and_sync()
    assert await one.commit("t", 5, 6, 7, metadata="m" * 100) == [NONE] * 3
    assert [checked is not None for checked in appended] == [is_kept, is_kept]
    assert await one.offsets() == {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}


async def test_a_commit_that_is_not_on_disk_is_not_answered_as_one_that_is(
    broker: Broker, one: GroupMember, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await one.client.make_topic("t")
    assert await one.commit("t", 5) == [NONE]
    log = log_of(broker, "__consumer_offsets")
    log.refuse_writes("the test says so")
    assert await one.commit("t", 6) == [ErrorCode.NOT_COORDINATOR]
    assert await one.offsets() == {("t", 0): 5}
    await one.join()
    assert (await one.sync()).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_group_that_was_left_and_is_not_on_disk_is_not_answered_as_one_that_is(
    served: Served, one: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.join_and_sync()
    fail_flushes(served, monkeypatch)
    assert (await one.leave()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await one.leave()).members[0].error_code == UNKNOWN


async def test_who_has_left_others_is_a_member_again_after_a_crash_until_its_session_ends(
    served: Served, one: GroupMember, serve: Serve
) -> None:
    other = await classic_member(served)
    await one.join_and_sync()
    rejoining = asyncio.create_task(one.join())
    await other.join(3)
    await rejoining
    await asyncio.gather(one.sync(**{one.id: b"1", other.id: b"2"}), other.sync())
    assert (await other.leave()).error_code == NONE
    await served.stop()  # which stores nothing more than a crash would
    served = await serve()
    one.client = await served.connect()
    await loaded(one.client)
    group, clock = served.broker.groups.groups["g"], served.broker.clock
    assert set(group.members) == {one.id, other.id}
    clock.hold()
    for _ in range(2):
        assert await one.heartbeat() == NONE
        clock.advance(seconds=6)
        await one.client.ask(LIST_GROUPS, 5, ListGroupsRequest())
    assert await one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(group.members) == {one.id}


async def test_many_offsets_of_a_group_with_a_long_name_are_stored_and_forgotten_in_small_batches(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await classic_member(served, "g" * 32_000)
    await one.client.make_topic("t", 120)
    group_log, sizes = served.broker.groups.log, []
    append = group_log.append

    def counted(group_id: str, entries: Any) -> Any:
        sizes.append(sum(len(entry.key) for entry in entries))
        return append(group_id, entries)

    monkeypatch.setattr(group_log, "append", counted)
    assert await one.commit("t", *range(120)) == [NONE] * 120
    await delete_topic(one.client, "t")
    await until(lambda: not served.broker.groups.offsets)
    assert max(sizes) <= 100_000
    assert sum(sizes) > 2 * 120 * 32_000


async def test_no_client_takes_all_groups_away(one: GroupMember) -> None:
    await one.client.make_topic("t")
    await one.join_and_sync()
    await one.commit("t", 5)
    request = delete_request(OFFSETS_TOPIC, "t")
    refused, deleted = (await one.client.ask(DELETE_TOPICS, 3, request)).responses
    assert (refused.error_code, deleted.error_code) == (ErrorCode.INVALID_TOPIC_EXCEPTION, NONE)
    for value in ("delete", "compact,delete"):
        option = AlterableConfig(name="cleanup.policy", config_operation=0, value=value)
        altered = AlterConfigsResource(resource_type=2, resource_name=OFFSETS_TOPIC, configs=[option])
        asked = IncrementalAlterConfigsRequest(resources=[altered], validate_only=False)
        (result,) = (await one.client.ask(INCREMENTAL_ALTER_CONFIGS, 1, asked)).responses
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert "must have compact alone" in result.error_message
    assert await one.heartbeat() == NONE
    assert await states(one.client) == {"g": "Stable"}


async def test_when_the_topic_is_deleted_all_groups_are_gone(broker: Broker, one: GroupMember) -> None:
    await one.client.make_topic("t")
    await one.join_and_sync()
    await one.commit("t", 5)
    await delete_topic(one.client, "__consumer_offsets")
    assert (await states(one.client), broker.groups.memory.held_bytes) == ({}, 0)
    assert (await one.fetch(), await one.heartbeat()) == ([], UNKNOWN)
    one.id, one.generation = "", -1
    assert await one.commit("t", 6) == [NONE]
