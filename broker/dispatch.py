"""From a frame to its handler and back: decode, gate, answer, encode.

One table maps (api key, version) to the reader of the request, the writer of the response and the handler. It is filled
on first use; a broker with metrics or faults has a table of its own. A request for an API or version that is not served
ends the connection with a line in the log, as in Kafka, because no response to it has a known form. Only ApiVersions is
always answered.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final

from tidelog.broker.answers import (
    AT_ONCE_BYTES,
    HOLDS_UP,
    MOST_PARTS,
    Answer,
    Later,
    Streamed,
    answer_of,
)
from tidelog.broker.routes import SERVED, UNSUPPORTED_API_VERSIONS, Handle, Served
from tidelog.broker.running import Running
from tidelog.broker.session import Session
from tidelog.broker.work import LONG, SHORT, loop, maybe_await, reader
from tidelog.protocol import frame
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import TooManyElements, WireError


@dataclass(frozen=True, slots=True)
class Route:
    """What serves one version of one API. It has slots, because reading a named tuple's field costs twice as much."""

    read: Callable[..., tuple[Any, int]]  # wire.compiler.Reader
    keep: Callable[[Any, int], Any] | None  # drops the parts of a request that need not be kept
    encode: frame.ResponseEncoder
    answer: Callable[..., Answer | Streamed]  # encodes a response to the form that the connection sends
    handle: Handle
    response: type  # the class of a complete response
    version: int
    request_is_flexible: bool
    name: str  # "Fetch v12"
    has_records: bool
    most_bytes: int  # the largest request that is decoded on the event loop


API_VERSIONS: Final = 18
# Bounds of a request that is decoded on the event loop: some milliseconds at most. Records are not decoded there, so a
# request with records is bounded by its number of elements alone.
MOST_REQUEST_BYTES: Final = 64 * 1024
MOST_ELEMENTS: Final = 4096
UNKNOWN: Final = "unknown"  # the name of a request whose header has not arrived
_KEY_AND_VERSION: Final = Struct(">HH")


class Routes(dict[int, Route]):
    """Routes by api key and version, each made on first use."""

    def __init__(
        self,
        encoder_of: Callable[[Api, int], frame.ResponseEncoder] = frame.response_encoder,
        handle_of: Callable[[Api, Handle], Handle] = lambda _, handle: handle,
    ) -> None:
        """Encode responses and handle requests by what these return. After a change of either, clear the routes."""
        super().__init__()
        self.encoder_of = encoder_of
        self.handle_of = handle_of


_routes: Final = Routes()


def dispatch(
    session: Session, view: memoryview, position: int, end: int, routes: Routes = _routes
) -> Answer | Streamed | Later | None:
    """Serve the request in view[position:end]; None if no answer is due. Raises WireError and ClosesConnection.

    Bytes after a complete request are ignored, as in Kafka: some clients send them.
    """
    key_version, correlation_id, client_id, body = frame.read_request_header(view, position, end)
    route = routes.get(key_version)
    if route is None:
        route = _find_route(key_version, routes)
    if client_id != session.raw_client_id:
        session.rename(client_id)
    if route.request_is_flexible:
        body = frame.skip_header_tags(view, body, end)
    if end - body > route.most_bytes:
        return _decode_elsewhere(session, route, correlation_id, view, body, end)
    try:
        request, _ = route.read(view, body, end, MOST_ELEMENTS)
    except TooManyElements:
        return _decode_elsewhere(session, route, correlation_id, view, body, end)
    if route.keep is not None:
        request = route.keep(request, route.version)
    response = gate(session, route, request)
    if type(response) is route.response:
        encoded = route.encode(correlation_id, response)
        # Most are small. Calling `answer_of` for them would cost as much as the checks.
        return (
            encoded if encoded[1] <= AT_ONCE_BYTES and len(encoded[0]) <= MOST_PARTS else answer_of(encoded)
        )
    if response is None:
        return None
    if isinstance(response, Later):
        if response.weight_bytes < HOLDS_UP:
            return response.answering(correlation_id, route.encode, route.name)
        response = maybe_await(response)
    running = Running(session.broker, session, response, partial(route.answer, correlation_id))
    begun = running.begin()
    if begun is not running:
        return None if begun is None else answer_of(route.encode(correlation_id, begun))
    running.keeps_request = route.has_records
    later: Later = running.answering(correlation_id, _encoded, route.name)
    return later


def gate(session: Session, route: Route, request: Any) -> Any:
    """Answer a request, in a form of `tidelog.broker.answers`. Event loop.

    Every decoded request passes through here once, wherever it was decoded, and handlers are called nowhere else. The
    version is one that is served.
    """
    return route.handle(session, request, route.version)


def name_of(view: memoryview, position: int, end: int) -> str:
    """Return the API and version of the request in view[position:end], for the log."""
    if end - position < _KEY_AND_VERSION.size:
        return UNKNOWN
    key, version = _KEY_AND_VERSION.unpack_from(view, position)
    return f"{APIS[key].name} v{version}" if key in APIS else f"api key {key} v{version}"


def _encoded(_correlation_id: int, answer: Answer | Streamed) -> Answer | Streamed:
    """Return an answer that is encoded already."""
    return answer


def _decode_elsewhere(
    session: Session, route: Route, correlation_id: int, view: memoryview, position: int, end: int
) -> Later:
    """Serve a request that takes long to decode: on a reader thread."""

    answer = _answer_elsewhere(session, route, view, position, end)
    encode = partial(route.answer, correlation_id)
    running = Running(session.broker, session, answer, encode, is_large=True)
    running.begin()
    running.keeps_request = True
    return running.answering(correlation_id, _encoded, route.name)


async def _answer_elsewhere(session: Session, route: Route, view: memoryview, position: int, end: int) -> Any:
    await reader(LONG if end - position > MOST_REQUEST_BYTES else SHORT)
    request, _ = route.read(view, position, end)
    view = memoryview(b"")  # the answer may take long, and the connection reuses its buffer
    if route.keep is not None:
        request = route.keep(request, route.version)
    await loop()
    return await maybe_await(gate(session, route, request))


def _find_route(key_version: int, routes: Routes = _routes) -> Route:
    """Return the route of a version, made on first use. Raises WireError if the version is not served."""
    key, version = key_version >> 16, key_version & 0xFFFF
    api, served = APIS.get(key), SERVED.get(key)
    if api is None or served is None:
        raise WireError(
            f"api key {key} is not served; upgrade Tidelog, or turn the feature off in the client"
        )
    if not api.min_version <= version <= api.max_version:
        if key == API_VERSIONS:
            return _unsupported_api_versions(api, routes)
        raise WireError(f"{api.name} v{version} is not served, only v{api.min_version} to v{api.max_version}")
    served = served._replace(handle=routes.handle_of(api, served.handle))
    encode = routes.encoder_of(api, version)
    route = routes[key_version] = _route(
        api, version, served, api.reader(version), encode, api.is_flexible(version)
    )
    return route


def _unsupported_api_versions(api: Api, routes: Routes) -> Route:
    """Return the route of a version of ApiVersions that is not served: any request gets the table of versions."""
    encode = routes.encoder_of(api, 0)
    return _route(
        api, 0, UNSUPPORTED_API_VERSIONS, lambda _view, _position, end, _most=0: (None, end), encode, False
    )


def _route(
    api: Api,
    version: int,
    served: Served,
    read: Callable[..., tuple[Any, int]],
    encode: frame.ResponseEncoder,
    request_is_flexible: bool,
) -> Route:

    def answer(correlation_id: int, response: Any) -> Answer | Streamed:
        return answer_of(encode(correlation_id, response))

    return Route(
        read=read,
        keep=served.keep,
        encode=encode,
        answer=answer,
        handle=served.handle,
        response=api.response,
        version=version,
        request_is_flexible=request_is_flexible,
        name=f"{api.name} v{version}",
        has_records=served.has_records,
        most_bytes=sys.maxsize if served.has_records else MOST_REQUEST_BYTES,
    )
