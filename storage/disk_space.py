"""Whether the disk of the data folder is full, said once when it begins and once when it is over, and whether it fails.

Owns these states, and what tells the next start of the second (`boot-id`). Full begins with an error that says so,
whatever was being written; it is over when a file of some size can be written again, which is tried while it lasts. Any
other error of a write, or of a sync, is for good: what was written before may be gone, so the next start takes nothing
for granted. Knows nothing of what was refused.
"""

import logging
import threading
from functools import partial
from pathlib import Path

from tidelog.storage import files, layout
from tidelog.storage.errors import OnError
from tidelog.storage.troubles import Troubles

# Ends in .tmp: a start removes what a crash left of it.
PROBE = "space.tmp"
PROBE_BYTES = 256 * 1024

_log = logging.getLogger(__name__)


def is_passing(error: OSError) -> bool:
    """Tell whether what a disk was asked for may succeed later: there was no space, or no descriptor."""
    return not isinstance(error, files.SyncFailed) and error.errno in (*files.FULL, *files.SHORTAGES)


class DiskSpace:
    """The disk of a data folder. For any thread; `look` for one."""

    def __init__(self, folder: Path) -> None:
        """Take it that there is some space."""
        self.folder = folder
        self.is_full = False
        self.is_trusted = True
        self._is_forgotten = False  # what tells the next start that nothing was refused
        self._troubles = Troubles()
        self._lock = threading.Lock()

    def refused(self, error: BaseException) -> None:
        """Take note of an error of a write, whatever it says."""
        if not isinstance(error, OSError):
            return
        if not is_passing(error):
            self.distrust()
        elif error.errno in files.FULL and not self.is_full:
            self._turn(
                True, "disk full folder=%s free_bytes=%d: writes are refused, reads go on; free space there"
            )

    def may_refuse(self, what: str, where: object) -> OnError[OSError]:
        """Go on where something that can be made again could not be written, and say so in the log."""
        return OnError(OSError, partial(self._go_on_without, what, where))

    def _go_on_without(self, what: str, where: object, error: OSError) -> None:
        if not is_passing(error):  # Where only space is missing, what has to be written will tell.
            self.distrust()
        _log.warning("not written what=%s at=%s error=%r", what, where, str(error))

    def trust(self) -> bool:
        """Let the next start take what was written for granted, if this may; tell whether it does. OSError."""
        with self._lock:
            if self.is_trusted:
                layout.save_boot(self.folder)
            return self.is_trusted

    def distrust(self) -> None:
        """Let the next start take nothing that was written for granted."""
        with self._lock:
            self.is_trusted = False
        self._forget()

    def _forget(self) -> None:
        """Have no start find what says that memory is to be believed; tried until it is done."""
        if self.is_trusted or self._is_forgotten:
            return
        boot = self.folder / layout.BOOT
        try:
            files.remove(boot)
        except OSError as error:
            if self._troubles.begin(boot, str(error)):
                _log.error(
                    "not removed file=%s error=%r: remove it before the next start, "
                    "which takes for granted what the disk may have lost",
                    boot,
                    str(error),
                )
            return
        self._is_forgotten = True
        if self._troubles.end(boot):
            _log.info("removed after all file=%s", boot)

    def look(self) -> None:
        """See whether it is over."""
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
