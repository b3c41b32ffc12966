"""Parked fetches: they wait for a log to grow.

A fetch that lacks `min_bytes` is parked on each of its partitions. Every append counts towards it, and nothing polls.
It continues once: when it has enough, when its time is up, or when the broker stops. A watch outlasts one fetch, for
example that of a fetch session; the next growth of its partition notifies and removes it. Event loop only.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.quota import Hold, Owner, Quota
from tidelog.broker.timers import Timers

_log = logging.getLogger(__name__)

# About how long a turn of the loop answers fetches: the next produce waits no longer.
TURN_S: Final = 0.002
# A fetch that finds nothing may wait longer than it asked for, by an eighth of that and at most ROUNDED_MS. More than
# that, and multiples of a tenth of a second, starved clients that pause another of their partitions every 100 ms.
ROUNDED_BY: Final = 8
ROUNDED_MS: Final = 64
# About the memory of a parked fetch with its request, and of each of its partitions.
WAITER_BYTES: Final = 2200
PLACE_BYTES: Final = 700
# Stale entries are at most this many, or at most half of all entries.
DEAD_MAX: Final = 16
NEVER: Final = 1 << 62
NOBODY: Final[Any] = object()

_numbers: Final = itertools.count()
# The weight of a parked fetch in its connection's unsent answers: about its memory. Its answer is read when it can
# leave.
PARKED_WEIGHT_BYTES: Final = 1000


class Parked:
    """The parked fetches, by the time when each is due.

    Fetches that are due at nearly the same time are answered together: the time is rounded up by at most an eighth, and
    ROUNDED_MS. So a thousand idle consumers wake the broker sixteen times a second and not a thousand times, and one
    poll among sixty costs 0.6 of what it costs among fifteen. If many fetches are due at once, a turn of the loop
    answers them for TURN_S and leaves the others to the next.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers, quota: Quota) -> None:
        """Begin without fetches; `quota` bounds the memory of those that wait."""
        self.loop = loop
        self._now_ms = clock.monotonic_ms
        self._timers = timers
        self.quota = quota
        # Partitions that have grown and have not notified all their watches yet.
        self.growing: dict[Waiters, None] = {}
        # The parked fetches by due time.
        self._due: dict[int, dict[FetchWaiter, None]] = {}
        # Iterators over due fetches; they yield None for a step that found none.
        self._waking: deque[Iterator[FetchWaiter | None]] = deque()
        self.is_exact = False  # tests that move the clock by a fetch's time expect it to be due
        self._is_released = False

    def __len__(self) -> int:
        """Return the number of parked fetches."""
        return sum(map(len, self._due.values()))

    def add(self, waiter: "FetchWaiter", max_wait_ms: int) -> "dict[FetchWaiter, None]":
        """Park a fetch for `max_wait_ms`; return the dictionary from which it must be removed."""
        due_ms = self._now_ms() + max_wait_ms
        if not self.is_exact:
            step_ms = max_wait_ms // ROUNDED_BY or 1
            if step_ms > ROUNDED_MS:
                step_ms = ROUNDED_MS
            due_ms = due_ms // step_ms * step_ms + step_ms
        due = self._due.get(due_ms)
        if due is None:
            due = self._due[due_ms] = {}
            self._timers.call_at(due_ms, partial(self._time_is_up, due_ms))
        due[waiter] = None
        if self._is_released:
            self.wake(iter([waiter]))
        return due

    def _time_is_up(self, due_ms: int) -> None:
        self.wake(self._all_due(due_ms))

    def _all_due(self, due_ms: int) -> "Iterator[FetchWaiter]":
        """Yield the fetches that are due then; each is answered before the next."""
        yield from list(self._due[due_ms])
        del self._due[due_ms]

    @property
    def is_settled(self) -> bool:
        """Tell whether no parked fetch is due."""
        return not self._waking

    def release(self) -> None:
        """Answer all present and later fetches with what there is: the broker stops."""
        self._is_released = True
        for due in self._due.values():
            self.wake(iter(list(due)))

    def make_way(self, owner: Owner) -> None:
        """Answer the fetch of a connection that sends another request: while a test holds the clock, its time never
        comes.
        """
        for due in self._due.values():
            for waiter in due:
                if waiter.owner is owner:
                    self.wake(iter((waiter,)))

    def wake(self, due: "Iterator[FetchWaiter | None]") -> None:
        """Answer due fetches from the next turn of the loop on."""
        self._waking.append(due)
        if len(self._waking) == 1:
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Answer some of the due fetches, from each iterator in turn."""
        waking = self._waking
        until = time.monotonic() + TURN_S
        while waking:
            waiter = next(waking[0], NOBODY)
            if waiter is NOBODY:
                waking.popleft()
                continue
            if waiter is not None:
                waiter.finish()
            if len(waking) > 1:
                waking.rotate(-1)
            if time.monotonic() >= until:
                self.loop.call_soon(self._turn)
                return


class Watch(Protocol):
    """Is notified once when a partition has grown."""

    def grew(self, place: "Waiters") -> "FetchWaiter | None":
        """Handle the growth; return a fetch that has enough now."""

    def released(self) -> "FetchWaiter | None":
        """Handle the end of the partition; return a fetch that must be answered."""


# Shared by the thousands of partitions without watches.
_NO_WATCHES: dict[object, Watch] = {}


class Waiters:
    """The fetches and watches that wait for one partition to grow.

    A fetch is checked again when the partition has grown to its threshold, a watch when it has grown at all. An append
    costs the same however many there are, plus what it wakes. Entries of fetches that were answered otherwise stay
    until they are reached, or are the majority.
    """

    __slots__ = (
        "_dead",
        "_entries",
        "_firing",
        "_is_waking",
        "_next",
        "_parked",
        "_watches",
        "count",
        "grown_bytes",
    )

    def __init__(self) -> None:
        """Begin without fetches and watches."""
        self.count = 0  # of fetches and watches
        self.grown_bytes = 0  # counted only while `count` is not 0
        self._next = NEVER  # the smallest threshold
        self._parked: Parked | None = None
        # (threshold, number, fetch, round of the fetch): a heap.
        self._entries: list[tuple[int, int, FetchWaiter, int]] = []
        self._dead = 0
        self._is_waking = False
        self._watches = _NO_WATCHES  # by owner, one each
        self._firing = _NO_WATCHES  # those being notified

    def watch(self, parked: Parked, owner: object, watch: Watch) -> None:
        """Notify `watch`, the only one of its owner, when the partition grows from here on, once."""
        self._parked = parked
        self.count += 1
        if self._watches is _NO_WATCHES:
            self._watches = {}
        self._watches[owner] = watch

    def unwatch(self, owner: object) -> Watch | None:
        """Remove an owner's watch; return it if it was not notified yet."""
        watch = self._watches.pop(owner, None) or self._firing.pop(owner, None)
        if watch is not None:
            self._leave()
        return watch

    def _leave(self) -> None:
        self.count -= 1
        if not self.count:
            self._entries.clear()
            self._dead = 0
            self._next = NEVER

    def add(self, parked: Parked) -> None:
        """Count one more fetch; `expect` sets its threshold."""
        self._parked = parked
        self.count += 1

    def remove(self) -> None:
        """Remove a fetch that was added."""
        self._leave()
        if self.count:
            self.mark_stale()

    def expect(self, waiter: "FetchWaiter", more_bytes: int) -> None:
        """Check a fetch again when the partition has grown by `more_bytes`."""
        threshold = self.grown_bytes + more_bytes
        heappush(self._entries, (threshold, next(_numbers), waiter, waiter.round))
        self._next = min(self._next, threshold)

    def mark_stale(self) -> None:
        """Note that an entry has become stale."""
        self._dead += 1
        if self._dead > DEAD_MAX and 2 * self._dead > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].round == entry[3]]
            heapify(self._entries)
            self._dead = 0

    def grow(self, size_bytes: int) -> None:
        """Note that the partition has grown."""
        self.grown_bytes += size_bytes
        if (
            (self._watches or self.grown_bytes >= self._next)
            and not self._is_waking
            and self._parked is not None
        ):
            self._is_waking = True
            self._parked.growing[self] = None
            self._parked.wake(self._reached(self._parked))

    def _reached(self, parked: Parked) -> "Iterator[FetchWaiter | None]":
        """Notify the watches, and take the entries whose threshold is reached; yield the fetches that have enough."""
        notified_bytes = -1  # `grown_bytes` when the watches were last notified
        while True:
            if self._firing:
                _, watch = self._firing.popitem()
                self._leave()
                yield watch.grew(self)
            elif self._watches and notified_bytes != self.grown_bytes:
                notified_bytes = self.grown_bytes
                # Watches that are added while these are notified have seen the growth.
                self._firing, self._watches = self._watches, _NO_WATCHES
            elif self._entries and self._entries[0][0] <= self.grown_bytes:
                yield self._first_reached()
            else:
                break
        self._next = self._entries[0][0] if self._entries else NEVER
        self._is_waking = False
        parked.growing.pop(self, None)

    def _first_reached(self) -> "FetchWaiter | None":
        """Take the first entry; return its fetch if it has enough."""
        _, _, waiter, number = heappop(self._entries)
        is_good = waiter.round == number
        if is_good and not waiter.has_enough(self):
            return None
        # A stale entry was counted as such. That of a fetch with enough is counted when the fetch is answered.
        self._dead -= 1
        return waiter if is_good else None

    def release(self) -> None:
        """Answer all with what there is: the partition is going away."""
        if self._parked is not None:
            self._parked.wake(self._released())

    def _released(self) -> "Iterator[FetchWaiter | None]":
        for entry in list(self._entries):
            yield entry[2]
        for watches in (self._watches, self._firing):
            while watches:
                _, watch = watches.popitem()
                self._leave()
                yield watch.released()


class FetchWaiter(Later):
    """A fetch that waits for `missing_bytes` more in all its partitions together, for `max_wait_ms` at most.

    `places` are the partitions, and `comes_to` becomes the response. The count is exact, yet no append checks the fetch
    in vain: each of k partitions has a threshold of a share of what is missing, and the k shares together are no more
    than that. So the fetch cannot have enough before one partition has grown by its share. In a fetch session, the
    session watches the partitions with nothing new, and notifies its one waiting fetch when one has grown. The fetch is
    charged to the session.
    """

    __slots__ = (
        "_bases",
        "_comes_to",
        "_due",
        "_hold",
        "_in_session",
        "_missing_bytes",
        "_of",
        "_parked",
        "_share",
        "owner",
        "round",
    )

    def __init__(
        self,
        parked: Parked,
        places: Collection[Waiters],
        missing_bytes: int,
        max_wait_ms: int,
        comes_to: Any,
        weight_bytes: int = PARKED_WEIGHT_BYTES,
        of: int = 0,
    ) -> None:
        """Wait; `of` is the number of partitions of a session, with those it watches itself; 0 without a session."""
        Later.__init__(self, weight_bytes)
        self._comes_to: Any = comes_to  # None once the wait is over
        self._missing_bytes = missing_bytes
        self._parked = parked
        self._hold: Hold | None = None
        self.owner: Owner | None = None
        self.round = 0  # entries of earlier rounds are stale; -1 once the wait is over
        # `grown_bytes` of each partition when its growth was last counted.
        self._bases: dict[Waiters, int] = {}
        self._of, self._in_session = of, of > 0
        self._share = 0  # the threshold of each; 0 before the first
        if places:
            self._bases = {place: place.grown_bytes for place in places}
            self._of = max(of, len(self._bases))
            for place in self._bases:
                place.add(parked)
            self._expect_shares()
        self._due = parked.add(self, max_wait_ms)

    def _expect_shares(self) -> None:
        """Set the threshold of each partition: all that is missing for one, half of an equal share for several."""
        self._share = self._missing_bytes if self._of == 1 else max(1, self._missing_bytes // (2 * self._of))
        for place in self._bases:
            place.expect(self, self._share)

    def charge(self, owner: Owner) -> None:
        """Charge the fetch's memory to a connection while it waits; at the bound it waits no longer."""
        self.owner = owner
        # If a single byte is enough, it never waits at the partitions that the session watches.
        places = self._of if self._missing_bytes > 1 else len(self._bases)
        if self._in_session and not places:
            return
        size_bytes = PLACE_BYTES * places + (0 if self._in_session else WAITER_BYTES)
        self._hold = self._parked.quota.hold(owner, size_bytes)
        if self._hold is None:
            self._parked.wake(iter((self,)))

    def hurry(self) -> bool:
        """Answer soon with what there is."""
        self._parked.wake(iter((self,)))
        return True

    def has_enough(self, place: Waiters) -> bool:
        """Count the growth of a partition since the last time; tell whether nothing is missing any more."""
        self._count(place)
        if self._missing_bytes > 0:
            if self._share == 1 or 0 < self._of * self._share <= self._missing_bytes:
                place.expect(self, self._share)
            else:
                self._lower_shares(place)
        return self._missing_bytes <= 0

    def grew(self, place: Waiters, size_bytes: int) -> bool:
        """As `has_enough`, for a partition of the session that grew by `size_bytes`; also wait there from now on."""
        if self._comes_to is None or place in self._bases:
            return False
        place.add(self._parked)
        self._bases[place] = place.grown_bytes - size_bytes
        return self.has_enough(place)

    def _count(self, place: Waiters) -> None:
        self._missing_bytes -= place.grown_bytes - self._bases[place]
        self._bases[place] = place.grown_bytes

    def _lower_shares(self, reached: Waiters) -> None:
        """Count the growth of all partitions, and set smaller thresholds."""
        self.round += 1
        for place in self._bases:
            self._count(place)
            if place is not reached:
                place.mark_stale()
        if self._missing_bytes > 0:
            self._expect_shares()

    def finish(self) -> None:
        """Answer now with what there is."""
        comes_to = self._comes_to
        if comes_to is None:
            return
        self._forget()
        try:
            self.resolve(comes_to)
        except Exception:  # the other due fetches are still answered
            _log.exception("a parked fetch could not be answered")

    def cancel(self) -> None:
        """End the wait without an answer."""
        self._forget()

    def _forget(self) -> None:
        """End the wait."""
        if self._comes_to is None:
            return
        self._comes_to = None
        self.round = -1
        if self._hold is not None:
            self._hold.give_back()
        del self._due[self]
        for place in self._bases:
            place.remove()
