"""A queue whose owners take turns.

An owner's work is done in the order in which it came, one piece at a time. Owners whose last piece used up its whole
time stand behind those whose did not. The queue has no lock: its user holds one.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Work of type `T` of any number of owners."""

    def __init__(self) -> None:
        self._work: dict[Hashable, deque[T]] = {}  # of owners that have some, or have some under way
        # Owners that have work and none under way: those that came lately, and those that have had a long turn.
        self._fresh: deque[Hashable] = deque()
        self._spent: deque[Hashable] = deque()
        self._is_turn_of_spent = False

    def __len__(self) -> int:
        """Return how many pieces wait."""
        return sum(map(len, self._work.values()))

    @property
    def owners(self) -> int:
        """Return how many have work that waits or is under way."""
        return len(self._work)

    def __iter__(self) -> Iterator[T]:
        """Yield what waits, in no order."""
        for pieces in self._work.values():
            yield from pieces

    def put(self, owner: Hashable, piece: T) -> None:
        """Add work behind what its owner has already."""
        pieces = self._work.get(owner)
        if pieces is None:
            self._work[owner] = deque((piece,))
            self._fresh.append(owner)
        else:
            pieces.append(piece)

    def take(self) -> tuple[Hashable, T] | None:
        """Return whose turn it is and the next of its work, or None; tell `done` when that is done."""
        first, second = self._fresh, self._spent
        if self._is_turn_of_spent:
            first, second = second, first
        owners = first or second
        if not owners:
            return None
        self._is_turn_of_spent = owners is self._fresh
        owner = owners.popleft()
        return owner, self._work[owner].popleft()

    def done(self, owner: Hashable, rest: T | None = None) -> None:
        """Let an owner have further turns; with `rest` it begins with what is left of the work it had."""
        pieces = self._work[owner]
        if rest is not None:
            pieces.appendleft(rest)
            self._spent.append(owner)
        elif pieces:
            self._fresh.append(owner)
        else:
            del self._work[owner]
