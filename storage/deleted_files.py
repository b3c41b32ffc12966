"""The files of deleted segments: renamed first, and removed after a delay in which readers can finish.

Owns the order of renames and removals, and the delay. Knows nothing of why a segment is deleted. For one thread at a
time, which maintains the log.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.storage import files
from tidelog.storage.layout import SUFFIXES, SUMMARY
from tidelog.storage.segment import Segment

DELETED: Final = ".deleted"
# How many files are removed in one call: a few milliseconds.
REMOVED_AT_ONCE: Final = 100


class DeletedFiles:
    """The deleted files of one log."""

    __slots__ = ("_are_names_synced", "_due", "_unmarked", "folder")

    def __init__(self, folder: Path) -> None:
        """Begin without any."""
        self.folder = folder
        self._unmarked: deque[tuple[int, Path]] = deque()
        self._due: list[tuple[int, Path]] = []
        self._are_names_synced = True

    def __len__(self) -> int:
        """Return how many are not removed yet."""
        return len(self._unmarked) + len(self._due)

    def mark(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files of segments, to be removed at `due_ms`; readers that have them open go on.

        Files are renamed from the oldest on, after any that an earlier call could not rename. A crash must not bring
        back an older segment than one that is gone: the log would have a gap.
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
        """Return when the next file is due to be removed, None without files."""
        return min((due_ms for due_ms, _ in (*self._unmarked, *self._due)), default=None)

    def remove_due(self, now_ms: int) -> None:
        """Remove some of the files that are due, after all renames are durable (see `mark`)."""
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
        """Remove the files of segments without a delay, the newest segment first, durably.

        Before them the summaries. After a crash amid the removal, the last of these segments that is left must not
        vouch for the end of the log (`continuity.known_end`), and none may be left after one that is gone. So the
        folder is synced in between: not every file system keeps the order of removals.
        """
        newest_first = list(segments)[::-1]
        for segment in newest_first:
            files.remove(segment.path(SUMMARY))
        for segment in newest_first:
            files.sync_folder(self.folder)
            for suffix in SUFFIXES[::-1]:
                files.remove(segment.path(suffix))
        files.sync_folder(self.folder)


def _paths(segments: Iterable[Segment]) -> Iterable[Path]:
    for segment in segments:
        for suffix in SUFFIXES:
            yield segment.path(suffix)
