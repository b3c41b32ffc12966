"""The times of the records of a stored batch, in any format, as they were known at its append.

They come from the header if it has them, otherwise from the records.
"""

from typing import Final

from tidelog.protocol.records import compression, kernel, legacy, message_set
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader, Buffer
from tidelog.protocol.records.build import READ_LIMIT_BYTES
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.protocol.records.validate import ValidBatch

# Below every time: the records were not read. Above every time: there are none.
UNKNOWN: Final = -(1 << 63)
BEYOND: Final = (1 << 63) - 1
NONE: Final = -1


def by_header(header: BatchHeader) -> ValidBatch:
    """Return the times in the header of a batch: the smallest may be UNKNOWN, and the newest record NONE."""
    oldest, newest_delta = UNKNOWN, NONE
    if not header.record_count:
        oldest = BEYOND
    elif header.record_count == 1 or header.is_log_append_time:
        oldest = header.max_timestamp
        # Otherwise compaction has removed some, and the first remaining one may have any offset.
        newest_delta = 0 if header.last_offset_delta == header.record_count - 1 else NONE
    return ValidBatch(header, oldest, header.max_timestamp, newest_delta, header.size_bytes)


def looked_up(header: BatchHeader, data: Buffer) -> ValidBatch:
    """Return the times of a batch, whose bytes are `data`; if it cannot be read, those of its header.

    The largest time is always that of the header, which readers of a log use.
    """
    found = by_header(header)
    if found.max_timestamp_offset_delta != NONE or not header.record_count:
        return found
    try:
        oldest, newest, newest_delta = _read(header, data)
    except (RecordsError, RecordError):
        return found
    if header.is_log_append_time:
        oldest = newest = header.max_timestamp
    if newest != header.max_timestamp:
        newest_delta = NONE
    return found._replace(min_timestamp=oldest, max_timestamp_offset_delta=newest_delta)


def _read(header: BatchHeader, data: Buffer) -> tuple[int, int, int]:
    """Return the smallest and the largest time, and the offset delta of the first record with the largest."""
    if header.magic != MAGIC:
        wrapper = legacy.read_entry(data, 0, len(data))
        rows = [
            (time, offset) for offset, time, _, _ in message_set.messages(data, wrapper, READ_LIMIT_BYTES)
        ]
        newest, at = max(rows, key=lambda row: (row[0], -row[1]))
        return min(rows)[0], newest, at - header.base_offset
    records, start = data, HEADER_BYTES
    if header.codec:
        records, start = compression.decompress(header.codec, data[HEADER_BYTES:], READ_LIMIT_BYTES), 0
    count, is_whole = header.record_count, header.last_offset_delta == header.record_count - 1
    columns = None if is_whole else Columns(count)
    largest, first, smallest = kernel.scan(records, start, len(records), count, columns, is_whole)
    if header.is_log_append_time:
        first = 0
    delta = first if columns is None else columns.offset_delta[first]
    return header.base_timestamp + smallest, header.base_timestamp + largest, delta
