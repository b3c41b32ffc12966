"""A quota: the bytes of one kind that the broker holds for clients, in all and by address.

One address may hold half of the limit. Every connection has room for a little, whatever other connections hold, even of
the same address, so that small requests are served. Together these exceptions hold at most the limit again. Event loop
only.
"""

from collections.abc import Hashable
from typing import Final, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

# The bytes that a connection may hold whatever others do.
LITTLE_BYTES: Final = 16 * 1024


class Owner(Hashable, Protocol):
    """A connection, for the purpose of a quota."""

    @property
    def address(self) -> str:
        """Its client's address."""


class Quota:
    """The bytes of one kind that are held, by connection and by address."""

    __slots__ = ("_by_address", "_by_owner", "_little_bytes", "limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int, little_bytes: int = LITTLE_BYTES) -> None:
        """Allow `limit_bytes` in all, and `little_bytes` for each connection as far as there is room."""
        self.limit_bytes = limit_bytes
        self._little_bytes = little_bytes
        self._by_address: dict[str, int] = {}
        self._by_owner: dict[Owner, int] = {}
        self.total_bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the limit is reached."""
        return self.total_bytes >= self.limit_bytes

    def held_bytes(self, owner: Owner) -> int:
        """Return how much a connection holds."""
        return self._by_owner.get(owner, 0)

    def room_bytes(self, owner: Owner) -> int:
        """Return how much more a connection may hold; negative if it holds too much."""
        limit = self.limit_bytes
        left = min(limit - self.total_bytes, limit // 2 - self._by_address.get(owner.address, 0))
        little = min(self._little_bytes - self._by_owner.get(owner, 0), 2 * limit - self.total_bytes)
        return max(left, little)

    def hold(self, owner: Owner, size_bytes: int) -> "Hold | None":
        """Charge a request, or return None if there is no room. The first request of an address always has room."""
        # Below half of the limit there is room for any address.
        is_near = self.total_bytes + size_bytes > self.limit_bytes // 2
        if is_near and size_bytes > self.room_bytes(owner) and owner.address in self._by_address:
            return None
        return Hold(self, owner, size_bytes)

    def add(self, owner: Owner, size_bytes: int) -> None:
        """Add to what a connection holds; `size_bytes` may be negative."""
        self.total_bytes += size_bytes
        _count(self._by_address, owner.address, size_bytes)
        _count(self._by_owner, owner, size_bytes)


def _count(held_by: dict[K, int], who: K, size_bytes: int) -> None:
    """Add to what one holds; remove it at zero."""
    held_bytes = held_by.get(who, 0) + size_bytes
    if held_bytes:
        held_by[who] = held_bytes
    else:
        held_by.pop(who, None)


class Hold:
    """The charge of one request, until it is returned."""

    __slots__ = ("_owner", "_quota", "_size_bytes")

    def __init__(self, quota: Quota, owner: Owner, size_bytes: int) -> None:
        """Charge it."""
        self._quota, self._owner, self._size_bytes = quota, owner, size_bytes
        quota.add(owner, size_bytes)

    def give_back(self) -> None:
        """Return the charge."""
        self._quota.add(self._owner, -self._size_bytes)
