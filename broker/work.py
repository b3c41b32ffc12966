"""What a coroutine of the broker may await: requests that take more than one step, and jobs of the maintenance thread.

A handler returns its response if it has it. Otherwise it returns a coroutine, which reads from top to bottom; each
`await` says where it continues:

- `await loop()`: on the event loop, after other connections had a turn if this one has used up its share;
- `await turn()`: on the event loop, after other connections had a turn;
- `await anywhere()`: on the same thread, or on a reader thread once its time on the event loop is used up;
- `await reader(SHORT)`: on a reader thread, which may wait for the disk but not compute for long;
- `await reader(LONG)`: on the one reader thread that may compute for long;
- `await later`: on the event loop, with the response of a `Later`;
- `await next_to_answer()`: on the event loop, once the answers to earlier requests of its connection have been sent.

`loop`, `anywhere` and `reader` return the lane that the coroutine is in from then on. On a reader thread they raise
`Stopping` if the broker stops; a coroutine that does not catch it sends no answer. When its client leaves, a coroutine
is closed where it waits, so cleanup belongs in `finally`. Two waits are not cut short: for a turn on the event loop,
and for a flush.

A job of the maintenance thread is a coroutine, too. It stays on that thread, and awaits one of these before each step:

- `await step()`: after other jobs had a turn; raises `Stopping` if the broker stops or the client has left;
- `await turn()`: the same, but never raises: what has begun is completed;
- `await all_of(steps)`: run a generator of the storage to its end, with a `turn` at each `yield`.

`running` and `maintenance` drive these coroutines. This module knows nothing of threads.
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
    """Where a step runs, and so what it may do."""

    LOOP = 0  # the event loop: neither wait for the disk nor compute for long
    ANYWHERE = 1  # only as a request: the coroutine's present lane, or a reader's
    SHORT = 2  # a reader thread: may wait for the disk, but not compute for long
    LONG = 3  # the one reader thread that may compute for long


# The lanes as globals, which are faster to read than attributes of the class.
LOOP, ANYWHERE, SHORT, LONG = Lane

# What a step may read, by its lane.
SOURCES: Final = {LOOP: WARM, SHORT: WAITING, LONG: PATIENT}

# A coroutine that awaits nothing but what this module offers, and returns a T.
Coro = Coroutine[Any, Any, T]

# A bound on the memory of long work that has begun and waits for its turn. Beyond it the work under way runs to its end
# without giving others a turn, so that no more work begins.
HELD_BYTES_MAX: Final = 64 << 20

# Items of some microseconds each that are processed in one step.
MANY: Final = 1000


# What `turn`, `step` and `next_to_answer` yield. A plain generator that yields nothing asks for a turn.
TURN: Final = None
STEP: Final = object()
NEXT_TO_ANSWER: Final = object()


class Stopping(Exception):
    """The broker stops, or nobody waits for the answer any more."""


@types.coroutine
def loop() -> Generator[Lane, Lane, Lane]:
    """Continue on the event loop, for some microseconds."""
    return (yield LOOP)


@types.coroutine
def turn() -> Generator[None, Any, None]:
    """Continue on the same thread after others had a turn."""
    yield TURN


@types.coroutine
def step() -> Generator[object, Any, None]:
    """Continue on the maintenance thread after others had a turn, or raise Stopping."""
    yield STEP


async def all_of(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end, with a turn for others at each `yield`; return what it returns."""
    try:
        while True:
            next(steps)
            await turn()
    except StopIteration as end:
        made: T = end.value
        return made


@types.coroutine
def anywhere() -> Generator[Lane, Lane, Lane]:
    """Continue here, or on a reader thread once the time on the event loop is used up."""
    return (yield ANYWHERE)


@types.coroutine
def reader(lane: Lane) -> Generator[Lane, Lane, Lane]:
    """Continue on a reader thread, in the lane SHORT or LONG."""
    return (yield lane)


@types.coroutine
def next_to_answer() -> Generator[object, None, None]:
    """Continue when earlier answers have been sent, so that what is read from now on is not held for long."""
    yield NEXT_TO_ANSWER


async def maybe_await(form: "T | Coroutine[Any, Any, T] | Later") -> T:
    """Return a handler's response, awaiting it if necessary."""
    response: T = await form if isinstance(form, Later | Coroutine) else form
    return response


async def in_first_lane(call: Callable[[Lane], T], lane: Lane) -> tuple[T, Lane]:
    """Call a function in this lane, or else in the next one that allows its work; return its result and that lane.

    The function raises NotInMemory or TakesLong for work that its lane does not allow.
    """
    while True:
        try:
            return call(lane), lane
        except NotInMemory:
            needed = SHORT
        except TakesLong:
            needed = LONG
        # Not in the handler: the exception and its frames would stay alive for as long.
        lane = await reader(needed)


async def map_in_chunks(call: Callable[[P], T], items: Sequence[P]) -> list[T]:
    """Return the result of a call for each item, a thousand at a time."""
    results: list[T] = []
    for first in range(0, len(items), MANY):
        await (anywhere() if len(items) <= MANY else reader(LONG))
        results += map(call, items[first : first + MANY])
    return results


class MemoryInUse:
    """The memory of long work that has begun and waits for its turn. Used by the thread of the lane LONG alone."""

    __slots__ = ("total_bytes",)

    def __init__(self) -> None:
        self.total_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether present work must run to its end without giving others a turn."""
        return self.total_bytes > HELD_BYTES_MAX


async def run_steps(steps: Steps[T], held: MemoryInUse) -> T:
    """Run steps that take long on a reader thread, with a turn for others after each."""
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


def truncate(items: list[Any], length: int) -> None:
    """Shorten a list, a thousand items at a time: no other thread runs while objects are freed at once."""
    while len(items) > length:
        del items[max(length, len(items) - MANY) :]
