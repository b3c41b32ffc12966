"""The maintenance thread: everything slow that changes the structure of the data folder.

It creates and deletes topics, rolls idle segments, enforces retention and writes checkpoints, one step after another,
so that these never race. The event loop submits a job and gets a `Later`; it never waits.

A job is a task: a generator that yields before each of its steps. It has the thread for a slice of time; what is left
of it then waits until others had theirs, short jobs first (`FairQueue`). What a client asked for in so many words and
what can wait (topics created on first use, or many) have a queue each, and so has what consumer groups have to work
out, each of them for itself; these take turns. What comes round is a task as well, and takes turns with them. Where
nobody waits for its answer any more, or the broker stops, `yield` is true: the job makes no further step and says so in
its answer. Another thread, such as a cleaner, has a short function called here, and waits for it: that goes first, and
works while a stop holds the event loop.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import CancelledError, Future
from copy import copy
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

    __slots__ = ("_clock", "_due_ms", "_interval_ms", "_left_ms", "_run", "_task", "name")

    def __init__(
        self, name: str, interval_s: float, run: Callable[[], Task[float | None]], clock: Clock
    ) -> None:
        self.name = name
        self._clock = clock
        # Whole numbers, as the clock has them: seconds added up may come to a trifle more than the clock ever shows.
        self._interval_ms = _ms(max(interval_s, SHORTEST_WAIT_S))
        self._run = run
        self._due_ms = clock.monotonic_ms() + _ms(interval_s)
        self._task: Task[float | None] | None = None  # of a round that is under way
        self._left_ms = 0  # when it was left, for others to have their turn

    def wait_s(self) -> float:
        """Return how long it is until the job is due; 0 or less when it is, or is under way."""
        due_ms = self._due_ms if self._task is None else self._left_ms
        return (due_ms - self._clock.monotonic_ms()) / 1000

    def hasten(self, wait_s: float) -> None:
        """Begin a round in that time, if not before."""
        self._due_ms = min(self._due_ms, self._clock.monotonic_ms() + _ms(wait_s))

    def go_on(self, until_s: float) -> bool:
        """Begin a round or go on with it, in real time up to `until_s`; tell whether it has come to its end."""
        task = self._task
        if task is None:
            self._due_ms = self._clock.monotonic_ms() + self._interval_ms
            task = self._run()
        self._task = None
        try:
            next(task)
            while time.monotonic() < until_s:
                next(task)
        except StopIteration as end:
            if end.value is not None:
                self.hasten(max(end.value, SHORTEST_WAIT_S))
            return True
        self._task, self._left_ms = task, self._clock.monotonic_ms()
        return False


def _ms(span_s: float) -> int:
    return math.ceil(span_s * 1000)


class Job(Later):
    """The answer of a task, and how far that has come."""

    __slots__ = ("_has_begun", "_held", "_task", "is_dropped")

    def __init__(self, task: Task[Any], held: Hold | None) -> None:
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
            is_dropped = self.is_dropped or is_stopping()
            if not is_dropped and time.monotonic() >= until_s:
                return False
            self._task.send(is_dropped)

    def cancel(self) -> None:
        """Make no further step: the client is gone."""
        self.is_dropped = True

    def resolve(self, response: Any) -> None:
        """Hand over what the task returned."""
        if self._held is not None:
            self._held.give_back()
        super().resolve(response)


class _Call:
    """A function that another thread waits for."""

    __slots__ = ("_function", "future")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.future: Future[Any] = Future()

    def run(self) -> None:
        try:
            self.future.set_result(self._function())
        except Exception as error:
            self.future.set_exception(kept(error))
        except BaseException as fault:
            self.future.set_exception(kept(copy(fault)))
            raise


class Maintenance:
    """One thread, its queue of jobs, and the jobs that come round."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, periodic: list[Periodic], ended: Ended
    ) -> None:
        self._loop = loop
        self._periodic = periodic
        # What was asked for, what can wait, and what groups work out: however many of these there are, they keep the
        # others waiting no longer than one does. And all in the order in which they have a turn next.
        self._asked: FairQueue[Job] = FairQueue()
        self._waiting: FairQueue[Job] = FairQueue()
        self._of_groups: FairQueue[Job] = FairQueue()
        self._queues = [self._asked, self._waiting, self._of_groups]
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._drops = False
        self._is_stopping = False
        self._has_ended = False
        self._is_working = False
        self._is_turn_of_queue = True
        self._troubles = Troubles()
        self._thread = new_thread("maintenance", self._run, ended)
        clock.watch(self._clock_moved)

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
        queue = self._of_groups if for_group else self._waiting if can_wait else self._asked
        with self._changed:
            if not self._has_ended:
                queue.put(owner, job)
                self._changed.notify()
                return job
        self._loop.call_soon(job.resolve, _ended())
        return job

    def call(self, function: Callable[[], T]) -> T:
        """Return what a short function returns, called on the thread, or raise what it raises. Any other thread.

        Stopping where the broker stops before it has begun.
        """
        call = _Call(function)
        with self._changed:
            if self._drops or self._has_ended:
                raise Stopping
            self._calls.append(call)
            self._changed.notify()
        try:
            made: T = call.future.result()
            return made
        except CancelledError:
            raise Stopping from None
        finally:
            del call  # or an exception and this frame would refer to each other

    @property
    def is_settled(self) -> bool:
        """Tell whether all is done that was asked for, or was due by now. Any thread."""
        with self._changed:
            is_busy = self._is_working or self._calls or any(map(len, self._queues))
            return not is_busy and all(periodic.wait_s() > 0 for periodic in self._periodic)

    def _clock_moved(self) -> None:
        """Look again at what comes round. The thread that moves the clock."""
        with self._changed:
            self._changed.notify()

    def drop(self) -> None:
        """Answer what waits and what comes without doing it: the broker stops."""
        with self._changed:
            self._drops = True
            self._cancel_calls()

    def stop(self) -> None:
        """Answer the jobs that were submitted, without doing what has not begun, and end the thread."""
        self.drop()
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    def _cancel_calls(self) -> None:
        while self._calls:
            self._calls.popleft().future.cancel()

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                if isinstance(work, _Call):
                    work.run()
                elif isinstance(work, Periodic):
                    self._come_round(work)
                else:
                    self._work_on(*work)
                del work  # An idle thread must not hold on to what a client asked for last.
        finally:
            with self._changed:
                self._has_ended = True
                self._cancel_calls()
                for job in chain.from_iterable(self._queues):
                    self._loop.call_soon_threadsafe(job.resolve, _ended())

    def _next(self) -> "_Call | Periodic | tuple[FairQueue[Job], Hashable, Job] | None":
        """Wait for work: calls go first, the jobs that come round and the queues take turns. None for the end."""
        with self._changed:
            self._is_working = False
            while True:
                if self._calls:
                    self._is_working = True
                    return self._calls.popleft()
                upcoming = min(self._periodic, key=Periodic.wait_s)
                # At a stop the jobs that come round are left to the closing of the logs.
                wait_s = LONGEST_WAIT_S if self._drops else upcoming.wait_s()
                if wait_s <= 0 and not self._is_turn_of_queue:
                    self._is_turn_of_queue = self._is_working = True
                    return upcoming
                self._is_turn_of_queue = False
                if (taken := self._take()) is not None:
                    self._is_working = True
                    return taken
                if self._is_stopping:
                    return None
                if wait_s > 0:
                    self._changed.wait(min(wait_s, LONGEST_WAIT_S))

    def _take(self) -> tuple[FairQueue[Job], Hashable, Job] | None:
        """Take a job from the queue that has not had a turn for longest, or else from the next."""
        for queue in self._queues:
            if (taken := queue.take()) is not None:
                self._queues.remove(queue)
                self._queues.append(queue)
                return queue, *taken
        return None

    def _come_round(self, periodic: Periodic) -> None:
        """Give a job that comes round its slice. That it fails does not end the thread: the next round may succeed."""
        try:
            is_done = periodic.go_on(time.monotonic() + SLICE_S)
        except (OSError, StorageError) as error:
            if self._troubles.begin(periodic.name, repr(error)):
                _log.error("maintenance job fails job=%s error=%r: tried again", periodic.name, str(error))
        except Exception as fault:
            if self._troubles.begin(periodic.name, repr(fault)):
                _log.exception("maintenance job ended by a fault job=%s: tried again", periodic.name)
        else:
            if is_done and self._troubles.end(periodic.name):
                _log.info("maintenance job works again job=%s", periodic.name)

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
            self._loop.call_soon_threadsafe(job.resolve, _ended())
            raise
        with self._changed:
            queue.done(owner, None if is_done else job)
        if is_done:
            self._loop.call_soon_threadsafe(job.resolve, outcome)


def _ended() -> StorageError:
    return StorageError("the maintenance thread has ended; the broker stops")
