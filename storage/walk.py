"""Walking over the batches of a log file, one header at a time.

Owns the reading of a file in chunks, and what counts as a whole batch where nothing may be believed yet. Entries of the
older formats count as batches (`entries`). Knows nothing of indexes or of what is done about damage. Memory stays
bounded by the larger of a chunk and one batch, for wrappers of the older formats by what is in them.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from tidelog.protocol.records import entries, legacy
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, BatchHeader
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import File

CHUNK_BYTES = 1 << 20
INT32_MAX = (1 << 31) - 1
# Of what precedes the first batch.
NO_EPOCH: Final = -1
# A wrapper of the older formats that gives more is not opened for what it says of its records.
OPENED_BYTES_MAX: Final = 64 << 20
# What a message of the older formats begins with, but for its offset: length, checksum, magic.
_MESSAGE: Final = re.compile(rb"(?s)(?!\0\0\0[\0-\x0d])[\0-\x7f].{7}[\0\1]")

# The offset of the batch that comes next, if there is one: to ask costs reading it.
Following = Callable[[], int | None]
# What else is known of a log: whether a whole batch at a position cannot be true, given the offset that it should have,
# or None where that is not known, after damage, and what comes next.
Refuses = Callable[[int, BatchHeader, int | None, Following], bool]
# The leader epoch of an offset, less than 0 where it is not known.
EpochAt = Callable[[int], int]


class Batch(NamedTuple):
    """A batch, where it lies, and its bytes; without a header, a range that holds none that can be believed."""

    position: int
    end: int
    header: BatchHeader | None
    data: memoryview = memoryview(b"")


class _Window:
    """A part of a file in memory, moved on as the walk goes on."""

    __slots__ = ("data", "end", "file", "position")

    def __init__(self, file: File, end: int) -> None:
        self.file = file
        self.end = end
        self.position = 0
        self.data = b""

    def at(self, position: int, count: int) -> int:
        """Have `count` bytes from `position` in `data` where the file has them; return their place in it."""
        start = position - self.position
        if start < 0 or start + count > len(self.data):
            self.data = self.file.pread(min(max(count, CHUNK_BYTES), self.end - position), position)
            self.position = position
            return 0
        return start


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches in a range that is known to hold whole batches."""
    window = _Window(file, end)
    while position < end:
        at = window.at(position, HEADER_BYTES)
        try:
            header = entries.peek(window.data, at)
        except CorruptBatch:
            raise CorruptLog(f"{file.path}@{position}: a batch is cut short") from None
        if header.record_count == entries.UNKNOWN:
            at = window.at(position, header.size_bytes)
            header = entries.read(window.data, at, OPENED_BYTES_MAX)
        yield position, header
        if header.size_bytes < (HEADER_BYTES if header.magic == MAGIC else entries.BYTES_MIN):
            raise CorruptLog(f"{file.path}@{position}: a batch of {header.batch_length} bytes cannot be")
        position += header.size_bytes


def verified(
    file: File,
    position: int,
    end: int,
    base_offset: int,
    next_offset: int,
    refuses: Refuses | None = None,
    epoch_at: EpochAt | None = None,
) -> Iterator[Batch]:
    """Yield every whole batch with a right checksum, and each range in between that holds none.

    Offsets start at `next_offset` and must fit a segment that starts at `base_offset`. `epoch_at` is what is known of
    leader epochs.
    """
    window = _Window(file, end)
    is_after_damage, epoch = False, NO_EPOCH
    while position < end:
        header = _whole_batch(window, position, base_offset, next_offset)
        if header is None:
            batch_end = _next_batch(window, position + 1, base_offset, next_offset)
            batch_end = _next_message(window, position + 1, batch_end, base_offset, next_offset)
        else:
            batch_end = position + header.size_bytes
            is_refused = _is_misplaced(window, position, header, base_offset, next_offset)
            if header.leader_epoch != epoch and header.magic == MAGIC and not is_refused:
                is_refused = _is_of_false_epoch(window, position, header, base_offset, epoch, epoch_at)
            if refuses is not None and not is_refused:
                expected = None if is_after_damage else next_offset
                following = partial(_offset_at, window, batch_end, base_offset, next_offset)
                is_refused = refuses(position, header, expected, following)
            if is_refused:
                header = None  # Where it ends is true, by its checksum.
            else:
                next_offset = header.last_offset + 1
                epoch = header.leader_epoch if header.magic == MAGIC else epoch
        if header is None:
            yield Batch(position, batch_end, None)
        else:
            at, size = window.at(position, header.size_bytes), header.size_bytes
            yield Batch(position, batch_end, header, memoryview(window.data)[at : at + size])
        is_after_damage = header is None
        position = batch_end


def complete(
    file: File, position: int, end: int, base_offset: int, next_offset: int, flushed_to: int = 0
) -> tuple[int, int]:
    """Return where the batches end that have all their bytes, right or wrong, and the offset after them.

    This is for a range in which `verified` found no batch. A write that was cut short leaves an incomplete batch, so a
    complete one has changed since it was written. Its header may have changed, too: the offset is the largest that it
    allows, so that none is given out twice. A flush ends between two batches.
    """
    window = _Window(file, end)
    while end - position >= entries.BYTES_MIN:
        at = window.at(position, min(HEADER_BYTES, end - position))
        try:
            header = entries.peek(window.data, at)
        except CorruptBatch:
            break
        if not entries.BYTES_MIN <= header.size_bytes <= end - position:
            break
        at = window.at(position, header.size_bytes)
        is_right = entries.check_crc(window.data, at, header)
        header = entries.read(window.data, at, OPENED_BYTES_MAX)
        first = next_offset
        # The checksum does not cover the first offset: where the checksum is right, the offset is wrong.
        if not is_right and next_offset < header.base_offset <= base_offset + INT32_MAX:
            first = header.base_offset
        after = first + max(header.last_offset_delta + 1, header.record_count, 1)
        next_offset = min(after, flushed_to) if next_offset < flushed_to else after
        position += header.size_bytes
    return position, next_offset


def _whole_batch(window: _Window, position: int, base_offset: int, next_offset: int) -> BatchHeader | None:
    """Return the header of the batch at a position if all of it is there and right."""
    left = window.end - position
    if left < entries.BYTES_MIN:
        return None
    at = window.at(position, HEADER_BYTES)
    try:
        header = entries.peek(window.data, at)
    except CorruptBatch:
        return None
    size = header.size_bytes
    if (
        not 0 <= header.magic <= MAGIC
        or not entries.BYTES_MIN <= size <= left
        or header.base_offset < next_offset
        or header.last_offset_delta < 0
        or header.last_offset - base_offset > INT32_MAX
    ):
        return None
    if at + size > len(window.data):
        at = window.at(position, size)
    if not entries.check_crc(window.data, at, header):
        return None
    if header.record_count != entries.UNKNOWN:
        return header
    header = entries.read(window.data, at, OPENED_BYTES_MAX)
    if header.base_offset < next_offset:
        # Compaction leaves no such thing, and a producer cannot: what it claims to begin with is not so.
        header = header._replace(base_offset=header.last_offset, last_offset_delta=0)
    return header


def _offset_at(window: _Window, position: int, base_offset: int, next_offset: int) -> int | None:
    header = _whole_batch(window, position, base_offset, next_offset)
    return header and header.base_offset


def _is_misplaced(
    window: _Window, position: int, header: BatchHeader, base_offset: int, next_offset: int
) -> bool:
    """Tell whether a batch's offset is false, as no checksum covers it: it skips some that the batch after it has."""
    if header.base_offset == next_offset:
        return False
    following = _whole_batch(window, position + header.size_bytes, base_offset, next_offset)
    return following is not None and following.base_offset <= header.last_offset


def _is_of_false_epoch(
    window: _Window,
    position: int,
    header: BatchHeader,
    base_offset: int,
    epoch: int,
    epoch_at: EpochAt | None,
) -> bool:
    """Tell whether a batch's leader epoch is false, as no checksum covers it: `epoch` was that of the batch before it.

    It is if the batch after it has that one again, and nobody knows of another: after a cut that a crash has undone, an
    older batch may come after the first one of an epoch.
    """
    if epoch_at is None or epoch == NO_EPOCH or epoch_at(header.base_offset) != epoch:
        return False
    following = _whole_batch(window, position + header.size_bytes, base_offset, header.last_offset + 1)
    return following is not None and following.magic == MAGIC and following.leader_epoch == epoch


def _next_batch(window: _Window, candidate: int, base_offset: int, next_offset: int) -> int:
    """Return where the next whole batch starts, at a position or after it, or the end."""
    while window.end - candidate >= HEADER_BYTES:
        at = window.at(candidate, HEADER_BYTES)
        # Only a byte that may be the magic of a batch is worth a closer look.
        magic_at = window.data.find(MAGIC, at + MAGIC_POSITION)
        if magic_at < 0:
            candidate = window.position + len(window.data) - MAGIC_POSITION
            if window.position + len(window.data) >= window.end:
                break
            continue
        candidate = window.position + magic_at - MAGIC_POSITION
        if _whole_batch(window, candidate, base_offset, next_offset) is not None:
            return candidate
        candidate += 1
    return window.end


def _next_message(window: _Window, candidate: int, end: int, base_offset: int, next_offset: int) -> int:
    """Return where the next whole entry of an older format starts, in [candidate, end), or end."""
    highest = {(offset >> 32).to_bytes(4, "big") for offset in (next_offset, base_offset + INT32_MAX)}
    while candidate < end:
        at = window.at(candidate, min(HEADER_BYTES, window.end - candidate))
        found = _MESSAGE.search(window.data, at + legacy.OFFSET_BYTES)
        if found is None:
            # What begins at the end of the window is looked at in the next one.
            after = window.position + len(window.data) - entries.BYTES_MIN + 1
            if window.position + len(window.data) >= window.end:
                break
            candidate = max(candidate + 1, after)
            continue
        start = found.start() - legacy.OFFSET_BYTES
        candidate = window.position + start
        if (
            candidate < end
            and window.data[start : start + 4] in highest
            and _whole_batch(window, candidate, base_offset, next_offset) is not None
        ):
            return candidate
        candidate += 1
    return end
