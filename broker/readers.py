"""The reader threads: what is not in the page cache is read there, and what takes long is done there.

One of them does what takes long: large batches, lookups that walk or decompress much, work that has had its time. The
other is for what is short, however much of the long there is. Clients take turns in each, and none has more than one
piece of work under way in either. What is left of long work after a slice of time stands behind the others.
"""

import threading
from collections.abc import Hashable

from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.running import Running
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.work import Lane

# One for what takes long, one for what is short. One slow disk does not get faster with more.
READERS = 2


class Readers:
    """A small pool of threads, started when first needed."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._queues: dict[Lane, FairQueue[Running]] = {Lane.LONG: FairQueue(), Lane.SHORT: FairQueue()}
        self._has_long = False  # under way
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._drops = False
        self._is_stopping = False

    def put(self, owner: Hashable, request: Running) -> None:
        """Go on with a request on a reader thread when it is its owner's turn. Event loop only."""
        with self._changed:
            self._put(owner, request)
            waiting = sum(map(len, self._queues.values()))
            is_short_of_threads = self._idle < waiting and len(self._threads) < READERS
        if is_short_of_threads:
            thread = new_thread(f"reader_{len(self._threads)}", self._run, self._ended)
            self._threads.append(thread)
            thread.start()

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

    def _put(self, owner: Hashable, request: Running) -> None:
        self._queues[Lane.LONG if request.needed is Lane.LONG else Lane.SHORT].put(owner, request)
        self._changed.notify()

    def _take(self) -> tuple[Lane, Hashable, Running] | None:
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
            lane, owner, request = taken
            is_done = True
            try:
                is_done = request.go_on(lane, lambda: self._drops)
            finally:
                with self._changed:
                    self._give_back(lane, owner, None if is_done else request)
                del owner, request  # An idle thread must not hold on to what a client asked for last.

    def _give_back(self, lane: Lane, owner: Hashable, rest: Running | None) -> None:
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
