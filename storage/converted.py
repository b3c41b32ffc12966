"""Reading a log in an older format than it is stored in.

Owns the way from an offset to the entries that a reader of an older format takes, in steps of a bounded time, and with
a bounded part of the log in memory. Knows nothing of requests. Invariant: what is returned are whole entries, in their
order, from the one that holds the offset on; what such a reader can take already passes byte for byte.

An entry that is converted is read, decompressed and converted piece by piece, from its beginning each time that an
answer begins within it: nothing is kept for the next one. What is read over again is max.decompressed.bytes at most and
takes the time in which some megabytes are converted; so a compressed entry gives as much as that at once, if it can.
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

# What is read of the log at once.
READ_BYTES: Final = 256 << 10
# What is converted in one step, and of one partition for an answer, as it is before it is compressed: some
# milliseconds, and about 200 ms, where records are small.
STEP_BYTES: Final = 64 << 10
CONTENT_BYTES_MAX: Final = 4 << 20


def steps(
    log: Log, offset: int, magic: int, max_bytes: int, at_least_one: bool
) -> Iterator[bytearray | FileSlice]:
    """Read entries of formats up to `magic`, at most `max_bytes`, from an offset on; nothing at the end of the log.

    Each step yields what it has come to, which may be nothing. The first entry is given whatever its size with
    `at_least_one`; a large one that passes is given as a slice, alone. Of what leaves nothing in that format, as
    markers do, nothing is given, and what follows is. Waits for the disk. StorageError is raised as by `Log.read`,
    RecordsError where the first entry has no place in that format.
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
                # What is not compressed need not be given, and converted again, as it was converted.
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
        # What is there already is given; the next read begins with what is wrong.
    yield made


def _pieces(log: Log, offset: int, magic: int) -> Iterator[tuple[Buffer | FileSlice, int]]:
    """Yield pieces of what is given, and what of each was converted; a slice where a large entry passes."""
    limit_bytes = log.config.max_decompressed_bytes
    while True:
        found = log.read(offset, READ_BYTES, True, PATIENT)
        if not found.length:
            return
        # More is one entry, the first.
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
    """Yield the position and the header of each entry whose beginning is in data."""
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
    """Read an entry that is larger than what is in memory of it."""
    for at in range(start, stop, READ_BYTES):
        yield found.after(at).first(min(READ_BYTES, stop - at)).read()
