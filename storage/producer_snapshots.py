"""The snapshots of a log's idempotent producers, so that a start need not read the headers of all its batches.

Owns the `.snapshot` files, the list of them, and the snapshot that waits to be written. They are hints: a lost or
damaged one costs a start some time, nothing else. Their bytes are those of `producer_state`.

What waits is changed under the log's lock, so that it is as of an offset, and is written by whoever has the time for
it. The files and the list of them are changed under `lock`, which is held while a file is written; where both are held,
as by a cut, the log's lock is taken first.
"""

import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from tidelog.storage import files, producer_state
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.producer_state import Producers, ProducerState

SUFFIX = ".snapshot"
KEPT = 2
Write = Callable[[Callable[[], None]], object]  # does it, now or later


class ProducerSnapshots:
    """The snapshots of one log; `offsets` are those that are on disk."""

    __slots__ = ("_cuts", "_disk", "_folder", "_log_lock", "_name", "_unsaved", "lock", "offsets")

    def __init__(self, folder: Path, name: str, log_lock: threading.Lock, disk: DiskSpace) -> None:
        """Know of none yet; `name` is what messages call the log."""
        self.lock = threading.Lock()
        self.offsets: list[int] = []
        self._folder = folder
        self._name = name
        self._log_lock = log_lock
        self._disk = disk
        # Of the producers as of an offset and a number of cuts; the latest is enough.
        self._unsaved: tuple[int, Producers, int] | None = None
        self._cuts = 0

    def keep(self, offset: int, producers: Producers) -> None:
        """Have a snapshot as of an offset written soon. Call with the log's lock held."""
        self._unsaved = offset, producers, self._cuts

    def cut(self) -> None:
        """Write nothing of what was known before a cut. Call with the log's lock held."""
        self._unsaved = None
        self._cuts += 1

    def write(self) -> None:
        """Write the snapshot that is waiting to be, if there is one, and drop all but the newest ones.

        A failure costs time at the next start. Maintenance thread: of many producers it takes long.
        """
        if self._unsaved is None:
            return
        with self._log_lock:
            unsaved, self._unsaved = self._unsaved, None
        with self.lock:
            if unsaved is None or unsaved[0] in self.offsets or unsaved[2] != self._cuts:
                return
            offset, producers, _ = unsaved
            with self._disk.optional_write("producers", self._name):
                files.write(snapshot_path(self._folder, offset), producer_state.encode(producers))
                self.offsets = drop_older(self._folder, [*self.offsets, offset], KEPT)

    def load(self, state: ProducerState, offsets: list[int], end_offset: int, write: Write) -> int | None:
        """Restore the newest good one of these as `load_latest` does. Call with `lock` held, or as it is made."""
        found = load_latest(state, self._folder, offsets, end_offset, write)
        self.offsets = [known for known in offsets if found is not None and known <= found]
        return found

    def retire(self, folder: Path) -> None:
        """Write nothing any more; the folder has another name. Call with both locks held."""
        self.cut()
        self._folder = folder


def offset_of(name: str) -> int | None:
    """Return the offset that a file's name says it is a snapshot of; None for other files."""
    stem, _, suffix = name.partition(".")
    return int(stem) if "." + suffix == SUFFIX and len(stem) == 20 and stem.isdecimal() else None


def snapshot_path(folder: Path, offset: int) -> Path:
    """Return the path of the snapshot of all batches before an offset."""
    return folder / f"{offset:020d}{SUFFIX}"


def load_latest(
    state: ProducerState, folder: Path, offsets: list[int], end_offset: int, write: Write
) -> int | None:
    """Restore the newest good snapshot up to `end_offset` and return its offset, or None; remove those of no use.

    They are gone durably once `write` has done that: the log may reach their offsets again with other batches.
    """
    found: int | None = None
    useless: list[Path] = []
    for offset in sorted(offsets, reverse=True):
        data = files.load(snapshot_path(folder, offset)) if offset <= end_offset else None
        if found is not None and data is not None and producer_state.fault(data) is None:
            continue  # It stands in for a newer one that is damaged later.
        if found is None and data is not None and state.restore(data):
            found = offset
        else:
            useless.append(snapshot_path(folder, offset))
    if found is None:
        state.clear()
    if useless:
        write(partial(remove, folder, useless))
    return found


def remove(folder: Path, useless: list[Path]) -> None:
    """Remove snapshots, durably: a start makes what they held of the headers of the batches."""
    for path in useless:
        files.remove(path)
    files.sync_folder(folder)


def drop_older(folder: Path, offsets: list[int], keep: int) -> list[int]:
    """Remove all snapshots but the newest `keep`; return the offsets of those that are left."""
    newest = sorted(offsets)
    for offset in islice(newest, max(0, len(newest) - keep)):
        files.remove(snapshot_path(folder, offset))
    return newest[-keep:]
