"""A limit in records a second that all tasks on a machine share.

Tasks are processes. A file holds the time up to which records are reserved. A task reserves a share and waits for the
start of its share. The clock is the monotonic one, which is the same for all processes of a machine.

Each task holds a shared lock (`flock`) on the file while it writes. The last task removes the file, and files that
killed tasks have left. A second lock (`lockf`, independent of the first) guards each read and write of the file.
"""

import fcntl
import os
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

_UNTIL: Final = struct.Struct("<d")
# A task reserves the records of so much time at once.
_SHARE_S: Final = 0.05
_PREFIX: Final = "tidelog-rate-"


class Rate:
    """A rate that all tasks on one machine with the same name share."""

    def __init__(self, name: str, records_per_second: float) -> None:
        self._file = _held(Path(tempfile.gettempdir()) / f"{_PREFIX}{name}")
        self._a_record_s = 1 / records_per_second
        self._share = max(1, int(records_per_second * _SHARE_S))
        self._left = 0

    def wait(self) -> None:
        """Wait until the next record may be written."""
        if self._left == 0:
            time.sleep(max(0.0, self._reserve() - time.monotonic()))
            self._left = self._share
        self._left -= 1

    def close(self) -> None:
        """Release the rate. The last task waits until its share is over, because a later one would start from now."""
        if _is_last(self._file):
            time.sleep(max(0.0, self._until() - time.monotonic()))
            Path(self._file.name).unlink(missing_ok=True)
        self._file.close()
        _remove_left()

    def _reserve(self) -> float:
        """Reserve a share, and return its start."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        begin = max(self._until(), time.monotonic())
        self._file.truncate(0)
        self._file.write(_UNTIL.pack(begin + self._share * self._a_record_s))
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        return begin

    def _until(self) -> float:
        """Return the time up to which records are reserved."""
        self._file.seek(0)
        written = self._file.read(_UNTIL.size)
        return float(_UNTIL.unpack(written)[0]) if len(written) == _UNTIL.size else 0.0


def _held(path: Path) -> BinaryIO:
    """Open the file that all tasks share, and take the shared lock."""
    while True:
        file = path.open("a+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()  # The last other task has just removed it.


def _is_last(file: BinaryIO) -> bool:
    """Try to replace the shared lock by an exclusive one; return whether that worked. If not, no lock is held."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_left() -> None:
    """Remove the files of killed tasks, which no process has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), path.open("r+b", buffering=0) as file:
            if _is_last(file):
                path.unlink()
