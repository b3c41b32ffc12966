"""Reading sealed segments from their beginning to their end, batch by batch, and nothing that is not what was written.

Owns the way of bytes from the disk to whole batches, and to their records: each block is held against its digest as it
comes in. Knows nothing of what is done with a batch. Memory stays bounded by a chunk and a batch.
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
from tidelog.storage.layout import LOG
from tidelog.storage.segment import Mismatch, Segment
from tidelog.storage.walk import OPENED_BYTES_MAX

CHUNK_BYTES: Final = 4 * blocks.BLOCK_BYTES
# What is done at a time is bounded by this as well, counted in records, and takes a tenth of a millisecond: whoever
# else wants the interpreter's lock, or a processor, has its turn soon. An entry takes as long as some records.
CHUNK_WORK: Final = 256
ENTRY_WORK: Final = 32
# What is raised for records that nobody can read, though the checksum over them is right.
UNREADABLE: Final = (RecordsError, RecordError)


class Entry(NamedTuple):
    """A batch, or an entry of an older format: its header, and all of its bytes."""

    header: BatchHeader
    data: memoryview


def chunks(segment: Segment) -> Iterator[list[Entry]]:
    """Yield the entries of a sealed segment without damage, some at a time: none may be, where one is long.

    Mismatch where its bytes are not what they were: check it again (`Log.recheck`).
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
    """Read the chunk at a position, or what is left of the log."""
    count = min(CHUNK_BYTES, segment.size - position)
    data = segment.file.pread(count, position)
    summary = segment.summary
    if len(data) < count or not summary.digests or not blocks.are_right(summary.digests, position, data):
        verification.verify_again(segment, position)
        raise Mismatch(f"{segment.path(LOG)}@{position}: not what was written", segment)
    return data


def _entry(view: memoryview, at: int) -> Entry | None:
    """Return the entry at a position; None where it is not all there."""
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
    """Scan the records of a batch; return the bytes that hold them, and what `kernel.scan` returns. UNREADABLE."""
    codec, data, start = entry.header.codec, entry.data, HEADER_BYTES
    opened: Buffer = data
    if codec:
        opened, start = compression.decompress(codec, data[HEADER_BYTES:], READ_LIMIT_BYTES), 0
    return opened, kernel.scan(opened, start, len(opened), entry.header.record_count, columns, False)


def messages(entry: Entry) -> Iterator[Message]:
    """Read the records of an entry of an older format. UNREADABLE."""
    for each in message_set.entries(entry.data):
        yield from message_set.messages(entry.data, each, READ_LIMIT_BYTES)


def size_of(found: list[Entry]) -> int:
    """Return how many bytes entries have."""
    return sum(len(entry.data) for entry in found)
