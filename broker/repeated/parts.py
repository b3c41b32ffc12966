"""What the repeated requests of all APIs have in common: the place of their number, and the shape of an answer."""

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from tidelog.broker.answers import Answer, Streamed
from tidelog.broker.dispatch import Deferred, Route
from tidelog.protocol.wire.errors import WireError

# (view, where what changes begins, end of the frame, correlation id) -> the answer; None where it takes the long way.
Serve = Callable[[memoryview, int, int, int], Answer | Streamed | Deferred | None]
# Where what changes begins, and what serves a request that is otherwise the same.
Learned = tuple[int, Serve]


class Request(NamedTuple):
    """Where a request lies, without what is always new: from its client id's length to its end."""

    view: memoryview
    begin: int
    end: int


NUMBER_BYTES = 8  # an offset, a time
number = Struct(">q").unpack_from
# No two bytes of these are alike: where they appear in what was encoded, they stand for themselves.
PROBES = (0x1122334455667788, 0x2132435465768798, 0x31425364758697A8)


def number_position(route: Route, raw: Request, value: int, read_back: Callable[[Any], int]) -> int | None:
    """Return where a request has a number, found by decoding it with another one in that place.

    `value` is the number; `read_back` takes it from the decoded request.
    """
    sought, probe = value.to_bytes(NUMBER_BYTES, "big", signed=True), PROBES[0].to_bytes(NUMBER_BYTES, "big")
    frame = bytes(raw.view[raw.begin : raw.end])
    body = body_position(route, frame)
    if route.request_is_flexible and frame[body - 1]:  # a header with tags
        return None
    at = frame.find(sought, body)
    while at >= 0:
        changed = frame[:at] + probe + frame[at + NUMBER_BYTES :]
        try:
            request, stop = route.read(memoryview(changed), body, len(changed))
            if stop == len(changed) and read_back(request) == PROBES[0]:
                return raw.begin + at
        except (WireError, LookupError):
            pass
        at = frame.find(sought, at + 1)
    return None


def body_position(route: Route, raw: bytes) -> int:
    """Return where the message begins in what follows a correlation id; a header's tags are taken to be none."""
    client_id_bytes = int.from_bytes(raw[:2], "big", signed=True)
    return 2 + max(0, client_id_bytes) + route.request_is_flexible


def template(route: Route, response: object, numbers: Struct, *probes: int) -> tuple[int, bytes, bytes]:
    """Encode a response with probes for its numbers: its size, what stands before the numbers, and what behind."""
    encoded = b"".join(route.encode(0, response))
    before, _, behind = encoded[8:].partition(numbers.pack(*probes))
    return len(encoded) - 4, before, behind
