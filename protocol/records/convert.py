"""Converts stored entries to the format of an older reader (Fetch v0 to v3).

Headers, producers and markers are left out, and in v0 timestamps too. Entries that the reader knows pass byte for byte,
and offsets never change. An entry is converted in pieces, so that only some hundred kilobytes, or one record, are in
memory.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from tidelog.protocol.records import batch, compression, kernel, legacy, legacy_codecs, message_set
from tidelog.protocol.records.batch import LOG_APPEND_TIME, BatchHeader, Buffer
from tidelog.protocol.records.build import Message
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
)
from tidelog.protocol.records.steps import at_once

# What is converted at once: so many bytes, or one larger record, and so many records, some 10 ms. Of a compressed entry
# each such piece becomes a wrapper of its own; Kafka makes one of all.
PIECE_BYTES: Final = 256 << 10
PIECE_RECORDS: Final = 4096

_INT64_MAX: Final = (1 << 63) - 1

# Returns the bytes of an entry from one position in it to another, in pieces; may be called again.
Read = Callable[[int, int], Iterable[Buffer]]


class Piece(NamedTuple):
    """Some of what was converted: whole entries, or nothing where it was for nothing but to come to what is wanted.

    content_bytes is what it was before it was compressed.
    """

    data: Buffer
    content_bytes: int


_NOTHING: Final = Piece(b"", 0)


def whole(entry: Buffer) -> Read:
    """Return the way to read an entry that is in memory."""
    view = memoryview(entry)
    return lambda start, stop: (view[start:stop],)


def convert_entry(
    head: Buffer, size: int, read: Read, magic: int, offset_min: int, limit_bytes: int
) -> Iterator[Piece]:
    """Yield what a client that reads formats up to magic takes of an entry of a newer one, a piece at a time.

    head is its beginning, all of it or more than the header of a batch, size what it is in full. As Kafka does: of what
    is not compressed records before offset_min are left out, of what is compressed the piece that holds it comes whole;
    control batches, and batches that nothing is left of, yield nothing. RecordsError where the entry is damaged, gives
    more than limit_bytes, or is of zstd, which no such client reads; what comes before the damage is yielded.
    """
    if head[batch.MAGIC_POSITION] == batch.MAGIC:
        pieces = _of_batch(head, read, magic, offset_min, limit_bytes)
    else:
        # From v1 to v0, which has no times.
        pieces = _of_message(head, size, read, magic, offset_min, limit_bytes)
    for written, attributes in pieces:
        yield Piece(message_set.pack(written, magic, attributes), len(written.data)) if written else _NOTHING


def batch_messages(header: BatchHeader, payload: Buffer) -> Iterator[Message]:
    """Read the records of a batch, which payload is once it is decompressed, as messages; headers are left out."""
    for records, columns in _parts(header, (payload,)):
        yield from _messages(header, records, columns)


# What was written of a piece, None where that is nothing, and the attributes of its wrapper.
_Written = Iterator[tuple[message_set.Content | None, int]]


def _of_message(
    head: Buffer, size: int, read: Read, magic: int, offset_min: int, limit_bytes: int
) -> _Written:
    """Write a message of v1, or what a wrapper holds, in v0."""
    try:
        entry = legacy.read_entry(head, 0, size)
    except struct.error:
        entry = None  # Its key is longer than the head.
    if entry is None or (entry.codec == compression.NONE and len(head) < size):
        head = b"".join(read(0, size))
        read = whole(head)
        entry = legacy.read_entry(head, 0, size)
    codec = entry.codec
    if codec == compression.NONE:
        if entry.offset >= offset_min:
            parts = message_set.messages(head, entry, limit_bytes)
            yield at_once(message_set.content(parts, magic, codec, 0)), codec
        return
    base_offset = 0
    if message_set.is_relative(entry):
        for _, last in _payload(entry, read, limit_bytes):
            base_offset = message_set.base_by_last(last, entry)
            yield None, codec
    for payload, last in _payload(entry, read, limit_bytes):
        if base_offset + last < offset_min:
            yield None, codec
            continue
        parts = message_set.payload_messages(payload, entry, base_offset)
        yield at_once(message_set.content(parts, magic, codec, 0)), codec


def _payload(wrapper: legacy.Entry, read: Read, limit_bytes: int) -> Iterator[tuple[bytes, int]]:
    start = wrapper.value_position
    packed = read(start, start + max(wrapper.value_length, 0))
    payload = legacy_codecs.stream(wrapper.codec, packed, wrapper.magic, limit_bytes)
    return message_set.whole_messages(payload, wrapper, PIECE_BYTES, PIECE_RECORDS)


def _of_batch(head: Buffer, read: Read, magic: int, offset_min: int, limit_bytes: int) -> _Written:
    """Write the records of a batch as messages."""
    header = batch.read_header(head)
    if header.is_control or header.record_count == 0:
        return
    codec = header.codec
    legacy_codecs.check_codec(codec, magic)
    attributes = LOG_APPEND_TIME if header.is_log_append_time and magic else 0
    packed = read(batch.HEADER_BYTES, header.size_bytes)
    for records, columns in _parts(header, compression.stream(codec, packed, limit_bytes)):
        count = columns.count
        if not count or header.base_offset + columns.offset_delta[count - 1] < offset_min:
            yield None, codec
            continue
        parts = _messages(header, records, columns, 0 if codec else offset_min)
        yield at_once(message_set.content(parts, magic, codec, attributes)), codec | attributes


def _parts(header: BatchHeader, payload: Iterable[Buffer]) -> Iterator[tuple[bytes, Columns]]:
    """Yield some records of a batch after others, whole, and where in them what lies, in columns that are reused.

    Where more of the payload is needed for the next record their count is 0.
    """
    if header.base_offset < 0:
        raise CorruptBatch(f"a batch at offset {header.base_offset}")
    columns = Columns(max(min(header.record_count, PIECE_RECORDS), 1))
    cut = kernel.Cut(0, 0, 0)
    held = bytearray()
    wanted = 0
    pieces: Iterable[bytes | None] = compression.gathered(payload, PIECE_BYTES)
    for piece in chain(pieces, (None,)):
        held += piece or b""
        columns.count = 0
        if piece is not None and len(held) < wanted:
            yield b"", columns
            continue
        # Slices of bytes cost half of what others do.
        records = bytes(held)
        start = cut.position
        # More may follow.
        end = start + len(records) + (piece is not None)
        is_full = True
        while is_full:
            try:
                cut, newest, oldest = kernel.scan_part(records, start, end, header.record_count, columns, cut)
            except RecordError as error:
                raise InvalidRecord(f"batch at offset {header.base_offset}: {error}") from error
            is_full = columns.count == columns.capacity
            if columns.count:
                _check_range(header, columns, oldest, newest)
                yield records, columns
        del held[: cut.position - start]
        # A record that is larger than this is not looked for each time that a little more of it has come.
        wanted = 2 * len(held)


def _messages(
    header: BatchHeader, records: bytes, columns: Columns, offset_min: int = 0
) -> Iterator[Message]:
    """Read the records that columns tell of, from offset_min on."""
    base, base_time = header.base_offset, header.base_timestamp
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
    for offset, time, key, key_length, value, value_length in islice(rows, columns.count):
        if base + offset >= offset_min:
            yield (
                base + offset,
                base_time + time if append_time is None else append_time,
                records[key : key + key_length] if key_length >= 0 else None,
                records[value : value + value_length] if value_length >= 0 else None,
            )


def _check_range(header: BatchHeader, columns: Columns, oldest: int, newest: int) -> None:
    """Check that offsets and times are such as a message can have."""
    base, base_time = header.base_offset, header.base_timestamp
    last = base + columns.offset_delta[columns.count - 1]
    if last > _INT64_MAX:
        raise CorruptBatch(f"batch at offset {base}: offsets from {base} to {last}")
    if base_time + oldest < batch.NO_TIMESTAMP or base_time + newest > _INT64_MAX:
        raise InvalidTimestamp(
            f"batch at offset {base}: record timestamps from {base_time + oldest} to {base_time + newest}"
        )
