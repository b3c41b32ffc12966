"""Message sets of formats v0 and v1 for tests: drawn, spoiled, and read by kafka-python.

Invariant: what `wrapper` and `spoiled` make has the right checksums, so that a test reaches the rule behind them.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.support.batches import NOW_MS
from tests.support.batches import records as any_records
from tidelog.protocol.records import entries, legacy, legacy_codecs, topic_format
from tidelog.protocol.records.batch import Buffer
from tidelog.protocol.records.build import Record
from tidelog.protocol.records.convert import Piece, convert_entry, whole
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.records.validate import Rules, ValidBatch

RULES = Rules(
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
    max_batch_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
)
APPEND_TIME = replace(RULES, log_append_time=True)
LIMIT = 1 << 20


def validated_as(
    magic: int, data: bytearray | memoryview, *how: Any, **named: Any
) -> tuple[bytearray | memoryview, ValidBatch]:
    """Do as `topic_format.validate_as`, in one step."""
    return at_once(topic_format.validate_as(magic, data, *how, **named))


magics = st.sampled_from(legacy.MAGICS)
codecs = st.integers(0, 3)


def records(*, max_size: int = 12, gaps: bool = False) -> st.SearchStrategy[list[Record]]:
    """Draw records without headers, as a message set can hold them."""
    return any_records(max_size=max_size, gaps=gaps).map(plain)


def plain(given: Sequence[Record]) -> list[Record]:
    """Leave the headers out."""
    return [replace(record, headers=()) for record in given]


def as_in(magic: int, given: Sequence[Record]) -> list[Record]:
    """Return what a format keeps of records."""
    if magic == 2:
        return list(given)
    return [replace(record, headers=(), timestamp=record.timestamp if magic else -1) for record in given]


def shifted(given: Sequence[Record], by: int) -> list[Record]:
    return [replace(record, offset=record.offset + by) for record in given]


def convert(
    data: Buffer, position: int, end: int, magic: int, offset_min: int, limit_bytes: int
) -> Iterator[Piece]:
    """Convert each entry in [position, end) of which the reader of a format cannot read its own; the rest passes."""
    view = memoryview(data)
    while position < end:
        header = entries.peek(view, position)
        entry = view[position : position + header.size_bytes]
        if header.size_bytes < entries.BYTES_MIN or position + header.size_bytes > end:
            raise CorruptBatch(f"an entry of {header.size_bytes} bytes")
        if header.magic <= magic:
            yield Piece(entry, header.size_bytes)
        else:
            yield from convert_entry(entry, len(entry), whole(entry), magic, offset_min, limit_bytes)
        position += header.size_bytes


def some(count: int, size_bytes: int = 20, timestamp: int = NOW_MS) -> list[Record]:
    return [Record(n, timestamp + n, b"k%d" % n, bytes([n % 251]) * size_bytes) for n in range(count)]


def message(magic: int, offset: int = 0, value: bytes | None = b"v", **fields: Any) -> bytes:
    """Write one message; fields are attributes, timestamp and key."""
    return legacy.encode(
        magic, fields.get("attributes", 0), offset, fields.get("timestamp", NOW_MS), fields.get("key"), value
    )


def wrapper(magic: int, codec: int, payload: bytes, offset: int = 0, **fields: Any) -> bytes:
    """Put a payload, whatever it is, into a compressed message."""
    packed = bytes(legacy_codecs.compress(codec, payload, magic))
    return message(magic, offset, packed, attributes=codec | fields.pop("attributes", 0), **fields)


def resigned(data: bytes | bytearray) -> bytes:
    """Give one message, or what was one, the checksum of its bytes as they are."""
    return bytes(data[:12]) + struct.pack(">I", zlib.crc32(data[16:])) + bytes(data[16:])


def by_kafka_python(data: bytes) -> Iterator[Record]:
    """Read a message set as kafka-python's consumer does, its checksums checked."""
    sets = MemoryRecords(data)
    while (batch := sets.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc()
            timestamp = -1 if record.timestamp is None else record.timestamp
            yield Record(record.offset, timestamp, record.key, record.value)
