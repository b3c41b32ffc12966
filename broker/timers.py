"""Timers on the event loop, by the broker's own clock.

The loop is asked to wake for the first timer only, however many there are. Event loop only, except that another thread
may move the clock.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final

from tidelog.broker.clock import Clock

_log = logging.getLogger(__name__)

# Cancelled timers stay until they are due, or until there are more than this many and they are the majority.
CANCELLED_MAX: Final = 64
# The longest wait of a loop: options may ask for more than it accepts.
LONGEST_WAIT_MS: Final = 3_600_000
# How long due timers run in a turn of the loop: thousands of members may time out at the same moment.
TURN_S: Final = 0.002


class Timer:
    """A timer, until it has run or is cancelled."""

    __slots__ = ("_timers", "callback", "due_ms")

    def __init__(self, timers: "Timers", due_ms: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timer, and release its callback."""
        if self.callback is not None:
            self.callback = None
            self._timers.cancelled()


class Timers:
    """All timers of a broker."""

    __slots__ = ("_cancelled", "_clock", "_due", "_handle", "_heap", "_loop", "_numbers", "_wakes_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        """Begin without timers."""
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[int, int, Timer]] = []
        self._due: deque[Timer] = deque()  # due timers
        self._numbers = itertools.count()
        self._cancelled = 0
        self._handle: asyncio.Handle | None = None
        self._wakes_ms = 0  # when the handle wakes the loop
        clock.watch(self._clock_moved)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once, in `delay_ms` or a little later, never in this turn of the loop."""
        return self.call_at(self._clock.monotonic_ms() + delay_ms, callback)

    def call_at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once when the monotonic clock has reached `due_ms`, never in this turn of the loop."""
        timer = Timer(self, due_ms, callback)
        heappush(self._heap, (due_ms, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self._set()
        return timer

    def cancelled(self) -> None:
        """Note that a timer was cancelled."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    @property
    def is_settled(self) -> bool:
        """Tell whether no timer is due."""
        return not self._due and not (self._heap and self._heap[0][0] <= self._clock.monotonic_ms())

    def _set(self) -> None:
        """Have the loop wake when the first timer is due; if the clock is held, that is when it is moved."""
        if self._handle is not None:
            if self._heap and self._wakes_ms == self._heap[0][0]:
                return
            self._handle.cancel()
            self._handle = None
        if self._due:
            self._wakes_ms = -1
            self._handle = self._loop.call_soon(self._wake)
            return
        if not self._heap:
            return
        self._wakes_ms = self._heap[0][0]
        wait_ms = min(self._wakes_ms - self._clock.monotonic_ms(), LONGEST_WAIT_MS)
        if wait_ms <= 0:
            self._handle = self._loop.call_soon(self._wake)
        elif not self._clock.is_held:
            self._handle = self._loop.call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        """Run due timers in order; those for which there is no time run in the next turn."""
        self._handle = None
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            self._due.append(heappop(self._heap)[2])
        ends_s = time.monotonic() + TURN_S
        while self._due and time.monotonic() < ends_s:
            timer = self._due.popleft()
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
                continue
            try:
                callback()
            except Exception:
                _log.exception("a timer failed")
        self._set()

    def _clock_moved(self) -> None:
        """Look again. Called by the thread that moves the clock."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._look_again)

    def _look_again(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._set()
