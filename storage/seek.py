"""Addressing a log by time, exactly: every answer is what a scan of all records from the log's start would give.

Owns the way from a time to a record: segment by its largest timestamp, the two indexes, batch headers, records.
Knows nothing of requests, and changes nothing. Each step only skips what cannot hold the answer, and where a step finds
nothing the search goes on behind it, so neither the density of an index nor a moved log start can hide a record.
A record without a timestamp (-1) is never an answer.
"""

from collections.abc import Callable
from typing import Any

from tidelog.storage import lookup
from tidelog.storage.batch_scan import first_record, first_record_at, is_kept, largest_record
from tidelog.storage.errors import Mismatch, NotInMemory, OffsetOutOfRange, ReadFailed
from tidelog.storage.kept_times import Found
from tidelog.storage.log import Log
from tidelog.storage.segment import LOG, Segment
from tidelog.storage.summary import NONE

__all__ = ["Found", "first_at_or_after", "largest_timestamp", "offsets_before"]

LATEST, EARLIEST = -1, -2
# Twice the usual index interval.
LARGE_BATCH_BYTES = 8192


def first_at_or_after(log: Log, timestamp_ms: int, wait: bool = True) -> Found | None:
    """Return the first record, by offset, at or after a time and not before the log's start; or None.

    With `wait` false raise NotInMemory if that would wait for the disk.
    """
    wanted = max(timestamp_ms, 0)
    start = log.log_start_offset
    for segment in log.segments:
        if segment.summary.max_timestamp >= wanted and segment.next_offset > start:
            found = _found_in(_first_in_segment, log, segment, wanted, start, wait)
            if found is not None:
                return found
    return None


def _found_in(find: Callable[..., Found | None], log: Log, segment: Segment, *args: Any) -> Found | None:
    """Return what is found in a segment; in one that is judged meanwhile, by what is known of it then.

    The last of `args` is whether to wait. In a segment that retention takes away meanwhile nothing is found: its
    records are before the log's start now.
    """
    current: Segment | None = segment
    while current is not None:
        try:
            return find(log, current, *args)
        except OffsetOutOfRange:
            return None
        except Mismatch as mismatch:
            current = log.judge(mismatch.segment, args[-1])
        except OSError as error:
            raise ReadFailed(f"{segment.path(LOG)}: {error}") from error
    return None


def _first_in_segment(log: Log, segment: Segment, wanted: int, start: int, wait: bool) -> Found | None:
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
            segment, behind, behind - position, base_offset + next_offset, wanted, limit_bytes, wait
        )
        if found is not None:
            return found
    while True:
        place = lookup.locate_timestamp(segment, wanted, position, behind, wait)
        if not place.size:
            return None
        found = first_record(segment, place, wanted, start, limit_bytes, wait)
        if found is not None:
            return found
        position = place.position + place.size


def largest_timestamp(log: Log, wait: bool = True) -> Found | None:
    """Return the first record, by offset, among those with the largest timestamp from the log's start on; or None.

    With `wait` false raise NotInMemory if that would wait for the disk, or take a walk over a segment.
    """
    start = log.log_start_offset
    best: Found | None = None
    for segment in log.segments:
        least = best.timestamp if best is not None else NONE
        if segment.summary.max_timestamp > least and segment.next_offset > start:
            found = _found_in(_largest_in_segment, log, segment, start, wait)
            if found is not None and found.timestamp > least:
                best = found
    return best


def _largest_in_segment(log: Log, segment: Segment, start: int, wait: bool) -> Found | None:
    summary = segment.summary
    offset = summary.max_timestamp_offset
    if offset >= start:
        return Found(summary.max_timestamp, offset, log.epoch_at(offset))
    if segment.base_offset >= start:
        return _first_in_segment(log, segment, summary.max_timestamp, start, wait)
    if not wait:
        raise NotInMemory(f"{segment.path(LOG)}: its batches from offset {start} on are to be looked through")
    return _largest_behind(log, segment, start)


def _largest_behind(log: Log, segment: Segment, start: int) -> Found | None:
    """Look at every batch from the log's start on: it lies within the segment, and the maximum may lie before it."""
    best: Found | None = None
    limit_bytes = log.config.max_decompressed_bytes
    for position, header in lookup.headers(segment, start):
        least = best.timestamp if best is not None else NONE
        if header.max_timestamp > least and header.record_count:
            found = largest_record(segment, position, header.size_bytes, start, limit_bytes)
            if found is not None and found.timestamp > least:
                best = found
    return best


def offsets_before(log: Log, timestamp_ms: int, max_offsets: int) -> list[int]:
    """Return the starts of segments not changed after a time, and the log's end, newest first (ListOffsets v0).

    -1 is now, -2 the start of the log.
    """
    start = log.log_start_offset
    changed = [(max(segment.base_offset, start), segment.changed_ms) for segment in log.segments]
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
