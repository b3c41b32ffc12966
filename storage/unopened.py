"""The log of a partition that a start could not open: it takes no writes and gives no reads until the next start.

Owns what stands in for such a log, so that the broker serves all others. No file in its folder is read or written;
what the checkpoints say of it stays.
"""

from pathlib import Path
from typing import NoReturn

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import pins
from tidelog.storage.errors import ReadFailed
from tidelog.storage.log import Log
from tidelog.storage.recovery import Known
from tidelog.storage.segment import Segment, log_bytes
from tidelog.storage.shared import Shared

_REMEDY = "mend that and restart the broker"


class UnopenedLog(Log):
    """A log without segments on disk; `unopened` says why, `known` is what the data folder remembers of it."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
        shared: Shared,
        known: Known,
        why: str,
        now_ms: int,
    ) -> None:
        """Refuse all that is asked of the log."""
        end = max(known.recovery_point, known.log_start_offset)
        segment = Segment.begin(folder, end, config, shared, now_ms)
        super().__init__(
            folder,
            topic,
            partition,
            config,
            shared,
            [segment],
            log_start_offset=known.log_start_offset,
            recovery_point=known.recovery_point,
        )
        self.known = known
        self.unopened = why
        self.refuse_writes(f"the start could not open it: {why}; {_REMEDY}")

    def read(self, *_: object) -> NoReturn:
        """Raise ReadFailed."""
        raise self._refusal()

    def headers(self, offset: int, *, may_recheck: bool = True) -> NoReturn:  # noqa: ARG002 asked by this name, too
        """Raise ReadFailed."""
        raise self._refusal()

    def disk_bytes(self) -> int:
        """Return how many bytes its `.log` files and readers' links have. OSError if they cannot be listed."""
        return log_bytes(self.directory) + pins.held_bytes(self.directory)

    def _refusal(self) -> ReadFailed:
        return ReadFailed(f"{self}: the start could not open it: {self.unopened}; {_REMEDY}")

    def close(self) -> bool:
        """Leave the files as they are; return whether a clean start may take them as it would have this time."""
        return self.known.clean
