"""Flushes many logs at once.

`fdatasync` of ten files costs ten commits of the file system's journal, `syncfs` one. With it a flush of many logs, or
of many sealed segments and new names, takes little longer than that of one file. But `syncfs` writes all other dirty
pages too, so it is used only while there are few of them per file to sync. Knows logs and the file system; nothing of
who waits for a flush.
"""

import logging
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from tidelog.storage import files
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogDeleted, StorageError, without_frames
from tidelog.storage.log import Log
from tidelog.storage.troubles import Troubles

# From this many files on, one `syncfs` is cheaper.
FILES_MIN: Final = 4
# How much dirty memory `syncfs` may have to write: a disk takes 100 ms for it at most. With many files it may be more:
# to sync a file takes about as long as to write FILE_BYTES.
DIRTY_BYTES_MAX: Final = 64 << 20
FILE_BYTES: Final = 1 << 20
_UNKNOWN_BYTES: Final = 1 << 63
# How long the amount of dirty memory is believed: reading it takes a tenth of a sync.
LOOK_EVERY_S: Final = 0.02

_log = logging.getLogger(__name__)


class Trust:
    """Whether a successful `syncfs` proves that the data is on disk. Any thread.

    It does if the file system reports errors, and until a call has failed: that one may have lost data of any log, and
    the next would succeed without it. The sync of a log's own files still reports the loss.
    """

    __slots__ = ("_disk", "is_lost", "reports_errors")

    def __init__(self, disk: DiskSpace) -> None:
        self._disk = disk
        self.is_lost = False
        self.reports_errors: bool | None = None  # None until it was looked up

    def lose(self) -> None:
        """Trust `syncfs` no more; the next start verifies what was written, too."""
        self.is_lost = True
        self._disk.distrust()


class GroupSync:
    """Flushes the logs of a folder, together if that is cheaper.

    For one thread, as the system reports a failure once per descriptor. The descriptors stay open, so a lack of others
    stops no flush.
    """

    def __init__(self, folder: Path, trust: Trust | None = None) -> None:
        """Use a folder's file system; logs elsewhere are flushed one by one. A folder's instances share `trust`."""
        self._folder = folder
        self._file_system = files.FileSystem(folder)
        self._dirty_memory = files.DirtyMemory()
        self._dirty_bytes = 0
        self._looked_s = 0.0
        self._troubles = Troubles()
        self.trust = trust or Trust(DiskSpace(folder))

    def flush(self, logs: Collection[Log]) -> dict[Log, StorageError]:
        """Put everything appended before the call on disk; return the errors of the logs that failed."""
        failures: dict[Log, StorageError] = {}
        done: Collection[Log] = ()
        if len(logs) >= FILES_MIN:
            done = self.flush_together(logs)
        else:
            for log in logs:
                if log.durability.unflushed.sealed:  # This log may have many files to sync.
                    done = self.flush_together(logs)
                    break
        for log in logs:
            if log not in done:
                try:
                    log.flush()
                except StorageError as error:
                    failures[log] = without_frames(error)
                    if isinstance(error, LogDeleted):
                        self._troubles.end(str(log))
                    elif self._troubles.begin(str(log), str(error)):
                        _log.error("flush failed log=%s error=%r", log, str(error))
                    continue
            if self._troubles.any and self._troubles.end(str(log)):
                _log.info("flush works again log=%s", log)
        return failures

    def flush_together(self, logs: Collection[Log]) -> Collection[Log]:
        """Flush the logs on this file system by one `syncfs` if that is cheaper; return the logs that were flushed."""
        here = self.reached(logs)
        if not self.is_cheaper_than(sum(log.durability.files_to_flush(log) for log in here)):
            return ()
        # `flush_mark` writes what must be on disk, before the sync; `flushed` records the result after it.
        marks = {log: mark for log in here if (mark := log.durability.flush_mark(log)) is not None}
        if not self.sync():
            return ()
        return {log for log, mark in marks.items() if log.durability.flushed(log, mark)}

    def reached(self, logs: Iterable[Log]) -> list[Log]:
        """Return the logs on this file system: a partition's folder may be on another one."""
        return [log for log in logs if log.device == self._file_system.device]

    def is_cheaper_than(self, count: int) -> bool:
        """Tell whether one `syncfs` takes less time than syncs of `count` files and folders, and proves as much."""
        if count < FILES_MIN or self.trust.is_lost or not self._proves_anything():
            return False
        return not self._is_much_dirty(max(DIRTY_BYTES_MAX, count * FILE_BYTES))

    def _proves_anything(self) -> bool:
        """Tell whether `syncfs` reports lost writes on this file system."""
        if self.trust.reports_errors is None:
            try:
                self.trust.reports_errors = self._file_system.reports_errors()
            except (OSError, ImportError):
                self.trust.reports_errors = False
            if not self.trust.reports_errors:
                _log.info(
                    "each log is synced by itself, as syncfs reports no errors on this file system folder=%s",
                    self._folder,
                )
        return self.trust.reports_errors

    def sync_in_place_of(self, count: int) -> bool:
        """Sync the file system if that is cheaper than syncs of `count` files and folders; tell whether it was done."""
        return self.is_cheaper_than(count) and self.sync()

    def sync(self) -> bool:
        """Sync the file system; return False if that failed, and each file has to be synced by itself."""
        try:
            self._file_system.sync()
        except (OSError, ImportError) as error:
            # The error does not name the file, which may not even be ours; syncs of the files will tell.
            self.trust.lose()
            _log.warning(
                "file system not synced, from now on each log by itself folder=%s error=%r",
                self._folder,
                str(error),
            )
            return False
        return True

    def _is_much_dirty(self, most_bytes: int) -> bool:
        """Tell whether `syncfs` would have to write more than this; True if that is unknown."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self._looked_s = now_s
            try:
                self._dirty_bytes = self._dirty_memory.bytes()
            except (OSError, ValueError) as error:
                self._dirty_bytes = _UNKNOWN_BYTES
                if self._troubles.begin("dirty", str(error)):
                    _log.warning("dirty memory is unknown error=%r: logs are flushed one by one", str(error))
            else:
                if self._troubles.any:
                    self._troubles.end("dirty")
        return self._dirty_bytes > most_bytes
