"""Entries of a log in any format, described by a `BatchHeader`.

A message of v0 or v1, or a wrapper, looks like a batch without a producer, whose last offset is the message's offset.
"""

import struct
from typing import Final

from tidelog.protocol.records import batch, legacy, message_set
from tidelog.protocol.records.batch import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from tidelog.protocol.records.errors import CorruptBatch, RecordsError

# The size of the shortest entry, which is enough to read format and size.
BYTES_MIN: Final = batch.PREFIX_BYTES + legacy.LENGTH_MIN
# `peek` needs this much of a longer entry.
HEAD_BYTES: Final = batch.HEADER_BYTES
# The record count of a wrapper that was not decompressed.
UNKNOWN: Final = -1

_unpack_message = struct.Struct(">qiIbb").unpack_from
_unpack_timestamp = struct.Struct(">q").unpack_from


def peek(data: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the entry at position; CorruptBatch if the start of the entry is cut off.

    The header of a wrapper has its last offset as its first, and UNKNOWN records.
    """
    if len(data) - position < BYTES_MIN:
        raise CorruptBatch(
            f"entry at position {position} is cut short: {len(data) - position} bytes, the shortest takes {BYTES_MIN}"
        )
    if data[position + batch.MAGIC_POSITION] not in legacy.MAGICS:
        return batch.read_header(data, position)
    offset, length, crc, magic, attributes = _unpack_message(data, position)
    attributes &= CODEC_MASK | LOG_APPEND_TIME if magic else CODEC_MASK
    time = _unpack_timestamp(data, position + legacy.TIMESTAMP_POSITION)[0] if magic else NO_TIMESTAMP
    count = UNKNOWN if attributes & CODEC_MASK else 1
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, time, time, -1, -1, -1, count)


def read(data: Buffer, position: int, limit_bytes: int) -> BatchHeader:
    """Read the header of a whole entry; a wrapper is decompressed for its first offset and its record count.

    A wrapper that is damaged, or larger than limit_bytes, counts as one record.
    """
    header = peek(data, position)
    if header.record_count != UNKNOWN:
        return header
    try:
        wrapper = legacy.read_entry(data, position, position + header.size_bytes)
        payload = message_set.open_payload(data, wrapper, limit_bytes)
        inner = [each.offset for each in message_set.payload_entries(payload, wrapper)]
        base_offset = message_set.base_of(payload, wrapper) + inner[0]
    except RecordsError:
        return header._replace(record_count=1)
    # A wrapper's own offset is the last one, unless librdkafka left it at 0.
    last_offset = max(header.base_offset, base_offset + inner[-1] - inner[0])
    return header._replace(
        base_offset=base_offset, last_offset_delta=last_offset - base_offset, record_count=len(inner)
    )


def check_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the entry at position is whole and matches its checksum."""
    if header.magic not in legacy.MAGICS:
        return batch.check_crc(data, position, header)
    if header.batch_length < legacy.LENGTHS_MIN[header.magic] or position + header.size_bytes > len(data):
        return False
    return legacy.check_crc(data, position, header)
