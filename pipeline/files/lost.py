"""What of a log cannot be read: damaged bytes, and offsets without any bytes.

Storage's findings, neighbouring segments and the data folder's checkpoints decide what is lost, and whether it may have
been in a window: nobody knows the times of damaged records.
"""

from typing import Final, NamedTuple

from tidelog.pipeline.decode import Window
from tidelog.pipeline.files.pieces import Lost
from tidelog.storage import continuity, files, walk
from tidelog.storage.layout import LOG, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Damage, Summary


class Known(NamedTuple):
    """What the data folder tells of a log: the offset up to which all was flushed, and that from which all is there."""

    flushed_to: int = 0
    start: int = 0


NOTHING_KNOWN: Final = Known()


def damage(log: Log, number: int, known: Known = NOTHING_KNOWN) -> list[Damage]:
    """Return the ranges of a segment that cannot be read, those after its last whole batch among them."""
    segment = log.segments[number]
    found = [each for each in segment.summary.damage if each.start < each.end]
    status = files.status(segment.path(LOG))
    if status is None:
        return found
    following = _following(log, number)
    if following is None:
        return found + _damaged_tail(segment, status.size, known.flushed_to)
    start = segment.size
    if segment.next_offset > following.base_offset and following.size:
        # The offset of a batch is in no checksum, but it cannot be one of the next segment.
        start = by_offset.locate(segment, following.base_offset, PATIENT)[0]
    return found + ([Damage(start, status.size, following.base_offset)] if start < status.size else [])


def _damaged_tail(segment: Segment, size: int, flushed_to: int) -> list[Damage]:
    """Return what is damaged after the last whole batch of a log: what was flushed, or is complete and wrong.

    An incomplete batch is being written, or a kill cut it short. Sound batches were appended since the log was opened.
    """
    start, base, next_offset = segment.size, segment.base_offset, segment.next_offset
    tail = next(walk.verified(segment.file, start, size, base, next_offset), None)
    if tail is None or tail.header is not None:
        return []
    if next_offset < flushed_to:
        return [Damage(start, tail.end, flushed_to)]
    end, after = walk.complete(segment.file, start, tail.end, base, next_offset)
    return [Damage(start, end, after)] if start < end else []


def _following(log: Log, number: int) -> Segment | None:
    return log.segments[number + 1] if number + 1 < len(log.segments) else None


def is_of(segment: Segment, summary: Summary, window: Window) -> bool:
    """Tell whether a segment may have records of these times, by a summary of it."""
    if window.create is not None and not (
        summary.min_timestamp < window.create[1] and summary.max_timestamp >= window.create[0]
    ):
        return False
    if window.append is None or summary.last_append_ms < window.append[0]:
        return window.append is None
    return summary.first_append_ms < window.append[1] or not _is_first_known(segment)


def _is_first_known(segment: Segment) -> bool:
    """Tell whether the first append time that a summary has is one: it may be a bound, and records from before it."""
    if segment.is_known_by_index:
        return False
    index = segment.append_index
    return bool(len(index)) and not index.entry(0).is_bound


def may_hold(segment: Segment, damage: Damage, window: Window) -> bool:
    """Tell whether damage may be what is left of records of a window."""
    if damage.next_offset <= window.start or _first_of(segment, damage) >= window.end:
        return False
    said = Summary.load(segment.path(SUMMARY))
    if said is None or said.damage or said.log_bytes < damage.end:
        return True
    return is_of(segment, said, window)  # It was written when all of it could be read.


def _first_of(segment: Segment, damage: Damage) -> int:
    """Return the first offset that damage may have had."""
    first, position = segment.base_offset, segment.offset_index.position_at(max(damage.start - 1, 0))
    for each in segment.summary.damage:
        if position <= each.end <= damage.start:
            first, position = each.next_offset, each.end
    for _, header in walk.headers(segment.file, position, damage.start):
        first = header.last_offset + 1
    return first


def holes(log: Log, number: int, window: Window, known: Known) -> tuple[Lost, ...]:
    """Return what may have been of a window and is gone: at the end of a segment, in its place, before the first."""
    return tuple(
        Lost(position, f"offsets {first} to {end - 1} are gone: {why}")
        for first, end, position, why in _holes(log, number, known)
        if first < window.end and end > window.start
    )


def _holes(log: Log, number: int, known: Known) -> list[tuple[int, int, int, str]]:
    """Return ranges of offsets, where they would be, and why it is known that they were there."""
    segment, following = log.segments[number], _following(log, number)
    found = [
        (segment.next_offset, each.next_offset, each.start, "they were on disk")
        for each in segment.summary.damage
        if each.start == each.end
    ]
    damaged = [each.next_offset for each in damage(log, number, known)]
    end = max([segment.next_offset, *damaged, *(hole[1] for hole in found)])
    if not number and 0 < known.start < segment.base_offset:
        found.append((known.start, segment.base_offset, 0, "the log begins after them"))
    if following is None:
        if end < known.flushed_to:
            found.append((end, known.flushed_to, segment.size, "they had been flushed"))
    elif max(end, log.log_start_offset) < following.base_offset and _were_all_here(segment, following):
        found.append((end, following.base_offset, segment.size, f"{following.path(LOG).name} follows"))
    return found


def _were_all_here(segment: Segment, following: Segment) -> bool:
    """Tell whether no offset can have been left out between two segments: compaction elsewhere may have done that."""
    said = Summary.load(segment.path(SUMMARY))
    if said is not None and said.log_bytes > segment.size:
        return True
    return continuity.is_gap_lost(segment, following)
