"""The maintenance thread: all slow work that changes the structure of the data folder.

It creates and deletes topics, rolls idle segments, enforces retention and writes checkpoints, one step after another,
so these never race. The event loop submits a job and gets a `Later`; it never waits.

A job is a coroutine that awaits its turn before each of its steps (`broker/work.py`). It has the thread for a slice of
time, then waits for its next turn, between short jobs (`FairQueue`). There are queues for what a client asked for
explicitly, for what can wait (topics created on first use, or many of them), for the work of consumer groups, for calls
of other threads, and for periodic jobs. The queues take turns. If the broker stops, or nobody waits for a job any more,
`await step()` raises Stopping: the job makes no further step, and its answer says so. A stop abandons periodic jobs.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from itertools import chain
from typing import Any, Final, TypeVar

from tidelog.broker.answers import Later, kept
from tidelog.broker.clock import Clock
from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.quota import Hold
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.work import STEP, TURN, Coro, Stopping, step
from tidelog.storage.errors import StorageError, logged
from tidelog.storage.troubles import Troubles

_log = logging.getLogger(__name__)

T = TypeVar("T")

# The slice of a job. If many jobs wait, slices are so much shorter that each job has a turn in ROUND_S, or in twice
# that while other queues have work. A job always makes one step.
SLICE_S: Final = 0.02
ROUND_S: Final = 0.5
# A job that is due again at once must leave time for everything else.
SHORTEST_WAIT_S: Final = 0.01
# The longest wait of a condition: options may ask for more than the system accepts.
LONGEST_WAIT_S: Final = 3600.0


class Periodic:
    """A job that runs repeatedly: it returns in how many seconds it is due again, at most `interval_s`."""

    __slots__ = ("_clock", "_due_ms", "_interval_ms", "_run", "_troubles", "is_under_way", "name")

    def __init__(
        self, name: str, interval_s: float, run: Callable[[], Coro[float | None]], clock: Clock
    ) -> None:
        self.name = name
        self._clock = clock
        # Integers, as the clock has them: a sum of seconds may be a little more than the clock ever shows.
        self._interval_ms = _ms(max(interval_s, SHORTEST_WAIT_S))
        self._run = run
        self._due_ms = clock.monotonic_ms() + _ms(interval_s)
        self._troubles = Troubles()
        self.is_under_way = False

    def wait_s(self) -> float:
        """Return the seconds until the job is due; 0 or less if it is."""
        return (self._due_ms - self._clock.monotonic_ms()) / 1000

    def hasten(self, wait_s: float) -> None:
        """Begin a round within `wait_s`."""
        self._due_ms = min(self._due_ms, self._clock.monotonic_ms() + _ms(wait_s))

    def begin(self) -> Coro[float | None]:
        """Return the coroutine of a round."""
        self._due_ms = self._clock.monotonic_ms() + self._interval_ms
        self.is_under_way = True
        return self._run()

    def end(self, outcome: Any) -> None:
        """Record the result or the exception of a round. After an exception, the next round tries again."""
        self.is_under_way = False
        if isinstance(outcome, Exception):
            if self._troubles.begin(self.name, repr(outcome)):
                text, fault = logged(outcome)
                _log.error(
                    "maintenance job fails job=%s error=%r: tried again",
                    self.name,
                    text,
                    exc_info=fault,
                )
            return
        if self._troubles.end(self.name):
            _log.info("maintenance job works again job=%s", self.name)
        if outcome is not None:
            self.hasten(max(outcome, SHORTEST_WAIT_S))


def _ms(span_s: float) -> int:
    return math.ceil(span_s * 1000)


class Job(Later):
    """A coroutine on the maintenance thread; its response is the coroutine's result."""

    __slots__ = ("_awaits", "_coroutine", "_held", "is_cancelled")

    # Whether a stop of the broker ends it at its next step, and answers it.
    ends_with_broker = True

    def __init__(self, coroutine: Coro[Any], held: Hold | None = None) -> None:
        super().__init__()
        self._held = held
        self._coroutine = coroutine
        self._awaits: object = TURN
        self.is_cancelled = False

    def go_on(self, until_s: float, is_stopping: Callable[[], bool]) -> None:
        """Make steps until `until_s` in real time, but at least one. StopIteration at the end."""
        while True:
            is_ending = self.is_cancelled or (self.ends_with_broker and is_stopping())
            if is_ending and self._awaits is STEP:
                self._awaits = self._coroutine.throw(Stopping())
            else:
                self._awaits = self._coroutine.send(None)
            if not is_ending and time.monotonic() >= until_s:
                return

    def hand_over(self, loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        """Pass the result, or the exception that ended the coroutine, to the event loop. Maintenance thread."""
        loop.call_soon_threadsafe(self.resolve, outcome)

    def close(self) -> None:
        """Make no further step: the thread has ended."""
        self._coroutine.close()

    def cancel(self) -> None:
        """Make no further step: the client is gone."""
        self.is_cancelled = True

    def resolve(self, response: Any) -> None:
        """Return the charge, and set the response."""
        if self._held is not None:
            self._held.give_back()
        super().resolve(response)


class _Round(Job):
    """A round of a periodic job."""

    __slots__ = ("_periodic",)

    ends_with_broker = False  # closing the logs does what is left

    def __init__(self, periodic: Periodic) -> None:
        super().__init__(periodic.begin())
        self._periodic = periodic

    def hand_over(self, _loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        self._periodic.end(outcome)


class _Call(Job):
    """A function that another thread waits for, even while a stop blocks the event loop."""

    __slots__ = ("future",)

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(_unless_stopping(function))
        self.future: Future[Any] = Future()

    def hand_over(self, _loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


async def _unless_stopping(function: Callable[[], T]) -> T:
    await step()
    return function()


class Maintenance:
    """One thread, its queues of jobs, and the periodic jobs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, periodic: list[Periodic], ended: Ended
    ) -> None:
        self._loop = loop
        self._periodic = periodic
        # Many jobs of one kind delay the others no longer than one.
        self._asked: FairQueue[Job] = FairQueue()
        self._waiting: FairQueue[Job] = FairQueue()
        self._of_groups: FairQueue[Job] = FairQueue()
        self._called: FairQueue[Job] = FairQueue()
        self._rounds: FairQueue[Job] = FairQueue()
        # In the order of their next turns.
        self._queues = [self._asked, self._waiting, self._of_groups, self._called, self._rounds]
        self._changed = threading.Condition()
        self._drops = False
        self._is_stopping = False
        self._has_ended = False
        self._is_working = False
        self._worker = new_thread("maintenance", self._run, ended)
        clock.watch(self._wake)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def submit(
        self,
        coroutine: Coro[T],
        owner: Hashable,
        held: Hold | None = None,
        can_wait: bool = False,
        for_group: bool = False,
    ) -> Later:
        """Run a coroutine on the thread when its owner's turn has come. Event loop only.

        The `Later` gets the result, or the exception that ended it. The charge `held` is returned then.
        """
        job = Job(coroutine, held)
        if not self._put(
            self._of_groups if for_group else self._waiting if can_wait else self._asked, owner, job
        ):
            job.hand_over(self._loop, _ended())
        return job

    def call(self, function: Callable[[], T]) -> T:
        """Call a short function on the thread, and return its result or raise its exception. Any other thread.

        Raise Stopping if the broker stops before it has begun.
        """
        call = _Call(function)
        if not self._put(self._called, call, call):
            raise Stopping
        try:
            made: T = call.future.result()
            return made
        finally:
            del call  # or an exception and this frame would refer to each other

    def _put(self, queue: FairQueue[Job], owner: Hashable, job: Job) -> bool:
        with self._changed:
            if self._has_ended:
                job.close()
                return False
            queue.put(owner, job)
            self._changed.notify()
            return True

    @property
    def is_settled(self) -> bool:
        """Tell whether no job waits or runs, and no periodic job is due. Any thread."""
        with self._changed:
            is_busy = self._is_working or any(map(len, self._queues))
            return not is_busy and all(periodic.wait_s() > 0 for periodic in self._periodic)

    def _wake(self) -> None:
        """Look again at the periodic jobs: the clock was moved. Any thread."""
        with self._changed:
            self._changed.notify()

    def drop(self) -> None:
        """Answer all present and later jobs without running them: the broker stops."""
        self._drops = True

    def stop(self) -> None:
        """Answer the submitted jobs, without beginning any more, and end the thread."""
        with self._changed:
            self._drops = self._is_stopping = True
            self._changed.notify()
        self._worker.join()

    def _run(self) -> None:
        try:
            while (taken := self._next()) is not None:
                self._work_on(*taken)
                del taken  # an idle thread must not refer to a client's last request
        finally:
            with self._changed:
                self._has_ended = True
                for job in chain.from_iterable(self._queues):
                    job.close()
                    if job.ends_with_broker:
                        job.hand_over(self._loop, _ended())

    def _next(self) -> tuple[FairQueue[Job], Hashable, Job] | None:
        """Wait for a job; None ends the thread."""
        with self._changed:
            self._is_working = False
            while (taken := self._take()) is None:
                if self._is_stopping:
                    return None
                wait_s = LONGEST_WAIT_S
                if not self._drops:
                    wait_s = min([wait_s, *(periodic.wait_s() for periodic in self._periodic)])
                self._changed.wait(wait_s)
            self._is_working = True
            return taken

    def _take(self) -> tuple[FairQueue[Job], Hashable, Job] | None:
        """Take a job from the queue that had no turn for longest, or else from the next."""
        for periodic in self._periodic:
            if not periodic.is_under_way and not self._drops and periodic.wait_s() <= 0:
                self._rounds.put(periodic, _Round(periodic))
        for queue in self._queues:
            if queue is self._rounds and self._drops:
                continue
            if (taken := queue.take()) is not None:
                self._queues.remove(queue)
                self._queues.append(queue)
                return queue, *taken
        return None

    def _work_on(self, queue: FairQueue[Job], owner: Hashable, job: Job) -> None:
        """Give a job its slice."""
        outcome: Any
        slice_s = min(SLICE_S, ROUND_S / queue.owners)
        try:
            job.go_on(time.monotonic() + slice_s, lambda: self._drops)
        except StopIteration as end:
            outcome = end.value
        except Exception as error:
            outcome = kept(error)
        except BaseException:
            job.hand_over(self._loop, _ended())
            raise
        else:
            with self._changed:
                queue.done(owner, job)
            return
        with self._changed:
            queue.done(owner)
        job.hand_over(self._loop, outcome)


def _ended() -> StorageError:
    return StorageError("the maintenance thread has ended; the broker stops")
