"""The two clocks of the broker, as one object that can be held still and moved.

Nothing else in the project reads the time of day: whoever needs it is handed `Clock.now_ms`. Whatever is waited for by
time goes by `monotonic_ms`, so that a step of the time of day makes nobody wait for longer, and expires nothing. Tests
hold the clock and advance it, which moves both, so that seven days of retention pass in a line. How long work may go on
at a stretch is real time: that is measured where the work is done.
"""

import time
from collections.abc import Callable
from datetime import timedelta


class Clock:
    """Milliseconds, from the system until `hold` is called. Any thread reads it; one moves it."""

    __slots__ = ("_ahead_ms", "_held", "_watchers")

    def __init__(self) -> None:
        self._held: tuple[int, int] | None = None  # the time of day, and the monotonic one
        self._ahead_ms = 0  # of the system's monotonic time, which goes on while a clock is held
        self._watchers: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Return the time of day in milliseconds since 1970-01-01 UTC."""
        held = self._held
        return time.time_ns() // 1_000_000 if held is None else held[0]

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back, since an arbitrary moment."""
        held = self._held
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms if held is None else held[1]

    def watch(self, moved: Callable[[], None]) -> None:
        """Have `moved` called whenever the clock is moved, or let go: who waits by it looks again."""
        self._watchers.append(moved)

    def hold(self, at_ms: int | None = None) -> None:
        """Stop the clock, at the time of day `at_ms` or at the present one."""
        self._held = (self.now_ms() if at_ms is None else at_ms, self.monotonic_ms())
        self._tell()

    def advance(self, **span: float) -> None:
        """Move the clock by a span in the words of `timedelta`, as in `advance(hours=48)`; holds it."""
        now_ms = self.now_ms()
        self._move(now_ms, now_ms + timedelta(**span) // timedelta(milliseconds=1))

    def set(self, at_ms: int) -> None:
        """Move the clock to a time of day, and hold it: the monotonic one goes on as far, or stays if that is back."""
        self._move(self.now_ms(), at_ms)

    def _move(self, from_ms: int, to_ms: int) -> None:
        self._held = (to_ms, self.monotonic_ms() + max(to_ms - from_ms, 0))
        self._tell()

    def release(self) -> None:
        """Follow the system's clock again: the time of day is the system's, the monotonic one goes on from here."""
        if self._held is not None:
            self._ahead_ms = self._held[1] - time.monotonic_ns() // 1_000_000
            self._held = None
            self._tell()

    @property
    def is_held(self) -> bool:
        """Tell whether time passes only as somebody moves the clock."""
        return self._held is not None

    def _tell(self) -> None:
        for moved in self._watchers:
            moved()
