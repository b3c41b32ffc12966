"""The parts of a log that cannot be read: damaged bytes, and offsets without any bytes.

The findings of storage, the neighbouring segments and the checkpoints of the data folder tell what is lost, and whether
it may have been in a window. The times of damaged records are unknown.
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
    """What the data folder records about a log: the flushed offset, and the start offset (0 after an unclean stop)."""

    flushed_to: int = 0
    start: int = 0


NOTHING_KNOWN: Final = Known()


def damage(log: Log, number: int, known: Known = NOTHING_KNOWN) -> list[Damage]:
    """Return the ranges of a segment that cannot be read, including bytes after its last whole batch."""
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
        # No checksum covers the base offset of a batch, but it cannot be in the next segment.
        start = by_offset.locate(segment, following.base_offset, PATIENT)[0]
    return found + ([Damage(start, status.size, following.base_offset)] if start < status.size else [])


def _damaged_tail(segment: Segment, size: int, flushed_to: int) -> list[Damage]:
    """Return the damage after the last whole batch of a log: bytes that were flushed, or whole batches that are wrong.

    An incomplete batch is no damage: it is being written, or a kill cut it short. Neither is a sound batch, which was
    appended after the log was opened.
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
    """Return whether, by its summary, a segment may have records in the times of a window."""
    if window.create is not None and not (
        summary.min_timestamp < window.create[1] and summary.max_timestamp >= window.create[0]
    ):
        return False
    if window.append is None or summary.last_append_ms < window.append[0]:
        return window.append is None
    return summary.first_append_ms < window.append[1] or not _is_first_known(segment)


def _is_first_known(segment: Segment) -> bool:
    """Return whether the first append time in the summary is exact. If it is a bound, records may be older."""
    if segment.is_known_by_index:
        return False
    index = segment.append_index
    return bool(len(index)) and not index.entry(0).is_bound


def may_hold(segment: Segment, damage: Damage, window: Window) -> bool:
    """Return whether the damaged records may have been in a window."""
    if damage.next_offset <= window.start or _first_of(segment, damage) >= window.end:
        return False
    stored = Summary.load(segment.path(SUMMARY))
    if stored is None or stored.damage or stored.log_bytes < damage.end:
        return True
    return is_of(segment, stored, window)  # It was written when the whole segment was readable.


def _first_of(segment: Segment, damage: Damage) -> int:
    """Return the first offset that the damaged bytes may have held."""
    first, position = segment.base_offset, segment.offset_index.position_at(max(damage.start - 1, 0))
    for each in segment.summary.damage:
        if position <= each.end <= damage.start:
            first, position = each.next_offset, each.end
    for _, header in walk.headers(segment.file, position, damage.start):
        first = header.last_offset + 1
    return first


def holes(log: Log, number: int, window: Window, known: Known) -> tuple[Lost, ...]:
    """Return offsets that are gone and may have been in a window: within or after a segment, or before the first."""
    return tuple(
        Lost(position, f"offsets {first} to {end - 1} are gone: {why}")
        for first, end, position, why in _holes(log, number, known)
        if first < window.end and end > window.start
    )


def _holes(log: Log, number: int, known: Known) -> list[tuple[int, int, int, str]]:
    """Return lost ranges as (first offset, end, position in the file, evidence that they existed)."""
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
    """Return whether a gap between two segments is a loss, and not the work of compaction."""
    stored = Summary.load(segment.path(SUMMARY))
    if stored is not None and stored.log_bytes > segment.size:
        return True
    return continuity.is_gap_lost(segment, following)
