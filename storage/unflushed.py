"""What of a log is not on disk yet, besides the tail of its active segment.

Owns the list of sealed segments to sync and whether a name is still to be made durable. Knows nothing of offsets: what
is listed before a sync is at least what was there then. Nothing leaves the list before its sync has succeeded, so a
flush that could not begin leaves all of it for the next.
"""

from pathlib import Path
from typing import NamedTuple

from tidelog.storage import files
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment


class Pending(NamedTuple):
    """What one flush has to sync."""

    active: files.File
    sealed: tuple[Segment, ...]
    names: int
    saved: bytes | None  # the active segment's summary, once this is flushed


class Unflushed:
    """Changed under the log's lock, synced without it."""

    __slots__ = ("_folder", "_names", "_names_synced", "_new_folder", "sealed")

    def __init__(self, folder: Path, sealed: list[Segment], names: bool) -> None:
        """Begin with segments, and whether the folder and names in it may not be on disk."""
        self._folder = folder
        self._new_folder = names
        self.sealed = sealed
        self._names = int(names)  # how often names were added; a sync covers those added before it
        self._names_synced = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything."""
        return bool(self.sealed) or self._names != self._names_synced

    def add_names(self) -> None:
        """Note that files are about to be made whose names must be on disk."""
        self._names += 1

    def pending(self, active: files.File, saved: bytes | None) -> Pending:
        """Return what a flush that begins now has to sync."""
        return Pending(active, tuple(self.sealed), self._names, saved)

    def done(self, pending: Pending) -> None:
        """Drop what has been synced; what has come since stays."""
        synced = set(pending.sealed)
        self.sealed = [segment for segment in self.sealed if segment not in synced]
        self._names_synced = pending.names

    def forget(self, segments: tuple[Segment, ...]) -> None:
        """Drop segments that are being deleted, and with them their open files."""
        self.sealed = [segment for segment in self.sealed if segment not in segments]

    def replace(self, segment: Segment, by: Segment) -> None:
        """Let a segment that is to be synced have another in its place."""
        self.sealed = [by if each is segment else each for each in self.sealed]

    def sync(self, pending: Pending, epochs: LeaderEpochs) -> None:
        """Return once all of it is on disk; the folder's own name in its parent once is enough."""
        for segment in pending.sealed:
            segment.sync()
        pending.active.sync()
        if pending.names != self._names_synced:
            epochs.sync()
            files.sync_folder(self._folder)
            if self._new_folder:
                files.sync_folder(self._folder.parent)
                self._new_folder = False
