"""Opens a partition's folder for reading, whether or not a broker has it open.

A summary is believed as in `recovery`, and the log after it is scanned in memory. The log ends before an incomplete
last batch, which a broker may be writing. Segments that a broker deletes during the load are left out. Invariant: no
file is created, changed, renamed, locked or opened for writing.
"""

from collections.abc import Callable
from pathlib import Path

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import append_index, files, last_entries, sidecars, verification
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.compaction import swap
from tidelog.storage.errors import Mismatch, OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.index_file import Data
from tidelog.storage.layout import APPEND_INDEX, LOG, SUMMARY
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.segment import Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT, Source
from tidelog.storage.summary import NONE, OFFSET_MAX, Summary


class _ReadOnlyAppendIndex(AppendIndex):
    """An append index that is completed in memory only."""

    def replace_file(self) -> None:
        """Do nothing."""


# Opens the log file of a segment; the pipeline passes one that reads the bytes from elsewhere.
Opener = Callable[[Path], files.File]


def opened(path: Path) -> files.File:
    """Open a local log file."""
    return files.File(path, read_only=True)


class ReadOnlyShared(Shared):
    """The shared objects of a read-only log, and how its log files are opened."""

    __slots__ = ("open_file",)

    def __init__(self, folder: Path, open_file: Opener = opened) -> None:
        """Open log files with `open_file`."""
        super().__init__(folder, 0)
        self.open_file = open_file


class ReadOnlySegment(Segment):
    """A segment whose reads write no file."""

    __slots__ = ()

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files; a broker may have renamed some files of a copy already."""
        path = super().path(suffix)
        is_there = not self.mark or files.status(path) is not None
        return path if is_there else path.with_name(path.name.removesuffix(self.mark))

    def _refuse_replaced(self) -> None:
        """Raise Mismatch if its log is gone but an older one is left: retention would have deleted that first."""
        if files.status(self.path(LOG)) is None and any(
            base < self.base_offset for base, _ in swap.present(self.folder)
        ):
            raise Mismatch(f"{self.path(LOG)}: compaction has replaced it", self)

    def _open_file(self) -> files.File:
        assert isinstance(self.shared, ReadOnlyShared)
        return self.shared.open_file(self.path(LOG))

    def _append_index_of(self, data: Data) -> AppendIndex:
        origin, bound = self.summary.origin, self.shared.open_append_indexes
        return _ReadOnlyAppendIndex(self.path(APPEND_INDEX), self.base_offset, origin, data, bound)


class ReadOnlyLog(Log):
    """A log as of when it was opened; it takes no appends."""

    opened_ms = 0

    def recheck(self, segment: Segment, source: Source) -> Segment | None:
        """Rebuild a segment's indexes and summary in memory; return its replacement. Raise TakesLong if prompt."""
        if source.prompt:
            raise TakesLong(f"{self}: a segment has to be checked again")
        if self._is_replaced(segment):
            # Load all segments again: others may have been replaced too.
            assert isinstance(self.shared, ReadOnlyShared)
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
        """Tell whether compaction has replaced a segment since it was opened."""
        if dict(swap.present(self.directory)).get(segment.base_offset) != segment.mark:
            return True
        now = Summary.load(segment.path(SUMMARY))
        return now is not None and now.source_bytes != NONE and now.digests != segment.summary.digests


def load(
    folder: Path,
    topic: str,
    partition: int,
    config: TopicConfig,
    log_start_offset: int,
    now_ms: int,
    open_file: Opener = opened,
) -> ReadOnlyLog:
    """Open the log in a folder for reading. Raise ReadFailed if it has no segment."""
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
    """Open the segments in a folder, as of one moment: compaction may replace some during the load."""
    while True:
        present = swap.present(folder)
        found = [open_segment(folder, base, config, shared, now_ms, mark) for base, mark in present]
        if present == swap.present(folder) or not any(each is None for each in found):
            break
    segments: list[Segment] = [segment for segment in found if segment is not None]
    if not segments:
        raise ReadFailed(f"{folder}: holds no segment of a log; name a folder of a broker's data")
    for segment in segments[:-1]:
        if not segment.size and segment.is_active:
            segment.become(State.SEALED)  # it stands for lost offsets, and can expire
    segments[-1].become(State.ACTIVE)
    return tuple(segments)


def open_segment(
    folder: Path, base_offset: int, config: TopicConfig, shared: ReadOnlyShared, now_ms: int, mark: str = ""
) -> ReadOnlySegment | None:
    """Open a segment without the batch that is being written; return None if it was just deleted."""
    interval = config.index_interval_bytes
    unread = Summary(0, 0, base_offset, NONE, interval)
    state = State.COPY if mark else State.SEALED
    segment = ReadOnlySegment(folder, base_offset, 0, unread, config.segment_index_bytes, shared, state)
    segment.mark = mark
    beside = sidecars.load(segment)  # first: a broker appends, and describes more then
    summary = beside.summary
    status = files.status(segment.path(LOG))
    if status is None:
        return None
    segment.size = status.size
    known = summary or beside.unknown(base_offset, status.size, min(status.modified_ms, now_ms), interval)
    segment.summary = fresh = known.only_times(base_offset)
    try:
        if (
            summary is None
            and status.size
            and last_entries.open_by_index(segment, status.modified_ms, now_ms, OFFSET_MAX)
        ):
            return segment
        if summary is not None and summary.log_bytes <= status.size:
            segment.use_summary(summary, finished=True)
            if summary.log_bytes == status.size:
                return segment
        segment.become(State.ACTIVE)  # which keeps the scanned indexes: they are in memory only
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
    """Tell whether a scan can continue from the summary: it is of this log, and its indexes exist."""
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
