"""A queue whose owners take turns.

The work of one owner is done in its order, one piece at a time. The queue alternates between owners whose last piece
used its whole time slice, and the others. It has no lock: its user holds one.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Pieces of work, of type `T`, of any number of owners."""

    def __init__(self) -> None:
        self._work: dict[Hashable, deque[T]] = {}  # of owners with work, or with work in progress
        # Owners with work and none in progress: recent ones, and those that used a whole slice.
        self._fresh: deque[Hashable] = deque()
        self._spent: deque[Hashable] = deque()
        self._is_turn_of_spent = False

    def __len__(self) -> int:
        """Return the number of waiting pieces."""
        return sum(map(len, self._work.values()))

    @property
    def owners(self) -> int:
        """Return the number of owners whose work waits or is in progress."""
        return len(self._work)

    def __iter__(self) -> Iterator[T]:
        """Yield the waiting pieces, in no order."""
        for pieces in self._work.values():
            yield from pieces

    def put(self, owner: Hashable, piece: T) -> None:
        """Add a piece after the others of its owner."""
        pieces = self._work.get(owner)
        if pieces is None:
            self._work[owner] = deque((piece,))
            self._fresh.append(owner)
        else:
            pieces.append(piece)

    def take(self) -> tuple[Hashable, T] | None:
        """Return the next owner and its piece, or None; call `done` after the piece is done."""
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
        """Give an owner further turns; `rest` is the remainder of its piece, and comes first."""
        pieces = self._work[owner]
        if rest is not None:
            pieces.appendleft(rest)
            self._spent.append(owner)
        elif pieces:
            self._fresh.append(owner)
        else:
            del self._work[owner]
