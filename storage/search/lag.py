"""The two times of a record, and what follows from them: how late it came, and how far behind a reader is.

Owns the arithmetic of lag in time (S56) and of latency (S57), as functions of the log: no clock is read. Knows nothing
of groups, metrics or requests. NotInMemory and TakesLong are raised as the source says, CorruptLog for a position in
damaged bytes.
"""

from typing import NamedTuple

from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, in_batch
from tidelog.storage.search.by_time import APPEND_TIME, Timeline, found_in
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source


class RecordTimes(NamedTuple):
    """When a record was made, -1 where nobody said, and when it was appended; `is_bound`: then, or earlier."""

    offset: int
    record_ms: int
    append_ms: int
    is_bound: bool
    is_stamped: bool  # the time that it carries is that of its append


def times_of(log: Log, offset: int, source: Source) -> RecordTimes | None:
    """Return the times of the first record at or after an offset and the log's start; None behind the last."""
    segments = log.segments
    offset = max(offset, log.log_start_offset)
    for segment in segments[by_offset.segment_number(segments, offset) :]:
        found = found_in(_times_in, log, segment, source, max(offset, segment.base_offset))
        if found is not None:
            return found
    return None


def _times_in(log: Log, segment: Segment, source: Source, offset: int) -> RecordTimes | None:
    while offset < segment.next_offset:
        position, size, head = by_offset.locate(segment, offset, source)
        if not size:
            return None
        if len(head) < min(size, entries.HEAD_BYTES):
            head = segment.read(min(size, entries.HEAD_BYTES), position, source)
        header = entries.peek(head)
        if header.record_count:
            place, limit_bytes = (position, size, head), log.config.max_decompressed_bytes
            found = in_batch.first_record(segment, place, NO_TIMESTAMP, offset, limit_bytes, source)
            if found is not None:
                append_ms, _, is_bound = segment.append_index.time_at(
                    header.base_offset - segment.base_offset
                )
                return RecordTimes(
                    found.offset, found.timestamp, append_ms, is_bound, header.is_log_append_time
                )
        offset = header.last_offset + 1
    return None


def latency_ms(times: RecordTimes) -> int | None:
    """Return how long after it was made a record was appended (S57); None where its own time is not known.

    It is negative where the producer's clock is ahead. Where the append time is a bound, so is this.
    """
    is_unknown = times.is_stamped or times.record_ms == NO_TIMESTAMP
    return None if is_unknown else times.append_ms - times.record_ms


def lag_ms(log: Log, position: int, timeline: Timeline, source: Source) -> int | None:
    """Return how much later than the record at a position the last of the log is, by a clock (S56).

    The position is the offset that a reader comes to next: at the log's end there is no lag. None where one of the two
    has no time. By record time the last may be older than others: then there is none either.
    """
    if position >= log.log_end_offset:
        return 0
    first = times_of(log, position, source)
    if first is None:
        return 0
    if timeline is APPEND_TIME:
        return max(0, log.last_append_ms - first.append_ms)
    last = times_of(log, log.log_end_offset - 1, source)
    if last is None or NO_TIMESTAMP in (first.record_ms, last.record_ms):
        return None
    return max(0, last.record_ms - first.record_ms)


def waits_ms(log: Log, position: int, timeline: Timeline, now_ms: int, source: Source) -> int | None:
    """Return how long ago, by a clock, the first record that a reader has not passed was made, or appended.

    There is no such record at the log's end: 0. None where its time is not known. A time that is yet to come is now.
    """
    first = times_of(log, position, source) if position < log.log_end_offset else None
    if first is None:
        return 0
    at_ms = first.append_ms if timeline is APPEND_TIME else first.record_ms
    return None if at_ms == NO_TIMESTAMP else max(0, now_ms - at_ms)
