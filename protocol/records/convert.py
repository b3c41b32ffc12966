"""Stored entries in the format that a reader of an older version takes (Fetch v0 to v3).

Owns what becomes of a record between formats: headers, producers and markers are left out going down, times where v0
has none. Refuses to know requests and logs. Invariant: what a reader can take already passes byte for byte, offsets
never change, and one entry at a time is in memory.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

from tidelog.protocol.records import batch, compression, kernel, legacy, legacy_codecs, message_set
from tidelog.protocol.records.batch import BatchHeader, Buffer
from tidelog.protocol.records.build import Message
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
)

_INT64_MAX: Final = (1 << 63) - 1
_unpack_prefix = struct.Struct(">qi").unpack_from


def convert(
    data: Buffer, position: int, end: int, magic: int, offset_min: int, limit_bytes: int
) -> Iterator[Buffer]:
    """Yield what a client that reads formats up to magic takes of each entry that begins in [position, end).

    As Kafka does: what it can read passes whole; of an uncompressed entry that is converted, records before
    offset_min are left out, a compressed one is converted whole; control batches, and batches that nothing is left
    of, yield nothing. RecordsError where an entry is damaged, gives more than limit_bytes, or is of zstd, which no
    such client reads.
    """
    view = memoryview(data)
    stop = min(end, len(view))
    while position < stop:
        size = _size_of(view, position, stop)
        entry_magic = view[position + batch.MAGIC_POSITION]
        if entry_magic <= magic:
            yield view[position : position + size]
        elif converted := _converted(view, position, position + size, magic, offset_min, limit_bytes):
            yield converted
        position += size


def batch_messages(
    data: Buffer, position: int, header: BatchHeader, limit_bytes: int, offset_min: int = 0
) -> Iterator[Message]:
    """Read the records of the batch at position, as messages, from offset_min on; headers are left out."""
    payload = memoryview(data)[position + batch.HEADER_BYTES : position + header.size_bytes]
    # Slices of bytes cost half of what those of a view do.
    records = bytes(compression.decompress(header.codec, payload, limit_bytes))
    columns = Columns()
    count = header.record_count
    try:
        largest, _, smallest = kernel.scan(records, 0, len(records), count, columns, False)
    except RecordError as error:
        raise InvalidRecord(f"batch at position {position}: {error}") from error
    base, base_time = header.base_offset, header.base_timestamp
    _check_range(position, header, columns, base_time + smallest, base_time + largest)
    append_time = header.max_timestamp if header.is_log_append_time else None
    rows = zip(
        columns.offset_delta,
        columns.timestamp_delta,
        columns.key_position,
        columns.key_length,
        columns.value_position,
        columns.value_length,
        strict=True,
    )
    for offset, time, key, key_length, value, value_length in islice(rows, count):
        if base + offset >= offset_min:
            yield (
                base + offset,
                base_time + time if append_time is None else append_time,
                records[key : key + key_length] if key_length >= 0 else None,
                records[value : value + value_length] if value_length >= 0 else None,
            )


def _size_of(view: memoryview, position: int, end: int) -> int:
    """Return the size of the entry at position, which must lie before end."""
    left = end - position
    if left < legacy.HEAD_BYTES:
        raise CorruptBatch(f"entry at position {position} is cut short: {left} bytes are left")
    _, length = _unpack_prefix(view, position)
    magic = view[position + batch.MAGIC_POSITION]
    if magic > batch.MAGIC:
        raise CorruptBatch(f"entry at position {position}: magic byte {magic} is no message format")
    least = batch.HEADER_BYTES - batch.PREFIX_BYTES if magic == batch.MAGIC else legacy.LENGTHS_MIN[magic]
    if length < least or length > left - batch.PREFIX_BYTES:
        raise CorruptBatch(
            f"entry at position {position}: its length is {length}, and {left - batch.PREFIX_BYTES} bytes follow"
        )
    return int(batch.PREFIX_BYTES + length)


def _converted(
    view: memoryview, position: int, end: int, magic: int, offset_min: int, limit_bytes: int
) -> bytes | bytearray:
    """Convert the entry that fills [position, end) to an older format."""
    if view[position + batch.MAGIC_POSITION] == batch.MAGIC:
        return _batch_converted(view, position, magic, offset_min, limit_bytes)
    entry = legacy.read_entry(view, position, end)
    if entry.codec == compression.NONE and entry.offset < offset_min:
        return b""
    # From v1 to v0, which has no times.
    parts = message_set.messages(view, entry, limit_bytes)
    return message_set.write(parts, magic, entry.codec, log_append_time=False)


def _batch_converted(
    view: memoryview, position: int, magic: int, offset_min: int, limit_bytes: int
) -> bytes | bytearray:
    header = batch.read_header(view, position)
    if header.is_control or header.record_count == 0:
        return b""
    codec = header.codec
    legacy_codecs.check_codec(codec, magic)
    parts = batch_messages(view, position, header, limit_bytes, 0 if codec else offset_min)
    return message_set.write(parts, magic, codec, log_append_time=header.is_log_append_time)


def _check_range(position: int, header: BatchHeader, columns: Columns, oldest: int, newest: int) -> None:
    """Check that offsets and times are such as a message can have."""
    if header.record_count == 0:
        return
    last = header.base_offset + columns.offset_delta[header.record_count - 1]
    if header.base_offset < 0 or last > _INT64_MAX:
        raise CorruptBatch(f"batch at position {position}: offsets from {header.base_offset} to {last}")
    if oldest < batch.NO_TIMESTAMP or newest > _INT64_MAX:
        raise InvalidTimestamp(f"batch at position {position}: record timestamps from {oldest} to {newest}")
