"""Long work on many messages, in steps, so that other work can run in between."""

from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")

# The bytes of messages in a step: some milliseconds, and longer if they are empty.
STEP_BYTES: Final = 64 << 10

# Yields, after each step, the bytes that it holds until the next, and returns the result.
Steps = Generator[int, None, T]


def at_once(steps: Generator[Any, Any, T] | Coroutine[Any, Any, T]) -> T:
    """Run all steps, and return the result."""
    try:
        while True:
            steps.send(None)
    except StopIteration as end:
        made: T = end.value
        return made
