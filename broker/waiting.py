"""The fetches that wait for a log to grow.

A fetch short of `min_bytes` is parked on each of its partitions: every append counts towards it, and nothing
polls. It runs again once, when it has enough, when its time is up, or when the broker stops. Who watches a partition
for longer than one fetch, as a fetch session does, is told of its growth once, and then watches it no more. All of
this belongs to the event loop.
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

# How long a turn of the loop answers fetches that are due, about: the next produce waits no longer than that.
TURN_S = 0.002
# By how much longer than it asked for a fetch may wait that finds nothing: a share of that, and at most so long. More,
# and multiples of a tenth of a second, kept clients out that pause another of their partitions every 100 ms.
ROUNDED_BY = 8
ROUNDED_MS = 64
# What a parked fetch takes in memory with its request, about, and what for each of its partitions.
WAITER_BYTES = 2200
PLACE_BYTES = 700
# Entries that are not good any more are few beside those that are, or no more than that.
DEAD_MAX = 16
NEVER: Final = 1 << 62
NOBODY: Final[Any] = object()

_numbers = itertools.count()
# What a parked fetch weighs, about what it takes in memory. Its answer is read when it can leave.
PARKED_WEIGHT_BYTES = 1000


class Parked:
    """The fetches that wait, and when the time of each is up.

    Those whose time is up at nearly the same moment are answered together: a time is rounded up by at most an eighth,
    and ROUNDED_MS. So a thousand idle consumers wake the broker sixteen times a second and not a thousand, and one poll
    among sixty costs 0.6 of what it costs among fifteen. However many are due at once, a turn of the loop answers them
    for TURN_S and leaves the others to the next.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers, quota: Quota) -> None:
        """Let fetches wait as far as there is room for what they hold."""
        self.loop = loop
        self._now_ms = clock.monotonic_ms
        self._timers = timers
        self.quota = quota
        # Partitions that have grown, of which not all who watch them were told.
        self.growing: dict[Waiters, None] = {}
        # Those that wait, by when they are due.
        self._due: dict[int, dict[FetchWaiter, None]] = {}
        # Each yields a fetch that is due, or None where it only looked at one.
        self._waking: deque[Iterator[FetchWaiter | None]] = deque()
        self.is_exact = False  # Whoever moves the clock by a fetch's time expects that to be up.
        self._is_released = False

    def __len__(self) -> int:
        """Return how many fetches wait."""
        return sum(map(len, self._due.values()))

    def add(self, waiter: "FetchWaiter", max_wait_ms: int) -> "dict[FetchWaiter, None]":
        """Let a fetch wait so long; return those that wait with it, of which it is to be taken when it does no more."""
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
        """Yield the fetches that are due then, each of which is answered before the next."""
        yield from list(self._due[due_ms])
        del self._due[due_ms]

    @property
    def is_settled(self) -> bool:
        """Tell whether none waits that is due."""
        return not self._waking

    def release(self) -> None:
        """Answer all of them with what is there, and whoever comes: the broker stops."""
        self._is_released = True
        for due in self._due.values():
            self.wake(iter(list(due)))

    def make_way(self, owner: Owner) -> None:
        """Answer what a connection waits for: it asks for more, and no time passes while a test holds the clock."""
        for due in self._due.values():
            for waiter in due:
                if waiter.owner is owner:
                    self.wake(iter((waiter,)))

    def wake(self, due: "Iterator[FetchWaiter | None]") -> None:
        """Answer fetches that are due, from the next turn of the loop on."""
        self._waking.append(due)
        if len(self._waking) == 1:
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Answer some of those that are due, of each of their partitions in turn."""
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
    """What is told once that a partition has grown."""

    def grew(self, place: "Waiters") -> "FetchWaiter | None":
        """Take note; return a fetch that has enough now."""

    def released(self) -> "FetchWaiter | None":
        """Take note that the partition is going away; return a fetch that is to be answered."""


# Of a partition that nobody watches: there are thousands.
_NO_WATCHES: dict[object, Watch] = {}


class Waiters:
    """The fetches that wait for one partition to grow, and who watches it beyond one fetch.

    A fetch is looked at again when the partition has grown to its threshold, whoever watches when it has grown at all:
    an append costs the same however many there are, and what it wakes. Entries of fetches that were answered otherwise
    stay until they are reached or are the most.
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
        """Begin with nobody."""
        self.count = 0  # of those that wait or watch
        self.grown_bytes = 0  # while anybody waits
        self._next = NEVER  # the smallest threshold
        self._parked: Parked | None = None
        # (threshold, number, fetch, round of the fetch): a heap.
        self._entries: list[tuple[int, int, FetchWaiter, int]] = []
        self._dead = 0
        self._is_waking = False
        self._watches = _NO_WATCHES  # by their owners, one of each
        self._firing = _NO_WATCHES  # those that are being told

    def watch(self, parked: Parked, owner: object, watch: Watch) -> None:
        """Tell `watch`, the only one of its owner, when the partition grows from here on, once."""
        self._parked = parked
        self.count += 1
        if self._watches is _NO_WATCHES:
            self._watches = {}
        self._watches[owner] = watch

    def unwatch(self, owner: object) -> Watch | None:
        """Tell an owner's watch nothing any more; return it, if it was not told yet."""
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
        """Let one fetch more wait; `expect` says for what."""
        self._parked = parked
        self.count += 1

    def remove(self) -> None:
        """Let one that was added wait no longer."""
        self._leave()
        if self.count:
            self.outdate()

    def expect(self, waiter: "FetchWaiter", more_bytes: int) -> None:
        """Look at a fetch again when the partition has grown by so much."""
        threshold = self.grown_bytes + more_bytes
        heappush(self._entries, (threshold, next(_numbers), waiter, waiter.round))
        self._next = min(self._next, threshold)

    def outdate(self) -> None:
        """Take note that an entry is not good any more."""
        self._dead += 1
        if self._dead > DEAD_MAX and 2 * self._dead > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].round == entry[3]]
            heapify(self._entries)
            self._dead = 0

    def grow(self, size_bytes: int) -> None:
        """Take note that the partition has grown."""
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
        """Tell those who watch, and take the entries whose threshold is reached; yield the fetches that have enough."""
        told_bytes = -1  # how far it had grown when those who watch were told
        while True:
            if self._firing:
                _, watch = self._firing.popitem()
                self._leave()
                yield watch.grew(self)
            elif self._watches and told_bytes != self.grown_bytes:
                told_bytes = self.grown_bytes
                # Who watches anew meanwhile has seen what there is.
                self._firing, self._watches = self._watches, _NO_WATCHES
            elif self._entries and self._entries[0][0] <= self.grown_bytes:
                yield self._first_reached()
            else:
                break
        self._next = self._entries[0][0] if self._entries else NEVER
        self._is_waking = False
        parked.growing.pop(self, None)

    def _first_reached(self) -> "FetchWaiter | None":
        """Take the first entry; return its fetch if that has enough."""
        _, _, waiter, number = heappop(self._entries)
        is_good = waiter.round == number
        if is_good and not waiter.has_enough(self):
            return None
        # It was counted when it ceased to be good; that of a fetch that has enough will be, with its answer.
        self._dead -= 1
        return waiter if is_good else None

    def release(self) -> None:
        """Answer everybody with what is there: the partition is going away."""
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
    """A fetch that waits for `missing_bytes` more on any of its partitions, at most `max_wait_ms`: `places` are theirs.

    `comes_to` is its response then. Exact, and still no append looks at it in vain: on each of k partitions it
    expects a share of what is missing, of which all k together are no more than that. So it has not got enough before
    one of them has grown by its share. Of the partitions of a fetch session those that have nothing new are watched by
    the session, which says when one of them has grown. It has one fetch that waits, and is charged with it.
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
        """Wait; `of` is how many partitions a session has, with those that it watches itself; 0 is none."""
        Later.__init__(self, weight_bytes)
        self._comes_to: Any = comes_to  # None once nothing is waited for
        self._missing_bytes = missing_bytes
        self._parked = parked
        self._hold: Hold | None = None
        self.owner: Owner | None = None
        self.round = 0  # entries of earlier rounds are not good any more; -1 once nothing is waited for
        # How far each had grown when its growth was last counted.
        self._bases: dict[Waiters, int] = {}
        self._of, self._in_session = of, of > 0
        self._share = 0  # that is expected of each: nothing yet
        if places:
            self._bases = {place: place.grown_bytes for place in places}
            self._of = max(of, len(self._bases))
            for place in self._bases:
                place.add(parked)
            self._expect_shares()
        self._due = parked.add(self, max_wait_ms)

    def _expect_shares(self) -> None:
        """Expect of each partition a share of what is missing: of one all of it, of several half, to share anew."""
        self._share = self._missing_bytes if self._of == 1 else max(1, self._missing_bytes // (2 * self._of))
        for place in self._bases:
            place.expect(self, self._share)

    def charge(self, owner: Owner) -> None:
        """Charge a connection with what the fetch holds while it waits; at the bound it waits no longer."""
        self.owner = owner
        # Where a single byte is enough it never comes to wait at those that are watched otherwise.
        places = self._of if self._missing_bytes > 1 else len(self._bases)
        if self._in_session and not places:
            return
        size_bytes = PLACE_BYTES * places + (0 if self._in_session else WAITER_BYTES)
        self._hold = self._parked.quota.hold(owner, size_bytes)
        if self._hold is None:
            self._parked.wake(iter((self,)))

    def hurry(self) -> bool:
        """Answer with what is there, soon."""
        self._parked.wake(iter((self,)))
        return True

    def has_enough(self, place: Waiters) -> bool:
        """Count what a partition has grown by since it was counted last; tell whether nothing is missing any more."""
        self._count(place)
        if self._missing_bytes > 0:
            if self._share == 1 or 0 < self._of * self._share <= self._missing_bytes:
                place.expect(self, self._share)
            else:
                self._share_anew(place)
        return self._missing_bytes <= 0

    def grew(self, place: Waiters, size_bytes: int) -> bool:
        """Do the same for one that was watched otherwise, and has grown by so much: from now on wait there too."""
        if self._comes_to is None or place in self._bases:
            return False
        place.add(self._parked)
        self._bases[place] = place.grown_bytes - size_bytes
        return self.has_enough(place)

    def _count(self, place: Waiters) -> None:
        self._missing_bytes -= place.grown_bytes - self._bases[place]
        self._bases[place] = place.grown_bytes

    def _share_anew(self, reached: Waiters) -> None:
        """Count all partitions, and expect smaller shares of them."""
        self.round += 1
        for place in self._bases:
            self._count(place)
            if place is not reached:
                place.outdate()
        if self._missing_bytes > 0:
            self._expect_shares()

    def finish(self) -> None:
        """Answer now with what is there."""
        comes_to = self._comes_to
        if comes_to is None:
            return
        self._forget()
        try:
            self.resolve(comes_to)
        except Exception:  # The others that are due are answered.
            _log.exception("a parked fetch could not be answered")

    def cancel(self) -> None:
        """Leave without an answer."""
        self._forget()

    def _forget(self) -> None:
        """Wait for nothing any more."""
        if self._comes_to is None:
            return
        self._comes_to = None
        self.round = -1
        if self._hold is not None:
            self._hold.give_back()
        del self._due[self]
        for place in self._bases:
            place.remove()
