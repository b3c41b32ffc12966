"""A stand-in for the log of a partition that a start could not open: it refuses reads and writes until the next start.

It lets the broker serve all other partitions. It reads and writes no file in the partition's folder. What the
checkpoints say of the log stays.
"""

from pathlib import Path
from typing import Final, NoReturn

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import pins
from tidelog.storage.errors import ReadFailed
from tidelog.storage.log import Log
from tidelog.storage.recovery import Known
from tidelog.storage.segment import Segment, log_bytes
from tidelog.storage.shared import Shared

_REMEDY: Final = "repair that and restart the broker"


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
        """Refuse every read and write."""
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

    def headers(self, offset: int, *, may_recheck: bool = True) -> NoReturn:  # noqa: ARG002 callers pass it by name
        """Raise ReadFailed."""
        raise self._refusal()

    def disk_bytes(self) -> int:
        """Return how many bytes its `.log` files and the links of readers have. OSError if they cannot be listed."""
        return log_bytes(self.directory) + pins.held_bytes(self.directory)

    def _refusal(self) -> ReadFailed:
        return ReadFailed(f"{self}: the start could not open it: {self.unopened}; {_REMEDY}")

    def close(self) -> bool:
        """Leave the files as they are; return whether they were closed in order before this start."""
        return self.known.clean
