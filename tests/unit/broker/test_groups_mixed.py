"""Classic members in a consumer group, and groups that change from one kind to the other (KIP-848)."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.groups import CONFIG, SESSION_MS, SUBSCRIPTIONS, Client, CooperativeClient, World, drive
from tidelog.broker.answers import Later
from tidelog.broker.groups import migration, services
from tidelog.broker.groups.assignors import Subscriber
from tidelog.broker.groups.classic_member import Joining
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.consumer_member import Classic as ClassicSaid
from tidelog.broker.groups.consumer_member import Heartbeat, owned_of
from tidelog.broker.groups.memory import GroupMemory, Memory
from tidelog.broker.groups.services import GroupError, Services
from tidelog.broker.work import Stopping
from tidelog.protocol.coordinator.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ProtocolTopicPartitions,
    assignment_of,
    subscription_of,
    written_assignment,
    written_subscription,
)
from tidelog.protocol.coordinator.form import Form
from tidelog.protocol.coordinator.records import group_key
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.errors import StorageError

A, B = b"a" * 16, b"b" * 16
NONE, REJOIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
ASSIGNMENTS = Form(ConsumerProtocolAssignment, "0-3", flexible="")


@pytest.fixture
def world() -> World:
    world = World()
    world.topics = {"a": (A, 4), "b": (B, 2)}
    return world


@pytest.fixture
def group(world: World) -> ConsumerGroup:
    return world.group()


def test_a_classic_member_joins_when_others_have_given_up(group: ConsumerGroup) -> None:
    new = Client("m", frozenset(["a"]))
    new.heartbeat(group)
    old = CooperativeClient(group, "a")
    joined = old.join()
    assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (
        NONE,
        "consumer",
        "cooperative-sticky",
    )
    assert (joined.leader, joined.members, joined.generation_id) == ("", [], group.epoch)
    assert old.sync().error_code == NONE
    assert old.owns == {}
    assert old.heartbeat() is NONE  # What it waits for is not free.
    new.heartbeat(group)
    new.heartbeat(group)
    assert old.heartbeat() is REJOIN
    assert old.join().error_code == NONE
    old.sync()
    assert sorted(old.owns["a"] + list(new.owns[A])) == [0, 1, 2, 3]
    assert old.heartbeat() is NONE


def test_a_classic_member_gives_up_and_joins_again(group: ConsumerGroup) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    assert old.owns == {"a": [0, 1, 2, 3]}
    new = Client("m", frozenset(["a"]))
    new.heartbeat(group)
    assert old.heartbeat() is REJOIN
    assert old.join().generation_id == 1  # It stays in its generation until it has given up.
    old.sync()
    assert len(old.owns["a"]) == 2
    new.heartbeat(group)
    assert not new.owns
    assert old.heartbeat() is REJOIN
    assert old.join().generation_id == 2
    assert old.sync().error_code == NONE
    new.heartbeat(group)
    assert sorted(old.owns["a"] + list(new.owns[A])) == [0, 1, 2, 3]


def test_a_classic_member_that_is_new_is_given_an_id_to_join_with(group: ConsumerGroup) -> None:
    old = CooperativeClient(group, "a")
    assert old.join(must_know_its_id=True).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert old.id
    assert not group.members
    assert old.join(must_know_its_id=True).error_code == NONE
    assert list(group.members) == [old.id]


@pytest.mark.parametrize(
    "said",
    [
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [("range", b"\xff")]},
        {"protocols": [("other", written_subscription(["a"]))]},
    ],
)
def test_a_classic_member_must_speak_as_the_others_do(group: ConsumerGroup, said: dict[str, object]) -> None:
    CooperativeClient(group, "a").join()
    assert CooperativeClient(group, "a").join(**said).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_is_refused_what_is_not_its_own(group: ConsumerGroup) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    assert old.sync(protocol="range").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old.generation += 1
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert old.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    assert group.commit_problem(old.id, None, old.generation) is ErrorCode.ILLEGAL_GENERATION
    assert group.commit_problem(old.id, None, old.generation - 1, is_old=True) is NONE
    Client("m", frozenset(["a"])).heartbeat(group)
    assert group.heartbeat("m", None, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("x", None, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_in_a_new_epoch_has_the_member_join_again(group: ConsumerGroup) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    Client("m", frozenset(["b"])).heartbeat(group)
    assert old.sync().error_code == REJOIN


@pytest.mark.parametrize("wait_ms", [10_000, 60_000])
def test_a_classic_member_that_is_silent_or_does_not_join_again_is_taken_out(
    group: ConsumerGroup, world: World, wait_ms: int
) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    new = Client("m", frozenset(["a"]))
    for passed_ms in range(0, wait_ms, 5_000):
        new.heartbeat(group)
        if wait_ms > 10_000:
            assert old.heartbeat() is REJOIN
        world.pass_(5_000)
        assert (old.id in group.members) == (passed_ms + 5_000 < wait_ms)


def test_a_classic_member_that_does_not_sync_is_taken_out(group: ConsumerGroup, world: World) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    for _ in range(12):
        assert old.heartbeat() is NONE
        world.pass_(5_000)
    assert not group.members


def test_a_classic_member_that_has_joined_again_and_synced_is_waited_for_no_more(
    group: ConsumerGroup, world: World
) -> None:
    old, new = CooperativeClient(group, "a"), Client("m", frozenset(["b"]))
    old.join()
    new.heartbeat(group)
    assert old.heartbeat() is REJOIN
    world.pass_(9_000)
    assert old.heartbeat() is REJOIN
    assert (old.join().error_code, old.sync().error_code) == (NONE, NONE)
    for _ in range(20):
        world.pass_(9_000)
        assert old.heartbeat() is NONE
        new.heartbeat(group)


def test_a_classic_member_that_joins_or_syncs_is_alive(group: ConsumerGroup, world: World) -> None:
    old = CooperativeClient(group, "a")
    for act in (old.join, old.sync, old.join, old.sync):
        world.pass_(9_000)
        assert act().error_code == NONE


def test_a_classic_member_that_hears_by_its_sync_that_it_is_to_join_again_has_to(
    group: ConsumerGroup, world: World
) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    new = Client("m", frozenset(["b"]))
    new.heartbeat(group)
    for _ in range(12):
        assert (old.sync().error_code, old.id in group.members) == (REJOIN, True)
        group._extend_session(group.members[old.id])
        world.pass_(5_000)
        new.heartbeat(group)
    assert list(group.members) == ["m"]


def test_classic_members_hear_of_topics_that_grow(group: ConsumerGroup, world: World) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    world.topics["a"] = (A, 5)
    group.topic_changed("a", is_new=False)
    assert old.heartbeat() is REJOIN
    old.join()
    old.sync()
    assert old.owns == {"a": [0, 1, 2, 3, 4]}


def test_a_static_member_of_the_classic_protocol_needs_no_id_and_keeps_its_rack(group: ConsumerGroup) -> None:
    new = Client("m", frozenset(["a"]), instance_id="i")
    new.send(group, new.beat()._replace(rack_id="rack"))
    static = CooperativeClient(group, "a", instance_id="i")
    assert static.join(must_know_its_id=True).error_code == NONE
    assert group.members[static.id].subscription.rack_id == "rack"


def test_the_group_stays_one_of_consumers_while_others_speak_the_new_protocol(world: World) -> None:
    world.may_downgrade = True
    group = world.group()
    Client("m", frozenset(["a"]), instance_id="i").heartbeat(group)
    Client("n", frozenset(["a"])).heartbeat(group)
    assert CooperativeClient(group, "a", instance_id="i").join().error_code == NONE
    assert world.downgraded == []


def test_a_classic_member_is_answered_when_that_is_stored(group: ConsumerGroup, world: World) -> None:
    world.fails = True
    assert CooperativeClient(group, "a").join().error_code == ErrorCode.NOT_COORDINATOR


def test_a_classic_member_that_waits_when_the_group_ends_is_told_why(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    answers: list[JoinGroupResponse] = []
    asked = Joining("", None, "c", "/h", 60_000, 10_000, "consumer", [("range", written_subscription(["a"]))])
    drive(group.join(asked), answers.append)
    assert not answers
    group.end(ErrorCode.NOT_COORDINATOR)
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]


def test_a_classic_member_of_an_earlier_generation_is_told_so(group: ConsumerGroup) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    Client("m", frozenset(["b"])).heartbeat(group)
    old.join()
    assert old.generation == 2
    old.generation = 1
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION


def test_who_has_left_is_not_there_after_a_restart(group: ConsumerGroup, world: World) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    group.leave([(old.id, None)])
    assert not world.restarted().members


def test_members_leave_by_their_ids_or_by_their_instances(group: ConsumerGroup) -> None:
    static, other = CooperativeClient(group, "a", instance_id="i"), CooperativeClient(group, "a")
    static.join()
    other.join()
    asked = [("", "i"), (other.id, None), ("x", None), ("", "none")]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave(asked) == [NONE, NONE, unknown, unknown]
    assert not group.members


def test_a_static_member_that_comes_back_by_the_other_protocol_has_what_it_had(group: ConsumerGroup) -> None:
    static = CooperativeClient(group, "a", instance_id="i")
    static.join()
    static.sync()
    new = Client("m", frozenset(["a"]), instance_id="i")
    new.heartbeat(group)
    assert new.owns == {A: frozenset(range(4))}
    assert list(group.members) == ["m"]
    assert static.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert static.join().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_the_group_becomes_classic_when_the_last_new_member_leaves(world: World) -> None:
    world.may_downgrade = True
    group = world.group()
    new, other = Client("m", frozenset(["a"])), Client("n", frozenset(["a"]))
    new.heartbeat(group)
    other.heartbeat(group)
    CooperativeClient(group, "a").join()
    new.leave(group)
    assert world.downgraded == []
    world.pass_(5_000)
    other.leave(group)
    assert world.downgraded == [frozenset(["n"])]


def test_a_group_of_nobody_does_not_become_classic(world: World) -> None:
    world.may_downgrade = True
    group = world.group()
    new = Client("m", frozenset(["a"]))
    new.heartbeat(group)
    new.leave(group)
    assert world.downgraded == []


def test_a_group_of_as_many_as_there_may_be_is_upgraded_and_no_larger_one(world: World) -> None:
    classic: Any = FakeClassicGroup(FakeClassicMember("m1", b""), FakeClassicMember("m2", b""))
    known = JOINING._replace(member_id="m2")
    world.configure(group_consumer_max_size=2)
    assert len(migration.upgraded(classic, known, world.services).members) == 2
    held_bytes, timers = world.held_bytes, len(world.timers)
    for joining, max_size, code in (
        (JOINING, 2, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (known, 1, ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        world.configure(group_consumer_max_size=max_size)
        with pytest.raises(GroupError) as refused:
            migration.upgraded(classic, joining, world.services)
        assert refused.value.code is code
    assert (world.held_bytes, len(world.timers)) == (held_bytes, timers), "nothing was begun"


def test_a_member_that_comes_back_as_a_classic_one_is_in_the_classic_group_as_it_says_by_now(
    group: ConsumerGroup, world: World
) -> None:
    new = Client("m", frozenset(["a"]), instance_id="i")
    new.heartbeat(group)
    said = group.members["m"].subscription._replace(
        rebalance_timeout_ms=7000, classic=ClassicSaid(3000, (("mine", written_subscription(["b"])),))
    )
    value = migration.downgraded(group, frozenset(), said, world.now_ms)
    (member,) = value.members
    assert (value.protocol, member.session_timeout, member.rebalance_timeout) == ("mine", 3000, 7000)
    assert subscription_of(member.subscription).topics == ["b"]
    (assigned,) = assignment_of(member.assignment).assigned_partitions
    assert (assigned.topic, assigned.partitions) == ("a", [0, 1, 2, 3])


class Submitted:
    """Services whose maintenance thread runs only when the test calls it."""

    def __init__(self) -> None:
        self.jobs: list[Later] = []
        self.asked: list[tuple[object, bool]] = []
        fakes: Any = SimpleNamespace(submit=self.submit, names=lambda: ("a",))
        self.services = Services(
            CONFIG, fakes, fakes, fakes, Memory(1 << 20), fakes, fakes, fakes, maintenance=fakes
        )
        self.told: list[Any] = []

    def submit(self, coroutine: Any, owner: object, for_group: bool) -> Later:
        coroutine.close()
        self.jobs.append(Later())
        self.asked.append((owner, for_group))
        return self.jobs[-1]

    def assign(self, members: dict[str, Subscriber], counts: dict[bytes, int]) -> bool:
        """Tell whether the assignment is made at once."""
        assigned = self.services.assign("g", "uniform", members, counts, self.told.append)
        return assigned is not None

    def finish(self, outcome: object) -> None:
        ready = self.jobs[-1].ready
        assert ready is not None
        self.jobs[-1].response = outcome
        ready()


def test_many_are_assigned_on_the_maintenance_thread_and_what_fails_leaves_all_as_it_was() -> None:
    submitted = Submitted()
    had = {A: frozenset([0])}
    members = {"m": Subscriber(frozenset([A]), had)}
    assert submitted.assign(members, {A: services.AT_ONCE - 1})
    for outcome, expected in ((StorageError(""), {"m": had}), ({"m": {}}, {"m": {}})):
        assert not submitted.assign(members, {A: services.AT_ONCE})
        submitted.finish(outcome)
        assert submitted.told[-1] == expected
    assert len(submitted.told) == 2


def test_work_of_groups_on_the_maintenance_thread_takes_turns_by_group_and_apart_from_clients() -> None:
    submitted = Submitted()
    submitted.assign({"m": Subscriber(frozenset([A]), {})}, {A: services.AT_ONCE})
    submitted.services.match("h", ["a"], None, 1, submitted.told.append)
    assert submitted.asked == [("g", True), ("h", True)]


def test_what_takes_long_is_assigned_on_the_maintenance_thread_however_few_partitions_there_are() -> None:
    submitted = Submitted()
    topics = [number.to_bytes(16) for number in range(100)]
    alike = {f"m{number}": Subscriber(frozenset(topics), {}) for number in range(80)}
    differ = {**alike, "m0": Subscriber(frozenset(topics[1:]), {})}
    assert submitted.assign(alike, dict.fromkeys(topics, 1))
    assert not submitted.assign(differ, dict.fromkeys(topics, 1))
    submitted.finish(Stopping())  # The broker has stopped meanwhile.
    assert not submitted.told


def test_what_becomes_of_a_consumer_group_as_a_classic_one(group: ConsumerGroup, world: World) -> None:
    new = Client("m", frozenset(["a"]))
    new.heartbeat(group)
    old = CooperativeClient(group, "a", instance_id="i")
    old.join()
    new.heartbeat(group)
    group.epoch += 1  # for which there is no target yet
    value = migration.downgraded(group, frozenset(["m"]), None, world.now_ms)
    assert (value.protocol_type, value.protocol, value.generation) == (
        "consumer",
        "cooperative-sticky",
        group.epoch,
    )
    assert value.leader == old.id
    (member,) = value.members
    assert (member.member_id, member.group_instance_id, member.session_timeout) == (
        old.id,
        "i",
        10_000,
    )
    assert subscription_of(member.subscription).topics == ["a"]
    (assigned,) = assignment_of(member.assignment).assigned_partitions
    assert (assigned.topic, len(assigned.partitions)) == ("a", 2)


class FakeClassicMember:
    def __init__(self, member_id: str, assignment: bytes, protocol: str = "range") -> None:
        self.id, self.assignment = member_id, assignment
        self.instance_id = None
        self.client_id, self.client_host = "client", "/127.0.0.1"
        self.rebalance_timeout_ms, self.session_timeout_ms = 60_000, 10_000
        self.protocols = [(protocol, written_subscription(["a"]))]

    def metadata(self, protocol: str | None) -> bytes:
        return self.protocols[0][1]


class FakeClassicGroup:
    def __init__(self, *members: FakeClassicMember, protocol: str = "range") -> None:
        self.id, self.protocol_type, self.protocol, self.generation = "g", "consumer", protocol, 7
        self.members = {member.id: member for member in members}
        self.unfit_hash: int | None = None
        self.memory = GroupMemory("g", Memory(1 << 20), "")

    def tombstones(self) -> dict[bytes, None]:
        return {group_key(self.id): None}

    def member(self, member_id: str, _instance_id: str | None) -> FakeClassicMember | None:
        return self.members.get(member_id)


JOINING = Heartbeat("new", 0, topics=frozenset(["a"]), owned={})


def given(*indexes: int, user_data: bytes | None = None) -> bytes:
    partitions = [ProtocolTopicPartitions(topic="a", partitions=list(indexes))]
    return ASSIGNMENTS.write(
        ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=user_data), 0
    )


def test_a_classic_group_goes_on_as_a_consumer_group(world: World) -> None:
    # Its leader gave partition 1 to two, and one that is not there.
    classic = FakeClassicGroup(FakeClassicMember("m1", given(0, 1)), FakeClassicMember("m2", given(1, 2, 9)))
    group = migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]
    assert (group.epoch, group.target_epoch) == (7, 7)
    assert group.members["m1"].current.assigned == {A: {0, 1}}
    assert group.members["m1"].subscription.rebalance_timeout_ms == 60_000
    assert group.members["m2"].current.assigned == {A: {2}}
    assert group.heartbeat("m1", None, 7) is NONE
    Client("m3", frozenset(["a"])).heartbeat(group)
    assert group.heartbeat("m1", None, 7) is REJOIN
    world.pass_(10_000)
    assert list(group.members) == ["m3"]
    assert world.held_bytes == group.memory.size_bytes


@pytest.mark.parametrize("index", [-1, 4])
def test_of_a_classic_assignment_only_partitions_that_are_there_are_taken_over(
    world: World, index: int
) -> None:
    classic = FakeClassicGroup(FakeClassicMember("m1", given(0, 3, index)))
    group = migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]
    assert group.members["m1"].current.assigned == {A: {0, 3}}


def test_a_topic_that_is_named_very_often_takes_no_longer_than_very_many(world: World) -> None:
    """Once each name copied the set of all earlier ones: sixty thousand took ten seconds of the event loop."""
    indexes = range(60_000)
    world.topics["a"] = (A, len(indexes))
    named = [ProtocolTopicPartitions(topic="a", partitions=[index]) for index in indexes]
    assignment = ASSIGNMENTS.write(ConsumerProtocolAssignment(assigned_partitions=named), 0)
    classic = FakeClassicGroup(FakeClassicMember("m1", assignment))
    begun_s = time.thread_time()
    assert owned_of((A, [index]) for index in indexes) == {A: frozenset(indexes)}
    assert time.thread_time() - begun_s < 2
    begun_s = time.thread_time()
    group = migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]
    assert group.members["m1"].current.assigned == {A: frozenset(indexes)}
    assert time.thread_time() - begun_s < 2


def test_a_group_that_was_upgraded_is_in_its_epoch_after_a_restart(world: World) -> None:
    classic = FakeClassicGroup(FakeClassicMember("m1", given(0)))
    group = migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]
    assert group.heartbeat("m1", None, 7) is NONE
    again = world.restarted()
    assert (again.epoch, again.target_epoch, again.members["m1"].current.epoch) == (7, 7, 7)


def test_a_group_of_others_than_consumers_is_not_upgraded(world: World) -> None:
    classic = FakeClassicGroup(FakeClassicMember("m", b""))
    classic.protocol_type = "connect"
    with pytest.raises(GroupError):
        migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("member", "protocol", "is_taken"),
    [
        (FakeClassicMember("m", b""), "range", True),
        (FakeClassicMember("m", b"\xff"), "range", False),
        (FakeClassicMember("m", given(0, user_data=b"mine")), "mine", False),
        (FakeClassicMember("m", given(0, user_data=b"librdkafka's")), "cooperative-sticky", True),
    ],
)
def test_a_classic_group_that_does_not_speak_as_consumers_do_stays_one(
    world: World, member: FakeClassicMember, protocol: str, is_taken: bool
) -> None:
    classic = FakeClassicGroup(member, protocol=protocol)
    if is_taken:
        assert migration.upgraded(classic, JOINING, world.services).members  # type: ignore[arg-type]
        return
    with pytest.raises(GroupError) as refused:
        migration.upgraded(classic, JOINING, world.services)  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_is_refused_has_not_all_members_read_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their metadata may be large: a refused heartbeat once took a second of the event loop."""
    last = FakeClassicMember("m2", b"\xff")
    classic: Any = FakeClassicGroup(FakeClassicMember("m1", given(0)), last)
    read: list[bytes] = []
    monkeypatch.setattr(migration, "subscription_of", lambda said: read.append(said) or subscription_of(said))
    refusals = [
        (JOINING._replace(regex="("), 1000, 0),
        (JOINING, 2, 0),
        (JOINING, 1000, 2),
        (JOINING, 1000, 2),
    ]
    for joining, max_size, count in refusals:
        world.configure(group_consumer_max_size=max_size)
        with pytest.raises(GroupError):
            migration.upgraded(classic, joining, world.services)
        assert len(read) == count
    last.assignment = given(1)
    assert len(migration.upgraded(classic, JOINING, world.services).members) == 2


def test_classic_members_are_there_after_a_restart(group: ConsumerGroup, world: World) -> None:
    old = CooperativeClient(group, "a")
    old.join()
    old.sync()
    again = world.restarted()
    assert again.heartbeat(old.id, None, old.generation) is NONE
    world.pass_(SESSION_MS)
    assert not again.members


def test_a_subscription_is_read_in_every_version() -> None:
    said = ConsumerProtocolSubscription(
        topics=["a"],
        user_data=b"x",
        owned_partitions=[ProtocolTopicPartitions(topic="a", partitions=[1])],
        generation_id=3,
        rack_id="r",
    )
    for version in range(4):
        read = subscription_of(SUBSCRIPTIONS.write(said, version))
        assert (read.topics, read.user_data) == (["a"], b"x")
        assert bool(read.owned_partitions) == (version >= 1)
        assert (read.generation_id, read.rack_id) == (
            3 if version >= 2 else -1,
            "r" if version >= 3 else None,
        )
    later = b"\x00\x09" + SUBSCRIPTIONS.write(said, 3)[2:] + b"more"
    assert subscription_of(later).rack_id == "r"
    with pytest.raises(WireError):
        subscription_of(b"\xff\xff" + b"\x00" * 20)


def test_an_assignment_has_the_version_of_the_subscription() -> None:
    partitions = [ProtocolTopicPartitions(topic="a", partitions=[0])]
    for version in range(4):
        metadata = SUBSCRIPTIONS.write(ConsumerProtocolSubscription(topics=[]), version)
        assert written_assignment(partitions, metadata)[:2] == version.to_bytes(2)
    assert written_assignment(partitions, b"\0\7" + metadata[2:])[:2] == b"\0\3", "of one that is not known"
    assert written_assignment(partitions, b"\0")[:2] == b"\0\0", "of what is none"
