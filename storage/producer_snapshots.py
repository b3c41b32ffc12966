"""The snapshots of a log's idempotent producers. They spare a start the headers of most batches.

Owns the `.snapshot` files, the list of them, and the snapshot that waits to be written. Most are hints: a lost or
damaged one costs a start some time, nothing else. After a deletion of segments, only a snapshot names the producers of
their batches, so `secure` puts one on disk before. `producer_state` owns the bytes.

The waiting snapshot changes under the log's lock, so that it is as of an offset. The files and their list change under
`lock`, which is held while a file is written. A thread that needs both, as for a cut, takes the log's lock first.
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.storage import files, producer_state
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.layout import of_segment
from tidelog.storage.producer_state import Producers, ProducerState

SUFFIX: Final = ".snapshot"
KEPT: Final = 2
Write = Callable[[Callable[[], None]], object]  # calls a function, now or later


class ProducerSnapshots:
    """The snapshots of one log; `offsets` are those that are on disk."""

    __slots__ = ("_cuts", "_disk", "_folder", "_log_lock", "_name", "_secured", "_unsaved", "lock", "offsets")

    def __init__(self, folder: Path, name: str, log_lock: threading.Lock, disk: DiskSpace) -> None:
        """Begin without snapshots; `name` is the log's name in messages."""
        self.lock = threading.Lock()
        self.offsets: list[int] = []
        self._folder = folder
        self._name = name
        self._log_lock = log_lock
        self._disk = disk
        # An offset, the producers as of it, and the number of cuts before. Only the latest is kept.
        self._unsaved: tuple[int, Producers, int] | None = None
        self._cuts = 0
        self._secured: int | None = None  # the snapshot that `secure` put on disk

    def keep(self, offset: int, producers: Producers) -> None:
        """Keep a snapshot as of an offset, to be written soon. Call with the log's lock held."""
        self._unsaved = offset, producers, self._cuts

    def cut(self) -> None:
        """Drop the waiting snapshot, also one that is about to be written. Call with the log's lock held."""
        self._unsaved = None
        self._cuts += 1

    def write(self) -> None:
        """Write the waiting snapshot, if there is one, and remove all but the newest ones and the secured one.

        A failure costs time at the next start. For the maintenance thread: many producers take long.
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
                known = sorted([*self.offsets, offset])
                kept = {*known[-KEPT:], self._secured}
                self._remove([older for older in known if older not in kept], known)

    def secure(self, recovery_point: int) -> None:
        """Put the newest snapshot up to the recovery point on disk, and keep it until a newer one is secured.

        Call before the deletion of segments that it covers. A power cut may tear later snapshots, or take the batches
        that they tell of. A failure does not stop the deletion, which a full disk needs.
        """
        with self.lock, self._disk.optional_write("producers", self._name):
            offset = max((known for known in self.offsets if known <= recovery_point), default=None)
            if offset is not None:
                files.sync(snapshot_path(self._folder, offset))
                files.sync_folder(self._folder)
                self._secured = offset
                self._remove([older for older in self.offsets if older < offset], self.offsets)

    def _remove(self, useless: list[int], known: list[int]) -> None:
        """Remove some of the known snapshots. Call with `lock` held."""
        for offset in useless:
            files.remove(snapshot_path(self._folder, offset))
        self.offsets = [offset for offset in known if offset not in useless]

    def load(self, state: ProducerState, offsets: list[int], end_offset: int, write: Write) -> int | None:
        """Do as `load_latest` does, and remember which are left. Call with `lock` held, or before the log is shared."""
        found = load_latest(state, self._folder, offsets, end_offset, write)
        self.offsets = [known for known in offsets if found is not None and known <= found]
        # `secure` leaves no older one.
        self._secured = min(self.offsets, default=None)
        return found

    def retire(self, folder: Path) -> None:
        """Write no waiting snapshot, as the folder has another name now. Call with both locks held."""
        self.cut()
        self._folder = folder


def offset_of(name: str) -> int | None:
    """Return the offset in the name of a snapshot's file; None for other files."""
    found = of_segment(name)
    return found[0] if found and found[1] == SUFFIX else None


def snapshot_path(folder: Path, offset: int) -> Path:
    """Return the path of the snapshot of all batches before an offset."""
    return folder / f"{offset:020d}{SUFFIX}"


def load_latest(
    state: ProducerState, folder: Path, offsets: list[int], end_offset: int, write: Write
) -> int | None:
    """Restore the newest good snapshot up to `end_offset` and return its offset, or None; remove the useless ones.

    `write` removes them durably: the log may reach their offsets again with other batches.
    """
    found: int | None = None
    useless: list[Path] = []
    for offset in sorted(offsets, reverse=True):
        data = files.load(snapshot_path(folder, offset)) if offset <= end_offset else None
        if found is not None and data is not None and producer_state.fault(data) is None:
            continue  # It is of use if the newer one gets damaged.
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
    """Remove snapshots, durably. A start reads the headers of the batches instead."""
    for path in useless:
        files.remove(path)
    files.sync_folder(folder)
