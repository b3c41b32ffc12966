"""The two times of a record, and what follows from them: its latency, and the lag of a reader in time.

Owns the arithmetic of lag in time (S56) and of latency (S57), as functions of the log: no clock is read. Knows nothing
of groups, metrics or requests. Raises NotInMemory and TakesLong as the source asks, and CorruptLog for a position in
damaged bytes.
"""

from typing import NamedTuple

from tidelog.protocol.records.batch import NO_TIMESTAMP
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, in_batch
from tidelog.storage.search.by_time import APPEND_TIME, Timeline, found_in
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source


class RecordTimes(NamedTuple):
    """The timestamp of a record and its append time."""

    offset: int
    record_ms: int  # -1 without a timestamp
    append_ms: int
    is_bound: bool  # whether `append_ms` is only an upper bound
    is_stamped: bool  # whether the timestamp is the append time (LogAppendTime)


def times_of(log: Log, offset: int, source: Source) -> RecordTimes | None:
    """Return the times of the first record at or after both an offset and the log's start, or None."""
    segments = log.segments
    offset = max(offset, log.log_start_offset)
    for segment in segments[by_offset.segment_number(segments, offset) :]:
        found = found_in(_times_in, log, segment, source, max(offset, segment.base_offset))
        if found is not None:
            return found
    return None


def _times_in(log: Log, segment: Segment, source: Source, offset: int) -> RecordTimes | None:
    while offset < segment.next_offset:
        place = by_offset.locate(segment, offset, source)
        if not place[1]:
            return None
        header, place = by_offset.with_header(segment, place, source)
        if header.record_count:
            limit_bytes = log.config.max_decompressed_bytes
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
    """Return how long after its timestamp a record was appended (S57); None without a timestamp of the producer.

    It is negative if the producer's clock is ahead, and a bound if the append time is one.
    """
    is_unknown = times.is_stamped or times.record_ms == NO_TIMESTAMP
    return None if is_unknown else times.append_ms - times.record_ms


def lag_ms(log: Log, position: int, timeline: Timeline, source: Source) -> int | None:
    """Return the lag of a reader in time: from its next record to the log's last one, by a clock (S56).

    `position` is the reader's next offset. The lag is 0 at the log's end, or if the last record is older than the next;
    None if one of the two has no timestamp.
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
    """Return how long a reader's next record has waited, by a clock: its age now.

    0 at the log's end, or for a time in the future; None if the record has no timestamp.
    """
    first = times_of(log, position, source) if position < log.log_end_offset else None
    if first is None:
        return 0
    at_ms = first.append_ms if timeline is APPEND_TIME else first.record_ms
    return None if at_ms == NO_TIMESTAMP else max(0, now_ms - at_ms)
