"""Whether the segments of a log follow one another, and what to do about offsets that are doubled, damaged or missing.

Owns the rules 3 to 6 of `recovery`, which calls it once it knows the batches of each segment. Knows nothing of how they
are found. It works on the list of segments, oldest first, and changes it.
"""

import logging
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

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
_base_offset: Final = attrgetter("base_offset")


class PendingWrites:
    """The writes of a start that the disk has refused. Reads do not need them.

    If space or a descriptor was lacking, they are done before the next append. After any other `failure` the log takes
    no appends.
    """

    def __init__(self, shared: Shared, what: str, *, waits: bool = False) -> None:
        """Begin empty; `what` names the writes in messages. If it `waits`, other writes come first."""
        self.what = what
        self.writes: list[Callable[[], object]] = []
        self.error: OSError | None = None  # the last one
        self.failure: OSError | None = None
        self._waits = waits
        self._disk = shared.disk

    def refused(self, error: OSError) -> None:
        """Note an error."""
        self.error = without_frames(error)
        self._disk.refused(error)
        if not is_passing(error):
            self.failure = self.failure or error

    def write(self, write: Callable[[], object]) -> bool:
        """Do a write now or, after one was refused, later in order; tell whether it is done."""
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
    """A segment, and the offset before which it is known to have been on disk.

    `is_other_version` if its summary or its append index is of another version, so that only the log counts.
    `has_other_summary` if its summary is: more of the segment may have been on disk.
    """

    segment: Segment
    flushed_to: int
    is_other_version: bool = False
    has_other_summary: bool = False


class Maker(NamedTuple):
    """What a start makes segments of a log with, and its pending writes."""

    folder: Path
    config: TopicConfig
    shared: Shared
    now_ms: int
    pending: PendingWrites

    def segment(self, segments: list[Segment], base_offset: int) -> Segment:
        """Make a segment that follows others; on a full disk it gets its files later."""
        segment = Segment.begin(
            self.folder,
            base_offset,
            self.config,
            self.shared,
            self.now_ms,
            max((segment.summary.last_append_ms for segment in segments), default=NONE),
        )
        # After pending removals, which may have the same names.
        if not self.pending.write(segment.make_files):
            segment.seal()
        return segment


def drop_half_made(opened: list[Opened], pending: PendingWrites) -> None:
    """Remove empty segments that begin within the one before; CorruptLog if such a segment is not empty."""
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


class Cut(NamedTuple):
    """Where a log is cut: the number of the last segment that stays, and the position in it."""

    number: int
    position: int


def find_cut(segments: list[Segment], log_start_offset: int, flushed_to: int) -> Cut | None:
    """Return where a start cuts a log after a power cut: at the first damage or gap that no flush covers.

    Segments that lie wholly before the log's start are about to be deleted. A gap between them loses nothing.
    """
    first = max(bisect_right(segments, log_start_offset, key=_base_offset) - 1, 0)
    for number, segment in enumerate(segments[first:], first):
        before = segments[number - 1] if number > first else segment
        if flushed_to <= before.next_offset < segment.base_offset and not _ends_in_damage(before):
            return Cut(number - 1, before.size)
        for start, end, _ in segment.summary.damage:
            if start < end and _offset_before(segment, start) >= flushed_to:
                return Cut(number, start)
    return None


def cut_unflushed(
    segments: list[Segment], log_start_offset: int, flushed_to: int, pending: PendingWrites
) -> None:
    """Cut the log where `find_cut` says.

    If the files cannot be cut yet, the log ends there all the same: nothing is appended before they are.
    """
    cut = find_cut(segments, log_start_offset, flushed_to)
    if cut is None:
        return
    _cut_from(segments, cut.number + 1, pending)
    segment = segments[cut.number]
    if cut.position == segment.size:
        return
    _log.warning(
        "what no flush covers is cut file=%s from=%d to=%d", segment.path(LOG), cut.position, segment.size
    )
    segment.shared.tally.cut(segment.size - cut.position)
    segment.end_at(cut.position)
    pending.write(partial(_cut_files, segment))


def _cut_files(segment: Segment) -> None:
    """Cut a segment's files at its end; only then may anything be appended."""
    segment.cut_file(segment.size)
    try:
        segment.file.sync()  # What is cut must not come back after what is appended.
    except OSError as error:
        # The part before the cut may not be on disk either.
        raise files.SyncFailed(error.errno, error.strerror, str(segment.path(LOG))) from error


def _offset_before(segment: Segment, position: int) -> int:
    """Return the offset after the last batch before a position; -1 if the summary says that it was flushed."""
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
    """Remove the segments from a number on, the last first."""
    for segment in reversed(segments[number:]):
        _log.warning("what no flush covers is removed file=%s bytes=%d", segment.path(LOG), segment.size)
        segment.shared.tally.cut(segment.size)
        _remove(segment, pending)
    del segments[number:]


def has_torn_tail(segment: Segment, flushed_to: int) -> bool:
    """Tell whether a segment ends in an incomplete batch that no other follows and no flush covers: a start cuts it.

    A kill in the middle of a write leaves one. A complete batch was written and may have been acknowledged, so it
    stays: where damage begins with one, the offset after it is noted.
    """
    summary = segment.summary
    if not _ends_in_damage(segment) or summary.damage[-1].next_offset != OFFSET_MAX:
        return False  # Where the offset after the damage is known, it was whole once.
    start, end, _ = summary.damage[-1]
    base, before = segment.base_offset, segment.next_offset
    after, next_offset = walk.complete(segment.file, start, end, base, before, flushed_to)
    if after == start:
        return before >= flushed_to
    summary.next_offset = max(next_offset, flushed_to)
    summary.damage = (*summary.damage[:-1], Damage(start, end, summary.next_offset))
    return False


def find_torn_tail(segments: list[Segment], flushed_to: int) -> Cut | None:
    """Return where the torn tail of a log begins: in the last segment that is not empty, or before it."""
    cut = None
    for number, segment in reversed(list(enumerate(segments))):
        if segment.size and not has_torn_tail(segment, flushed_to):
            return cut
        if segment.size:
            cut = Cut(number, segment.summary.damage[-1].start)
        if cut is not None and cut.position:
            return cut
    return cut


def cut_torn_tail(segments: list[Segment], flushed_to: int, pending: PendingWrites) -> None:
    """Cut the torn tail of a log, and the segments after it."""
    cut = find_torn_tail(segments, flushed_to)
    if cut is None:
        return
    _cut_from(segments, cut.number + 1, pending)
    last = segments[cut.number]
    torn = last.size
    last.size = last.summary.forget_tail()
    last.digests.cut(last.file, last.size)
    pending.write(partial(last.truncate_log, last.size))
    last.shared.tally.cut(torn - last.size)
    _log.warning("torn tail cut file=%s from=%d to=%d", last.path(LOG), last.size, torn)


def mark_lost_within(
    segments: list[Segment],
    log_start_offset: int,
    flushed_to: dict[Segment, int],
    lost: list[int],
    maker: Maker,
) -> None:
    """Mark offsets between two segments as lost, if something proves that they existed.

    The proof is that the first segment was flushed further, that a segment in between has left sidecars, or that both
    segments were written here (`is_gap_lost`). Without proof the gap may be an old one: Kafka's compaction leaves such
    gaps, and offsets before the log's start are of no interest.
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
    """Tell whether the offsets between two neighbours were given out here, and so are lost.

    In a log from elsewhere Kafka's compaction may have left the gap. An empty segment proves nothing: an empty `before`
    may be what compaction elsewhere has left, and an empty `following` began at the end of the log.
    """
    return bool(before.size) and all(
        each.summary.fills_its_range for each in (before, following) if each.size
    )


def mark_lost_before(segments: list[Segment], log_start_offset: int, maker: Maker) -> None:
    """Mark the offsets between the log's start and its first segment as lost."""
    if segments and log_start_offset < segments[0].base_offset:
        _mark_lost(segments, log_start_offset, segments[0].base_offset, maker)


def known_end(folder: Path, bases: list[int], snapshots: Iterable[int]) -> int:
    """Return the largest offset that the log had reached by the files beside it; 0 if they tell nothing.

    They count only if the summary of the last segment describes batches: a cut first replaces it by one that describes
    none, and cuts these files last.
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
    """Add a last segment for appends after damage, after lost offsets, and after a segment that was not read."""
    last = segments[-1] if segments else None
    end = last.next_offset if last else 0
    in_damage = last is not None and _ends_in_damage(last)
    if last is not None and in_damage and (after := last.summary.damage[-1].next_offset) != OFFSET_MAX:
        end = after  # The segment that began there was not made yet, or is lost too.
    base = max(end, log_start_offset, flushed_to)
    if last is not None and base == last.next_offset and not in_damage and not last.is_known_by_index:
        return
    start = max(end, log_start_offset)
    if start < base and not in_damage:
        _mark_lost(segments, start, base, maker)
    segments.append(maker.segment(segments, base))


def _mark_lost(segments: list[Segment], start: int, end: int, maker: Maker) -> None:
    """Let an empty segment stand for lost offsets, durably: no later start can tell them from another gap."""
    mark = next((segment for segment in segments if segment.base_offset == start and not segment.size), None)
    if mark is None:
        mark = maker.segment(segments, start)
        insort(segments, mark, key=_base_offset)
    mark.summary.damage = (Damage(0, 0, end),)
    maker.pending.write(partial(mark.replace_summary, finished=True))


def bound_damage(segments: list[Segment]) -> None:
    """Let damage at the end of a segment end with the offset at which the next segment begins."""
    for before, following in pairwise(segments):
        damage = before.summary.damage
        if damage and damage[-1].next_offset > following.base_offset:
            before.summary.damage = (*damage[:-1], damage[-1]._replace(next_offset=following.base_offset))
