"""What of a log is not on disk yet, besides the tail of its active segment.

Owns the list of sealed segments to sync and whether a name is still to be made durable. Knows nothing of offsets: what
is listed before a sync is at least what was there then. Nothing leaves the list before its sync has succeeded, so a
flush that could not begin leaves all of it for the next.
"""

from pathlib import Path
from typing import NamedTuple

from tidelog.storage import files
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment

_FILES_OF_A_SEGMENT = 4
_FILES_OF_A_NAME = 2


class Pending(NamedTuple):
    """What one flush has to sync besides the active segment's log."""

    sealed: tuple[Segment, ...]
    names: int
    saved: tuple[int, bytes] | None  # of the active segment: its size, and its summary once this is flushed


class Unflushed:
    """Changed under the log's lock, synced without it."""

    __slots__ = ("_disk", "_folder", "_names", "_names_synced", "_new_folder", "sealed")

    def __init__(self, folder: Path, sealed: list[Segment], names: bool, disk: DiskSpace) -> None:
        """Begin with segments, and whether the folder and names in it may not be on disk."""
        self._folder = folder
        self._disk = disk
        self._new_folder = names
        self.sealed = sealed
        self._names = int(names)  # how often names were added; a sync covers those added before it
        self._names_synced = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything."""
        return bool(self.sealed) or self._names != self._names_synced

    @property
    def count(self) -> int:
        """How many files and folders are to be synced, about."""
        return _FILES_OF_A_SEGMENT * len(self.sealed) + _FILES_OF_A_NAME * (self._names != self._names_synced)

    def add_names(self) -> None:
        """Note that files are about to be made whose names must be on disk."""
        self._names += 1

    def pending(self, saved: tuple[int, bytes] | None) -> Pending:
        """Return what a flush that begins now has to sync."""
        return Pending(tuple(self.sealed), self._names, saved)

    def done(self, pending: Pending) -> None:
        """Drop what has been synced; what has come since stays."""
        self.forget(pending.sealed)
        if pending.names > self._names_synced:
            self._names_synced = pending.names
            self._new_folder = False

    def forget(self, segments: tuple[Segment, ...]) -> None:
        """Drop segments: they are on disk, or are being deleted, and with them their open files."""
        dropped = set(segments)
        self.sealed = [segment for segment in self.sealed if segment not in dropped]

    def replace(self, segment: Segment, by: Segment) -> None:
        """Let a segment that is to be synced have another in its place."""
        self.sealed = [by if each is segment else each for each in self.sealed]

    def prepare(self, pending: Pending, epochs: LeaderEpochs) -> None:
        """Write what is not written yet, for a sync of everything to put on disk."""
        if pending.names > self._names_synced:
            epochs.save_first(self._disk)

    def sync(self, pending: Pending, active: files.File, epochs: LeaderEpochs) -> None:
        """Return once all of it is on disk; the folder's own name in its parent once is enough."""
        for segment in pending.sealed:
            segment.sync()
        active.sync()
        if pending.names > self._names_synced:
            epochs.sync(self._disk)
            files.sync_folder(self._folder)
            if self._new_folder:
                files.sync_folder(self._folder.parent)
