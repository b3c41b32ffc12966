"""Produce of one batch, to one partition."""

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.broker.answers import Answer
from tidelog.broker.dispatch import Deferred, Route
from tidelog.broker.handlers.produce import ZSTD_SINCE, append, fail, find_topic
from tidelog.broker.partition import Partition
from tidelog.broker.repeated.parts import PROBES, Learned, Request, body_position, template
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_BYTES
from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.runtime import read_uvarint, uvarint
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log import Log

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

# Before version 5 an answer has other fields, and before this one a batch must be looked at for its codec.
SINCE_VERSION = ZSTD_SINCE

# A batch that is larger, or compressed, may take a millisecond.
QUICK_BYTES = 16 * 1024

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
_NO_TAGS = bytes(3)  # of the partition, the topic and the request
_PROBE = bytes(range(1, 100))  # stands for records
_length, _length_of = Struct(">i").unpack_from, Struct(">i").pack
_numbers = Struct(">qqq")  # base offset, append time, log start offset


def partition_of(broker: "Broker", route: Route, request: ProduceRequest) -> Partition | None:
    """Return the partition of a request that has a batch for one, and is answered."""
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    topic_data = request.topic_data[0]
    data = topic_data.partition_data[0]
    if not data.records or abs(request.acks) != 1 or route.version < SINCE_VERSION:
        return None
    topic = find_topic(broker.topics, topic_data, route.version)
    return topic.partition(data.index) if topic else None


def _takes_any_records(route: Route, before: bytes) -> bool:
    """Tell whether a request that begins so is whole with any records behind, and nothing but those.

    It may have ended in tags, or have had its lengths written longer than they need be: then what stands before its
    records ends elsewhere.
    """
    body = body_position(route, before)
    if route.request_is_flexible:
        if before[body - 1]:  # a header with tags
            return False
        whole = before + uvarint(len(_PROBE) + 1) + _PROBE + _NO_TAGS
    else:
        whole = before + _length_of(len(_PROBE)) + _PROBE
    try:
        request, end = route.read(memoryview(whole), body, len(whole))
        return end == len(whole) and request.topic_data[0].partition_data[0].records == _PROBE
    except (WireError, LookupError):
        return False


def learn(
    broker: "Broker", route: Route, request: ProduceRequest, raw: Request, partition: Partition
) -> Learned | None:
    """Return what serves such requests."""
    topic_data = request.topic_data[0]
    data, acks = topic_data.partition_data[0], request.acks
    log, index, flusher, now_ms = partition.log, data.index, broker.flusher, broker.clock.now_ms
    logs = (log,)
    is_flexible = route.request_is_flexible
    size_bytes = len(data.records or b"")
    if is_flexible:
        position = raw.end - len(_NO_TAGS) - size_bytes - len(uvarint(size_bytes + 1))
    else:
        position = raw.end - size_bytes - 4
    if not _takes_any_records(route, bytes(raw.view[raw.begin : position])):
        return None

    def response(answer: PartitionProduceResponse) -> ProduceResponse:
        topic_answer = TopicProduceResponse(
            name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=[answer]
        )
        return ProduceResponse(responses=[topic_answer])

    example = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=PROBES[0],
        log_append_time_ms=PROBES[1],
        log_start_offset=PROBES[2],
    )
    size, before, behind = template(route, response(example), _numbers, *PROBES)
    pack = Struct(f">ii{len(before)}sqqq{len(behind)}s").pack

    def serve(view: memoryview, at: int, end: int, correlation_id: int) -> Answer | Deferred | None:
        if at + HEADER_BYTES > end:  # no batch fits
            return None
        if is_flexible:
            length, at = read_uvarint(view, at + 1, view[at]) if view[at] > 127 else (view[at], at + 1)
            stop = at + length - 1
            if stop + len(_NO_TAGS) != end or view[stop:end] != _NO_TAGS:
                return None
        else:
            stop = at + 4 + _length(view, at)[0]
            at += 4
            if stop != end:
                return None
        if stop <= at or log.failure is not None:  # no batch; or the topic or its disk is gone
            return None
        try:
            answer = append(partition, index, view[at:stop], now_ms())
        except TakesLong:
            return None
        if answer.error_code:
            return route.encode(correlation_id, response(answer))
        offset, append_time_ms = answer.base_offset, answer.log_append_time_ms
        start = answer.log_start_offset
        packed: Answer = [pack(size, correlation_id, before, offset, append_time_ms, start, behind)]
        if not partition.awaits_disk(acks):
            return packed

        def failed(failures: dict[Log, StorageError]) -> Answer:
            fail(answer, failures[log])
            return route.encode(correlation_id, response(answer))

        return Deferred(flusher.commit(logs, packed, failed), route, correlation_id)

    return position, serve
