"""The records of a range of times, exactly: from the first that lies in it to the last, by offset.

Owns the end of such a range, by either clock; its start is `by_time`'s, unless the first record at or after it lies
beyond the range. Record times come in any order, so each segment is asked from the end: one whose smallest and largest
times do not meet the range is skipped, so is a stretch of the log whose minimum lies beyond it (`minima`), and what is
left of batches after their headers is looked at record by record. Minima that nobody knows, as after a recovery from
headers, are found out here and kept in memory. Knows nothing of requests, and changes nothing in a file.

NotInMemory and TakesLong are raised as the source says. A record without a timestamp (-1) is in no range of record
times. Where append times are bounds, what may have been appended in the range counts as such.
"""

from collections.abc import Iterator
from typing import NamedTuple

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

# What is looked at by those who have no time, and what a header counts for: 2 ms or so.
PROMPT_BYTES = 1 << 20
HEADER_COST_BYTES = 2 << 10


class _Window(NamedTuple):
    """Times from the first on and before the second, of records from an offset on."""

    from_ms: int
    to_ms: int
    start: int

    def meets(self, segment: Segment) -> bool:
        """Tell whether a segment may have a record of these."""
        summary = segment.summary
        return (
            segment.next_offset > self.start
            and summary.min_timestamp < self.to_ms
            and summary.max_timestamp >= self.from_ms
        )


class _Effort:
    """What a search has cost so far; it ends with TakesLong where the source is prompt and that was much."""

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
    """Return the smallest range of offsets that has every record with from_ms <= time < to_ms from the log's start on.

    It is empty where there is none; what lies within it need not be of these times where they are out of order.
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
    """Return the first offset from which on all was appended at or after a time; the log's end if there is none."""
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
    """Return the first record of a window, or the last."""
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
    size = segment.size  # before the minima: what is published is in them
    minima = segment.summary.minima.stretches
    limit_bytes = log.config.max_decompressed_bytes
    stretches = minima.below(window.to_ms, size)
    last = len(minima.times) - 1
    for stretch in reversed(stretches) if from_end else stretches:
        # The last one of an active segment may be added to meanwhile.
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
    """Yield (position, header) of the batches that begin in a stretch; damage is left out."""
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
                f"{segment.path(LOG)}@{position}: a batch of {header.batch_length} bytes cannot be"
            )
        if position >= stretch.start:
            yield position, header
        position += header.size_bytes


def _least(segment: Segment, stretch: Stretch, limit_bytes: int, effort: _Effort) -> int:
    """Return the smallest time of a stretch, from its records."""
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
    return max(UNKNOWN + 1, min(least, BEYOND))  # of damaged records any number may be said


def _in_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    window: _Window,
    limit_bytes: int,
    effort: _Effort,
    from_end: bool,
) -> Found | None:
    """Return the first record of a batch that lies in a window, or the last."""
    from_ms, to_ms, start = window
    largest = header.max_timestamp
    if largest < from_ms or header.last_offset < start or not header.record_count:
        return None
    if header.is_log_append_time and largest >= to_ms:
        return None
    effort.take(header.size_bytes)
    times, offsets = in_batch.times_and_offsets(segment, position, header, limit_bytes, effort.source)
    if min(times) >= to_ms:
        return None  # as of every batch after the end of the range, where times are in order
    numbers = range(len(times))
    for number in reversed(numbers) if from_end else numbers:
        if from_ms <= times[number] < to_ms and offsets[number] >= start:
            return Found(times[number], offsets[number], header.leader_epoch)
    return None
