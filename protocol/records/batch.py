# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""The 61-byte header of a batch (format v2): read it, verify the checksum, and set its offset and leader epoch.

The checksum does not cover the fields that the log sets (`set_base`), so it stays that of the producer.
"""

import struct
from typing import Final, NamedTuple

from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.errors import CorruptBatch

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
# base_offset and batch_length: enough to skip an entry of any format.
PREFIX_BYTES: Final = 12
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
# KIP-534: base_timestamp is then the time from which compaction may remove the batch's tombstones.
DELETE_HORIZON: Final = 0x40

LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
# The checksum covers everything from here to the end of the batch.
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
MAX_TIMESTAMP_POSITION: Final = 35

Buffer = bytes | bytearray | memoryview

_unpack_header = HEADER.unpack_from
_pack_base_offset = struct.Struct(">q").pack_into
_pack_leader_epoch = struct.Struct(">i").pack_into
_pack_attributes = struct.Struct(">h").pack_into
_pack_max_timestamp = struct.Struct(">q").pack_into
_pack_crc = struct.Struct(">I").pack_into
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The header of a batch; only its length was checked."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, with offset and length."""
        return PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record at the time of writing; compaction may have removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The number of the compression codec, 0 for none."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether max_timestamp is the time of every record in the batch."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch is the marker of a transaction, without user data."""
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp is the time from which tombstones may be removed."""
        return self.attributes & DELETE_HORIZON != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at position; CorruptBatch if fewer than HEADER_BYTES are left."""
    try:
        header: BatchHeader = _new(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        left = max(0, len(buffer) - position)
        raise CorruptBatch(
            f"batch at position {position} is cut short: {left} bytes, a header takes {HEADER_BYTES}"
        ) from None
    return header


def checksum(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """Compute the CRC-32C of the batch at position."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + header.size_bytes])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch at position is whole and matches its checksum."""
    if header.batch_length < HEADER_BYTES - PREFIX_BYTES or position + header.size_bytes > len(buffer):
        return False
    return checksum(buffer, position, header) == header.crc


def set_base(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set the offset and leader epoch of the batch at position, in place; the checksum does not cover them."""
    _pack_base_offset(buffer, position, base_offset)
    _pack_leader_epoch(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def set_timestamps(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, attributes: int, max_timestamp: int
) -> BatchHeader:
    """Set attributes and max_timestamp of the batch at position, in place, and update its checksum."""
    _pack_attributes(buffer, position + ATTRIBUTES_POSITION, attributes)
    _pack_max_timestamp(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = checksum(buffer, position, header)
    _pack_crc(buffer, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)
