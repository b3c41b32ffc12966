"""The append index of a segment: the append time of every batch, which on most topics is nowhere else.

The file is a header, which says whose entries follow (`Header`), and the entries. An entry is `int64 append time, int32
offset - base, uint32 CRC-32C` of the first twelve bytes, big-endian: batches from that offset on, up to the next
entry's, were appended at that time. Append times never go back, so an entry is made where the time is another than that
of the batch before, and both fields rise. An offset o stored as `-1 - o` says that the time is a bound: those batches
were appended then or earlier, but not before the entry before. A file without entries is empty.

This index is no function of the log. An entry is written before its batch, so a killed process loses none. A power cut
may take some, and what is lost is bounded from above when the log is loaded (`mended`). Entries are trusted if the
segment's summary has their checksum, or if the header names the segment and the entry's own checksum is right.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from crc32c import crc32c

from tidelog.storage import files, walk
from tidelog.storage.index_file import Data, IndexFile
from tidelog.storage.layout import SUMMARY, load_topic_id, partition_of
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.summary import Origin, Summary

ENTRY = Struct(">qiI")
ENTRY_BYTES = ENTRY.size
MAGIC = b"TLAI"
VERSION = 1
_HEADER = Struct(">4sHH16siq")
_CRC = Struct(">I")
HEADER_BYTES = _HEADER.size + _CRC.size
_NO_TOPIC_ID = bytes(16)
_NO_PARTITION = -1
_FIELDS = Struct(">qi")
_unpack = ENTRY.unpack_from
_pack = _FIELDS.pack


class AppendTime(NamedTuple):
    """When batches from a relative offset on were appended, up to those of the next entry."""

    time_ms: int
    relative_offset: int
    is_bound: bool  # then, or earlier


class Header(NamedTuple):
    """Whose entries a file has: those of one segment of one partition. A folder may not tell the id or the number."""

    origin: Origin
    topic_id: bytes
    partition: int
    base_offset: int

    @classmethod
    def of(cls, folder: Path, base_offset: int, origin: Origin) -> "Header":
        """Return the header for a segment in a partition's folder."""
        key, topic_id = partition_of(folder.name), None
        with suppress(OSError):
            topic_id = load_topic_id(folder)
        return cls(origin, topic_id or _NO_TOPIC_ID, key[1] if key else _NO_PARTITION, base_offset)

    def encode(self) -> bytes:
        """Return the bytes with which the file begins."""
        fields = _HEADER.pack(MAGIC, VERSION, *self)
        return fields + _CRC.pack(crc32c(fields))

    def names(self, folder: Path, base_offset: int) -> bool:
        """Tell whether this is the header of a segment in a folder, as far as both tell."""
        other = Header.of(folder, base_offset, self.origin)
        return (
            self.base_offset == base_offset
            and (self.topic_id == other.topic_id or _NO_TOPIC_ID in (self.topic_id, other.topic_id))
            and (self.partition == other.partition or _NO_PARTITION in (self.partition, other.partition))
        )


class Stored(NamedTuple):
    """The content of a file: no header where that is missing, damaged, or of another version."""

    header: Header | None
    entries: Data

    def header_of(self, folder: Path, base_offset: int) -> Header | None:
        """Return the header if it is that of a segment in a folder."""
        header = self.header
        return header if header is not None and header.names(folder, base_offset) else None


def load(path: Path) -> Stored:
    """Read a file; a missing one is empty."""
    return parsed(files.map_readonly(path))


def parsed(data: bytes | files.Map) -> Stored:
    """Return the content of a file from its bytes."""
    view = memoryview(data)
    fields, entries = view[: _HEADER.size], view[HEADER_BYTES:]
    if len(view) >= HEADER_BYTES and _CRC.unpack_from(view, _HEADER.size)[0] == crc32c(fields):
        magic, version, origin, topic_id, partition, base_offset = _HEADER.unpack(fields)
        if (magic, version) == (MAGIC, VERSION) and origin < len(Origin):
            return Stored(Header(Origin(origin), topic_id, partition, base_offset), entries)
    return Stored(None, entries)


def is_of_other_version(data: Data) -> bool:
    """Tell whether these are the bytes of a file without a header, as versions before it wrote them.

    Zeros are no entry: a power cut can leave them.
    """
    first = bytes(data[:ENTRY_BYTES])
    return len(data) % ENTRY_BYTES == 0 and any(first) and not first.startswith(MAGIC)


class AppendIndex(IndexFile):
    """Entries by append time."""

    __slots__ = ("__weakref__", "_base_offset", "_file", "_is_file_to_cut", "_opened", "_origin")
    entry_bytes: ClassVar[int] = ENTRY_BYTES
    key_bytes: ClassVar[int] = 8

    def __init__(
        self, path: Path, base_offset: int, origin: Origin, data: Data, opened: OpenSegments
    ) -> None:
        """Hold entries that are in the file already; `opened` bounds how many indexes hold their file open."""
        super().__init__(path, data)
        self._base_offset = base_offset
        self._origin = origin
        self._opened = opened
        self._file: files.File | None = None
        self._is_file_to_cut = False  # entries were dropped that the file may still hold

    def append_if_later(self, relative_offset: int, time_ms: int) -> None:
        """Add an entry for a batch that is about to be written, unless the one before was appended at that time too.

        It is in the file on return. OSError if it is not.
        """
        data = self.data
        if data:
            last_ms, _, is_bound = _entry(data, len(self) - 1)
            if last_ms == time_ms and not is_bound:
                return
        fields = _pack(time_ms, relative_offset)
        entry = fields + crc32c(fields).to_bytes(4, "big")
        (self._file or self._open()).append(entry if data else self._header() + entry)
        self._append(entry)

    def _header(self) -> bytes:
        return Header.of(self.path.parent, self._base_offset, self._origin).encode()

    def encode(self) -> bytes:
        """Return the bytes that the file is to hold."""
        return self._header() + self.data if self.data else b""

    @property
    def _size(self) -> int:
        return HEADER_BYTES + len(self.data) if self.data else 0

    def _open(self) -> files.File:
        file = files.File(self.path, create=True)
        if file.size != self._size:
            file.truncate(self._size)
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
        # Until that is done: after an error the next call has nothing left to drop.
        self._is_file_to_cut = True
        file = self._file or self._open()
        file.truncate(self._size)
        file.sync()
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
        file.write_at(self.encode(), 0)
        file.truncate(self._size)
        file.sync()
        if is_new:
            files.sync_folder(self.path.parent)

    def mend_file(self) -> None:
        """Have the file hold these entries if it holds others.

        Call before a summary goes: without that nothing tells of entries which the file has lost.
        """
        if (files.load(self.path) or b"") != self.encode():
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


def encoded(entries: Iterable[AppendTime]) -> bytes:
    """Return the bytes of entries."""
    parts = []
    for time_ms, offset, is_bound in entries:
        fields = _pack(time_ms, -1 - offset if is_bound else offset)
        parts.append(fields + crc32c(fields).to_bytes(4, "big"))
    return b"".join(parts)


def _sound_entry(data: Data, number: int) -> AppendTime | None:
    """Return an entry; None if there is none, or its checksum is wrong."""
    position = number * ENTRY_BYTES
    if not 0 <= position <= len(data) - ENTRY_BYTES:
        return None
    _, _, crc = _unpack(data, position)
    is_sound = crc == crc32c(memoryview(data)[position : position + _FIELDS.size])
    return _entry(data, number) if is_sound else None


def sound_entries(data: Data, last: AppendTime | None = None) -> Iterator[AppendTime | None]:
    """Yield each entry, of those after `last`; None for one that is damaged, or does not rise."""
    last_ms, last_offset = (-1, -1) if last is None else last[:2]
    for number in range(len(data) // ENTRY_BYTES):
        entry = _sound_entry(data, number)
        if entry is not None and entry.time_ms >= last_ms and entry.relative_offset > last_offset:
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
    stored = load(path)
    entry = _sound_entry(stored.entries, 0)
    is_of_it = stored.header_of(path.parent, base_offset) is not None
    return entry.time_ms if is_of_it and entry is not None and not entry.is_bound else None


def last_offset(path: Path, base_offset: int) -> int:
    """Return the offset of the last entry of a segment's file; the base offset where none is there that is sound."""
    stored = load(path)
    entry = _sound_entry(stored.entries, len(stored.entries) // ENTRY_BYTES - 1)
    is_of_it = stored.header_of(path.parent, base_offset) is not None
    return base_offset + (entry.relative_offset if is_of_it and entry is not None else 0)


def is_whole(entries: Data, summary: Summary) -> bool:
    """Tell whether entries are those that a summary vouches for, and no others."""
    if summary.batch_count and not entries:
        return False
    return len(entries) == _vouched_bytes(summary) and is_vouched(entries, summary)


def is_vouched(entries: Data, summary: Summary) -> bool:
    """Tell whether entries begin with those that a summary vouches for."""
    size = _vouched_bytes(summary)
    return size <= len(entries) and crc32c(memoryview(entries)[:size]) == summary.append_crc


def _vouched_bytes(summary: Summary) -> int:
    return summary.append_entries * ENTRY_BYTES


def _believed(stored: Stored, log: Described) -> Data:
    """Return the entries of a file if each that is sound can be believed, or none.

    Where the summary vouches for other entries and yet each of them is sound, the file is of another log that has the
    same name: an older backup, or a newer one. Where one is damaged, or the file is cut, the rest is of this log.
    """
    entries, summary = stored.entries, log.summary
    if summary.append_entries and is_vouched(entries, summary):
        return entries
    if stored.header_of(log.file.path.parent, log.base_offset) is None:
        return b""
    size = _vouched_bytes(summary)
    if 0 < size <= len(entries) and all(sound_entries(entries[:size])):
        return b""
    return entries


def begins_otherwise(stored: Stored, summary: Summary) -> bool:
    """Tell whether a summary is of a log whose first batch was appended at another time than the entries say.

    An entry that is a bound says nothing, nor does a summary that vouches for these entries.
    """
    if not summary.append_entries or is_vouched(stored.entries, summary):
        return False
    first = _sound_entry(stored.entries, 0)
    return first is not None and not first.is_bound and first.time_ms != summary.first_append_ms


def mended(stored: Stored, log: Described, bound_ms: int, *, is_tail_lost: bool) -> bytearray:
    """Return the entries of the batches that there are: what is sound of a file, and bounds for what is not.

    All batches were appended by `bound_ms`, which stands in after the last entry where `is_tail_lost` or the file shows
    that it was cut. Entries that the summary vouches for are not looked at.
    """
    end = log.summary.next_offset - log.base_offset
    entries, vouched = _believed(stored, log), _vouched_bytes(log.summary)
    is_cut = len(entries) % ENTRY_BYTES > 0 or len(entries) < vouched
    kept = bytearray(entries[:vouched] if is_vouched(entries, log.summary) else b"")
    del kept[_count_before(kept, end) * ENTRY_BYTES :]
    last = _entry(kept, len(kept) // ENTRY_BYTES - 1) if kept else None
    rest = rest_of(entries[len(kept) :], last, end, bound_ms, is_tail_lost or is_cut)
    if any(entry.is_bound for entry in rest):
        rest = _exact(rest, _stamps(log, rest[0].relative_offset))
    return kept + encoded(rest)


def rest_of(
    data: Data, last: AppendTime | None, end: int, bound_ms: int, is_tail_lost: bool
) -> list[AppendTime]:
    """Return what bytes that follow the entry `last` say of batches before a relative offset, and bounds for others."""
    entries = [] if last is None else [last]
    has_gap = last is None
    for entry in sound_entries(data, last):
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
    for first_offset, time_ms in stamps:
        # The first entry is for the segment from its start on, of which compaction may have left nothing.
        offset = first_offset if exact or entries[0].relative_offset else 0
        while number + 1 < len(entries) and entries[number + 1].relative_offset <= first_offset:
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
