"""Which segments have expired, and what becomes of their files.

Owns the rules of `retention.ms` and `retention.bytes`, and the wait between renaming a file and removing it. Segments
go oldest first, up to the first that has not expired. A record from the future keeps nothing: a segment is never
younger than its last append.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.storage import files
from tidelog.storage.segment import SUFFIXES, Segment

if TYPE_CHECKING:
    from tidelog.storage.log import Log

DELETED = ".deleted"
# How many files are removed at once: a few milliseconds.
REMOVED_AT_ONCE = 100
UNLIMITED = -1


def count(log: "Log", now_ms: int) -> int:
    """Count the oldest segments that are to go. Call with the log's lock held.

    As in Kafka, each rule looks at what the one before it leaves: first what lies before the log's start goes, then
    what is too much, then what has expired.
    """
    segments = log.segments
    number = _before_start(segments, log.log_start_offset)
    number += _surplus(segments[number:], log.config.retention_bytes)
    return number + _expired(segments[number:], log.config.retention_ms, now_ms)


def next_due_ms(log: "Log", now_ms: int) -> int | None:
    """Return when the oldest segment will have expired by time, None for never.

    Of an empty log, when a record that comes now would have: nobody has to look before.
    """
    oldest = log.segments[0]
    if log.config.retention_ms == UNLIMITED:
        return None
    return (now_ms if _has_nothing_to_expire(oldest) else stamp_ms(oldest)) + log.config.retention_ms + 1


def stamp_ms(segment: Segment) -> int:
    """Return when a segment's age begins: its largest timestamp, but not later than its last append.

    One that stands for records that were lost (`recovery`) is as old as that discovery.
    """
    summary = segment.summary
    if not summary.batch_count:
        return summary.created_ms
    if summary.max_timestamp <= 0:
        return summary.last_append_ms
    return min(summary.max_timestamp, summary.last_append_ms)


def _has_nothing_to_expire(segment: Segment) -> bool:
    return segment.is_active and not segment.size


def _before_start(segments: tuple[Segment, ...], log_start_offset: int) -> int:
    """Count the segments that end at or before the log's start; the active one never does."""
    number = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        number += 1
    return number


def _surplus(segments: tuple[Segment, ...], retention_bytes: int) -> int:
    """Count the oldest segments that can go while at least `retention_bytes` stay; never the active one."""
    number = 0
    if retention_bytes != UNLIMITED:
        surplus = sum(segment.size for segment in segments) - retention_bytes
        for segment in segments[:-1]:
            surplus -= segment.size
            if surplus < 0:
                break
            number += 1
    return number


def _expired(segments: tuple[Segment, ...], retention_ms: int, now_ms: int) -> int:
    """Count the segments that are too old, up to the first that is not."""
    number = 0
    if retention_ms != UNLIMITED:
        for segment in segments:
            if _has_nothing_to_expire(segment) or now_ms - stamp_ms(segment) <= retention_ms:
                break
            number += 1
    return number


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
        """Rename the files of segments, behind those that could not be renamed; readers that have them open go on.

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
