"""Produces that are like the last one: served without decoding what has not changed.

To one partition a producer sends the same request again and again, but for its correlation id and its records. What
stands before the records is compared, to the byte, with a request that was decoded before; what comes of it is answered
with bytes that were encoded before, but for their numbers. Invariant: the answer is the one that the long way gives.
What is not the same, or names more than one partition, goes that way.
"""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.dispatch import Answer, Deferred, Route
from tidelog.broker.handlers import produce
from tidelog.broker.partition import Partition
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.records.batch import HEADER_BYTES
from tidelog.protocol.wire.runtime import read_uvarint

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

# Before version 5 an answer has other fields.
SINCE_VERSION = 5
# Partitions that are remembered of a connection; one more, and it begins anew.
MOST_PARTITIONS = 32

_FIXED_BYTES = 8  # API key, version, correlation id: what stands before the part that is compared
_NO_TAGS = bytes(3)  # of the partition, the topic and the request
_header = Struct(">Ii").unpack_from
_length = Struct(">i").unpack_from
_numbers = Struct(">ihqqq")  # of a partition's answer, index to log start offset
_PROBE = (0x1122334455667788, 0x2233445566778899, 0x33445566778899AA)


class _Repeated(NamedTuple):
    """What a request means that begins so, and how its answer is put together."""

    partition: Partition
    partition_index: int
    acks: int
    route: Route
    name: str
    topic_id: bytes
    pack: Callable[..., bytes]
    size: int
    before: bytes
    behind: bytes

    def response(self, answer: PartitionProduceResponse) -> ProduceResponse:
        """Return the whole answer."""
        return _response(self.name, self.topic_id, answer)


class RepeatedProduces:
    """What one connection has produced before."""

    __slots__ = ("_broker", "_compared_bytes", "_key_version", "_last", "known")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.known: dict[bytes, _Repeated] = {}
        # All that are known have these in common.
        self._key_version = -1
        self._compared_bytes = 0
        self._last = b""

    def serve(self, view: memoryview, position: int, end: int) -> Answer | Deferred | None:
        """Serve the request in view[position:end] if it is known; None where it has to be decoded."""
        begin = position + _FIXED_BYTES
        at = begin + self._compared_bytes
        if at + HEADER_BYTES > end:  # no batch fits
            return None
        key_version, correlation_id = _header(view, position)
        again = self.known.get(bytes(view[begin:at]))
        if again is None or key_version != self._key_version:
            return None
        partition, index, acks, route, *_, pack, size, before, behind = again
        if route.request_is_flexible:
            length, at = read_uvarint(view, at + 1, view[at]) if view[at] > 127 else (view[at], at + 1)
            stop = at + length - 1
            if stop + len(_NO_TAGS) != end or view[stop:end] != _NO_TAGS:
                return None
        else:
            stop = at + 4 + _length(view, at)[0]
            at += 4
            if stop != end:
                return None
        log = partition.log
        if stop <= at or log.failure is not None:  # no batch; or the topic or its disk is gone
            return None
        broker = self._broker
        answer = produce.append(partition, index, view[at:stop], broker.clock.now_ms())
        if answer.error_code:
            return route.encode(correlation_id, again.response(answer))
        if partition.awaits_disk(acks):
            return Deferred(
                broker.flusher.commit([(log, answer)], again.response(answer)), route, correlation_id
            )
        offset, append_time_ms = answer.base_offset, answer.log_append_time_ms
        return [
            pack(
                size,
                correlation_id,
                before,
                index,
                0,
                offset,
                append_time_ms,
                answer.log_start_offset,
                behind,
            )
        ]

    def learn(self, route: Route, request: ProduceRequest, view: memoryview, position: int, end: int) -> None:
        """Remember a request that was decoded, if it has come twice in a row and can be served so."""
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic_data = request.topic_data[0]
        data = topic_data.partition_data[0]
        if not data.records or abs(request.acks) != 1 or route.version < SINCE_VERSION:
            return
        tags = len(_NO_TAGS) if route.request_is_flexible else 0
        length_bytes = ((len(data.records) + 1).bit_length() + 6) // 7 if route.request_is_flexible else 4
        compared = bytes(view[position + _FIXED_BYTES : end - tags - len(data.records) - length_bytes])
        came_before, self._last = compared == self._last, compared
        topic = produce.find_topic(self._broker.topics, topic_data, route.version)
        partition = topic.partition(data.index) if topic else None
        if came_before and partition is not None:
            key_version = _header(view, position)[0]
            if (key_version, len(compared)) != (self._key_version, self._compared_bytes) or len(
                self.known
            ) >= MOST_PARTITIONS:
                self.known.clear()
            self._key_version, self._compared_bytes = key_version, len(compared)
            again = _Repeated(
                partition,
                data.index,
                request.acks,
                route,
                topic_data.name,
                topic_data.topic_id,
                *_template(route, topic_data.name, topic_data.topic_id, data.index),
            )
            self.known[compared] = again


def _response(name: str, topic_id: bytes, answer: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
    return ProduceResponse(responses=[topic])


def _template(
    route: Route, name: str, topic_id: bytes, index: int
) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Encode an answer once: what packs it, its size, and what stands before and behind its numbers."""
    answer = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=_PROBE[0],
        log_append_time_ms=_PROBE[1],
        log_start_offset=_PROBE[2],
    )
    encoded = b"".join(route.encode(0, _response(name, topic_id, answer)))
    at = encoded.index(_numbers.pack(index, 0, *_PROBE))
    before, behind = encoded[8:at], encoded[at + _numbers.size :]
    pack = Struct(f">ii{len(before)}sihqqq{len(behind)}s").pack
    return pack, len(encoded) - 4, before, behind
