"""What becomes of a request: an answer that is there, one that is large, one that is made elsewhere.

Owns the forms that handlers, dispatch and the connection hand to one another. Knows nothing of sockets.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tidelog.storage.files import FileSlice

# Parts that are written at once, together at most AT_ONCE_BYTES.
Answer = list[bytes | bytearray]
Part = bytes | bytearray | FileSlice

# Up to here records are read and sent with their answer. What is larger is read while the client takes it.
AT_ONCE_BYTES = 64 * 1024
# The parts of one writev: the system takes 1024 and refuses more. Few small parts are cheaper sent than copied.
MOST_PARTS = 16


class Streamed(NamedTuple):
    """A large answer, sent part by part as its client takes it."""

    parts: list[Part]
    size_bytes: int


class Elsewhere(NamedTuple):
    """An answer that takes too long for the event loop: a reader thread makes and encodes it.

    `make` returns the response, or what is `OnLoop`; of what belongs to the event loop it reads copies. What may take
    more than some milliseconds is `work.Work`.
    """

    make: Callable[[], Any] | Generator[Any, Any, Any]


class OnLoop(NamedTuple):
    """What remains to be done on the event loop; `go_on` returns what a handler may return."""

    go_on: Callable[[], Any]


# Of what is broken off as the broker stops, which then closes the connection.
NO_ANSWER = OnLoop(lambda: None)


class NextTurn(NamedTuple):
    """What remains to be done after the other connections had their turn; `go_on` is that of `OnLoop`."""

    go_on: Callable[[], Any]


def answer_of(parts: list[Any]) -> Answer | Streamed:
    """Return the encoded parts of a response in the form in which they leave."""
    if len(parts) == 1:
        return parts
    size = sum(map(len, parts))
    if size > AT_ONCE_BYTES and (
        size > AT_ONCE_BYTES + 4096 or any(type(part) is FileSlice for part in parts)
    ):
        return Streamed(parts, size)
    return parts if len(parts) <= MOST_PARTS else [b"".join(parts)]
