"""The files of a log that are not on disk yet, besides the tail of its active segment.

Owns the list of sealed segments to sync, and whether file names are still to be made durable. Knows nothing of offsets.
An entry stays until its sync has succeeded, so a flush that could not begin loses none.
"""

from pathlib import Path
from typing import Final, NamedTuple

from tidelog.storage import files
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment

_FILES_OF_A_SEGMENT: Final = 4
_FILES_OF_A_NAME: Final = 2


class Pending(NamedTuple):
    """What one flush syncs besides the active segment's log."""

    sealed: tuple[Segment, ...]
    names: int
    saved: tuple[int, bytes] | None  # the active segment's size, and the summary to write after the flush


class Unflushed:
    """The unflushed files of one log. Changed under the log's lock, synced without it."""

    __slots__ = ("_disk", "_folder", "_names", "_names_synced", "_new_folder", "sealed")

    def __init__(self, folder: Path, sealed: list[Segment], names: bool, disk: DiskSpace) -> None:
        """Begin with these segments; `names` says that the folder's name, or names in it, may not be on disk."""
        self._folder = folder
        self._disk = disk
        self._new_folder = names
        self.sealed = sealed
        self._names = int(names)  # how often names were added; a sync covers those added before it
        self._names_synced = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything to sync."""
        return bool(self.sealed) or self._names != self._names_synced

    @property
    def count(self) -> int:
        """About how many files and folders are to be synced."""
        return _FILES_OF_A_SEGMENT * len(self.sealed) + _FILES_OF_A_NAME * (self._names != self._names_synced)

    def add_names(self) -> None:
        """Record that files are about to be created; the next flush makes their names durable."""
        self._names += 1

    def pending(self, saved: tuple[int, bytes] | None) -> Pending:
        """Return what a flush that begins now syncs."""
        return Pending(tuple(self.sealed), self._names, saved)

    def done(self, pending: Pending) -> None:
        """Drop what has been synced; later entries stay."""
        self.forget(pending.sealed)
        if pending.names > self._names_synced:
            self._names_synced = pending.names
            self._new_folder = False

    def forget(self, segments: tuple[Segment, ...]) -> None:
        """Drop segments that were flushed or deleted."""
        dropped = set(segments)
        self.sealed = [segment for segment in self.sealed if segment not in dropped]

    def replace(self, segment: Segment, by: Segment) -> None:
        """Replace a listed segment by another."""
        self.sealed = [by if each is segment else each for each in self.sealed]

    def prepare(self, pending: Pending, epochs: LeaderEpochs) -> None:
        """Write the leader epochs, if they have no file yet, before a sync of the whole file system."""
        if pending.names > self._names_synced:
            epochs.save_first(self._disk)

    def sync(self, pending: Pending, active: files.File, epochs: LeaderEpochs) -> None:
        """Put all of it on disk. The folder's own name in its parent is synced once."""
        for segment in pending.sealed:
            segment.sync()
        active.sync()
        if pending.names > self._names_synced:
            epochs.sync(self._disk)
            files.sync_folder(self._folder)
            if self._new_folder:
                files.sync_folder(self._folder.parent)
