"""Whether a log's segments follow one another: what is doubled, damaged or missing in or between them, and what then.

Owns the rules 3 to 6 of `recovery`, which calls this once it knows each segment's batches. Knows nothing of how these
are found. Works on the list of segments, oldest first, and changes it.
"""

import logging
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import append_index, files, producer_state, walk
from tidelog.storage.disk_space import is_passing
from tidelog.storage.errors import CorruptLog, without_frames
from tidelog.storage.layout import APPEND_INDEX, LOG, SUFFIXES, SUMMARY
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.producer_snapshots import snapshot_path
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared
from tidelog.storage.summary import NONE, OFFSET_MAX, Damage, Summary

_log = logging.getLogger(__name__)
_base_offset = attrgetter("base_offset")


class PendingWrites:
    """What a start would write to a log, and the disk refuses. Reads do not need it.

    Writes that lack space or a descriptor are done before the next append. After any other `failure` the log takes no
    appends.
    """

    def __init__(self, shared: Shared, what: str, *, waits: bool = False) -> None:
        """Have nothing to write of `what` yet; it `waits` where other writes come first."""
        self.what = what
        self.writes: list[Callable[[], object]] = []
        self.error: OSError | None = None  # the last one
        self.failure: OSError | None = None
        self._waits = waits
        self._disk = shared.disk

    def refused(self, error: OSError) -> None:
        """Take note of an error."""
        self.error = without_frames(error)
        self._disk.refused(error)
        if not is_passing(error):
            self.failure = self.failure or error

    def write(self, write: Callable[[], object]) -> bool:
        """Write, now or later, and never before what was refused; tell whether that is done."""
        if self._waits:
            self.writes.append(write)
            return False
        try:
            write()
        except OSError as error:
            self.refused(error)
            self._waits = True
            self.writes.append(write)
            return False
        return True


class Opened(NamedTuple):
    """A segment as it is, and the offset up to which it is known to have been on disk.

    `is_other_version` if its summary or its append index is of another version, so that nothing but the log tells of
    it. `has_other_summary` if its summary is: more of it may have been on disk.
    """

    segment: Segment
    flushed_to: int
    is_other_version: bool = False
    has_other_summary: bool = False


class Maker(NamedTuple):
    """What a new segment of a log is made with, and what a full disk has kept from being written."""

    folder: Path
    config: TopicConfig
    shared: Shared
    now_ms: int
    pending: PendingWrites

    def segment(self, segments: list[Segment], base_offset: int) -> Segment:
        """Make a segment that goes on from others; on a full disk it gets its files later."""
        segment = Segment.begin(
            self.folder,
            base_offset,
            self.config,
            self.shared,
            self.now_ms,
            max((segment.summary.last_append_ms for segment in segments), default=NONE),
        )
        # Not before what is to be removed first, which may have the same names.
        if not self.pending.write(segment.make_files):
            segment.seal()
        return segment


def drop_half_made(opened: list[Opened], pending: PendingWrites) -> None:
    """Remove empty segments that begin within the one before; refuse a log where such a segment is not empty."""
    number = 1
    while number < len(opened):
        before, segment = opened[number - 1].segment, opened[number].segment
        if before.next_offset <= segment.base_offset:
            number += 1
        elif segment.size:
            raise CorruptLog(
                f"{before.path(LOG)} holds offsets up to {before.next_offset - 1}, and {segment.path(LOG)} begins with "
                f"{segment.base_offset}: only one of them can be right there; move the other out of the folder"
            )
        else:
            _remove(segment, pending)
            _log.warning("segment never begun file=%s: removed", segment.path(LOG))
            del opened[number]


def _remove(segment: Segment, pending: PendingWrites) -> None:
    for suffix in reversed(SUFFIXES):
        pending.write(partial(files.remove, segment.path(suffix)))


def _ends_in_damage(segment: Segment) -> bool:
    damage = segment.summary.damage
    return bool(damage) and damage[-1].end == segment.size


def cut_unflushed(
    segments: list[Segment], log_start_offset: int, flushed_to: int, pending: PendingWrites
) -> None:
    """Cut the log at the first damage or gap that no flush can have come after.

    What lies wholly before the log's start is to be deleted: nothing has to follow it without a gap. Where the files
    cannot be cut the log ends there all the same, as nothing is appended before they are.
    """
    first = max(bisect_right(segments, log_start_offset, key=_base_offset) - 1, 0)
    for number, segment in enumerate(segments[first:], first):
        before = segments[number - 1] if number > first else segment
        if flushed_to <= before.next_offset < segment.base_offset and not _ends_in_damage(before):
            _cut_from(segments, number, pending)
            return
        for start, end, _ in segment.summary.damage:
            offset = _offset_before(segment, start)
            if offset >= flushed_to and start < end:
                _cut_from(segments, number + 1, pending)
                path = segment.path(LOG)
                _log.warning("what no flush covers is cut file=%s from=%d to=%d", path, start, segment.size)
                segment.shared.tally.cut(segment.size - start)
                segment.end_at(start)
                pending.write(partial(_cut_files, segment))
                return


def _cut_files(segment: Segment) -> None:
    """Cut off on disk what lies behind a segment's end; only then may anything be appended."""
    segment.cut_file(segment.size)
    try:
        segment.file.sync()  # What is cut must not come back after what is appended.
    except OSError as error:
        # What lies before the cut may not have been on disk either.
        raise files.SyncFailed(error.errno, error.strerror, str(segment.path(LOG))) from error


def _offset_before(segment: Segment, position: int) -> int:
    """Return the offset after the last batch before a position; -1 if that was flushed, as the summary says."""
    offset, start = segment.base_offset, 0
    if segment.unverified is not None:
        offset, start = segment.unverified.next_offset, segment.unverified.end
    for damage in segment.summary.damage:
        if start <= damage.end <= position:
            offset, start = damage.next_offset, damage.end
    for _, header in walk.headers(segment.file, start, position):
        offset = header.last_offset + 1
    return offset if position >= start else NONE


def _cut_from(segments: list[Segment], number: int, pending: PendingWrites) -> None:
    """Remove the segments from this one on, the last first."""
    for segment in reversed(segments[number:]):
        _log.warning("what no flush covers is removed file=%s bytes=%d", segment.path(LOG), segment.size)
        segment.shared.tally.cut(segment.size)
        _remove(segment, pending)
    del segments[number:]


def is_tail_complete(segment: Segment, flushed_to: int) -> bool:
    """Tell whether damage that no batch follows begins with a complete batch; if so, note which offset comes after it.

    A kill in the middle of a write leaves an incomplete batch. A complete one was written, and may have been
    acknowledged.
    """
    summary = segment.summary
    start, end, _ = summary.damage[-1]
    base, before = segment.base_offset, segment.next_offset
    after, next_offset = walk.complete(segment.file, start, end, base, before, flushed_to)
    if after == start:
        return False
    summary.next_offset = max(next_offset, flushed_to)
    summary.damage = (*summary.damage[:-1], Damage(start, end, summary.next_offset))
    return True


def cut_torn_tail(segments: list[Segment], flushed_to: int, pending: PendingWrites) -> None:
    """Cut an incomplete batch that no other follows and no flush has covered, and the empty segments after it."""
    while holding := [number for number, segment in enumerate(segments) if segment.size]:
        last = segments[holding[-1]]
        if not _ends_in_damage(last) or last.summary.damage[-1].next_offset != OFFSET_MAX:
            return  # Where the offset after the damage is known, it was whole once.
        if is_tail_complete(last, flushed_to) or last.next_offset < flushed_to:
            return
        _cut_from(segments, holding[-1] + 1, pending)
        torn = last.size
        last.size = last.summary.forget_tail()
        last.digests.cut(last.file, last.size)
        pending.write(partial(last.file.truncate, last.size))
        last.shared.tally.cut(torn - last.size)
        _log.warning("torn tail cut file=%s from=%d to=%d", last.path(LOG), last.size, torn)


def mark_lost_within(
    segments: list[Segment],
    log_start_offset: int,
    flushed_to: dict[Segment, int],
    lost: list[int],
    maker: Maker,
) -> None:
    """Mark what is missing between two segments, where something proves that it was there.

    The proof is what was known to be flushed of the first, the sidecars of a segment in between, or that both were
    written here (`is_gap_lost`). Without proof the gap may always have been there: Kafka's compaction leaves
    such gaps, and nobody misses what lies before the log's start.
    """
    for before, following in list(pairwise(segments)):
        start, end = before.next_offset, following.base_offset
        if start >= end or _ends_in_damage(before):
            continue
        is_flushed = flushed_to[before] > start or any(start <= base < end for base in lost)
        start = start if is_flushed else max(start, log_start_offset)
        if start < end and (is_flushed or is_gap_lost(before, following)):
            _mark_lost(segments, start, end, maker)


def is_gap_lost(before: Segment, following: Segment) -> bool:
    """Tell whether offsets between two neighbours were given out here, so that they are lost if no segment has them.

    Kafka's compaction leaves such gaps in what came from elsewhere. One that is empty tells nothing of itself: `before`
    may be all that compaction elsewhere has left, `following` was begun at the end of the log.
    """
    return bool(before.size) and all(
        each.summary.fills_its_range for each in (before, following) if each.size
    )


def mark_lost_before(segments: list[Segment], log_start_offset: int, maker: Maker) -> None:
    """Mark what is missing between the offset with which a log begins and its first segment."""
    if segments and log_start_offset < segments[0].base_offset:
        _mark_lost(segments, log_start_offset, segments[0].base_offset, maker)


def known_end(folder: Path, bases: list[int], snapshots: Iterable[int]) -> int:
    """Return the largest offset that the files beside the logs say the log had reached; 0 where none says anything.

    They count only if the summary of the last segment describes batches: a cut begins by replacing it with one that
    describes none, and cuts these files last.
    """
    last = Summary.load(folder / f"{bases[-1]:020d}{SUMMARY}") if bases else None
    if last is None or not last.log_bytes:
        return 0
    ends = [append_index.last_offset(folder / f"{bases[-1]:020d}{APPEND_INDEX}", bases[-1])]
    epochs = LeaderEpochs.load(folder)
    ends += [start for _, start in epochs.entries] if epochs else []
    for offset in snapshots:
        data = files.load(snapshot_path(folder, offset))
        if data is not None and producer_state.fault(data) is None:
            ends.append(offset)
    return max((end for end in ends if end < OFFSET_MAX), default=0)


def begin_segment_if_needed(
    segments: list[Segment], log_start_offset: int, flushed_to: int, maker: Maker
) -> None:
    """Have a last segment that takes appends: a new one after damage, lost offsets, or one that was not read."""
    last = segments[-1] if segments else None
    end = last.next_offset if last else 0
    in_damage = last is not None and _ends_in_damage(last)
    if last is not None and in_damage and (after := last.summary.damage[-1].next_offset) != OFFSET_MAX:
        end = after  # The segment there was about to be made, or has been lost as well.
    base = max(end, log_start_offset, flushed_to)
    if last is not None and base == last.next_offset and not in_damage and not last.is_known_by_index:
        return
    start = max(end, log_start_offset)
    if start < base and not in_damage:
        _mark_lost(segments, start, base, maker)
    segments.append(maker.segment(segments, base))


def _mark_lost(segments: list[Segment], start: int, end: int, maker: Maker) -> None:
    """Have an empty segment stand for lost offsets, durably: no later start can tell them from any other gap."""
    mark = next((segment for segment in segments if segment.base_offset == start and not segment.size), None)
    if mark is None:
        mark = maker.segment(segments, start)
        insort(segments, mark, key=_base_offset)
    mark.summary.damage = (Damage(0, 0, end),)
    maker.pending.write(partial(mark.replace_summary, finished=True))


def bound_damage(segments: list[Segment]) -> None:
    """Say of damage at the end of a segment that it can be read on from where the next one begins."""
    for before, following in pairwise(segments):
        damage = before.summary.damage
        if damage and damage[-1].next_offset > following.base_offset:
            before.summary.damage = (*damage[:-1], damage[-1]._replace(next_offset=following.base_offset))
