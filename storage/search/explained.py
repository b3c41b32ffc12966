"""Explains a lookup by time: which segments were skipped and why, what was read, what was found.

Owns the words for it. Decides nothing: it searches each segment with the functions of `by_time`, through a source that
counts, and the answer is that of `by_time`, or of `time_range` for a range. It also tells what an answer does not: that
an append time is a bound, and which damage was skipped.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.storage.errors import CorruptLog
from tidelog.storage.files import File
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, by_time, time_range
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME, Found, Timeline
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT, Source
from tidelog.storage.summary import OFFSET_MAX, Damage

SEARCHED, SKIPPED, NOT_REACHED = "searched", "skipped", "not reached"


class Step(NamedTuple):
    """What a search did with a segment."""

    segment: Segment
    what: str  # one of the words above
    why: str
    largest_ms: int  # the largest time in it, by the clock of the search; -1 for none
    time_entry: tuple[int, int] | None = None  # the time and offset of an entry of the time or append index
    is_entry_bound: bool = False  # whether the time of an append index entry is only an upper bound
    position: int | None = None  # where the walk over batches begins, by the offset index
    reads: int = 0
    bytes_read: int = 0  # of the log, without the verification that comes once after a start
    found: Found | None = None


class Unread(NamedTuple):
    """Damage that a search skipped, in which records of the wanted time may have been."""

    segment: Segment
    start: int  # positions; `start` and `end` are equal if the bytes are lost, too
    end: int
    next_offset: int


class Explained(NamedTuple):
    """An answer, and the steps that led to it."""

    answer: Found | None
    steps: list[Step]


class ExplainedRange(NamedTuple):
    """The offsets of a range of times, and how much was read to find them."""

    offsets: range
    reads: int
    bytes_read: int


class _Counter:
    """A patient source that counts."""

    def __init__(self) -> None:
        self.reads = self.bytes = 0
        self.source = Source(self._read, waiting=True, prompt=False)

    def _read(self, file: File, count: int, position: int) -> memoryview:
        data = PATIENT.read(file, count, position)
        self.reads += 1
        self.bytes += len(data)
        return data


def first_at_or_after(log: Log, timestamp_ms: int, timeline: Timeline) -> Explained:
    """Search as `by_time.first_at_or_after` does, and return the steps too."""
    wanted = max(timestamp_ms, 0)
    steps: list[Step] = []
    answer: Found | None = None
    for segment in log.segments:
        largest_ms = timeline.largest(segment)
        if answer is not None:
            steps.append(Step(segment, NOT_REACHED, f"offset {answer.offset} comes before it", largest_ms))
            continue
        why = _why_skipped(log, segment, wanted, largest_ms)
        if why:
            steps.append(Step(segment, SKIPPED, why, largest_ms))
            continue
        step = _searched(log, segment, wanted, timeline)
        answer = step.found
        steps.append(step)
    return Explained(by_time.first_at_or_after(log, timestamp_ms, timeline, PATIENT), steps)


def between(log: Log, from_ms: int, to_ms: int, timeline: Timeline) -> ExplainedRange:
    """Search as `time_range.between` does, and count what was read."""
    counter = _Counter()
    found = time_range.between(log, from_ms, to_ms, timeline, counter.source)
    return ExplainedRange(found, counter.reads, counter.bytes)


def is_bound(log: Log, offset: int, timeline: Timeline) -> bool:
    """Tell whether the time of a record, by a clock, is only an upper bound."""
    if timeline is not APPEND_TIME:
        return False
    segment = next(each for each in reversed(log.segments) if each.base_offset <= offset)
    place = by_offset.locate(segment, offset, PATIENT)
    header, _ = by_offset.with_header(segment, place, PATIENT)
    return segment.append_index.time_at(header.base_offset - segment.base_offset).is_bound


def unread_before(log: Log, answer: Found | None, wanted: int, timeline: Timeline) -> list[Unread]:
    """Return the damage that a search for the first record at or after a time skipped."""
    end = OFFSET_MAX if answer is None else answer.offset
    return [each for each in _unread(log, wanted, None, timeline) if each.next_offset <= end]


def unread_beside(log: Log, offsets: range, from_ms: int, to_ms: int, timeline: Timeline) -> list[Unread]:
    """Return the damage outside a range's offsets in which records of its times may have been."""
    # By append time the index has the end of the range, whatever is damaged there.
    end = OFFSET_MAX if timeline is APPEND_TIME and offsets else offsets.stop
    unread = _unread(log, from_ms, to_ms, timeline)
    return [each for each in unread if not offsets.start < each.next_offset <= end]


def _unread(log: Log, from_ms: int, to_ms: int | None, timeline: Timeline) -> Iterator[Unread]:
    """Yield the damage, from the log's start on, in which records of a range of times may have been."""
    for segment in log.segments:
        for damage in segment.summary.damage:
            may_be = timeline is RECORD_TIME or _may_be_appended_in(segment, damage, from_ms, to_ms)
            if may_be and log.log_start_offset < damage.next_offset:
                yield Unread(segment, *damage)


def _may_be_appended_in(segment: Segment, damage: Damage, from_ms: int, to_ms: int | None) -> bool:
    """Tell whether damaged batches may have been appended in a range of times, by the append index."""
    index, base_offset = segment.append_index, segment.base_offset
    if not len(index):
        return True
    first = index.offset_from(from_ms)
    if first is None or damage.next_offset <= base_offset + first:
        return False
    later = None if to_ms is None else index.offset_surely_from(to_ms)
    if later is None:
        return True
    if later <= first:
        return False
    try:
        return damage.start < by_offset.locate(segment, base_offset + later, PATIENT)[0]
    except CorruptLog:
        reached = next(each for each in segment.summary.damage if each.next_offset > base_offset + later)
        return damage.start <= reached.start


def _why_skipped(log: Log, segment: Segment, wanted: int, largest_ms: int) -> str:
    if segment.next_offset <= log.log_start_offset:
        return f"it ends before the log's start, {log.log_start_offset}"
    return (
        ""
        if largest_ms >= wanted
        else "its largest time is earlier"
        if largest_ms >= 0
        else "it has no times"
    )


def _searched(log: Log, segment: Segment, wanted: int, timeline: Timeline) -> Step:
    counter = _Counter()
    found = by_time.found_in(timeline.first, log, segment, counter.source, log.log_start_offset, wanted)
    # The search may have had it rebuilt.
    current = next((each for each in log.segments if each.base_offset == segment.base_offset), segment)
    entry, position = _entries(log, current, wanted, timeline)
    is_bound = False
    if timeline is APPEND_TIME and entry is not None:
        is_bound = current.append_index.entry(current.append_index.find(wanted)[0]).is_bound
    why = "the first such record is in it" if found else "no such record is left in it"
    largest_ms = timeline.largest(current)
    return Step(
        current, SEARCHED, why, largest_ms, entry, is_bound, position, counter.reads, counter.bytes, found
    )


def _entries(
    log: Log, segment: Segment, wanted: int, timeline: Timeline
) -> tuple[tuple[int, int] | None, int]:
    """Return the index entry from which the search began, and the position that the offset index has for it."""
    base_offset = segment.base_offset
    first = log.log_start_offset - base_offset
    if timeline is APPEND_TIME:
        number, time_ms, _ = segment.append_index.find(wanted)
        if number == len(segment.append_index):
            return None, segment.offset_index.around(first)[0]
        relative = segment.append_index.entry(number).relative_offset
        return (time_ms, base_offset + relative), segment.offset_index.around(max(relative, first))[0]
    number, time_ms, relative = segment.time_index.find(wanted)
    # Batches after the last entry have none yet; the search walks over them.
    entry = (time_ms, base_offset + relative) if number < len(segment.time_index) else None
    last = segment.time_index.offset_from(wanted) - 1
    return entry, segment.offset_index.around(max(last, first))[0]
