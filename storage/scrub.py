"""The scrubber: it reads sealed segments again, at a bounded rate, to find bad blocks before readers do.

Owns the order, the rate and what was logged. It compares each block on the disk with its digest in the summary; it
bypasses the page cache and does not change it (`files.ColdFile`). A damaged segment is rebuilt as if a reader had found
it (`Log.recheck`). That happens once: the summary knows the damage then. It keeps no log or segment alive but the one
that it is reading.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from tidelog.storage import files, verification
from tidelog.storage.blocks import BLOCK_BYTES, Unverified
from tidelog.storage.errors import StorageError
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT
from tidelog.storage.troubles import Troubles

_Logs = Mapping[tuple[str, int], Log]
_BEFORE_ALL: Final = -1

_log = logging.getLogger(__name__)


class Scrubber:
    """Use it on the thread that owns the logs."""

    def __init__(self, logs: Callable[[], _Logs], bytes_per_second: int) -> None:
        """Read `bytes_per_second` in each round, from the logs that `logs` returns then."""
        self._logs = logs
        self._rate = bytes_per_second
        self._pass: Iterator[int] | None = None
        self._troubles = Troubles()

    def round(self) -> Generator[None, None, bool]:
        """Read a second's share, one block a step; return whether the last segment is done."""
        left = self._rate
        while left > 0:
            yield
            if self._pass is None:
                self._pass = self._all()
            read = next(self._pass, None)
            if read is None:
                self._pass = None
                return True
            left -= read
        return False

    def _all(self) -> Iterator[int]:
        """Read every segment that is sealed and flushed; yield the bytes of each step."""
        for key in sorted(self._logs()):
            yield 0
            base_offset = _BEFORE_ALL
            while (log := self._logs().get(key)) is not None:
                segment = _sealed_after(log, base_offset)
                if segment is None:
                    break
                base_offset = segment.base_offset
                try:
                    yield from self._segment(log, segment)
                except FileNotFoundError:
                    pass  # Retention was here.
                except (OSError, StorageError) as error:
                    if self._troubles.begin((key, base_offset), repr(error)):
                        _log.error("scrub cannot read file=%s error=%r", segment.path(LOG), str(error))
                else:
                    self._troubles.end((key, base_offset))
                del log, segment

    def _segment(self, log: Log, segment: Segment) -> Iterator[int]:
        summary = segment.summary
        if not summary.digests:
            return  # It is empty, or is verified when it is first read.
        unverified = Unverified(summary.digests, summary.log_bytes, summary.next_offset)
        file = files.ColdFile(segment.path(LOG), BLOCK_BYTES)
        for position in range(0, summary.log_bytes, BLOCK_BYTES):
            if not _is_served(log, segment):
                return
            end = min(position + BLOCK_BYTES, summary.log_bytes)
            if not unverified.verify(file, position, end, PATIENT):
                _log.error("scrub found damage at=%s@%d-%d", segment.path(LOG), position, end)
                verification.verify_again(segment, position)
                log.recheck(segment, PATIENT)
                return
            yield end - position


def _sealed_after(log: Log, base_offset: int) -> Segment | None:
    """Return the first segment after an offset that is sealed and flushed."""
    for segment in log.segments[:-1]:
        if segment.base_offset > base_offset and segment.summary.flushed and not segment.is_active:
            return segment
    return None


def _is_served(log: Log, segment: Segment) -> bool:
    return any(each is segment for each in log.segments)
