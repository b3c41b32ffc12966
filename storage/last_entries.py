"""Opens a segment that Kafka wrote by the last entries of its indexes (KIP-33), without reading its log.

Kafka writes no summaries. Owns the check that the entries belong to this log: it reads the few batches after the last
offset entry, and the batch that the last time entry names. The rest of the log is unverified: because of
`Segment.is_known_by_index`, the first read has all of it verified and described.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader
from tidelog.protocol.records.search import find_entry
from tidelog.storage import append_index, files, offset_index, time_index, walk
from tidelog.storage.layout import APPEND_INDEX, INDEX, TIME_INDEX
from tidelog.storage.minima import Minima
from tidelog.storage.segment import Segment
from tidelog.storage.summary import NONE, Summary

_Entries = bytes | files.Map


class _Tail(NamedTuple):
    """The batches from the last offset entry's own to the end."""

    batches: int
    next_offset: int
    max_timestamp: int
    is_log_append_time: bool  # of the last batch


def open_by_index(segment: Segment, modified_ms: int, now_ms: int, flushed_to: int) -> bool:
    """Open a segment by its last index entries, if Kafka wrote it and flushed all of it; tell whether that was done.

    A segment that we wrote has an append index.
    """
    if not flushed_to or files.status(segment.path(APPEND_INDEX)) is not None:
        return False
    try:
        summary = _summary_of(segment, modified_ms, now_ms)
    except ValueError:
        return False
    if summary.next_offset > flushed_to:
        return False
    segment.use_summary(summary, finished=True)
    return True


def begins_with_messages(segment: Segment) -> bool:
    """Tell whether a segment known by its index begins with an older format, which has no producer or leader epoch.

    If batches with them follow in the same segment, Kafka has left a snapshot and a checkpoint that list them.
    """
    if not segment.is_known_by_index:
        return False
    return entries.peek(segment.file.pread(HEADER_BYTES, 0), 0).magic < MAGIC


def _summary_of(segment: Segment, modified_ms: int, now_ms: int) -> Summary:
    """Return a summary from the last entries. Raise ValueError if there are none, or if they are of another log.

    Counts, minima and digests are unknown. The file's modification time bounds the append times.
    """
    offsets, times = files.map_readonly(segment.path(INDEX)), files.map_readonly(segment.path(TIME_INDEX))
    if not offsets or len(offsets) % offset_index.ENTRY.size or len(times) % time_index.ENTRY.size:
        raise ValueError("no index, or a torn one")
    tail = _tail(segment, offsets)
    largest = _last_time(segment, offsets, times)
    if tail.max_timestamp > largest:
        raise ValueError("the last time entry is not the one that a clean stop adds")
    known = segment.summary
    summary = Summary(
        1,
        segment.size,
        tail.next_offset,
        known.created_ms,
        known.index_interval_bytes,
        batch_count=tail.batches,
        max_timestamp=largest,
        is_created_bound=known.is_created_bound,
        origin=known.origin,
        appended_from=tail.next_offset,
        minima=Minima.unknown(segment.size),
    )
    is_stamped = tail.is_log_append_time
    summary.last_append_ms = largest if is_stamped else append_index.bound_ms(summary, modified_ms, now_ms)
    return summary


def _tail(segment: Segment, offsets: _Entries) -> _Tail:
    """Verify the batches from the last offset entry on. Raise ValueError if it is of another log."""
    count = len(offsets) // offset_index.ENTRY.size
    last, position = _offset_entry(offsets, count - 1)
    batches, timestamp, is_named = 0, NONE, False
    for header in _batches(segment, position, segment.size):
        batches += 1
        # Kafka's entry has the last offset of the batches that were appended together.
        is_named |= header.last_offset == segment.base_offset + last
        if header.record_count:
            timestamp = max(timestamp, header.max_timestamp)
    if not is_named:
        raise ValueError("the last offset entry is of another log")
    return _Tail(batches, header.last_offset + 1, timestamp, header.is_log_append_time)


def _last_time(segment: Segment, offsets: _Entries, times: _Entries) -> int:
    """Return the time of the last time entry, NONE without one. Raise ValueError if its batch has another time."""
    if not times:
        return NONE
    timestamp, relative_offset = time_index.last_entry(times)
    after, _, _ = find_entry(offsets, offset_index.ENTRY.size, 4, relative_offset + 1)
    # Search from the entry before the offset to the one after the next: later batches cannot hold it.
    _, position = _offset_entry(offsets, after - 1) if after else (0, 0)
    is_near_end = (after + 1) * offset_index.ENTRY.size >= len(offsets)
    end = segment.size if is_near_end else _offset_entry(offsets, after + 1)[1]
    for header in _batches(segment, position, end):
        if header.last_offset - segment.base_offset >= relative_offset:
            if header.max_timestamp == timestamp:
                return timestamp
            break
    raise ValueError("the last time entry is of another log")


def _batches(segment: Segment, start: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in a range, verified. Raise ValueError if it has anything else."""
    if not 0 <= start < end <= segment.size:
        raise ValueError("an entry names a position outside the log")
    base = segment.base_offset
    for batch in walk.verified(segment.file, start, end, base, base):
        if batch.header is None:
            raise ValueError("damage, or no batch begins where an entry says")
        yield batch.header


def _offset_entry(offsets: _Entries, number: int) -> tuple[int, int]:
    relative_offset, position = offset_index.ENTRY.unpack_from(offsets, number * offset_index.ENTRY.size)
    return relative_offset, position
