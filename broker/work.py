"""Requests that take more than one step, as coroutines.

A handler whose response is at hand returns it. Any other returns a coroutine, which reads from top to bottom; what it
awaits says where it goes on:

- `await loop()`: on the event loop, after other connections have had their turn where this one has had its own;
- `await turn()`: there, after the others had their turn in any case;
- `await anywhere()`: where it is; on a reader thread once it has had its time on the event loop;
- `await reader(SHORT)`: on a reader thread, to wait for the disk, but not to compute for long;
- `await reader(LONG)`: on the one reader thread that does what takes long;
- `await later`: on the event loop, with the response that a `Later` has come to;
- `await leaving()`: on the event loop, once the answers to the requests before it have left.

`loop`, `anywhere` and `reader` return the lane that the coroutine has then. On a reader thread they raise `Stopping`
where the broker stops: a coroutine that does not catch it is not answered. A coroutine whose client has left is closed
where it waits, so that clean-up belongs into `finally`; but what waits for its turn on the event loop, or for a flush,
is done to its end.

A task of the maintenance thread is a coroutine, too. It stays on that thread, and awaits one of these before each of
its steps:

- `await step()`: go on after others had their turn; raises `Stopping` where the broker stops, or the client has left;
- `await turn()`: the same, but never raises: what has begun is brought to its end;
- `await all_of(steps)`: make the steps of a generator of the storage, with a `turn` at each `yield`.

Owns what a coroutine may await and how long its steps may take; `running` and `maintenance` drive it. Knows nothing of
threads.
"""

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from tidelog.broker.answers import Later
from tidelog.protocol.records.steps import Steps
from tidelog.storage.errors import NotInMemory, TakesLong
from tidelog.storage.sources import PATIENT, WAITING, WARM

P = TypeVar("P")
T = TypeVar("T")


class Lane(IntEnum):
    """Where a step is made, and so what it may take."""

    LOOP = 0  # the event loop: neither the disk nor long
    ANYWHERE = 1  # asked for only: the lane that the coroutine has, or a reader's
    SHORT = 2  # a reader thread: the disk, but not long
    LONG = 3  # the one reader thread that does what takes long


# Their names, which the loop reads faster than an attribute of their class.
LOOP, ANYWHERE, SHORT, LONG = Lane

# What a step may read, by its lane.
SOURCES: Final = {LOOP: WARM, SHORT: WAITING, LONG: PATIENT}

# A coroutine that awaits nothing else; `Work[T]` comes to a T.
Work = Coroutine[Any, Any, T]

# What may be held by all work that has begun and waits for its turn. What holds more gives way to nobody: so there is
# one such at a time.
HELD_BYTES_MAX = 64 << 20

# Of small things, some microseconds each, so many are made in a step.
MANY = 1000


# What a coroutine yields for its next turn, as a plain generator does; for the next step; or to be the next to leave.
TURN: Final = None
STEP: Final = object()
LEAVING: Final = object()


class Stopping(Exception):
    """The broker stops, or nobody waits for the answer any more: nothing more is done."""


@types.coroutine
def loop() -> Generator[Lane, Lane, Lane]:
    """Go on on the event loop, some microseconds at a time."""
    return (yield LOOP)


@types.coroutine
def turn() -> Generator[None, Any, None]:
    """Go on on the same thread after others had their turn."""
    yield TURN


@types.coroutine
def step() -> Generator[object, Any, None]:
    """Go on on the maintenance thread after others had their turn. Raise Stopping if there is nothing to go on for."""
    yield STEP


async def all_of(steps: Generator[None, None, T]) -> T:
    """Make all steps of a generator, with a turn for others at each `yield`; return what it returns."""
    try:
        while True:
            next(steps)
            await turn()
    except StopIteration as end:
        made: T = end.value
        return made


@types.coroutine
def anywhere() -> Generator[Lane, Lane, Lane]:
    """Go on here, or on a reader thread once the event loop has done enough."""
    return (yield ANYWHERE)


@types.coroutine
def reader(lane: Lane) -> Generator[Lane, Lane, Lane]:
    """Go on on a reader thread, in the lane SHORT or LONG."""
    return (yield lane)


@types.coroutine
def leaving() -> Generator[object, None, None]:
    """Go on when the answers before this one have left: what is read from now on is not held for long."""
    yield LEAVING


async def come(form: "T | Coroutine[Any, Any, T] | Later") -> T:
    """Return the response that a handler has returned, or that what it has returned comes to."""
    response: T = await form if isinstance(form, Later | Coroutine) else form
    return response


async def wherever(make: Callable[[Lane], T], lane: Lane) -> tuple[T, Lane]:
    """Return what `make` makes in the first lane, from this one on, where it can be done, and which that was.

    It raises NotInMemory or TakesLong for what is not done in its lane.
    """
    while True:
        try:
            return make(lane), lane
        except NotInMemory:
            needed = SHORT
        except TakesLong:
            needed = LONG
        # Not in the handler: the exception, and the frames that it passed, would stay for as long as that.
        lane = await reader(needed)


async def made_of_many(make: Callable[[P], T], things: Sequence[P]) -> list[T]:
    """Make something of each of what may be many, a thousand at a time."""
    made: list[T] = []
    for first in range(0, len(things), MANY):
        await (anywhere() if len(things) <= MANY else reader(LONG))
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


async def stepwise(steps: Steps[T], held: Held) -> T:
    """Make steps that take long, and give way to others between two."""
    await reader(LONG)
    holds_bytes = 0
    try:
        while True:
            before_bytes, holds_bytes = holds_bytes, next(steps)
            held.total_bytes += holds_bytes - before_bytes
            if not held.is_full:
                await reader(LONG)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        held.total_bytes -= holds_bytes


def keep_few(things: list[Any], most: int) -> None:
    """Drop what is beyond, a thousand at a time: other threads get no turn while objects are freed at once."""
    while len(things) > most:
        del things[max(most, len(things) - MANY) :]
