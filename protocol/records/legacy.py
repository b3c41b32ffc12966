"""A message of the older formats v0 and v1: read and write it.

An entry is a record, or the wrapper of a compressed payload. `read_entry` checks every length: the entry is within
[position, end), and its key and value fill it. `encode` writes what `read_entry` reads.
"""

import struct
import zlib
from typing import Final, NamedTuple

from tidelog.protocol.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
)
from tidelog.protocol.records.errors import CorruptBatch, InvalidRecord

MAGICS: Final = (0, 1)
# Offset and length as in a batch, CRC-32, magic; then attributes, in v1 the timestamp, then key and value.
HEAD_BYTES: Final = MAGIC_POSITION + 1
OFFSET_BYTES: Final = 8
ATTRIBUTES_POSITION: Final = 17
TIMESTAMP_POSITION: Final = 18
# The least value of the length: checksum, magic, attributes, no key and no value.
LENGTH_MIN: Final = 14
# The same for each format: v1 also has a timestamp.
LENGTHS_MIN: Final = (LENGTH_MIN, LENGTH_MIN + 8)

_BEGINNING: Final = struct.Struct(">qiIbb")
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
# The checksum covers, before the key: magic, attributes, timestamp in v1, the key's length.
_pack_v0 = struct.Struct(">bbi").pack
_pack_v1 = struct.Struct(">bbqi").pack
_pack_length = _LENGTH.pack
_pack_prefix = struct.Struct(">qiI").pack
_unpack_beginning = _BEGINNING.unpack_from
_unpack_timestamp = _TIMESTAMP.unpack_from
_unpack_length = _LENGTH.unpack_from
_new = tuple.__new__


class Entry(NamedTuple):
    """An entry: its fields, and the positions of key and value; a length of -1 is null. In v0 the timestamp is -1."""

    position: int
    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key_position: int
    key_length: int
    value_position: int
    value_length: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole entry, with offset and length."""
        return PREFIX_BYTES + self.length

    @property
    def codec(self) -> int:
        """The codec of a wrapper's payload; 0 if the entry is a record."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamp is the append time; in a wrapper, that of all its records."""
        return self.magic > 0 and self.attributes & LOG_APPEND_TIME != 0


def read_entry(data: Buffer, position: int, end: int) -> Entry:
    """Read the entry at position, with data up to end; CorruptBatch if a length is wrong."""
    if end - position < PREFIX_BYTES + LENGTH_MIN:
        raise _wrong(
            position, f"{end - position} bytes are left, the shortest takes {PREFIX_BYTES + LENGTH_MIN}"
        )
    offset, length, crc, magic, attributes = _unpack_beginning(data, position)
    if not 0 <= magic <= 1:
        raise _wrong_magic(position, magic)
    stop = position + PREFIX_BYTES + length
    if length < LENGTHS_MIN[magic] or stop > end:
        raise _wrong(position, f"its length is {length}, and {end - position - PREFIX_BYTES} bytes follow")
    timestamp, at = NO_TIMESTAMP, position + TIMESTAMP_POSITION
    if magic:
        timestamp, at = _unpack_timestamp(data, at)[0], at + 8
    key = at + 4
    key_length = _unpack_length(data, at)[0]
    at = key + key_length if key_length > 0 else key
    if key_length < -1 or at > stop - 4:
        raise _wrong(position, f"the length of its key is {key_length}")
    value = at + 4
    value_length = _unpack_length(data, at)[0]
    if value_length < -1 or value + max(value_length, 0) != stop:
        raise _wrong(position, f"the length of its value is {value_length}, and {stop - value} bytes follow")
    entry: Entry = _new(
        Entry,
        (
            position,
            offset,
            length,
            crc,
            magic,
            attributes,
            timestamp,
            key,
            key_length,
            value,
            value_length,
        ),
    )
    return entry


def key_of(data: Buffer, entry: Entry) -> bytes | None:
    """Return the key of an entry."""
    if entry.key_length < 0:
        return None
    return bytes(data[entry.key_position : entry.key_position + entry.key_length])


def value_of(data: Buffer, entry: Entry) -> bytes | None:
    """Return the value of an entry; a wrapper's is its payload."""
    if entry.value_length < 0:
        return None
    return bytes(data[entry.value_position : entry.value_position + entry.value_length])


def check_crc(data: Buffer, position: int, head: Entry | BatchHeader) -> bool:
    """Return whether the entry at position, which must be whole, matches its checksum."""
    # Everything after the checksum.
    start = position + MAGIC_POSITION
    return zlib.crc32(memoryview(data)[start : position + head.size_bytes]) == head.crc


def encode(
    magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: Buffer | None
) -> bytes:
    """Write an entry with its checksum; v0 has no timestamp."""
    key_length = -1 if key is None else len(key)
    head = _pack_v1(1, attributes, timestamp, key_length) if magic else _pack_v0(0, attributes, key_length)
    value_length = _pack_length(-1 if value is None else len(value))
    body = b"".join((head, key or b"", value_length, value or b""))
    return _pack_prefix(offset, len(body) + 4, zlib.crc32(body)) + body


def set_offset(data: bytearray | memoryview, position: int, offset: int) -> None:
    """Set the offset of the entry at position, in place; the checksum does not cover it."""
    _OFFSET.pack_into(data, position, offset)


def set_timestamp(data: bytearray | memoryview, entry: Entry, timestamp: int, append_time: bool) -> None:
    """Set the timestamp of an entry of v1 and its type, in place, and update the checksum."""
    attributes = entry.attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if append_time else 0)
    if (timestamp, attributes) == (entry.timestamp, entry.attributes):
        return
    position = entry.position
    struct.pack_into(">bq", data, position + ATTRIBUTES_POSITION, attributes, timestamp)
    crc = zlib.crc32(memoryview(data)[position + MAGIC_POSITION : position + entry.size_bytes])
    _CRC.pack_into(data, position + PREFIX_BYTES, crc)


def _wrong(position: int, reason: str) -> CorruptBatch:
    return CorruptBatch(f"message at position {position}: {reason}")


def _wrong_magic(position: int, magic: int) -> CorruptBatch | InvalidRecord:
    if magic == 2:
        return InvalidRecord(f"message at position {position}: a batch of format v2 among older messages")
    return _wrong(position, f"magic byte {magic} is no message format")
