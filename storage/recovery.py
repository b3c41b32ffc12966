"""From a partition's folder to a log: what is believed, what is verified, what is cut.

Owns the judgement about what a crash left behind:

1. Files that a deletion or a replacement left half done are removed.
2. What a summary describes is believed if the summary says that it was flushed, and after a crash if the last of it is
   what it was; the rest of it is verified before it is first read (`blocks`). What lies behind is scanned, and any
   other segment from its start: every batch is verified, and the indexes come out as if the batches had just been
   appended. A summary that is not true is replaced, durably, before the log takes an append.
3. Bytes at the end of the log that are no whole batch, with no batch behind them, are a write that never finished:
   they are cut, and empty segments behind them with it. They cannot have been acknowledged as being on disk.
4. Any other damage is kept, named in the log and in the segment's summary, and answered as corrupt; the rest is served.

Doing all this twice gives what doing it once gives.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.config.options import TopicConfig
from tidelog.storage import files, verification
from tidelog.storage.errors import Mismatch
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.producer_state import SUFFIX as SNAPSHOT
from tidelog.storage.retention import DELETED
from tidelog.storage.segment import LOG, OFFSET_MAX, SUFFIXES, SUMMARY, Segment
from tidelog.storage.summary import NONE, Summary

# Kafka's marks of a file that is not in force: deleted, half written by compaction, half written by anybody.
_LEFTOVERS = (DELETED, ".cleaned", ".tmp")
_DIGITS = 20

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """What the data folder remembers of a log; nothing, for one that came from elsewhere."""

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0


class _Found(NamedTuple):
    bases: list[int]
    snapshots: list[int]


def load(folder: Path, topic: str, partition: int, config: TopicConfig, known: Known, now_ms: int) -> Log:
    """Open the log in a folder; on return it can be read and appended to."""
    found = _sort_out(folder)
    last = len(found.bases) - 1
    segments = [_open_segment(folder, base, config, known, n == last) for n, base in enumerate(found.bases)]
    _cut_torn_tail(segments, known.recovery_point)
    _begin_segment_if_needed(segments, folder, config, known, now_ms)
    for segment in segments[:-1]:
        if segment.is_active:
            verification.tell_damage(segment)
            segment.finish()
            segment.seal()
    segments[-1].is_active = True
    verification.tell_damage(segments[-1])
    log = Log(
        folder,
        topic,
        partition,
        config,
        segments,
        log_start_offset=max(known.log_start_offset, segments[0].base_offset),
        recovery_point=min(known.recovery_point, segments[-1].next_offset),
    )
    _load_epochs(log, known.clean or not found.bases)
    log.load_producers(found.snapshots)
    return log


def _sort_out(folder: Path) -> _Found:
    """Remove leftovers; return the base offsets of the segments and the offsets of the snapshots, in order."""
    bases: list[int] = []
    snapshots: list[int] = []
    orphans: list[str] = []
    for name, _ in files.list_folder(folder):
        stem, dot, suffix = name.partition(".")
        suffix = dot + suffix
        if name.endswith(_LEFTOVERS):
            files.remove(folder / name)
        elif len(stem) != _DIGITS or not stem.isdecimal():
            continue
        elif suffix == LOG:
            bases.append(int(stem))
        elif suffix == SNAPSHOT:
            snapshots.append(int(stem))
        elif suffix in SUFFIXES:
            orphans.append(name)
    for name in orphans:
        if int(name[:_DIGITS]) not in bases:
            files.remove(folder / name)
    return _Found(bases, snapshots)


def _open_segment(
    folder: Path, base_offset: int, config: TopicConfig, known: Known, is_last: bool
) -> Segment:
    """Open a segment and know its batches: from its summary, from the log, or from both."""
    name = f"{base_offset:020d}"
    size, modified_ms = files.status(folder / (name + LOG)) or (0, 0)
    summary = Summary.load(folder / (name + SUMMARY))
    fresh = Summary(0, 0, base_offset, modified_ms, config.index_interval_bytes)
    if summary is not None:
        # Times are not in the log: they are good wherever the rest ends.
        fresh = summary.only_times(base_offset)
    segment = Segment(folder, base_offset, size, fresh, config.segment_index_bytes)
    if summary is None and size == 0:
        segment.believe(fresh, finished=known.clean)
        return segment
    if summary is None or not summary.flushed or summary.log_bytes > size:
        if summary is not None and summary.flushed:
            files.write_atomically(segment.path(SUMMARY), fresh.encode())
        segment.is_active = True
        if size:
            segment.rebuild()
        return _dated(segment, modified_ms)
    is_whole = summary.log_bytes == size
    segment.believe(summary, finished=is_whole and (known.clean or not is_last))
    if is_whole and known.clean:
        return segment
    segment.is_active = not is_whole
    if not _is_as_described(segment):
        segment = verification.judge(segment, _epoch_at(folder))
        segment.replace_summary(finished=not is_last)
    if not is_whole:
        segment.summary.flushed = 0
        segment.size = size
        segment.scan()
        _dated(segment, modified_ms)
    return segment


def _is_as_described(segment: Segment) -> bool:
    """Tell whether the last block that a summary describes is there, and the indexes if the log goes on behind it."""
    try:
        segment.verify(segment.summary.log_bytes - 1, segment.summary.log_bytes)
    except Mismatch:
        return False
    return not segment.is_active or segment.load_indexes() is not None


def _epoch_at(folder: Path) -> Callable[[int], int]:
    epochs = LeaderEpochs.load(folder)
    return LeaderEpochs(folder).at if epochs is None else epochs.at


def _dated(segment: Segment, modified_ms: int) -> Segment:
    """Let the time of the file stand in for append times that nobody wrote down."""
    summary = segment.summary
    if summary.batch_count:
        summary.last_append_ms = max(summary.last_append_ms, modified_ms)
        if summary.first_append_ms == NONE:
            summary.first_append_ms = min(summary.created_ms, summary.last_append_ms)
    return segment


def _ends_in_damage(segment: Segment) -> bool:
    damage = segment.summary.damage
    return bool(damage) and damage[-1].end == segment.size


def _cut_torn_tail(segments: list[Segment], recovery_point: int) -> None:
    """Cut what no batch follows and no flush has covered, and the empty segments behind it."""
    while holding := [number for number, segment in enumerate(segments) if segment.size]:
        last = segments[holding[-1]]
        if not _ends_in_damage(last) or last.next_offset < recovery_point:
            return
        if last.summary.damage[-1].next_offset != OFFSET_MAX:
            return  # It was whole once: the offset behind it is known.
        for segment in reversed(segments[holding[-1] + 1 :]):
            for suffix in reversed(SUFFIXES):
                files.remove(segment.path(suffix))
        del segments[holding[-1] + 1 :]
        torn = last.size
        last.cut_tail()
        _log.warning("torn tail cut file=%s from=%d to=%d", last.path(LOG), last.size, torn)


def _begin_segment_if_needed(
    segments: list[Segment], folder: Path, config: TopicConfig, known: Known, now_ms: int
) -> None:
    """Have a last segment that can be appended to: behind damage that is kept, and behind lost offsets, a new one."""
    end = segments[-1].next_offset if segments else 0
    if segments and not _ends_in_damage(segments[-1]) and end >= known.log_start_offset:
        return
    # Offsets below the recovery point were acknowledged: they are not given out again.
    base = max(end, known.log_start_offset, known.recovery_point)
    segments.append(
        Segment.create(folder, base, config.index_interval_bytes, config.segment_index_bytes, now_ms)
    )


def _load_epochs(log: Log, clean: bool) -> None:
    """Load the leader epochs, or make them from the batches; begin a new one after an unclean stop (KIP-101)."""
    end = log.log_end_offset
    epochs = LeaderEpochs.load(log.directory)
    log.epochs = epochs or log.epochs  # Batches that are looked at below may have to be judged by them.
    changed = False
    # The file is written without waiting for the disk: after an unclean stop the last batch may know better.
    newest = -1 if clean or not end else max((h.leader_epoch for _, _, h in log.headers(end - 1)), default=-1)
    if epochs is None or newest > epochs.latest:
        changed = True
        epochs = LeaderEpochs(log.directory)
        for _, _, header in log.headers(log.log_start_offset):
            epochs.begin(header.leader_epoch, header.base_offset)
    if epochs.entries and epochs.entries[-1][1] > end:
        epochs.keep(end + 1)
        changed = True
    if not clean:
        # Records that a client read may be gone, with the file that named their epoch: it was 0 at least.
        epochs.begin(max(epochs.latest, newest, 0) + 1, end)
        changed = True
    elif epochs.latest < 0:
        epochs.begin(0, end)
    if changed:
        epochs.save()
    log.epochs = epochs
    log.leader_epoch = epochs.latest
