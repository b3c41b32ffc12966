"""What another thread has done on the maintenance thread, and waits for: the structure of logs is changed there alone.

Owns the way there, by the event loop and the queue of that thread, and the way back, which is direct: it works while a
stop holds the loop. What has begun is waited for; what has not is given up at a stop.
"""

import asyncio
import threading
from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

from tidelog.broker.answers import kept
from tidelog.broker.maintenance import Maintenance, Task

T = TypeVar("T")


class Stopping(Exception):
    """The broker stops: nothing was done."""


class _Errand:
    __slots__ = ("has_begun", "is_done", "is_given_up", "outcome", "step")

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step
        self.has_begun = self.is_done = self.is_given_up = False
        self.outcome: Any = None  # or the exception that took its place


class Errands:
    """For any thread but the event loop and the maintenance thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, maintenance: Maintenance) -> None:
        """Send to this thread, by its loop."""
        self._loop = loop
        self._maintenance = maintenance
        self._changed = threading.Condition()
        self._is_stopping = False

    def run(self, step: Callable[[], T]) -> T:
        """Return what a short step returns, or raise what it raises; Stopping where the broker stops before."""
        errand = _Errand(step)
        try:
            self._loop.call_soon_threadsafe(self._submit, errand)
        except RuntimeError:  # The loop is closed.
            raise Stopping from None
        with self._changed:
            while not errand.is_done:
                if self._is_stopping and not errand.has_begun:
                    errand.is_given_up = True
                    raise Stopping
                self._changed.wait()
        outcome, errand.outcome = errand.outcome, None
        if not isinstance(outcome, BaseException):
            made: T = outcome
            return made
        try:
            raise outcome
        finally:
            del outcome  # or the exception and this frame would refer to each other

    def stop(self) -> None:
        """Have those who wait for what has not begun wait no longer."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def _submit(self, errand: _Errand) -> None:
        later = self._maintenance.submit(self._task(errand), owner=self)
        # If the thread has ended, or ends before it comes to this.
        later.ready = lambda: self._done(errand, Stopping(f"{later.response}"))

    def _task(self, errand: _Errand) -> Task[None]:
        is_dropped = yield
        with self._changed:
            if is_dropped or errand.is_given_up:
                return  # Told once this is answered, or told already.
            errand.has_begun = True
        try:
            outcome: Any = errand.step()
        except Exception as error:
            outcome = kept(error)
        except BaseException as fault:
            self._done(errand, kept(copy(fault)))
            raise
        self._done(errand, outcome)

    def _done(self, errand: _Errand, outcome: Any) -> None:
        with self._changed:
            if not errand.is_done:
                errand.is_done, errand.outcome = True, outcome
                self._changed.notify_all()
