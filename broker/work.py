"""Work that is made in steps, so that none of it takes a thread from the others.

Owns what a step may take, and the beginning of a piece of work on the event loop. Knows nothing of threads (`readers`)
and of what is worked on.
"""

import time
from collections.abc import Callable, Generator, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from tidelog.broker.answers import Elsewhere, Later, NextTurn
from tidelog.broker.turns import Turns
from tidelog.protocol.records.steps import Steps
from tidelog.storage.sources import PATIENT, WAITING, WARM

P = TypeVar("P")
T = TypeVar("T")


class Lane(IntEnum):
    """Where a step is made, and so what it may take."""

    NONE = 0  # nowhere, the broker stops: no further step, and the answer says so
    LOOP = 1  # the event loop: neither the disk nor long
    SHORT = 2  # a reader thread: the disk, but not long
    LONG = 3  # the one reader thread that does what takes long


# Their names, which the loop reads faster than an attribute of their class.
NONE, LOOP, SHORT, LONG = Lane

# What a step may read, by its lane.
SOURCES: Final = {LOOP: WARM, SHORT: WAITING, LONG: PATIENT}

# Yields before each step the lane that it needs, gets the one that it has, and returns the answer. A step that turns
# out to need another (NotInMemory, TakesLong) is made again there.
Work = Generator[Lane, Lane, T]

# What may be held by all work that has begun and waits for its turn. Whoever comes to hold more gives way to nobody: so
# there is one such at a time.
HELD_BYTES_MAX = 64 << 20

# Of small things, some microseconds each, so many are made in a step.
MANY = 1000

# Of what is made in turns of the loop, so much before time is kept: most requests ask for no more.
FREE_STEPS = 64

# How long one request is worked on by the event loop.
LOOP_S = 0.002


def as_work(job: Callable[[], Any] | Work[Any]) -> Work[Any]:
    """Return work as it is, and a function as work of one short step."""
    if not callable(job):
        return (yield from job)
    yield SHORT
    return job()


def made_of_many(make: Callable[[P], T], things: Sequence[P]) -> Work[list[T] | None]:
    """Make something of each of what may be many, a thousand at a time; None if the broker stops meanwhile."""
    made: list[T] = []
    for first in range(0, len(things), MANY):
        if (yield LOOP if len(things) <= MANY else LONG) is NONE:
            return None
        made += map(make, things[first : first + MANY])
    return made


class Held:
    """How many bytes work holds that has begun, and waits for its turn. One thread's: that of the lane LONG."""

    __slots__ = ("total_bytes",)

    def __init__(self) -> None:
        """Begin with none."""
        self.total_bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether so much is held that what is under way goes on to its end, and gives no turn to others."""
        return self.total_bytes > HELD_BYTES_MAX


def stepwise(steps: Steps[T], held: Held) -> Work[T | None]:
    """Make steps that take long, and give way to others between two; None if the broker stops meanwhile."""
    lane, holds_bytes = (yield LONG), 0
    try:
        while lane is not NONE:
            before_bytes, holds_bytes = holds_bytes, next(steps)
            held.total_bytes += holds_bytes - before_bytes
            if not held.is_full:
                lane = yield LONG
        return None
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        held.total_bytes -= holds_bytes


def begin(work: Work[T]) -> T | Elsewhere:
    """Do on the event loop what can be done there; return the answer, or what is left for a reader thread."""
    try:
        needed = next(work)
        ends = time.monotonic() + LOOP_S
        while needed is LOOP and time.monotonic() < ends:
            needed = work.send(LOOP)
    except StopIteration as end:
        answer: T = end.value
        return answer
    return Elsewhere(_rest(work, needed))


def in_turns(turns: Turns, work: Generator[None, None, T], is_long: bool = False) -> T | NextTurn | Elsewhere:
    """Do on the event loop what belongs to it, some microseconds a step, in as many turns as it takes.

    Return the answer; one that took long is encoded on a reader thread.
    """
    try:
        for _ in range(FREE_STEPS):
            next(work)
        ends_s = turns.share_ends_s()
        while time.monotonic() < ends_s:
            next(work)
    except StopIteration as end:
        answer: T = end.value
        return Elsewhere(lambda: answer) if is_long and not isinstance(answer, Later) else answer
    return NextTurn(in_turns, turns, work, is_long=True)


def _rest(work: Work[T], needed: Lane) -> Work[T]:
    """Go on with work that has begun."""
    try:
        while True:
            needed = work.send((yield needed))
    except StopIteration as end:
        answer: T = end.value
        return answer


def keep_few(things: list[Any], most: int) -> None:
    """Drop what is beyond, a thousand at a time: other threads get no turn while objects are freed at once."""
    while len(things) > most:
        del things[max(most, len(things) - MANY) :]
