"""Consumer groups (KIP-848) step by step: epochs, fencing, revocation, static members, timers."""

import weakref

import pytest

from tests.support.groups import SESSION_MS, Answer, Client, World, restore
from tidelog.broker.groups import consumer_member, subscriptions, topic_patterns
from tidelog.broker.groups.classic import Operation
from tidelog.broker.groups.consumer import ConsumerGroup, GroupState
from tidelog.broker.groups.consumer_member import NOTHING, Current, Heartbeat, Progress, reconciled
from tidelog.broker.groups.subscriptions import NAME_BYTES
from tidelog.protocol.error_codes import ErrorCode

A, B = b"a" * 16, b"b" * 16
NONE = ErrorCode.NONE


@pytest.fixture
def world() -> World:
    world = World()
    world.topics = {"a": (A, 4), "b": (B, 2)}
    return world


@pytest.fixture
def group(world: World) -> ConsumerGroup:
    return world.group()


def client(member_id: str, *topics: str, **said: str | None) -> Client:
    return Client(member_id, frozenset(topics), **said)


def test_the_first_member_gets_everything_at_once(group: ConsumerGroup) -> None:
    answer = client("m", "a").heartbeat(group)
    assert answer == Answer(NONE, None, "m", 1, {A: frozenset(range(4))})
    assert (group.epoch, group.target_epoch, group.state) == (1, 1, GroupState.STABLE)


def test_a_member_that_comes_waits_for_what_the_other_has_to_give_up(group: ConsumerGroup) -> None:
    first, second = client("m1", "a"), client("m2", "a")
    first.heartbeat(group)
    # The second is in the new epoch, with nothing yet.
    assert second.heartbeat(group).assignment == {}
    assert (second.epoch, group.state) == (2, GroupState.RECONCILING)
    # The first hears what it keeps, and stays in its epoch until it has given up the rest.
    had = dict(first.owns)
    first.owns = {A: frozenset(range(4))}
    answer = first.heartbeat(group, is_full=False)
    assert answer.assignment is not None
    assert (answer.epoch, len(answer.assignment[A])) == (1, 2)
    assert group.members["m1"].current.progress is Progress.UNREVOKED_PARTITIONS
    # As long as it has them nobody else gets them.
    first.owns = had
    first.heartbeat(group, is_full=False)
    assert second.heartbeat(group, is_full=False).assignment is None
    first.owns = dict(answer.assignment)
    assert first.heartbeat(group, is_full=False).epoch == 2
    assert second.heartbeat(group, is_full=False).assignment == {A: had[A] - answer.assignment[A]}
    assert group.state is GroupState.STABLE


def test_a_member_that_says_nothing_of_what_it_has_has_given_up_nothing() -> None:
    current = Current(1, 1, Progress.STABLE, {A: frozenset([0, 1])}, NOTHING)
    next_ = reconciled(current, {A: frozenset([0])}, 2, frozenset([A]), None, lambda *_: True)
    assert next_ == Current(1, 1, Progress.UNREVOKED_PARTITIONS, {A: frozenset([0])}, {A: frozenset([1])})
    assert reconciled(next_, {A: frozenset([0])}, 2, frozenset([A]), None, lambda *_: True) == next_
    done = reconciled(next_, {A: frozenset([0])}, 2, frozenset([A]), {A: [0]}, lambda *_: True)
    assert (done.epoch, done.previous_epoch, done.progress) == (2, 1, Progress.STABLE)


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (3, {}, ErrorCode.FENCED_MEMBER_EPOCH),  # of another life of the group
        (1, {A: frozenset([0, 1, 2, 3])}, NONE),  # the answer with the new epoch was lost
        (1, {B: frozenset([9])}, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_in_another_epoch_is_fenced(
    group: ConsumerGroup, world: World, epoch: int, owned: dict[bytes, frozenset[int]] | None, code: ErrorCode
) -> None:
    one = client("m", "a")
    one.heartbeat(group)
    world.topics["b"] = (B, 3)
    one.topics = frozenset(["a", "b"])
    one.heartbeat(group)
    assert one.epoch == 2
    one.send(group, Heartbeat("m", epoch, owned=owned))
    assert one.answers[-1].code is code


def test_who_is_no_member_is_told_so(group: ConsumerGroup) -> None:
    client("m", "a").heartbeat(group)
    stranger = client("x", "a")
    stranger.epoch = 1
    assert stranger.heartbeat(group).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave(group).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_takes_no_more_members_than_it_may(world: World) -> None:
    world.configure(group_consumer_max_size=1)
    group = world.group()
    first = client("m1", "a")
    assert first.heartbeat(group).code is NONE
    assert client("m2", "a").heartbeat(group).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.heartbeat(group).code is NONE


def test_a_member_that_leaves_gives_the_others_what_it_had(group: ConsumerGroup) -> None:
    first, second = client("m1", "a"), client("m2", "a")
    for each in (first, second, first, second, first):
        each.heartbeat(group)
    assert first.leave(group) == Answer(NONE, None, "m1", -1)
    assert group.state is GroupState.ASSIGNING
    assert second.heartbeat(group).assignment == {A: frozenset(range(4))}
    second.leave(group)
    assert group.state is GroupState.EMPTY


def test_a_member_that_is_silent_is_taken_out(group: ConsumerGroup, world: World) -> None:
    first, second = client("m1", "a"), client("m2", "a")
    first.heartbeat(group)
    world.pass_(SESSION_MS - 1)
    second.heartbeat(group)
    world.pass_(1)
    assert list(group.members) == ["m2"]
    assert second.heartbeat(group).assignment == {A: frozenset(range(4))}
    world.pass_(SESSION_MS - 1)
    second.heartbeat(group)
    world.pass_(SESSION_MS - 1)
    assert list(group.members) == ["m2"]


def test_a_member_that_gives_up_nothing_is_taken_out(group: ConsumerGroup, world: World) -> None:
    first, second = client("m1", "a"), client("m2", "a")
    first.heartbeat(group)
    second.heartbeat(group)
    had = dict(first.owns)
    for _ in range(3):  # Its rebalance timeout is 60 s; all the time it is alive.
        first.owns = had
        first.epoch = 1
        first.heartbeat(group)
        world.pass_(20_000)
        second.heartbeat(group)
    assert list(group.members) == ["m2"]
    assert second.heartbeat(group).assignment == {A: frozenset(range(4))}


def test_a_static_member_comes_back_to_what_it_had(group: ConsumerGroup) -> None:
    first, second = client("m1", "a", instance_id="i1"), client("m2", "a")
    for each in (first, second, first, second):
        each.heartbeat(group)
    had, epoch = first.owns, group.epoch
    again = client("m1-again", "a", instance_id="i1")
    assert again.heartbeat(group).code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.leave(group, -2).epoch == -2
    assert second.heartbeat(group).assignment == second.owns
    assert again.heartbeat(group).assignment == had
    assert (group.epoch, again.epoch, sorted(group.members)) == (epoch, epoch, ["m1-again", "m2"])
    first.epoch = epoch
    assert first.heartbeat(group).code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_taken_out(group: ConsumerGroup, world: World) -> None:
    first = client("m1", "a", instance_id="i1")
    first.heartbeat(group)
    first.leave(group, -2)
    world.pass_(SESSION_MS)
    assert not group.members
    assert client("m2", "a", instance_id="i1").heartbeat(group).code is NONE


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_static_member_that_leaves_with_some_to_give_up_may_stay_away_for_its_session(
    world: World, is_restarted: bool
) -> None:
    # Longer than its rebalance timeout of 60 s: it is seen which of the two is waited for.
    world.configure(group_consumer_session_timeout_ms=100_000)
    group = world.group()
    static, other = client("m1", "a", instance_id="i"), client("m2", "a")
    for each in (static, other, static):
        each.heartbeat(group)
    assert group.members["m1"].current.progress is Progress.UNREVOKED_PARTITIONS
    static.leave(group, -2)
    group = world.restarted() if is_restarted else group
    world.pass_(99_999)
    assert "m1" in group.members
    world.pass_(1)
    assert "m1" not in group.members


def test_an_instance_that_a_member_is_no_more_may_be_another_one(group: ConsumerGroup) -> None:
    one = client("m1", "a", instance_id="i1")
    one.heartbeat(group)
    one.epoch, one.said["instance_id"] = 0, "i2"
    assert one.heartbeat(group).code is NONE
    other = client("m2", "b", instance_id="i1")
    assert other.heartbeat(group).code is NONE
    one.leave(group)
    assert group.member("", "i2") is None
    other.leave(group)
    assert client("m3", "a", instance_id="i1").heartbeat(group).code is NONE


def test_a_member_that_takes_the_place_of_another_leaves_its_own(group: ConsumerGroup, world: World) -> None:
    one, static = client("m1", "a"), client("m2", "a", instance_id="i")
    for each in (one, static, one, static):
        each.heartbeat(group)
    static.leave(group, -2)
    one.epoch, one.owns, one.said["instance_id"] = 0, {}, "i"
    for _ in range(3):
        assert one.heartbeat(group).code is NONE
    assert list(group.members) == ["m1"]
    assert one.owns == {A: frozenset(range(4))}
    assert group.state is GroupState.STABLE
    assert world.held_bytes == group.members["m1"].size_bytes
    one.leave(group)
    other = client("m3", "a")
    assert other.heartbeat(group).assignment == {A: frozenset(range(4))}
    assert list(world.restarted().members) == ["m3"]


def test_a_static_member_that_comes_back_while_all_is_shared_out_gets_its_share(
    group: ConsumerGroup, world: World
) -> None:
    static, one = client("m1", "a", instance_id="i"), client("m2", "a")
    static.heartbeat(group)
    world.is_lazy = True
    assert one.heartbeat(group) is None
    static.leave(group, -2)
    again = client("m1-again", "a", instance_id="i")
    assert again.heartbeat(group) is None
    for _ in range(3):
        world.work()
        for each in (again, one):
            each.heartbeat(group)
    assert sorted(len(each.owns[A]) for each in (again, one)) == [2, 2]


def test_a_topic_that_grows_or_goes_changes_what_members_read(group: ConsumerGroup, world: World) -> None:
    one = client("m", "a", "b")
    one.heartbeat(group)
    world.topics["a"] = (A, 5)
    group.topic_changed("a", is_new=False)
    assert one.heartbeat(group, is_full=False).assignment == {
        A: frozenset(range(5)),
        B: frozenset([0, 1]),
    }
    epoch = group.epoch
    world.topics["c"] = (b"c" * 16, 1)
    group.topic_changed("c", is_new=True)
    one.heartbeat(group)
    assert group.epoch == epoch
    del world.topics["b"]
    group.topic_changed("b", is_new=False)
    one.heartbeat(group)
    assert one.owns == {A: frozenset(range(5))}


def test_a_regular_expression_is_resolved_before_the_first_answer(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    one = client("m", regex="a")
    assert one.heartbeat(group) is None
    world.work()
    assert one.owns == {A: frozenset(range(4))}
    world.topics["ab"] = (B, 1)
    group.topic_changed("ab", is_new=True)
    one.heartbeat(group)
    world.pass_(1000)
    one.heartbeat(group)
    world.work()
    one.heartbeat(group)
    world.work()
    assert one.owns == {A: frozenset(range(4)), B: frozenset([0])}
    assert group.reads("ab")


def test_who_asks_for_more_topics_than_there_is_room_for_is_refused_and_the_others_go_on(
    world: World,
) -> None:
    world.topics |= {f"c{number}": (bytes([number]) * 16, 1) for number in range(10)}
    group = world.group()
    one, other = client("m1", regex="a"), client("m2", regex="c")
    one.heartbeat(group)
    held, world.room_bytes = world.held_bytes, 9 * NAME_BYTES
    answer = other.heartbeat(group)
    assert answer.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "group.state.max.bytes" in str(answer.why)
    assert (list(group.members), list(group.regexes), world.held_bytes) == (["m1"], ["a"], held)
    # One that is a member goes, too, when it asks for that.
    one.said["regex"] = "c"
    assert one.heartbeat(group).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (group.members, group.regexes, world.held_bytes) == ({}, {}, 0)
    world.room_bytes = 10 * NAME_BYTES
    assert client("m3", regex="c").heartbeat(group).code is NONE


def test_where_there_is_no_room_for_topics_that_come_those_of_before_are_read_on(
    group: ConsumerGroup, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one = client("m", regex="a")
    one.heartbeat(group)
    world.room_bytes = 0
    world.topics["ab"] = (B, 1)
    group.topic_changed("ab", is_new=True)
    world.pass_(1000)
    assert one.heartbeat(group).code is NONE
    assert (one.owns, group.regexes) == ({A: frozenset(range(4))}, {"a": {"a"}})
    assert "no memory for more matching topics" in caplog.text
    # There is room again: with the next topic, that one is found as well.
    world.room_bytes = 1 << 30
    world.topics["ac"] = (b"c" * 16, 1)
    group.topic_changed("ac", is_new=True)
    world.pass_(1000)
    one.heartbeat(group)
    assert group.regexes == {"a": {"a", "ab", "ac"}}


def test_topics_that_came_after_a_group_was_stored_are_found_after_a_start(world: World) -> None:
    one = client("m", regex="a")
    one.heartbeat(world.group())
    world.topics["ab"] = (B, 1)
    again = world.restarted()
    one.heartbeat(again)
    assert again.regexes == {"a": {"a", "ab"}}


def test_an_expression_is_matched_once_with_all_topics_and_then_with_those_that_come(world: World) -> None:
    """Each join once matched the expressions of all members again: 1,200 joins took longer than twelve minutes."""
    world.topics = {f"{number:02}": (number.to_bytes(16), 1) for number in range(20)}
    asked = world.matched
    group = world.group()
    clients = [client(f"m{number}", regex=f"{number:02}") for number in range(20)]
    for each in [*clients, client("other", regex="07")]:
        assert each.heartbeat(group).code is NONE
    assert asked == [([f"{number:02}"], None) for number in range(20)]
    asked.clear()
    del world.topics["03"]
    group.topic_changed("03", is_new=False)
    world.topics["07b"] = (b"b" * 16, 1)
    group.topic_changed("07b", is_new=True)
    world.pass_(1000)
    clients[0].heartbeat(group)
    assert asked == [([f"{number:02}" for number in range(20)], ["07b"])]
    assert (group.regexes["03"], group.regexes["07"], group.regexes["08"]) == (set(), {"07", "07b"}, {"08"})
    again = world.restarted()
    assert again.regexes == group.regexes


def test_more_changed_topics_than_are_remembered_are_found_by_matching_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_CHANGED", 2)
    asked = world.matched
    group = world.group()
    one = client("m", regex="a")
    one.heartbeat(group)
    for name in ("a1", "a2", "a3"):
        world.topics[name] = (name.encode() * 8, 1)
        group.topic_changed(name, is_new=True)
    world.pass_(1000)
    one.heartbeat(group)
    assert asked == [(["a"], None), (["a"], None)]
    assert group.regexes == {"a": {"a", "a1", "a2", "a3"}}


def test_members_that_join_meanwhile_are_matched_and_assigned_together(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    clients = [client(f"m{number}", regex="ab"[:number] or "b") for number in range(3)]
    for each in clients:
        assert each.heartbeat(group) is None
    world.work()
    assert world.matched == [(["b"], None), (["a", "ab"], None)]
    assert world.assigned == [3, 3], "the first one's, and one for all who came meanwhile"
    assert all(each.answers[-1].code is NONE for each in clients)


def test_a_member_whose_topics_are_looked_for_keeps_no_other_waiting(
    group: ConsumerGroup, world: World
) -> None:
    one, other = client("m1", "a"), client("m2", regex="a")
    one.heartbeat(group)
    world.is_lazy = True
    assert other.heartbeat(group) is None
    assert one.heartbeat(group).code is NONE
    world.work()
    assert other.answers[-1].code is NONE


def test_topics_that_come_while_an_expression_is_forgotten_and_asked_for_again_are_found(
    world: World,
) -> None:
    world.is_lazy = True
    group = world.group()
    one, other = client("m1", regex="a"), client("m2", regex="a")
    one.heartbeat(group)
    one.leave(group)
    world.topics["ab"] = (B, 1)
    group.topic_changed("ab", is_new=True)
    other.heartbeat(group)
    for _ in range(2):
        world.work()
        world.pass_(1000)
        other.heartbeat(group)
    world.work()
    assert group.regexes == {"a": {"a", "ab"}}


def test_an_expression_that_is_asked_for_again_while_new_topics_are_matched_is_matched_with_all(
    group: ConsumerGroup, world: World
) -> None:
    one, other, third = client("m1", regex="a"), client("m2", "a"), client("m3", regex="a")
    one.heartbeat(group)
    other.heartbeat(group)
    world.is_lazy = True
    world.topics["ab"] = (B, 1)
    group.topic_changed("ab", is_new=True)
    world.pass_(1000)
    other.heartbeat(group)
    one.leave(group)
    third.heartbeat(group)
    world.work()
    assert group.regexes == {"a": {"a", "ab"}}


def test_what_is_found_for_others_meanwhile_leaves_less_room(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    one = client("m", regex="a")
    one.heartbeat(group)
    world.room_bytes = 0
    world.work()
    assert one.answers[-1].code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_what_is_found_for_a_group_that_is_no_more_is_not_counted(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    client("m", regex="a").heartbeat(group)
    held = world.held_bytes
    group.end(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.work()
    assert world.held_bytes == held


def test_a_member_that_changes_its_mind_has_no_topics_of_others_looked_for(world: World) -> None:
    looked_for: list[str] = []
    world.topic = lambda name: looked_for.append(name) or world.topics.get(name)  # type: ignore[method-assign]
    group = world.group()
    much, little = client("m1", *map(str, range(1000))), client("m2", "a", regex="b")
    for each in (much, little, much):
        assert each.heartbeat(group).code is NONE
    looked_for.clear()
    little.topics, little.said["regex"] = frozenset(["b"]), "a"
    assert little.heartbeat(group).code is NONE
    assert much.heartbeat(group).code is NONE
    little.leave(group)
    assert much.heartbeat(group).code is NONE
    assert set(looked_for) <= {"a", "b"}


def test_what_a_member_is_given_is_counted(group: ConsumerGroup, world: World) -> None:
    one = client("m1", "a")
    one.heartbeat(group)
    held_bytes = world.held_bytes
    world.topics["a"] = (A, 5)
    group.topic_changed("a", is_new=False)
    assert one.heartbeat(group).assignment == {A: frozenset(range(5))}
    assert world.held_bytes == held_bytes + 2 * consumer_member.PARTITION_BYTES


def test_a_regular_expression_that_is_none_is_refused(group: ConsumerGroup) -> None:
    assert client("m", regex="(").heartbeat(group).code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not group.members


def test_a_regular_expression_that_was_taken_is_not_judged_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a start with another release, which has other bounds, would remove existing members."""
    one = client("m", regex="a")
    assert one.heartbeat(world.group()).code is NONE
    monkeypatch.setattr(topic_patterns, "MOST_LETTERS", 0)
    again = world.restarted()
    assert one.heartbeat(again).code is NONE
    assert client("m2", regex="b").heartbeat(again).code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_assignor_is_the_one_that_most_members_ask_for(group: ConsumerGroup) -> None:
    client("m1", "a").heartbeat(group)
    assert group.assignor == "uniform"
    client("m2", "a", assignor="range").heartbeat(group)
    assert group.assignor == "range"


@pytest.mark.parametrize(
    ("member_id", "epoch", "is_old", "code"),
    [
        ("m", 1, False, NONE),
        ("m", 0, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 2, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 1, True, ErrorCode.UNSUPPORTED_VERSION),
        ("x", 1, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offsets_are_committed_in_the_members_epoch(
    group: ConsumerGroup, member_id: str, epoch: int, is_old: bool, code: ErrorCode
) -> None:
    assert group.commit_problem("", None, -1) is NONE
    client("m", "a").heartbeat(group)
    assert group.commit_problem(member_id, None, epoch, is_old=is_old) is code


def test_offsets_are_told_to_members_of_the_epoch_and_to_who_is_none(group: ConsumerGroup) -> None:
    client("m", "a").heartbeat(group)
    assert group.fetch_problem(None, -1) is NONE
    assert group.fetch_problem("m", 1) is NONE
    assert group.fetch_problem("m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.fetch_problem("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.fetch_problem(None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted_and_its_topics_offsets_are_kept(group: ConsumerGroup) -> None:
    one = client("m", "a")
    one.heartbeat(group)
    assert group.deletion_problem(Operation.DELETE) is ErrorCode.NON_EMPTY_GROUP
    assert group.deletion_problem(Operation.DELETE_OFFSETS) is NONE
    assert (group.reads("a"), group.reads("b")) == (True, False)
    one.leave(group)
    assert group.deletion_problem(Operation.DELETE) is NONE
    assert not group.reads("a")
    assert group.unused_since_ms(5) == 5


def test_what_cannot_be_stored_is_answered_so_and_stored_with_the_next_change(
    group: ConsumerGroup, world: World
) -> None:
    one = client("m", "a")
    world.fails = True
    assert one.heartbeat(group).code is ErrorCode.NOT_COORDINATOR
    assert not world.log
    world.fails = False
    assert one.heartbeat(group).code is NONE
    again = world.restarted()
    one.epoch = again.epoch
    assert one.heartbeat(again).code is NONE


def test_members_are_there_after_a_restart_and_missed_when_they_are_silent(
    group: ConsumerGroup, world: World
) -> None:
    one, two = client("m1", "a", instance_id="i"), client("m2", "a")
    for each in (one, two, one, one, two):
        each.heartbeat(group)
    again = world.restarted()
    assert again.state is GroupState.STABLE
    for each in (one, two):
        assert each.heartbeat(again, is_full=False) == Answer(NONE, None, each.member_id, 2, None)
    world.pass_(SESSION_MS)
    assert not again.members


def test_a_member_that_gives_up_nothing_is_taken_out_after_a_restart_too(world: World) -> None:
    world.configure(group_consumer_session_timeout_ms=100_000)
    group = world.group()
    first = client("m1", "a")
    first.heartbeat(group)
    client("m2", "a").heartbeat(group)
    first.heartbeat(group)
    again = world.restarted()
    assert again.members["m1"].current.revoking
    world.pass_(59_999)
    assert sorted(again.members) == ["m1", "m2"]
    world.pass_(1)
    assert list(again.members) == ["m2"]


def test_nobody_has_what_another_one_has_whatever_was_stored(group: ConsumerGroup, world: World) -> None:
    for name in ("m1", "m2"):
        client(name, "a").heartbeat(group)
    damaged = world.group()
    for key, value in world.log.items():
        restore(damaged, key, value)
    both = Current(2, 2, Progress.STABLE, {A: frozenset(range(4))}, NOTHING)
    for member in damaged:
        member.current = both
    damaged.begin()
    had = [index for member in damaged for index in member.current.assigned.get(A, ())]
    assert sorted(had) == [0, 1, 2, 3]


def test_what_is_stored_of_a_group_is_taken_back_with_it(group: ConsumerGroup, world: World) -> None:
    one = client("m", "a", regex="b")
    one.heartbeat(group)
    for key, value in group.tombstones().items():
        assert value is None
        world.log.pop(key)
    assert not world.log


def test_who_waits_when_the_broker_stops_is_answered(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    one = client("m", "a")
    assert one.heartbeat(group) is None
    group.release(ErrorCode.NOT_COORDINATOR)
    assert one.answers[-1].code is ErrorCode.NOT_COORDINATOR


def test_what_is_found_for_a_group_after_the_broker_stops_is_not_written(
    group: ConsumerGroup, world: World
) -> None:
    """The log may be closed by then."""
    one, two = client("m1", "a"), client("m2", regex="b")
    one.heartbeat(group)
    world.is_lazy = True
    two.heartbeat(group)
    one.topics = frozenset(["b"])
    one.heartbeat(group)
    group.release(ErrorCode.NOT_COORDINATOR)
    stored = dict(world.log)
    world.work()
    world.pass_(SESSION_MS)
    assert world.log == stored


def test_what_is_shared_out_after_the_broker_stops_is_not_written(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    client("m", "a").heartbeat(group)
    group.release(ErrorCode.NOT_COORDINATOR)
    world.work()
    assert world.log == {}


def test_a_group_that_is_ended_answers_who_waits_and_writes_no_more(world: World) -> None:
    """Not even matches found later: after the next start they would bring the group back."""
    world.is_lazy = True
    group = world.group()
    one, two = client("m1", "a"), client("m2", regex="b")
    assert (one.heartbeat(group), two.heartbeat(group)) == (None, None)
    held_bytes = world.held_bytes
    group.end(ErrorCode.NOT_COORDINATOR)
    assert [each.answers[-1].code for each in (one, two)] == [ErrorCode.NOT_COORDINATOR] * 2
    world.work()
    assert (world.log, world.held_bytes, group.state) == ({}, held_bytes, GroupState.DEAD)
    assert not [timer for timer in world.timers if timer.callback]
    assert client("m3", "a").heartbeat(group).code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_who_leaves_is_answered_when_that_is_stored(group: ConsumerGroup, world: World) -> None:
    one, two = client("m1", "a"), client("m2", "a")
    for each in (one, two):
        each.heartbeat(group)
    world.fails = True
    assert one.leave(group).code is ErrorCode.NOT_COORDINATOR
    world.fails = False
    assert two.leave(group).code is NONE
    assert not world.restarted().members


def test_a_group_without_regular_expressions_has_none_resolved(group: ConsumerGroup, world: World) -> None:
    one = client("m", "a")
    one.heartbeat(group)
    world.topics["c"] = (b"c" * 16, 1)
    group.topic_changed("c", is_new=True)
    assert one.heartbeat(group).code is NONE
    assert not world.matched


def test_a_topic_that_was_made_again_is_another_one(group: ConsumerGroup, world: World) -> None:
    one = client("m", "a")
    one.heartbeat(group)
    world.topics["a"] = (B, 2)
    group.topic_changed("a", is_new=True)
    one.heartbeat(group)
    one.heartbeat(group)
    assert one.owns == {B: frozenset([0, 1])}


def test_a_static_member_comes_back_to_a_group_that_is_full(world: World) -> None:
    world.configure(group_consumer_max_size=1)
    group = world.group()
    one = client("m1", "a", instance_id="i")
    one.heartbeat(group)
    one.leave(group, -2)
    assert client("m2", "a", instance_id="i").heartbeat(group).code is NONE


def test_the_first_member_begins_an_epoch_whatever_it_reads(group: ConsumerGroup) -> None:
    assert client("m").heartbeat(group) == Answer(NONE, None, "m", 1, {})


def test_who_reads_by_a_regular_expression_no_longer_gives_up_what_matched(group: ConsumerGroup) -> None:
    one = client("m", regex="a")
    one.heartbeat(group)
    assert one.owns == {A: frozenset(range(4))}
    one.said["regex"] = ""
    one.heartbeat(group)
    one.heartbeat(group)
    assert (one.owns, one.epoch, group.regexes) == ({}, 3, {})


def test_a_member_that_is_taken_out_while_it_waits_is_told_so(world: World) -> None:
    world.is_lazy = True
    group = world.group()
    one = client("m", "a")
    assert one.heartbeat(group) is None
    one.leave(group)
    world.work()
    other = client("n", "a")
    other.heartbeat(group)
    world.work()
    assert one.answers[-1].code is ErrorCode.UNKNOWN_MEMBER_ID
    assert other.answers[-1].code is NONE


@pytest.mark.parametrize("said", [{"regex": "a"}, {}])
def test_a_member_does_not_expire_while_the_broker_owes_it_an_answer(
    world: World, said: dict[str, str]
) -> None:
    """1,200 expressions took longer than a session to match, and members were removed before they got an answer."""
    world.is_lazy = True
    group = world.group()
    one = Client("m", frozenset("a"), **said)
    assert one.heartbeat(group) is None
    world.pass_(2 * SESSION_MS - 1)
    world.work()
    assert one.answers[-1].code is NONE
    # From then on it has as long as ever.
    world.pass_(SESSION_MS - 1)
    assert list(group.members) == ["m"]
    world.pass_(1)
    assert not group.members


def test_who_waits_is_answered_however_fast_epochs_follow_one_another() -> None:
    world = World()
    world.topics = {"a": (b"a" * 16, 4), "b": (b"b" * 16, 2)}
    group = world.group()
    restless, other = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    for _ in range(4):
        restless.heartbeat(group)
        other.heartbeat(group)
    world.is_lazy = True
    restless.topics = frozenset("b")
    restless.heartbeat(group)
    assert other.heartbeat(group, is_full=False) is None
    asked, answered = restless.epoch, len(other.answers)
    for number in range(10):
        # Its heartbeats say what it was told last, and that is not told it before there is a target.
        restless.topics, restless.epoch = frozenset("ab"[number % 2]), asked
        restless.heartbeat(group)
        world.undone.pop(0)()
    assert len(other.answers) == answered + 1
    assert other.answers[-1].code is ErrorCode.NONE


class Owns(frozenset[int]):
    """A report of owned partitions, as an object whose lifetime can be observed."""


def test_of_a_member_one_heartbeat_waits_and_little_of_it_is_held() -> None:
    """Each may have 128 Ki letters, and as many partitions as fit into a request."""
    world = World()
    world.topics = {"a": (b"a" * 16, 4)}
    group = world.group()
    one = Client("m1", frozenset("a"))
    one.heartbeat(group)
    world.is_lazy = True
    held = weakref.WeakSet[Owns]()
    for number in range(10):
        one.topics = frozenset({"a", str(number)})
        beat = one.beat()
        owned = Owns(range(4, 1000))
        held.add(owned)
        one.send(group, beat._replace(owned={b"a" * 16: owned, b"?" * 16: owned}))
        del beat, owned
    codes = [answer.code for answer in one.answers[1:]]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 9
    assert not held
    world.work()
    assert one.answers[-1].code is ErrorCode.NONE


def test_who_waits_and_goes_is_answered() -> None:
    world = World()
    world.topics = {"a": (b"a" * 16, 4)}
    group = world.group()
    one, two = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    one.heartbeat(group)
    world.is_lazy = True
    assert two.heartbeat(group) is None
    two.leave(group)
    assert [answer.code for answer in two.answers] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_client_that_leaves_while_it_waits_holds_up_nobody_and_its_member_goes_on() -> None:
    world = World()
    world.topics = {"a": (b"a" * 16, 4)}
    world.is_lazy = True
    group = world.group()
    gone, other = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    waiting = group.consumer_heartbeat(gone.beat())
    waiting.send(None)
    waiting.close()
    assert other.heartbeat(group) is None
    world.work()
    assert other.answers[-1].code is NONE
    assert world.restarted().members.keys() == {"m1", "m2"}
    gone.heartbeat(group)
    other.heartbeat(group)
    assert sorted([*gone.owns[b"a" * 16], *other.owns[b"a" * 16]]) == [0, 1, 2, 3]


def test_one_assignment_is_made_for_all_members_that_wait() -> None:
    world = World()
    world.topics = {"a": (b"a" * 16, 100)}
    group = world.group()
    clients = [Client(f"m{number}", frozenset("a")) for number in range(100)]
    for client in clients:
        client.heartbeat(group)
    world.is_lazy = True
    world.topics = {"a": (b"a" * 16, 200)}
    group.topic_changed("a", is_new=False)
    before = [len(client.answers) for client in clients]
    for client in clients:
        client.heartbeat(group)

    def answered() -> int:
        return sum(len(client.answers) > count for client, count in zip(clients, before, strict=True))

    assert (answered(), len(world.undone)) == (0, 1)
    world.undone.pop()()
    # One that comes meanwhile is told of the same assignment, or a later one.
    clients[99].heartbeat(group)
    world.work()
    assert answered() == 100
    assert {client.answers[-1].code for client in clients} == {NONE}
