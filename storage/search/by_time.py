"""Addressing a log by time, exactly: every answer is what a scan of all records from the log's start would give.

Owns the way from a time to a record: segment by its largest timestamp, the two indexes, batch headers, records.
Knows nothing of requests, and changes nothing. Each step only skips what cannot hold the answer, and where a step finds
nothing the search goes on behind it, so neither the density of an index nor a moved log start can hide a record.
A record without a timestamp (-1) is never an answer. `wait` and `brief` are those of `Log.read`.
"""

from collections.abc import Callable
from typing import Any

from tidelog.storage.errors import Mismatch, OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.search.in_batch import first_record, first_record_at, is_kept, largest_record
from tidelog.storage.search.times_cache import Found
from tidelog.storage.segment import LOG, Segment
from tidelog.storage.summary import NONE

__all__ = ["Found", "first_at_or_after", "largest_timestamp", "offsets_before"]

LATEST, EARLIEST = -1, -2
# Twice the usual index interval.
LARGE_BATCH_BYTES = 8192
# Segments that are gone through, some 0.15 us each, and segments or batches that are searched in vain, some 2 ms each,
# by those who have no time.
PROMPT_SEGMENTS = 20_000
PROMPT_SEARCHES = 2


def first_at_or_after(log: Log, timestamp_ms: int, wait: bool = True, brief: bool = False) -> Found | None:
    """Return the first record, by offset, at or after a time and not before the log's start; or None.

    With `wait` false raise NotInMemory if that would wait for the disk. Without it, or with `brief`, raise TakesLong if
    that would take long.
    """
    wanted = max(timestamp_ms, 0)
    start = log.log_start_offset
    searched = 0
    for segment in _segments(log, wait, brief):
        if segment.summary.max_timestamp >= wanted and segment.next_offset > start:
            if searched == PROMPT_SEARCHES and (brief or not wait):
                raise TakesLong(f"{log}: {searched} segments were searched in vain")
            searched += 1
            found = _found_in(_first_in_segment, log, segment, wanted, start, wait, brief)
            if found is not None:
                return found
    return None


def _segments(log: Log, wait: bool, brief: bool) -> tuple[Segment, ...]:
    """Return the segments of a log, if they are not too many to be gone through one after another."""
    segments = log.segments
    if len(segments) > PROMPT_SEGMENTS and (brief or not wait):
        raise TakesLong(f"{log}: {len(segments)} segments are to be gone through")
    return segments


def _found_in(find: Callable[..., Found | None], log: Log, segment: Segment, *args: Any) -> Found | None:
    """Return what is found in a segment; in one that is judged meanwhile, by what is known of it then.

    The last of `args` are `wait` and `brief`. In a segment that retention takes away meanwhile nothing is found: its
    records are before the log's start now.
    """
    current: Segment | None = segment
    while current is not None:
        try:
            return find(log, current, *args)
        except OffsetOutOfRange:
            return None
        except Mismatch as mismatch:
            wait, brief = args[-2:]
            current = log.judge(mismatch.segment, wait and not brief)
        except OSError as error:
            raise ReadFailed(f"{segment.path(LOG)}: {error}") from error
    return None


def _first_in_segment(
    log: Log, segment: Segment, wanted: int, start: int, wait: bool, brief: bool
) -> Found | None:
    base_offset = segment.base_offset
    limit_bytes = log.config.max_decompressed_bytes
    # Before the greatest entry below that offset every record is older, however long ago that entry's own time came.
    last_offset = segment.time_index.offset_from(wanted) - 1
    first_offset = start - base_offset
    position, behind, next_offset = segment.offset_index.around(max(last_offset, first_offset))
    if (
        (behind - position >= LARGE_BATCH_BYTES or is_kept(segment, behind))
        and behind < segment.size  # The index of an active segment is a moment ahead of what is published.
        and last_offset >= first_offset
        and next_offset >= first_offset
        and not segment.summary.damage
    ):
        # Between two entries so far apart there is one batch, as a rule, and the answer is in the next. Where the next
        # can be searched without a read it costs nothing to try.
        found = first_record_at(
            segment, behind, behind - position, base_offset + next_offset, wanted, limit_bytes, wait, brief
        )
        if found is not None:
            return found
    searched = 0
    while True:
        place = by_offset.locate_timestamp(segment, wanted, position, behind, wait, brief)
        if not place.size:
            return None
        if searched == PROMPT_SEARCHES and (brief or not wait):
            raise TakesLong(f"{segment.path(LOG)}@{position}: {searched} batches were searched in vain")
        searched += 1
        found = first_record(segment, place, wanted, start, limit_bytes, wait, brief)
        if found is not None:
            return found
        position = place.position + place.size


def largest_timestamp(log: Log, wait: bool = True, brief: bool = False) -> Found | None:
    """Return the first record, by offset, among those with the largest timestamp from the log's start on; or None.

    With `wait` false raise NotInMemory if that would wait for the disk. Without it, or with `brief`, raise TakesLong if
    that would take long, as a walk over a segment does.
    """
    start = log.log_start_offset
    best: Found | None = None
    searched = 0
    # The last one has it, as a rule, and says so.
    for segment in reversed(_segments(log, wait, brief)):
        least = best.timestamp if best is not None else NONE + 1
        if segment.summary.max_timestamp >= least and segment.next_offset > start:
            if searched == PROMPT_SEARCHES and (brief or not wait):
                raise TakesLong(f"{log}: {searched} segments were searched")
            searched += segment.summary.max_timestamp_offset < start
            found = _found_in(_largest_in_segment, log, segment, start, wait, brief)
            if found is not None and found.timestamp >= least:
                best = found
    return best


def _largest_in_segment(log: Log, segment: Segment, start: int, wait: bool, brief: bool) -> Found | None:
    summary = segment.summary
    offset = summary.max_timestamp_offset
    if offset >= start:
        return Found(summary.max_timestamp, offset, log.epoch_at(offset))
    if segment.base_offset >= start:
        return _first_in_segment(log, segment, summary.max_timestamp, start, wait, brief)
    if brief or not wait:
        raise TakesLong(f"{segment.path(LOG)}: its batches from offset {start} on are to be looked through")
    return _largest_behind(log, segment, start)


def _largest_behind(log: Log, segment: Segment, start: int) -> Found | None:
    """Look at every batch from the log's start on: it lies within the segment, and the maximum may lie before it."""
    best: Found | None = None
    limit_bytes = log.config.max_decompressed_bytes
    for position, header in by_offset.headers(segment, start):
        least = best.timestamp if best is not None else NONE
        if header.max_timestamp > least and header.record_count:
            found = largest_record(segment, position, header.size_bytes, start, limit_bytes)
            if found is not None and found.timestamp > least:
                best = found
    return best


def offsets_before(
    log: Log, timestamp_ms: int, max_offsets: int, wait: bool = True, brief: bool = False
) -> list[int]:
    """Return the starts of segments not changed after a time, and the log's end, newest first (ListOffsets v0).

    -1 is now, -2 the start of the log. TakesLong as `first_at_or_after`.
    """
    start = log.log_start_offset
    segments = _segments(log, wait, brief)
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
