"""The assignors of consumer groups: each partition has one owner, shares are even, and few partitions move."""

import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Subscriber,
    in_steps,
    range_,
    uniform,
)
from tidelog.broker.work import Stopping

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
each_assignor = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)

topics = st.frozensets(st.sampled_from([A, B, C]))
counts_drawn = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9))


@st.composite
def members_drawn(draw: st.DrawFn, alike: bool = False) -> dict[str, Subscriber]:
    """Draw members that own disjoint partitions."""
    everybody = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    same = draw(topics)
    has: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in everybody}
    for topic in (A, B, C):
        for index in range(9):
            owner = draw(st.sampled_from([None, *everybody]))
            if owner is not None:
                has[owner].setdefault(topic, set()).add(index)
    return {
        member_id: Subscriber(
            same if alike else draw(topics),
            {topic: frozenset(each) for topic, each in has[member_id].items()},
        )
        for member_id in everybody
    }


def flat(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in assignment.items() for index in indexes}


def load(given_: Mapping[str, Assignment]) -> Counter[str]:
    return Counter({member_id: len(flat(each)) for member_id, each in given_.items()})


@each_assignor
@given(members=members_drawn(), counts=counts_drawn)
def test_every_partition_has_one_owner_among_its_subscribers(
    assign: Assignor, members: dict[str, Subscriber], counts: dict[bytes, int]
) -> None:
    assigned = assign(members, counts)
    assert assigned.keys() == members.keys()
    subscribed = {topic for each in members.values() for topic in each.topics}
    wanted = Counter((topic, index) for topic in subscribed for index in range(counts.get(topic, 0)))
    assert Counter(each for member_id in assigned for each in flat(assigned[member_id])) == wanted
    for member_id, each in assigned.items():
        assert each.keys() <= members[member_id].topics
        assert all(each.values())


@each_assignor
@pytest.mark.parametrize("others", [frozenset([A]), frozenset([A, B])])
def test_what_two_had_one_keeps(assign: Assignor, others: frozenset[bytes]) -> None:
    has = {A: frozenset([0, 1, 2])}
    assigned = assign({"m1": Subscriber(frozenset([A]), has), "m2": Subscriber(others, has)}, {A: 2, B: 1})
    assert sum(len(each.get(A, ())) for each in assigned.values()) == 2


def test_range_goes_by_the_topic_that_most_have_partitions_of() -> None:
    """A new topic with the same subscribers follows it, in any order of ids."""
    topics_ = frozenset([A, B])
    has = {"m1": {B: frozenset([1])}, "m2": {B: frozenset([0])}}
    assigned = range_({member_id: Subscriber(topics_, each) for member_id, each in has.items()}, {A: 2, B: 2})
    assert assigned == {
        "m1": {A: frozenset([1]), B: frozenset([1])},
        "m2": {A: frozenset([0]), B: frozenset([0])},
    }


@each_assignor
@given(members=members_drawn(), counts=counts_drawn)
def test_what_was_assigned_stays_when_nothing_changes(
    assign: Assignor, members: dict[str, Subscriber], counts: dict[bytes, int]
) -> None:
    assigned = assign(members, counts)
    again = {member_id: Subscriber(each.topics, assigned[member_id]) for member_id, each in members.items()}
    assert assign(again, counts) == assigned


@given(members=members_drawn(alike=True), counts=counts_drawn)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    members: dict[str, Subscriber], counts: dict[bytes, int]
) -> None:
    assigned = uniform(members, counts)
    loads = load(assigned)
    assert max(loads.values()) - min(loads.values()) <= 1
    subscribed = next(iter(members.values())).topics
    there = {(topic, index) for topic in subscribed for index in range(counts.get(topic, 0))}
    kept = sum(len(flat(assigned[member_id]) & flat(each.has)) for member_id, each in members.items())
    had = sorted((len(flat(each.has) & there) for each in members.values()), reverse=True)
    least, left_over = divmod(len(there), len(members))
    assert kept == sum(min(count, least + (place < left_over)) for place, count in enumerate(had))


@given(members=members_drawn(), counts=counts_drawn)
def test_uniform_is_as_even_as_different_subscriptions_allow(
    members: dict[str, Subscriber], counts: dict[bytes, int]
) -> None:
    assigned = uniform(members, counts)
    loads = load(assigned)
    # If it could be more even, one that has less could draw from one that has more, over others perhaps.
    for member_id, each in members.items():
        reached, last = {member_id}, set[str]()
        while reached != last:
            last = set(reached)
            wants = {topic for one in reached for topic in members[one].topics}
            reached |= {one for one, has in assigned.items() if wants & has.keys()}
        assert max(loads[one] for one in reached) <= loads[member_id] + 1, each


def far_from_each_other(count: int, partitions: int) -> tuple[dict[str, Subscriber], dict[bytes, int]]:
    """Return members with different topics, and one with far more partitions that only one other can take."""
    each = [number.to_bytes(16) for number in range(count)]
    members = {f"m{place:03}": Subscriber(frozenset(each) - {topic}, {}) for place, topic in enumerate(each)}
    between = frozenset([*each, A])
    members["m000"] = Subscriber(between, {topic: frozenset([0]) for topic in each})
    members["with all"] = Subscriber(frozenset([A]), {A: frozenset(range(partitions))})
    return members, {**dict.fromkeys(each, 1), A: partitions}


def test_uniform_looks_at_no_member_or_topic_twice_for_one_partition() -> None:
    """A thousand partitions that could move through one member only once took three seconds."""
    members, counts = far_from_each_other(250, 1000)
    begun_s = time.process_time()
    loads = load(uniform(members, counts))
    assert time.process_time() - begun_s < 1
    assert (loads["with all"], min(loads.values())) == (500, 1)


def made(assigning: Coroutine[Any, Any, object], stopped_at: int = 0) -> tuple[int, object]:
    """Run all steps, or stop at one; return their number and the result."""
    count = 0
    try:
        assigning.send(None)
        while True:
            count += 1
            if count == stopped_at:
                assigning.throw(Stopping())
            assigning.send(None)
    except StopIteration as end:
        return count, end.value
    except Stopping:
        return count, None


@each_assignor
@pytest.mark.parametrize("is_alike", [False, True])
def test_an_assignment_in_steps_is_the_same_and_may_be_stopped(assign: Assignor, is_alike: bool) -> None:
    members, counts = far_from_each_other(20, 100)
    members = {each: Subscriber(frozenset([A]), {}) for each in members} if is_alike else members
    name = next(name for name, each in ASSIGNORS.items() if each is assign)
    count, assigned = made(in_steps(name, members, counts))
    assert assigned == assign(members, counts)
    assert count > (100 if name == "uniform" and not is_alike else 0)
    for stopped_at in range(1, count + 1):
        assert made(in_steps(name, members, counts), stopped_at) == (stopped_at, None)


@given(members=members_drawn(alike=True), counts=counts_drawn)
def test_range_gives_each_subscriber_its_share_of_each_topic(
    members: dict[str, Subscriber], counts: dict[bytes, int]
) -> None:
    assigned = range_(members, counts)
    for topic in next(iter(members.values())).topics:
        shares = [len(each.get(topic, ())) for each in assigned.values()]
        assert max(shares) - min(shares) <= (1 if counts.get(topic) else 0)


def test_range_gives_topics_that_are_alike_to_members_alike() -> None:
    both = frozenset([A, B])
    members = {"m1": Subscriber(both, {A: frozenset([3, 0])}), "m2": Subscriber(both, {A: frozenset([1, 2])})}
    assigned = range_(members, {A: 4, B: 4})
    assert assigned["m1"] == {A: {0, 3}, B: {0, 3}}
    assert assigned["m2"] == {A: {1, 2}, B: {1, 2}}


def test_partitions_of_a_topic_are_spread_among_members() -> None:
    both = frozenset([A, B])
    assigned = uniform({"m1": Subscriber(both, {}), "m2": Subscriber(both, {})}, {A: 4, B: 2})
    assert assigned["m1"] == {A: {0, 2}, B: {0}}
    assert assigned["m2"] == {A: {1, 3}, B: {1}}


def test_a_member_that_comes_gets_its_share_and_no_other_move_is_made() -> None:
    topics = frozenset([A])
    before = uniform({f"m{n}": Subscriber(topics, {}) for n in range(9)}, {A: 90})
    members = {member_id: Subscriber(topics, has) for member_id, has in before.items()} | {
        "n": Subscriber(topics, {})
    }
    after = uniform(members, {A: 90})
    assert len(flat(after["n"])) == 9
    assert sum(len(flat(before[member_id]) - flat(after[member_id])) for member_id in before) == 9
