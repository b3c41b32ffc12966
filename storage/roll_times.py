"""When time seals the active segment.

Owns the rule of `segment.ms` or, for a compacted log, `max.compaction.lag.ms` if that is less. It applies to the
difference between a batch's largest timestamp and that of the segment's first batch or, if that batch has no timestamp,
to the age of the segment. Without further appends the clock seals it. A random time of up to `segment.jitter.ms`
is subtracted, so that segments are not all sealed at once.
"""

import random
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.summary import Summary

NEVER: Final = 1 << 63


class RollTimes:
    """A batch with a timestamp above `timestamp`, or one that arrives after `wall_ms`, begins a new segment."""

    __slots__ = ("_span_ms", "timestamp", "wall_ms")

    def __init__(self, config: TopicConfig, summary: Summary) -> None:
        """Choose the jitter, and count from the segment's first batch."""
        span_ms = config.max_segment_ms
        jitter_ms = min(config.segment_jitter_ms, span_ms)
        self._span_ms = span_ms - (random.randrange(jitter_ms) if jitter_ms else 0)
        self.timestamp = self.wall_ms = NEVER
        self.begin(summary)

    def begin(self, summary: Summary) -> None:
        """Count from the first batch; an empty segment is never sealed."""
        if summary.batch_count and summary.first_timestamp >= 0:
            self.timestamp = summary.first_timestamp + self._span_ms
        elif summary.batch_count:
            self.wall_ms = summary.created_ms + self._span_ms

    def idle_ms(self, summary: Summary) -> int | None:
        """Return when the clock seals the segment; None while it is empty."""
        return summary.first_append_ms + self._span_ms + 1 if summary.batch_count else None
