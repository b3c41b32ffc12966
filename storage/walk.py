"""Walks over the batches of a log file, one header at a time.

Owns the reading of a file in chunks, and what counts as a whole batch before anything of the file is known to be true.
Entries of the older formats count as batches (`entries`). Knows nothing of indexes, or of what happens to damage.
Memory is bounded by a chunk or, if it is larger, one batch; for wrappers of the older formats by their content.
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

CHUNK_BYTES: Final = 1 << 20
# How much a walk over headers reads before it knows how large the batches are.
FIRST_BYTES: Final = 8192
INT32_MAX: Final = (1 << 31) - 1
# The leader epoch before the first batch.
NO_EPOCH: Final = -1
# A wrapper of the older formats that decompresses to more is not opened to read its offsets.
OPENED_BYTES_MAX: Final = 64 << 20
# How a message of the older formats begins after its offset: length, checksum, magic.
_MESSAGE: Final = re.compile(rb"(?s)(?!\0\0\0[\0-\x0d])[\0-\x7f].{7}[\0\1]")

# Returns the offset of the batch that comes next, if there is one. A call reads it.
Following = Callable[[], int | None]
# Tells whether a whole batch at a position is damage by what else is known of the log: by the offset that it should
# have, None if that is unknown after damage, and by what comes next.
Refuses = Callable[[int, BatchHeader, int | None, Following], bool]
# Returns the leader epoch of an offset, less than 0 if it is unknown.
EpochAt = Callable[[int], int]


class Batch(NamedTuple):
    """A batch, its range, and its bytes; without a header, a range that has no sound batch."""

    position: int
    end: int
    header: BatchHeader | None
    data: memoryview = memoryview(b"")


class _Window:
    """The part of a file that is in memory; it moves on with the walk."""

    __slots__ = ("_bytes", "_first_bytes", "data", "end", "file", "position")

    def __init__(self, file: File, end: int, first_bytes: int = CHUNK_BYTES) -> None:
        self.file = file
        self.end = end
        self.position = 0
        self.data = b""
        self._first_bytes = self._bytes = first_bytes

    def at(self, position: int, count: int) -> int:
        """Load `count` bytes from `position`, or as many as the file has; return their index in `data`.

        A walk over adjacent bytes loads more each time. A walk that jumps over large batches loads `first_bytes`.
        """
        start = position - self.position
        if start < 0 or start + count > len(self.data):
            is_jump = start > len(self.data)
            self._bytes = self._first_bytes if is_jump else min(2 * self._bytes, CHUNK_BYTES)
            self.data = self.file.pread(min(max(count, self._bytes), self.end - position), position)
            self.position = position
            return 0
        return start


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches in a range that is known to consist of whole batches."""
    window = _Window(file, end, FIRST_BYTES)
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
    """Yield every whole batch with a right checksum, and each range in between that has none.

    Offsets start at `next_offset` and must fit a segment that starts at `base_offset`. `epoch_at` gives the leader
    epochs that are known.
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
                header = None  # Its end is right: the checksum covers its length.
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
    """Return the end of the batches that have all their bytes, right or wrong, and the offset after them.

    This is for a range in which `verified` found no batch. An interrupted write leaves an incomplete batch, so a
    complete one has changed since it was written. Its header may have changed too. The offset is the largest that it
    allows, so that no offset is given out twice. A flush ends between two batches.
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
        # The checksum does not cover the first offset: if the checksum is right, that offset is wrong.
        if not is_right and next_offset < header.base_offset <= base_offset + INT32_MAX:
            first = header.base_offset
        after = first + max(header.last_offset_delta + 1, header.record_count, 1)
        next_offset = min(after, flushed_to) if next_offset < flushed_to else after
        position += header.size_bytes
    return position, next_offset


def _whole_batch(window: _Window, position: int, base_offset: int, next_offset: int) -> BatchHeader | None:
    """Return the header of the batch at a position if it is complete and its checksum is right."""
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
        # Neither a producer nor compaction makes such a wrapper: the first offset that it claims is false.
        header = header._replace(base_offset=header.last_offset, last_offset_delta=0)
    return header


def _offset_at(window: _Window, position: int, base_offset: int, next_offset: int) -> int | None:
    header = _whole_batch(window, position, base_offset, next_offset)
    return header and header.base_offset


def _is_misplaced(
    window: _Window, position: int, header: BatchHeader, base_offset: int, next_offset: int
) -> bool:
    """Tell whether a batch's offset is false: it skips offsets that the next batch has. No checksum covers it."""
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
    """Tell whether a batch's leader epoch, which no checksum covers, is false; `epoch` is that of the batch before.

    It is false if the next batch has `epoch` again, and `epoch_at` says so too. Else it may be true: if a crash has
    undone a cut, an older batch may follow the first one of an epoch.
    """
    if epoch_at is None or epoch == NO_EPOCH or epoch_at(header.base_offset) != epoch:
        return False
    following = _whole_batch(window, position + header.size_bytes, base_offset, header.last_offset + 1)
    return following is not None and following.magic == MAGIC and following.leader_epoch == epoch


def _next_batch(window: _Window, candidate: int, base_offset: int, next_offset: int) -> int:
    """Return the start of the next whole batch at a position or after it; the end if there is none."""
    while window.end - candidate >= HEADER_BYTES:
        at = window.at(candidate, HEADER_BYTES)
        # Only a byte that may be the magic of a batch is looked at closely.
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
    """Return the start of the next whole entry of an older format in [candidate, end); end if there is none."""
    highest = {(offset >> 32).to_bytes(4, "big") for offset in (next_offset, base_offset + INT32_MAX)}
    while candidate < end:
        at = window.at(candidate, min(HEADER_BYTES, window.end - candidate))
        found = _MESSAGE.search(window.data, at + legacy.OFFSET_BYTES)
        if found is None:
            # An entry that begins at the end of the window is found in the next one.
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
