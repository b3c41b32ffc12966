"""The reader threads: what is not in the page cache is read there, and what takes long is done there.

One of them does what takes long: large batches, lookups that walk or decompress much, work that has had its time. The
other is for what is short, however much of the long there is. Clients take turns in each, and none has more than one
piece of work under way in either. What is left of long work after a slice of time stands behind the others.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from tidelog.broker.answers import Later, kept
from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.work import Lane, Work, as_work
from tidelog.storage.errors import StorageError

# One for what takes long, one for what is short. One slow disk does not get faster with more.
READERS = 2
# What is not done after a short one is long: a hundred clients with long work hold up a short read for half a second.
SLICES_S = {Lane.SHORT: 0.005, Lane.LONG: 0.02}


class _Job(Later):
    """The answer of a piece of work, and how far that has come."""

    __slots__ = ("is_dropped", "needed", "work")

    def __init__(self, work: Work[Any]) -> None:
        super().__init__()
        self.work = work
        self.needed = next(work)
        self.is_dropped = False

    def cancel(self) -> None:
        """Make no further step for a client that is gone."""
        self.is_dropped = True

    def go_on(self, lane: Lane, is_stopping: Callable[[], bool]) -> bool:
        """Make steps in a lane for a slice of time; tell whether no further one is wanted. StopIteration at the end."""
        ends = time.monotonic() + SLICES_S[lane]
        while not self.is_dropped:
            self.needed = self.work.send(Lane.NONE if is_stopping() else lane)
            if self.needed > lane or time.monotonic() >= ends:
                return False
        self.work.close()
        return True


class Readers:
    """A small pool of threads, started when first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Ended) -> None:
        self._loop = loop
        self._ended = ended
        self._queues: dict[Lane, FairQueue[_Job]] = {Lane.LONG: FairQueue(), Lane.SHORT: FairQueue()}
        self._has_long = False  # under way
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._drops = False
        self._is_stopping = False

    def submit(self, job: Callable[[], Any] | Work[Any], owner: Hashable) -> Later:
        """Do a piece of work on a reader thread when it is its owner's turn; a function has to be short.

        The `Later` gets what it returns, or the exception that ended it. Event loop only.
        """
        submitted = _Job(as_work(job))
        with self._changed:
            self._put(owner, submitted)
            waiting = sum(map(len, self._queues.values()))
            is_short_of_threads = self._idle < waiting and len(self._threads) < READERS
        if is_short_of_threads:
            thread = new_thread(f"reader_{len(self._threads)}", self._run, self._ended)
            self._threads.append(thread)
            thread.start()
        return submitted

    @property
    def is_settled(self) -> bool:
        """Tell whether all is read that was asked for. Any thread."""
        with self._changed:
            return self._idle == len(self._threads) and not any(map(len, self._queues.values()))

    def drop(self) -> None:
        """Have work end at its next step with what it can say by then: the broker stops."""
        self._drops = True

    def stop(self) -> None:
        """Wait for the steps under way; what is left is left."""
        with self._changed:
            self._drops = self._is_stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _put(self, owner: Hashable, job: _Job) -> None:
        self._queues[Lane.LONG if job.needed is Lane.LONG else Lane.SHORT].put(owner, job)
        self._changed.notify()

    def _take(self) -> tuple[Lane, Hashable, _Job] | None:
        """Return whose turn it is: what takes long where nothing of that is under way, and else what is short."""
        if not self._has_long and (taken := self._queues[Lane.LONG].take()) is not None:
            self._has_long = True
            return Lane.LONG, *taken
        taken = self._queues[Lane.SHORT].take()
        return None if taken is None else (Lane.SHORT, *taken)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopping and (taken := self._take()) is None:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._is_stopping:
                    return
            assert taken is not None
            lane, owner, job = taken
            is_done = True
            try:
                is_done = self._work_on(job, lane)
            finally:
                with self._changed:
                    self._give_back(lane, owner, None if is_done else job)
                del owner, job  # An idle thread must not hold on to what a client asked for last.

    def _give_back(self, lane: Lane, owner: Hashable, rest: _Job | None) -> None:
        """Take note that a slice is over; what is left is long."""
        if lane is Lane.LONG:
            self._has_long = False
            self._queues[lane].done(owner, rest)
        else:
            self._queues[lane].done(owner)
            if rest is not None:
                rest.needed = Lane.LONG
                self._put(owner, rest)
        self._changed.notify()

    def _work_on(self, job: _Job, lane: Lane) -> bool:
        """Give a job its slice; tell whether that was its last."""
        outcome: Any
        try:
            return job.go_on(lane, lambda: self._drops)
        except StopIteration as end:
            outcome = end.value
        except Exception as error:
            outcome = kept(error)
        except BaseException as fault:
            self._loop.call_soon_threadsafe(job.resolve, StorageError(f"the read was ended by {fault!r}"))
            raise
        self._loop.call_soon_threadsafe(job.resolve, outcome)
        return True
