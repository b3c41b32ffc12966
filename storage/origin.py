"""Where the batches of a segment came from: they were appended here, compacted here, or brought from elsewhere.

Owns what follows for offsets that a segment lacks: whether compaction may have left them out, or they are lost. The
append index tells, and the summary where that leaves it open. Knows nothing of what is done about lost offsets.
"""

from bisect import bisect_left

from tidelog.storage import files, walk
from tidelog.storage.append_index import ENTRY, ENTRY_BYTES, sound_entries, tells_of_compaction
from tidelog.storage.segment import APPEND_INDEX, Segment


class Origin:
    """Whether a segment is as it was appended here, where no offset is left out, or may lack some.

    It may where its entries tell of compaction. What came from elsewhere, compacted perhaps, has a bound for its first
    entry, or was told its times by its own batches, if these are of LogAppendTime: then the first entry is exact
    whoever appended them.
    """

    def __init__(self, data: bytes, base_offset: int, file: files.File, size: int) -> None:
        """Look at the entries and at the first batch of a log."""
        entries = list(sound_entries(data, base_offset))
        self._exact = [base_offset + each.relative_offset for each in entries if each and not each.is_bound]
        self._begins_exactly = bool(entries and entries[0] and not entries[0].is_bound)
        self.has_times = len(data) >= ENTRY_BYTES and ENTRY.unpack_from(data)[1] >= 0
        batches = walk.verified(file, 0, size, base_offset, base_offset)
        header = next((batch.header for batch in batches if batch.header is not None), None)
        self._is_stamped = header is not None and header.is_log_append_time
        self._is_compacted = tells_of_compaction(data, base_offset)

    @property
    def is_here(self) -> bool:
        """Whether all of it is surely as it was appended here."""
        return self.has_times and not self._is_compacted and not self._is_stamped

    def may_skip(self, expected: int, offset: int) -> bool:
        """Tell whether a batch may begin with a larger offset than the one that follows the batch before it."""
        if self._is_compacted:
            return True
        number = bisect_left(self._exact, expected)
        was_between = number < len(self._exact) and self._exact[number] < offset
        return not self.is_here and not was_between

    def fills_its_range(self, is_created_bound: int) -> bool:
        """Tell whether it reached from its base to the base of the segment after it when it was sealed.

        That holds for what was appended here, and for a copy that compaction has made of it, as a copy ends where its
        sources ended. Batches of LogAppendTime give exact entries to what came from elsewhere too. Only a segment that
        was begun here has a creation time that is no bound.
        """
        return self._begins_exactly and not (self._is_stamped and is_created_bound)


def of(segment: Segment) -> Origin | None:
    """Return where a segment's batches came from; None if it has no append times to tell."""
    data = files.load(segment.path(APPEND_INDEX))
    return Origin(data, segment.base_offset, segment.file, segment.size) if data else None


def is_gap_lost(before: Segment, following: Segment) -> bool:
    """Tell whether offsets between two neighbours were given out here, so that they are lost if no segment has them.

    Kafka's compaction leaves such gaps in what came from elsewhere. One that is empty tells nothing of itself: `before`
    may be all that compaction elsewhere has left, `following` was begun at the end of the log.
    """
    return bool(before.size) and all(_fills_its_range(each) for each in (before, following) if each.size)


def _fills_its_range(segment: Segment) -> bool:
    found = of(segment)
    return found is not None and found.fills_its_range(segment.summary.is_created_bound)
