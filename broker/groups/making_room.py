"""Which groups give way where memory is short: of the address that holds the most, those that nobody is a member of.

Owns the order. First come groups that nobody has ever joined, then those that have been of no use for longest. Event
loop only.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop

from tidelog.broker.groups.classic import Asked
from tidelog.broker.groups.loading import Group
from tidelog.broker.groups.memory import Memory, address_of
from tidelog.broker.groups.offsets import GroupOffsets
from tidelog.broker.work import loop

# Whether anybody has ever joined, when it was of use last, and the id.
_Place = tuple[bool, int, str]


class Idle:
    """The groups without members of the addresses that hold much, as of a look at all groups."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._by_address: dict[str, list[_Place]] = {address: [] for address in memory.large_holders()}

    async def look(self, groups: Mapping[str, Group], offsets: Mapping[str, GroupOffsets]) -> None:
        """Find them, a group a step."""
        for group in list(groups.values()):
            await loop()
            committed = offsets.get(group.id)
            if not is_idle(group) or groups.get(group.id) is not group or committed is None:
                continue  # A group of no offsets goes by itself before long.
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
        """Return the address that holds the most, and which group of it gives way; None where none is left."""
        for address in self._memory.large_holders():
            if places := self._by_address.get(address):
                return address, heappop(places)[-1]
        return None


def is_idle(group: Group) -> bool:
    """Tell whether nobody is a member, or about to be one."""
    return not group.deletion_problem(Asked.DELETE) and not group.is_awaited


def _address_of(group: Group, offsets: GroupOffsets) -> str:
    """Return the address that holds most of a group."""
    held: Counter[str] = Counter()
    for host, size_bytes in group.memory.by_host.items():
        held[address_of(host)] += size_bytes
    for _, _, committed in offsets:
        held[address_of(committed.host)] += committed.size_bytes
    return held.most_common(1)[0][0]
