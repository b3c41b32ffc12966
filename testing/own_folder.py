"""The folders of brokers and snapshots of tests, which are removed even if their process is killed.

A lock on a file in the folder shows that its owner is alive; it ends with the process. When another folder is made at
the same place, the folders without an owner are removed.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tidelog.storage import files

PREFIX = "tidelog-"
OWNER = "owner"


class OwnFolder:
    """A new folder with an owner."""

    __slots__ = ("_lock", "path")

    def __init__(self, place: Path | None) -> None:
        """Make it in a folder, None for the default of `tempfile`."""
        place = Path(tempfile.gettempdir()) if place is None else place
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        mark = self.path / (OWNER + ".new")  # renamed after it is locked, so that no sweep takes it
        self._lock = files.FolderLock(mark)
        mark.rename(self.path / OWNER)

    def keep(self) -> None:
        """Keep it when its owner ends."""
        (self.path / OWNER).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _sweep(place: Path) -> None:
    """Remove folders whose owner has ended."""
    for mark in place.glob(f"{PREFIX}*/{OWNER}"):
        # Another user's folder cannot be read. The mark of a kept one is removed while it is locked.
        with suppress(OSError):
            if not files.is_locked(mark) and mark.exists():
                shutil.rmtree(mark.parent, ignore_errors=True)
