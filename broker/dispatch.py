"""From a frame to its handler and back: decode, version, encode, and the codes of errors.

One table, filled as it is used: (api key, version) -> the compiled reader of its request, the compiled writer of
its response, and its handler. A request that asks for an API or version that is not served ends the connection
with a line in the log, as in Kafka (there is no form in which to answer it); ApiVersions alone is always answered.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.answers import NO_ANSWER, Answer, Elsewhere, NextTurn, OnLoop, Streamed, answer_of
from tidelog.broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tidelog.broker.steps import Steps
from tidelog.broker.waiting import HOLDS_UP, Later
from tidelog.broker.work import Lane, Work
from tidelog.protocol import frame
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import TooManyElements, WireError

if TYPE_CHECKING:
    from tidelog.broker.net.connection import Connection


@dataclass(frozen=True, slots=True)
class Route:
    """What serves one version of one API. Slots, because reading a field of a tuple by name costs twice as much."""

    read: Callable[..., tuple[Any, int]]  # wire.compiler.Reader
    encode: frame.ResponseEncoder
    handle: Callable[["Connection", Any, int], Any]
    version: int
    request_is_flexible: bool
    api_name: str
    most_bytes: int  # of a request that is decoded on the event loop


class BadRequest(Exception):
    """A request that ends its connection, by its client's fault: which it is, and why."""

    def __init__(self, request: str, why: Exception) -> None:
        super().__init__(str(why))
        self.request = request


class Deferred(NamedTuple):
    """An answer to come, and how it will be encoded if it comes as a message."""

    later: Later
    route: Route
    correlation_id: int

    def encoded(self) -> "Answer | Streamed | Deferred":
        """Return the answer that has come, or is still to come of it; raise the exception that took its place."""
        response: Any = self.later.response
        if type(response) is OnLoop:
            response = response.go_on()
            if isinstance(response, Later):
                return Deferred(response, self.route, self.correlation_id)
        if type(response) is list:  # encoded already
            return response
        if isinstance(response, WireError | produce.ProduceFailed):
            raise BadRequest(f"{self.route.api_name} v{self.route.version}", response)
        if isinstance(response, Exception):
            raise response
        if isinstance(response, Streamed):
            return response
        return answer_of(self.route.encode(self.correlation_id, response))


HANDLERS: dict[int, Callable[["Connection", Any, int], Any]] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    60: describe_cluster.handle,
}
# What is kept of a request, where that is not all of it.
KEPT: dict[int, Callable[[Any, int], Any]] = {1: fetch.keep_needed}
PRODUCE, API_VERSIONS = 0, 18
# What is decoded on the event loop, some milliseconds at the most. A produce is large for its records, which are not
# looked at then: what counts is how many elements it has.
MOST_REQUEST_BYTES = 64 * 1024
MOST_ELEMENTS = 4096
UNKNOWN = "unknown"  # which request it is, where that has not come
_KEY_AND_VERSION = Struct(">HH")

_routes: dict[int, Route] = {}


def dispatch(
    connection: "Connection", view: memoryview, position: int, end: int
) -> Answer | Streamed | Deferred | None:
    """Serve the request in view[position:end]; None where no answer is due. Raises WireError.

    What stands behind a request that was understood is passed over, as in Kafka: clients send such bytes.
    """
    key_version, correlation_id, position = frame.read_request_header(view, position, end)
    route = _routes.get(key_version)
    if route is None:
        route = _find_route(key_version)
    if route.request_is_flexible:
        position = frame.skip_header_tags(view, position, end)
    if end - position > route.most_bytes:
        return _decode_elsewhere(connection, route, correlation_id, view, position, end)
    try:
        request, _ = route.read(view, position, end, MOST_ELEMENTS)
    except TooManyElements:
        return _decode_elsewhere(connection, route, correlation_id, view, position, end)
    response = route.handle(connection, request, route.version)
    if response is None:
        return None
    if isinstance(response, Later) and response.weight_bytes < HOLDS_UP:
        return Deferred(response, route, correlation_id)
    if isinstance(response, Later | Elsewhere | NextTurn):
        steps = Steps(connection, partial(_encode, route, correlation_id))
        return Deferred(steps.begin(response), route, correlation_id)
    parts = route.encode(correlation_id, response)
    return parts if len(parts) == 1 else answer_of(parts)


def name_of(view: memoryview, position: int, end: int) -> str:
    """Return the API and version that the request in view[position:end] asks for, for a line in the log."""
    if end - position < _KEY_AND_VERSION.size:
        return UNKNOWN
    key, version = _KEY_AND_VERSION.unpack_from(view, position)
    return f"{APIS[key].name} v{version}" if key in APIS else f"api key {key} v{version}"


def _encode(route: Route, correlation_id: int, response: Any) -> Answer | Streamed:
    """Encode an answer that may be large. Reader thread."""
    return answer_of(route.encode(correlation_id, response, join=True))


def _decode_elsewhere(
    connection: "Connection", route: Route, correlation_id: int, view: memoryview, position: int, end: int
) -> Deferred:
    """Serve a request that takes long to decode: that is done on a reader thread."""
    connection.lend_buffer()

    def decode() -> Work[OnLoop]:
        needed = Lane.LONG if end - position > MOST_REQUEST_BYTES else Lane.SHORT
        if (yield needed) is Lane.NONE:
            return NO_ANSWER
        request, _ = route.read(view, position, end)
        return OnLoop(partial(route.handle, connection, request, route.version))

    steps = Steps(connection, partial(_encode, route, correlation_id), is_large=True)
    return Deferred(steps.begin(Elsewhere(decode())), route, correlation_id)


def _find_route(key_version: int) -> Route:
    key, version = key_version >> 16, key_version & 0xFFFF
    api = APIS.get(key)
    if api is None:
        raise WireError(
            f"api key {key} is not served; upgrade Tidelog, or turn the feature off in the client"
        )
    if not api.min_version <= version <= api.max_version:
        if key == API_VERSIONS:
            return _unsupported_api_versions(api)
        raise WireError(f"{api.name} v{version} is not served, only v{api.min_version} to v{api.max_version}")
    route = Route(
        read=_reader(api, version),
        encode=frame.response_encoder(api, version),
        handle=HANDLERS[key],
        version=version,
        request_is_flexible=api.is_flexible(version),
        api_name=api.name,
        most_bytes=sys.maxsize if key == PRODUCE else MOST_REQUEST_BYTES,
    )
    _routes[key_version] = route
    return route


def _reader(api: Api, version: int) -> Callable[..., tuple[Any, int]]:
    """Return what decodes a request, and drops at once what is not kept of it."""
    read, keep = api.reader(version), KEPT.get(api.key)
    if keep is None:
        return read

    def read_and_keep(view: memoryview, position: int, *limits: int) -> tuple[Any, int]:
        request, position = read(view, position, *limits)
        return keep(request, version), position

    return read_and_keep


def _unsupported_api_versions(api: Api) -> Route:
    """Return the route of a version of ApiVersions that is not served: whatever it says, it gets the table."""
    return Route(
        read=lambda _view, _position, end, _most=0: (None, end),
        encode=frame.response_encoder(api, 0),
        handle=lambda _connection, _request, _version: api_versions.unsupported_version(),
        version=0,
        request_is_flexible=False,
        api_name=api.name,
        most_bytes=MOST_REQUEST_BYTES,
    )
