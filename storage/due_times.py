"""When each of many keys is due.

Owns the order of their times. Knows nothing of what is due, or of clocks. For one thread.
"""

import heapq
from typing import Final, Generic, TypeVar

K = TypeVar("K")

# How many replaced entries, beyond one for each key, the heap may keep.
_SLACK: Final = 100


class DueTimes(Generic[K]):
    """Times by key; `take` does not look at keys that are not due."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []  # replaced entries too

    def put(self, key: K, at_ms: int) -> None:
        """Make a key due at a time, in place of any earlier time."""
        self._at[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(at, each) for each, at in self._at.items()]
            heapq.heapify(self._heap)

    def hasten(self, key: K, at_ms: int) -> None:
        """Make a key due at a time, unless it is due sooner."""
        if at_ms < self._at.get(key, at_ms + 1):
            self.put(key, at_ms)

    def drop(self, key: K) -> None:
        """Forget a key."""
        self._at.pop(key, None)

    def take(self, now_ms: int) -> list[K]:
        """Return what is due, and forget it."""
        due: list[K] = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._at[key]
            due.append(key)
        return due

    def next_ms(self) -> int | None:
        """Return when the next key is due; None without any."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
