"""Reads whole sealed segments, batch by batch, and verifies each block.

Owns the reading of chunks, batches and records. Knows nothing of what they are used for. Takes the memory of a chunk
and a batch at most.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.protocol.records import compression, entries, kernel, message_set
from tidelog.protocol.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    read_header,
)
from tidelog.protocol.records.build import READ_LIMIT_BYTES, Message
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.storage import blocks, verification
from tidelog.storage.errors import Mismatch
from tidelog.storage.layout import LOG
from tidelog.storage.segment import Segment
from tidelog.storage.walk import OPENED_BYTES_MAX

CHUNK_BYTES: Final = 4 * blocks.BLOCK_BYTES
# The work of a step, in records: a tenth of a millisecond, so that other threads get the GIL or a processor soon. An
# entry costs as much as ENTRY_WORK records.
CHUNK_WORK: Final = 256
ENTRY_WORK: Final = 32
# Errors of records that cannot be decoded, though their batch's checksum is right.
UNREADABLE: Final = (RecordsError, RecordError)


class Entry(NamedTuple):
    """A batch, or an entry of an older format: its header and its bytes."""

    header: BatchHeader
    data: memoryview


def chunks(segment: Segment) -> Iterator[list[Entry]]:
    """Yield the entries of a sealed segment without damage, some at a time; none while a long one is being read.

    Raise Mismatch if its bytes have changed: call `Log.recheck`.
    """
    held = b""
    for position in range(0, segment.size, CHUNK_BYTES):
        data = held + _verified(segment, position)
        view, at = memoryview(data), 0
        found: list[Entry] = []
        work = 0
        while (entry := _entry(view, at)) is not None:
            found.append(entry)
            at += len(entry.data)
            work += ENTRY_WORK + entry.header.record_count
            if work >= CHUNK_WORK:
                yield found
                found, work = [], 0
        held = data[at:]
        yield found
    if held:
        raise Mismatch(f"{segment.path(LOG)}@{segment.size - len(held)}: a batch is cut short", segment)


def _verified(segment: Segment, position: int) -> bytes:
    """Read and verify the chunk at a position."""
    count = min(CHUNK_BYTES, segment.size - position)
    data = segment.file.pread(count, position)
    summary = segment.summary
    if len(data) < count or not summary.digests or not blocks.are_right(summary.digests, position, data):
        verification.verify_again(segment, position)
        raise Mismatch(
            f"{segment.path(LOG)}@{position}: the bytes have changed since they were written", segment
        )
    return data


def _entry(view: memoryview, at: int) -> Entry | None:
    """Return the entry at a position; None if it is not complete."""
    left = len(view) - at
    if left < entries.BYTES_MIN:
        return None
    if view[at + MAGIC_POSITION] == MAGIC:
        if left < entries.HEAD_BYTES:
            return None
        header = read_header(view, at)
    else:
        header = entries.peek(view, at)
    size = header.size_bytes
    if size > left:
        return None
    if header.record_count == entries.UNKNOWN:
        header = entries.read(view, at, OPENED_BYTES_MAX)
    return Entry(header, view[at : at + size])


def scanned(entry: Entry, columns: Columns) -> tuple[Buffer, tuple[int, int, int]]:
    """Scan the records of a batch; return their bytes, and what `kernel.scan` returns. Raise UNREADABLE."""
    codec, data, start = entry.header.codec, entry.data, HEADER_BYTES
    opened: Buffer = data
    if codec:
        opened, start = compression.decompress(codec, data[HEADER_BYTES:], READ_LIMIT_BYTES), 0
    return opened, kernel.scan(opened, start, len(opened), entry.header.record_count, columns, False)


def messages(entry: Entry) -> Iterator[Message]:
    """Read the records of an entry of an older format. Raise UNREADABLE."""
    for each in message_set.entries(entry.data):
        yield from message_set.messages(entry.data, each, READ_LIMIT_BYTES)


def size_of(found: list[Entry]) -> int:
    """Return the total size of entries."""
    return sum(len(entry.data) for entry in found)
