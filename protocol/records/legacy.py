"""Entries of the older message formats, v0 and v1: how far they reach, and whether they are whole.

Owns the layout of what all of them begin with. Refuses to know what is in them: this broker neither takes nor serves
them, but names them where they are met, and does not take them for damage.
"""

import struct
import zlib
from typing import Final, NamedTuple

from tidelog.protocol.records.batch import MAGIC_POSITION, PREFIX_BYTES, Buffer

MAGICS: Final = (0, 1)
# Offset and length as a batch has them, CRC-32, magic; then attributes and, in v1, the timestamp, then key and value.
HEAD: Final = struct.Struct(">qiIb")
HEAD_BYTES: Final = HEAD.size
TIMESTAMP_POSITION: Final = 18
# The least that the length may be: checksum, magic, attributes, no key and no value.
LENGTH_MIN: Final = 14


class EntryHead(NamedTuple):
    """The beginning as it stands in the bytes; nothing in it is checked but that it is all there."""

    offset: int
    length: int
    crc: int
    magic: int

    @property
    def size_bytes(self) -> int:
        """The whole entry, offset and length included."""
        return PREFIX_BYTES + self.length


def read_head(data: Buffer, position: int = 0) -> EntryHead:
    """Read the beginning at position, which must be wholly there."""
    return EntryHead._make(HEAD.unpack_from(data, position))


def check_crc(data: Buffer, position: int, head: EntryHead) -> bool:
    """Tell whether the entry at position, which must be wholly there, matches its checksum."""
    # All that follows the checksum.
    start = position + MAGIC_POSITION
    return zlib.crc32(memoryview(data)[start : position + head.size_bytes]) == head.crc
