"""Fetch: the batches of a range of offsets of one partition, or the next records of several partitions.

While the caller uses one answer of a range, the next request is already sent. No offset of a range is skipped in
silence: if retention deletes records during the read, that is an error, unless the caller allows loss.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tidelog.client.cluster import Cluster, Partition, by_topic, check
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, Retriable
from tidelog.client.offsets import EARLIEST, LATEST, offsets_of
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.records import build, entries, message_set
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.build import READ_LIMIT_BYTES
from tidelog.protocol.records.errors import CorruptBatch, RecordError, RecordsError
from tidelog.protocol.records.legacy import MAGICS
from tidelog.protocol.wire.types import ZERO_UUID

T = TypeVar("T")

MOST_BYTES: Final = 8 << 20
LEAST_BYTES: Final = 64 << 10
# The assumed size of a record.
RECORD_BYTES: Final = 1 << 10
_WAIT_MS: Final = 500
# A read may go past its planned end by as many records as were planned, or by this many.
_MOST_FURTHER: Final = 1_000_000
_IDLE: Final = 20  # answers in a row without a record
_BY_NAME: Final = 12  # the last version that names topics
# Of each partition, if a request names several.
_EACH_BYTES: Final = 1 << 20
_POLLED_CODES: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR}
)


class Fetched(NamedTuple):
    """Consecutive whole entries and the position of each, the offset that was requested, and the next to request."""

    start: int
    data: memoryview
    entries: list[tuple[int, BatchHeader]]
    next_offset: int


class Fetcher:
    """Fetches one partition, and can send the next request before it is needed."""

    def __init__(self, cluster: Cluster, partition: Partition, isolation_level: int = 0) -> None:
        """Send nothing yet. Isolation level 1 reads up to the first open transaction."""
        self._cluster = cluster
        self._partition = partition
        self._isolation_level = isolation_level
        self._ahead: tuple[int, Connection] | None = None

    def fetch(self, offset: int, max_bytes: int) -> PartitionData:
        """Return the entries from an offset on; errors that may pass are retried."""
        what = f"{self._partition}@{offset}"
        return self._cluster.retried(what, lambda: self._fetched(offset, max_bytes))

    def ask_ahead(self, offset: int, max_bytes: int) -> None:
        """Send the request of the next `fetch` now."""
        with suppress(Retriable):  # `fetch` sends it again
            self._ahead = offset, self._sent(offset, max_bytes)

    def _fetched(self, offset: int, max_bytes: int) -> PartitionData:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == offset:
            connection = ahead[1]
        else:
            connection = self._sent(offset, max_bytes)
        answer = connection.receive()
        check(answer.error_code, str(self._partition))
        found: PartitionData = answer.responses[0].partitions[0]
        if found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(found.error_code, f"{self._partition}@{offset}")
        return found

    def _sent(self, offset: int, max_bytes: int) -> Connection:
        topic, partition, topic_id = self._partition
        connection = self._cluster.leader(topic, partition)
        if topic_id not in (ZERO_UUID, self._cluster.known_id(topic)):
            raise ClientError(
                f"{self._partition}: the topic was deleted and created again during the read; read again"
            )
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        by_name = topic_id == ZERO_UUID or connection.version(FETCH) <= _BY_NAME
        named: dict[str, Any] = {"topic": topic} if by_name else {"topic_id": topic_id}
        asked = FetchTopic(partitions=[wanted], **named)
        request = _request([asked], _WAIT_MS, max_bytes, self._isolation_level)
        connection.send(FETCH, request, _BY_NAME if by_name else None)
        return connection


def fetched(
    cluster: Cluster,
    partition: Partition,
    start: int,
    end: int,
    limit: int,
    record_bytes: int,
    may_lose: bool,
) -> Iterator[Fetched]:
    """Yield the entries of a range of offsets that existed when the read was planned.

    If `limit` is larger than `end`, read on to the end of the log, at most to `limit`. ClientError if records of the
    range no longer exist; with `may_lose`, yield the rest.
    """
    if start >= end:
        return
    fetcher = Fetcher(cluster, partition)
    offset, idle = start, 0
    planned, most = end, end + max(end - start, _MOST_FURTHER)
    while offset < end:
        found = fetcher.fetch(offset, _bytes_for(end - offset, record_bytes))
        if found.error_code:
            asked, offset = offset, _after_loss(partition, cluster, offset, end, may_lose)
            idle = idle + 1 if offset == asked else 0
            if idle >= _IDLE:
                raise ClientError(
                    f"{partition}@{offset}: the broker answers OFFSET_OUT_OF_RANGE, but its log has the offset"
                )
            if idle:
                time.sleep(_WAIT_MS / 1000)
            continue
        data = memoryview(found.records or b"")  # type: ignore[arg-type]
        whole = whole_entries(partition, data, offset)
        if whole.next_offset == offset:
            idle += 1
            demand_more(partition, found, data, offset, end, idle)
            continue
        offset, idle = whole.next_offset, 0
        end = max(end, min(limit, found.high_watermark))
        if end > most:
            raise ClientError(
                f"{partition}@{offset}: the topic grows faster than it is read: it ended at {planned:,} when the read "
                f"was planned, and ends at {end:,} now; read its segments instead (source=segments:FOLDER), or less "
                "of it (option partitions)"
            )
        if offset < end:
            fetcher.ask_ahead(offset, _bytes_for(end - offset, record_bytes))
        yield whole


def _bytes_for(count: int, record_bytes: int) -> int:
    """Return how much to fetch for a number of records: a tenth more than their expected size."""
    return max(LEAST_BYTES, min(count * record_bytes * 11 // 10, MOST_BYTES))


def whole_entries(partition: Partition, data: memoryview, offset: int) -> Fetched:
    """Find the whole entries; the protocol allows a broker to cut the last one off."""
    found: list[tuple[int, BatchHeader]] = []
    at, next_offset = 0, offset
    while len(data) - at >= entries.BYTES_MIN:
        try:
            header = entries.peek(data, at)
        except CorruptBatch:
            break  # even its header is cut off
        if header.size_bytes < entries.BYTES_MIN:
            raise ClientError(
                f"{partition}@{next_offset}: the broker sent an entry of {header.size_bytes} bytes, which is too small"
            )
        if header.size_bytes > len(data) - at:
            break
        if header.magic in MAGICS and header.last_offset < next_offset:
            header = header._replace(
                last_offset_delta=entries.read(data, at, 1 << 30).last_offset - header.base_offset
            )
        found.append((at, header))
        next_offset = max(next_offset, header.last_offset + 1)
        at += header.size_bytes
    return Fetched(offset, data, found, next_offset)


def _after_loss(partition: Partition, cluster: Cluster, offset: int, end: int, may_lose: bool) -> int:
    """Return the offset to go on with after OFFSET_OUT_OF_RANGE."""
    topic, number, _ = partition
    log_start = offsets_of(cluster, topic, {number: EARLIEST})[number]
    if offset < log_start:
        if may_lose:
            return log_start
        raise ClientError(
            f"{partition}@{offset}: retention has deleted offsets {offset} to {min(log_start, end) - 1} since the read "
            f"was planned; read again, or go on without them with failOnDataLoss=false"
        )
    log_end = offsets_of(cluster, topic, {number: LATEST})[number]
    if offset < log_end:
        return offset  # the log has it: the broker that was asked was not the leader, or has just become it
    if may_lose:
        return end
    raise ClientError(
        f"{partition}@{offset}: the log ends at {log_end} now, and the read was to end at {end}: the broker has lost "
        f"records, or the topic was created again; read again, or go on without them with failOnDataLoss=false"
    )


def demand_more(
    partition: Partition, found: PartitionData, data: memoryview, offset: int, end: int, idle: int
) -> None:
    """Raise ClientError for an answer without a whole entry, but only after some without any byte."""
    if len(data):
        raise ClientError(
            f"{partition}@{offset}: the broker sent {len(data)} bytes, which hold no whole entry"
        )
    if idle >= _IDLE:
        raise ClientError(
            f"{partition}@{offset}: the broker sends nothing, but the log should end at {end} "
            f"(the high watermark is {found.high_watermark}); is a replica missing?"
        )


def _request(
    topics: list[FetchTopic], wait_ms: int, max_bytes: int, isolation_level: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
    )


class Record(NamedTuple):
    """A record and its place; the timestamp is in ms since the epoch, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: set by the producer, 1: by the append, -1: none
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Polled(NamedTuple, Generic[T]):
    """The records of a partition from an offset on, or what was made of them, and the next offset to read.

    The error code is that of the next offset: 0, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR.
    """

    records: list[T]
    next_offset: int
    error_code: int = 0


# Reads the entry at a position of the data, from an offset on; RecordError, RecordsError.
Read = Callable[[Partition, memoryview, int, BatchHeader, int], list[T]]


def poll(
    cluster: Cluster, positions: Mapping[Partition, int], wait_ms: int
) -> dict[Partition, Polled[Record]]:
    """Return the next records of each partition, some MiB at most; wait if there are none.

    A broker fills its answer in the order of `positions`, so put the partitions that were just read last. Retriable,
    UnknownTopic.
    """
    return poll_as(cluster, positions, wait_ms, records)


def poll_as(
    cluster: Cluster, positions: Mapping[Partition, int], wait_ms: int, read: Read[T]
) -> dict[Partition, Polled[T]]:
    """Return what `read` makes of the records that `poll` returns."""
    by_leader = cluster.by_leader(positions)
    for connection, partitions in by_leader.items():
        asked = [
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=each.partition,
                        fetch_offset=positions[each],
                        partition_max_bytes=_EACH_BYTES,
                    )
                    for each in some
                ],
            )
            for name, some in by_topic(partitions).items()
        ]
        connection.send(FETCH, _request(asked, wait_ms, MOST_BYTES), _BY_NAME)
    found: dict[Partition, Polled[T]] = {}
    for connection in by_leader:
        answer = connection.receive()
        check(answer.error_code, "fetch")
        for topic in answer.responses:
            for data in topic.partitions:
                key = Partition(topic.topic, data.partition_index)
                found[key] = _polled(key, positions[key], data, read)
    return found


def _polled(key: Partition, offset: int, data: PartitionData, read: Read[T]) -> Polled[T]:
    if data.error_code:
        if data.error_code not in _POLLED_CODES:
            check(data.error_code, f"{key}@{offset}")
        return Polled([], offset, data.error_code)
    whole = whole_entries(key, memoryview(data.records or b""), offset)  # type: ignore[arg-type]
    found: list[T] = []
    for at, header in whole.entries:
        try:
            if not entries.check_crc(whole.data, at, header):
                raise CorruptBatch("the checksum is wrong")
            if not header.is_control:
                found += read(key, whole.data, at, header, offset)
        except (RecordError, RecordsError):
            return Polled(found, max(offset, header.base_offset), ErrorCode.CORRUPT_MESSAGE)
    return Polled(found, whole.next_offset)


def read_entry(data: memoryview, at: int, header: BatchHeader) -> Iterator[build.Record]:
    """Return the records of an entry of any format; RecordError, RecordsError."""
    if header.magic in MAGICS:
        return message_set.read_records(data, at, at + header.size_bytes, READ_LIMIT_BYTES)
    return build.read_records(data, at, READ_LIMIT_BYTES)


def records(key: Partition, data: memoryview, at: int, header: BatchHeader, offset: int) -> list[Record]:
    """Return the records of an entry that are at or after an offset."""
    topic, partition, _ = key
    is_older, kind = header.magic in MAGICS, int(header.is_log_append_time)
    rows = (
        ((each.offset, each.timestamp, each.key, each.value, ()) for each in read_entry(data, at, header))
        if is_older
        else build.read_rows(data, at, READ_LIMIT_BYTES)
    )
    return [
        Record(
            topic,
            partition,
            place,
            time_ms,
            -1 if is_older and time_ms < 0 else kind,
            record_key,
            value,
            list(headers),
        )
        for place, time_ms, record_key, value, headers in rows
        if place >= offset
    ]
