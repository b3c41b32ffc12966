"""Drives the coroutines of requests, on the event loop and on the reader threads.

Moves coroutines from one to the other, bounds the time that a request takes in a turn, and cancels requests. A response
is encoded on the thread where its coroutine ends, or on a reader thread if that took more than a turn.

The reader threads read what is not in the page cache, and do what takes long. At most one of them takes long work:
large batches, lookups that walk or decompress much, and work that has used up its slice. The others take short work
alone, however much long work there is. Clients take turns in each, and none has more than one piece of work in progress
in either. Long work that has used up its slice waits until others had a turn.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from tidelog.broker.answers import Answer, Later, Streamed, kept, outcome_of
from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.turns import Turns
from tidelog.broker.work import ANYWHERE, LOOP, NEXT_TO_ANSWER, SHORT, TURN, Coro, Lane, Stopping, reader
from tidelog.storage.errors import StorageError

# How long the event loop works on a request that can continue elsewhere.
LOOP_S: Final = 0.002
# The number of steps on the loop before time is measured: most requests need no more.
FREE_STEPS: Final = 64
# The slice of a reader thread. Work that is not done after a short slice is long. So a hundred clients with long work
# delay a short read by half a second.
SLICES_S: Final = {Lane.SHORT: 0.005, Lane.LONG: 0.02}
# One thread for long work, and three for short: an SSD reads more at once than one after another.
READERS: Final = 4
# The answer of a request without a response.
NO_ANSWER: Answer = ([], 0)


class Threads(Protocol):
    """Where coroutines run, which is a broker."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, on which they begin."""

    @property
    def turns(self) -> Turns:
        """What waits there for a later turn."""

    @property
    def readers(self) -> "Readers":
        """The reader threads."""


def same(response: Any) -> Any:
    """Return a response without encoding it."""
    return response


class Running(Later):
    """A running coroutine; its response is what `encode` makes of the coroutine's result.

    Its connection takes no other request until the coroutine has only to wait.
    """

    __slots__ = (
        "_awaited",
        "_coroutine",
        "_encode",
        "_is_hurried",
        "_is_large",
        "_is_long",
        "_is_over",
        "_owner",
        "_threads",
        "keeps_request",
        "needed",
    )

    def __init__(
        self,
        threads: Threads,
        owner: Any,
        coroutine: Coro[Any],
        encode: Callable[[Any], Answer | Streamed | Any] = same,
        *,
        is_large: bool = False,
    ) -> None:
        """Run a coroutine. `owner` takes turns on the readers and is charged; encode on a reader if `is_large`."""
        super().__init__()
        self._threads = threads
        self._owner = owner
        self._coroutine: Coroutine[Any, Any, Any] = coroutine
        self._encode = encode
        self._is_large = is_large
        self._is_long = False  # its steps on the event loop took more than a turn
        self._is_hurried = False
        self._is_over = False  # the client has left
        self._awaited: Later | None = None
        self.keeps_request = False
        self.needed = LOOP  # the lane in which a reader thread continues it

    def begin(self) -> Any:
        """Run as far as possible now, on the event loop; return the response if that completes it, else this object."""
        try:
            self._advance(None)
        except StopIteration as end:
            return end.value
        return self

    # -- on the event loop ---------------------------------------------------------------------------------------

    def _go_on(self, got: Any) -> None:
        try:
            self._advance(got)
        except StopIteration as end:
            self._end(end.value)
        except Exception as fault:
            self.resolve(kept(fault))

    def _advance(self, got: Any) -> None:
        """Run until the coroutine waits, or needs another thread. StopIteration at its end."""
        send = self._coroutine.send
        steps, began_s, ends_s = 0, monotonic(), 0.0
        while True:
            needed = send(got)
            got = LOOP
            if needed is ANYWHERE:
                if monotonic() - began_s >= LOOP_S:
                    self._submit(needed)
                    return
            elif needed is not LOOP:
                self._wait_for(needed)
                return
            elif steps < FREE_STEPS:
                steps += 1
            else:
                ends_s = ends_s or self._threads.turns.share_ends_s()
                if monotonic() >= ends_s:
                    self._is_long = True
                    self._wait_for_turn()
                    return

    def _wait_for(self, needed: Any) -> None:
        """Wait for what the coroutine awaits."""
        if isinstance(needed, Later):
            self._wait_for_later(needed)
        elif needed is TURN:
            self._wait_for_turn()
        elif needed is NEXT_TO_ANSWER:
            self.resolve(NEXT_TO_ANSWER)
        else:
            self._submit(needed)

    def taken(self) -> Any:
        """Return the response when its turn to leave has come; None if it is not complete."""
        if self.response is NEXT_TO_ANSWER:
            self.response = None
            self._go_on(None)
        return self.response

    def _wait_for_turn(self) -> None:
        self._threads.turns.wait(partial(self._go_on, LOOP))

    def _wait_for_later(self, later: Later) -> None:
        self._awaited = later
        later.ready = self._has_come
        later.charge(self._owner)
        if self._is_hurried:
            later.hurry()
        if later.weight_bytes < self.weight_bytes:
            lighter_bytes = self.weight_bytes - later.weight_bytes
            self.weight_bytes = later.weight_bytes
            if self.lightened is not None:
                self.lightened(lighter_bytes)

    def _has_come(self) -> None:
        self._awaited = None
        self._go_on(None)

    def _submit(self, needed: Lane) -> None:
        self.needed = needed
        self._threads.readers.put(self._owner, self)

    def _came_back(self, needed: Any) -> None:
        """Continue after a reader thread."""
        if needed is not LOOP and not self._is_over:
            self._wait_for(needed)
        elif self._is_large:
            # The rest of a large request may take long on the loop, too, so others have their turn first.
            self._threads.turns.wait(self._resume)
        else:
            self._resume()

    def _resume(self) -> None:
        if self._is_over:
            self._coroutine.close()
        else:
            self._go_on(LOOP)

    def _end(self, response: Any) -> None:
        """Encode the response, on a reader thread if it may be large."""
        if (self._is_large or self._is_long) and response is not None:
            self._coroutine = _on_reader(response)
            self._go_on(None)
        else:
            self.resolve(outcome_of(partial(self._encoded, response)))

    def _encoded(self, response: Any) -> Any:
        return NO_ANSWER if response is None else self._encode(response)

    def hurry(self) -> bool:
        """Complete soon; return false for large requests, which are not worth it."""
        self._is_hurried = True
        if self._awaited is not None:
            self._awaited.hurry()
        return not self._is_large

    def cancel(self) -> None:
        """Give up, at any point. A wait for a turn on the event loop or for a flush is not cut short."""
        self._is_over = True
        if self._awaited is not None:
            if self._awaited.ends_with_client:
                self._awaited.ready = None
                self._awaited.cancel()
                self._awaited = None
                self._coroutine.close()
        elif self.response is NEXT_TO_ANSWER:
            self._coroutine.close()

    # -- on a reader thread --------------------------------------------------------------------------------------

    def go_on(self, lane: Lane, is_stopping: Callable[[], bool]) -> bool:
        """Make steps for a slice; tell whether it leaves the reader threads."""
        outcome: Any
        coroutine, ends_s = self._coroutine, monotonic() + SLICES_S[lane]
        try:
            while not self._is_over:
                needed = coroutine.throw(Stopping()) if is_stopping() else coroutine.send(lane)
                if needed is LOOP or not isinstance(needed, Lane):
                    self._to_loop(self._came_back, needed)
                    return True
                if needed > lane or monotonic() >= ends_s:
                    self.needed = needed
                    return False
            coroutine.close()
            return True
        except StopIteration as end:
            outcome = outcome_of(partial(self._encoded, end.value))
        except Stopping:
            outcome = NO_ANSWER
        except Exception as error:
            outcome = kept(error)
        except BaseException as fault:
            self._to_loop(self.resolve, StorageError(f"the read was ended by {fault!r}"))
            raise
        self._to_loop(self.resolve, outcome)
        return True

    def _to_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        self._threads.loop.call_soon_threadsafe(call, argument)


async def _on_reader(response: Any) -> Any:
    with suppress(Stopping):
        await reader(SHORT)
    return response


class Readers:
    """A small pool of threads, started on first use."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._queues: dict[Lane, FairQueue[Running]] = {Lane.LONG: FairQueue(), Lane.SHORT: FairQueue()}
        self._has_long = False  # in progress
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._drops = False
        self._is_stopping = False

    def put(self, owner: Hashable, request: Running) -> None:
        """Continue a request on a reader thread when its owner's turn has come. Event loop only."""
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
        """Tell whether no work waits or runs. Any thread."""
        with self._changed:
            return self._idle == len(self._threads) and not any(map(len, self._queues.values()))

    def drop(self) -> None:
        """End all work at its next step, with what it has by then: the broker stops."""
        self._drops = True

    def stop(self) -> None:
        """Wait for the present steps, and abandon the rest."""
        with self._changed:
            self._drops = self._is_stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _put(self, owner: Hashable, request: Running) -> None:
        self._queues[Lane.LONG if request.needed is Lane.LONG else Lane.SHORT].put(owner, request)
        self._changed.notify()

    def _take(self) -> tuple[Lane, Hashable, Running] | None:
        """Return the next request: long work if none is in progress, else short work."""
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
                del owner, request  # an idle thread must not refer to a client's last request

    def _give_back(self, lane: Lane, owner: Hashable, rest: Running | None) -> None:
        """Note the end of a slice; unfinished work is long."""
        if lane is Lane.LONG:
            self._has_long = False
            self._queues[lane].done(owner, rest)
        else:
            self._queues[lane].done(owner)
            if rest is not None:
                rest.needed = Lane.LONG
                self._put(owner, rest)
        self._changed.notify()
