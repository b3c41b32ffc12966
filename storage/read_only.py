"""A partition's folder as it is now, to be read and never written: while a broker has it open, or none.

Owns how a log is known without mending it: what a summary describes is believed as in `recovery`, and what comes after
it is scanned, in memory. A batch that is not whole at the end is being written, or was torn: the log ends before it.
Invariant: no file is made, changed, renamed or locked, and nothing is opened for writing; what a broker deletes
meanwhile is as if it had never been there.
"""

from collections.abc import Callable
from pathlib import Path

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import append_index, files, last_entries, verification
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.errors import OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_names import bases_in
from tidelog.storage.segment import APPEND_INDEX, LOG, OFFSET_MAX, SUMMARY, Segment
from tidelog.storage.shared import Shared
from tidelog.storage.sources import Source
from tidelog.storage.summary import Summary


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

    def _open_file(self) -> files.File:
        assert isinstance(self.shared, ReadOnlyShared)
        return self.shared.open_file(self.path(LOG))

    def _append_index_of(self, data: bytes | bytearray | files.Map) -> AppendIndex:
        return _ReadOnlyAppendIndex(
            self.path(APPEND_INDEX), self.base_offset, data, self.shared.open_append_indexes
        )


class ReadOnlyLog(Log):
    """A log as it was when it was opened; it takes no appends."""

    def judge(self, segment: Segment, source: Source) -> Segment | None:
        """Make what is known of a segment anew from its log, in memory. For a prompt source raise TakesLong."""
        if source.prompt:
            raise TakesLong(f"{self}: a segment is to be judged")
        found = verification.judge(segment, self.epochs.at)
        self._catch_up(found, segment)
        self.segments = tuple(found if each is segment else each for each in self.segments)
        self.active = self.segments[-1]
        return found


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
    found = [open_segment(folder, base, config, shared, now_ms) for base in bases_in(folder)]
    segments: list[Segment] = [segment for segment in found if segment is not None]
    if not segments:
        raise ReadFailed(f"{folder}: no segment of a log is in it; name the folder of a broker's data")
    for segment in segments[:-1]:
        segment.is_active &= bool(segment.size)  # an empty one stands for lost offsets, and can expire
    segments[-1].is_active = True
    log = ReadOnlyLog(
        folder,
        topic,
        partition,
        config,
        shared,
        segments,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        epochs=LeaderEpochs.load(folder),
    )
    log.refuse_writes("it was opened for reading only")
    return log


def open_segment(
    folder: Path, base_offset: int, config: TopicConfig, shared: ReadOnlyShared, now_ms: int
) -> ReadOnlySegment | None:
    """Return what is known of a segment, without what is being written; None if it was just deleted."""
    name = f"{base_offset:020d}"
    summary = Summary.load(folder / (name + SUMMARY))  # first: a broker appends, and describes more then
    status = files.status(folder / (name + LOG))
    if status is None:
        return None
    created_ms = min(status.modified_ms, now_ms)
    known = summary or Summary.unknown(base_offset, status.size, created_ms, config.index_interval_bytes)
    fresh = known.only_times(base_offset)
    segment = ReadOnlySegment(folder, base_offset, status.size, fresh, config.segment_index_bytes, shared)
    try:
        if (
            summary is None
            and status.size
            and last_entries.tell_of(segment, status.modified_ms, now_ms, OFFSET_MAX)
        ):
            return segment
        if summary is not None and summary.log_bytes <= status.size:
            segment.believe(summary, finished=True)
            if summary.log_bytes == status.size:
                return segment
        segment.is_active = True  # what is scanned is in memory only: it is not to be let go of
        if segment.summary is fresh or segment.load_indexes() is None:
            segment.rebuild()
        else:
            segment.scan()
        _end_before_torn(segment)
        _date(segment, status.modified_ms, now_ms)
    except (OffsetOutOfRange, FileNotFoundError):
        return None
    return segment


def _end_before_torn(segment: Segment) -> None:
    damage = segment.summary.damage
    if damage and damage[-1].next_offset == OFFSET_MAX:
        segment.size = segment.summary.forget_tail()


def _date(segment: Segment, modified_ms: int, now_ms: int) -> None:
    if segment.summary.batch_count:
        bound_ms = append_index.bound_ms(segment.summary, modified_ms, now_ms)
        segment.mend_append_index(bound_ms, is_tail_lost=False)
