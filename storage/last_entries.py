"""What the last entries of a segment's indexes tell of it (KIP-33): enough to open it without reading its log.

Owns the judgement whether they are of this log, by a walk over the few batches after the last offset entry, and a look
at the batch that the last time entry names. Meant for segments that Kafka wrote and put on disk, as these have no
summary. Nothing vouches for the bytes between: `Segment.is_known_by_index` has them read, verified and described as
soon as anybody wants one of them.
"""

from typing import NamedTuple

from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC
from tidelog.protocol.records.search import find_entry
from tidelog.storage import files, offset_index, time_index, walk
from tidelog.storage.errors import CorruptLog
from tidelog.storage.minima import Minima
from tidelog.storage.segment import APPEND_INDEX, INDEX, TIME_INDEX, Segment
from tidelog.storage.summary import NONE, Summary


class _Tail(NamedTuple):
    """The batches after the last offset entry, its own the first of them."""

    batches: int
    next_offset: int
    max_timestamp: int
    append_ms: int  # of the last one, NONE unless it carries that


def _summary_of(segment: Segment, modified_ms: int) -> Summary | None:
    """Return what is known of a segment by its last entries; None where there are none, or not of this log.

    Counts, minima and digests are unknown. Append times are bounded by the time of the file, in ms.
    """
    offsets, times = files.map_readonly(segment.path(INDEX)), files.map_readonly(segment.path(TIME_INDEX))
    if not offsets or len(offsets) % offset_index.ENTRY.size or len(times) % time_index.ENTRY.size:
        return None
    try:
        tail = _tail(segment, offsets)
        timestamp = _last_time(segment, offsets, times)
    except (CorruptLog, ValueError):
        return None
    known = segment.summary
    return Summary(
        1,
        segment.size,
        tail.next_offset,
        known.created_ms,
        known.index_interval_bytes,
        batch_count=tail.batches,
        max_timestamp=max(timestamp, tail.max_timestamp),
        last_append_ms=modified_ms if tail.append_ms == NONE else tail.append_ms,
        minima=Minima.unknown(segment.size),
    )


def tell_of(segment: Segment, modified_ms: int, flushed_to: int) -> bool:
    """Open a segment by its last entries, if Kafka wrote it and all of it was flushed; tell whether that was done.

    We would have noted append times.
    """
    if not flushed_to or files.status(segment.path(APPEND_INDEX)) is not None:
        return False
    summary = _summary_of(segment, modified_ms)
    if summary is None or summary.next_offset > flushed_to:
        return False
    segment.believe(summary, finished=True)
    return True


def names_nobody(segment: Segment) -> bool:
    """Tell whether a segment known by its index begins with messages: they name no producer and no leader epoch.

    Where batches follow them in the same segment, Kafka has left a snapshot and a checkpoint that tell of those.
    """
    if not segment.is_known_by_index:
        return False
    return entries.peek(segment.file.pread(HEADER_BYTES, 0), 0).magic < MAGIC


def _tail(segment: Segment, offsets: bytes | files.Map) -> _Tail:
    """Verify the batches after the last offset entry. ValueError if that is not theirs."""
    entry = offset_index.ENTRY
    last, position = entry.unpack_from(offsets, len(offsets) - entry.size)
    before = (
        entry.unpack_from(offsets, len(offsets) - 2 * entry.size)[0] + 1 if len(offsets) > entry.size else 0
    )
    base = segment.base_offset
    batches, timestamp, append_ms, next_offset, is_named = 0, NONE, NONE, NONE, False
    for _, _, header in walk.verified(segment.file, max(position, 0), segment.size, base, base + before):
        if header is None:
            raise ValueError("damage after the last offset entry")
        batches += 1
        next_offset = header.last_offset + 1
        # Kafka's entry has the last offset of all batches that were appended at once.
        is_named |= header.last_offset == base + last
        if header.record_count:
            timestamp = max(timestamp, header.max_timestamp)
        append_ms = header.max_timestamp if header.is_log_append_time else NONE
    if not is_named:
        raise ValueError("the last offset entry is of another log")
    return _Tail(batches, next_offset, timestamp, append_ms)


def _last_time(segment: Segment, offsets: bytes | files.Map, times: bytes | files.Map) -> int:
    """Return the time of the last time entry, NONE without one. ValueError if its batch does not have that."""
    if not times:
        return NONE
    timestamp, relative_offset = time_index.ENTRY.unpack_from(times, len(times) - time_index.ENTRY.size)
    after, _, _ = find_entry(offsets, offset_index.ENTRY.size, 4, relative_offset + 1)
    # From the entry before it, to the one after the next: that one's batches may hold the offset, none after them.
    position = _position(offsets, after - 1) if after else 0
    end = (
        _position(offsets, after + 1)
        if (after + 1) * offset_index.ENTRY.size < len(offsets)
        else segment.size
    )
    for _, header in walk.headers(segment.file, position, end):
        if header.last_offset - segment.base_offset >= relative_offset:
            if header.max_timestamp == timestamp:
                return int(timestamp)
            break
    raise ValueError("the last time entry is of another log")


def _position(offsets: bytes | files.Map, number: int) -> int:
    return int(offset_index.ENTRY.unpack_from(offsets, number * offset_index.ENTRY.size)[1])
