"""What the logs of a data folder have in common: made once, and given to each of them.

Owns nothing itself: it names what is shared, and each of these says who may use it from which thread.
"""

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.config.topic_options import TopicConfig
from tidelog.storage.batch_rules import BatchRules
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.open_segments import SEALED_DESCRIPTORS, OpenSegments
from tidelog.storage.producer_state import ProducerMemory
from tidelog.storage.search.times_cache import TimesCache
from tidelog.storage.tally import Tally


class Shared:
    """For any thread. `identities` counts the logs of segments, as `Segment.identity` says."""

    __slots__ = (
        "_moves",
        "_rules",
        "disk",
        "identities",
        "on_begun",
        "open_append_indexes",
        "open_segments",
        "producers",
        "sampling_secret",
        "start_moves",
        "tally",
        "times",
    )

    def __init__(self, folder: Path, producer_bytes_max: int) -> None:
        """Hold nothing yet; so many bytes are for idempotent producers."""
        self.disk = DiskSpace(folder)
        self.identities = itertools.count()
        self.open_segments = OpenSegments(SEALED_DESCRIPTORS)
        self.open_append_indexes = OpenSegments(1)
        self.producers = ProducerMemory(producer_bytes_max)
        self.sampling_secret = secrets.token_bytes(16)  # with it keys are chosen that tell of a segment
        self.times = TimesCache()
        self.tally = Tally()
        # Called with a log whose active segment has got its first batch, by the thread that appends.
        self.on_begun: Callable[[Any], None] = lambda _: None
        self._rules: BatchRules | None = None
        self._moves = itertools.count(1)
        self.start_moves = 0  # another number after each

    def rules_of(self, config: TopicConfig) -> BatchRules:
        """Return what a topic's options ask of a batch: one object for partitions that are made one after another."""
        rules = self._rules
        if rules is None or rules.config is not config:
            rules = self._rules = BatchRules(config)
        return rules

    def start_moved(self) -> None:
        """Take note that a log starts elsewhere: to compare many starts is of use when this number has changed."""
        self.start_moves = next(self._moves)
