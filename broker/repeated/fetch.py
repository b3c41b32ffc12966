"""Fetch of one partition that has what is asked for, in memory."""

from collections.abc import Hashable
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.broker.dispatch import Answer, Route
from tidelog.broker.handlers.fetch import IDS_SINCE, READ_COMMITTED
from tidelog.broker.repeated.parts import (
    NUMBER_BYTES,
    PROBES,
    Learned,
    Request,
    number,
    number_position,
    template,
)
from tidelog.protocol.frame import SMALL_FRAME_BYTES
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.wire.runtime import uvarint
from tidelog.storage.errors import NotInMemory, StorageError

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

LOG_START_SINCE = 5  # the version from which an answer has the log's start
_RECORDS = b"\x00<records>\xff"  # what stands for them in an answer that is encoded once
_length = Struct(">i").pack


def subject(request: FetchRequest) -> Hashable:
    """Return the partition of a request that names one, outside of a session."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or request.session_epoch > 0:
        return None
    topic = request.topics[0]
    return topic.topic, topic.topic_id, topic.partitions[0].partition


def learn(broker: "Broker", route: Route, request: FetchRequest, raw: Request) -> Learned | None:
    """Return what serves such requests."""
    asked, want = request.topics[0], request.topics[0].partitions[0]
    topics = broker.topics
    topic = (
        topics.by_id.get(asked.topic_id) if route.version >= IDS_SINCE else topics.by_name.get(asked.topic)
    )
    partition = topic.partition(want.partition) if topic else None
    position = number_position(
        route,
        raw,
        want.fetch_offset,
        lambda read: int(read.topics[0].partitions[0].fetch_offset),
    )
    if partition is None or position is None:
        return None
    log, expected_epoch, last_epoch = partition.log, want.current_leader_epoch, want.last_fetched_epoch
    min_bytes = request.min_bytes
    max_bytes = min(want.partition_max_bytes, request.max_bytes, broker.config.fetch_max_bytes)
    has_start, is_flexible = route.version >= LOG_START_SINCE, route.request_is_flexible
    size, before, between, behind = _template(route, request, has_start)
    pack = Struct(f">ii{len(before)}s{'qqq' if has_start else 'qq'}{len(between)}s").pack
    rest = bytes(raw.view[position + NUMBER_BYTES : raw.end])
    left_bytes = NUMBER_BYTES + len(rest)

    def serve(view: memoryview, at: int, end: int, correlation_id: int) -> Answer | None:
        if end - at != left_bytes or bytes(view[at + NUMBER_BYTES : end]) != rest:
            return None
        (offset,) = number(view, at)
        watermark, epoch = log.high_watermark, log.leader_epoch
        if offset >= watermark or 0 <= expected_epoch != epoch or 0 <= last_epoch != epoch:
            return None
        if log.failure is not None:  # the topic or its disk is gone
            return None
        start = log.log_start_offset
        try:
            piece = log.read(offset, max_bytes, at_least_one=True, wait=False)
            data = piece.read_nowait() if piece.length >= min_bytes else None
        except (StorageError, NotInMemory):
            return None
        if data is None:
            return None
        count = len(data)
        length = uvarint(count + 1) if is_flexible else _length(count)
        answer_bytes = size + len(length) + count
        if has_start:
            head = pack(answer_bytes, correlation_id, before, watermark, watermark, start, between)
        else:
            head = pack(answer_bytes, correlation_id, before, watermark, watermark, between)
        if answer_bytes <= SMALL_FRAME_BYTES:
            return [b"".join((head, length, data, behind))]
        return [head + length, data, behind]

    return position, serve


def _template(route: Route, request: FetchRequest, has_start: bool) -> tuple[int, bytes, bytes, bytes]:
    """Encode an answer once: its size without the records and their length, and what stands before and behind its
    numbers, and behind its records.
    """
    asked = request.topics[0]
    probes: list[Any] = [PROBES[0], PROBES[0], PROBES[1]]
    answer = PartitionData(
        partition_index=asked.partitions[0].partition,
        error_code=0,
        high_watermark=probes[0],
        last_stable_offset=probes[1],
        log_start_offset=probes[2],
        aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
        records=_RECORDS,
    )
    topic_answer = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[answer])
    numbers = Struct(">qqq" if has_start else ">qq")
    size, before, rest = template(
        route, FetchResponse(responses=[topic_answer]), numbers, *probes[: 3 if has_start else 2]
    )
    between, _, behind = rest.partition(_RECORDS)
    length_bytes = 1 if route.request_is_flexible else 4
    return size - length_bytes - len(_RECORDS), before, between[:-length_bytes], behind
