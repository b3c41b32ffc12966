"""Finding one record inside a batch by its timestamp.

Owns the step from a batch to a record: read, decompress within the topic's bound, walk, compare. Knows nothing of
segments or indexes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tidelog.protocol.records import compression, kernel
from tidelog.protocol.records.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import File

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
# Columns that nobody uses: making them costs more than a lookup. Those of huge batches are not kept.
_SPARE_ROWS_MAX = 16384
_spare: list[kernel.Columns] = []


class Found(NamedTuple):
    """A record: its timestamp, its offset, the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record(
    file: File, position: int, size: int, timestamp: int, offset_min: int, limit_bytes: int
) -> Found | None:
    """Return the first record of a batch at or after both a timestamp and an offset, or None."""
    with _scanned(file, position, size, limit_bytes) as (header, columns):
        if header.is_log_append_time:
            # All records have the time of the batch: only the offset is left to look for.
            delta = _INT64_MIN if header.max_timestamp >= timestamp else _INT64_MAX + 1
        else:
            delta = timestamp - header.base_timestamp
        if delta > _INT64_MAX:
            return None
        first = offset_min - header.base_offset
        row = kernel.first_at_or_after(columns, columns.count, max(delta, _INT64_MIN), first)
        return None if row < 0 else _found(header, columns, row)


def largest_record(file: File, position: int, size: int, offset_min: int, limit_bytes: int) -> Found | None:
    """Return the first record with the largest timestamp among those of a batch from an offset on, or None."""
    with _scanned(file, position, size, limit_bytes) as (header, columns):
        first = offset_min - header.base_offset
        rows = [row for row in range(columns.count) if columns.offset_delta[row] >= first]
        if not rows:
            return None
        return _found(header, columns, max(rows, key=lambda row: (_timestamp(header, columns, row), -row)))


@contextmanager
def _scanned(
    file: File, position: int, size: int, limit_bytes: int
) -> Iterator[tuple[BatchHeader, kernel.Columns]]:
    """Lend the header of a batch and the columns of its records."""
    data = file.pread(size, position)
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
        raise CorruptLog(f"{file.path}@{position}: {error}") from error
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
