"""Putting many logs on disk at once.

`fdatasync` of ten files costs ten commits of the file system's journal, and `syncfs` one: that is how a commit of many
partitions, or of many sealed segments and new names, stays almost as short as that of one file. But `syncfs` writes
whatever else is dirty, so it is for when there is little of that for each file that is to be synced. Knows logs and the
file system; nothing of who waits for what.
"""

import logging
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from tidelog.storage import files
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogDeleted, StorageError, without_frames
from tidelog.storage.log import Log
from tidelog.storage.troubles import Troubles

# From so many files on one sync of all is cheaper.
FILES_MIN = 4
# What may be dirty in all: a disk takes some 100 ms for it at most, once, and then it is clean. Of many files more may
# be: to sync one takes about as long as to write so much.
DIRTY_BYTES_MAX = 64 << 20
FILE_BYTES = 1 << 20
_NOT_TOLD = 1 << 63
# How much is dirty changes little in that time, and asking takes a tenth of a sync.
LOOK_EVERY_S = 0.02

_log = logging.getLogger(__name__)


class Trust:
    """Whether a sync of everything proves anything: where the file system tells, and until one has failed. Any thread.

    What that one gave up may be of any log, and the next would succeed without it. Each log's own sync still tells.
    """

    __slots__ = ("_disk", "is_lost", "tells_errors")

    def __init__(self, disk: DiskSpace) -> None:
        self._disk = disk
        self.is_lost = False
        self.tells_errors: bool | None = None  # None until somebody has asked

    def lose(self) -> None:
        """Believe no other sync of everything; nor is the next start to take for granted what was written."""
        self.is_lost = True
        self._disk.distrust()


class GroupSync:
    """Flushes logs in a folder, together where that is cheaper. For one thread: of a failure the system tells one only.

    It holds open what it looks at, so that a lack of descriptors costs speed and no flush.
    """

    def __init__(self, folder: Path, trust: Trust | None = None) -> None:
        """Use the file system of a folder; logs elsewhere are flushed one by one. All of a folder share their trust."""
        self._folder = folder
        self._file_system = files.FileSystem(folder)
        self._dirty_memory = files.DirtyMemory()
        self._dirty_bytes = 0
        self._looked_s = 0.0
        self._troubles = Troubles()
        self.trust = trust or Trust(DiskSpace(folder))

    def flush(self, logs: Collection[Log]) -> dict[Log, StorageError]:
        """Return once everything appended before the call is on disk, with the logs that failed, and why."""
        failures: dict[Log, StorageError] = {}
        done: Collection[Log] = ()
        if len(logs) >= FILES_MIN:
            done = self.flush_together(logs)
        else:
            for log in logs:
                if log.durability.unflushed.sealed:  # Few logs may have many files.
                    done = self.flush_together(logs)
                    break
        for log in logs:
            if log not in done:
                try:
                    log.durability.flush()
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
        """Flush those that are on this file system by one sync of it, if they have enough to sync; return which."""
        here = self.reached(logs)
        if not self.is_cheaper_than(sum(log.durability.files_to_flush for log in here)):
            return ()
        # What they have to write is written before the sync, and what it has put on disk is noted after it.
        marks = {log: mark for log in here if (mark := log.durability.flush_mark()) is not None}
        if not self.sync():
            return ()
        return {log for log, mark in marks.items() if log.durability.flushed(mark)}

    def reached(self, logs: Iterable[Log]) -> list[Log]:
        """Return those that `sync` puts on disk: a partition may be on a file system of its own."""
        return [log for log in logs if log.device == self._file_system.device]

    def is_cheaper_than(self, count: int) -> bool:
        """Tell whether one sync of everything takes less than so many of files and folders, and proves as much."""
        if count < FILES_MIN or self.trust.is_lost or not self._proves_anything():
            return False
        return not self._is_much_dirty(max(DIRTY_BYTES_MAX, count * FILE_BYTES))

    def _proves_anything(self) -> bool:
        """Tell whether a sync of this file system says what was lost; nothing was lost yet where it does not."""
        if self.trust.tells_errors is None:
            try:
                self.trust.tells_errors = self._file_system.tells_errors()
            except (OSError, ImportError):
                self.trust.tells_errors = False
            if not self.trust.tells_errors:
                _log.info(
                    "each log is synced by itself, its file system does not tell of all folder=%s",
                    self._folder,
                )
        return self.trust.tells_errors

    def sync_in_place_of(self, count: int) -> bool:
        """Put everything on disk, if that takes less than syncs of so many files and folders; tell whether it is."""
        return self.is_cheaper_than(count) and self.sync()

    def sync(self) -> bool:
        """Return once everything written so far is on disk; False where that failed, and each file has to say."""
        try:
            self._file_system.sync()
        except (OSError, ImportError) as error:
            # Whose write failed it does not say, maybe nobody's here; their own syncs do.
            self.trust.lose()
            _log.warning(
                "file system not synced, from now on each log by itself folder=%s error=%r",
                self._folder,
                str(error),
            )
            return False
        return True

    def _is_much_dirty(self, most_bytes: int) -> bool:
        """Tell whether a sync of everything would take long; where nobody can tell, it would."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self._looked_s = now_s
            try:
                self._dirty_bytes = self._dirty_memory.bytes()
            except (OSError, ValueError) as error:
                self._dirty_bytes = _NOT_TOLD
                if self._troubles.begin("dirty", str(error)):
                    _log.warning("not told what is dirty error=%r: logs are flushed one by one", str(error))
            else:
                if self._troubles.any:
                    self._troubles.end("dirty")
        return self._dirty_bytes > most_bytes
