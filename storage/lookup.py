"""Finding batches in a segment: by offset, by timestamp, one after another.

Owns the way from an index entry to a batch, in reads of a bounded size, and around damaged bytes. Knows batch headers,
not records. Takes no lock: what of a segment is published does not change.
"""

from collections.abc import Callable, Iterator
from struct import Struct

from tidelog.protocol.records.batch import PREFIX_BYTES, BatchHeader
from tidelog.protocol.records.kernel import RecordError, find_batch, find_timestamp
from tidelog.storage import walk
from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import FileSlice
from tidelog.storage.segment import LOG, Segment

# The first read is the usual index interval and a batch or so; then more, up to the second figure.
FIRST_READ_BYTES = 8192
MAX_READ_BYTES = 65536

_batch_length = Struct(">i").unpack_from


def read(segment: Segment, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
    """Return a slice from the batch that holds `offset`, or the next one here; None if there is none."""
    position, first_bytes = locate(segment, offset)
    if not first_bytes:
        return None
    length = max_bytes
    if first_bytes > max_bytes:
        length = first_bytes if at_least_one else 0
    end = segment.size
    for damage in segment.summary.damage:
        if damage.start > position:
            end = min(end, damage.start)
    return FileSlice(segment.file, position, min(length, end - position))


def locate(segment: Segment, offset: int) -> tuple[int, int]:
    """Return position and size of the first batch whose last offset is at least `offset`; size 0 if none is."""
    position = segment.offset_index.position_before(offset - segment.base_offset)
    for damage in segment.summary.damage:
        found = _search(find_batch, segment, position, damage.start, offset)
        if found[1]:
            return found
        if offset < damage.next_offset:
            place = f"{segment.path(LOG)}@{damage.start}-{damage.end}"
            raise CorruptLog(
                f"offset {offset} is in damaged bytes, {place}; read on from {damage.next_offset}"
            )
        position = max(position, damage.end)
    return _search(find_batch, segment, position, segment.size, offset)


def locate_timestamp(segment: Segment, timestamp: int, position: int) -> tuple[int, int]:
    """Return position and size of the first batch from `position` on with such a maximum; size 0 if none has."""
    for damage in segment.summary.damage:
        found = _search(find_timestamp, segment, position, damage.start, timestamp)
        if found[1]:
            return found
        position = max(position, damage.end)
    return _search(find_timestamp, segment, position, segment.size, timestamp)


def _search(
    find: Callable[[bytes, int, int, int], int], segment: Segment, position: int, end: int, wanted: int
) -> tuple[int, int]:
    """Return position and size of the first batch that `find` finds in a range."""
    file = segment.file
    count = FIRST_READ_BYTES
    while position < end:
        chunk = file.pread(min(count, end - position), position)
        try:
            at = find(chunk, 0, len(chunk), wanted)
        except RecordError as error:
            raise CorruptLog(f"{file.path}@{position}: {error}") from error
        if at >= 0:
            return position + at, PREFIX_BYTES + _batch_length(chunk, at + 8)[0]
        if at == -1:
            raise CorruptLog(f"{file.path}@{position}: a batch is cut short")
        position += -1 - at
        count = min(2 * count, MAX_READ_BYTES)
    return end, 0


def headers(segment: Segment, offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every batch from the one that holds `offset` on; damage is left out."""
    position = segment.offset_index.position_before(offset - segment.base_offset)
    starts = [position, *(damage.end for damage in segment.summary.damage)]
    ends = [*(damage.start for damage in segment.summary.damage), segment.size]
    for start, end in zip(starts, ends, strict=True):
        for found in walk.headers(segment.file, max(start, position), end):
            if found[1].last_offset >= offset:
                yield found
