"""The files of a segment: their names, and that they are opened on first use and let go of where too many are open.

Owns the names, the log's file, and what becomes of files that are not there any more, or may be another segment's.
Knows nothing of what is in them (`segment`).
"""

from pathlib import Path

from tidelog.storage import files
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.blocks import Digests
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.shared import Shared
from tidelog.storage.summary import SUFFIX
from tidelog.storage.time_index import TimeIndex

LOG, INDEX, TIME_INDEX, APPEND_INDEX, SUMMARY = ".log", ".index", ".timeindex", ".appendindex", SUFFIX
SUFFIXES = (LOG, INDEX, TIME_INDEX, APPEND_INDEX, SUMMARY)


def log_bytes(folder: Path) -> int:
    """Return how many bytes the `.log` files in a partition's folder have; OSError where it cannot be listed."""
    logs = (
        files.status(folder / entry.name)
        for entry in files.list_folder(folder)
        if entry.name.endswith(LOG) and not entry.is_folder
    )
    return sum(each.size for each in logs if each is not None)


class SegmentFiles:
    """The files of one segment, whose names begin with its base offset and end with its `mark`.

    The mark is empty but for a copy that compaction has not put in its place yet. One that `is_replaced` gives no more
    than the files that it has open: who finds it so looks again, as after any Mismatch.
    """

    __slots__ = (
        "__weakref__", "_append_index", "_digests", "_file", "_offset_index", "_time_index", "base_offset",
        "folder", "is_active", "is_replaced", "mark", "shared", "size",
    )  # fmt: skip

    def __init__(self, folder: Path, base_offset: int, size: int, shared: Shared) -> None:
        """Name files that exist; nothing is opened."""
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.shared = shared
        self.mark = ""
        self.is_active = self.is_replaced = False
        self._file: files.File | None = None
        self._append_index: AppendIndex | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._digests: Digests | None = None

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files."""
        return self.folder / self.name(suffix)

    def name(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return f"{self.base_offset:020d}{suffix}{self.mark}"

    @property
    def file(self) -> files.File:
        """The log file, opened on first use; what is read from it past `read` and `slice` was not verified."""
        file = self._file
        return self._open() if file is None else file

    def _open(self) -> files.File:
        try:
            opened = self._open_file()
        except FileNotFoundError:
            self._refuse_replaced()
            raise OffsetOutOfRange(f"{self.path(LOG)} was just deleted by retention") from None
        self._refuse_replaced()
        with self.shared.open_segments.lock:
            # There is one only, whoever comes at once: it knows where the next append goes.
            if self._file is None:
                opened.size = self.size
                self._file = opened
                if not self.is_active:
                    self.shared.open_segments.note(self)
            return self._file

    def _open_file(self) -> files.File:
        return files.File(self.path(LOG))

    def _refuse_replaced(self) -> None:
        """Raise Mismatch if files of its names may be those of another: to be asked once they are open."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what can be opened again; readers keep what they hold."""
        with self.shared.open_segments.lock:
            self.let_go()
            if self._append_index is not None:
                self._append_index.let_go()

    def let_go(self) -> None:
        """Do as `release` does, where the lock of `open_segments` is held; not while its files change their names."""
        if not self.is_active and not self.mark:
            self._file = self._offset_index = self._time_index = self._append_index = self._digests = None

    def close(self) -> None:
        """Let go of the log's file, which has been flushed, even while active: no more is appended."""
        with self.shared.open_segments.lock:
            self._file = None
            if self._append_index is not None:
                self._append_index.let_go()

    def sync(self) -> None:
        """Return once the files of a sealed segment are on disk; one that was deleted meanwhile need not be."""
        file = self._file
        if file is not None:
            file.sync()
        else:
            files.sync(self.path(LOG))
        for suffix in (INDEX, TIME_INDEX, APPEND_INDEX):
            files.sync(self.path(suffix))
