"""Reading a log in an older format than it is stored in.

Owns the way from an offset to the entries that a reader of an older format takes, in pieces of a bounded size. Knows
nothing of requests. Invariant: what is returned are whole entries, in their order, from the one that holds the offset
on; what such a reader can take already passes byte for byte.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.protocol.records import convert, entries
from tidelog.protocol.records.batch import MAGIC_POSITION, Buffer
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import CorruptLog, FormatNotServed, StorageError, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.sources import Source

# What is read of the log at once; of the first entry all, however large.
READ_BYTES: Final = 256 << 10


def read(log: Log, offset: int, magic: int, max_bytes: int, at_least_one: bool, source: Source) -> bytes:
    """Return entries of formats up to `magic`, at most `max_bytes`, from an offset on; nothing at the end of the log.

    The first is returned whatever its size with `at_least_one`. Of what leaves nothing in that format, as markers do,
    nothing is returned, and what follows is. TakesLong is raised for a prompt source where there is anything to read,
    StorageError as by `Log.read`, RecordsError where the first entry has no place in that format.
    """
    parts: list[Buffer] = []
    left = max_bytes
    limit_bytes = log.config.max_decompressed_bytes
    try:
        for data, start, end, header_magic in _entries(log, offset, source):
            if header_magic > magic and not log.config.message_downconversion_enable:
                raise FormatNotServed(
                    f"{log}: offset {offset} is in format v{header_magic}, the reader takes v{magic}, and "
                    "message.downconversion.enable is false"
                )
            made = list(convert.convert(data, start, end, magic, offset, limit_bytes))
            size = sum(map(len, made))
            if size > left and (parts or not at_least_one):
                break
            parts += made
            left -= size
            if left <= 0 and parts:
                break
    except (RecordsError, StorageError):
        if not parts:
            raise
        # What is there already is given; the next read begins with what is wrong.
    return b"".join(parts)


def _entries(log: Log, offset: int, source: Source) -> Iterator[tuple[Buffer, int, int, int]]:
    """Yield each entry from the one that holds an offset on: what it lies in, from where to where, and its format."""
    while True:
        found = log.read(offset, READ_BYTES, True, source)
        if not found.length:
            return
        if source.prompt:
            raise TakesLong(f"{log}: offset {offset} may have to be converted")
        data = found.read()
        position = 0
        while len(data) - position >= entries.HEAD_BYTES or (
            len(data) - position >= entries.BYTES_MIN and data[position + MAGIC_POSITION] < 2
        ):
            header = entries.peek(data, position)
            end = position + header.size_bytes
            if header.size_bytes < entries.BYTES_MIN:
                raise CorruptLog(
                    f"{log}: the batch at or after offset {offset} has {header.size_bytes} bytes"
                )
            if end > len(data):
                break
            yield data, position, end, header.magic
            offset = header.last_offset + 1
            position = end
