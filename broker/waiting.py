"""Answers that are not ready yet, and the fetches that wait for a log to grow.

A handler that cannot answer at once returns a `Later`; whoever has the answer resolves it, on the event loop.
A fetch short of `min_bytes` is parked on each of its partitions: every append counts towards it, and nothing
polls. It runs again once, when it has enough, when its time is up, or when the broker stops.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.broker.partition import Partition


class Later:
    """A response to come: None until it is there, a message, or the exception that took its place.

    Whoever waits for it sets `ready`, in the turn of the loop in which the `Later` was made.
    """

    __slots__ = ("ready", "response")

    def __init__(self) -> None:
        self.ready: Callable[[], None] | None = None
        self.response: Any = None

    def resolve(self, response: Any) -> None:
        """Hand over the response, once, on the event loop and in a later turn than the one that made this."""
        self.response = response
        if self.ready is not None:
            self.ready()

    def cancel(self) -> None:
        """Give up on the response: its connection is gone. Nothing to do unless something was parked."""


def job_for(later: Later, loop: asyncio.AbstractEventLoop, job: Callable[[], Any]) -> Callable[[], None]:
    """Return `job` for another thread; `later` gets what it returns, or the exception that ended it."""

    def run() -> None:
        try:
            outcome = job()
        except Exception as error:
            outcome = error
        loop.call_soon_threadsafe(later.resolve, outcome)

    return run


class Parked:
    """The fetches that wait, and when the time of each is up.

    Those whose time is up at nearly the same moment are answered in one turn of the loop: a time is rounded up by at
    most a part in 32, so that a thousand idle consumers wake the broker some seventy times a second and not a thousand.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._due: dict[int, set[FetchWaiter]] = {}
        self._waiters: set[FetchWaiter] = set()

    def __len__(self) -> int:
        """Return how many fetches wait."""
        return len(self._waiters)

    def __contains__(self, waiter: "FetchWaiter") -> bool:
        """Tell whether a fetch still waits."""
        return waiter in self._waiters

    def add(self, waiter: "FetchWaiter", max_wait_ms: int) -> int:
        """Let a fetch wait so long; return when it is due, in milliseconds of the loop's clock."""
        step_ms = max(max_wait_ms >> 5, 1)
        due_ms = step_ms * math.ceil((self.loop.time() * 1000 + max_wait_ms) / step_ms)
        due = self._due.get(due_ms)
        if due is None:
            due = self._due[due_ms] = set()
            self.loop.call_at(due_ms / 1000, self._time_is_up, due_ms)
        due.add(waiter)
        self._waiters.add(waiter)
        return due_ms

    def remove(self, waiter: "FetchWaiter", due_ms: int) -> None:
        """Let a fetch wait no longer."""
        self._waiters.remove(waiter)
        if due := self._due.get(due_ms):
            due.discard(waiter)

    def _time_is_up(self, due_ms: int) -> None:
        for waiter in self._due.pop(due_ms):
            waiter.finish()

    def release(self) -> None:
        """Answer all of them with what is there."""
        for waiter in list(self._waiters):
            waiter.finish()


class FetchWaiter(Later):
    """A fetch that waits for `missing_bytes` more on any of its partitions, at most `max_wait_ms`.

    `answer` reads what is there then.
    """

    __slots__ = (
        "_answer",
        "_due_ms",
        "_missing_bytes",
        "_parked",
        "_partitions",
    )

    def __init__(
        self,
        parked: Parked,
        partitions: "Iterable[Partition]",
        missing_bytes: int,
        max_wait_ms: int,
        answer: Callable[[], Any],
    ) -> None:
        super().__init__()
        self._answer = answer
        self._missing_bytes = missing_bytes
        self._partitions = tuple(dict.fromkeys(partitions))
        self._parked = parked
        for partition in self._partitions:
            partition.waiters[self] = None
        self._due_ms = parked.add(self, max_wait_ms)

    def grown(self, size_bytes: int) -> None:
        """Count bytes appended to one of the partitions; with enough, answer after the present turn."""
        missing = self._missing_bytes
        self._missing_bytes = missing - size_bytes
        if missing > 0 and missing <= size_bytes:
            self._parked.loop.call_soon(self.finish)

    def finish(self) -> None:
        """Answer now with what is there."""
        if self._forget():
            answer = self._answer()
            if isinstance(answer, Later):
                answer.ready = lambda: self.resolve(answer.response)
            else:
                self.resolve(answer)

    def cancel(self) -> None:
        """Leave without an answer."""
        self._forget()

    def _forget(self) -> bool:
        if self not in self._parked:
            return False
        self._parked.remove(self, self._due_ms)
        for partition in self._partitions:
            del partition.waiters[self]
        return True
