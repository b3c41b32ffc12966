"""The append index of a segment: the append time of every batch. On most topics no other file has it.

The file is a header, which names the segment (`Header`), and the entries. An entry is `int64 append time, int32 offset
- base, uint32 CRC-32C` of the first twelve bytes, big-endian: batches from that offset on, up to that of the next
entry, were appended at that time. An entry is made where the time differs from that of the batch before, and append
times never go back, so both fields rise. An offset o stored as `-1 - o` marks the time as a bound: those batches were
appended then or earlier, but not before the previous entry. A file without entries is empty.

This index is not a function of the log. An entry is written before its batch, so a killed process loses none. A power
cut may take some; when the log is loaded, bounds from above replace them (`mended`). Entries are trusted if the
summary of the segment has their checksum, or if the header names the segment and the entry's own checksum is right.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from tidelog.protocol.records.checksum import crc32c
from tidelog.storage import files, walk
from tidelog.storage.index_file import Data, IndexFile
from tidelog.storage.layout import SUMMARY, load_topic_id, partition_of
from tidelog.storage.open_segments import OpenFile, OpenSegments
from tidelog.storage.summary import Origin, Summary

ENTRY: Final = Struct(">qiI")
ENTRY_BYTES: Final = ENTRY.size
MAGIC: Final = b"TLAI"
VERSION: Final = 1
_HEADER: Final = Struct(">4sHH16siq")
_CRC: Final = Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
_NO_TOPIC_ID: Final = bytes(16)
_NO_PARTITION: Final = -1
_FIELDS: Final = Struct(">qi")
_unpack: Final = ENTRY.unpack_from
_pack: Final = _FIELDS.pack


class AppendTime(NamedTuple):
    """When the batches from a relative offset on, up to that of the next entry, were appended."""

    time_ms: int
    relative_offset: int
    is_bound: bool  # they were appended then or earlier


class Header(NamedTuple):
    """The segment that a file belongs to. Its folder may not tell the topic id or the partition."""

    origin: Origin
    topic_id: bytes
    partition: int
    base_offset: int

    @classmethod
    def of(cls, folder: Path, base_offset: int, origin: Origin) -> "Header":
        """Return the header for a segment in a partition's folder."""
        key, topic_id = None, None
        with suppress(OSError):
            key = partition_of(folder.absolute().name)  # The process of a pass calls its folder `.`.
            topic_id = load_topic_id(folder)
        return cls(origin, topic_id or _NO_TOPIC_ID, key[1] if key else _NO_PARTITION, base_offset)

    def encode(self) -> bytes:
        """Return the first bytes of the file."""
        fields = _HEADER.pack(MAGIC, VERSION, *self)
        return fields + _CRC.pack(crc32c(fields))

    def names(self, folder: Path, base_offset: int) -> bool:
        """Tell whether this is the header of a segment in a folder; what either does not know counts as equal."""
        other = Header.of(folder, base_offset, self.origin)
        return (
            self.base_offset == base_offset
            and (self.topic_id == other.topic_id or _NO_TOPIC_ID in (self.topic_id, other.topic_id))
            and (self.partition == other.partition or _NO_PARTITION in (self.partition, other.partition))
        )


class Stored(NamedTuple):
    """The content of a file; no header if it is missing, damaged or of another version."""

    header: Header | None
    entries: Data

    def header_of(self, folder: Path, base_offset: int) -> Header | None:
        """Return the header if it names a segment in a folder."""
        header = self.header
        return header if header is not None and header.names(folder, base_offset) else None


def load(path: Path) -> Stored:
    """Read a file; a missing one is empty."""
    return parsed(files.map_readonly(path))


def parsed(data: bytes | files.Map) -> Stored:
    """Parse the bytes of a file."""
    view = memoryview(data)
    fields, entries = view[: _HEADER.size], view[HEADER_BYTES:]
    if len(view) >= HEADER_BYTES and _CRC.unpack_from(view, _HEADER.size)[0] == crc32c(fields):
        magic, version, origin, topic_id, partition, base_offset = _HEADER.unpack(fields)
        if (magic, version) == (MAGIC, VERSION) and origin < len(Origin):
            return Stored(Header(Origin(origin), topic_id, partition, base_offset), entries)
    return Stored(None, entries)


def is_of_other_version(data: Data) -> bool:
    """Tell whether these are the bytes of a file without a header, as earlier versions wrote them.

    Zeros are not an entry: a power cut can leave them.
    """
    first = bytes(data[:ENTRY_BYTES])
    return len(data) % ENTRY_BYTES == 0 and any(first) and not first.startswith(MAGIC)


class AppendIndex(IndexFile):
    """Entries by append time."""

    __slots__ = ("_base_offset", "_bound", "_is_file_to_cut", "_opened", "_origin")
    entry_bytes: ClassVar[int] = ENTRY_BYTES
    key_bytes: ClassVar[int] = 8

    def __init__(self, path: Path, base_offset: int, origin: Origin, data: Data, bound: OpenSegments) -> None:
        """Hold entries that are in the file; `bound` limits how many indexes keep their file open."""
        super().__init__(path, data)
        self._base_offset = base_offset
        self._origin = origin
        self._bound = bound
        self._opened = OpenFile()
        self._is_file_to_cut = False  # the file may have more than these entries

    def append_if_later(self, relative_offset: int, time_ms: int) -> None:
        """Add an entry for a batch about to be written, unless the batch before was appended at the same time.

        On return it is in the file. After an OSError call `cut`.
        """
        data = self.data
        if data:
            last_ms, last_offset, _ = _unpack(data, len(data) - ENTRY_BYTES)
            if last_ms == time_ms and last_offset >= 0:  # a negative one marks a bound
                return
        fields = _pack(time_ms, relative_offset)
        entry = fields + crc32c(fields).to_bytes(4, "big")
        file = self._opened.file or self._open()
        try:
            file.append(entry if data else self._header() + entry)
        except OSError:
            self._is_file_to_cut = True  # else a start takes a part of an entry for lost ones
            raise
        self._append(entry)

    def _header(self) -> bytes:
        return Header.of(self.path.parent, self._base_offset, self._origin).encode()

    def encode(self) -> bytes:
        """Return the content of the file."""
        return self._header() + self.data if self.data else b""

    @property
    def _size(self) -> int:
        return HEADER_BYTES + len(self.data) if self.data else 0

    def _open(self) -> files.File:
        file = files.File(self.path, create=True)
        if file.size != self._size:
            file.truncate(self._size)
        with self._bound.lock:
            self._opened.file = file
            self._bound.note(self._opened)
        return file

    def cut(self, relative_offset: int) -> None:
        """Drop the entries of batches from an offset on, on disk too: none may come back for another batch."""
        if self.drop(relative_offset) or self._is_file_to_cut:
            self.cut_file()

    def cut_file(self) -> None:
        """Truncate the file to these entries, durably."""
        # After an error the next `cut` drops no entry, and must cut the file all the same.
        self._is_file_to_cut = True
        file = self._opened.file or self._open()
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
        """Replace the content of the file by these entries, durably.

        A summary that vouches for others is replaced first: beside it, these would look like those of another log.
        """
        path = self.path.with_suffix(SUMMARY)
        summary = Summary.load(path)
        if summary is not None and not is_vouched(self.data, summary):
            summary.append_entries, summary.append_crc = len(self), self.save()
            files.write_atomically(path, summary.encode())
        is_new = files.status(self.path) is None
        self.own_file()
        file = files.File(self.path, create=True)
        file.write_at(self.encode(), 0)
        file.truncate(self._size)
        file.sync()
        if is_new:
            files.sync_folder(self.path.parent)

    def own_file(self) -> None:
        """Take the file out of the hard links of backups, before it is changed."""
        if files.own(self.path):
            self.let_go()

    def mend_file(self) -> None:
        """Replace the content of the file by these entries if it differs.

        Call it before removing a summary: nothing else tells that the file has lost entries.
        """
        if (files.load(self.path) or b"") != self.encode():
            self.replace_file()

    def entry(self, number: int) -> AppendTime:
        """Return an entry."""
        return _entry(self.data, number)

    def offset_from(self, time_ms: int) -> int | None:
        """Return the relative offset from which on batches were, or may have been, appended at or after a time."""
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
        """Return the entry of the batch that begins with an offset."""
        return _entry(self.data, max(_count_before(self.data, relative_offset + 1) - 1, 0))

    def save(self, final: bytes = b"") -> int:
        """Return the CRC-32C of all entries. They are in the file already; nothing is synced."""
        assert not final
        self._saved_crc = crc32c(bytes(self.data[self._saved_bytes :]), self._saved_crc)
        self._saved_bytes = len(self.data)
        return self._saved_crc

    def let_go(self) -> None:
        """Close the file until the next entry is added."""
        self._opened.let_go()


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
    """Return an entry; None if it does not exist or its checksum is wrong."""
    position = number * ENTRY_BYTES
    if not 0 <= position <= len(data) - ENTRY_BYTES:
        return None
    _, _, crc = _unpack(data, position)
    is_sound = crc == crc32c(memoryview(data)[position : position + _FIELDS.size])
    return _entry(data, number) if is_sound else None


def sound_entries(data: Data, last: AppendTime | None = None) -> Iterator[AppendTime | None]:
    """Yield each of the entries that follow `last`; None for one that is damaged or does not rise."""
    last_ms, last_offset = (-1, -1) if last is None else last[:2]
    for number in range(len(data) // ENTRY_BYTES):
        entry = _sound_entry(data, number)
        if entry is not None and entry.time_ms >= last_ms and entry.relative_offset > last_offset:
            last_ms, last_offset, _ = entry
            yield entry
        else:
            yield None


# How a file is mended after a stop that may have taken some of it.


class Described(NamedTuple):
    """A segment's log and what is known of its batches."""

    file: files.File
    size: int
    base_offset: int
    summary: Summary


def bound_ms(summary: Summary, modified_ms: int, now_ms: int) -> int:
    """Return a time by which all batches of a summary were appended: that of the file, but no time in the future.

    If the newest record is from the future too, the clock is wrong: the machine has started in the past.
    """
    return max(summary.last_append_ms, min(modified_ms, max(now_ms, summary.max_timestamp)))


def first_ms(path: Path, base_offset: int) -> int | None:
    """Return when the first batch of a segment was appended, by its file; None if it does not tell."""
    stored = load(path)
    entry = _sound_entry(stored.entries, 0)
    is_of_it = stored.header_of(path.parent, base_offset) is not None
    return entry.time_ms if is_of_it and entry is not None and not entry.is_bound else None


def last_offset(path: Path, base_offset: int) -> int:
    """Return the offset of the last entry in a segment's file; the base offset if that entry is missing or damaged."""
    stored = load(path)
    entry = _sound_entry(stored.entries, len(stored.entries) // ENTRY_BYTES - 1)
    is_of_it = stored.header_of(path.parent, base_offset) is not None
    return base_offset + (entry.relative_offset if is_of_it and entry is not None else 0)


def is_whole(entries: Data, summary: Summary) -> bool:
    """Tell whether entries are exactly those that a summary vouches for."""
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
    """Return the entries of a file, or none if not even the sound ones can be believed.

    If the summary vouches for other entries and these are all sound, the file is of another log with the same name: of
    an older backup or a newer one. If one is damaged, or the file is cut, the rest is of this log.
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

    A bound proves nothing. A summary that vouches for these entries is of this log.
    """
    if not summary.append_entries or is_vouched(stored.entries, summary):
        return False
    first = _sound_entry(stored.entries, 0)
    return first is not None and not first.is_bound and first.time_ms != summary.first_append_ms


def mended(stored: Stored, log: Described, bound_ms: int, *, is_tail_lost: bool) -> bytearray:
    """Return the entries for the batches of a log: the sound ones of a file, and bounds for the others.

    All batches were appended by `bound_ms`. It is the bound after the last entry, if `is_tail_lost` or the file was
    cut. Entries that the summary vouches for are not checked.
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
    """Return the sound entries in bytes that follow `last`, of batches before `end`, and bounds for the others."""
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
    """Return a bound for the offsets after the first one of the last entry; none if that entry is the same bound."""
    first = entries[-1].relative_offset + 1 if entries else 0
    is_bound = bool(entries) and entries[-1].is_bound and entries[-1].time_ms == time_ms
    return [] if is_bound or first >= before_offset else [AppendTime(time_ms, first, True)]


def _stamps(log: Described, start: int) -> Iterator[tuple[int, int | None]]:
    """Yield (relative offset, append time or None) of each batch from a relative offset on, by the batches themselves.

    Nothing if the first batch of the log carries no append time, so that most logs are not read.
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
    """Return entries with the append times that batches carry; the same entries if there are no batches."""
    exact: list[AppendTime] = []
    number, last_ms = 0, -1
    for first_offset, time_ms in stamps:
        # The first entry counts from the segment's base offset, even if compaction has removed the first batches.
        offset = first_offset if exact or entries[0].relative_offset else 0
        while number + 1 < len(entries) and entries[number + 1].relative_offset <= first_offset:
            number += 1
        if time_ms is None:
            entry = entries[number]._replace(relative_offset=offset)
        else:
            # Append times in Kafka's batches may go back, with its clock.
            entry = AppendTime(max(time_ms, last_ms), offset, False)
        if not exact or entry[::2] != exact[-1][::2]:
            exact.append(entry)
        last_ms = entry.time_ms
    return exact or entries
