"""Finds batches in a segment: by offset, by timestamp, or one after another.

Owns the way from an index entry to a batch, in reads of bounded size and around damaged bytes. Knows batch headers, not
records. Takes no lock, as published bytes do not change. The source bounds the cost of a search (`sources`):
NotInMemory means that a read would wait for the disk, TakesLong that index entries are so far apart that a walk would
take long. All bytes are verified (`Segment.read`): after a Mismatch call `Log.recheck` and search again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from struct import Struct
from typing import Final

from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import PREFIX_BYTES, BatchHeader, Buffer
from tidelog.protocol.records.errors import RecordError
from tidelog.protocol.records.search import find_batch, find_timestamp
from tidelog.storage import walk
from tidelog.storage.errors import CorruptLog, TakesLong
from tidelog.storage.files import FileSlice
from tidelog.storage.layout import LOG
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT, Source

# The first read is the usual index interval and about a batch; further reads grow up to the maximum.
FIRST_READ_BYTES: Final = 8192
MAX_READ_BYTES: Final = 65536
# How much of a batch is read and walked over at once: it has to fit into the processor's cache.
PART_BYTES: Final = 65536
SMALL_BATCH_BYTES: Final = 1024
# How much a prompt source reads for a walk over a segment: in memory, some tenths of a millisecond; and from the disk.
PROMPT_WALK_BYTES: Final = 256 << 10
BRIEF_WALK_BYTES: Final = 2 << 20
_NO_BYTES: Final = memoryview(b"")

_batch_length: Final = Struct(">i").unpack_from


# Where a batch is: its position, its size (0 for none), and the bytes of it that were read so far; if read from WARM,
# they are valid until the next read (`sources`). A plain tuple: to make a NamedTuple takes as long as a search.
Place = tuple[int, int, memoryview]


def segment_number(segments: tuple[Segment, ...], offset: int) -> int:
    """Return the number of the last segment that starts at or before an offset."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(0, bisect_right(segments, offset, key=attrgetter("base_offset")) - 1)


def read(
    segment: Segment, offset: int, max_bytes: int, at_least_one: bool, source: Source
) -> FileSlice | None:
    """Return a slice from the batch that holds `offset`, or from the next one here; None if there is none."""
    position, first_bytes, head = locate(segment, offset, source)
    if not first_bytes:
        return None
    length = max_bytes
    if first_bytes > max_bytes:
        length = first_bytes if at_least_one else 0
    end = segment.size
    for damage in segment.summary.damage:
        if position < damage.start < end:
            end = damage.start
    if length > end - position:
        length = end - position
    return segment.slice(position, length, bytes(head[:length]) if len(head) >= length else None, source)


def locate(segment: Segment, offset: int, source: Source) -> Place:
    """Return the first batch whose last offset is at least `offset`."""
    position, following, _ = segment.offset_index.around(offset - segment.base_offset)
    for damage in segment.summary.damage:
        found = _search(find_batch, segment, position, following, damage.start, offset, source)
        if found[1]:
            return found
        if offset < damage.next_offset:
            place = f"{segment.path(LOG)}@{damage.start}-{damage.end}"
            raise CorruptLog(
                f"offset {offset} is in damaged bytes, {place}; read on from {damage.next_offset}"
            )
        position = max(position, damage.end)
    return _search(find_batch, segment, position, following, segment.size, offset, source)


def with_header(segment: Segment, place: Place, source: Source) -> tuple[BatchHeader, Place]:
    """Return the header of the batch at a place, and the place with the header's bytes."""
    position, size, head = place
    if len(head) < min(size, entries.HEAD_BYTES):
        head = segment.read(min(size, entries.HEAD_BYTES), position, source)
    return entries.peek(head), (position, size, head)


def batch_at(segment: Segment, position: int, likely_size: int, source: Source) -> Place:
    """Return the batch at a position, with all of its bytes if it is about as large as `likely_size`."""
    count = min(likely_size + likely_size // 8, PART_BYTES, segment.size - position)
    chunk = segment.read(count, position, source)
    size = PREFIX_BYTES + _batch_length(chunk, 8)[0]
    return position, size, chunk[:size]


def locate_timestamp(
    segment: Segment, timestamp: int, position: int, following: int, source: Source
) -> Place:
    """Return the first batch from `position` on whose largest timestamp is at least `timestamp`.

    `following` is the position of the next index entry, or -1.
    """
    for damage in segment.summary.damage:
        found = _search(find_timestamp, segment, position, following, damage.start, timestamp, source)
        if found[1]:
            return found
        position = max(position, damage.end)
    return _search(find_timestamp, segment, position, following, segment.size, timestamp, source)


def _search(
    find: Callable[[Buffer, int, int, int], tuple[int, int]],
    segment: Segment,
    position: int,
    following: int,
    end: int,
    wanted: int,
    source: Source,
) -> Place:
    """Return the first batch that `find` finds in a range."""
    walked_bytes = 0
    # The batch begins at `following` or before. Up to there is one large batch, or many small ones.
    count = following - position + SMALL_BATCH_BYTES
    if not SMALL_BATCH_BYTES < count <= MAX_READ_BYTES:
        count = FIRST_READ_BYTES
    while position < end:
        if count > end - position:
            count = end - position
        chunk = segment.read(count, position, source)
        try:
            at, size = find(chunk, 0, len(chunk), wanted)
        except RecordError as error:
            raise CorruptLog(f"{segment.path(LOG)}@{position}: {error}") from error
        if size:
            return position + at, size, chunk[at : at + size]
        if not at:
            raise CorruptLog(f"{segment.path(LOG)}@{position}: a batch is cut short")
        position += at
        walked_bytes += len(chunk)
        if (
            walked_bytes >= PROMPT_WALK_BYTES
            and source.prompt
            and (walked_bytes >= BRIEF_WALK_BYTES or not source.waiting)
        ):
            raise TakesLong(f"{segment.path(LOG)}@{position}: the batch lies further on")
        count = min(2 * count, MAX_READ_BYTES)
    return end, 0, _NO_BYTES


def headers(segment: Segment, offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every batch from the one that holds `offset` on; damage is skipped.

    All of them are verified first, so Mismatch comes before the first one.
    """
    if not segment.size:
        return  # After a full disk it may have no file yet.
    position, *_ = segment.offset_index.around(offset - segment.base_offset)
    segment.verify(position, segment.size, PATIENT)
    starts = [position, *(damage.end for damage in segment.summary.damage)]
    ends = [*(damage.start for damage in segment.summary.damage), segment.size]
    for start, end in zip(starts, ends, strict=True):
        for found in walk.headers(segment.file, max(start, position), end):
            if found[1].last_offset >= offset:
                yield found
