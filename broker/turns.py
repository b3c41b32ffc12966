"""Shares a turn of the event loop among the connections that have much work.

A turn must not take forty or a thousand times as long because that many connections have work. Work that finds the time
of the turn used up waits here for a later one, first come first served. Knows nothing of requests.

If nothing takes long, no time is measured and nothing waits: measuring costs the loop one more turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

# The time of all connections in a turn, besides the one that has waited longest.
TURN_S: Final = 0.005


class Turns:
    """The time of this turn of the loop, and the queue for later ones. Event loop only."""

    __slots__ = ("_call_soon", "_sharers", "_waiting", "ends_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._sharers = 1
        # When the time of this turn is used up, by `time.monotonic`; 0 if nothing in it has taken long.
        self.ends_s = 0.0

    def begin(self, began_s: float = 0.0) -> None:
        """Measure this turn, from now on or from `began_s`."""
        if not self.ends_s:
            self._call_soon(self._next)
            self.ends_s = (began_s or monotonic()) + TURN_S

    def share_ends_s(self) -> float:
        """Return until when one connection may continue in this turn."""
        self.begin()
        return min(self.ends_s, monotonic() + TURN_S / self._sharers)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, in its order."""
        self.begin()
        self._waiting.append(go_on)

    def _next(self) -> None:
        """Begin a turn with the queue: as many as there is time for, each once."""
        self.ends_s = 0.0
        count = len(self._waiting)
        self._sharers = max(count, 1)
        if not count:
            return
        self.begin()
        self.ends_s = inf  # the first may take any time: it has waited longest
        self._waiting.popleft()()
        self.ends_s = monotonic() + TURN_S
        for _ in range(count - 1):
            if monotonic() > self.ends_s:
                break
            self._waiting.popleft()()
