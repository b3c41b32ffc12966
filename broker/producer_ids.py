"""Producer ids, given out on the event loop from a block that was reserved before.

Owns the block. Invariant: an id is given out once, by whichever start: the catalogue has its whole block before the
first of it leaves, so that a crash skips ids and repeats none. The next block is reserved, in the background, when half
of this one is gone; until the first one is there, whoever asks waits.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tidelog.broker.answers import Later
from tidelog.broker.catalog import PRODUCER_ID_BLOCK

T = TypeVar("T")

# Is handed what takes the block, or the error, on the event loop.
Reserve = Callable[[Callable[[range | Exception], None]], None]


class ProducerIds:
    """The ids to give out. Event loop only."""

    def __init__(self, reserve: Reserve) -> None:
        """Reserve blocks by `reserve`; the first when the first id is asked for."""
        self._reserve = reserve
        self._block = range(0)
        self._next_block = range(0)
        self._is_reserving = False
        self._waiting: deque[tuple[Later, Callable[[int | None], object]]] = deque()

    def give(self, answer: Callable[[int | None], T]) -> T | Later:
        """Return what `answer` makes of a new id, or a `Later` for it; of None where none can be reserved now."""
        producer_id = None if self._waiting else self._take()
        if producer_id is not None:
            return answer(producer_id)
        later = Later()
        self._waiting.append((later, answer))
        return later

    def _take(self) -> int | None:
        """Return an id, or None if there is none; see to it that there are some soon."""
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
                return  # More wait than a block has ids for.
            later, answer = self._waiting.popleft()
            later.resolve(answer(producer_id))
