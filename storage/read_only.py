"""A partition's folder as it is now, to be read and never written: while a broker has it open, or none.

Owns how a log is known without mending it: what a summary describes is believed as in `recovery`, and what comes after
it is scanned, in memory. The log ends before a last batch that is not whole: it may be being written.
Invariant: no file is made, changed, renamed or locked, and nothing is opened for writing; what a broker deletes
meanwhile is as if it had never been there.
"""

from collections.abc import Callable
from pathlib import Path

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import append_index, files, last_entries, sidecars, verification
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.compaction import swap
from tidelog.storage.errors import OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.index_file import Data
from tidelog.storage.layout import APPEND_INDEX, LOG, SUMMARY
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.segment import Mismatch, Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT, Source
from tidelog.storage.summary import NONE, OFFSET_MAX, Summary


class _ReadOnlyAppendIndex(AppendIndex):
    """One whose file stays as it is, whatever it is found to lack."""

    def replace_file(self) -> None:
        """Leave the file alone."""


# How the file of a log is opened, of which all but the bytes may lie elsewhere.
Opener = Callable[[Path], files.File]


def opened(path: Path) -> files.File:
    """Open the file of a log that lies here."""
    return files.File(path, read_only=True)


class ReadOnlyShared(Shared):
    """What the segments of a folder share that is only read: how their files are opened, too."""

    __slots__ = ("open_file",)

    def __init__(self, folder: Path, open_file: Opener = opened) -> None:
        """Hold nothing yet."""
        super().__init__(folder, 0)
        self.open_file = open_file


class ReadOnlySegment(Segment):
    """A segment of which no file is written on the way to an answer."""

    __slots__ = ()

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files; of those of a copy some may have their names already."""
        path = super().path(suffix)
        is_there = not self.mark or files.status(path) is not None
        return path if is_there else path.with_name(path.name.removesuffix(self.mark))

    def _refuse_replaced(self) -> None:
        """Raise Mismatch if its log is gone, and an older one is there: retention would have taken that first."""
        if files.status(self.path(LOG)) is None and any(
            base < self.base_offset for base, _ in swap.present(self.folder)
        ):
            raise Mismatch(f"{self.path(LOG)}: compaction has put another in its place", self)

    def _open_file(self) -> files.File:
        assert isinstance(self.shared, ReadOnlyShared)
        return self.shared.open_file(self.path(LOG))

    def _append_index_of(self, data: Data) -> AppendIndex:
        origin, opened = self.summary.origin, self.shared.open_append_indexes
        return _ReadOnlyAppendIndex(self.path(APPEND_INDEX), self.base_offset, origin, data, opened)


class ReadOnlyLog(Log):
    """A log as it was when it was opened; it takes no appends."""

    shared: ReadOnlyShared
    opened_ms = 0

    def recheck(self, segment: Segment, source: Source) -> Segment | None:
        """Rebuild what is known of a segment from its log, in memory. For a prompt source raise TakesLong."""
        if source.prompt:
            raise TakesLong(f"{self}: a segment is to be checked again")
        if self._is_replaced(segment):
            # All of it is looked at again: what is known of others may be of before as well.
            self.segments = _segments(self.directory, self.config, self.shared, self.opened_ms)
        else:
            found = verification.recheck(segment, self.epochs.at)
            self._catch_up(found, segment)
            self.segments = tuple(found if each is segment else each for each in self.segments)
        self.active = self.segments[-1]
        if segment.base_offset < self.segments[0].base_offset:
            return None
        return self.segments[by_offset.segment_number(self.segments, segment.base_offset)]

    def _is_replaced(self, segment: Segment) -> bool:
        """Tell whether compaction has put another in the place of a segment since it was opened."""
        if dict(swap.present(self.directory)).get(segment.base_offset) != segment.mark:
            return True
        said = Summary.load(segment.path(SUMMARY))
        return said is not None and said.source_bytes != NONE and said.digests != segment.summary.digests


def load(
    folder: Path,
    topic: str,
    partition: int,
    config: TopicConfig,
    log_start_offset: int,
    now_ms: int,
    open_file: Opener = opened,
) -> ReadOnlyLog:
    """Open the log in a folder for reading. ReadFailed if there is no segment in it."""
    shared = ReadOnlyShared(folder, open_file)
    segments = _segments(folder, config, shared, now_ms)
    log = ReadOnlyLog(
        folder,
        topic,
        partition,
        config,
        shared,
        list(segments),
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        epochs=LeaderEpochs.load(folder),
    )
    log.refuse_writes("it was opened for reading only")
    log.opened_ms = now_ms
    return log


def _segments(folder: Path, config: TopicConfig, shared: ReadOnlyShared, now_ms: int) -> tuple[Segment, ...]:
    """Open the segments that are in a folder, all of one moment: compaction may put others in their places."""
    while True:
        there = swap.present(folder)
        found = [open_segment(folder, base, config, shared, now_ms, mark) for base, mark in there]
        if there == swap.present(folder) or not any(each is None for each in found):
            break
    segments: list[Segment] = [segment for segment in found if segment is not None]
    if not segments:
        raise ReadFailed(f"{folder}: no segment of a log is in it; name the folder of a broker's data")
    for segment in segments[:-1]:
        if not segment.size and segment.is_active:
            segment.become(State.SEALED)  # it stands for lost offsets, and can expire
    segments[-1].become(State.ACTIVE)
    return tuple(segments)


def open_segment(
    folder: Path, base_offset: int, config: TopicConfig, shared: ReadOnlyShared, now_ms: int, mark: str = ""
) -> ReadOnlySegment | None:
    """Return what is known of a segment, without what is being written; None if it was just deleted."""
    interval = config.index_interval_bytes
    unread = Summary(0, 0, base_offset, NONE, interval)
    segment = ReadOnlySegment(folder, base_offset, 0, unread, config.segment_index_bytes, shared)
    segment.mark = mark
    beside = sidecars.load(segment)  # first: a broker appends, and describes more then
    summary = beside.summary
    status = files.status(segment.path(LOG))
    if status is None:
        return None
    segment.size = status.size
    known = summary or beside.unknown(base_offset, status.size, min(status.modified_ms, now_ms), interval)
    segment.summary = fresh = known.only_times(base_offset)
    segment.state = State.COPY if mark else State.SEALED
    try:
        if (
            summary is None
            and status.size
            and last_entries.open_by_index(segment, status.modified_ms, now_ms, OFFSET_MAX)
        ):
            return segment
        if summary is not None and summary.log_bytes <= status.size:
            segment.believe(summary, finished=True)
            if summary.log_bytes == status.size:
                return segment
        segment.become(State.ACTIVE)  # what is scanned is in memory only: it is not to be let go of
        if segment.summary is fresh or not _is_as_described(segment):
            segment.rebuild()
        else:
            segment.scan()
        _end_before_torn(segment)
        _date(segment, status.modified_ms, now_ms)
    except (OffsetOutOfRange, FileNotFoundError):
        return None
    return segment


def _is_as_described(segment: ReadOnlySegment) -> bool:
    """Tell whether what a summary describes can be gone on from: its indexes are there, and it is of this log."""
    if segment.load_indexes() is None:
        return False
    try:
        segment.verify(segment.summary.log_bytes - 1, segment.summary.log_bytes, PATIENT)
    except Mismatch:
        return not verification.is_of_another_log(segment, segment.summary)
    return True


def _end_before_torn(segment: Segment) -> None:
    damage = segment.summary.damage
    if damage and damage[-1].next_offset == OFFSET_MAX:
        segment.size = segment.summary.forget_tail()


def _date(segment: Segment, modified_ms: int, now_ms: int) -> None:
    if segment.summary.batch_count:
        bound_ms = append_index.bound_ms(segment.summary, modified_ms, now_ms)
        segment.mend_append_index(bound_ms)
