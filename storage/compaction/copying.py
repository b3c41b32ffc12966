"""The copy of a group of segments: one segment, whose file names end with `.cleaned`.

Owns the order in which a copy is written and flushed. `batch_filter` says which records stay; `swap` replaces the group
by the copy. Batches keep their append times. The other indexes are built as if the batches had been appended.
"""

from collections.abc import Generator
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files
from tidelog.storage.append_index import AppendTime
from tidelog.storage.compaction.batch_filter import BatchFilter, Kept, Place
from tidelog.storage.compaction.reading import chunks, size_of
from tidelog.storage.errors import ReadFailed
from tidelog.storage.layout import LOG, SUFFIXES, SUMMARY
from tidelog.storage.segment import Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.summary import NONE, Origin, Summary

# The end of a copy's file names until it is complete, and from then on until `swap` has renamed them.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"


class Copy:
    """A copy of a group of segments that follow one another."""

    def __init__(self, group: list[Segment], config: TopicConfig, shared: Shared, now_ms: int) -> None:
        """Create the empty files, for a pass that began at `now_ms`. Raise OSError."""
        first = group[0]
        self.group = group
        self.segment = Segment.begin(
            first.folder,
            first.base_offset,
            config,
            shared,
            first.summary.created_ms,
            origin=_origin_of(group),
            mark=CLEANED,
        )
        self.segment.make_files()
        self.segment.summary.cleaned_ms = now_ms  # Before batches are added: `note_rare` uses it.
        self.segment.summary.is_created_bound = first.summary.is_created_bound
        self._times: list[AppendTime] = []
        self._end = group[-1].next_offset

    def fill(self, rules: BatchFilter, safe_end: int) -> Generator[int, None, None]:
        """Copy what stays; each step yields how many bytes it has read and written.

        `safe_end` is the offset up to which older segments are clean.
        """
        for source in self.group:
            legacy_deletes_end = source.summary.seen_to if rules.is_long_ago(source.summary.seen_ms) else 0
            cursor = _Cursor(source)
            for found in chunks(source):
                kept: list[Kept] = []
                for entry in found:
                    is_last = entry.header.last_offset + 1 >= self._end
                    for one in rules.keep(entry, Place(is_last, safe_end, legacy_deletes_end)):
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

    def finish(self, rules: BatchFilter, cleaned_to: int) -> None:
        """Put the content of all files on disk, with the results of the pass; the file names are not durable yet."""
        segment, summary = self.segment, self.segment.summary
        segment.write_append_times(self._times)
        summary.appended_from = summary.next_offset
        summary.first_append_ms = self._times[0].time_ms
        summary.last_append_ms = max(each.summary.last_append_ms for each in self.group)
        # An earlier pass may have come further than this one.
        summary.cleaned_to = max(cleaned_to, min(each.summary.cleaned_to for each in self.group))
        summary.seen_to, summary.seen_ms = seen(self.group, rules, cleaned_to, summary.cleaned_ms)
        summary.source_bytes = sum(each.size for each in self.group)
        segment.finish(flushed=True)
        segment.sync()
        files.sync(segment.path(SUMMARY))
        segment.use_summary(summary, finished=True)

    def drop(self) -> None:
        """Remove the files of a copy that is not needed."""
        self.segment.close()
        # The folder of a deleted log has another name; a new topic may have one of the old name.
        self.segment.folder = self.group[0].folder
        for mark in (CLEANED, SWAP):
            self.segment.mark = mark
            for suffix in SUFFIXES:
                files.remove(self.segment.path(suffix))


def made(group: list[Segment], config: TopicConfig, shared: Shared) -> Segment:
    """Open the copy of a group that another process has made. Raise OSError or ReadFailed."""
    first = group[0]
    segment = Segment(
        first.folder, first.base_offset, 0, first.summary, config.segment_index_bytes, shared, State.COPY
    )
    segment.mark = CLEANED
    summary = Summary.load(segment.path(SUMMARY))
    if summary is not None:
        segment.size = summary.log_bytes
        segment.use_summary(summary, finished=True)
        found = files.status(segment.path(LOG))
        if found is not None and found.size == segment.size and segment.load_indexes() is not None:
            # Open them before `swap` renames them: a reader might find neither the old name nor the new one.
            _ = segment.file, segment.append_index
            return segment
    raise ReadFailed(
        f"{segment.path(LOG)}: this copy of {len(group)} segments is not whole; it is made again"
    )


def _origin_of(group: list[Segment]) -> Origin:
    """Return the origin of a copy: imported, if any of its sources is."""
    is_ours = all(each.summary.origin != Origin.IMPORTED for each in group)
    return Origin.COMPACTED if is_ours else Origin.IMPORTED


def seen(group: list[Segment], rules: BatchFilter, cleaned_to: int, now_ms: int) -> tuple[int, int]:
    """Return up to which offset, and when, a pass has seen the tombstones of older formats that it leaves in a group.

    The first segment's values stay until their delay is over: otherwise frequent passes would put it off for ever.
    Later tombstones are recorded then.
    """
    first = group[0].summary
    if first.seen_ms != NONE and not rules.is_long_ago(first.seen_ms):
        return first.seen_to, first.seen_ms
    return min(cleaned_to, group[-1].next_offset), now_ms


class _Cursor:
    """Looks up the append times of a segment's batches, in the order of the batches."""

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
