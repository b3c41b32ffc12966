"""Work on what may be very many messages in steps, so that others may have their turn in between.

Owns the form of such work. Knows nothing of who does it, and of whose turn it is.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Of messages, read or written, so many bytes are a step: some milliseconds, and some more where they are empty.
STEP_BYTES: Final = 64 << 10

# Yields after each step how many bytes it holds until the next one, and returns what it has come to.
Steps = Generator[int, None, T]


def at_once(steps: Generator[Any, Any, T] | Coroutine[Any, Any, T]) -> T:
    """Make all steps here and now."""
    try:
        while True:
            steps.send(None)
    except StopIteration as end:
        made: T = end.value
        return made
