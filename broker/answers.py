"""The forms of an answer: complete, large, or still to come.

A handler returns a response, a coroutine or a `Later` that comes to one, or None where no answer is due. Dispatch turns
each into an `Answer`, a `Streamed` or a `Later`, and the connection sends these. This module knows nothing of sockets.
"""

import asyncio
import traceback
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, Self, TypeVar, final

from tidelog.broker.quota import Owner
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.errors import StorageError, without_frames
from tidelog.storage.files import FileSlice

F = TypeVar("F", bound=BaseException)

Part = bytes | bytearray | FileSlice
# Parts that are written in one call.
Parts = list[bytes | bytearray]
# A small answer: its parts and their total size, which is at most a little more than AT_ONCE_BYTES.
Answer = tuple[Parts, int]

# Up to this size, records are read and sent with their answer. Larger ones are read while the client takes them.
AT_ONCE_BYTES: Final = 64 * 1024
# The most parts of one writev; the system accepts 1024. A few small parts are cheaper to send than to copy.
MOST_PARTS: Final = 16
# With this much unsent, a connection takes no further requests. An answer of 1 MiB with its head, the default of a
# client's `max.partition.fetch.bytes`, is less: to stop reading from the client and to go on costs system calls.
MAX_UNSENT_BYTES: Final = (1024 + 16) * 1024
# The weight of an answer to come that keeps its connection from taking another request.
HOLDS_UP: Final = 1 << 40


@final
class Streamed(NamedTuple):
    """A large answer, sent part by part as its client takes it."""

    parts: list[Part]
    size_bytes: int


class Later:
    """A response to come: None until it arrives, then a message, or the exception that took its place (`kept`).

    The code that waits for it sets `ready`, in the turn of the loop that made the `Later`. Until the response arrives
    it counts as `weight_bytes` of unsent answers; the default keeps the connection from taking further requests. A
    `Later` that becomes lighter calls `lightened` with the difference.
    """

    __slots__ = ("correlation_id", "encode", "lightened", "ready", "request", "response", "weight_bytes")

    # Whether a coroutine that waits for this is closed when its client leaves.
    ends_with_client = True
    # Whether the response still needs the bytes of the request.
    keeps_request = False

    encode: Callable[[int, Any], tuple[list[Any], int]]
    correlation_id: int
    request: str

    def __init__(self, weight_bytes: int = HOLDS_UP) -> None:
        self.ready: Callable[[], None] | None = None
        self.lightened: Callable[[int], None] | None = None
        self.response: Any = None
        self.weight_bytes = weight_bytes

    def __await__(self) -> Generator["Later", None, Any]:
        """Wait on the event loop for the response; raise the exception that took its place."""
        if self.response is None:
            yield self
        response, self.response = self.response, None
        if not isinstance(response, Exception):
            return response
        try:
            raise response
        finally:
            del response  # or the exception and this frame would refer to each other

    def resolve(self, response: Any) -> None:
        """Set the response: once, on the event loop, and in a later turn than the one that made this."""
        self.response = response
        if (ready := self.ready) is not None:
            # Most callbacks refer to this `Later`. In such a cycle only the collector would free the response.
            self.ready = None
            ready()

    def taken(self) -> Any:
        """Return the response when its turn to leave has come; None if it is not complete."""
        return self.response

    def answering(
        self, correlation_id: int, encode: Callable[[int, Any], tuple[list[Any], int]], request: str
    ) -> Self:
        """Become the answer to a request: `encode` encodes the response, `request` names it in the log."""
        self.correlation_id, self.encode, self.request = correlation_id, encode, request
        return self

    def encoded(self) -> "Answer | Streamed | None":
        """Return the encoded answer when its turn to leave has come; None if it is not complete.

        Raise BadRequest, CutShort or NotAnswered for the exception that took its place.
        """
        response = self.taken()
        if response is None:
            return None
        if isinstance(response, Exception):
            # Do not raise the exception itself: it would refer to this frame, which refers to the exception.
            if isinstance(response, WireError | ClosesConnection):
                raise BadRequest(self.request, response)
            if isinstance(response, CutShort):
                raise CutShort(response.sent)
            raise NotAnswered(self.request) from response
        return answer_of(self.encode(self.correlation_id, response))

    def charge(self, owner: Owner) -> None:
        """Charge the memory that this holds to a connection, until the response arrives."""

    def hurry(self) -> bool:
        """Come to a response soon: the client has left, but may still read its answers.

        Return false if the work takes too long to be done for a client that may be gone.
        """
        return True

    def cancel(self) -> None:
        """Give up: the connection is gone."""


class Wait(Later):
    """A wait that can be ended early."""

    __slots__ = ("_is_over", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._is_over = False

    def end(self) -> None:
        """End the wait in the next turn of the loop."""
        if not self._is_over:
            self._is_over = True
            self._loop.call_soon(self.resolve, True)

    def hurry(self) -> bool:
        """End the wait early."""
        self.end()
        return True


class ClosesConnection(Exception):
    """A request without an answer: only closing its connection tells the client."""


class CutShort(Exception):
    """An injected fault cuts an answer off: these bytes are sent, then the connection is closed."""

    def __init__(self, sent: bytes) -> None:
        super().__init__(f"injected fault: only {len(sent)} bytes of an answer are sent")
        self.sent = sent


class BadRequest(Exception):
    """A request that ends its connection through the client's fault: its name and the reason."""

    def __init__(self, request: str, why: Exception) -> None:
        super().__init__(str(why))
        self.request = request


class NotAnswered(Exception):
    """A request that could not be answered; the cause is the exception that says why."""


def outcome_of(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the exception that ended it: either is an answer."""
    try:
        return call()
    except Exception as fault:
        return kept(fault)


# Errors that are answered or logged by their text alone.
_EXPECTED: Final = (StorageError, OSError, WireError, ClosesConnection, CutShort)


def kept(fault: F) -> F:
    """Return an exception that can be stored in the place of a response, without its frames (`without_frames`).

    An unexpected exception gets its traceback as a note, so the log shows where it was raised.
    """
    if not isinstance(fault, _EXPECTED):
        fault.add_note("".join(traceback.format_exception(fault)).rstrip())
    return without_frames(fault)


def answer_of(encoded: tuple[list[Any], int]) -> Answer | Streamed:
    """Return an encoded response (parts, size) in the form that the connection sends."""
    parts, size = encoded
    if len(parts) == 1:
        return encoded
    if size > AT_ONCE_BYTES and (
        size > AT_ONCE_BYTES + 4096 or any(type(part) is FileSlice for part in parts)
    ):
        return Streamed(parts, size)
    if len(parts) > MOST_PARTS:
        parts = [b"".join(parts)]
    return parts, size
