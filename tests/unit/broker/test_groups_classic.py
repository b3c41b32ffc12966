"""The state machine of a classic group, with a clock and timers that the test moves."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.groups import CLASSIC_SESSION_MS as SESSION_MS
from tests.support.groups import REBALANCE_MS, ClassicClient, SlowWorld, classic_group, drive
from tidelog import native
from tidelog.broker.groups.classic import (
    ANSWERS,
    JOIN_WAIT_MIN_MS,
    MOVES,
    NEW_MEMBER_MS,
    PENDING_BYTES,
    ClassicGroup,
    Operation,
    State,
)
from tidelog.broker.groups.classic_member import longest_metadata
from tidelog.broker.groups.memory import group_bytes, text_bytes
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse

NONE, UNKNOWN, REJOIN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def world() -> SlowWorld:
    return SlowWorld()


@pytest.fixture
def group(world: SlowWorld) -> ClassicGroup:
    return classic_group(world)


@pytest.fixture
def a(group: ClassicGroup) -> ClassicClient:
    return ClassicClient(group, "a")


@pytest.fixture
def b(group: ClassicGroup) -> ClassicClient:
    return ClassicClient(group, "b")


def stable(world: SlowWorld, group: ClassicGroup, *clients: ClassicClient) -> None:
    """Make a group stable with these members. The first one leads."""
    for client in clients:
        client.join()
    world.pass_(0)
    assert group.state is State.COMPLETING_REBALANCE
    leader = next(client for client in clients if client.id == group.leader)
    for client in clients:
        client.sync(**({each.id: each.name.encode() for each in clients} if client is leader else {}))
    world.write()
    assert group.state is State.STABLE
    assert [client.synced and client.synced.assignment for client in clients] == [
        client.name.encode() for client in clients
    ]


def calls_in(work: Callable[[], None]) -> int:
    """Return how many functions of the broker were called or resumed."""
    calls = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_globals["__name__"].startswith("tidelog.")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.skipif(
    native.state() == native.COMPILED, reason="compiled code makes no calls that can be counted"
)
def test_a_rebalance_costs_a_member_of_a_large_group_as_much_as_one_of_a_small_group() -> None:
    each: list[float] = []
    for count in (10, 80):
        world = SlowWorld()
        group = classic_group(world)
        clients = [ClassicClient(group, f"c{number}") for number in range(count)]
        stable(world, group, *clients)
        group.rebalance()
        each.append(calls_in(partial(stable, world, group, *clients)) / count)
    assert each[1] <= 1.1 * each[0], each


def test_every_state_has_an_answer_to_all_that_is_asked() -> None:
    assert {asked: set(answers) for asked, answers in ANSWERS.items()} == {
        asked: set(State) for asked in Operation
    }
    assert set(MOVES) == set(State)


def test_members_join_are_told_of_one_another_and_get_what_the_leader_assigns(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    a.join()
    world.pass_(0)
    assert (a.joined.leader, a.joined.protocol_name, a.generation) == (a.id, "range", 1)
    assert [(each.member_id, each.metadata) for each in a.joined.members] == [(a.id, b"r")]
    b.join()
    assert (b.joined, a.heartbeat()) == (None, REJOIN)
    a.join()
    assert (a.generation, b.generation, b.joined.members) == (2, 2, [])
    assert [each.member_id for each in a.joined.members] == [a.id, b.id]
    b.sync()
    a.sync(**{b.id: b"for b"})
    assert (a.synced, group.state) == (None, State.COMPLETING_REBALANCE)  # not before it is on disk
    world.write()
    assert (a.synced.assignment, b.synced.assignment, group.state) == (b"", b"for b", State.STABLE)
    stored = world.stored[-1]
    assert (stored.generation, stored.leader, stored.protocol) == (2, a.id, "range")
    assert [(each.member_id, each.assignment) for each in stored.members] == [(a.id, b""), (b.id, b"for b")]
    assert (a.heartbeat(), b.sync()) == (NONE, b.synced)


def test_a_session_that_ends_has_the_others_rebalance(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    for _ in range(5):
        world.pass_(SESSION_MS // 2)
        assert b.heartbeat() == (NONE if group.state is State.STABLE else REJOIN)
    assert (set(group.members), b.heartbeat()) == ({b.id}, REJOIN)
    b.join()
    assert (b.generation, group.leader) == (2, b.id)


def test_who_does_not_join_in_time_is_left_behind_and_a_static_member_may_yet_come(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b, c = ClassicClient(group, "a"), ClassicClient(group, "b"), ClassicClient(group, "c", instance="c")
    stable(world, group, a, b, c)
    a.join()  # the leader: all have to
    for _ in range(9):
        world.pass_(REBALANCE_MS // 10)
        assert (b.heartbeat(), c.heartbeat(), a.joined) == (REJOIN, REJOIN, None)
    world.pass_(REBALANCE_MS // 10)
    assert [each.member_id for each in a.joined.members] == [a.id, c.id]
    assert b.heartbeat() == UNKNOWN


def test_who_has_joined_and_never_syncs_is_let_go(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join()
    b.join()
    a.sync()
    world.write()
    for _ in range(10):
        world.pass_(REBALANCE_MS // 10)
        a.heartbeat()
        b.heartbeat()
    assert (set(group.members), b.heartbeat(), a.heartbeat()) == ({a.id}, UNKNOWN, REJOIN)


def test_a_leader_that_never_syncs_is_let_go_and_the_others_are_told(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join()
    b.join()
    b.sync()
    for _ in range(10):
        world.pass_(REBALANCE_MS // 10)
        a.heartbeat()
    assert (set(group.members), b.synced.error_code, a.heartbeat()) == ({b.id}, REJOIN, UNKNOWN)


def test_one_without_an_id_is_given_one_and_has_a_session_to_come_back_with_it(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    refused = a.join(must_know_its_id=True)
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (refused.member_id[:2], group.members, group.is_awaited) == ("a-", {}, True)
    a.id = refused.member_id
    a.join(must_know_its_id=True)
    world.pass_(0)
    assert (a.id, group.is_awaited) == (refused.member_id, False)
    a.sync()
    world.write()
    refused = b.join(must_know_its_id=True)
    assert refused is not None
    # The others wait for it, but no longer than its session.
    a.join()
    assert a.joined is None
    world.pass_(SESSION_MS)
    assert a.joined is not None
    b.id = refused.member_id
    late = b.join()
    assert late.error_code == UNKNOWN


def test_the_first_rebalance_waits_for_more_members_while_more_come() -> None:
    world = SlowWorld()
    group = classic_group(world, delay_ms=3000)
    clients = [ClassicClient(group, name) for name in "abc"]
    for client in clients:
        client.join()
        world.pass_(2000)
    assert [client.joined for client in clients] == [None] * 3
    world.pass_(3000)
    assert [client.generation for client in clients] == [1, 1, 1]


def test_the_first_rebalance_waits_no_longer_than_members_do() -> None:
    world = SlowWorld()
    group = classic_group(world, delay_ms=25_000)
    clients = [ClassicClient(group, name) for name in "abcdef"]
    for client in clients:
        client.join()
        world.pass_(10_000 - 1)
    assert [client.joined for client in clients] == [None] * 6
    world.pass_(6)
    assert [client.generation for client in clients] == [1] * 6


def test_a_leader_whose_answer_was_lost_is_told_again_whom_to_assign(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    for client in (a, b):
        client.join()
    world.pass_(0)
    for client, known in ((a, [a.id, b.id]), (b, [])):
        answered = client.join()
        assert (answered.generation_id, [each.member_id for each in answered.members]) == (1, known)
    assert group.state is State.COMPLETING_REBALANCE


def test_who_joins_again_has_the_timeouts_that_it_names(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join(session_timeout_ms=3 * SESSION_MS, rebalance_timeout_ms=REBALANCE_MS // 2)
    b.join(rebalance_timeout_ms=REBALANCE_MS // 2)
    a.sync()
    b.sync()
    world.write()
    for _ in range(4):
        world.pass_(SESSION_MS // 2)
        b.heartbeat()
    assert set(group.members) == {a.id, b.id}
    b.join(protocols=[("range", b"other")], rebalance_timeout_ms=REBALANCE_MS // 2)
    for _ in range(REBALANCE_MS // SESSION_MS):
        world.pass_(SESSION_MS // 2)
        a.heartbeat()
    assert (group.generation, set(group.members)) == (3, {b.id})


def test_a_leader_that_assigns_again_before_that_is_on_disk_has_what_was_stored_last_told(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    """It lost the answer, joined and assigned again. Members must get the assignment that a restart would find."""
    a.join()
    b.join()
    world.pass_(0)
    assert group.leader == a.id
    a.sync(**{a.id: b"0", b.id: b"1"})
    a.sync(**{a.id: b"1", b.id: b"0"})
    a.synced = None  # what the first was answered
    first, second = world.waiting
    world.waiting = []
    first(NONE)
    assert (a.synced, group.state) == (None, State.COMPLETING_REBALANCE)
    second(NONE)
    stored = {member.member_id: member.assignment for member in world.stored[-1].members}
    assert (a.synced.assignment, stored) == (b"1", {a.id: b"1", b.id: b"0"})
    answered = b.sync()
    assert answered.assignment == b"0"


def test_where_nobody_comes_a_group_does_not_wait_again_and_again_for_no_time(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a", instance="a"), ClassicClient(group, "b")
    for client, rebalance_ms in ((a, 0), (b, REBALANCE_MS)):
        client.join(rebalance_timeout_ms=rebalance_ms)
    world.pass_(0)
    assert group.leave([(b.id, None)]) == [NONE]
    assert group.state is State.PREPARING_REBALANCE
    began = len(world.timers)
    waits: list[int] = []
    call_later = world.call_later
    world.call_later = lambda delay_ms, callback: (waits.append(delay_ms), call_later(delay_ms, callback))[1]  # type: ignore[method-assign]
    world.pass_(SESSION_MS - 1)
    assert began
    assert waits
    assert set(waits) == {JOIN_WAIT_MIN_MS}


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a", instance="a"), ClassicClient(group, "b", instance="b")
    stable(world, group, a, b)
    again = ClassicClient(group, "b", instance="b")
    again.join()
    assert again.joined is None
    world.write()
    assert (again.generation, again.joined.leader, group.state) == (b.generation, a.id, State.STABLE)
    assert again.id != b.id
    assert [each.member_id for each in world.stored[-1].members] == [a.id, again.id]
    assert (b.heartbeat(), again.heartbeat(), a.heartbeat()) == (ErrorCode.FENCED_INSTANCE_ID, NONE, NONE)
    synced = again.sync()
    assert synced.assignment == b"b"
    assert b.join() == b.joined
    assert b.joined.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("may_skip", [False, True])
def test_a_static_leader_that_comes_back_does_not_assign(
    world: SlowWorld, group: ClassicGroup, may_skip: bool
) -> None:
    """The group would ignore its assignments (KIP-814)."""
    a, b = ClassicClient(group, "a", instance="a"), ClassicClient(group, "b")
    stable(world, group, a, b)
    again = ClassicClient(group, "a", instance="a")
    again.join(may_skip_assignment=may_skip)
    world.write()
    assert again.joined.skip_assignment is may_skip
    assert (again.joined.leader == again.id) is may_skip
    assert [each.group_instance_id for each in again.joined.members] == ([None, "a"] if may_skip else [])
    assert len(again.joined.members) == (2 if may_skip else 0)
    assert (group.leader, b.heartbeat()) == (again.id, NONE)


def test_who_has_joined_has_all_the_time_of_its_own_generation_to_sync(
    world: SlowWorld, a: ClassicClient, b: ClassicClient
) -> None:
    a.join()
    world.pass_(0)
    for _ in range(2 * REBALANCE_MS // SESSION_MS - 1):
        world.pass_(SESSION_MS // 2)
        a.heartbeat()
    b.join()
    a.join()
    assert (a.generation, b.generation) == (2, 2)
    world.pass_(SESSION_MS // 2)
    assert (a.heartbeat(), b.heartbeat()) == (NONE, NONE)


def test_who_has_waited_for_long_is_missed_again_once_it_is_answered(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join()
    for _ in range(4):
        world.pass_(SESSION_MS // 2)
        b.heartbeat()
    b.join()
    assert (a.generation, b.generation) == (2, 2)
    b.sync()
    for _ in range(4):
        world.pass_(SESSION_MS // 2)
        a.heartbeat()
    assert b.synced is None
    a.sync()
    world.write()
    assert b.synced is not None
    for _ in range(2):
        world.pass_(SESSION_MS // 2)
        a.heartbeat()
    assert set(group.members) == {a.id}
    a.join()
    assert a.generation == 3
    a.join(protocols=[("range", b"other")])
    world.pass_(SESSION_MS)
    assert not group.members


def test_who_was_silent_while_it_waited_to_join_is_missed_again_once_all_have(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join()
    for waits in (True, True, True, True, False, False):
        world.pass_(SESSION_MS // 2)
        b.heartbeat()
        if waits and world.now_ms >= 1_000_000 + 2 * SESSION_MS:
            b.join()
    assert (group.generation, set(group.members)) == (2, {b.id})


def test_what_was_assigned_is_given_back_where_it_holds_no_more(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    members = sum(member.size_bytes for member in group)
    assert group.memory.size_bytes == world.held_bytes == group_bytes("g") + members
    a.join()
    b.join()
    assert group.state is State.COMPLETING_REBALANCE
    b.join(protocols=[("range", b"o"), ("sticky", b"s")])
    assert [member.assignment for member in group] == [b"", b""]
    assert group.memory.size_bytes == world.held_bytes == group_bytes("g") + members - len(b"ab")


def test_what_a_static_member_waited_for_before_it_came_back_is_answered_so(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    a.join()
    b.join()
    world.pass_(0)
    b.sync()
    ClassicClient(group, "b", instance="b").join()
    assert (b.synced.error_code, group.state) == (ErrorCode.FENCED_INSTANCE_ID, State.PREPARING_REBALANCE)


def test_a_static_member_that_comes_back_without_having_synced_is_not_waited_for_twice(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    a.join()
    b.join()
    world.pass_(0)
    a.sync(**{b.id: b"b"})
    world.write()
    again = ClassicClient(group, "b", instance="b")
    again.join(client_id="anew", client_host="/elsewhere")
    world.write()
    assert again.generation == 1
    assert (group.members[again.id].client_id, group.members[again.id].client_host) == ("anew", "/elsewhere")
    for _ in range(2 * REBALANCE_MS // SESSION_MS):
        world.pass_(SESSION_MS // 2)
        assert (a.heartbeat(), again.heartbeat()) == (NONE, NONE)


def test_a_return_that_is_not_stored_takes_nothing_from_who_has_joined_since(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    stable(world, group, a, b)
    again = ClassicClient(group, "b", instance="b")
    again.join()
    (stored,), world.waiting = world.waiting, []
    a.join()
    assert again.joined is not None
    assert (again.generation, a.generation) == (2, 2)
    stored(ErrorCode.NOT_COORDINATOR)
    assert (set(group.members), group.state) == ({a.id, again.id}, State.COMPLETING_REBALANCE)


def test_a_static_member_that_comes_back_otherwise_has_all_rebalance(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = (
        ClassicClient(group, "a", instance="a"),
        ClassicClient(group, "b", protocols=[("sticky", b"s"), ("range", b"r")]),
    )
    stable(world, group, a, b)
    assert group.protocol in ("range", "sticky")
    other = [each for each in a.protocols if each[0] != group.protocol]
    again = ClassicClient(group, "a", instance="a", protocols=other)
    again.join()
    assert (group.state, again.joined) == (State.PREPARING_REBALANCE, None)
    b.join()
    assert group.protocol == other[0][0]


def test_a_static_member_whose_return_cannot_be_stored_is_not_a_member(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    stable(world, group, a, b)
    again = ClassicClient(group, "b", instance="b")
    again.join()
    world.write(ErrorCode.NOT_COORDINATOR)
    assert (again.joined.error_code, a.heartbeat()) == (UNKNOWN, REJOIN)


def test_what_cannot_be_stored_is_assigned_to_nobody(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    a.join()
    world.pass_(0)
    a.sync(**{a.id: b"mine"})
    world.write(ErrorCode.NOT_COORDINATOR)
    assert (a.synced.error_code, group.state) == (ErrorCode.NOT_COORDINATOR, State.PREPARING_REBALANCE)


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", [("range", b"")]), ("consumer", []), ("consumer", [("x", b"")])],
)
def test_who_shares_no_protocol_is_refused(
    world: SlowWorld, group: ClassicGroup, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    stable(world, group, ClassicClient(group, "a"))
    refused = ClassicClient(group, "b").join(protocol_type=protocol_type, protocols=protocols)
    assert (refused.error_code, len(group.members)) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, 1)


def test_an_empty_group_takes_any_protocol_but_none() -> None:
    group = classic_group(SlowWorld())
    for asked in ({"protocol_type": ""}, {"protocols": []}):
        refused = ClassicClient(group, "b").join(**asked)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_is_full_takes_nobody_and_keeps_those_it_has() -> None:
    world = SlowWorld()
    group = classic_group(world, max_size=2)
    a, b, c = (ClassicClient(group, name) for name in "abc")
    stable(world, group, a, b)
    refused = c.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (a.heartbeat(), b.heartbeat()) == (NONE, NONE)
    a.join()
    b.join()
    assert (a.generation, b.generation) == (2, 2)


def test_members_that_leave_are_named_by_id_or_by_instance(world: SlowWorld, group: ClassicGroup) -> None:
    a, b, c = (
        ClassicClient(group, "a"),
        ClassicClient(group, "b", instance="b"),
        ClassicClient(group, "c", instance="c"),
    )
    stable(world, group, a, b, c)
    codes = group.leave([(a.id, None), ("", "b"), ("", "who"), ("who", None), (b.id, "c"), (c.id, "who")])
    assert codes == [NONE, NONE, UNKNOWN, UNKNOWN, ErrorCode.FENCED_INSTANCE_ID, UNKNOWN]
    assert (set(group.members), c.heartbeat()) == ({c.id}, REJOIN)


def test_the_last_one_that_leaves_leaves_an_empty_group(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    stable(world, group, a)
    assert group.leave([(a.id, None)]) == [NONE]
    assert (group.state, group.generation, world.stored[-1].members) == (State.EMPTY, 2, [])
    assert (group.deletion_problem(Operation.DELETE), world.held_bytes) == (NONE, group.memory.size_bytes)


def test_who_goes_by_another_protocol_does_not_sync(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    stable(world, group, a)
    answers: list[SyncGroupResponse] = []
    for said in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        drive(group.sync(a.id, None, a.generation, {}, **said), answers.append)
    assert {answer.error_code for answer in answers} == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}


def test_who_may_commit(world: SlowWorld, group: ClassicGroup) -> None:
    may = group.commit_problem
    assert (may("", None, -1), may("who", None, -1), may("who", None, 3)) == (NONE, NONE, UNKNOWN)
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    stable(world, group, a, b)
    assert (may(a.id, None, 1), may("", None, -1), may("who", None, 1)) == (NONE, UNKNOWN, UNKNOWN)
    assert may("who", "b", 1) == ErrorCode.FENCED_INSTANCE_ID
    b.join(protocols=[("range", b"other")])
    assert may(a.id, None, 1) == NONE  # it is to join, and may say before how far it has come
    a.join()
    assert may(a.id, None, 2) == REJOIN
    group.end(UNKNOWN)
    assert may(a.id, None, 2) == may("", None, -1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_commits_keep_a_member_alive(world: SlowWorld, group: ClassicGroup, a: ClassicClient) -> None:
    stable(world, group, a)
    for _ in range(5):
        world.pass_(SESSION_MS - 1)
        assert group.commit_problem(a.id, None, a.generation) == NONE


def test_who_asks_again_while_it_waits_is_answered_twice(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    stable(world, group, a, b)
    a.join()
    first: list[JoinGroupResponse] = []
    a.has_joined = first.append  # type: ignore[method-assign]
    a.join()
    assert [answer.error_code for answer in first] == []
    twice: list[JoinGroupResponse] = []
    a.has_joined = twice.append  # type: ignore[method-assign]
    a.join()
    assert ([answer.error_code for answer in first], twice) == ([REJOIN], [])


def test_a_group_is_restored_as_it_was_stored(world: SlowWorld, group: ClassicGroup) -> None:
    a, b = ClassicClient(group, "a"), ClassicClient(group, "b", instance="b")
    stable(world, group, a, b)
    restored = classic_group(world)
    restored.restore(world.stored[-1])
    restored.begin()
    assert (restored.state, restored.generation, restored.leader) == (State.STABLE, 1, a.id)
    assert (
        restored.protocol,
        restored.protocol_type,
        restored.memory.size_bytes > group.memory.size_bytes // 2,
    ) == (
        "range",
        "consumer",
        True,
    )
    a.group = b.group = restored
    assert (a.heartbeat(), b.heartbeat()) == (NONE, NONE)
    synced = b.sync()
    assert synced.assignment == b"b"
    world.pass_(SESSION_MS)
    assert restored.members == {}


def restored(world: SlowWorld, group: ClassicGroup, **options: int) -> ClassicGroup:
    """Return the group after a restart."""
    again = classic_group(world, **options)
    again.restore(world.stored[-1])
    world.timers.clear()
    again.begin()
    assert again.id == group.id
    return again


def test_a_restart_forgets_neither_protocols_nor_topics(world: SlowWorld, group: ClassicGroup) -> None:
    subscription = b"\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"
    a = ClassicClient(group, "a", protocols=[("range", subscription)])
    stable(world, group, a)
    group = restored(world, group)
    assert (group.reads("t"), group.reads("u")) == (True, False)
    b = ClassicClient(group, "b", protocols=[("range", subscription)])
    assert b.join() is None, "it shares the protocol that was stored"
    assert group.state is State.PREPARING_REBALANCE


def test_since_when_nobody_is_a_member_is_kept_over_a_restart(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    stable(world, group, a)
    world.pass_(777)
    group.leave([(a.id, None)])
    since_ms = world.now_ms
    world.pass_(SESSION_MS)
    assert restored(world, group).unused_since_ms(5) == since_ms
    world.stored[-1].current_state_timestamp = -1  # an old Kafka does not say
    assert restored(world, group).unused_since_ms(5) == 5


def test_a_member_of_which_an_old_kafka_wrote_one_timeout_has_it_for_both(
    world: SlowWorld, group: ClassicGroup
) -> None:
    stable(world, group, ClassicClient(group, "a"))
    world.stored[-1].members[0].rebalance_timeout = 0
    (member,) = restored(world, group)
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (SESSION_MS, SESSION_MS)


def test_the_protocol_is_the_one_that_most_prefer_of_those_that_all_know(
    world: SlowWorld, group: ClassicGroup
) -> None:
    best = [("sticky", b"s"), ("range", b"r")]
    for name, protocols in (("a", best[::-1]), ("b", best), ("c", [("own", b""), *best])):
        ClassicClient(group, name, protocols=protocols).join()
    world.pass_(0)
    assert group.protocol == "sticky"


def test_a_group_that_is_too_large_by_now_turns_away_those_who_join_last(
    world: SlowWorld, group: ClassicGroup
) -> None:
    a, b, c = (ClassicClient(group, name) for name in "abc")
    stable(world, group, a, b, c)
    assert restored(world, group, max_size=3).state is State.STABLE
    group = restored(world, group, max_size=2)
    assert group.state is State.PREPARING_REBALANCE
    for client in (a, b, c):
        client.group = group
        client.join()
    assert (c.joined.error_code, c.joined.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (set(group.members), a.generation, b.generation) == ({a.id, b.id}, 2, 2)


def test_an_id_that_was_given_out_is_nobody_s_instance() -> None:
    group = classic_group(SlowWorld())
    a = ClassicClient(group, "a")
    refused = a.join(must_know_its_id=True)
    a.id, a.instance = refused.member_id, "i"
    refused = a.join()
    assert (refused.error_code, group.members) == (UNKNOWN, {})


def test_an_id_that_was_given_out_is_given_back(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    stable(world, group, a)
    held_bytes = world.held_bytes
    refused = ClassicClient(group, "b").join(must_know_its_id=True)
    assert world.held_bytes == held_bytes + PENDING_BYTES + text_bytes(refused.member_id)
    a.join()
    assert (a.joined, group.leave([(refused.member_id, None)])) == (None, [NONE])
    assert (group.is_awaited, world.held_bytes, a.generation) == (False, held_bytes, 2)
    world.pass_(0)
    assert len([timer for timer in world.timers if timer.callback]) == 2, "a session, and the wait for a sync"


def test_nothing_is_waited_for_of_those_that_have_left(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient
) -> None:
    stable(world, group, a)
    b = ClassicClient(group, "b")
    b.join()
    a.join()
    assert group.leave([(b.id, None)]) == [NONE]
    a.join()
    a.sync()
    world.write()
    assert len([timer for timer in world.timers if timer.callback]) == 1
    world.pass_(5)
    group.leave([(a.id, None)])
    assert [timer for timer in world.timers if timer.callback] == []
    assert (group.state_since_ms, world.stored[-1].current_state_timestamp) == (world.now_ms, world.now_ms)


def test_once_all_have_synced_nothing_is_waited_for_but_sessions(
    world: SlowWorld, group: ClassicGroup
) -> None:
    stable(world, group, ClassicClient(group, "a"), ClassicClient(group, "b"))
    assert len([timer for timer in world.timers if timer.callback]) == 2


def test_who_syncs_is_alive(world: SlowWorld, group: ClassicGroup, a: ClassicClient) -> None:
    stable(world, group, a)
    for _ in range(5):
        world.pass_(SESSION_MS - 1)
        assert a.sync() == a.synced
        assert a.synced.error_code == NONE


def test_who_syncs_again_while_it_waits_is_answered_twice(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    a.join()
    b.join()
    world.pass_(0)
    follower = b if group.leader == a.id else a
    answers: list[SyncGroupResponse] = []
    follower.has_synced = answers.append  # type: ignore[method-assign]
    follower.sync()
    assert not answers
    follower.sync()
    assert [answer.error_code for answer in answers] == [REJOIN]


def test_strangers_that_leave_disturb_nobody(world: SlowWorld, group: ClassicGroup, a: ClassicClient) -> None:
    stable(world, group, a)
    assert group.leave([("who", None)]) == [UNKNOWN]
    assert (group.state, a.heartbeat()) == (State.STABLE, NONE)


def test_of_a_group_that_is_gone_nothing_is_left(world: SlowWorld, group: ClassicGroup) -> None:
    stable(world, group, ClassicClient(group, "a"))
    assert group.deletion_problem(Operation.DELETE_OFFSETS) == NONE
    ClassicClient(group, "b").join(must_know_its_id=True)
    ClassicClient(group, "c").join()
    group.end(UNKNOWN)
    assert group.deletion_problem(Operation.DELETE_OFFSETS) == ErrorCode.GROUP_ID_NOT_FOUND
    assert (group.is_awaited, [timer for timer in world.timers if timer.callback]) == (False, [])


def test_who_knows_what_some_members_do_not_is_refused(world: SlowWorld, group: ClassicGroup) -> None:
    stable(world, group, ClassicClient(group, "a"), ClassicClient(group, "b", protocols=[("range", b"r")]))
    refused = ClassicClient(group, "c", protocols=[("sticky", b"s")]).join()
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_one_that_is_new_does_not_wait_for_ever_for_those_who_may_take_long(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    a.join(rebalance_timeout_ms=10 * NEW_MEMBER_MS)
    world.pass_(0)
    a.sync()
    world.write()
    b.join()
    for _ in range(2 * NEW_MEMBER_MS // SESSION_MS - 1):
        world.pass_(SESSION_MS // 2)
        assert (a.heartbeat(), b.joined) == (REJOIN, None)
    world.pass_(SESSION_MS // 2)
    assert (b.joined.error_code, set(group.members)) == (UNKNOWN, {a.id})


def test_what_its_members_read_is_known_of_consumers_alone(world: SlowWorld, group: ClassicGroup) -> None:
    subscription = b"\x00\x01\x00\x00\x00\x02\x00\x01s\x00\x01t\x00\x00\x00\x00"
    a = ClassicClient(group, "a", protocols=[("range", subscription)])
    stable(world, group, a)
    assert (group.reads("t"), group.reads("u"), group.unused_since_ms(5)) == (True, False, 5)
    b = ClassicClient(group, "b", protocols=[("range", b"?")])
    b.join()
    assert (group.reads("t"), group.reads("u"), group.unused_since_ms(5)) == (True, False, None)
    a.join()
    assert (group.reads("u"), group.topics) == (True, None)  # nobody knows what b reads
    group.leave([(a.id, None), (b.id, None)])
    assert (group.reads("t"), group.unused_since_ms(5)) == (False, group.state_since_ms)


def test_what_a_leader_has_assigned_reaches_the_others_though_its_client_leaves(
    world: SlowWorld, group: ClassicGroup, a: ClassicClient, b: ClassicClient
) -> None:
    a.join()
    b.join()
    world.pass_(0)
    leader, other = (a, b) if group.leader == a.id else (b, a)
    other.sync()
    syncing = group.sync(leader.id, None, leader.generation, {other.id: b"yours"})
    syncing.send(None)
    syncing.close()
    world.write()
    assert (other.synced.assignment, group.state) == (b"yours", State.STABLE)


class GroupModel(RuleBasedStateMachine):
    """Members in any order of events: every request is answered in the end, and all counts add up."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SlowWorld()
        self.group = classic_group(self.world, max_size=4)
        self.clients: list[ClassicClient] = []
        self.owed = 0

    def pick(self, number: int) -> ClassicClient:
        return self.clients[number % len(self.clients)]

    @rule(static=st.sampled_from([None, "x", "y"]), sticky=st.booleans())
    def arrive(self, static: str | None, sticky: bool) -> None:
        protocols = [("sticky", b"s")] if sticky else [("range", b"r"), ("sticky", b"s")]
        self.clients.append(ClassicClient(self.group, "c", instance=static, protocols=protocols))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), must_know=st.booleans())
    def join(self, number: int, must_know: bool) -> None:
        client = self.pick(number)
        answered: list[JoinGroupResponse] = []

        def has_joined(response: JoinGroupResponse) -> None:
            assert not answered
            answered.append(response)
            self.owed -= 1
            ClassicClient.has_joined(client, response)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.id = response.member_id
            elif response.error_code in (UNKNOWN, ErrorCode.FENCED_INSTANCE_ID):
                client.id = ""

        self.owed += 1
        client.has_joined = has_joined  # type: ignore[method-assign]
        client.join(must_know_its_id=must_know)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def sync(self, number: int) -> None:
        client = self.pick(number)

        def has_synced(response: SyncGroupResponse) -> None:
            self.owed -= 1

        self.owed += 1
        client.has_synced = has_synced  # type: ignore[method-assign]
        client.sync(**{each.id: b"x" for each in self.clients})

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        client = self.pick(number)
        self.group.leave([(client.id, client.instance)])

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def beat(self, number: int) -> None:
        self.pick(number).heartbeat()

    @rule(span_ms=st.sampled_from([0, 1, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, span_ms: int) -> None:
        self.world.pass_(span_ms)

    @rule(code=st.sampled_from([NONE, NONE, NONE, ErrorCode.NOT_COORDINATOR]))
    def write(self, code: ErrorCode) -> None:
        self.world.write(code)

    @invariant()
    def counts_add_up(self) -> None:
        group = self.group
        waiting = [each for each in group if each.join is not None]
        syncing = [each for each in group if each.sync is not None]
        assert group._joining == len(waiting)
        assert self.owed == len(waiting) + len(syncing)
        assert len(group.members) <= 4
        assert group.leader is None or group.leader in group.members
        assert {each.instance_id: each.id for each in group if each.instance_id} == group._instances
        for name, known in group._supported.items():
            assert known == sum(name in dict(each.protocols) for each in group)
        assert group._metadata_bytes == sum(longest_metadata(each.protocols) for each in group)
        pending = sum(PENDING_BYTES + text_bytes(member_id) for member_id in group._pending)
        size = group_bytes("g") + sum(each.size_bytes for each in group) + pending
        assert group.memory.size_bytes == self.world.held_bytes == size
        assert (group.state is State.EMPTY) <= (not group.members)

    def teardown(self) -> None:
        """In the end the group is at rest: no request waits, and silent members are gone."""
        for _ in range(10):
            self.world.write()
            self.world.pass_(5 * REBALANCE_MS)
        assert (self.owed, self.group.members, self.group.state) == (0, {}, State.EMPTY)


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
