"""The leader epoch of each offset, and the `leader-epoch-checkpoint` that remembers them.

Owns the (epoch, first offset) pairs, both increasing. They are held in a tuple that is replaced as a whole, so the
event loop may read it while retention drops from it; a change needs the log's lock. Knows nothing of what begins an
epoch. In Tidelog an unclean start does, after which records that a client has read may be gone. Every batch carries its
epoch, so a lost file is rebuilt from the log.
"""

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.storage import checkpoints, files
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.layout import LEADER_EPOCHS

NONE: Final = -1


def epochs_in(data: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, first offset) pairs of a file's bytes, both increasing. ValueError says what is wrong."""
    entries: list[tuple[int, int]] = []
    for number, words in enumerate(checkpoints.lines_in(data), checkpoints.FIRST_LINE):
        try:
            epoch, offset = map(int, words)
        except ValueError:
            raise ValueError(f"line {number} is no epoch and offset") from None
        if entries and not (entries[-1][0] < epoch and entries[-1][1] < offset):
            raise ValueError(f"line {number}: epoch and offset do not both rise")
        entries.append((epoch, offset))
    return entries


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("_in_file", "entries", "is_saved", "path")

    def __init__(self, folder: Path, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Hold epochs that are not saved."""
        self.path = folder / LEADER_EPOCHS
        self.entries = tuple(entries)
        self.is_saved = False
        self._in_file: tuple[tuple[int, int], ...] | None = None  # None if that is unknown

    @classmethod
    def load(cls, folder: Path) -> "LeaderEpochs | None":
        """Read the file; None if it is missing or broken."""
        entries = checkpoints.load(folder / LEADER_EPOCHS, epochs_in)
        if entries is None:
            return None
        epochs = cls(folder, entries)
        epochs._in_file = epochs.entries
        epochs.is_saved = True
        return epochs

    @property
    def latest(self) -> int:
        """The epoch of new records, or -1."""
        entries = self.entries
        return entries[-1][0] if entries else NONE

    @property
    def latest_in_file(self) -> int:
        """The largest epoch of the file, or -1 if that is unknown."""
        return self._in_file[-1][0] if self._in_file else NONE

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin a newer epoch at `start_offset`; forget those that start there or later, as their records are gone."""
        if epoch > self.latest:
            self.keep(start_offset)
            self.entries = (*self.entries, (epoch, start_offset))

    def keep(self, end_offset: int) -> None:
        """Forget the epochs that start at `end_offset` or after it."""
        self.entries = tuple(entry for entry in self.entries if entry[1] < end_offset)

    def drop_before(self, start_offset: int) -> None:
        """Drop epochs that end before the log's start; the oldest remaining epoch starts no earlier than the log."""
        first = max(0, bisect_right(self.entries, start_offset, key=lambda entry: entry[1]) - 1)
        left = self.entries[first:]
        if left and left[0][1] < start_offset:
            left = ((left[0][0], start_offset), *left[1:])
        self.entries = left

    def at(self, offset: int) -> int:
        """Return the epoch of an offset, or -1."""
        entries = self.entries
        number = bisect_right(entries, offset, key=lambda entry: entry[1])
        return entries[number - 1][0] if number else NONE

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch` and the offset after its end; (-1, -1) if unknown (KIP-279)."""
        entries = self.entries
        if entries and epoch == entries[-1][0]:
            return epoch, log_end_offset
        number = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if epoch < 0 or number == len(entries):
            return NONE, NONE
        known = entries[number - 1][0] if number else epoch
        return known, entries[number][1]

    def encoded(self) -> bytes:
        """Return the content of the file."""
        return checkpoints.encoded([f"{epoch} {offset}" for epoch, offset in self.entries])

    def save(self, *, durably: bool = False) -> None:
        """Write the file. Unless `durably`, the log's next flush puts it on disk; before that a crash may tear it.

        A file is overwritten only if its lines stay as they are and others follow. A torn one then reads as broken, or
        as the old or the new epochs.
        """
        data, before = self.encoded(), self._in_file
        if durably:
            files.write_atomically(self.path, data)
        elif (
            before is not None
            and self.entries[: len(before)] == before
            and len(str(len(self.entries))) == len(str(len(before)))
        ):
            files.write(self.path, data)
        else:
            # A mixture of old and new lines could pass for epochs. A count of more digits moves the lines after it.
            files.write_aside(self.path, data)
            files.put_in_place(self.path)
        self._in_file = self.entries
        self.is_saved = True

    def save_first(self, disk: DiskSpace) -> bool:
        """Write the file if it is not saved; return whether it is.

        The log does not need it: if a full disk refuses it, that is no failed flush.
        """
        if not self.is_saved:
            with disk.optional_write("epochs", self.path):
                self.save()
        return self.is_saved

    def sync(self, disk: DiskSpace) -> None:
        """Put the file on disk; write it first if it is not saved."""
        if self.save_first(disk):
            files.sync(self.path)
