"""The files of segments that are deleted: renamed first, removed when their readers have had time to finish.

Owns the order in which both are done, and the wait between them. Knows nothing of why a segment goes. One thread at a
time: a log's maintenance.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tidelog.storage import files
from tidelog.storage.layout import SUFFIXES
from tidelog.storage.segment import Segment

DELETED = ".deleted"
# How many files are removed at once: a few milliseconds.
REMOVED_AT_ONCE = 100


class DeletedFiles:
    """Files of one log that are renamed, or are to be, and when they are to be removed."""

    __slots__ = ("_are_names_synced", "_due", "_unmarked", "folder")

    def __init__(self, folder: Path) -> None:
        """Wait for nothing yet."""
        self.folder = folder
        self._unmarked: deque[tuple[int, Path]] = deque()
        self._due: list[tuple[int, Path]] = []
        self._are_names_synced = True

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._unmarked) + len(self._due)

    def mark(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files of segments, after those that could not be renamed; readers that have them open go on.

        Those of a newer segment go only when those of all older ones are gone: else a crash might bring these back,
        with a gap between them and the rest.
        """
        self._unmarked += [(due_ms, path) for path in _paths(segments)]
        self._rename()

    def _rename(self) -> None:
        while self._unmarked:
            due_ms, path = self._unmarked[0]
            deleted = path.with_name(path.name + DELETED)
            self._are_names_synced = False
            files.rename(path, deleted)
            self._unmarked.popleft()
            self._due.append((due_ms, deleted))

    def next_due_ms(self) -> int | None:
        """Return when the next file is to be removed, None if there is none."""
        return min((due_ms for due_ms, _ in (*self._unmarked, *self._due)), default=None)

    def remove_due(self, now_ms: int) -> None:
        """Remove some of the files whose time has come; on disk, all have been renamed by then.

        Else a crash might bring back older segments than those that are gone, with a gap between them and the rest.
        """
        self._rename()
        due = [entry for entry in self._due if entry[0] <= now_ms][:REMOVED_AT_ONCE]
        if not due:
            return
        if not self._are_names_synced:
            files.sync_folder(self.folder)
            self._are_names_synced = True
        for _, path in due:
            files.remove(path)
        removed = set(due)
        self._due = [entry for entry in self._due if entry not in removed]

    def remove_now(self, segments: Iterable[Segment]) -> None:
        """Remove the files of segments at once, the newest segment first."""
        for path in reversed(list(_paths(segments))):
            files.remove(path)


def _paths(segments: Iterable[Segment]) -> Iterable[Path]:
    for segment in segments:
        for suffix in SUFFIXES:
            yield segment.path(suffix)
