"""Chooses the groups to delete when memory is short: unused groups of the address that holds the most.

Groups that no member has ever joined come first, then the longest unused. Event loop only.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop

from tidelog.broker.groups.classic import Operation
from tidelog.broker.groups.loading import Group
from tidelog.broker.groups.memory import Memory, address_of
from tidelog.broker.groups.offsets import GroupOffsets
from tidelog.broker.work import loop

# Whether a member has ever joined, since when the group is unused, and its id.
_Place = tuple[bool, int, str]


class Idle:
    """The unused groups of the addresses that hold much, as found by `look`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._by_address: dict[str, list[_Place]] = {address: [] for address in memory.large_holders()}

    async def look(self, groups: Mapping[str, Group], offsets: Mapping[str, GroupOffsets]) -> None:
        """Find them, one group at a time."""
        for group in list(groups.values()):
            await loop()
            committed = offsets.get(group.id)
            if not is_idle(group) or groups.get(group.id) is not group or committed is None:
                continue  # A group without offsets is deleted by the next round of cleaning.
            places = self._by_address.get(_address_of(group, committed))
            if places is not None:
                last_ms = max(each.commit_ms for _, _, each in committed)
                unused_since_ms = group.unused_since_ms(last_ms)
                places.append(
                    (group.generation > 0, last_ms if unused_since_ms is None else unused_since_ms, group.id)
                )
        for places in self._by_address.values():
            heapify(places)
            await loop()

    def next(self) -> tuple[str, str] | None:
        """Return the address that holds the most, and the next of its groups to delete; None if there is none."""
        for address in self._memory.large_holders():
            if places := self._by_address.get(address):
                return address, heappop(places)[-1]
        return None


def is_idle(group: Group) -> bool:
    """Tell whether a group has no members and nobody is about to join."""
    return not group.deletion_problem(Operation.DELETE) and not group.is_awaited


def _address_of(group: Group, offsets: GroupOffsets) -> str:
    """Return the address that holds the most of a group's memory."""
    held: Counter[str] = Counter()
    for host, size_bytes in group.memory.by_host.items():
        held[address_of(host)] += size_bytes
    for _, _, committed in offsets:
        held[address_of(committed.host)] += committed.size_bytes
    return held.most_common(1)[0][0]
