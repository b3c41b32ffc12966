"""Reads a log in an older record format than it is stored in.

Works in steps of bounded time, with a bounded part of the log in memory. Knows nothing of requests. Invariant: the
result is whole entries, in order, from the one that holds the offset on. Entries that the reader understands are
returned byte for byte.

An entry that needs conversion is read, decompressed and converted piece by piece. If an answer begins within an entry,
that starts again at the entry's beginning: nothing is kept between answers. This repeats the work for at most
max.decompressed.bytes, about as long as it takes to convert some megabytes. So one answer takes as many megabytes of a
compressed entry, if it has room.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from tidelog.protocol.records import convert, entries, message_set
from tidelog.protocol.records.batch import MAGIC_POSITION, BatchHeader, Buffer
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import CorruptLog, FormatNotServed, StorageError
from tidelog.storage.files import FileSlice
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

# How much of the log is read at once.
READ_BYTES: Final = 256 << 10
# How much is converted in one step, and of one partition for one answer, before compression. With small records that
# takes some milliseconds, and about 200 ms.
STEP_BYTES: Final = 64 << 10
CONTENT_BYTES_MAX: Final = 4 << 20


def steps(
    log: Log, offset: int, magic: int, max_bytes: int, at_least_one: bool
) -> Iterator[bytearray | FileSlice]:
    """Yield entries of formats up to `magic` from an offset on, `max_bytes` in all; nothing at the end of the log.

    Each step yields what it has converted, which may be empty. With `at_least_one`, the first entry is returned
    whatever its size. A large entry that needs no conversion is yielded as a slice, alone. Entries without a form in
    the older format, such as markers, are left out. Waits for the disk. Raise StorageError as `Log.read` does, and
    RecordsError if the first entry cannot be converted.
    """
    made = bytearray()
    is_empty = True
    left = max_bytes
    content_bytes = step_bytes = 0
    try:
        for data, converted_bytes in _pieces(log, offset, magic):
            size = len(data)
            is_first = is_empty and at_least_one
            if isinstance(data, FileSlice):
                if is_first or (is_empty and size <= left):
                    yield data
                    return
                break
            if size > left:
                # Of an uncompressed piece, take the messages that fit.
                fitting = message_set.whole_bytes(data, left)
                if fitting:
                    made += memoryview(data)[:fitting]
                if fitting or not is_first:
                    break
            if size:
                is_empty = False
                made += data
                left -= size
                content_bytes += converted_bytes
            if left <= 0 or content_bytes >= CONTENT_BYTES_MAX:
                break
            step_bytes += converted_bytes
            if not size or step_bytes >= STEP_BYTES:
                yield made
                made, step_bytes = bytearray(), 0
    except (RecordsError, StorageError):
        if is_empty:
            raise
        # Return what was converted before; the next read begins with the error.
    yield made


def _pieces(log: Log, offset: int, magic: int) -> Iterator[tuple[Buffer | FileSlice, int]]:
    """Yield pieces of the answer, each with how many bytes were converted for it; a slice for a large entry."""
    limit_bytes = log.config.max_decompressed_bytes
    while True:
        found = log.read(offset, READ_BYTES, True, PATIENT)
        if not found.length:
            return
        # More than that is one large entry, the first.
        data = found.read() if found.length <= READ_BYTES else found.first(READ_BYTES).read()
        for position, header in _headers(log, offset, data):
            end = position + header.size_bytes
            if end > found.length:
                break
            if header.magic <= magic:
                passes = found if end > len(data) else memoryview(data)[position:end]
                yield passes, 0
            else:
                if not log.config.message_downconversion_enable:
                    raise FormatNotServed(
                        f"{log}: offset {offset} is in format v{header.magic}, the reader takes v{magic}, and "
                        "message.downconversion.enable is false"
                    )
                entry = memoryview(data)[position:end]
                read = convert.whole(entry) if end <= len(data) else partial(_read, found)
                yield from convert.convert_entry(entry, header.size_bytes, read, magic, offset, limit_bytes)
            offset = header.last_offset + 1
        yield b"", 0


def _headers(log: Log, offset: int, data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each entry that begins in `data`."""
    position = 0
    while len(data) - position >= entries.HEAD_BYTES or (
        len(data) - position >= entries.BYTES_MIN and data[position + MAGIC_POSITION] < 2
    ):
        header = entries.peek(data, position)
        if header.size_bytes < entries.BYTES_MIN:
            raise CorruptLog(f"{log}: the batch at or after offset {offset} has {header.size_bytes} bytes")
        yield position, header
        position += header.size_bytes


def _read(found: FileSlice, start: int, stop: int) -> Iterable[Buffer]:
    """Yield part of an entry that is only partly in memory."""
    for at in range(start, stop, READ_BYTES):
        yield found.after(at).first(min(READ_BYTES, stop - at)).read()
