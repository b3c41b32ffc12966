"""What was asked before, and when a request is worth remembering."""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.answers import Answer, Streamed
from tidelog.broker.dispatch import Deferred, Route
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.handlers import list_offsets as list_offsets_handler
from tidelog.broker.handlers import produce as produce_handler
from tidelog.broker.partition import Partition
from tidelog.broker.repeated import fetch, list_offsets, produce
from tidelog.broker.repeated.parts import NUMBER_BYTES, Learned, Request, Serve

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

# What is remembered, all together; and of one request, what is compared. Nothing of a larger one is kept.
MOST_REMEMBERED_BYTES = 32 << 20
MOST_COMPARED_BYTES = 4096
# What remembering takes beside what is compared, which is kept some four times: in the key, and in the answer's parts.
ENTRY_BYTES = 1500
# Requests that came once.
MOST_SEEN = 16_384
# More take the long way; after so many that did, all are forgotten, and learned anew.
FORGET_AFTER = 100_000
# Shapes in which one connection asks a version of an API: one for each length of a topic's name, as a rule.
MOST_SHAPES = 8
# The same for all connections: each is looked through for a request that its connection does not know.
MOST_SHAPES_IN_ALL = 64

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
        if behind <= end < behind + MOST_COMPARED_BYTES:
            return bytes(view[begin:at]) + bytes(view[behind:end])
        return b""


class KnownRequests:
    """The requests to this broker that can be served without decoding them, whoever sends them."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._shapes: dict[int, list[_Shape]] = {}  # by API key and version
        self._seen: set[tuple[int, Partition]] = set()
        self.remembered_bytes = 0
        self._decoded = 0

    def shape_of(
        self, route: Route, request: Any, view: memoryview, position: int, end: int
    ) -> _Shape | None:
        """Return the shape of a request that was decoded, if it is known; from the second time that it comes it is."""
        learner = _LEARNERS.get(route.handle)
        partition = learner.partition(self._broker, route, request) if learner else None
        if learner is None or partition is None:
            return None
        key_version, _ = _header(view, position)
        begin = position + _FIXED_BYTES
        for shape in self._shapes.get(key_version, ()):
            again = shape.known.get(shape.key(view, begin, end))
            if again is not None and again[0] is partition:
                return shape
        if learner.hole_bytes and end - begin > MOST_COMPARED_BYTES:
            return None
        if not self._is_worth_it((key_version, partition)):
            return None
        learned = learner.learn(self._broker, route, request, Request(view, begin, end), partition)
        if learned is None:
            return None
        at, serve = learned
        if at - begin > MOST_COMPARED_BYTES:
            return None
        shape = self._shape(key_version, at - begin, learner.hole_bytes)
        key = shape.key(view, begin, end)
        if key not in shape.known:
            self.remembered_bytes += _kept_bytes(key)
        shape.known[key] = partition, serve
        return shape

    def _is_worth_it(self, what: tuple[int, Partition]) -> bool:
        """Tell whether such a request came before and there is room; room is made after a while."""
        self._decoded += 1
        if self._decoded >= FORGET_AFTER:
            self._decoded = 0
            if self._is_full(what[0]):
                self.forget(lambda _partition: True)
                self._shapes.clear()
        if what in self._seen:
            return not self._is_full(what[0])
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(what)
        return False

    def _is_full(self, key_version: int) -> bool:
        shapes = self._shapes.get(key_version, ())
        return self.remembered_bytes >= MOST_REMEMBERED_BYTES or len(shapes) >= MOST_SHAPES_IN_ALL

    def forget(self, is_forgotten: Callable[[Partition], bool]) -> None:
        """Forget the requests about some partitions."""
        self.remembered_bytes = 0
        self._seen.clear()
        for shapes in self._shapes.values():
            for shape in shapes:
                for key, (partition, _) in list(shape.known.items()):
                    if is_forgotten(partition):
                        del shape.known[key]
                self.remembered_bytes += sum(map(_kept_bytes, shape.known))

    def _shape(self, key_version: int, prefix_bytes: int, hole_bytes: int) -> _Shape:
        """Return the shape with such a place for what changes."""
        shapes = self._shapes.setdefault(key_version, [])
        for shape in shapes:
            if shape.prefix_bytes == prefix_bytes:
                return shape
        shapes.append(_Shape(prefix_bytes, hole_bytes, {}))
        return shapes[-1]


def _kept_bytes(key: bytes) -> int:
    return ENTRY_BYTES + 4 * len(key)


class RepeatedRequests:
    """The shapes in which one connection asks."""

    __slots__ = ("_known", "shapes")

    def __init__(self, known: KnownRequests) -> None:
        self._known = known
        self.shapes: dict[int, list[_Shape]] = {}  # by API key and version

    def serve(self, view: memoryview, position: int, end: int) -> Answer | Streamed | Deferred | None:
        """Serve the request in view[position:end] if it is known; None where it has to be decoded."""
        if end - position < _FIXED_BYTES:
            return None
        key_version, correlation_id = _header(view, position)
        begin = position + _FIXED_BYTES
        for prefix_bytes, hole_bytes, known in self.shapes.get(key_version, ()):
            at = begin + prefix_bytes
            key = bytes(view[begin:at])  # _Shape.key, but for the call
            if hole_bytes:
                behind = at + hole_bytes
                fits = behind <= end < behind + MOST_COMPARED_BYTES
                key = key + bytes(view[behind:end]) if fits else b""
            again = known.get(key)
            if again is not None:
                return again[1](view, at, end, correlation_id)
        return None

    def learn(self, route: Route, request: Any, view: memoryview, position: int, end: int) -> None:
        """Remember a request that was decoded, if it came before and can be served so."""
        shape = self._known.shape_of(route, request, view, position, end)
        if shape is None:
            return
        shapes = self.shapes.setdefault(_header(view, position)[0], [])
        if not any(shape is known for known in shapes):
            if len(shapes) >= MOST_SHAPES:
                shapes.clear()
            shapes.append(shape)
