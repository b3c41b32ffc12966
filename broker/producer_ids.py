"""Gives out producer ids, on the event loop, from a block that was reserved before.

Each id is given out once, over all starts: the catalogue has the whole block before its first id leaves, so a crash
skips ids and repeats none. The next block is reserved in the background when half of this one is used. Until the first
block is there, requests wait.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tidelog.broker.answers import Later
from tidelog.broker.catalog import PRODUCER_ID_BLOCK

T = TypeVar("T")

# Reserves a block, and passes it, or an exception, to the given function on the event loop.
Reserve = Callable[[Callable[[range | Exception], None]], None]


class ProducerIds:
    """Gives out the ids. Event loop only."""

    def __init__(self, reserve: Reserve) -> None:
        """Reserve blocks with `reserve`, the first one when the first id is requested."""
        self._reserve = reserve
        self._block = range(0)
        self._next_block = range(0)
        self._is_reserving = False
        self._waiting: deque[tuple[Later, Callable[[int | None], object]]] = deque()

    def give(self, answer: Callable[[int | None], T]) -> T | Later:
        """Return `answer` of a new id, or a `Later` for it; `answer` gets None if no id can be reserved now."""
        producer_id = None if self._waiting else self._take()
        if producer_id is not None:
            return answer(producer_id)
        later = Later()
        self._waiting.append((later, answer))
        return later

    def _take(self) -> int | None:
        """Return an id or None, and reserve the next block in time."""
        block = self._block
        if not block:
            block, self._next_block = self._next_block, range(0)
        self._block = block[1:]
        if len(block) <= PRODUCER_ID_BLOCK // 2 and not self._next_block and not self._is_reserving:
            self._is_reserving = True
            self._reserve(self._reserved)
        return block[0] if block else None

    def _reserved(self, outcome: range | Exception) -> None:
        self._is_reserving = False
        if isinstance(outcome, range):
            self._next_block = outcome
        while self._waiting:
            producer_id = self._take() if isinstance(outcome, range) else None
            if producer_id is None and self._is_reserving:
                return  # more requests wait than a block has ids
            later, answer = self._waiting.popleft()
            later.resolve(answer(producer_id))
