"""Which groups are deleted when memory is short, and in which order."""

from collections.abc import Iterable

import pytest

from tests.support.groups import ClassicClient, SlowWorld
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.loading import Group
from tidelog.broker.groups.making_room import Idle
from tidelog.broker.groups.memory import LITTLE_PART, RESERVE_PART, Memory
from tidelog.broker.groups.offsets import NEVER, Committed, GroupOffsets
from tidelog.protocol.records.steps import at_once

LIMIT = 1 << 20
LITTLE = LIMIT // LITTLE_PART
MINUTE_MS = 60_000


class Groups:
    """Groups with their own memory, and their offsets."""

    def __init__(self) -> None:
        self.world = SlowWorld()
        self.memory = Memory(LIMIT)
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}

    def add(self, group_id: str, *committed_by: str, ago_ms: int = 0, size_bytes: int = 10) -> ClassicGroup:
        """Add a group of the first host. Each host has committed one offset with `size_bytes` of metadata."""
        group = ClassicGroup(group_id, self.world.services, host=committed_by[0])
        self.groups[group_id], offsets = group, GroupOffsets()
        at_ms = self.world.now_ms - ago_ms
        for number, host in enumerate(committed_by):
            offsets.put("t", number, Committed(1, -1, "x" * size_bytes, at_ms, NEVER, bytes(16), host))
        self.offsets[group_id] = offsets
        return group

    def hold(self, **bytes_of: int) -> None:
        for address, size_bytes in bytes_of.items():
            self.memory.hold(address, size_bytes)

    def found(self) -> list[tuple[str, str]]:
        """Return all groups to delete, in order."""
        idle = Idle(self.memory)
        at_once(idle.look(self.groups, self.offsets))
        return list(iter(idle.next, None))


@pytest.fixture
def groups() -> Groups:
    return Groups()


def names(found: Iterable[tuple[str, str]]) -> list[str]:
    return [name for _, name in found]


def test_groups_of_who_holds_the_most_come_first_and_none_of_who_holds_little(groups: Groups) -> None:
    for address in ("/a", "/b", "/c", "/little", ""):
        groups.add(f"of-{address.removeprefix('/')}", address)
    groups.memory.hold("", 9 * LITTLE)
    groups.hold(a=2 * LITTLE, b=4 * LITTLE, c=3 * LITTLE, little=LITTLE)
    assert groups.found() == [("b", "of-b"), ("c", "of-c"), ("a", "of-a")]


def test_a_group_is_of_who_holds_most_of_it(groups: Groups) -> None:
    groups.hold(a=2 * LITTLE, b=4 * LITTLE)
    groups.add("g", "/a", "/b", "/b", "/b", size_bytes=4000)
    assert groups.found() == [("b", "g")]


def test_what_nobody_joined_comes_first_then_what_was_of_no_use_for_longest(groups: Groups) -> None:
    groups.hold(a=2 * LITTLE)
    for name, ago_ms in (("left-early", 9), ("left-late", 20)):
        group = groups.add(name, "/a", ago_ms=ago_ms * MINUTE_MS)
        member = ClassicClient(group, name)
        member.join()
        groups.world.pass_(MINUTE_MS)
        group.leave([(member.id, None)])
    groups.add("recent", "/a", ago_ms=MINUTE_MS)
    groups.add("old", "/a", ago_ms=2 * MINUTE_MS)
    # Of a group that had members the time when the last one left counts, not that of a commit.
    assert names(groups.found()) == ["old", "recent", "left-early", "left-late"]


def test_groups_with_members_or_without_offsets_stay(groups: Groups) -> None:
    groups.hold(a=2 * LITTLE)
    ClassicClient(groups.add("has-a-member", "/a"), "m").join()
    ClassicClient(groups.add("is-awaited", "/a"), "m").join(must_know_its_id=True)
    groups.add("empty", "/a")
    del groups.offsets["empty"]
    assert groups.found() == []


def test_a_group_that_another_took_the_place_of_is_not_looked_at(groups: Groups) -> None:
    groups.hold(a=2 * LITTLE)
    for name in ("g", "h"):
        groups.add(name, "/a")
    idle = Idle(groups.memory)
    steps = idle.look(groups.groups, groups.offsets)
    steps.send(None)
    groups.add("h", "/a")
    at_once(steps)
    assert names(iter(idle.next, None)) == ["g"]


def test_who_comes_is_told_that_memory_is_short_when_half_of_what_is_kept_is_taken() -> None:
    told: list[int] = []
    memory = Memory(LIMIT, lambda: told.append(memory.held_bytes))
    kept = LIMIT // RESERVE_PART
    memory.hold("a", LIMIT - kept // 2)
    assert (memory.is_short, memory.is_reserve_used, told) == (False, True, [])
    memory.hold("b", 1)
    assert (memory.is_short, told) == (True, [LIMIT - kept // 2 + 1])
    memory.hold("b", -1)
    memory.hold("a", -kept // 2)
    assert (memory.is_reserve_used, len(told)) == (False, 1)
