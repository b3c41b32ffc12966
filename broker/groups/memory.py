"""The memory that groups hold, by client address: a bound in all (`group.state.max.bytes`), half of it for one address.

The last sixteenth is kept for addresses that hold little. When half of that is taken, groups without members have to
give way (`expiry`). Sizes are estimates. Event loop only.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog.broker.repeated_lines import lines

_log = logging.getLogger(__name__)

# What a group takes beside its name and its members; what a text takes beside its letters.
GROUP_BYTES: Final = 2000
TEXT_BYTES: Final = 50
# The part of all memory that is kept for addresses that hold little, and the part that is little.
KEPT_PART: Final = 16
LITTLE_PART: Final = 64


def text_bytes(text: str) -> int:
    """Return about what a text takes; one letter that is not ASCII makes all of them wide."""
    return TEXT_BYTES + len(text) * (1 if text.isascii() else 4)


def group_bytes(group_id: str) -> int:
    """Return about what a group takes that has no members."""
    return GROUP_BYTES + 2 * text_bytes(group_id)


def address_of(host: str) -> str:
    """Return the address of a host: members and Kafka write it after a slash."""
    return host.removeprefix("/")


class Memory:
    """What all groups and committed offsets take. A host is "/" and an address."""

    def __init__(self, limit_bytes: int, when_short: Callable[[], None] = lambda: None) -> None:
        """Call `when_short` each time more is held while groups have to give way."""
        self._limit_bytes = limit_bytes
        self._when_short = when_short
        self._kept_bytes = limit_bytes // KEPT_PART
        self._little_bytes = limit_bytes // LITTLE_PART
        self.clear()

    def clear(self) -> None:
        """Begin with nothing that is held."""
        self.held_bytes = 0
        self.by_address: Counter[str] = Counter()

    def has_room(self, address: str, size_bytes: int) -> bool:
        """Tell whether an address may hold so many bytes more, and log where it may not."""
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
        """Return how much more a host, or address, may have held; less than 0 where it has more than it may."""
        address = address_of(host)
        others = self._limit_bytes - self._kept_bytes - self.held_bytes
        little = self._little_bytes - self.by_address[address]
        left = min(self._limit_bytes - self.held_bytes, self._limit_bytes // 2 - self.by_address[address])
        return min(left, max(others, little))

    @property
    def is_short(self) -> bool:
        """Tell whether half of what is kept for addresses that hold little is taken."""
        return self.held_bytes > self._limit_bytes - self._kept_bytes // 2

    @property
    def takes_what_is_kept(self) -> bool:
        """Tell whether any of what is kept for addresses that hold little is taken."""
        return self.held_bytes > self._limit_bytes - self._kept_bytes

    def large_holders(self) -> list[str]:
        """Return the addresses that hold more than little, the one that holds the most first."""
        held = self.by_address
        large = [address for address in held if address and held[address] > self._little_bytes]
        return sorted(large, key=lambda address: -held[address])

    def hold(self, host: str, size_bytes: int) -> None:
        """Count so many bytes more, or less."""
        if size_bytes:
            address = address_of(host)
            self.held_bytes += size_bytes
            self.by_address[address] += size_bytes
            if not self.by_address[address]:
                del self.by_address[address]
        if size_bytes > 0 and self.is_short:
            self._when_short()

    def hold_group(self, group: "GroupMemory") -> None:
        """Count a group that is served from now on."""
        for host, size_bytes in group.by_host.items():
            self.hold(host, size_bytes)

    def drop_group(self, group: "GroupMemory") -> None:
        """Count a group no longer."""
        for host, size_bytes in group.by_host.items():
            self.hold(host, -size_bytes)


class GroupMemory:
    """What one group takes, by the hosts that have it held. `host` has made the group, "" where that is not known."""

    __slots__ = ("_memory", "by_host", "host")

    def __init__(self, group_id: str, memory: Memory, host: str) -> None:
        """Begin with a group that has no members; `Memory.hold_group` counts it once it is served."""
        self._memory = memory
        self.host = host
        self.by_host = Counter({host: group_bytes(group_id)})

    def add(self, host: str, size_bytes: int) -> None:
        """Count more, or less, of a group that is served."""
        self.restore(host, size_bytes)
        self._memory.hold(host, size_bytes)

    def restore(self, host: str, size_bytes: int) -> None:
        """Count more of a group that is not served yet. Any thread."""
        self.by_host[host] += size_bytes
        if not self.by_host[host]:
            del self.by_host[host]

    def made_by(self, host: str) -> None:
        """Charge a host with what nobody is known to hold. Any thread."""
        self.by_host[host] += self.by_host.pop("", 0)
        self.host = host

    @property
    def size_bytes(self) -> int:
        """About what the group takes in all."""
        return self.by_host.total()
