"""How often record times may begin a segment: `segment.min.ms` (S59).

Owns that rule, and its warning. If times jump, each batch would begin a segment, and there would be thousands of files.
`QUICK_ROLLS` segments may follow one another at once. Then one may begin in each `segment.min.ms`, unless a record
would be kept too long otherwise.
"""

import logging
from collections.abc import Sequence
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import retention
from tidelog.storage.segment import Segment

QUICK_ROLLS: Final = 32

_log = logging.getLogger(__name__)


class QuickRolls:
    """The rule for one log; `name` is the log's name in messages."""

    __slots__ = ("_has_warned", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_warned = False

    def allows(
        self, segments: Sequence[Segment], max_timestamp: int, config: TopicConfig, now_ms: int
    ) -> bool:
        """Tell whether a batch whose largest time calls for a new segment gets one."""
        if len(segments) < QUICK_ROLLS:
            return True
        since_ms = now_ms - segments[-QUICK_ROLLS].summary.created_ms
        if since_ms >= QUICK_ROLLS * config.segment_min_ms:
            return True
        if retention.would_keep_longer(segments[-1], max_timestamp, config, now_ms):
            return True
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "record times jump log=%s segments=%d seconds=%d: not each begins a segment (segment.min.ms); raise "
                "segment.ms, or bound record times with message.timestamp.before.max.ms and .after.max.ms",
                self._name, QUICK_ROLLS, since_ms // 1000,
            )  # fmt: skip
        return False
