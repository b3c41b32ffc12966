"""The reader threads: what is not in the page cache is read there, never on the event loop.

Clients take turns, and none has more than one read under way: however many one of them asks for, the other thread is
for the others.
"""

import asyncio
import threading
from collections.abc import Callable, Hashable
from typing import Any

from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.waiting import Later
from tidelog.storage.errors import StorageError

# One slow disk does not get faster with more readers; two let a small read pass a large one.
READERS = 2


class _Read(Later):
    """The answer of a read, and how it is read."""

    __slots__ = ("is_dropped", "job")

    def __init__(self, job: Callable[[], Any]) -> None:
        super().__init__()
        self.job = job
        self.is_dropped = False

    def cancel(self) -> None:
        """Read nothing for a client that is gone, unless it is being read."""
        self.is_dropped = True


class Readers:
    """A small pool of threads, started when first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Ended) -> None:
        self._loop = loop
        self._ended = ended
        self._queue: FairQueue[_Read] = FairQueue()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_stopping = False

    def submit(self, job: Callable[[], Any], owner: Hashable) -> Later:
        """Run `job` on a reader thread when it is its owner's turn.

        The `Later` gets what it returns, or the exception that ended it. Event loop only.
        """
        read = _Read(job)
        with self._changed:
            self._queue.put(owner, read)
            self._changed.notify()
            is_short = self._idle < len(self._queue) and len(self._threads) < READERS
        if is_short:
            thread = new_thread(f"reader_{len(self._threads)}", self._run, self._ended)
            self._threads.append(thread)
            thread.start()
        return read

    def stop(self) -> None:
        """Wait for the reads under way; the others are left."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopping and (taken := self._queue.take()) is None:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._is_stopping:
                    return
            assert taken is not None
            owner, read = taken
            try:
                if not read.is_dropped:
                    self._answer(read)
            finally:
                with self._changed:
                    self._queue.done(owner)
                    self._changed.notify()
                del owner, read  # An idle thread must not hold on to what a client asked for last.

    def _answer(self, read: _Read) -> None:
        outcome: Any
        try:
            outcome = read.job()
        except Exception as error:
            outcome = error
        except BaseException as fault:
            self._loop.call_soon_threadsafe(read.resolve, StorageError(f"the read was ended by {fault!r}"))
            raise
        self._loop.call_soon_threadsafe(read.resolve, outcome)
