"""The objects that all logs of a data folder share.

Each of them documents which threads may use it.
"""

import itertools
import os
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
    """The shared objects. For any thread."""

    __slots__ = (
        "_moves",
        "_rules",
        "disk",
        "identities",
        "on_first_batch",
        "open_append_indexes",
        "open_segments",
        "producers",
        "sampling_secret",
        "start_moves",
        "tally",
        "times",
    )

    def __init__(self, folder: Path, producer_bytes_max: int) -> None:
        """Begin empty; idempotent producers may take `producer_bytes_max` of memory."""
        self.disk = DiskSpace(folder)
        self.identities = itertools.count()  # for `Segment.identity`
        self.open_segments = OpenSegments(SEALED_DESCRIPTORS)
        self.open_append_indexes = OpenSegments(1)
        self.producers = ProducerMemory(producer_bytes_max)
        self.sampling_secret = os.urandom(16)  # the hash key of `KeySample`
        self.times = TimesCache()
        self.tally = Tally()
        # Called by the thread that appends, with a log whose active segment has got its first batch.
        self.on_first_batch: Callable[[Any], None] = lambda _: None
        self._rules: BatchRules | None = None
        self._moves = itertools.count(1)
        self.start_moves = 0  # changes whenever the start of a log moves

    def rules_of(self, config: TopicConfig) -> BatchRules:
        """Return the rules for a topic's batches; partitions that are opened in a row share one object."""
        rules = self._rules
        if rules is None or rules.config is not config:
            rules = self._rules = BatchRules(config)
        return rules

    def start_moved(self) -> None:
        """Record that a log's start has moved: a reader of many starts compares `start_moves` first."""
        self.start_moves = next(self._moves)
