"""Answers that are not ready yet, and the fetches that wait for a log to grow.

A handler that cannot answer at once returns a `Later`; whoever has the answer resolves it, on the event loop.
A fetch short of `min_bytes` is parked on each of its partitions: every append counts towards it, and nothing
polls. It runs again once, when it has enough, when its time is up, or when the broker stops.
"""

import asyncio
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


class FetchWaiter(Later):
    """A fetch that waits for `missing_bytes` more on any of its partitions, at most `max_wait_ms`.

    `answer` reads what is there then; `unchanged` is for when nothing has come and the time is up.
    """

    __slots__ = (
        "_answer",
        "_has_grown",
        "_loop",
        "_missing_bytes",
        "_parked",
        "_partitions",
        "_timer",
        "_unchanged",
    )

    def __init__(
        self,
        parked: "set[FetchWaiter]",
        partitions: "Iterable[Partition]",
        missing_bytes: int,
        max_wait_ms: int,
        answer: Callable[[], Any],
        unchanged: Callable[[], Any],
    ) -> None:
        super().__init__()
        self._answer = answer
        self._unchanged = unchanged
        self._has_grown = False
        self._missing_bytes = missing_bytes
        self._partitions = tuple(partitions)
        self._parked = parked
        self._loop = asyncio.get_running_loop()
        parked.add(self)
        for partition in self._partitions:
            partition.waiters.append(self)
        self._timer = self._loop.call_later(max_wait_ms / 1000, self._time_is_up)

    def grown(self, size_bytes: int) -> None:
        """Count bytes appended to one of the partitions; with enough, answer after the present turn."""
        self._has_grown = True
        missing = self._missing_bytes
        self._missing_bytes = missing - size_bytes
        if missing > 0 and missing <= size_bytes:
            self._loop.call_soon(self.finish)

    def _time_is_up(self) -> None:
        if self._has_grown:
            self.finish()
        else:
            self._finish(self._unchanged)

    def finish(self) -> None:
        """Answer now with what is there."""
        self._finish(self._answer)

    def _finish(self, answer_with: Callable[[], Any]) -> None:
        if self._forget():
            answer = answer_with()
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
        self._parked.remove(self)
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.remove(self)
        return True
