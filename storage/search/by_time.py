"""Finds records by time, exactly: each answer is what a scan of all records from the log's start would give.

There are two clocks. The timestamps of records lead by each segment's largest timestamp, two indexes and batch headers
to a record; append times by each segment's last append time and the append index. Each step only skips what cannot hold
the answer, and if a step finds nothing, the search goes on after it. So neither sparse indexes nor a moved log start
can hide a record. A record without a timestamp (-1) is never an answer by the first clock.

Knows nothing of requests, and changes no files. Raises NotInMemory and TakesLong as the source asks.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tidelog.storage.errors import CorruptLog, Mismatch, OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.search.in_batch import (
    first_cached,
    first_from,
    first_record,
    first_record_at,
    largest_record,
)
from tidelog.storage.search.times_cache import Found
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source
from tidelog.storage.summary import NONE

__all__ = [
    "APPEND_TIME",
    "RECORD_TIME",
    "Found",
    "Timeline",
    "first_at_or_after",
    "found_in",
    "largest_timestamp",
    "offsets_before",
    "segments_of",
]

_T = TypeVar("_T")
LATEST: Final = -1
EARLIEST: Final = -2
# The bounds of a prompt search: segments that it passes, some 0.15 us each, and segments or batches that it searches in
# vain, some 2 ms each.
PROMPT_SEGMENTS: Final = 20_000
PROMPT_SEARCHES: Final = 2


class Timeline:
    """A clock by which a log is searched."""

    def largest(self, segment: Segment) -> int:
        """Return the largest time in a segment, in ms, -1 for none; without a read."""
        raise NotImplementedError

    def first(self, log: Log, segment: Segment, source: Source, start: int, wanted: int) -> Found | None:
        """Return the first record of a segment at or after both an offset and a time, or None."""
        raise NotImplementedError


def first_at_or_after(log: Log, timestamp_ms: int, timeline: Timeline, source: Source) -> Found | None:
    """Return the first record, by offset, at or after a time and the log's start; or None."""
    wanted = max(timestamp_ms, 0)
    start = log.log_start_offset
    searched = 0
    for segment in segments_of(log, source):
        if timeline.largest(segment) >= wanted and segment.next_offset > start:
            if searched == PROMPT_SEARCHES and source.prompt:
                raise TakesLong(f"{log}: {searched} segments were searched in vain")
            searched += 1
            # The direct call is the usual one. `found_in` repeats it, and knows what to do about these errors.
            try:
                found = timeline.first(log, segment, source, start, wanted)
            except (OffsetOutOfRange, Mismatch, OSError):
                found = found_in(timeline.first, log, segment, source, start, wanted)
            if found is not None:
                return found
    return None


def segments_of(log: Log, source: Source) -> tuple[Segment, ...]:
    """Return the segments of a log. Raise TakesLong if a prompt source would pass too many."""
    segments = log.segments
    if len(segments) > PROMPT_SEGMENTS and source.prompt:
        raise TakesLong(f"{log}: {len(segments)} segments")
    return segments


def found_in(
    find: Callable[..., _T | None], log: Log, segment: Segment, source: Source, *args: Any
) -> _T | None:
    """Return what `find` finds in a segment; after a Mismatch, in the rebuilt one.

    Return None if retention deletes the segment: then its records are before the log's start.
    """
    current: Segment | None = segment
    while current is not None:
        try:
            return find(log, current, source, *args)
        except OffsetOutOfRange:
            return None
        except Mismatch as mismatch:
            current = log.recheck(mismatch.segment, source)
        except OSError as error:
            raise ReadFailed(f"{segment.path(LOG)}: {error}") from error
    return None


class _RecordTime(Timeline):
    """The timestamps of records: the producer's or, with LogAppendTime, the broker's."""

    def largest(self, segment: Segment) -> int:
        return segment.summary.max_timestamp

    def first(self, log: Log, segment: Segment, source: Source, start: int, wanted: int) -> Found | None:
        base_offset = segment.base_offset
        limit_bytes = log.config.max_decompressed_bytes
        offset_index = segment.offset_index
        first_offset = start - base_offset
        while True:
            index_bytes = len(offset_index.data)
            # Up to the offset index entry at or before this offset, every record is older (`TimeIndex.offset_from`).
            last_offset = segment.time_index.offset_from(wanted) - 1
            position, following, next_offset = offset_index.around(max(last_offset, first_offset))
            # That holds for the entries that there were: an append on another thread may have added one since.
            if len(offset_index.data) == index_bytes:
                break
        is_whole = not segment.summary.damage
        # The index of an active segment may be ahead of the published size.
        if (
            0 <= following < segment.size
            and last_offset >= first_offset
            and next_offset >= first_offset
            and is_whole
        ):
            # If two entries are far apart, there is usually one batch between them, and the answer is in the next one.
            # If that can be searched without a read, trying it costs nothing.
            found = first_record_at(
                segment,
                following,
                following - position,
                base_offset + next_offset,
                wanted,
                limit_bytes,
                source,
            )
            if found is not None:
                return found
        if is_whole:
            found, position = first_cached(segment, position, wanted, start)
            if found is not None:
                return found
        searched = 0
        while True:
            place = by_offset.locate_timestamp(segment, wanted, position, following, source)
            position, size, _ = place
            if not size:
                return None
            if searched == PROMPT_SEARCHES and source.prompt:
                raise TakesLong(f"{segment.path(LOG)}@{position}: {searched} batches were searched in vain")
            searched += 1
            found = first_record(segment, place, wanted, start, limit_bytes, source)
            if found is not None:
                return found
            position += size


class _AppendTime(Timeline):
    """The times at which the broker appended records."""

    def largest(self, segment: Segment) -> int:
        return segment.summary.last_append_ms

    def first(self, log: Log, segment: Segment, source: Source, start: int, wanted: int) -> Found | None:
        """Return the first record that was appended, or if append times are bounds may have been, at or after both."""
        index, base_offset = segment.append_index, segment.base_offset
        first = index.offset_from(wanted)
        if first is None:
            return None
        offset = max(base_offset + first, start)
        while offset < segment.next_offset:
            try:
                place = by_offset.locate(segment, offset, source)
            except CorruptLog:
                after = [
                    damage.next_offset for damage in segment.summary.damage if damage.next_offset > offset
                ]
                if not after:
                    raise
                offset = after[0]
                continue
            if not place[1]:
                return None
            header, place = by_offset.with_header(segment, place, source)
            append_ms = index.time_at(header.base_offset - base_offset).time_ms
            if append_ms >= wanted:
                limit_bytes = log.config.max_decompressed_bytes
                found = first_from(segment, place, header, offset, limit_bytes, source)
                if found is not None:
                    return Found(append_ms, found, header.leader_epoch)
            offset = header.last_offset + 1
        return None


RECORD_TIME: Final = _RecordTime()
APPEND_TIME: Final = _AppendTime()


def largest_timestamp(log: Log, source: Source) -> Found | None:
    """Return the first record, by offset, among those with the largest timestamp from the log's start on; or None."""
    start = log.log_start_offset
    best: Found | None = None
    searched = 0
    # Usually the last segment has it, in its summary.
    for segment in reversed(segments_of(log, source)):
        least = best.timestamp if best is not None else NONE + 1
        if segment.summary.max_timestamp >= least and segment.next_offset > start:
            if searched == PROMPT_SEARCHES and source.prompt:
                raise TakesLong(f"{log}: {searched} segments were searched")
            searched += segment.summary.max_timestamp_offset < start
            found = found_in(_largest_in_segment, log, segment, source, start)
            if found is not None and found.timestamp >= least:
                best = found
    return best


def _largest_in_segment(log: Log, segment: Segment, source: Source, start: int) -> Found | None:
    summary = segment.summary
    offset = summary.max_timestamp_offset
    if offset >= start:
        return Found(summary.max_timestamp, offset, log.epochs.at(offset))
    if segment.base_offset >= start:
        return RECORD_TIME.first(log, segment, source, start, summary.max_timestamp)
    if source.prompt:
        raise TakesLong(f"{segment.path(LOG)}: all batches from offset {start} on")
    return _largest_from(log, segment, source, start)


def _largest_from(log: Log, segment: Segment, source: Source, start: int) -> Found | None:
    """Search every batch from the log's start on, which lies within the segment and may lie after its maximum."""
    best: Found | None = None
    limit_bytes = log.config.max_decompressed_bytes
    for position, header in by_offset.headers(segment, start):
        least = best.timestamp if best is not None else NONE
        if header.max_timestamp > least and header.record_count:
            found = largest_record(segment, position, header, start, limit_bytes, source)
            if found is not None and found.timestamp > least:
                best = found
    return best


def offsets_before(log: Log, timestamp_ms: int, max_offsets: int, source: Source) -> list[int]:
    """Answer ListOffsets v0: the starts of segments not changed after a time, and the log's end, newest first.

    For time -1 return all of them, for -2 the log's start.
    """
    start = log.log_start_offset
    segments = segments_of(log, source)
    changed = [(max(segment.base_offset, start), segment.changed_ms) for segment in segments]
    if log.active.size:
        changed.append((log.log_end_offset, log.last_append_ms))
    if timestamp_ms == LATEST:
        newest = len(changed)
    elif timestamp_ms == EARLIEST:
        newest = 1
    else:
        newest = max(
            (n + 1 for n, (_, changed_ms) in enumerate(changed) if changed_ms <= timestamp_ms), default=0
        )
    offsets = [offset for offset, _ in changed[:newest]]
    return sorted(offsets, reverse=True)[: max(0, max_offsets)]
