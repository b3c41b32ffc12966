"""Which segments of a log have expired, and when the next one will expire.

Owns the rules of `retention.ms` and `retention.bytes`: arithmetic over the summaries of segments. Knows nothing of logs
and locks, or of what happens to an expired segment.

Segments expire oldest first, up to the first that has not expired. Unless `retention.clock=record`, a timestamp in the
future does not delay that: age counts from the last append at the latest. Records may already be too old when they
arrive; so that they can be read, a segment stays for `late_ms` after its last append, or for `retention.ms` if that is
shorter. With `cleanup.policy=compact` alone nothing expires, except segments before the log's start.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.segment import Segment

UNLIMITED: Final = -1
BEFORE_START, TOO_MUCH, TOO_OLD = _RULES = ("log start", "retention.bytes", "retention.ms")


def limit_ms(config: TopicConfig) -> int:
    """Return the age above which segments expire, UNLIMITED for none."""
    return config.retention_ms if config.deletes else UNLIMITED


def expired(segments: Sequence[Segment], log_start_offset: int, config: TopicConfig, now_ms: int) -> int:
    """Count the oldest segments that have expired.

    As in Kafka, each rule looks at the segments that the one before it leaves: first the log's start, then the size,
    then the age.
    """
    return sum(_expired(segments, log_start_offset, config, now_ms))


def _expired(
    segments: Sequence[Segment], log_start_offset: int, config: TopicConfig, now_ms: int
) -> tuple[int, int, int]:
    """Count the segments that expire by each of `_RULES`."""
    before = _before_start(segments, log_start_offset)
    surplus = _surplus(segments[before:], config.retention_bytes if config.deletes else UNLIMITED)
    return before, surplus, _too_old(segments[before + surplus :], config, now_ms)


def next_due_ms(oldest: Segment, config: TopicConfig) -> int | None:
    """Return when the oldest segment will expire by age; None for never, or while the log is empty."""
    if limit_ms(config) == UNLIMITED or _has_nothing_to_expire(oldest):
        return None
    return max(_aged_ms(oldest, config), _read_until_ms(oldest, config))


def is_late(segment: Segment, config: TopicConfig) -> bool:
    """Tell whether a segment stays longer than its age allows because its records were old when they arrived."""
    return _read_until_ms(segment, config) > _aged_ms(segment, config)


def _aged_ms(segment: Segment, config: TopicConfig) -> int:
    return stamp(segment, config.retention_clock).time_ms + config.retention_ms + 1


def _read_until_ms(segment: Segment, config: TopicConfig) -> int:
    return segment.summary.last_append_ms + min(config.retention_ms, config.late_ms)


class Stamp(NamedTuple):
    """When the age of a segment begins, and by which time: `record` (its largest timestamp), `append` or `created`."""

    time_ms: int
    by: str


def stamp(segment: Segment, clock: str) -> Stamp:
    """Return when a segment's age begins, by a clock of `retention.clock`; without timestamps, at the last append.

    The age of an empty segment begins with its creation: if it stands for lost records, with their discovery.
    """
    summary = segment.summary
    if not summary.batch_count:
        return Stamp(summary.created_ms, "created")
    by_append = Stamp(summary.last_append_ms, "append")
    if clock == "append" or summary.max_timestamp <= 0:
        return by_append
    by_record = Stamp(summary.max_timestamp, "record")
    return by_record if clock == "record" else min(by_record, by_append, key=lambda each: each.time_ms)


def is_bound(segment: Segment, begins: Stamp) -> bool:
    """Tell whether a stamp is only an upper bound, as the time itself is unknown."""
    if begins.by == "created":
        return bool(segment.summary.is_created_bound)
    if begins.by != "append":
        return False
    index = None if segment.is_known_by_index else segment.append_index
    return index is None or index.entry(len(index) - 1).is_bound


def rests_on_index(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    """Tell whether a segment has expired only by its unverified time index (`last_entries`)."""
    by_append_ms = segment.summary.last_append_ms + limit_ms(config)
    return (
        segment.is_known_by_index
        and stamp(segment, config.retention_clock).by == "record"
        and by_append_ms >= now_ms
    )


class Verdict(NamedTuple):
    """What retention decides about a segment: the rule by which it has expired, or None, and when it will expire.

    `due_ms` is when it expires by age if nothing more is appended; None for never, or while it is empty. `held_by` is
    the base offset of an older segment that keeps it after its own time.
    """

    segment: Segment
    stamp: Stamp
    rule: str | None
    due_ms: int | None
    held_by: int | None


def verdicts(
    segments: Sequence[Segment], log_start_offset: int, config: TopicConfig, now_ms: int
) -> list[Verdict]:
    """Return the verdict for each segment, oldest first."""
    counts = _expired(segments, log_start_offset, config, now_ms)
    rules = [rule for rule, count in zip(_RULES, counts, strict=True) for _ in range(count)]
    found: list[Verdict] = []
    held_ms, held_by = 0, None
    for number, segment in enumerate(segments):
        begins = stamp(segment, config.retention_clock)
        rule = rules[number] if number < len(rules) else None
        if rule is not None:
            found.append(Verdict(segment, begins, rule, now_ms, None))
            continue
        due_ms = own_ms = next_due_ms(segment, config)
        if own_ms is not None:
            due_ms = max(own_ms, held_ms)
            if own_ms >= held_ms:
                held_ms, held_by = own_ms, segment.base_offset
        is_held = due_ms is not None and held_by != segment.base_offset
        found.append(Verdict(segment, begins, None, due_ms, held_by if is_held else None))
    return found


def would_keep_longer(segment: Segment, timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Tell whether a record with this timestamp would delay a segment's expiry by more than `segment.min.ms`."""
    if limit_ms(config) == UNLIMITED:
        return False
    # A timestamp in the future counts as now.
    before_ms = min(stamp(segment, config.retention_clock).time_ms, now_ms)
    after_ms = now_ms if config.retention_clock == "append" else min(max(timestamp, before_ms), now_ms)
    return after_ms - before_ms > config.segment_min_ms and now_ms - after_ms <= limit_ms(config)


def _has_nothing_to_expire(segment: Segment) -> bool:
    return segment.is_active and not segment.size


def _before_start(segments: Sequence[Segment], log_start_offset: int) -> int:
    """Count the sealed segments that end at or before the log's start."""
    number = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        number += 1
    return number


def _surplus(segments: Sequence[Segment], retention_bytes: int) -> int:
    """Count the oldest sealed segments that can go so that at least `retention_bytes` stay."""
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
    """Count the oldest segments that are too old, up to the first that is not."""
    number = 0
    for segment in segments:
        due_ms = next_due_ms(segment, config)
        if due_ms is None or now_ms < due_ms:
            break
        number += 1
    return number
