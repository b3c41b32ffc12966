"""Finding one record inside a batch by its timestamp.

Owns the step from a batch to a record: read, decompress within the topic's bound, walk, compare. Knows nothing of
segments or indexes.
"""

from typing import NamedTuple

from tidelog.protocol.records import compression, kernel
from tidelog.protocol.records.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import File

_INT64_MAX = (1 << 63) - 1


class Found(NamedTuple):
    """A record: its timestamp, its offset, the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record(
    file: File, position: int, size: int, timestamp: int, offset_min: int, limit_bytes: int
) -> tuple[BatchHeader, Found | None]:
    """Return a batch's header, and its first record at or after both a timestamp and an offset, or None."""
    header, columns = _scan(file, position, size, limit_bytes)
    if header.is_log_append_time:
        # All records have the time of the batch: only the offset is left to look for.
        if header.max_timestamp < timestamp:
            return header, None
        delta = -_INT64_MAX - 1
    else:
        delta = timestamp - header.base_timestamp
        if delta > _INT64_MAX:
            return header, None
    row = kernel.first_at_or_after(
        columns, columns.count, max(delta, -_INT64_MAX - 1), offset_min - header.base_offset
    )
    return header, None if row < 0 else _found(header, columns, row)


def largest_record(file: File, position: int, size: int, offset_min: int, limit_bytes: int) -> Found | None:
    """Return the first record with the largest timestamp among those of a batch from an offset on, or None."""
    header, columns = _scan(file, position, size, limit_bytes)
    first = offset_min - header.base_offset
    rows = [row for row in range(columns.count) if columns.offset_delta[row] >= first]
    if not rows:
        return None
    return _found(header, columns, max(rows, key=lambda row: (_timestamp(header, columns, row), -row)))


def _scan(file: File, position: int, size: int, limit_bytes: int) -> tuple[BatchHeader, kernel.Columns]:
    data = file.pread(size, position)
    try:
        header = read_header(data)
        records: Buffer = data
        start = HEADER_BYTES
        if header.codec:
            records = compression.decompress(header.codec, memoryview(data)[HEADER_BYTES:], limit_bytes)
            start = 0
        columns = kernel.Columns()
        kernel.scan(records, start, len(records), header.record_count, columns, False)
    except (RecordsError, kernel.RecordError) as error:
        raise CorruptLog(f"{file.path}@{position}: {error}") from error
    return header, columns


def _timestamp(header: BatchHeader, columns: kernel.Columns, row: int) -> int:
    return (
        header.max_timestamp
        if header.is_log_append_time
        else header.base_timestamp + columns.timestamp_delta[row]
    )


def _found(header: BatchHeader, columns: kernel.Columns, row: int) -> Found:
    timestamp = _timestamp(header, columns, row)
    return Found(timestamp, header.base_offset + columns.offset_delta[row], header.leader_epoch)
