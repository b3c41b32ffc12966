"""So many records a second, over all tasks on a machine.

Owns a file in which tasks, which are processes, write down until when the records of all of them are spoken for. Who
writes next waits until then: the tasks that run share the rate, whichever they are and however fast each is. The clock
is the one that processes of a machine share and nobody sets.
"""

import fcntl
import struct
import tempfile
import time
from pathlib import Path
from typing import Final

_UNTIL: Final = struct.Struct("<d")
# A task takes what may be written in so long in one go: a file is locked and read in microseconds.
_SHARE_S: Final = 0.05


class Rate:
    """A rate that tasks on one machine share who know its name."""

    def __init__(self, name: str, records_per_second: float) -> None:
        self._path = Path(tempfile.gettempdir()) / f"tidelog-rate-{name}"
        self._a_record_s = 1 / records_per_second
        self._share = max(1, int(records_per_second * _SHARE_S))
        self._left = 0

    def wait(self) -> None:
        """Return when the next record may be written."""
        if self._left == 0:
            time.sleep(max(0.0, self._reserve() - time.monotonic()))
            self._left = self._share
        self._left -= 1

    def forget(self) -> None:
        """Remove what tasks on this machine share."""
        self._path.unlink(missing_ok=True)

    def _reserve(self) -> float:
        """Return when the share that is taken begins."""
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            written = file.read()
            latest = time.monotonic()
            begin = max(latest, _UNTIL.unpack(written)[0]) if len(written) == _UNTIL.size else latest
            file.truncate(0)
            file.write(_UNTIL.pack(begin + self._share * self._a_record_s))
            return begin
