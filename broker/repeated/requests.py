"""What one connection has asked before, and when a request is worth remembering."""

from collections.abc import Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.dispatch import Answer, Deferred, Route
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.handlers import list_offsets as list_offsets_handler
from tidelog.broker.handlers import produce as produce_handler
from tidelog.broker.repeated import fetch, list_offsets, produce
from tidelog.broker.repeated.parts import Learned, Request, Serve

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

# Requests that are remembered of a connection and a version of an API; one more, and it begins anew.
MOST_REMEMBERED = 32

_FIXED_BYTES = 8  # API key, version, correlation id: what stands before the part that is compared
_header = Struct(">Ii").unpack_from


class _Learner(NamedTuple):
    """How the requests of an API are remembered."""

    # The one partition that a request names, if it names one.
    subject: Callable[[Any], Hashable]
    learn: Callable[["Broker", Route, Any, Request], Learned | None]


_LEARNERS: dict[Callable[..., Any], _Learner] = {
    produce_handler.handle: _Learner(produce.subject, produce.learn),
    fetch_handler.handle: _Learner(fetch.subject, fetch.learn),
    list_offsets_handler.handle: _Learner(list_offsets.subject, list_offsets.learn),
}


class RepeatedRequests:
    """The requests of one connection that can be served without decoding them."""

    __slots__ = ("_broker", "_last", "known")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # By API key and version: how many bytes are compared, and what serves a request that begins with these.
        self.known: dict[int, tuple[int, dict[bytes, Serve]]] = {}
        self._last: tuple[int, Hashable] | None = None

    def serve(self, view: memoryview, position: int, end: int) -> Answer | Deferred | None:
        """Serve the request in view[position:end] if it is known; None where it has to be decoded."""
        if end - position < _FIXED_BYTES:
            return None
        key_version, correlation_id = _header(view, position)
        alike = self.known.get(key_version)
        if alike is None:
            return None
        begin = position + _FIXED_BYTES
        at = begin + alike[0]
        serve = alike[1].get(bytes(view[begin:at]))
        return serve(view, at, end, correlation_id) if serve is not None else None

    def learn(self, route: Route, request: Any, view: memoryview, position: int, end: int) -> None:
        """Remember a request that was decoded, if it is the second in a row about a partition."""
        learner = _LEARNERS.get(route.handle)
        if learner is None:
            return
        subject = learner.subject(request)
        if subject is None:
            return
        key_version = _header(view, position)[0]
        last, self._last = self._last, (key_version, subject)
        if last != self._last:
            return
        begin = position + _FIXED_BYTES
        learned = learner.learn(self._broker, route, request, Request(view, begin, end))
        if learned is None:
            return
        at, serve = learned
        compared_bytes, serves = self.known.get(key_version, (0, {}))
        if compared_bytes != at - begin or len(serves) >= MOST_REMEMBERED:
            serves = {}
        serves[bytes(view[begin:at])] = serve
        self.known[key_version] = at - begin, serves
