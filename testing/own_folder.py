"""Folders of a test's brokers and snapshots, which go with their owner, however that ends.

Owns the mark by which it shows that an owner is gone: a lock on a file in the folder, which dies with the process. Who
makes the next folder at the same place removes those. Knows nothing of what is in them.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tidelog.storage import files

PREFIX = "tidelog-"
OWNER = "owner"


class OwnFolder:
    """A new folder."""

    __slots__ = ("_lock", "path")

    def __init__(self, place: Path | None) -> None:
        """Make it in another one, None for where `tempfile` makes such."""
        place = Path(tempfile.gettempdir()) if place is None else place
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        mark = self.path / (OWNER + ".new")  # Nobody is to find it before it is locked.
        self._lock = files.FolderLock(mark)
        mark.rename(self.path / OWNER)

    def keep(self) -> None:
        """Have it stay when its owner ends."""
        (self.path / OWNER).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _sweep(place: Path) -> None:
    """Remove the folders at a place whose owners are gone."""
    for mark in place.glob(f"{PREFIX}*/{OWNER}"):
        # Another user's may not be looked at. Of one that is to stay the mark goes while it is locked.
        with suppress(OSError):
            if not files.is_locked(mark) and mark.exists():
                shutil.rmtree(mark.parent, ignore_errors=True)
