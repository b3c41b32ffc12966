"""A lookup by time, told step by step: which segments were passed over and why, what was read, what was found.

Owns the words for it. Decides nothing: each segment is asked by the functions with which `by_time` asks it, through a
source that counts, and the answer is that of `by_time`. Knows nothing of who wants to know.
"""

from typing import NamedTuple

from tidelog.storage.files import File
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import APPEND_TIME, Found, Timeline
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT, Source

SEARCHED, SKIPPED, BEHIND = "searched", "skipped", "not reached"


class Step(NamedTuple):
    """What became of a segment in a search."""

    segment: Segment
    what: str  # one of the words above
    why: str
    largest_ms: int  # the largest time in it, by the clock of the search; -1 for none
    time_entry: tuple[int, int] | None = None  # of the time or append index: its time, its offset
    position: int | None = None  # where, by the offset index, the walk over batches begins
    reads: int = 0
    bytes_read: int = (
        0  # of the log, each time it was read; what is verified once after a start is not counted
    )
    found: Found | None = None


class Explained(NamedTuple):
    """An answer, and how it came about."""

    answer: Found | None
    steps: list[Step]


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
    """Search as `by_time.first_at_or_after` does, and tell what was done."""
    wanted = max(timestamp_ms, 0)
    steps: list[Step] = []
    answer: Found | None = None
    for segment in log.segments:
        largest_ms = timeline.largest(segment)
        if answer is not None:
            steps.append(Step(segment, BEHIND, f"offset {answer.offset} comes before it", largest_ms))
            continue
        why = _why_skipped(log, segment, wanted, largest_ms)
        if why:
            steps.append(Step(segment, SKIPPED, why, largest_ms))
            continue
        step = _searched(log, segment, wanted, timeline)
        answer = step.found
        steps.append(step)
    return Explained(by_time.first_at_or_after(log, timestamp_ms, timeline, PATIENT), steps)


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
    # It may have been judged meanwhile.
    current = next((each for each in log.segments if each.base_offset == segment.base_offset), segment)
    entry, position = _entries(log, current, wanted, timeline)
    why = "the first such record is in it" if found else "no such record is left in it"
    largest_ms = timeline.largest(current)
    return Step(current, SEARCHED, why, largest_ms, entry, position, counter.reads, counter.bytes, found)


def _entries(
    log: Log, segment: Segment, wanted: int, timeline: Timeline
) -> tuple[tuple[int, int] | None, int]:
    """Return the entry by which the search knew where to begin, and the position that the offset index gives for it."""
    base_offset = segment.base_offset
    first = log.log_start_offset - base_offset
    if timeline is APPEND_TIME:
        number, time_ms, _ = segment.append_index.find(wanted)
        if number == len(segment.append_index):
            return None, segment.offset_index.around(first)[0]
        relative = segment.append_index.entry(number).relative_offset
        return (time_ms, base_offset + relative), segment.offset_index.around(max(relative, first))[0]
    number, time_ms, relative = segment.time_index.find(wanted)
    # What comes after the last entry was not given one yet: it is walked over from there.
    entry = (time_ms, base_offset + relative) if number < len(segment.time_index) else None
    last = segment.time_index.offset_from(wanted) - 1
    return entry, segment.offset_index.around(max(last, first))[0]
