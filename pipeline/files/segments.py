"""Plans a read from files: the segments and positions that may hold requested records, cut into tasks.

No broker needs to run: a folder is read as it is (`storage.read_only`), up to the last whole batch of each partition.
A range of times excludes what lies outside it, but not damage that may have held records in it (`lost`), and it lists
the batches that may or may not be in it (`undated`). If the search for its ends meets records that cannot be decoded,
every segment that may have records in the range by its summary is read.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from tidelog.pipeline.decode import Window
from tidelog.pipeline.files import lost
from tidelog.pipeline.files.lost import NOTHING_KNOWN, Known
from tidelog.pipeline.files.pieces import Piece, append_times
from tidelog.pipeline.files.undated import undated
from tidelog.storage import append_index
from tidelog.storage.blocks import BLOCK_BYTES, DIGEST_BYTES, count_of
from tidelog.storage.errors import CorruptLog, Mismatch, OffsetOutOfRange
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, time_range
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT

T = TypeVar("T")


def plan(log: Log, window: Window, task_bytes: int, known: Known = NOTHING_KNOWN) -> Iterator[Piece]:
    """Yield pieces of a log that contain every record of a window, each of at most about `task_bytes`."""
    first, last = max(window.start, log.log_start_offset), min(window.end, log.log_end_offset)
    wanted = range(first, max(first, last))
    for times, timeline in ((window.create, RECORD_TIME), (window.append, APPEND_TIME)):
        if times is not None:
            try:
                found = time_range.between(log, *times, timeline, PATIENT)
            except CorruptLog:
                continue  # The undecodable records may be in the range; the read treats them by option `bad`.
            wanted = range(max(wanted.start, found.start), min(wanted.stop, found.stop))
    for number in range(len(log.segments)):
        look = partial(_pieces, log, number, wanted, window, task_bytes, known)
        yield from verifying(log, look)


def whole(log: Log, number: int) -> Piece:
    """Return a piece that covers a whole sealed segment, including damage."""

    def look() -> list[Piece]:
        segment = log.segments[number]
        damage = tuple(lost.damage(log, number))
        end = max([segment.size, *(each.end for each in damage)])
        holes = lost.holes(log, number, Window(), NOTHING_KNOWN)
        return [_piece(log, segment, 0, end, Window())._replace(damage=damage, lost=holes)]

    return verifying(log, look)[0]


def verifying(log: Log, look: Callable[[], Iterable[T]]) -> list[T]:
    """Return the results of `look`; if a file differs from its summary, have storage verify it and look again."""
    while True:
        try:
            return list(look())
        except Mismatch as error:
            before = [segment.base_offset for segment in log.segments]
            if log.recheck(error.segment, PATIENT) is None:
                return []
            if before != [segment.base_offset for segment in log.segments]:
                raise OffsetOutOfRange(f"{log}: compaction has replaced its segments") from None


def _pieces(
    log: Log, number: int, wanted: range, window: Window, task_bytes: int, known: Known
) -> Iterator[Piece]:
    segment = log.segments[number]
    damage = lost.damage(log, number, known)
    holes = lost.holes(log, number, window, known)
    cuts = list(_cuts(segment, wanted, task_bytes)) if _meets(segment, wanted, window) else []
    for each in damage:
        is_covered = any(start < each.end and end > each.start for start, end in cuts)
        if not is_covered and lost.may_hold(segment, each, window):
            cuts.append((each.start, each.end))
    if holes and not cuts:
        cuts.append((0, 0))
    inner = window._replace(start=wanted.start, end=max(wanted.start, wanted.stop))
    unsure = undated(log, number, wanted, window.append) if cuts and window.append is not None else ()
    for start, end in sorted(cuts):
        within = tuple(each for each in damage if each.start < end and each.end > start)
        yield _piece(log, segment, start, end, inner)._replace(damage=within, lost=holes, undated=unsure)
        holes = ()


def _piece(log: Log, segment: Segment, start: int, end: int, window: Window) -> Piece:
    made = Piece("", str(log.directory), log.topic, log.partition, segment.base_offset, start, end, window)
    if start >= segment.size:
        return made
    digests = b""
    if not segment.is_known_by_index:
        blocks = slice(start // BLOCK_BYTES * DIGEST_BYTES, count_of(end) * DIGEST_BYTES)
        digests = segment.digests.encode(segment.size)[blocks]
    return made._replace(
        known_bytes=segment.size, digests=digests, append_times=_append_times(segment, start, end)
    )


def _append_times(segment: Segment, start: int, end: int) -> bytes:
    """Return the entries of the append index for the batches in a range of positions, and perhaps a few more."""
    places = np.frombuffer(segment.offset_index.data, np.dtype([("offset", ">i4"), ("position", ">i4")]))
    _, offsets, _ = append_times(segment.append_index.data)
    # An entry of the offset index has the last offset of its batch. All offsets of the next batch are larger.
    before, after = np.searchsorted(places["position"], [start, end], "left")
    first, stop = 0, len(offsets)
    if before:
        first = max(0, int(np.searchsorted(offsets, int(places["offset"][before - 1]) + 1, "right")) - 1)
    if after < len(places):
        stop = int(np.searchsorted(offsets, int(places["offset"][after]), "right"))
    size = append_index.ENTRY_BYTES
    return bytes(memoryview(segment.append_index.data)[first * size : stop * size])


def _meets(segment: Segment, wanted: range, window: Window) -> bool:
    """Return whether a segment may have records at these offsets and times."""
    is_here = segment.base_offset < wanted.stop and segment.next_offset > wanted.start
    return bool(segment.size and wanted) and is_here and lost.is_of(segment, segment.summary, window)


def _cuts(segment: Segment, wanted: range, task_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of positions, each of whole batches, that contain all records of a range of offsets."""
    first, last = wanted.start, wanted.stop
    start = 0 if first <= segment.base_offset else _place(segment, first)[0]
    end = segment.size if last >= segment.next_offset else sum(_place(segment, last - 1))
    while end - start > task_bytes + task_bytes // 4:
        # Advance by at least one index entry, even if a task is smaller than the index interval.
        cut = segment.offset_index.position_at(start + task_bytes)
        cut = cut if cut > start else _next_cut(segment, start)
        if not start < cut < end:
            break
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _next_cut(segment: Segment, position: int) -> int:
    """Return the position of the first batch with an index entry after a position; 0 if there is none."""
    places = np.frombuffer(segment.offset_index.data, ">i4")[1::2]
    number = int(np.searchsorted(places, position, "right"))
    return int(places[number]) if number < len(places) else 0


def _place(segment: Segment, offset: int) -> tuple[int, int]:
    """Return position and size of the batch that holds an offset, or of the damage in its place."""
    try:
        position, size, _ = by_offset.locate(segment, offset, PATIENT)
    except CorruptLog:
        damage = next((each for each in segment.summary.damage if offset < each.next_offset), None)
        if damage is None:
            raise
        return damage.start, damage.end - damage.start
    return position, size
