"""The copy of some segments that becomes one: its batches, its indexes, its summary, all under the mark `.cleaned`.

Owns the order in which a copy is made and put on disk. What of a batch stays says `batch_filter`; how the copy takes
the place of what it was made of, `swap`. Append times are carried over: those of what stays are what they were. Every
other index is made as if these batches had been appended.
"""

from collections.abc import Generator
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files
from tidelog.storage.append_index import AppendTime
from tidelog.storage.compaction.batch_filter import BatchFilter, Kept, Last
from tidelog.storage.compaction.reading import chunks, size_of
from tidelog.storage.layout import SUFFIXES, SUMMARY
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared
from tidelog.storage.summary import NONE, Origin

# What ends the names of a copy until it is whole, and from then on until it is in its place.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"


class Copy:
    """A copy of a group of segments that follow one another."""

    def __init__(self, group: list[Segment], config: TopicConfig, shared: Shared, now_ms: int) -> None:
        """Make the files of one, empty, by a pass that began then. OSError where that cannot be done."""
        first = group[0]
        self.group = group
        self.segment = Segment.begin(
            first.folder,
            first.base_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            shared,
            first.summary.created_ms,
            origin=_origin_of(group),
            mark=CLEANED,
        )
        self.segment.make_files()
        self.segment.summary.cleaned_ms = now_ms  # Batches are to be noted as after that.
        self.segment.summary.is_created_bound = first.summary.is_created_bound
        self._times: list[AppendTime] = []
        self._end = group[-1].next_offset

    def fill(self, of: BatchFilter, safe_end: int) -> Generator[int, None, None]:
        """Copy what stays; yield how many bytes were read and written, after some of them.

        `safe_end` is the offset up to which older segments are clean.
        """
        for source in self.group:
            legacy_deletes_end = source.summary.seen_to if of.is_long_ago(source.summary.seen_ms) else 0
            cursor = _Cursor(source)
            for found in chunks(source):
                kept: list[Kept] = []
                for entry in found:
                    is_last = entry.header.last_offset + 1 >= self._end
                    for one in of.keep(entry, Last(is_last, safe_end, legacy_deletes_end)):
                        kept.append(one)
                        self._note_time(cursor, one)
                data = b"".join(one.data for one in kept)
                if data:
                    self.segment.extend(data, [one.valid for one in kept])
                yield size_of(found) + len(data)

    def _note_time(self, cursor: "_Cursor", one: Kept) -> None:
        header = one.valid.header
        time = cursor.at(header.base_offset)
        last = self._times[-1] if self._times else None
        if last is None or (time.time_ms, time.is_bound) != (last.time_ms, last.is_bound):
            offset = header.base_offset - self.segment.base_offset if last is not None else 0
            self._times.append(AppendTime(time.time_ms, offset, time.is_bound))

    def finish(self, of: BatchFilter, cleaned_to: int) -> None:
        """Put all of it on disk, with what is known of the pass; its names are not there yet."""
        segment, summary = self.segment, self.segment.summary
        segment.write_append_times(self._times)
        summary.appended_from = summary.next_offset
        summary.first_append_ms = self._times[0].time_ms
        summary.last_append_ms = max(each.summary.last_append_ms for each in self.group)
        # What was clean before stays so, though this pass may not have come as far.
        summary.cleaned_to = max(cleaned_to, min(each.summary.cleaned_to for each in self.group))
        summary.seen_to, summary.seen_ms = seen(self.group, of, cleaned_to, summary.cleaned_ms)
        summary.source_bytes = sum(each.size for each in self.group)
        segment.finish(flushed=True)
        segment.sync()
        files.sync(segment.path(SUMMARY))
        segment.believe(summary, finished=True)

    def drop(self) -> None:
        """Remove the files: nothing came of it."""
        self.segment.close()
        for mark in (CLEANED, SWAP):
            self.segment.mark = mark
            for suffix in SUFFIXES:
                files.remove(self.segment.path(suffix))


def _origin_of(group: list[Segment]) -> Origin:
    """Return where the batches of a copy come from: from elsewhere, if those of any of its sources do."""
    is_ours = all(each.summary.origin != Origin.IMPORTED for each in group)
    return Origin.COMPACTED if is_ours else Origin.IMPORTED


def seen(group: list[Segment], of: BatchFilter, cleaned_to: int, now_ms: int) -> tuple[int, int]:
    """Return up to where, and when, tombstones of older formats were met that a pass has left in a group.

    What the first segment says holds until their time has come: passes that come more often than that would else put it
    off for ever. Those behind it are told of then.
    """
    first = group[0].summary
    if first.seen_ms != NONE and not of.is_long_ago(first.seen_ms):
        return first.seen_to, first.seen_ms
    return min(cleaned_to, group[-1].next_offset), now_ms


class _Cursor:
    """The append times of a segment's batches, asked for in their order."""

    __slots__ = ("_base_offset", "_index", "_number")

    def __init__(self, segment: Segment) -> None:
        self._index = segment.append_index
        self._base_offset = segment.base_offset
        self._number = 0

    def at(self, offset: int) -> AppendTime:
        index, relative_offset = self._index, offset - self._base_offset
        while (
            self._number + 1 < len(index) and index.entry(self._number + 1).relative_offset <= relative_offset
        ):
            self._number += 1
        return index.entry(self._number)
