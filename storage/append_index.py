"""The append index of a segment: the append time of every batch, which on most topics is nowhere else.

An entry is `int64 append time, int32 offset - base, uint32 checksum`, big-endian: batches from that offset on, up to
the next entry's, were appended at that time. Append times never go back, so an entry is made where the time is another
than that of the batch before, and both fields rise. An offset o stored as `-1 - o` says that the time is a bound: those
batches were appended then or earlier, but not before the entry before. The checksum is a CRC-32C of the segment's base
offset and the first twelve bytes: each entry speaks for itself, and for no other segment.

The one index that is no function of the log. An entry is written before its batch, so a killed process loses none; a
power cut may take some, and what is lost is bounded from above when the log is loaded (`mended`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from crc32c import crc32c

from tidelog.storage import files, walk
from tidelog.storage.index_file import IndexFile
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.summary import SUFFIX as SUMMARY
from tidelog.storage.summary import Summary

LOG = ".log"
ENTRY = Struct(">qiI")
ENTRY_BYTES = ENTRY.size
_FIELDS = Struct(">qi")
_BASE = Struct(">q")
_COMPACTED = b"c"
_unpack = ENTRY.unpack_from
_pack = _FIELDS.pack

Data = bytes | bytearray | files.Map


class AppendTime(NamedTuple):
    """When batches from a relative offset on were appended, up to those of the next entry."""

    time_ms: int
    relative_offset: int
    is_bound: bool  # then, or earlier


class AppendIndex(IndexFile):
    """Entries by append time."""

    __slots__ = ("__weakref__", "_file", "_is_file_to_cut", "_opened", "_seed")
    entry_bytes: ClassVar[int] = ENTRY_BYTES
    key_bytes: ClassVar[int] = 8

    def __init__(self, path: Path, base_offset: int, data: Data, opened: OpenSegments) -> None:
        """Hold entries that are in the file already; `opened` bounds how many of them hold it open."""
        super().__init__(path, data, len(data))
        self._seed = _seed_of(data, base_offset)
        self._opened = opened
        self._file: files.File | None = None
        self._is_file_to_cut = False  # entries were dropped that the file may still hold

    def append_if_later(self, relative_offset: int, time_ms: int) -> None:
        """Add an entry for a batch that is about to be written, unless the one before was appended at that time too.

        It is in the file on return. OSError if it is not.
        """
        if self.data:
            last_ms, _, is_bound = _entry(self.data, len(self) - 1)
            if last_ms == time_ms and not is_bound:
                return
        fields = _pack(time_ms, relative_offset)
        entry = fields + crc32c(fields, self._seed).to_bytes(4, "big")
        (self._file or self._open()).append(entry)
        self._append(entry)

    def _open(self) -> files.File:
        file = files.File(self.path, create=True)
        if file.size != len(self.data):
            file.truncate(len(self.data))
        with self._opened.lock:
            self._file = file
            self._opened.note(self)
        return file

    def cut(self, relative_offset: int) -> None:
        """Drop the entries of batches from an offset on, on disk as well: none may come back for another batch."""
        if self.drop(relative_offset) or self._is_file_to_cut:
            self.cut_file()

    def cut_file(self) -> None:
        """Have the file end where these entries do, on disk."""
        # Until that is done: whoever comes again after an error drops nothing any more.
        self._is_file_to_cut = True
        file = self._file or self._open()
        file.truncate(len(self.data))
        self._sync(file)
        self._is_file_to_cut = False

    def drop(self, relative_offset: int) -> bool:
        """Drop the entries of batches from an offset on, in memory only; tell whether there were any."""
        count = _count_before(self.data, relative_offset)
        is_shorter = count < len(self)
        self.keep(count)
        return is_shorter

    def replace_file(self) -> None:
        """Have the file hold these entries and no others, on disk.

        A summary that vouches for others is to vouch for these before: it would make them those of another log.
        """
        path = self.path.with_suffix(SUMMARY)
        summary = Summary.load(path)
        if summary is not None and not is_vouched(self.data, summary):
            summary.append_entries, summary.append_crc = len(self), self.save()
            files.write_atomically(path, summary.encode())
        is_new = files.status(self.path) is None
        file = files.File(self.path, create=True)
        file.write_at(bytes(self.data), 0)
        file.truncate(len(self.data))
        self._sync(file)
        if is_new:
            files.sync_folder(self.path.parent)

    def _sync(self, file: files.File) -> None:
        """Put what replaces entries on disk, no newer than the log: else it would be taken for cut by others."""
        with suppress(FileNotFoundError):  # The log was just deleted.
            files.date_as(self.path, self.path.with_suffix(LOG))
        file.sync()

    def mend_file(self) -> None:
        """Have the file hold these entries if it holds others.

        Call before a summary goes: without that nothing tells of entries which the file has lost.
        """
        if files.load(self.path) != bytes(self.data):
            self.replace_file()

    def entry(self, number: int) -> AppendTime:
        """Return an entry."""
        return _entry(self.data, number)

    def offset_from(self, time_ms: int) -> int | None:
        """Return the relative offset from which on batches were appended at or after a time, or may have been."""
        number, _, _ = self.find(time_ms)
        return _entry(self.data, number).relative_offset if number < len(self) else None

    def offset_surely_from(self, time_ms: int) -> int | None:
        """Return the relative offset from which on all batches were appended at or after a time; None if unknown."""
        number, _, _ = self.find(time_ms)
        while number < len(self):
            entry = _entry(self.data, number)
            if not entry.is_bound:
                return entry.relative_offset
            number += 1
        return None

    def time_at(self, relative_offset: int) -> AppendTime:
        """Return the entry that says when the batch that begins with an offset was appended."""
        return _entry(self.data, max(_count_before(self.data, relative_offset + 1) - 1, 0))

    def save(self, final: bytes = b"") -> int:
        """Return the CRC-32C of all entries, which are in the file already. Nothing is forced to disk."""
        assert not final
        self._saved_crc = crc32c(bytes(self.data[self._saved_bytes :]), self._saved_crc)
        self._saved_bytes = len(self.data)
        return self._saved_crc

    def let_go(self) -> None:
        """Let go of the file until the next entry is added."""
        self._file = None


def _entry(data: Data, number: int) -> AppendTime:
    time_ms, offset, _ = _unpack(data, number * ENTRY_BYTES)
    return AppendTime(time_ms, offset if offset >= 0 else -1 - offset, offset < 0)


def _count_before(data: Data, relative_offset: int) -> int:
    """Count the entries below an offset."""
    numbers = range(len(data) // ENTRY_BYTES)
    return bisect_right(numbers, relative_offset - 1, key=lambda number: _entry(data, number).relative_offset)


def encoded(entries: Iterable[AppendTime], base_offset: int, is_compacted: bool = False) -> bytes:
    """Return the bytes of a file that holds these entries."""
    seed = _seed(base_offset, is_compacted)
    parts = []
    for time_ms, offset, is_bound in entries:
        fields = _pack(time_ms, -1 - offset if is_bound else offset)
        parts.append(fields + crc32c(fields, seed).to_bytes(4, "big"))
    return b"".join(parts)


def _seed(base_offset: int, is_compacted: bool = False) -> int:
    return crc32c(_BASE.pack(base_offset) + (_COMPACTED if is_compacted else b""))


def tells_of_compaction(data: Data, base_offset: int) -> bool:
    """Tell whether a file is of a segment that compaction has made: the first entry whose checksum is right says so."""
    seeds = _seed(base_offset), _seed(base_offset, is_compacted=True)
    for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        fields = data[position : position + _FIELDS.size]
        _, _, crc = _unpack(data, position)
        for is_compacted, seed in enumerate(seeds):
            if crc == crc32c(fields, seed):
                return bool(is_compacted)
    return False


def _seed_of(data: Data, base_offset: int) -> int:
    return _seed(base_offset, tells_of_compaction(data, base_offset))


def sound_entries(
    data: bytes, base_offset: int, last: AppendTime | None = None
) -> Iterator[AppendTime | None]:
    """Yield the entries of a file, or those after `last`; None for each that is damaged, or does not rise."""
    seed = _seed_of(data, base_offset)
    last_ms, last_offset = (-1, -1) if last is None else last[:2]
    for number in range(len(data) // ENTRY_BYTES):
        entry, position = _entry(data, number), number * ENTRY_BYTES
        _, _, crc = _unpack(data, position)
        is_sound = crc == crc32c(data[position : position + _FIELDS.size], seed)
        if is_sound and entry.time_ms >= last_ms and entry.relative_offset > last_offset:
            last_ms, last_offset, _ = entry
            yield entry
        else:
            yield None


# What is made of a file after a stop that may have taken some of it.


class Described(NamedTuple):
    """A segment's log, and what is known of its batches."""

    file: files.File
    size: int
    base_offset: int
    summary: Summary


def bound_ms(summary: Summary, modified_ms: int, now_ms: int) -> int:
    """Return a time by which all that a summary describes was appended: that of its file, unless that is still to come.

    Where its newest record, too, is from after now, it is the clock that is wrong: a machine that starts in the past.
    """
    return max(summary.last_append_ms, min(modified_ms, max(now_ms, summary.max_timestamp)))


def first_ms(path: Path, base_offset: int) -> int | None:
    """Return when the first batch of a segment was appended, by its file; None where that does not say so."""
    data = (files.load(path) or b"")[:ENTRY_BYTES]
    entry = next(sound_entries(data, base_offset), None)
    return None if entry is None or entry.is_bound else entry.time_ms


def last_offset(data: Data, base_offset: int) -> int | None:
    """Return the relative offset of the last entry that is whole; None if there is none, or it is damaged."""
    start = len(data) // ENTRY_BYTES * ENTRY_BYTES - ENTRY_BYTES
    if start < 0:
        return None
    fields = data[start : start + _FIELDS.size]
    _, _, crc = _unpack(data, start)
    if crc not in (crc32c(fields, _seed(base_offset)), crc32c(fields, _seed(base_offset, is_compacted=True))):
        return None
    return _entry(data, start // ENTRY_BYTES).relative_offset


def is_whole(data: Data, summary: Summary) -> bool:
    """Tell whether a file holds what a summary vouches for, and nothing else."""
    return len(data) == summary.append_entries * ENTRY_BYTES and is_vouched(data, summary)


def is_vouched(data: Data, summary: Summary) -> bool:
    """Tell whether a file begins with what a summary vouches for, if it does for any."""
    size = _vouched_bytes(summary)
    return size <= len(data) and crc32c(memoryview(data)[:size]) == (summary.append_crc if size else 0)


def _vouched_bytes(summary: Summary) -> int:
    return max(summary.append_entries, 0) * ENTRY_BYTES


def is_cut(data: Data, log: Described, *, is_newer: bool) -> bool:
    """Tell whether a file has lost entries from its end, as far as anybody can tell.

    An entry is written before its batch. So where the file `is_newer` than the log somebody has changed it since, and
    it ends with an entry for a batch that was not written any more, or it was cut. Compaction writes it last.
    """
    if len(data) % ENTRY_BYTES or len(data) < _vouched_bytes(log.summary):
        return True
    if not is_newer or tells_of_compaction(data, log.base_offset):
        return False
    end = log.summary.next_offset - log.base_offset
    return not data or _entry(data, len(data) // ENTRY_BYTES - 1).relative_offset < end


def _is_of_another_log(data: Data, log: Described) -> bool:
    """Tell whether entries of which each is sound are not those that the summary vouches for.

    They can be of another log, whose segment begins with the same offset. Where one is damaged, or the file is cut,
    what is left of it is of this log as far as anybody can tell.
    """
    size = _vouched_bytes(log.summary)
    if len(data) < size or is_vouched(data, log.summary):
        return False
    return all(sound_entries(bytes(data[:size]), log.base_offset))


def begins_otherwise(data: Data, base_offset: int, summary: Summary) -> bool:
    """Tell whether a summary is of a log whose first batch was appended at another time than the entries say.

    An entry that is a bound says nothing, nor does a summary that vouches for these entries.
    """
    if summary.append_entries <= 0 or is_vouched(data, summary):
        return False
    first = next(sound_entries(bytes(data[:ENTRY_BYTES]), base_offset), None)
    return first is not None and not first.is_bound and first.time_ms != summary.first_append_ms


def mended(data: Data, log: Described, bound_ms: int, *, is_tail_lost: bool) -> bytearray:
    """Return what a file is to hold of the batches that there are: what is sound of it, and bounds for what is not.

    All batches were appended by `bound_ms`, which stands in after the last entry where `is_tail_lost`. Entries that the
    summary vouches for are not looked at; of a file of another log none is believed.
    """
    base_offset, end = log.base_offset, log.summary.next_offset - log.base_offset
    if _is_of_another_log(data, log):
        data = b""
    kept = bytearray(data[: _vouched_bytes(log.summary)] if is_vouched(data, log.summary) else b"")
    del kept[_count_before(kept, end) * ENTRY_BYTES :]
    last = _entry(kept, len(kept) // ENTRY_BYTES - 1) if kept else None
    rest = rest_of(bytes(data[len(kept) :]), base_offset, last, end, bound_ms, is_tail_lost)
    if any(entry.is_bound for entry in rest):
        rest = _exact(rest, _stamps(log, rest[0].relative_offset))
    return kept + encoded(rest, base_offset, tells_of_compaction(data, base_offset))


def rest_of(
    data: bytes, base_offset: int, last: AppendTime | None, end: int, bound_ms: int, is_tail_lost: bool
) -> list[AppendTime]:
    """Return what bytes that follow the entry `last` say of batches before a relative offset, and bounds for others."""
    entries = [] if last is None else [last]
    has_gap = last is None
    for entry in sound_entries(data, base_offset, last):
        if entry is None:
            has_gap = True
            continue
        if entry.relative_offset >= end:
            break
        if has_gap:
            entries += _bound(entries, entry.time_ms, entry.relative_offset)
        has_gap = False
        entries.append(entry)
    if has_gap or is_tail_lost:
        entries += _bound(entries, max(bound_ms, entries[-1].time_ms if entries else 0), end)
    return entries if last is None else entries[1:]


def _bound(entries: list[AppendTime], time_ms: int, before_offset: int) -> list[AppendTime]:
    """Return an entry that bounds what comes after the first offset of the last entry; none if that does so already."""
    first = entries[-1].relative_offset + 1 if entries else 0
    is_bound = bool(entries) and entries[-1].is_bound and entries[-1].time_ms == time_ms
    return [] if is_bound or first >= before_offset else [AppendTime(time_ms, first, True)]


def _stamps(log: Described, start: int) -> Iterator[tuple[int, int | None]]:
    """Yield (relative offset, append time) of each batch from a relative offset on, the time where it carries one.

    Nothing, if the first batch of the log carries none: most logs are not read for it.
    """
    damage = log.summary.damage
    starts, ends = [0, *(each.end for each in damage)], [*(each.start for each in damage), log.size]
    for first, end in zip(starts, ends, strict=True):
        for position, header in walk.headers(log.file, first, end):
            if not position and not header.is_log_append_time:
                return
            offset = header.base_offset - log.base_offset
            if offset >= start:
                yield offset, header.max_timestamp if header.is_log_append_time else None


def _exact(entries: list[AppendTime], stamps: Iterable[tuple[int, int | None]]) -> list[AppendTime]:
    """Return the entries for batches, each of a relative offset and perhaps its append time; as they are for none."""
    exact: list[AppendTime] = []
    number, last_ms = 0, -1
    for offset, time_ms in stamps:
        while number + 1 < len(entries) and entries[number + 1].relative_offset <= offset:
            number += 1
        if time_ms is None:
            entry = entries[number]._replace(relative_offset=offset)
        else:
            # Kafka's may go back with its clock.
            entry = AppendTime(max(time_ms, last_ms), offset, False)
        if not exact or entry[::2] != exact[-1][::2]:
            exact.append(entry)
        last_ms = entry.time_ms
    return exact or entries
