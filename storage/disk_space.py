"""Whether the data folder's disk is full, and whether it has failed.

A full disk is logged once when a write fails, and once when it has space again, which `look` tries with a small file.
Any other error of a write or a sync may have lost earlier writes: the file `boot-id` is removed, so that the next start
verifies what was not flushed. Knows nothing of what was written.
"""

import logging
import threading
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.storage import files, layout
from tidelog.storage.errors import OnError
from tidelog.storage.troubles import Troubles

# Ends in .tmp, so that the next start removes it after a crash.
PROBE: Final = "space.tmp"
PROBE_BYTES: Final = 256 * 1024

_log = logging.getLogger(__name__)


def is_passing(error: OSError) -> bool:
    """Tell whether the operation may succeed later: the disk was full, or descriptors or memory ran out."""
    return not isinstance(error, files.SyncFailed) and error.errno in (*files.FULL, *files.SHORTAGES)


class DiskSpace:
    """The disk of a data folder. For any thread; `look` for one."""

    def __init__(self, folder: Path) -> None:
        """Assume that the disk has space."""
        self.folder = folder
        self.is_full = False
        self.is_trusted = True
        self._is_forgotten = False  # whether `boot-id` has been removed
        self._troubles = Troubles()
        self._lock = threading.Lock()

    def refused(self, error: BaseException) -> None:
        """Record the error of a failed write."""
        if not isinstance(error, OSError):
            return
        if not is_passing(error):
            self.distrust()
        elif error.errno in files.FULL and not self.is_full:
            self._turn(
                True, "disk full folder=%s free_bytes=%d: writes are refused, reads go on; free space there"
            )

    def optional_write(self, what: str, where: object) -> OnError[OSError]:
        """Return a context that logs a failed write and goes on, for files that can be rebuilt."""
        return OnError(OSError, partial(self._log_failure, what, where))

    def _log_failure(self, what: str, where: object, error: OSError) -> None:
        if not is_passing(error):  # If the disk is full, the next write that must succeed reports that.
            self.distrust()
        _log.warning("not written what=%s at=%s error=%r", what, where, str(error))

    def trust(self) -> bool:
        """Write `boot-id`, unless the disk has failed: the next start then believes unflushed data. Raise OSError.

        Return whether it was written.
        """
        with self._lock:
            if self.is_trusted:
                layout.save_boot(self.folder)
            return self.is_trusted

    def distrust(self) -> None:
        """Remove `boot-id`: the next start then verifies what was not flushed."""
        with self._lock:
            self.is_trusted = False
        self._forget()

    def _forget(self) -> None:
        """Remove `boot-id`, if the disk has failed and that was not done yet."""
        if self.is_trusted or self._is_forgotten:
            return
        boot = self.folder / layout.BOOT
        try:
            files.remove(boot)
        except OSError as error:
            if self._troubles.begin(boot, str(error)):
                _log.error(
                    "not removed file=%s error=%r: remove it before the next start, "
                    "which would otherwise believe data that the disk may have lost",
                    boot,
                    str(error),
                )
            return
        self._is_forgotten = True
        if self._troubles.end(boot):
            _log.info("removed after all file=%s", boot)

    def look(self) -> None:
        """Try whether a full disk has space again."""
        self._forget()
        if not self.is_full:
            return
        probe = self.folder / PROBE
        try:
            try:
                files.write(probe, bytes(PROBE_BYTES))
            finally:
                files.remove(probe)
        except OSError:
            return
        self._turn(False, "disk no longer full folder=%s free_bytes=%d: writes are taken again")

    def _turn(self, is_full: bool, message: str) -> None:
        with self._lock:
            if self.is_full == is_full:
                return
            self.is_full = is_full
        try:
            free_bytes = files.free_bytes(self.folder)
        except OSError:
            free_bytes = -1
        _log.warning(message, self.folder, free_bytes)
