"""Finds the offsets of a range of times, exactly: from the first record in the range to the last.

`by_time` finds the start, unless the first record at or after it lies beyond the range. This module finds the end, by
either clock. Timestamps may be in any order, so the search goes backwards: it skips segments whose smallest and largest
times are outside the range, stretches of the log whose minimum lies beyond it (`minima`), and batches by their headers,
and searches the rest record by record. Unknown minima, as after a recovery from headers, are computed here and kept in
memory. Knows nothing of requests, and changes no files.

Raises NotInMemory and TakesLong as the source asks. A record without a timestamp (-1) is in no range of timestamps. If
append times are bounds, records that may have been appended in the range count.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.storage.errors import CorruptLog, TakesLong
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log
from tidelog.storage.minima import BEYOND, UNKNOWN, Stretch
from tidelog.storage.search import by_time, in_batch
from tidelog.storage.search.by_time import APPEND_TIME, Found, Timeline, found_in, segments_of
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source

# How much a prompt search may read, about 2 ms, and how much reading a header counts for.
PROMPT_BYTES: Final = 1 << 20
HEADER_COST_BYTES: Final = 2 << 10


class _Window(NamedTuple):
    """The records with from_ms <= time < to_ms, from offset `start` on."""

    from_ms: int
    to_ms: int
    start: int

    def meets(self, segment: Segment) -> bool:
        """Tell whether a segment may have such a record."""
        summary = segment.summary
        return (
            segment.next_offset > self.start
            and summary.min_timestamp < self.to_ms
            and summary.max_timestamp >= self.from_ms
        )


class _Effort:
    """The cost of a search: with a prompt source, it raises TakesLong at a limit."""

    __slots__ = ("_left", "_what", "source")

    def __init__(self, log: Log, source: Source) -> None:
        self.source = source
        self._what = str(log)
        self._left = PROMPT_BYTES

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0 and self.source.prompt:
            raise TakesLong(f"{self._what}: a range of times that many batches may reach into")


def between(log: Log, from_ms: int, to_ms: int, timeline: Timeline, source: Source) -> range:
    """Return the smallest range of offsets that has every record with from_ms <= time < to_ms.

    It is empty if there is none. If timestamps are out of order, it may have records with other times too.
    """
    from_ms = max(from_ms, 0)
    found = by_time.first_at_or_after(log, from_ms, timeline, source) if from_ms < to_ms else None
    if found is None:
        return range(0)
    if timeline is APPEND_TIME:
        return range(found.offset, max(found.offset, _append_end(log, to_ms, source)))
    effort = _Effort(log, source)
    first: Found | None = found
    if found.timestamp >= to_ms:
        first = _search(log, _Window(from_ms, to_ms, found.offset), effort, from_end=False)
    if first is None:
        return range(0)
    last = _search(log, _Window(from_ms, to_ms, log.log_start_offset), effort, from_end=True)
    return range(0) if last is None else range(first.offset, last.offset + 1)


def _append_end(log: Log, to_ms: int, source: Source) -> int:
    """Return the first offset from which on all records were appended at or after a time; the log's end if none."""
    end, start = log.log_end_offset, log.log_start_offset
    for segment in segments_of(log, source):
        if segment.summary.last_append_ms >= to_ms and segment.next_offset > start:
            offset = found_in(_append_end_in, log, segment, source, to_ms)
            if offset is not None:
                return min(offset, end)
    return end


def _append_end_in(_log: Log, segment: Segment, _source: Source, to_ms: int) -> int | None:
    first = segment.append_index.offset_surely_from(to_ms)
    return None if first is None else segment.base_offset + first


def _search(log: Log, window: _Window, effort: _Effort, *, from_end: bool) -> Found | None:
    """Return the first record in a window, or the last."""
    segments = segments_of(log, effort.source)
    for segment in reversed(segments) if from_end else segments:
        if window.meets(segment):
            found = found_in(_in_segment, log, segment, effort.source, window, effort, from_end)
            if found is not None:
                return found
    return None


def _in_segment(
    log: Log, segment: Segment, _source: Source, window: _Window, effort: _Effort, from_end: bool
) -> Found | None:
    size = segment.size  # read before the minima, which then cover it
    minima = segment.summary.minima.stretches
    limit_bytes = log.config.max_decompressed_bytes
    stretches = minima.below(window.to_ms, size)
    last = len(minima.times) - 1
    for stretch in reversed(stretches) if from_end else stretches:
        # Batches may still be added to the last stretch of an active segment.
        if minima.times[stretch.number] == UNKNOWN and not (segment.is_active and stretch.number == last):
            least = _least(segment, stretch, limit_bytes, effort)
            minima.times[stretch.number] = least
            if least >= window.to_ms:
                continue
        batches = list(_batches(segment, stretch, effort))
        for position, header in reversed(batches) if from_end else batches:
            found = _in_batch(segment, position, header, window, limit_bytes, effort, from_end)
            if found is not None:
                return found
    return None


def _batches(segment: Segment, stretch: Stretch, effort: _Effort) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches that begin in a stretch; damage is skipped."""
    position = segment.offset_index.position_at(stretch.start)
    while True:
        for damage in segment.summary.damage:
            if damage.start <= position < damage.end:
                position = damage.end
        if position >= stretch.end:
            return
        effort.take(HEADER_COST_BYTES)
        data = segment.read(min(entries.HEAD_BYTES, segment.size - position), position, effort.source)
        try:
            header = entries.peek(data)
        except CorruptBatch as error:
            raise CorruptLog(f"{segment.path(LOG)}@{position}: {error}") from error
        if header.size_bytes < entries.BYTES_MIN:
            raise CorruptLog(
                f"{segment.path(LOG)}@{position}: a batch cannot have {header.batch_length} bytes"
            )
        if position >= stretch.start:
            yield position, header
        position += header.size_bytes


def _least(segment: Segment, stretch: Stretch, limit_bytes: int, effort: _Effort) -> int:
    """Return the smallest time in a stretch, from its records."""
    effort.take(PROMPT_BYTES + 1)
    least = BEYOND
    for position, header in _batches(segment, stretch, effort):
        if not header.record_count:
            continue
        if header.is_log_append_time:
            least = min(least, header.max_timestamp)
        else:
            times, _ = in_batch.times_and_offsets(segment, position, header, limit_bytes, effort.source)
            least = min(least, *times)
    return max(UNKNOWN + 1, min(least, BEYOND))  # the times of damaged records may be any number


def _in_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    window: _Window,
    limit_bytes: int,
    effort: _Effort,
    from_end: bool,
) -> Found | None:
    """Return the first record of a batch in a window, or the last."""
    from_ms, to_ms, start = window
    largest = header.max_timestamp
    if largest < from_ms or header.last_offset < start or not header.record_count:
        return None
    if header.is_log_append_time and largest >= to_ms:
        return None
    effort.take(header.size_bytes)
    times, offsets = in_batch.times_and_offsets(segment, position, header, limit_bytes, effort.source)
    if min(times) >= to_ms:
        return None  # if times are in order, this ends every batch after the range
    numbers = range(len(times))
    for number in reversed(numbers) if from_end else numbers:
        if from_ms <= times[number] < to_ms and offsets[number] >= start:
            return Found(times[number], offsets[number], header.leader_epoch)
    return None
