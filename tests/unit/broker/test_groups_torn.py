"""Loading a consumer group of which a crash has left only the first records of a change: it begins another epoch.

That happens only to a change that is too large for one batch.
"""

import random

import pytest

from tests.support.groups import Client, World, restore
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.log import Changes, Stored, batches, place_of

A, B = b"a" * 16, b"b" * 16
ALL = {A: frozenset(range(4))}


class Crash(Exception):
    """A crash that leaves a part of a change on disk."""


class TornWorld(World):
    """A world that crashes within a change, after `first` of its records."""

    def __init__(self, *, is_sorted: bool = False) -> None:
        super().__init__()
        self.topics = {"a": (A, 4), "b": (B, 2)}
        self.first: int | None = None
        self._is_sorted = is_sorted

    def store(self, group_id: str, changes: Changes, then: Stored) -> None:
        if self.first is None or len(changes) < 2:
            super().store(group_id, changes, then)
            return
        # As they are written, or as they are where they are too many for a batch.
        records = sorted(changes.items(), key=place_of) if self._is_sorted else list(changes.items())
        super().store(group_id, dict(records[: self.first % (len(records) - 1) + 1]), lambda _: None)
        self.first = None
        raise Crash


def settle(group: ConsumerGroup, *members: Client) -> None:
    for _ in range(8):
        for each in members:
            each.heartbeat(group)


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_what_a_member_had_that_left_is_read_by_others_whatever_of_that_is_on_disk(
    first: int, is_sorted: bool
) -> None:
    world = TornWorld(is_sorted=is_sorted)
    group = world.group()
    one, two = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    settle(group, one, two)
    world.first = first
    with pytest.raises(Crash):
        two.leave(group)
    again = world.restarted()
    settle(again, one)
    world.pass_(30_000)
    settle(again, one)
    world.pass_(30_000)
    settle(again, one)
    assert one.owns == ALL


def test_a_member_whose_subscription_alone_is_on_disk_gets_its_share() -> None:
    world = TornWorld()
    group = world.group()
    one, two = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    settle(group, one)
    world.first = 0
    with pytest.raises(Crash):
        two.heartbeat(group)
    settle(world.restarted(), one, two)
    assert [len(each.owns[A]) for each in (one, two)] == [2, 2]


def test_epochs_never_go_back_whatever_is_on_disk() -> None:
    """As with a group that has member records but no record of its own."""
    world = TornWorld()
    one = Client("m1", frozenset("a"))
    group = world.group()
    for topics in ("a", "ab", "a"):
        one.topics = frozenset(topics)
        settle(group, one)
    assert one.epoch == 3
    world.log = {key: value for key, value in world.log.items() if key[:2] not in (b"\0\3", b"\0\6")}
    again = world.restarted()
    settle(again, one)
    assert (one.epoch, again.epoch, one.owns) == (4, 4, ALL)


def test_a_group_that_is_whole_goes_on_in_its_epoch() -> None:
    world = TornWorld()
    group = world.group()
    one, two = Client("m1", frozenset("ab")), Client("m2", frozenset("a"), instance_id="i")
    settle(group, one, two)
    two.leave(group, -2)
    again = world.restarted()
    settle(again, one)
    assert (again.epoch, one.epoch) == (group.epoch, group.epoch)


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_partition_is_of_nobody_for_ever(seed: int, is_sorted: bool) -> None:
    """Members join, leave, come back with the same instance id, and change their subscriptions."""
    chance = random.Random(seed)
    world = TornWorld(is_sorted=is_sorted)
    group = world.group()
    members: list[Client] = []

    def act(number: int) -> None:
        kind = chance.randrange(4) if members else 0
        if kind == 0:
            topics = frozenset(chance.sample("ab", chance.randint(1, 2)))
            members.append(Client(f"m{number}", topics, instance_id=chance.choice([None, f"i{number}"])))
            members[-1].heartbeat(group)
        elif kind == 1:
            leaving = members.pop(chance.randrange(len(members)))
            is_back = leaving.said["instance_id"] is not None and leaving.epoch > 0
            if is_back:
                members.append(Client(f"m{number}", leaving.topics, **leaving.said))
            leaving.leave(group, -2 if is_back else -1)
            if is_back:
                members[-1].heartbeat(group)
        elif kind == 2:
            chance.choice(members).topics = frozenset(chance.sample("ab", chance.randint(1, 2)))
        settle(group, *chance.sample(members, len(members)))

    try:
        for number in range(60):
            world.first = chance.randrange(20) if number == 12 else world.first
            act(number)
    except Crash:
        group = world.restarted()
    for _ in range(20):
        settle(group, *members)
        world.pass_(20_000)
    had = [(topic, index) for each in members for topic, indexes in each.owns.items() for index in indexes]
    wanted = [world.topics[name] for name in "ab" if any(name in each.topics for each in members)]
    assert sorted(had) == [(topic, index) for topic, count in wanted for index in range(count)]


def test_what_is_too_large_for_one_batch_is_cut_so_that_it_can_be_mended() -> None:
    """The epoch comes before its records, and the epoch of the target after them."""
    world = TornWorld()
    group = world.group()
    one, two = Client("m1", frozenset("a")), Client("m2", frozenset("a"))
    settle(group, one, two)
    changes: Changes = {b"\0\2\0\1g": None, **group.tombstones(), **world.log}
    changes[b"\0\5\0\1g\0\4gone"] = None
    (whole,) = batches(changes, 1 << 20)
    assert [each.key for each in whole] == list(changes)
    cut = [entry for batch in batches(changes, 200) for entry in batch]
    kinds = [(entry.key[1], entry.value is not None) for entry in cut]
    assert kinds == [
        (2, False), (3, True), (5, False), (8, True), (8, True),
        (7, True), (7, True), (5, True), (5, True), (6, True),
    ]  # fmt: skip
    restored = world.group()
    for entry in cut[1:]:
        restore(restored, entry.key, entry.value)
    assert restored.members.keys() == {"m1", "m2"}
