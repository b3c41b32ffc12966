"""What becomes of a request: an answer that is there, one that is large, one to come.

Owns the forms that handlers, dispatch and the connection exchange: a handler returns a response, a coroutine or a
`Later` that come to one, or None where no answer is due; dispatch makes of each an `Answer`, a `Streamed` or a
`Later`, and the connection sends these. Knows nothing of sockets.
"""

import traceback
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Self, TypeVar, final

from tidelog.broker.quota import Owner
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.errors import StorageError, without_frames
from tidelog.storage.files import FileSlice

F = TypeVar("F", bound=BaseException)

Part = bytes | bytearray | FileSlice
# Parts that are written at once.
Parts = list[bytes | bytearray]
# A small answer: its parts, and how many bytes they are together; at most AT_ONCE_BYTES, or a little more.
Answer = tuple[Parts, int]

# Up to here records are read and sent with their answer. What is larger is read while the client takes it.
AT_ONCE_BYTES = 64 * 1024
# The parts of one writev: the system takes 1024 and refuses more. Few small parts are cheaper sent than copied.
MOST_PARTS = 16
# With so much unsent a connection takes no further requests.
MAX_UNSENT_BYTES = 1024 * 1024
# What an answer to come weighs if its connection is to take no other request before.
HOLDS_UP = 1 << 40


@final
class Streamed(NamedTuple):
    """A large answer, sent part by part as its client takes it."""

    parts: list[Part]
    size_bytes: int


class Later:
    """A response to come: None until it is there, a message, or the exception that took its place (`kept`).

    Whoever waits for it sets `ready`, in the turn of the loop in which the `Later` was made. While it is waited for it
    counts as `weight_bytes` of unsent answers: as many as keep the connection from taking further requests, unless
    whoever makes it knows better. One that comes to weigh less tells `lightened` by how much.
    """

    __slots__ = ("correlation_id", "encode", "lightened", "ready", "request", "response", "weight_bytes")

    # Whether a coroutine that waits for it is closed when its client leaves.
    ends_with_client = True
    # Whether the bytes of the request are needed until the response is there.
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
        """Wait for the response, on the event loop; raise the exception that took its place."""
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
        """Hand over the response, once, on the event loop and in a later turn than the one that made this."""
        self.response = response
        if (ready := self.ready) is not None:
            # Most of these refer to this `Later`: in a cycle, only the collector would free the response.
            self.ready = None
            ready()

    def taken(self) -> Any:
        """Return the response, now that it can leave; None if more is to be waited for."""
        return self.response

    def answering(
        self, correlation_id: int, encode: Callable[[int, Any], tuple[list[Any], int]], request: str
    ) -> Self:
        """Become the answer to a request, named for a line in the log: `encode` makes it of the response."""
        self.correlation_id, self.encode, self.request = correlation_id, encode, request
        return self

    def encoded(self) -> "Answer | Streamed | None":
        """Return the answer to the request; None if more is to be waited for, now that its turn to leave has come.

        Raise BadRequest, CutShort or NotAnswered for the exception that took its place.
        """
        response = self.taken()
        if response is None:
            return None
        if isinstance(response, Exception):
            # Never the exception itself: it would refer to this frame, which refers to the exception.
            if isinstance(response, WireError | ClosesConnection):
                raise BadRequest(self.request, response)
            if isinstance(response, CutShort):
                raise CutShort(response.sent)
            raise NotAnswered(self.request) from response
        return answer_of(self.encode(self.correlation_id, response))

    def charge(self, owner: Owner) -> None:
        """Charge a connection with what the response holds until it is there, if that is anything."""

    def hurry(self) -> bool:
        """Wait for nothing that need not be waited for: the client has left, but may read what it asked for.

        Return false for what takes too long to be done for one that may be gone.
        """
        return True

    def cancel(self) -> None:
        """Give up on the response: its connection is gone. Nothing to do unless something was parked."""


class ClosesConnection(Exception):
    """A request that cannot be answered: closing its connection is the only way to let its client know."""


class CutShort(Exception):
    """An answer of which no more than this is sent before its connection is closed: a fault that was asked for."""

    def __init__(self, sent: bytes) -> None:
        super().__init__(f"a fault that was asked for: {len(sent)} bytes of an answer are sent")
        self.sent = sent


class BadRequest(Exception):
    """A request that ends its connection, by its client's fault: which it is, and why."""

    def __init__(self, request: str, why: Exception) -> None:
        super().__init__(str(why))
        self.request = request


class NotAnswered(Exception):
    """A request for which no answer could be made; the exception that says why is the cause."""


def outcome_of(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the exception that ended it: an answer either way."""
    try:
        return call()
    except Exception as fault:
        return kept(fault)


# What is answered or logged by its text alone.
_EXPECTED = (StorageError, OSError, WireError, ClosesConnection, CutShort)


def kept(fault: F) -> F:
    """Return an exception to be kept in the place of a response, without its frames (`without_frames`).

    Where nobody expected it a note says by which way it came: the log shows that.
    """
    if not isinstance(fault, _EXPECTED):
        fault.add_note("".join(traceback.format_exception(fault)).rstrip())
    return without_frames(fault)


def answer_of(encoded: tuple[list[Any], int]) -> Answer | Streamed:
    """Return an encoded response, its parts and size, in the form in which it leaves."""
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
