"""The memory of groups by client address, with a bound (`group.state.max.bytes`); one address may hold half of it.

The last sixteenth is a reserve for addresses that hold little. When half of the reserve is used, unused groups are
deleted (`making_room`). Sizes are estimates. Event loop only.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog.broker.repeated_lines import lines

_log = logging.getLogger(__name__)

# The memory of a group without its name and members, and of a string without its characters.
GROUP_BYTES: Final = 2000
TEXT_BYTES: Final = 50
# The reserve for addresses that hold little is 1/16 of the bound, and little is 1/64.
RESERVE_PART: Final = 16
LITTLE_PART: Final = 64


def text_bytes(text: str) -> int:
    """Return the approximate memory of a string. One character beyond ASCII makes all of them wide."""
    return TEXT_BYTES + len(text) * (1 if text.isascii() else 4)


def group_bytes(group_id: str) -> int:
    """Return the approximate memory of a group without members."""
    return GROUP_BYTES + 2 * text_bytes(group_id)


def address_of(host: str) -> str:
    """Return the address in a host, which Kafka writes as "/" and the address."""
    return host.removeprefix("/")


class Memory:
    """The memory of all groups and committed offsets. A host is "/" and an address."""

    def __init__(self, limit_bytes: int, when_short: Callable[[], None] = lambda: None) -> None:
        """Call `when_short` on each increase while memory `is_short`."""
        self._limit_bytes = limit_bytes
        self._when_short = when_short
        self._reserve_bytes = limit_bytes // RESERVE_PART
        self._little_bytes = limit_bytes // LITTLE_PART
        self.clear()

    def clear(self) -> None:
        """Start from zero."""
        self.held_bytes = 0
        self.by_address: Counter[str] = Counter()

    def has_room(self, address: str, size_bytes: int) -> bool:
        """Tell whether an address may hold this much more; log it if not."""
        if size_bytes <= 0 or size_bytes <= self.room_bytes(address):
            return True
        lines.log(
            _log,
            logging.WARNING,
            address,
            "groups: no memory for more address=%s its_bytes=%d held_bytes=%d group.state.max.bytes=%d; tidelog groups "
            "list --held shows who holds it, tidelog groups delete frees it",
            address,
            self.by_address[address],
            self.held_bytes,
            self._limit_bytes,
        )
        return False

    def room_bytes(self, host: str) -> int:
        """Return how much more a host or address may hold. Negative if it holds too much."""
        address = address_of(host)
        others = self._limit_bytes - self._reserve_bytes - self.held_bytes
        little = self._little_bytes - self.by_address[address]
        left = min(self._limit_bytes - self.held_bytes, self._limit_bytes // 2 - self.by_address[address])
        return min(left, max(others, little))

    @property
    def is_short(self) -> bool:
        """Whether more than half of the reserve is used."""
        return self.held_bytes > self._limit_bytes - self._reserve_bytes // 2

    @property
    def is_reserve_used(self) -> bool:
        """Whether any of the reserve is used."""
        return self.held_bytes > self._limit_bytes - self._reserve_bytes

    def large_holders(self) -> list[str]:
        """Return the addresses that hold more than a little, the largest first."""
        held = self.by_address
        large = [address for address in held if address and held[address] > self._little_bytes]
        return sorted(large, key=lambda address: -held[address])

    def hold(self, host: str, size_bytes: int) -> None:
        """Count bytes that a host holds; a negative number frees them."""
        if size_bytes:
            address = address_of(host)
            self.held_bytes += size_bytes
            self.by_address[address] += size_bytes
            if not self.by_address[address]:
                del self.by_address[address]
        if size_bytes > 0 and self.is_short:
            self._when_short()

    def hold_group(self, group: "GroupMemory") -> None:
        """Count a group, which is served from now on."""
        for host, size_bytes in group.by_host.items():
            self.hold(host, size_bytes)

    def drop_group(self, group: "GroupMemory") -> None:
        """Stop counting a group."""
        for host, size_bytes in group.by_host.items():
            self.hold(host, -size_bytes)


class GroupMemory:
    """The memory of one group, by host. `host` has created the group; empty if unknown."""

    __slots__ = ("_memory", "by_host", "host")

    def __init__(self, group_id: str, memory: Memory, host: str) -> None:
        """Start with a group without members. `Memory.hold_group` counts it when it is served."""
        self._memory = memory
        self.host = host
        self.by_host = Counter({host: group_bytes(group_id)})

    def add(self, host: str, size_bytes: int) -> None:
        """Count bytes of a group that is served; a negative number frees them."""
        self.restore(host, size_bytes)
        self._memory.hold(host, size_bytes)

    def restore(self, host: str, size_bytes: int) -> None:
        """Count bytes of a group that is not served yet. Any thread."""
        self.by_host[host] += size_bytes
        if not self.by_host[host]:
            del self.by_host[host]

    def made_by(self, host: str) -> None:
        """Charge a host for what has no known host. Any thread."""
        self.by_host[host] += self.by_host.pop("", 0)
        self.host = host

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the group."""
        return self.by_host.total()
