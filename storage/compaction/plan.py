"""Decides when a pass over a log is due, and which segments it copies: arithmetic over their summaries and samples.

Owns the bounds of what may be compacted, the rules by which a log is due, and the grouping of segments. A segment's
`summary.cleaned_to` says how far it is clean: it has no record that a record before that offset has replaced. Knows
nothing of bytes, threads or locks.
"""

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.segment import Segment
from tidelog.storage.summary import NONE
from tidelog.storage.time_index import TimeIndex
from tidelog.storage.walk import INT32_MAX

# Kafka's default of `max.compaction.lag.ms`: no limit.
UNLIMITED_MS: Final = (1 << 63) - 1
# The smallest share of garbage in the sealed bytes that makes a pass by yield due.
GARBAGE_MIN: Final = 0.08
# A pass by yield stops at this share of the garbage that made it due.
REST: Final = 0.5
# A segment of at most `segment.bytes` divided by this is merged with a neighbour that is copied.
SMALL: Final = 16


class Plan(NamedTuple):
    """A pass: it copies the candidates in `must` and, if `by_yield`, those with enough garbage."""

    candidates: tuple[Segment, ...]
    must: frozenset[Segment]
    by_yield: bool
    end: int  # records from this offset on replace nothing
    urgency: float
    now_ms: int  # of the pass too, so that both agree on what has expired


def clean_to(segment: Segment) -> int:
    """Return the offset from which on records may replace records of a segment."""
    return max(segment.summary.cleaned_to, segment.base_offset)


def compactable(log: Log, now_ms: int) -> list[Segment]:
    """Return the sealed segments that are old enough to be compacted (`min.compaction.lag.ms`), damaged ones too."""
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    sealed = log.segments[:-1]
    if log.config.min_compaction_lag_ms:
        sealed = tuple(takewhile(lambda each: newest_ms(each) <= youngest_ms, sealed))
    return [each for each in sealed if each.next_offset > log.log_start_offset]


def newest_ms(segment: Segment) -> int:
    """Return the largest timestamp of a segment; without timestamps, its last append time."""
    summary = segment.summary
    return summary.max_timestamp if summary.max_timestamp > 0 else summary.last_append_ms


def is_dirty(segment: Segment) -> bool:
    """Tell whether a segment has records that no pass has mapped yet."""
    return segment.summary.cleaned_to < segment.next_offset


def due(log: Log, now_ms: int, *, by_yield: bool = True) -> Plan | None:
    """Return the pass that is due, or None. Without `by_yield`, Kafka's rule decides."""
    return None if log.health.failure is not None else wanted(log, now_ms, by_yield=by_yield)


def wanted(log: Log, now_ms: int, *, by_yield: bool = True) -> Plan | None:
    """Do as `due`, also for a log that takes no writes."""
    if not log.config.compacts:
        return None
    segments = compactable(log, now_ms)
    candidates = tuple(each for each in segments if not each.summary.damage)
    # Damaged segments are not compacted, so they must not make a pass due.
    lag_ms = overdue_ms([each for each in candidates if is_dirty(each)], log.config, now_ms)
    share, most = dirty_ratio(candidates), log.config.min_cleanable_dirty_ratio
    if by_yield:
        share, most = garbage_ratio(candidates), max(most, GARBAGE_MIN)
    must = expired_with_older(candidates, now_ms)
    if lag_ms > 0 or (share > most and not by_yield):
        must = frozenset(candidates)
    if not candidates or not (must or share > most):
        return None
    is_choice = by_yield and share > most and lag_ms <= 0
    return Plan(candidates, must, is_choice, segments[-1].next_offset, share + max(lag_ms, 0), now_ms)


def everything(log: Log, now_ms: int) -> Plan | None:
    """Return a pass over all segments that may be compacted, whatever it yields; None if all are clean."""
    if not log.config.compacts or log.health.failure is not None:
        return None
    segments = compactable(log, now_ms)
    end = segments[-1].next_offset if segments else 0
    candidates = tuple(each for each in segments if not each.summary.damage)
    if all(each.summary.cleaned_to >= end and not has_expired(each, now_ms) for each in candidates):
        return None
    return Plan(candidates, frozenset(candidates), False, end, 0.0, now_ms)


def expired_with_older(candidates: Sequence[Segment], now_ms: int) -> frozenset[Segment]:
    """Return the segments with expired tombstones, and the older ones in which they may still replace records."""
    expired = [each for each in candidates if has_expired(each, now_ms)]
    if not expired:
        return frozenset()
    newest = expired[-1]
    older = [
        each
        for each in candidates
        if each.base_offset < newest.base_offset and each.summary.cleaned_to < newest.next_offset
    ]
    return frozenset((*older, *expired))


def has_expired(segment: Segment, now_ms: int) -> bool:
    """Tell whether a segment may have expired tombstones or markers."""
    return NONE < segment.summary.horizon_ms <= now_ms


def garbage_ratio(segments: Sequence[Segment]) -> float:
    """Return the share of bytes that may be garbage, by samples if there are any.

    A record replaces at most one other. So the garbage of segments without a sample is at most what was appended since
    these were clean.
    """
    known = sum(each.sample.garbage_bytes for each in segments if each.sample is not None)
    unknown = [each for each in segments if each.sample is None]
    since = min((clean_to(each) for each in unknown), default=0)
    new = sum(each.size for each in segments if each.next_offset > since) if unknown else 0
    return (known + new) / max(sum(each.size for each in segments), 1)


def worth_it(segments: Sequence[Segment], config: TopicConfig) -> set[Segment]:
    """Choose the segments that free most for what is copied, by estimates of their garbage (S100).

    None if the garbage is below the limit; otherwise as many as bring it down to half of the limit.
    """
    most = max(config.min_cleanable_dirty_ratio, GARBAGE_MIN) * sum(each.size for each in segments)
    garbage = {each: each.sample.garbage_bytes for each in segments if each.sample is not None}
    left = sum(garbage.values())
    chosen: set[Segment] = set()
    if left <= most:
        return chosen
    for each in sorted(garbage, key=lambda each: garbage[each] / max(each.size, 1), reverse=True):
        if left <= REST * most or not garbage[each]:
            break
        chosen.add(each)
        left -= garbage[each]
    small_bytes = config.segment_bytes // SMALL
    for one, other in (*pairwise(segments), *pairwise(reversed(segments))):
        if one in chosen and other.size <= small_bytes:
            chosen.add(other)
    return chosen


def dirty_ratio(segments: Sequence[Segment]) -> float:
    """Return the share of bytes in dirty segments."""
    size = sum(each.size for each in segments)
    return sum(each.size for each in segments if is_dirty(each)) / size if size else 0.0


def overdue_ms(dirty: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    """Return by how much records have exceeded `max.compaction.lag.ms`; 0 or less if none has."""
    if config.max_compaction_lag_ms == UNLIMITED_MS or not dirty:
        return 0
    return max(now_ms - config.max_compaction_lag_ms - oldest_ms(each) for each in dirty)


def oldest_ms(segment: Segment) -> int:
    """Return the largest timestamp of a segment's first batch; without timestamps, its first append time."""
    summary = segment.summary
    return summary.first_timestamp if summary.first_timestamp > 0 else summary.first_append_ms


def next_due_ms(log: Log, now_ms: int) -> int | None:
    """Return when a pass will be due if nothing more is appended; None for never."""
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
    """Group the chosen segments: neighbours are copied into one segment, if it can hold them all."""
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
    entries = [
        (
            each.summary.offset_entries * OffsetIndex.entry_bytes,
            each.summary.time_entries * TimeIndex.entry_bytes,
        )
        for each in group
    ]
    return (
        sum(each.size for each in group) <= config.segment_bytes
        and max(map(sum, zip(*entries, strict=True))) <= config.segment_index_bytes
        and group[-1].next_offset - 1 - group[0].base_offset <= INT32_MAX
    )
