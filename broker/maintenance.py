"""The maintenance thread: everything slow that changes the structure of the data folder.

It creates and deletes topics, rolls idle segments, enforces retention and writes checkpoints, one step after another,
so that these never race. The event loop submits a job and gets a `Later`; it never waits.

A job is a task: a generator that yields before each of its steps. It has the thread for a slice of time; what is left
of it then waits until others had theirs, short jobs first (`FairQueue`). There is a queue each for what a client
asked for in so many words, what can wait (topics created on first use, or many), what consumer groups have to work
out, what other threads call and wait for, and what comes round; the queues take turns. Where nobody waits for the
answer of a job any more, or the broker stops, `yield` is true: the job makes no further step and says so in its
answer. What comes round is left where it is by a stop.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future
from itertools import chain
from typing import Any, TypeVar

from tidelog.broker.answers import Later, kept
from tidelog.broker.clock import Clock
from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.quota import Hold
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.work import Stopping
from tidelog.storage.errors import StorageError
from tidelog.storage.troubles import Troubles

_log = logging.getLogger(__name__)

T = TypeVar("T")
# Yields before each step, gets whether to stop there, and returns the answer.
Task = Generator[None, bool | None, T]

# A job has the thread for that long; where many wait so much shorter that each of them has a turn in ROUND_S, in twice
# that while others go on with theirs. But one step is made in any case.
SLICE_S = 0.02
ROUND_S = 0.5
# A job that is due again at once must not keep the thread from everything else.
SHORTEST_WAIT_S = 0.01
# The longest that a condition can be told to wait is less than an option may say.
LONGEST_WAIT_S = 3600.0


class Periodic:
    """A job that comes round: a task that returns in how many seconds it wants to run again, at most `interval_s`."""

    __slots__ = ("_clock", "_due_ms", "_interval_ms", "_run", "_troubles", "is_under_way", "name")

    def __init__(
        self, name: str, interval_s: float, run: Callable[[], Task[float | None]], clock: Clock
    ) -> None:
        self.name = name
        self._clock = clock
        # Whole numbers, as the clock has them: seconds added up may come to a trifle more than the clock ever shows.
        self._interval_ms = _ms(max(interval_s, SHORTEST_WAIT_S))
        self._run = run
        self._due_ms = clock.monotonic_ms() + _ms(interval_s)
        self._troubles = Troubles()
        self.is_under_way = False

    def wait_s(self) -> float:
        """Return how long it is until the job is due; 0 or less when it is."""
        return (self._due_ms - self._clock.monotonic_ms()) / 1000

    def hasten(self, wait_s: float) -> None:
        """Begin a round in that time, if not before."""
        self._due_ms = min(self._due_ms, self._clock.monotonic_ms() + _ms(wait_s))

    def begin(self) -> Task[float | None]:
        """Return the task of a round."""
        self._due_ms = self._clock.monotonic_ms() + self._interval_ms
        self.is_under_way = True
        return self._run()

    def end(self, outcome: Any) -> None:
        """Take note of what a round has returned, or failed with: the next one may succeed."""
        self.is_under_way = False
        if isinstance(outcome, Exception):
            if self._troubles.begin(self.name, repr(outcome)):
                is_expected = isinstance(outcome, OSError | StorageError)
                _log.error(
                    "maintenance job fails job=%s error=%r: tried again",
                    self.name,
                    str(outcome) if is_expected else repr(outcome),
                    exc_info=None if is_expected else outcome,
                )
            return
        if self._troubles.end(self.name):
            _log.info("maintenance job works again job=%s", self.name)
        if outcome is not None:
            self.hasten(max(outcome, SHORTEST_WAIT_S))


def _ms(span_s: float) -> int:
    return math.ceil(span_s * 1000)


class Job(Later):
    """The answer of a task, and how far that has come."""

    __slots__ = ("_has_begun", "_held", "_task", "is_dropped")

    # Whether it is told of a stop, and answered.
    heeds_stop = True

    def __init__(self, task: Task[Any], held: Hold | None = None) -> None:
        super().__init__()
        self._held = held
        self._task = task
        self._has_begun = False
        self.is_dropped = False

    def go_on(self, until_s: float, is_stopping: Callable[[], bool]) -> bool:
        """Make steps, in real time up to `until_s`; tell whether they led to the end (StopIteration)."""
        if not self._has_begun:
            self._has_begun = True
            next(self._task)
        while True:
            is_dropped = self.is_dropped or (self.heeds_stop and is_stopping())
            if not is_dropped and time.monotonic() >= until_s:
                return False
            self._task.send(is_dropped)

    def hand_over(self, loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        """Hand over what the task returned, or the exception that ended it. The maintenance thread."""
        loop.call_soon_threadsafe(self.resolve, outcome)

    def cancel(self) -> None:
        """Make no further step: the client is gone."""
        self.is_dropped = True

    def resolve(self, response: Any) -> None:
        """Hand over what the task returned."""
        if self._held is not None:
            self._held.give_back()
        super().resolve(response)


class _Round(Job):
    """A round of a job that comes round."""

    __slots__ = ("_periodic",)

    heeds_stop = False  # it is left to the closing of the logs

    def __init__(self, periodic: Periodic) -> None:
        super().__init__(periodic.begin())
        self._periodic = periodic

    def hand_over(self, _loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        self._periodic.end(outcome)


class _Call(Job):
    """A function that another thread waits for, while a stop may hold the event loop."""

    __slots__ = ("future",)

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(_unless_dropped(function))
        self.future: Future[Any] = Future()

    def hand_over(self, _loop: asyncio.AbstractEventLoop, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


def _unless_dropped(function: Callable[[], T]) -> Task[T]:
    if (yield):
        raise Stopping
    return function()


class Maintenance:
    """One thread, its queues of jobs, and the jobs that come round."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, periodic: list[Periodic], ended: Ended
    ) -> None:
        self._loop = loop
        self._periodic = periodic
        # However many of one kind there are, they keep the others waiting no longer than one does.
        self._asked: FairQueue[Job] = FairQueue()
        self._waiting: FairQueue[Job] = FairQueue()
        self._of_groups: FairQueue[Job] = FairQueue()
        self._called: FairQueue[Job] = FairQueue()
        self._rounds: FairQueue[Job] = FairQueue()
        # In the order in which they have a turn next.
        self._queues = [self._asked, self._waiting, self._of_groups, self._called, self._rounds]
        self._changed = threading.Condition()
        self._drops = False
        self._is_stopping = False
        self._has_ended = False
        self._is_working = False
        self._thread = new_thread("maintenance", self._run, ended)
        clock.watch(self._wake)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(
        self,
        task: Task[T],
        owner: Hashable,
        held: Hold | None = None,
        can_wait: bool = False,
        for_group: bool = False,
    ) -> Later:
        """Do a task on the thread, as it is its owner's turn, however much there is that can wait. Event loop only.

        The `Later` gets what it returns, or the exception that ended it. Until then its client is charged with what is
        `held`.
        """
        job = Job(task, held)
        if not self._put(
            self._of_groups if for_group else self._waiting if can_wait else self._asked, owner, job
        ):
            self._loop.call_soon(job.resolve, _ended())
        return job

    def call(self, function: Callable[[], T]) -> T:
        """Return what a short function returns, called on the thread, or raise what it raises. Any other thread.

        Stopping where the broker stops before it has begun.
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
            if not self._has_ended:
                queue.put(owner, job)
                self._changed.notify()
            return not self._has_ended

    @property
    def is_settled(self) -> bool:
        """Tell whether all is done that was asked for, or was due by now. Any thread."""
        with self._changed:
            is_busy = self._is_working or any(map(len, self._queues))
            return not is_busy and all(periodic.wait_s() > 0 for periodic in self._periodic)

    def _wake(self) -> None:
        """Look again at what comes round: the clock was moved. Any thread."""
        with self._changed:
            self._changed.notify()

    def drop(self) -> None:
        """Answer what waits and what comes without doing it: the broker stops."""
        self._drops = True

    def stop(self) -> None:
        """Answer the jobs that were submitted, without doing what has not begun, and end the thread."""
        with self._changed:
            self._drops = self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (taken := self._next()) is not None:
                self._work_on(*taken)
                del taken  # An idle thread must not hold on to what a client asked for last.
        finally:
            with self._changed:
                self._has_ended = True
                for job in chain.from_iterable(self._queues):
                    if job.heeds_stop:
                        job.hand_over(self._loop, _ended())

    def _next(self) -> tuple[FairQueue[Job], Hashable, Job] | None:
        """Wait for a job; None for the end."""
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
        """Take a job from the queue that has not had a turn for longest, or else from the next."""
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
            is_done = job.go_on(time.monotonic() + slice_s, lambda: self._drops)
            outcome = None
        except StopIteration as end:
            is_done, outcome = True, end.value
        except Exception as error:
            is_done, outcome = True, kept(error)
        except BaseException:
            job.hand_over(self._loop, _ended())
            raise
        with self._changed:
            queue.done(owner, None if is_done else job)
        if is_done:
            job.hand_over(self._loop, outcome)


def _ended() -> StorageError:
    return StorageError("the maintenance thread has ended; the broker stops")
