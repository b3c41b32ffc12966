"""Which segments of a log have expired, and when the next one will have.

Owns the rules of `retention.ms` and `retention.bytes`: arithmetic over what is known of the segments. Knows nothing of
logs and locks, or of what becomes of a segment that has expired. Segments go oldest first, up to the first that has not
expired. Unless `retention.clock=record`, a record from the future keeps nothing: a segment is never younger than its
last append.
"""

from collections.abc import Sequence

from tidelog.config.options import TopicConfig
from tidelog.storage.segment import Segment

UNLIMITED = -1


def expired(segments: Sequence[Segment], log_start_offset: int, config: TopicConfig, now_ms: int) -> int:
    """Count the oldest segments that are to go.

    As in Kafka, each rule looks at what the one before it leaves: first what lies before the log's start goes, then
    what is too much, then what is too old.
    """
    number = _before_start(segments, log_start_offset)
    number += _surplus(segments[number:], config.retention_bytes)
    return number + _too_old(segments[number:], config, now_ms)


def next_due_ms(oldest: Segment, config: TopicConfig, now_ms: int) -> int | None:
    """Return when the oldest segment will have expired by time, None for never.

    Of an empty log, when a record that comes now would have: nobody has to look before.
    """
    if config.retention_ms == UNLIMITED:
        return None
    return (
        (now_ms if _has_nothing_to_expire(oldest) else stamp_ms(oldest, config.retention_clock))
        + config.retention_ms
        + 1
    )


def stamp_ms(segment: Segment, clock: str) -> int:
    """Return when a segment's age begins, by a clock of `retention.clock`; without timestamps it is the last append.

    One that stands for records that were lost (`recovery`) is as old as that discovery.
    """
    summary = segment.summary
    if not summary.batch_count:
        return summary.created_ms
    if clock == "append" or summary.max_timestamp <= 0:
        return summary.last_append_ms
    if clock == "record":
        return summary.max_timestamp
    return min(summary.max_timestamp, summary.last_append_ms)


def would_keep_longer(segment: Segment, timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Tell whether a segment would expire later, by more than `segment.min.ms`, with a record of a time in it."""
    if config.retention_ms == UNLIMITED:
        return False
    # What lies in the future expires by no one's clock before what is appended now.
    before_ms = min(stamp_ms(segment, config.retention_clock), now_ms)
    after_ms = now_ms if config.retention_clock == "append" else min(max(timestamp, before_ms), now_ms)
    return after_ms - before_ms > config.segment_min_ms and now_ms - after_ms <= config.retention_ms


def _has_nothing_to_expire(segment: Segment) -> bool:
    return segment.is_active and not segment.size


def _before_start(segments: Sequence[Segment], log_start_offset: int) -> int:
    """Count the segments that end at or before the log's start; the active one never does."""
    number = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        number += 1
    return number


def _surplus(segments: Sequence[Segment], retention_bytes: int) -> int:
    """Count the oldest segments that can go while at least `retention_bytes` stay; never the active one."""
    number = 0
    if retention_bytes != UNLIMITED:
        surplus = sum(segment.size for segment in segments) - retention_bytes
        for segment in segments[:-1]:
            surplus -= segment.size
            if surplus < 0:
                break
            number += 1
    return number


def _too_old(segments: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    """Count the segments that are too old, up to the first that is not."""
    number = 0
    if config.retention_ms != UNLIMITED:
        for segment in segments:
            age_ms = now_ms - stamp_ms(segment, config.retention_clock)
            if _has_nothing_to_expire(segment) or age_ms <= config.retention_ms:
                break
            number += 1
    return number
