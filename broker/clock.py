"""The wall clock, as an object that can be held still and moved.

Nothing else in the project reads the time of day: whoever needs it is handed `Clock.now_ms`. Tests hold the
clock and advance it, so that seven days of retention pass in a line.
"""

import time
from datetime import timedelta


class Clock:
    """Milliseconds since the epoch, from the system until `hold` is called."""

    __slots__ = ("_held_ms",)

    def __init__(self) -> None:
        self._held_ms: int | None = None

    def now_ms(self) -> int:
        """Return the time of day in milliseconds since 1970-01-01 UTC."""
        held = self._held_ms
        return time.time_ns() // 1_000_000 if held is None else held

    def hold(self, at_ms: int | None = None) -> None:
        """Stop the clock at `at_ms`, or at the present moment."""
        self._held_ms = self.now_ms() if at_ms is None else at_ms

    def advance(self, **span: float) -> None:
        """Move the clock by a span in the words of `timedelta`, as in `advance(hours=48)`; holds it."""
        self._held_ms = self.now_ms() + timedelta(**span) // timedelta(milliseconds=1)

    def release(self) -> None:
        """Follow the system's clock again."""
        self._held_ms = None
