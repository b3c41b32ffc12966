"""When time seals the active segment.

Owns the rule of `segment.ms`, or of `max.compaction.lag.ms` where a compacted log has less of it: what counts is how
far a batch's largest timestamp lies behind the one of the segment's first batch, or, where that batch has no timestamp,
the age of the segment. A segment that nobody appends to is sealed by the clock. Up to `segment.jitter.ms`, by chance,
is taken off, so that segments are not all sealed at once.
"""

import random

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.summary import Summary

NEVER = 1 << 63


class RollTimes:
    """A batch with a timestamp above `timestamp`, or one that comes after `wall_ms`, begins a new segment."""

    __slots__ = ("_span_ms", "timestamp", "wall_ms")

    def __init__(self, config: TopicConfig, summary: Summary) -> None:
        """Choose the jitter of a segment."""
        span_ms = config.max_segment_ms
        jitter_ms = min(config.segment_jitter_ms, span_ms)
        self._span_ms = span_ms - (random.randrange(jitter_ms) if jitter_ms else 0)
        self.timestamp = self.wall_ms = NEVER
        self.begin(summary)

    def begin(self, summary: Summary) -> None:
        """Count from the first batch; without one, nothing is to be sealed."""
        if summary.batch_count and summary.first_timestamp >= 0:
            self.timestamp = summary.first_timestamp + self._span_ms
        elif summary.batch_count:
            self.wall_ms = summary.created_ms + self._span_ms

    def idle_ms(self, summary: Summary) -> int | None:
        """Return when the clock seals the segment, None while it is empty."""
        return summary.first_append_ms + self._span_ms + 1 if summary.batch_count else None
