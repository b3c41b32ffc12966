"""What of a log is not on disk yet, besides the tail of its active segment.

Owns the list of sealed segments to sync and whether a name is still to be made durable. Knows nothing of offsets: what
is taken before a sync and synced after is at least what was there when it was taken.
"""

from pathlib import Path
from typing import NamedTuple

from tidelog.storage import files
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment


class Pending(NamedTuple):
    """What one flush has to sync."""

    active: files.File
    sealed: list[Segment]
    names: bool
    saved: tuple[Segment, bytes] | None  # the active segment, and its summary once this is flushed


class Unflushed:
    """Filled and taken under the log's lock, synced without it."""

    __slots__ = ("_folder", "_new_folder", "names", "sealed")

    def __init__(self, folder: Path, sealed: list[Segment], names: bool) -> None:
        """Begin with segments, and whether the folder and names in it may not be on disk."""
        self._folder = folder
        self._new_folder = names
        self.sealed = sealed
        self.names = names

    def __bool__(self) -> bool:
        """Tell whether there is anything."""
        return self.names or bool(self.sealed)

    def take(self, active: files.File, saved: tuple[Segment, bytes] | None) -> Pending:
        """Return what is pending, and expect it to be synced."""
        pending = Pending(active, self.sealed, self.names, saved)
        self.sealed = []
        self.names = False
        return pending

    def forget(self, segments: tuple[Segment, ...]) -> None:
        """Drop segments that are being deleted."""
        self.sealed = [segment for segment in self.sealed if segment not in segments]

    def replace(self, segment: Segment, by: Segment) -> None:
        """Let a segment that is to be synced have another in its place."""
        self.sealed = [by if each is segment else each for each in self.sealed]

    def sync(self, pending: Pending, epochs: LeaderEpochs) -> None:
        """Return once all of it is on disk; the folder's own name in its parent once is enough."""
        for segment in pending.sealed:
            segment.sync()
        pending.active.sync()
        if pending.names:
            epochs.sync()
            files.sync_folder(self._folder)
            if self._new_folder:
                files.sync_folder(self._folder.parent)
                self._new_folder = False
