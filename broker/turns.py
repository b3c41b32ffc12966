"""A turn for everybody: how long what connections ask for is worked on before the others go on.

Owns the sharing of a turn of the event loop among those that have much to ask: forty of them, or a thousand, must not
make it as many times as long. Who finds the time of a turn used up waits here for a later one, first come first served.
Knows nothing of requests.

Where nothing takes long no time is kept, and nothing waits: a turn that is kept costs the loop one more.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic

# Of all of them together, in a turn of the loop, beside the one that has waited longest.
TURN_S = 0.005


class Turns:
    """The time of this turn of the loop, and who waits for the next. Event loop only."""

    __slots__ = ("_call_soon", "_sharers", "_waiting", "ends_s")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._sharers = 1
        # When the time of this turn is used up, by `time.monotonic`; 0 while nobody in it has asked for much.
        self.ends_s = 0.0

    def begin(self, began_s: float = 0.0) -> None:
        """Keep time in this turn, from now on or from when what has taken long began."""
        if not self.ends_s:
            self._call_soon(self._next)
            self.ends_s = (began_s or monotonic()) + TURN_S

    def share_ends_s(self) -> float:
        """Return until when one connection may go on in this turn."""
        self.begin()
        return min(self.ends_s, monotonic() + TURN_S / self._sharers)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, when it is its turn."""
        self.begin()
        self._waiting.append(go_on)

    def _next(self) -> None:
        """Begin a turn with those that wait: as many as there is time for, each once."""
        self.ends_s = 0.0
        count = len(self._waiting)
        self._sharers = max(count, 1)
        if not count:
            return
        self.begin()
        self.ends_s = inf  # However long the first takes, it has waited for it.
        self._waiting.popleft()()
        self.ends_s = monotonic() + TURN_S
        for _ in range(count - 1):
            if monotonic() > self.ends_s:
                break
            self._waiting.popleft()()
