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

# Requests that are remembered of a connection and a version of an API, and how many places may hold what changes.
MOST_REMEMBERED = 128
MOST_SHAPES = 4
# Where there are more they take the long way; after so many that did, all is forgotten, and learned anew.
FORGET_AFTER = 10_000

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


class _Shape(NamedTuple):
    """Requests in which what changes has the same place and size: how they are compared, and what serves each."""

    prefix_bytes: int
    hole_bytes: int
    known: dict[bytes, tuple[Partition, Serve]]

    def key(self, view: memoryview, begin: int, end: int) -> bytes:
        """Return what of a request is compared."""
        prefix_bytes, hole_bytes, _ = self
        at = begin + prefix_bytes
        if not hole_bytes:
            return bytes(view[begin:at])
        behind = at + hole_bytes
        return bytes(view[begin:at]) + bytes(view[behind:end]) if behind <= end else b""


class RepeatedRequests:
    """The requests of one connection that can be served without decoding them."""

    __slots__ = ("_broker", "_decoded", "_seen", "known")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.known: dict[int, list[_Shape]] = {}  # by API key and version
        self._seen: set[tuple[int, Partition]] = set()
        self._decoded = 0

    def serve(self, view: memoryview, position: int, end: int) -> Answer | Deferred | None:
        """Serve the request in view[position:end] if it is known; None where it has to be decoded."""
        if end - position < _FIXED_BYTES:
            return None
        key_version, correlation_id = _header(view, position)
        begin = position + _FIXED_BYTES
        for prefix_bytes, hole_bytes, known in self.known.get(key_version, ()):
            at = begin + prefix_bytes
            key = bytes(view[begin:at])  # _Shape.key, but for the call
            if hole_bytes:
                behind = at + hole_bytes
                key = key + bytes(view[behind:end]) if behind <= end else b""
            again = known.get(key)
            if again is not None:
                return again[1](view, at, end, correlation_id)
        return None

    def learn(self, route: Route, request: Any, view: memoryview, position: int, end: int) -> None:
        """Remember a request that was decoded, if it is the second about a partition."""
        learner = _LEARNERS.get(route.handle)
        partition = learner.partition(self._broker, route, request) if learner else None
        if learner is None or partition is None:
            return
        self._decoded += 1
        key_version, _ = _header(view, position)
        if not self._was_seen((key_version, partition)):
            return
        begin = position + _FIXED_BYTES
        if self._is_full(key_version) or self._is_known(key_version, partition, view, begin, end):
            return
        learned = learner.learn(self._broker, route, request, Request(view, begin, end), partition)
        if learned is not None:
            at, serve = learned
            shape = self._shape(key_version, at - begin, learner.hole_bytes)
            shape.known[shape.key(view, begin, end)] = partition, serve

    def _was_seen(self, what: tuple[int, Partition]) -> bool:
        """Tell whether there was such a request before; there was one from now on."""
        if what in self._seen:
            return True
        if len(self._seen) >= MOST_REMEMBERED:
            self._seen.clear()
        self._seen.add(what)
        return False

    def _is_full(self, key_version: int) -> bool:
        """Tell whether no more can be learned; after a while room is made."""
        shapes = self.known.get(key_version, ())
        if len(shapes) < MOST_SHAPES and sum(len(shape.known) for shape in shapes) < MOST_REMEMBERED:
            return False
        if self._decoded < FORGET_AFTER:
            return True
        self._decoded = 0
        del self.known[key_version]
        return False

    def _is_known(
        self, key_version: int, partition: Partition, view: memoryview, begin: int, end: int
    ) -> bool:
        """Tell whether a request is known already, and took the long way for another reason."""
        for shape in self.known.get(key_version, ()):
            again = shape.known.get(shape.key(view, begin, end))
            if again is not None and again[0] is partition:
                return True
        return False

    def _shape(self, key_version: int, prefix_bytes: int, hole_bytes: int) -> _Shape:
        """Return the shape with such a place for what changes."""
        shapes = self.known.setdefault(key_version, [])
        for shape in shapes:
            if shape.prefix_bytes == prefix_bytes:
                return shape
        shapes.append(_Shape(prefix_bytes, hole_bytes, {}))
        return shapes[-1]
