"""What one connection has asked before, and when a request is worth remembering."""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.dispatch import Answer, Deferred, Route
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.handlers import list_offsets as list_offsets_handler
from tidelog.broker.handlers import produce as produce_handler
from tidelog.broker.partition import Partition
from tidelog.broker.repeated import fetch, list_offsets, produce
from tidelog.broker.repeated.parts import NUMBER_BYTES, Learned, Request, Serve

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

# Requests that are remembered of a connection and a version of an API; one more, and it begins anew.
MOST_REMEMBERED = 32

_FIXED_BYTES = 8  # API key, version, correlation id: what stands before the part that is compared
_header = Struct(">Ii").unpack_from


class _Learner(NamedTuple):
    """How the requests of an API are remembered."""

    # The one partition that a request names, if it is one that can be served so.
    partition: Callable[["Broker", Route, Any], Partition | None]
    learn: Callable[["Broker", Route, Any, Request, Partition], Learned | None]
    # How much of a request changes; what stands behind that is compared too. 0 for all that is left.
    hole_bytes: int


_LEARNERS: dict[Callable[..., Any], _Learner] = {
    produce_handler.handle: _Learner(produce.partition_of, produce.learn, 0),
    fetch_handler.handle: _Learner(fetch.partition_of, fetch.learn, NUMBER_BYTES),
    list_offsets_handler.handle: _Learner(list_offsets.partition_of, list_offsets.learn, NUMBER_BYTES),
}


class _Alike(NamedTuple):
    """What is remembered of one version of an API: how requests are compared, and what serves those that are known."""

    prefix_bytes: int
    hole_bytes: int
    known: dict[bytes, tuple[Partition, Serve]]


class RepeatedRequests:
    """The requests of one connection that can be served without decoding them."""

    __slots__ = ("_broker", "_last", "known")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.known: dict[int, _Alike] = {}  # by API key and version
        self._last: tuple[int, Partition] | None = None

    def serve(self, view: memoryview, position: int, end: int) -> Answer | Deferred | None:
        """Serve the request in view[position:end] if it is known; None where it has to be decoded."""
        if end - position < _FIXED_BYTES:
            return None
        key_version, correlation_id = _header(view, position)
        alike = self.known.get(key_version)
        if alike is None:
            return None
        prefix_bytes, hole_bytes, known = alike
        begin = position + _FIXED_BYTES
        at = begin + prefix_bytes
        key = bytes(view[begin:at])
        if hole_bytes:
            behind = at + hole_bytes
            if behind > end:
                return None
            key += bytes(view[behind:end])
        again = known.get(key)
        return again[1](view, at, end, correlation_id) if again is not None else None

    def learn(self, route: Route, request: Any, view: memoryview, position: int, end: int) -> None:
        """Remember a request that was decoded, if it is the second in a row about a partition."""
        learner = _LEARNERS.get(route.handle)
        partition = learner.partition(self._broker, route, request) if learner else None
        if learner is None or partition is None:
            return
        key_version = _header(view, position)[0]
        last, self._last = self._last, (key_version, partition)
        if last != self._last:
            return
        begin = position + _FIXED_BYTES
        alike = self.known.get(key_version)
        if alike is not None and self._is_known(alike, partition, view, begin, end):
            return
        learned = learner.learn(self._broker, route, request, Request(view, begin, end), partition)
        if learned is None:
            return
        at, serve = learned
        if alike is None or alike.prefix_bytes != at - begin or len(alike.known) >= MOST_REMEMBERED:
            alike = self.known[key_version] = _Alike(at - begin, learner.hole_bytes, {})
        alike.known[_key(alike, view, begin, end)] = partition, serve

    @staticmethod
    def _is_known(alike: _Alike, partition: Partition, view: memoryview, begin: int, end: int) -> bool:
        """Tell whether a request is known already, and took the long way for another reason."""
        again = alike.known.get(_key(alike, view, begin, end))
        return again is not None and again[0] is partition


def _key(alike: _Alike, view: memoryview, begin: int, end: int) -> bytes:
    """Return what of a request is compared."""
    at = begin + alike.prefix_bytes
    return bytes(view[begin:at]) + (bytes(view[at + alike.hole_bytes : end]) if alike.hole_bytes else b"")
