"""The broker's two clocks, as one object that tests can hold still and move.

Nothing else in the project reads the time of day: other code is given `Clock.now_ms`. Waiting goes by `monotonic_ms`,
so a step of the time of day prolongs no wait and expires nothing. Tests hold the clock and advance it, which moves both
clocks: seven days of retention pass in a line. Slices of work are measured in real time, where the work is done.
"""

import time
from collections.abc import Callable
from datetime import timedelta


class Clock:
    """Milliseconds, from the system until `hold` is called. Any thread reads the clock; one moves it."""

    __slots__ = ("_ahead_ms", "_held", "_watchers")

    def __init__(self) -> None:
        self._held: tuple[int, int] | None = None  # the time of day, and the monotonic one
        self._ahead_ms = 0  # ahead of the system's monotonic time, which goes on while the clock is held
        self._watchers: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Return the time of day in milliseconds since 1970-01-01 UTC."""
        held = self._held
        return time.time_ns() // 1_000_000 if held is None else held[0]

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds since an arbitrary moment."""
        held = self._held
        return time.monotonic_ns() // 1_000_000 + self._ahead_ms if held is None else held[1]

    def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` whenever the clock is moved or released, so that waiting code looks again."""
        self._watchers.append(moved)

    def hold(self, at_ms: int | None = None) -> None:
        """Hold the clock, at the time of day `at_ms` or now."""
        self._held = (self.now_ms() if at_ms is None else at_ms, self.monotonic_ms())
        self._notify()

    def advance(self, **span: float) -> None:
        """Move the clock by the span of a `timedelta`, as in `advance(hours=48)`, and hold it."""
        now_ms = self.now_ms()
        self._move(now_ms, now_ms + timedelta(**span) // timedelta(milliseconds=1))

    def set(self, at_ms: int) -> None:
        """Move the clock to a time of day, and hold it. The monotonic clock advances as far, or stays if the time goes
        back.
        """
        self._move(self.now_ms(), at_ms)

    def _move(self, from_ms: int, to_ms: int) -> None:
        self._held = (to_ms, self.monotonic_ms() + max(to_ms - from_ms, 0))
        self._notify()

    def release(self) -> None:
        """Follow the system's clock again. The monotonic clock goes on from where it is."""
        if self._held is not None:
            self._ahead_ms = self._held[1] - time.monotonic_ns() // 1_000_000
            self._held = None
            self._notify()

    @property
    def is_held(self) -> bool:
        """Tell whether the clock is held."""
        return self._held is not None

    def _notify(self) -> None:
        for moved in self._watchers:
            moved()
