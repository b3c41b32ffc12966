"""Makes a partition's log as another log was before an offset, in a folder beside it, while that log is in use.

A sealed segment before the cut is not copied: its log, indexes and summary get hard links. Of the segment in which the
cut lies, the batches before it are copied: that file may grow, and it has others after the cut. So a fork never appends
to a shared file, and whatever changes a file in place takes it out of the links first (`files.own`). The append index
is always a copy, as its header names the topic. The fork begins without producers: their next batches go to the topic
that they write to.

Only reads the source, after a flush. A fork that a kill has left has the name of a deleted partition, and a start
removes it. For the maintenance thread.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, importing, layout, producer_state
from tidelog.storage.append_index import AppendIndex
from tidelog.storage.errors import Mismatch, StorageError
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUMMARY, TIME_INDEX
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_manager import Steps
from tidelog.storage.producer_snapshots import snapshot_path
from tidelog.storage.search import by_offset
from tidelog.storage.search.by_time import Timeline, first_at_or_after
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import NONE, Origin

# What is copied and synced in one step.
STEP_BYTES: Final = 8 << 20
# How often a fork begins again because compaction or a repair has replaced a segment meanwhile.
TRIES: Final = 5


class Forked(NamedTuple):
    """A complete log on disk: its folder, its first offset and the one after its last, and how much was copied."""

    folder: Path
    start_offset: int
    end_offset: int
    copied_bytes: int


def cut_at(log: Log, at_ms: int, timeline: Timeline) -> int:
    """Return the first offset of the batch with the first record at or after a time, or the log's end."""
    end = log.log_end_offset  # before the search: what is appended from now on is later
    found = first_at_or_after(log, at_ms, timeline, PATIENT)
    cut = end if found is None else log.batch_start(found.offset)
    return max(cut, log.log_start_offset)


def fork(
    log: Log, cut: int, target: Path, topic_id: bytes, config: TopicConfig, first_epoch: int, now_ms: int
) -> Steps[Forked]:
    """Make the log before an offset in a folder beside `target`, durably. StorageError: then nothing is left.

    `first_epoch` is the least leader epoch of the fork's next batch.
    """
    for _ in range(TRIES):
        folder = importing.aside(target)
        try:
            with files.whole(folder, target):
                return (yield from _fork(log, cut, folder, topic_id, config, first_epoch, now_ms))
        except Mismatch as mismatch:
            log.recheck(mismatch.segment, PATIENT)
    raise StorageError(f"{log}: its segments are being replaced; try again")


def _fork(
    log: Log, cut: int, folder: Path, topic_id: bytes, config: TopicConfig, first_epoch: int, now_ms: int
) -> Steps[Forked]:
    start = log.log_start_offset
    cut = max(cut, start)  # the start may have moved since
    log.flush()
    files.make_folder(folder)
    layout.save_topic_id(folder, topic_id)
    # Where DeleteRecords has cut a batch, its log starts after the base of that batch, and so may the cut.
    kept = [
        each for each in log.segments if each.base_offset < cut and each.next_offset > start and cut > start
    ]
    for segment in kept:
        _refuse_cleaned(log, segment, cut)
    copied_bytes = 0
    last_append_ms, is_open = NONE, False
    for segment in kept:
        yield
        is_open = segment.is_active or segment.next_offset > cut
        if is_open:
            last = yield from _copy(segment, cut, folder, config)
            copied_bytes += last.size
        else:
            _link(log, segment, folder)
            last_append_ms = segment.summary.last_append_ms
    if not is_open:
        # Appends go to a file of its own.
        Segment.begin(folder, cut, config, log.shared, now_ms, last_append_ms).make_files()
    epochs = LeaderEpochs(folder, log.epochs.entries)
    epochs.keep(cut)
    epochs.begin(max(epochs.latest, first_epoch, 0), cut)
    epochs.save()
    if kept:  # so that no start reads all batches for producers
        files.write(snapshot_path(folder, cut), producer_state.encode({}))
    for name, _ in files.list_folder(folder):
        yield
        files.sync(folder / name)
    files.sync_folder(folder)
    return Forked(folder, start, cut, copied_bytes)


def _refuse_cleaned(log: Log, segment: Segment, cut: int) -> None:
    """Raise StorageError if compaction may have removed records for the sake of others at or after the cut."""
    summary = segment.summary
    is_unknown = summary.origin is Origin.COMPACTED and summary.cleaned_to == NONE
    if summary.cleaned_to > cut or is_unknown:
        to = "an unknown offset" if is_unknown else f"offset {summary.cleaned_to}"
        raise StorageError(
            f"{log}: compaction has compared its records up to {to}, and those of that time end at {cut}: some of "
            "them may be gone; choose a later time"
        )


def _link(log: Log, segment: Segment, folder: Path) -> None:
    """Link the files of a sealed segment. Raise Mismatch if it was replaced or deleted, or is to be."""
    times = segment.append_index
    with log.replacing:
        if segment not in log.segments:
            raise Mismatch(f"{segment.path(LOG)}: was deleted or compacted meanwhile", segment)
        files.link(segment.path(LOG), folder / segment.name(LOG))
        for suffix in (INDEX, TIME_INDEX, SUMMARY):
            with suppress(FileNotFoundError):  # the fork makes it again
                files.link(segment.path(suffix), folder / segment.name(suffix))
    summary = segment.summary
    index = AppendIndex(
        folder / segment.name(APPEND_INDEX),
        segment.base_offset,
        summary.origin,
        times.data,
        log.shared.open_append_indexes,
    )
    files.write(index.path, index.encode())


def _copy(segment: Segment, cut: int, folder: Path, config: TopicConfig) -> Steps[Segment]:
    """Copy the batches of a segment before an offset to one that takes appends, and save it as a stop does."""
    end = by_offset.locate(segment, cut, PATIENT)[0] if cut < segment.next_offset else segment.size
    copy = segment.begin_copy(folder, cut, config.segment_index_bytes)
    for position in _stops(segment, end):
        segment.file.copy_to(copy.file, copy.size, position)
        copy.size = position
        copy.scan()
        copy.file.sync()
        yield
    copy.finish(flushed=True)
    copy.close()
    return copy


def _stops(segment: Segment, end: int) -> list[int]:
    """Return the positions at which the steps of a copy end: those of batches, and the end."""
    index, stops, last = segment.offset_index, [], 0
    for number in range(len(index) if not segment.summary.damage else 0):
        position = index.entry(number)[1]
        if position - last >= STEP_BYTES and position < end:
            stops.append(position)
            last = position
    return [*stops, end]
