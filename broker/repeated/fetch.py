"""Fetch of one partition that has what is asked for, in memory."""

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.broker.answers import AT_ONCE_BYTES, Answer, OnLoop, Streamed
from tidelog.broker.dispatch import Deferred, Route
from tidelog.broker.handlers.fetch import IDS_SINCE, READ_COMMITTED, fetch_again, is_unreadable
from tidelog.broker.partition import Partition
from tidelog.broker.repeated.parts import (
    PROBES,
    Learned,
    Request,
    body_position,
    number,
    number_position,
    template,
)
from tidelog.broker.waiting import FetchWaiter, Later
from tidelog.protocol.frame import SMALL_FRAME_BYTES
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.wire.runtime import uvarint
from tidelog.storage.errors import NotInMemory, StorageError, TakesLong
from tidelog.storage.files import FileSlice

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

LOG_START_SINCE = 5  # the version from which an answer has the log's start
_RECORDS = b"\x00<records>\xff"  # what stands for them in an answer that is encoded once
_length = Struct(">i").pack


def partition_of(broker: "Broker", route: Route, request: FetchRequest) -> Partition | None:
    """Return the partition of a request that names one, outside of a session."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or request.session_epoch > 0:
        return None
    asked, topics = request.topics[0], broker.topics
    topic = (
        topics.by_id.get(asked.topic_id) if route.version >= IDS_SINCE else topics.by_name.get(asked.topic)
    )
    if topic is None or is_unreadable(topic, route.version):
        return None
    return topic.partition(asked.partitions[0].partition)


def learn(
    broker: "Broker", route: Route, request: FetchRequest, raw: Request, partition: Partition
) -> Learned | None:
    """Return what serves such requests."""
    want = request.topics[0].partitions[0]
    position = number_position(
        route, raw, want.fetch_offset, lambda read: int(read.topics[0].partitions[0].fetch_offset)
    )
    if position is None:
        return None
    return position, _Fetch(broker, route, request, partition, position - raw.begin).serve


class _Fetch:
    """Serves the fetches of one partition that differ in their offset."""

    __slots__ = (
        "_before",
        "_behind",
        "_between",
        "_broker",
        "_expected_epoch",
        "_has_start",
        "_last_epoch",
        "_log",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_pack_head",
        "_partitions",
        "_prefix_bytes",
        "_route",
        "_size",
    )

    def __init__(
        self, broker: "Broker", route: Route, request: FetchRequest, partition: Partition, prefix_bytes: int
    ) -> None:
        want = request.topics[0].partitions[0]
        self._broker = broker
        self._route = route
        self._partitions = (partition,)
        self._log = partition.log
        self._prefix_bytes = prefix_bytes
        self._expected_epoch = want.current_leader_epoch
        self._last_epoch = want.last_fetched_epoch
        self._min_bytes = request.min_bytes
        self._max_bytes = min(want.partition_max_bytes, request.max_bytes, broker.config.fetch_max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._has_start = route.version >= LOG_START_SINCE
        self._size, self._before, self._between, self._behind = _template(route, request, self._has_start)
        numbers = "qqq" if self._has_start else "qq"
        self._pack_head = Struct(f">ii{len(self._before)}s{numbers}{len(self._between)}s").pack

    def serve(
        self, view: memoryview, at: int, end: int, correlation_id: int
    ) -> Answer | Streamed | Deferred | None:
        """Answer with what is there, or wait for more; None for what takes the long way."""
        (offset,) = number(view, at)
        log = self._log
        epoch = log.leader_epoch
        if 0 <= self._expected_epoch != epoch or 0 <= self._last_epoch != epoch or log.failure is not None:
            return None
        if offset < log.high_watermark:
            return self._read(offset, correlation_id)
        if offset > log.log_end_offset or self._max_wait_ms <= 0 or self._min_bytes <= 0:
            return None
        raw = bytes(view[at - self._prefix_bytes : end])
        waiter = FetchWaiter(
            self._broker.parked,
            self._partitions,
            self._min_bytes,
            self._max_wait_ms,
            lambda: OnLoop(lambda: self._answer_parked(offset, correlation_id, raw)),
            kept_bytes=len(raw),
        )
        return Deferred(waiter, self._route, correlation_id)

    def _answer_parked(
        self, offset: int, correlation_id: int, raw: bytes
    ) -> Answer | Streamed | FetchResponse | Later:
        """Answer a fetch that has waited long enough with what is there."""
        log = self._log
        if log.failure is None:
            if offset >= log.high_watermark:
                return self._pack(correlation_id, b"")
            if (answer := self._read(offset, correlation_id)) is not None:
                return answer
        request, _ = self._route.read(memoryview(raw), body_position(self._route, raw), len(raw))
        return fetch_again(self._broker, request, self._route.version, self._partitions[0])

    def _read(self, offset: int, correlation_id: int) -> Answer | Streamed | None:
        """Answer with the records from an offset on, if there are enough and they are in memory."""
        try:
            piece = self._log.read(offset, self._max_bytes, at_least_one=True, wait=False)
            if piece.length < self._min_bytes:
                return None
            data = piece if piece.length > AT_ONCE_BYTES else piece.read_nowait()
        except (StorageError, NotInMemory, TakesLong):
            return None
        return None if data is None else self._pack(correlation_id, data)

    def _pack(self, correlation_id: int, data: bytes | bytearray | FileSlice) -> Answer | Streamed:
        """Put an answer together."""
        count, behind = len(data), self._behind
        length = uvarint(count + 1) if self._route.request_is_flexible else _length(count)
        size = self._size + len(length) + count
        log = self._log
        watermark = log.high_watermark
        if self._has_start:
            start = log.log_start_offset
            head = self._pack_head(
                size, correlation_id, self._before, watermark, watermark, start, self._between
            )
        else:
            head = self._pack_head(size, correlation_id, self._before, watermark, watermark, self._between)
        if isinstance(data, FileSlice):
            return Streamed([head + length, data, behind], size + 4)
        if size <= SMALL_FRAME_BYTES:
            return [b"".join((head, length, data, behind))]
        return [head + length, data, behind]


def _template(route: Route, request: FetchRequest, has_start: bool) -> tuple[int, bytes, bytes, bytes]:
    """Encode an answer once: its size without the records and their length, and what stands before and behind its
    numbers, and behind its records.
    """
    asked = request.topics[0]
    answer = PartitionData(
        partition_index=asked.partitions[0].partition,
        error_code=0,
        high_watermark=PROBES[0],
        last_stable_offset=PROBES[1],
        log_start_offset=PROBES[2],
        aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
        records=_RECORDS,
    )
    topic_answer = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[answer])
    numbers = Struct(">qqq" if has_start else ">qq")
    size, before, rest = template(
        route, FetchResponse(responses=[topic_answer]), numbers, *PROBES[: 3 if has_start else 2]
    )
    between, _, behind = rest.partition(_RECORDS)
    length_bytes = 1 if route.request_is_flexible else 4
    return size - length_bytes - len(_RECORDS), before, between[:-length_bytes], behind
