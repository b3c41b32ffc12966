"""What a pass over a log is to do, and when one is due: arithmetic over what is known of its segments.

Owns the bounds of what may be compacted, the rule by which a log is due, and which segments become one. A segment's
`summary.cleaned_to` says how far it is clean: nothing is left in it that a record before that offset has replaced.
Knows nothing of bytes, threads or locks.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.summary import NONE
from tidelog.storage.walk import INT32_MAX

# Kafka's default of `max.compaction.lag.ms`: no limit.
UNLIMITED_MS: Final = (1 << 63) - 1


class Plan(NamedTuple):
    """A pass: the segments whose keys are looked at lie in [start, end), and `segments` are copied."""

    segments: tuple[Segment, ...]
    start: int
    end: int
    urgency: float


def clean_to(segment: Segment) -> int:
    """Return the offset from which on a segment is to be compared with records: what older ones replace is gone."""
    return max(segment.summary.cleaned_to, segment.base_offset)


def compactable(log: Log, now_ms: int) -> list[Segment]:
    """Return the segments that may be compacted now: sealed, and old enough (`min.compaction.lag.ms`).

    Damage stays where it is, so that what is left around it can be read.
    """
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    sealed = log.segments[:-1]
    if log.config.min_compaction_lag_ms:
        sealed = tuple(takewhile(lambda each: newest_ms(each) <= youngest_ms, sealed))
    return [each for each in sealed if each.next_offset > log.log_start_offset]


def newest_ms(segment: Segment) -> int:
    """Return when a segment's newest record was made; without timestamps, when it was appended."""
    summary = segment.summary
    return summary.max_timestamp if summary.max_timestamp > 0 else summary.last_append_ms


def is_dirty(segment: Segment) -> bool:
    """Tell whether a segment has never been in a pass."""
    return segment.summary.cleaned_to < segment.next_offset


def due(log: Log, now_ms: int) -> Plan | None:
    """Return the pass that is due; None where there is none."""
    if not log.config.compacts or log.health.failure is not None:
        return None
    segments = compactable(log, now_ms)
    dirty = [each for each in segments if is_dirty(each)]
    ratio = dirty_ratio(segments)
    lag_ms = overdue_ms(dirty, log.config, now_ms)
    if ratio <= log.config.min_cleanable_dirty_ratio and lag_ms <= 0:
        segments = [each for each in segments if has_expired(each, now_ms)]
    chosen = tuple(each for each in segments if not each.summary.damage)
    if not chosen:
        return None
    start = min(map(clean_to, chosen))
    return Plan(chosen, start, segments[-1].next_offset, ratio + max(lag_ms, 0))


def has_expired(segment: Segment, now_ms: int) -> bool:
    """Tell whether a segment may have tombstones or markers to lose that no pass has looked at since they may go."""
    summary = segment.summary
    return NONE < summary.horizon_ms <= now_ms and summary.cleaned_ms < summary.horizon_ms


def dirty_ratio(segments: Sequence[Segment]) -> float:
    """Return which share of the bytes of segments was in no pass yet."""
    size = sum(each.size for each in segments)
    return sum(each.size for each in segments if is_dirty(each)) / size if size else 0.0


def overdue_ms(dirty: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    """Return for how long records have waited for a pass beyond `max.compaction.lag.ms`; 0 or less if none has."""
    if config.max_compaction_lag_ms == UNLIMITED_MS or not dirty:
        return 0
    return max(now_ms - config.max_compaction_lag_ms - oldest_ms(each) for each in dirty)


def oldest_ms(segment: Segment) -> int:
    """Return when a segment's first batch was made; without timestamps, when it was appended."""
    summary = segment.summary
    return summary.first_timestamp if summary.first_timestamp > 0 else summary.first_append_ms


def next_due_ms(log: Log, now_ms: int) -> int | None:
    """Return when a pass will be due by time alone, if nothing is appended; None for never."""
    config = log.config
    if not config.compacts:
        return None
    sealed = log.segments[:-1]
    at = [each.summary.horizon_ms for each in sealed if each.summary.horizon_ms > now_ms]
    if config.max_compaction_lag_ms != UNLIMITED_MS:
        at += [oldest_ms(each) + config.max_compaction_lag_ms + 1 for each in sealed if is_dirty(each)]
    if config.min_compaction_lag_ms:
        at += [newest_ms(each) + config.min_compaction_lag_ms for each in sealed if is_dirty(each)]
    return min((each for each in at if each > now_ms), default=None)


def groups(
    chosen: Sequence[Segment], segments: Sequence[Segment], config: TopicConfig
) -> list[list[Segment]]:
    """Return what becomes one segment each: chosen ones that follow one another, as far as one could hold them all."""
    found: list[list[Segment]] = []
    number_of = {segment: number for number, segment in enumerate(segments)}
    for segment in chosen:
        last = found[-1] if found else []
        if last and number_of[segment] == number_of[last[-1]] + 1 and _fit([*last, segment], config):
            last.append(segment)
        else:
            found.append([segment])
    return found


def _fit(group: list[Segment], config: TopicConfig) -> bool:
    entries = [(each.summary.offset_entries * 8, each.summary.time_entries * 12) for each in group]
    return (
        sum(each.size for each in group) <= config.segment_bytes
        and max(map(sum, zip(*entries, strict=True))) <= config.segment_index_bytes
        and group[-1].next_offset - 1 - group[0].base_offset <= INT32_MAX
    )
