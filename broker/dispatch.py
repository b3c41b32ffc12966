"""From a frame to its handler and back: decode, version, encode, and the codes of errors.

One table, filled as it is used: (api key, version) -> the compiled reader of its request, the compiled writer of
its response, and its handler. A request that asks for an API or version that is not served ends the connection
with a line in the log, as in Kafka (there is no form in which to answer it); ApiVersions alone is always answered.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tidelog.broker.waiting import Later
from tidelog.protocol import frame
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import WireError

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection

Answer = list[bytes | bytearray]


@dataclass(frozen=True, slots=True)
class Route:
    """What serves one version of one API. Slots, because reading a field of a tuple by name costs twice as much."""

    read: Callable[[memoryview, int, int], tuple[Any, int]]
    encode: frame.ResponseEncoder
    handle: Callable[["Connection", Any, int], Any]
    version: int
    request_is_flexible: bool
    api_name: str


class Deferred(NamedTuple):
    """An answer to come, and how it will be encoded if it comes as a message."""

    later: Later
    route: Route
    correlation_id: int


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
API_VERSIONS = 18

_routes: dict[int, Route] = {}


def dispatch(connection: "Connection", view: memoryview, position: int, end: int) -> Answer | Deferred | None:
    """Serve the request in view[position:end]; None where no answer is due. Raises WireError."""
    repeated = connection.repeated
    if repeated.shapes:
        answer = repeated.serve(view, position, end)
        if answer is not None:
            return answer
    start = position
    key_version, correlation_id, position = frame.read_request_header(view, position, end)
    route = _routes.get(key_version)
    if route is None:
        route = _find_route(key_version)
    if route.request_is_flexible:
        position = frame.skip_header_tags(view, position, end)
    request, position = route.read(view, position, end)
    if position != end:
        raise WireError(f"{route.api_name} v{route.version}: {end - position} bytes behind the request")
    response = route.handle(connection, request, route.version)
    repeated.learn(route, request, view, start, end)
    if response is None:
        return None
    if isinstance(response, Later):
        return Deferred(response, route, correlation_id)
    return route.encode(correlation_id, response)


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
        read=api.reader(version),
        encode=frame.response_encoder(api, version),
        handle=HANDLERS[key],
        version=version,
        request_is_flexible=api.is_flexible(version),
        api_name=api.name,
    )
    _routes[key_version] = route
    return route


def _unsupported_api_versions(api: Api) -> Route:
    """Return the route of a version of ApiVersions that is not served: whatever it says, it gets the table."""
    return Route(
        read=lambda _view, _position, end: (None, end),
        encode=frame.response_encoder(api, 0),
        handle=lambda _connection, _request, _version: api_versions.unsupported_version(),
        version=0,
        request_is_flexible=False,
        api_name=api.name,
    )
