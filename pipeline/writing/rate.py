"""A rate in records a second that all tasks on a machine share.

Tasks are processes. A file holds the time until which records are reserved; a task reserves a share and waits for its
beginning. The clock is the monotonic one, which processes of a machine share.

Each task holds a shared lock (`flock`) of the file while it writes. The last task removes the file, and files that
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
# A task takes what may be written in so long in one go: a file is locked and read in microseconds.
_SHARE_S: Final = 0.05
_PREFIX: Final = "tidelog-rate-"


class Rate:
    """A rate that tasks on one machine share who know its name."""

    def __init__(self, name: str, records_per_second: float) -> None:
        self._file = _held(Path(tempfile.gettempdir()) / f"{_PREFIX}{name}")
        self._a_record_s = 1 / records_per_second
        self._share = max(1, int(records_per_second * _SHARE_S))
        self._left = 0

    def wait(self) -> None:
        """Return when the next record may be written."""
        if self._left == 0:
            time.sleep(max(0.0, self._reserve() - time.monotonic()))
            self._left = self._share
        self._left -= 1

    def close(self) -> None:
        """Release the rate. The last task waits until its share is over, since a later one starts from now."""
        if _is_last(self._file):
            time.sleep(max(0.0, self._until() - time.monotonic()))
            Path(self._file.name).unlink(missing_ok=True)
        self._file.close()
        _remove_left()

    def _reserve(self) -> float:
        """Return when the share that is taken begins."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        begin = max(self._until(), time.monotonic())
        self._file.truncate(0)
        self._file.write(_UNTIL.pack(begin + self._share * self._a_record_s))
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        return begin

    def _until(self) -> float:
        """Return until when the records of all tasks are spoken for."""
        self._file.seek(0)
        written = self._file.read(_UNTIL.size)
        return float(_UNTIL.unpack(written)[0]) if len(written) == _UNTIL.size else 0.0


def _held(path: Path) -> BinaryIO:
    """Open a file that all tasks share, and hold it."""
    while True:
        file = path.open("a+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()  # Another task, which was the last, has removed it meanwhile.


def _is_last(file: BinaryIO) -> bool:
    """Tell whether nobody else holds a file, and have nobody hold it from now on; else it is held no longer."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_left() -> None:
    """Remove the files of tasks that were killed: those that nobody holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), path.open("r+b", buffering=0) as file:
            if _is_last(file):
                path.unlink()
