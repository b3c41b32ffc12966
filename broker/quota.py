"""What clients may make the broker hold of one kind, in bytes: in all, and of one address half of that.

Owns the count. Event loop only. A connection has room for a little however much another one holds, be it of the same
address, so that a small request is served; all that is held so, beyond the bound, is no more than the bound again.
"""

from collections.abc import Hashable, Mapping
from typing import Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

# What a connection may hold whatever another one does.
LITTLE_BYTES = 16 * 1024


class Owner(Hashable, Protocol):
    """A connection, as far as it matters here."""

    @property
    def address(self) -> str:
        """Where it is."""


class Quota:
    """The bytes of one kind that are held, by connection and by address."""

    __slots__ = ("_by_address", "_by_owner", "_little_bytes", "limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int, little_bytes: int = LITTLE_BYTES) -> None:
        """Let so much be held; and a little by each connection, as far as there is room for that."""
        self.limit_bytes = limit_bytes
        self._little_bytes = little_bytes
        self._by_address: dict[str, int] = {}
        self._by_owner: dict[Owner, int] = {}
        self.total_bytes = 0

    @property
    def by_address(self) -> Mapping[str, int]:
        """What each address holds."""
        return self._by_address

    @property
    def is_full(self) -> bool:
        """Tell whether all together hold as much as they may."""
        return self.total_bytes >= self.limit_bytes

    def room_bytes(self, owner: Owner) -> int:
        """Return how much more a connection may hold; less than 0 where it holds more than it may."""
        limit = self.limit_bytes
        left = min(limit - self.total_bytes, limit // 2 - self._by_address.get(owner.address, 0))
        little = min(self._little_bytes - self._by_owner.get(owner, 0), 2 * limit - self.total_bytes)
        return max(left, little)

    def hold(self, owner: Owner, size_bytes: int) -> "Hold | None":
        """Count what a request holds; None if there is no room. The first of a connection that is alone has room."""
        # Within the half that one address may hold there is room for whoever it is.
        is_near = self.total_bytes + size_bytes > self.limit_bytes // 2
        if is_near and size_bytes > self.room_bytes(owner) and owner.address in self._by_address:
            return None
        return Hold(self, owner, size_bytes)

    def add(self, owner: Owner, size_bytes: int) -> None:
        """Count more, or less, for a connection."""
        self.total_bytes += size_bytes
        _count(self._by_address, owner.address, size_bytes)
        _count(self._by_owner, owner, size_bytes)


def _count(held_by: dict[K, int], who: K, size_bytes: int) -> None:
    """Add to what one holds; who holds nothing is not counted."""
    held_bytes = held_by.get(who, 0) + size_bytes
    if held_bytes:
        held_by[who] = held_bytes
    else:
        held_by.pop(who, None)


class Hold:
    """What one request holds, until it is given back."""

    __slots__ = ("_owner", "_quota", "_size_bytes")

    def __init__(self, quota: Quota, owner: Owner, size_bytes: int) -> None:
        """Count it."""
        self._quota, self._owner, self._size_bytes = quota, owner, size_bytes
        quota.add(owner, size_bytes)

    def give_back(self) -> None:
        """Count it no longer."""
        self._quota.add(self._owner, -self._size_bytes)
