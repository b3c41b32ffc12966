"""How far behind a group is in time, and what is said of groups, against a cluster in memory."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.fake_cluster import CORRUPT, Entry, FakeCluster
from tidelog.cli import connect, group_reset, groups
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED
from tidelog.client import groups as client_groups
from tidelog.client import lag
from tidelog.client.cluster import Partition
from tidelog.client.errors import BrokerError, Unreachable
from tidelog.client.groups import Listed, Member
from tidelog.client.lag import Lag, in_time
from tidelog.protocol.coordinator.consumer_protocol import ProtocolTopicPartitions, written_assignment
from tidelog.protocol.messages import consumer_group_describe, describe_groups
from tidelog.protocol.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS
from tidelog.protocol.messages.fetch import FETCH, FetchResponse
from tidelog.protocol.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorResponse,
)
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListedGroup, ListGroupsResponse
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NOW_MS = 1_000_000
T = Partition("t", 0)


def lag_of(log: Sequence[Entry], position: int, end: int = 10, clock: str = "record") -> Lag:
    with FakeCluster(log) as cluster:
        cluster.ends[T] = end
        cluster.by_append = {"t"} if clock == "append" else set()
        (found,) = in_time(cluster, {T: position}, {T: end}, frozenset(cluster.by_append), NOW_MS).values()
    return found


LOG = [(0, 5_000, 7_000), (4, 1_000, 8_000), (9, 3_000, 60_000)]


@pytest.mark.parametrize(
    ("position", "clock", "expected"),
    [
        (0, "record", Lag(0, NOW_MS - 5_000)),  # the last is older: there is none
        (1, "record", Lag(2_000, NOW_MS - 1_000)),  # 1 to 3 were taken by compaction
        (4, "record", Lag(2_000, NOW_MS - 1_000)),
        (9, "record", Lag(0, NOW_MS - 3_000)),
        (10, "record", Lag(0, 0)),
        (0, "append", Lag(53_000, NOW_MS - 7_000)),
        (1, "append", Lag(52_000, NOW_MS - 8_000)),
        (9, "append", Lag(0, NOW_MS - 60_000)),
        (12, "append", Lag(0, 0)),
    ],
)
def test_S56_lag_is_from_the_next_record_to_the_last_and_to_now(
    position: int, clock: str, expected: Lag
) -> None:
    assert lag_of(LOG, position, clock=clock) == expected


def test_S56_a_record_without_a_time_has_no_lag_that_is_known() -> None:
    assert lag_of([(0, -1, 5), (9, 3_000, 6)], 0) == Lag(None, None)
    assert lag_of([(0, 1_000, 5), (9, -1, 6)], 0) == Lag(None, NOW_MS - 1_000)
    assert lag_of([(0, -1, 5), (9, -1, 6)], 0, clock="append") == Lag(1, NOW_MS - 5)


def test_what_is_no_record_is_no_lag() -> None:
    assert lag_of([(0, 1_000, 5)], 1, end=3) == Lag(0, 0)
    assert lag_of([], 0, end=3, clock="append") == Lag(0, 0)


def test_a_record_of_the_future_does_not_wait() -> None:
    assert lag_of([(0, NOW_MS + 9, 5), (9, NOW_MS + 10, 6)], 0) == Lag(1, 0)


def test_partitions_of_both_clocks_are_asked_for_together() -> None:
    keys = [Partition("a", 0), Partition("a", 1), Partition("b", 0), Partition("b", 1)]
    with FakeCluster() as cluster:
        cluster.logs = {key: list(LOG) for key in keys}
        cluster.ends = dict.fromkeys(keys, 10)
        cluster.by_append = {"b"}
        found = in_time(cluster, dict.fromkeys(keys, 4), cluster.ends, frozenset("b"), NOW_MS)
        assert len(cluster.asked(LIST_OFFSETS.key)) <= 2 * 43
    assert found == {key: lag_of(LOG, 4, clock="append" if key.topic == "b" else "record") for key in keys}


def test_of_damage_no_lag_is_known_and_the_others_are_told() -> None:
    broken = Partition("t", 1)
    with FakeCluster(LOG, LOG) as cluster:
        cluster.errors[broken, 4] = CORRUPT
        found = in_time(cluster, {T: 4, broken: 4}, {T: 10, broken: 10}, frozenset(), NOW_MS)
    assert found == {T: lag_of(LOG, 4), broken: Lag(None, None)}


def test_a_broker_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "STALLED_S", -1)
    with FakeCluster(LOG) as cluster:
        cluster.connection.answers[FETCH.key] = lambda _: FetchResponse(responses=[])
        with pytest.raises(Unreachable, match="sent nothing"):
            in_time(cluster, {T: 4}, {T: 10}, frozenset(), NOW_MS)


def test_what_is_before_the_start_or_past_the_end_is_neither_skipped_nor_read_again() -> None:
    part = group_reset._Partition(2, 5, 9)
    assert group_reset._row(T, part, 7) | {"topic": 0} == {
        "topic": 0,
        "partition": 0,
        "old": 2,
        "new": 7,
        "skipped": 2,
        "read_again": 0,
    }
    assert group_reset._row(T, part._replace(old=20), 7)["read_again"] == 2


def test_a_whole_topic_is_more_than_some_of_its_partitions() -> None:
    parsed = group_reset._parse_topics(["a:0,2", "b:1", "a:3", "b"])
    assert parsed == {"a": {0, 2, 3}, "b": set()}


def member(name: str = "m", assignment: dict[str, list[int]] | None = None) -> Member:
    return Member(name, None, "c", "/h", assignment or {})


def test_of_many_members_three_are_named() -> None:
    members = [member(str(number)) for number in range(5)]
    assert groups.in_words(members) == "it has 5 members: c at /h (0), c at /h (1), c at /h (2), 2 more"
    assert groups.in_words(members[:1]) == "it has 1 member: c at /h (0)"


def of_group(kind: str, described: Any) -> FakeCluster:
    """A cluster that has group `g`, of which its coordinator says what is given."""
    cluster = FakeCluster()
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type=kind)
    coordinator = Coordinator(key="g", node_id=1, host="fake", port=1)
    answers = cluster.connection.answers
    answers[LIST_GROUPS.key] = lambda _: ListGroupsResponse(error_code=0, groups=[listed])
    answers[FIND_COORDINATOR.key] = lambda _: FindCoordinatorResponse(coordinators=[coordinator])
    answers[CONSUMER_GROUP_DESCRIBE.key] = lambda _: consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[described]
    )
    answers[DESCRIBE_GROUPS.key] = lambda _: describe_groups.DescribeGroupsResponse(groups=[described])
    return cluster


def classic(code: int = 0, assignment: bytes | None = None) -> describe_groups.DescribedGroup:
    members = []
    if assignment is not None:
        one = describe_groups.DescribedGroupMember(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            member_metadata=b"",
            member_assignment=assignment,
        )
        members.append(one)
    return describe_groups.DescribedGroup(
        error_code=code,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )


def test_a_group_of_the_newer_protocol_is_asked_for_by_its_own_request() -> None:
    parts = [
        consumer_group_describe.TopicPartitions(topic_id=bytes(16), topic_name=name, partitions=numbers)
        for name, numbers in (("u", [1]), ("t", [2, 0]))
    ]
    assignment = consumer_group_describe.Assignment(topic_partitions=parts)
    one = consumer_group_describe.Member(
        member_id="m",
        member_epoch=1,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=[],
        assignment=assignment,
        target_assignment=assignment,
    )
    described = consumer_group_describe.DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="uniform",
        members=[one],
    )
    with of_group("consumer", described) as cluster:
        listed, found = groups.find(cluster, "g")
        assert listed == Listed("g", "Stable", "consumer", "consumer")
        assert (found.state, found.assignor) == ("Stable", "uniform")
        assert found.members == [member(assignment={"u": [1], "t": [0, 2]})]
        assert len(cluster.asked(CONSUMER_GROUP_DESCRIBE.key)) == 1
        with pytest.raises(CommandError, match="group other does not exist"):
            groups.find(cluster, "other")


def test_a_group_that_is_gone_between_two_questions_is_not_there() -> None:
    with (
        of_group("classic", classic(69)) as cluster,
        pytest.raises(CommandError, match="group g does not exist"),
    ):
        groups.find(cluster, "g")


ASSIGNED = written_assignment([ProtocolTopicPartitions(topic="t", partitions=[1, 0])], b"")


@pytest.mark.parametrize(
    ("assignment", "read"),
    [(ASSIGNED, {"t": [0, 1]}), (b"", {}), (b"\x00", {}), (b"what Connect says of its tasks", {})],
)
def test_an_assignment_in_another_form_than_that_of_consumers_is_none(
    assignment: bytes, read: dict[str, list[int]]
) -> None:
    with of_group("classic", classic(assignment=assignment)) as cluster:
        _, found = groups.find(cluster, "g")
    assert found.members == [member(assignment=read)._replace(instance="i")]


def test_members_that_came_after_the_plan_are_told_of() -> None:
    refused = OffsetCommitResponsePartition(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="t", partitions=[refused])
    with of_group("classic", classic()) as cluster:
        cluster.connection.answers[OFFSET_COMMIT.key] = lambda _: OffsetCommitResponse(topics=[topic])
        with pytest.raises(CommandError, match="group g was not reset: it has members now") as raised:
            group_reset._commit(cluster, "g", {T: 1})
        with pytest.raises(BrokerError, match=r"group g, t-0: .*UNKNOWN_MEMBER_ID"):
            client_groups.commit(cluster, "g", {T: 1})
    assert raised.value.exit_code == FAILED


def test_a_partition_that_is_gone_is_left_out() -> None:
    with FakeCluster([]) as cluster:
        assert connect.existing(cluster, [T, Partition("t", 1), Partition("gone", 0)]) == [T]
        assert connect.existing(cluster, []) == []
