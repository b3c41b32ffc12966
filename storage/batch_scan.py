"""Finding one record inside a batch by its timestamp.

Owns the step from a batch to a record: read, decompress within the topic's bound, walk, compare; and the times of the
batches that were searched last, so that the next search in one of them takes no walk. Knows nothing of indexes.
"""

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tidelog.protocol.records import compression, kernel
from tidelog.protocol.records.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import CorruptLog
from tidelog.storage.lookup import Place
from tidelog.storage.segment import Segment

# Columns that nobody uses: making them costs more than a lookup. Those of huge batches are not kept.
_SPARE_ROWS_MAX = 16384
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_spare: list[kernel.Columns] = []


class Found(NamedTuple):
    """A record: its timestamp, its offset, the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class _Times(NamedTuple):
    """When the records of a batch are: the largest timestamp delta up to each, and their offset deltas if not 0, 1, ...

    With LogAppendTime every record has the time of the batch, and the deltas do not count.
    """

    header: BatchHeader
    largest: "array[int]"
    offset_deltas: "array[int] | None"


class _Recent:
    """The times of the batches that were read last, up to a number of records in all. For any thread."""

    # 8 bytes each, 16 where compaction left gaps.
    RECORDS_MAX = 1 << 20
    # What an entry takes besides, in records.
    ENTRY_RECORDS = 64

    def __init__(self) -> None:
        self._times: dict[tuple[Segment, int], _Times] = {}
        self._records = 0
        self._lock = threading.Lock()

    def get(self, segment: Segment, place: Place, limit_bytes: int, wait: bool) -> _Times:
        """Return the times of a batch, read now unless they are here."""
        times = self._times.get((segment, place.position))
        if times is None:
            times = _read_times(segment, place, limit_bytes, wait)
            with self._lock:
                self._keep((segment, place.position), times)
        return times

    def _keep(self, key: tuple[Segment, int], times: _Times) -> None:
        if key in self._times:
            return
        self._times[key] = times
        self._records += len(times.largest) + self.ENTRY_RECORDS
        while self._records > self.RECORDS_MAX:
            oldest = self._times.pop(next(iter(self._times)))
            self._records -= len(oldest.largest) + self.ENTRY_RECORDS


_recent = _Recent()


def _read_times(segment: Segment, place: Place, limit_bytes: int, wait: bool) -> _Times:
    data = (
        place.head if len(place.head) == place.size else segment.file.read(place.size, place.position, wait)
    )
    with _scanned(segment, place.position, data, limit_bytes) as (header, columns):
        count = columns.count
        largest = _copy(columns.timestamp_delta, count)
        kernel.running_maximum(largest)
        has_gaps = count and columns.offset_delta[count - 1] != count - 1
        return _Times(header, largest, _copy(columns.offset_delta, count) if has_gaps else None)


def _copy(column: memoryview, count: int) -> "array[int]":
    values = array("q")
    values.frombytes(column[:count].cast("B"))
    return values


def first_record(
    segment: Segment, place: Place, timestamp: int, offset_min: int, limit_bytes: int, wait: bool
) -> Found | None:
    """Return the first record of a batch at or after both a timestamp and an offset, or None."""
    header, largest, offset_deltas = _recent.get(segment, place, limit_bytes, wait)
    base_offset = header.base_offset
    if base_offset < offset_min:
        return _first_behind(segment, place, timestamp, offset_min, limit_bytes)
    if header.is_log_append_time:
        row = 0 if header.max_timestamp >= timestamp else len(largest)
    else:
        row = bisect_left(largest, timestamp - header.base_timestamp)
    if row >= len(largest):
        return None
    found = header.max_timestamp if header.is_log_append_time else header.base_timestamp + largest[row]
    return Found(found, base_offset + (offset_deltas[row] if offset_deltas else row), header.leader_epoch)


def _first_behind(
    segment: Segment, place: Place, timestamp: int, offset_min: int, limit_bytes: int
) -> Found | None:
    """Do first_record's work where the log starts within the batch: what is before the start does not count."""
    data = segment.file.pread(place.size, place.position)
    with _scanned(segment, place.position, data, limit_bytes) as (header, columns):
        if header.is_log_append_time:
            # All records have the time of the batch: only the offset is left to look for.
            delta = _INT64_MIN if header.max_timestamp >= timestamp else _INT64_MAX + 1
        else:
            delta = timestamp - header.base_timestamp
        row = kernel.first_at_or_after(columns, columns.count, delta, offset_min - header.base_offset)
        return None if row < 0 else _found(header, columns, row)


def largest_record(
    segment: Segment, position: int, size: int, offset_min: int, limit_bytes: int
) -> Found | None:
    """Return the first record with the largest timestamp among those of a batch from an offset on, or None."""
    data = segment.file.pread(size, position)
    with _scanned(segment, position, data, limit_bytes) as (header, columns):
        first = offset_min - header.base_offset
        rows = [row for row in range(columns.count) if columns.offset_delta[row] >= first]
        if not rows:
            return None
        return _found(header, columns, max(rows, key=lambda row: (_timestamp(header, columns, row), -row)))


@contextmanager
def _scanned(
    segment: Segment, position: int, data: Buffer, limit_bytes: int
) -> Iterator[tuple[BatchHeader, kernel.Columns]]:
    """Lend the header of a batch and the columns of its records."""
    try:
        columns = _spare.pop()
    except IndexError:
        columns = kernel.Columns()
    try:
        header = read_header(data)
        records: Buffer = data
        start = HEADER_BYTES
        if header.codec:
            records = compression.decompress(header.codec, memoryview(data)[HEADER_BYTES:], limit_bytes)
            start = 0
        kernel.scan(records, start, len(records), header.record_count, columns, False)
    except (RecordsError, kernel.RecordError) as error:
        raise CorruptLog(f"{segment.file.path}@{position}: {error}") from error
    yield header, columns
    if columns.capacity <= _SPARE_ROWS_MAX:
        _spare.append(columns)


def _timestamp(header: BatchHeader, columns: kernel.Columns, row: int) -> int:
    if header.is_log_append_time:
        return header.max_timestamp
    return header.base_timestamp + columns.timestamp_delta[row]


def _found(header: BatchHeader, columns: kernel.Columns, row: int) -> Found:
    timestamp = _timestamp(header, columns, row)
    return Found(timestamp, header.base_offset + columns.offset_delta[row], header.leader_epoch)
