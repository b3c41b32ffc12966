"""One segment: its log file, its three indexes, its summary.

Owns the bytes of one `<base>.log`. The offset index and the time index are a pure function of these bytes and of the
index interval: appends, recovery and rebuilds all pass each batch to `_note`. Knows nothing of other segments, of
producers, of when to roll or of searches (`search`). Has no lock; the log that owns it has.

The log file is opened on first use. An active segment has its indexes in memory, a sealed one maps them on first use
and closes its files when too many are open (`open_segments`). The summary has checksums of the index files and of the
log as they were when the segment was loaded. `read` and `slice` return verified bytes only; they raise `Mismatch` if
the indexes and the summary must be rebuilt (`verification`).
"""

from collections.abc import Iterable
from enum import Enum, auto
from pathlib import Path
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import entries, record_times
from tidelog.protocol.records.batch import CONTROL, DELETE_HORIZON, MAGIC, TRANSACTIONAL, Buffer
from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.search import tally_messages
from tidelog.protocol.records.validate import ValidBatch
from tidelog.storage import append_index, files, walk
from tidelog.storage.append_index import AppendIndex, AppendTime, Described, Stored
from tidelog.storage.blocks import Digests, Unverified
from tidelog.storage.errors import Mismatch, OffsetOutOfRange
from tidelog.storage.index_file import Data
from tidelog.storage.key_sample import KeySample
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUMMARY, TIME_INDEX
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.shared import Shared
from tidelog.storage.sources import Source
from tidelog.storage.summary import NONE, OFFSET_MAX, Damage, Origin, Summary
from tidelog.storage.time_index import TimeIndex
from tidelog.storage.walk import INT32_MAX

_RARE: Final = DELETE_HORIZON | TRANSACTIONAL | CONTROL


class State(Enum):
    """The life cycle of a segment; `_NEXT` has the transitions.

    An active segment and a copy keep their files open; the others open them on demand. Of a sealed segment that Kafka
    wrote, only the last index entries may be known until it is first read (`Segment.is_known_by_index`).
    """

    ACTIVE = auto()  # takes appends, or is being scanned
    SEALED = auto()  # is only read
    COPY = auto()  # made by compaction: the names of its files still end with its `mark`
    REPLACED = auto()  # by a copy, which may have its file names: it opens no more files

    @property
    def keeps_files_open(self) -> bool:
        """Whether a segment in this state keeps its files open."""
        return self in (State.ACTIVE, State.COPY)


_NEXT: Final = {
    # By a roll, or after a start has scanned it.
    State.ACTIVE: {State.SEALED},
    # ACTIVE by a truncation, a start or a scan; REPLACED by compaction.
    State.SEALED: {State.ACTIVE, State.REPLACED},
    # SEALED when its files are renamed; ACTIVE by the scan of a reader that finds it before.
    State.COPY: {State.SEALED, State.ACTIVE},
    State.REPLACED: set(),
}


def log_bytes(folder: Path) -> int:
    """Return the total size of the `.log` files in a partition's folder. Raise OSError."""
    logs = (
        files.status(folder / entry.name)
        for entry in files.list_folder(folder)
        if entry.name.endswith(LOG) and not entry.is_folder
    )
    return sum(each.size for each in logs if each is not None)


class Segment:
    """A segment; `size` is how much of its log is published to readers.

    `identity` is a key for caches of the log's content; a truncation changes it. The names of a copy's files end with
    its `mark`, which is empty for others. `unverified` has the blocks from when the segment was loaded, None once all
    are verified. `sample` is a sample of the keys, if there is one.
    """

    __slots__ = (
        "_entry_ms", "_finished_size", "_opened", "base_offset", "folder", "identity", "index_bytes_max",
        "last_offset_max", "mark", "sample", "shared", "size", "state", "summary", "unverified",
    )  # fmt: skip

    def __init__(
        self,
        folder: Path,
        base_offset: int,
        size: int,
        summary: Summary,
        index_bytes_max: int,
        shared: Shared,
        state: State = State.SEALED,
    ) -> None:
        """Describe a segment whose files exist; nothing is opened."""
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.summary = summary
        self.index_bytes_max = index_bytes_max
        self.shared = shared
        self.state = state
        self.mark = ""
        self.identity = next(shared.identities)
        self.sample: KeySample | None = None
        self.unverified: Unverified | None = None
        self._opened = OpenFiles(stays_open=state.keeps_files_open)
        self._finished_size = -1
        self._entry_ms = NONE  # the append time that the append index was last asked to note
        self.last_offset_max = 0
        self._limit_offsets(summary.offset_entries, summary.time_entries, summary.append_entries)

    @classmethod
    def begin(
        cls,
        folder: Path,
        base_offset: int,
        config: TopicConfig,
        shared: Shared,
        now_ms: int,
        last_append_ms: int = NONE,
        origin: Origin = Origin.APPENDED,
        mark: str = "",
    ) -> "Segment":
        """Describe a new, active segment, or a copy if it has a `mark`; `make_files` creates its files.

        `last_append_ms` is the last append time of the whole log.
        """
        interval = config.index_interval_bytes
        summary = Summary(0, 0, base_offset, now_ms, interval, last_append_ms=last_append_ms, origin=origin)
        state = State.COPY if mark else State.ACTIVE
        segment = cls(folder, base_offset, 0, summary, config.segment_index_bytes, shared, state)
        segment.mark = mark
        segment._finished_size = 0
        segment._empty_indexes(file_bytes=0)
        segment._opened.append_index = segment._append_index_of(bytearray())
        return segment

    def begin_copy(self, folder: Path, end_offset: int, index_bytes_max: int) -> "Segment":
        """Return an active segment without batches in another folder, with its files, for a copy up to an offset.

        It has what the log does not hold: the append times and the origin.
        """
        base, times = self.base_offset, self.append_index
        copy = type(self)(
            folder, base, 0, self.summary.only_times(base), index_bytes_max, self.shared, State.ACTIVE
        )
        copy._empty_indexes(file_bytes=0)
        copy.make_files()
        index = copy._append_index_of(bytearray(times.data))
        index.drop(end_offset - base)
        files.write(index.path, index.encode())
        copy._opened.append_index = index
        summary = copy.summary
        summary.append_entries = summary.append_crc = 0
        summary.last_append_ms = index.entry(len(index) - 1).time_ms if len(index) else NONE
        return copy

    # Files.

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files."""
        return self.folder / self.name(suffix)

    def name(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return f"{self.base_offset:020d}{suffix}{self.mark}"

    @property
    def file(self) -> files.File:
        """The log file, opened on first use. Only `read` and `slice` verify its bytes."""
        file = self._opened.file
        return self._open() if file is None else file

    def _open(self) -> files.File:
        try:
            file = self._open_file()
        except FileNotFoundError:
            self._refuse_replaced()
            raise OffsetOutOfRange(f"{self.path(LOG)} was just deleted by retention") from None
        self._refuse_replaced()
        opened = self._opened
        with self.shared.open_segments.lock:
            # If two threads open it at once, one wins: the file knows where the next append goes.
            if opened.file is None:
                file.size = self.size
                opened.file = file
                if not self.is_active:
                    self.shared.open_segments.note(opened)
            return opened.file

    def _open_file(self) -> files.File:
        return files.File(self.path(LOG))

    def release(self) -> None:
        """Close the files that can be opened again; readers keep those that they hold."""
        opened = self._opened
        with self.shared.open_segments.lock:
            opened.let_go()
            if opened.append_index is not None:
                opened.append_index.let_go()

    def close(self) -> None:
        """Close the log file, even of an active segment: it has been flushed, and no append follows."""
        opened = self._opened
        with self.shared.open_segments.lock:
            opened.file = None
            if opened.append_index is not None:
                opened.append_index.let_go()

    def sync(self) -> None:
        """Put the files of a sealed segment on disk; missing files were deleted and need no sync."""
        file = self._opened.file
        if file is not None:
            file.sync()
        else:
            files.sync(self.path(LOG))
        for suffix in (INDEX, TIME_INDEX, APPEND_INDEX):
            files.sync(self.path(suffix))

    def make_files(self) -> None:
        """Create the files of a new segment, all or none. Their names are durable once the folder is synced.

        The log comes last: without it, files that a crash leaves are no segment.
        """
        files.create_all([self.folder / name for name in self.new_names])

    @property
    def new_names(self) -> list[str]:
        """The names of a new segment's files, in the order in which to create them."""
        return [self.name(suffix) for suffix in (INDEX, TIME_INDEX, LOG)]

    @property
    def is_active(self) -> bool:
        """Whether it takes appends, or is being scanned."""
        return self.state is State.ACTIVE

    @property
    def next_offset(self) -> int:
        """The offset after its last batch."""
        return self.summary.next_offset

    @property
    def changed_ms(self) -> int:
        """When it was last appended to, or created."""
        summary = self.summary
        return summary.last_append_ms if summary.batch_count else summary.created_ms

    def read(self, count: int, position: int, source: Source) -> memoryview:
        """Read verified bytes of its log from a source. Raise Mismatch."""
        if self.unverified is not None:
            self.verify(position, position + count, source)
        return source.read(self._opened.file or self._open(), count, position)

    def slice(self, position: int, length: int, data: bytes | None, source: Source) -> files.FileSlice:
        """Return a verified slice of its log; `data` has its bytes if they were read already. Raise Mismatch."""
        if self.unverified is not None:
            self.verify(position, position + length, source)
        return files.FileSlice(self._opened.file or self._open(), position, length, data)

    def verify(self, start: int, end: int, source: Source) -> None:
        """Verify the blocks of a range that were not verified since the segment was loaded. Raise Mismatch."""
        unverified = self.unverified
        if unverified is None:
            return
        if not unverified.verify(self.file, start, end, source):
            raise Mismatch(f"{self.path(LOG)}@{start}-{end}: does not match its summary", self)
        if unverified.is_done:
            self.unverified = None

    @property
    def is_known_by_index(self) -> bool:
        """Whether only the last entries of its indexes were read. Other reads raise Mismatch until it is checked."""
        return self.unverified is not None and not self.unverified.has_digests

    @property
    def digests(self) -> Digests:
        """The digests of its blocks, to add to."""
        digests = self._opened.digests
        if digests is None:
            digests = self._opened.digests = Digests(self.summary.digests)
        return digests

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded on first use."""
        index = self._opened.offset_index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded on first use."""
        index = self._opened.time_index
        return self._load_indexes()[1] if index is None else index

    @property
    def append_index(self) -> AppendIndex:
        """The append index, loaded on first use."""
        index = self._opened.append_index
        return self._load_append_index() if index is None else index

    def _refuse_replaced(self) -> None:
        """Raise Mismatch if the opened files may belong to its replacement: call this after opening them."""
        if self.state is State.REPLACED:
            raise Mismatch(f"{self.path(LOG)}: compaction has replaced it", self)

    # Writing.

    def append(self, data: memoryview | bytearray, valid: ValidBatch, base_offset: int, now_ms: int) -> int:
        """Write one batch that has its offsets; return its position. After an OSError call `cut_torn`."""
        opened = self._opened
        if opened.offset_index is None:
            self._load_indexes()
        digests, summary = opened.digests or self.digests, self.summary
        position = self.size
        end = position + len(data)
        file = opened.file or self.file
        if now_ms != self._entry_ms:
            # Before the batch, so that a crash leaves no batch without its append time.
            self.append_index.append_if_later(base_offset - self.base_offset, now_ms)
            self._entry_ms = now_ms
        file.append(data)
        if end <= digests.block_end:
            digests.running = crc32c(data, digests.running)
        else:
            digests.add(data, position)
        if valid.header.magic == MAGIC or valid.header.codec:
            self._note(position, base_offset, valid)
        else:
            self._note_messages(position, data)
        summary.last_append_ms = now_ms
        self.size = end
        if position == 0:
            summary.first_append_ms = now_ms
            if valid.max_timestamp == NONE:
                # At once: without timestamps, rolling counts from the creation time, which only the summary has.
                with self.shared.disk.optional_write("summary", self.path(SUMMARY)):
                    self.save()
        return position

    def extend(self, data: Buffer, batches: Iterable[ValidBatch]) -> None:
        """Append batches of other segments to a copy; `write_append_times` writes their append times."""
        self.file.append(data)
        self.digests.add(data, self.size)
        for batch in batches:
            self._note(self.size, batch.header.base_offset, batch)
            self.size += batch.size_bytes

    def _note(self, position: int, base_offset: int, batch: ValidBatch) -> None:
        """Update summary and indexes for the batch at `position`, the next in the log.

        `base_offset` is its offset; its header may still have the producer's.
        """
        summary = self.summary
        header = batch.header
        record_count = header.record_count
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = batch.max_timestamp
        if summary.batch_count == 0:
            summary.first_timestamp = max_timestamp
        if header.attributes & _RARE:
            summary.note_rare(header)
        summary.note_least(position, batch.min_timestamp)
        # No record has the timestamp of an empty batch, which compaction leaves.
        if max_timestamp > summary.max_timestamp and record_count:
            summary.max_timestamp = max_timestamp
            delta = batch.max_timestamp_offset_delta
            summary.max_timestamp_offset = base_offset + delta if delta >= 0 else NONE
            summary.max_timestamp_last_offset = last_offset
        # Bytes since the last entry, without this batch. A difference needs no counter that a restart could lose.
        if position - summary.indexed_position > summary.index_interval_bytes:
            self._index(position, last_offset)
        summary.record_count += record_count
        summary.batch_count += 1
        summary.next_offset = last_offset + 1

    def _note_messages(self, position: int, data: memoryview | bytearray) -> None:
        """Update summary and indexes for messages of an older format, each of which is an entry of the log.

        Messages of one stretch that get no index entry are tallied together.
        """
        summary = self.summary
        at = 0
        while at < len(data):
            place = position + at
            unindexed_end = summary.indexed_position + summary.index_interval_bytes + 1
            stop = min(unindexed_end, summary.minima.stretch_end(place)) - position
            if stop <= at or not summary.batch_count:
                header = entries.peek(data, at)
                self._note_stored(place, record_times.by_header(header))
                at += header.size_bytes
                continue
            at, *tally = tally_messages(data, at, stop)
            summary.note_messages(place, *tally)

    def _index(self, position: int, last_offset: int) -> None:
        offset_index, time_index, summary = self.offset_index, self.time_index, self.summary
        # First the time: a search on another thread relies on it for each entry of the offset index.
        time_index.append_if_larger(
            summary.max_timestamp, summary.max_timestamp_last_offset - self.base_offset
        )
        offset_index.append(last_offset - self.base_offset, position)
        summary.indexed_position = position
        self._limit_offsets(len(offset_index), len(time_index), self._append_entries)

    @property
    def _append_entries(self) -> int:
        index = self._opened.append_index
        return self.summary.append_entries if index is None else len(index)

    def bound_indexes(self, index_bytes_max: int) -> None:
        """Limit the size of each index from now on."""
        self.index_bytes_max = index_bytes_max
        offsets, times = self.summary.offset_entries, self.summary.time_entries
        opened = self._opened
        if opened.offset_index is not None and opened.time_index is not None:
            offsets, times = len(opened.offset_index), len(opened.time_index)
        self._limit_offsets(offsets, times, self._append_entries)

    def _limit_offsets(self, offset_entries: int, time_entries: int, append_entries: int) -> None:
        """Set the largest offset that the segment takes: indexes hold 32-bit distances, and a full index takes none."""
        self.last_offset_max = self.base_offset + INT32_MAX
        # Sealing adds one more entry to the time index.
        if (
            offset_entries >= self.index_bytes_max // OffsetIndex.entry_bytes
            or time_entries >= self.index_bytes_max // TimeIndex.entry_bytes - 1
            or append_entries >= max(self.index_bytes_max // AppendIndex.entry_bytes, 1)
        ):
            self.last_offset_max = -1

    def cut_torn(self) -> None:
        """Cut off what a failed append wrote after the published end."""
        opened = self._opened
        if opened.file is not None:
            opened.file.truncate(self.size)
        self._entry_ms = NONE
        if opened.append_index is not None:
            opened.append_index.cut(self.next_offset - self.base_offset)

    def save(self, *, final: bool = False, flushed: bool = False, durably: bool = False) -> bytes:
        """Write indexes and summary, with `final` as of a sealed segment; `durably` forces the summary to disk.

        `flushed` says that the log is on disk. Return the content of the summary's file for when it is.
        """
        summary, offset_index, time_index = self.summary, self.offset_index, self.time_index
        entry = b""
        if final:
            relative_offset = summary.max_timestamp_last_offset - self.base_offset
            entry = time_index.next_entry(summary.max_timestamp, relative_offset)
        summary.log_bytes = self.size
        summary.digests = self.digests.encode(self.size)
        # Before the files are written: if that fails, no index file matches the summary once memory is released.
        summary.offset_entries, summary.time_entries = len(offset_index), len(time_index) + bool(entry)
        summary.offset_crc, summary.time_crc = offset_index.save(), time_index.save(entry)
        index = self._opened.append_index
        if index is not None:  # otherwise nothing was appended since the summary was read
            summary.append_entries, summary.append_crc = len(index), index.save()
        summary.flushed = 1
        once_flushed = summary.encode()
        summary.flushed = int(flushed)
        if durably or not summary.is_file_to_stay:
            write = files.write_atomically if durably else files.write
            write(self.path(SUMMARY), summary.encode())
            summary.file_append_ms = NONE if self.size else summary.last_append_ms
        self._finished_size = self.size if final else -1
        return once_flushed

    def finish(self, *, flushed: bool = False) -> None:
        """Save with the final time entry, before the segment is sealed or its log closed."""
        if self._finished_size != self.size:
            self.save(final=True, flushed=flushed)

    def replace_summary(self, *, finished: bool) -> None:
        """Replace, durably, a summary that does not describe the log, which is on disk."""
        self.save(final=finished, flushed=True, durably=True)

    def replace_files(self, *, flushed: bool) -> None:
        """Seal with new files: readers of the old ones keep their maps."""
        self.become(State.SEALED)
        with self.shared.disk.optional_write("indexes", self.path(INDEX)):
            self.append_index.mend_file()
            for suffix in (SUMMARY, INDEX, TIME_INDEX):
                files.remove(self.path(suffix))
            self.offset_index.forget_file()
            self.time_index.forget_file()
            self.finish(flushed=flushed)

    def seal(self) -> None:
        """Seal it and release its memory, after `finish`."""
        self.become(State.SEALED)
        self._opened.forget_indexes()

    def become(self, state: State) -> None:
        """Change to another state, or keep the current one."""
        assert state is self.state or state in _NEXT[self.state], f"{self.path(LOG)}: {self.state} to {state}"
        opened = self._opened
        with self.shared.open_segments.lock:
            self.state = state
            opened.stays_open = state.keeps_files_open
            if state is State.SEALED and opened.file is not None:
                self.shared.open_segments.note(opened)

    def note_flushed(self) -> None:
        """Write into the summary of a sealed segment that all of it is on disk, if the summary is final."""
        if self._finished_size == self.size:
            self.summary.flushed = 1
            self.write_summary(self.summary.encode())

    def write_summary(self, data: bytes) -> None:
        """Replace the summary's file; a failure only makes the next start slower."""
        with self.shared.disk.optional_write("summary", self.path(SUMMARY)):
            self.summary.file_append_ms = NONE
            files.write(self.path(SUMMARY), data)

    def bound_clean(self, offset: int) -> None:
        """Forget, on disk too, that compaction has compared the segment with records from an offset on."""
        if self.summary.cleaned_to > offset:
            self.summary.cleaned_to = offset
            files.write_atomically(self.path(SUMMARY), self.summary.encode())

    # Loading.

    def use_summary(self, summary: Summary, *, finished: bool) -> None:
        """Use a loaded summary; reads verify the bytes that it describes.

        `finished` says that it was written when the segment was sealed or closed.
        """
        self.summary = summary
        if summary.log_bytes:
            self.unverified = Unverified(summary.digests, summary.log_bytes, summary.next_offset)
        self._limit_offsets(summary.offset_entries, summary.time_entries, summary.append_entries)
        self._finished_size = self.size if finished else -1

    def load_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        """Load the index files; return None if they do not match the summary. Bytes after its entries are ignored."""
        summary = self.summary
        offset_bytes = summary.offset_entries * OffsetIndex.entry_bytes
        time_bytes = summary.time_entries * TimeIndex.entry_bytes
        offset_data: bytes | bytearray | files.Map = files.map_readonly(self.path(INDEX))
        time_data: bytes | bytearray | files.Map = files.map_readonly(self.path(TIME_INDEX))
        if self.is_active:
            offset_data, time_data = bytearray(offset_data[:offset_bytes]), bytearray(time_data[:time_bytes])
        if len(offset_data) != offset_bytes or len(time_data) != time_bytes:
            return None
        offset_index = OffsetIndex(self.path(INDEX), offset_data)
        time_index = TimeIndex(self.path(TIME_INDEX), time_data)
        if (offset_index.crc, time_index.crc) != (summary.offset_crc, summary.time_crc):
            return None
        if self.is_active:
            # Closing added an entry that an active segment does not have.
            time_index.drop_final(offset_index.entry(len(offset_index) - 1)[0] if len(offset_index) else -1)
        opened = self._opened
        with self.shared.open_segments.lock:
            opened.offset_index, opened.time_index = offset_index, time_index
            if not self.is_active:
                self.shared.open_segments.note(opened)
        return offset_index, time_index

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        indexes = None if self.is_known_by_index else self.load_indexes()
        if indexes is None:
            self._refuse_replaced()
            if files.status(self.path(LOG)) is None:
                raise OffsetOutOfRange(f"{self.path(LOG)} was just deleted by retention")
            raise Mismatch(f"{self.path(INDEX)}: missing, or of another log", self)
        return indexes

    def _load_append_index(self) -> AppendIndex:
        if self.is_known_by_index:
            raise Mismatch(f"{self.path(LOG)}: not read yet", self)
        summary = self.summary
        stored = append_index.load(self.path(APPEND_INDEX))
        self._refuse_replaced()
        if append_index.is_whole(stored.entries, summary):
            index = self._append_index_of(bytearray(stored.entries) if self.is_active else stored.entries)
        else:
            index = self._mended(stored, summary.last_append_ms, is_tail_lost=False)
        if self.is_active and not self._is_file_of(index, stored):
            index.replace_file()
        with self.shared.open_segments.lock:
            self._opened.append_index = index
            if not self.is_active:
                self.shared.open_segments.note(self._opened)
        return index

    def mend_append_index(self, bound_ms: int, *, is_tail_lost: bool = False) -> AppendIndex | None:
        """Complete the append index for the batches in the log, after a stop that may have lost entries.

        `bound_ms` is when all of it had been appended; it stands in for unknown append times. Return the index if its
        file has to be replaced, or if the summary has a checksum of lost entries: with new ones in their place, the
        summary would seem to belong to another log.
        """
        summary, stored = self.summary, append_index.load(self.path(APPEND_INDEX))
        index = self._opened.append_index = self._mended(stored, bound_ms, is_tail_lost=is_tail_lost)
        if index.data:
            summary.first_append_ms = index.entry(0).time_ms
            summary.last_append_ms = max(summary.last_append_ms, index.entry(len(index) - 1).time_ms)
        is_known = self._is_file_of(index, stored) and append_index.is_vouched(index.data, summary)
        return index if self.is_active and not is_known else None

    def write_append_times(self, times: Iterable[AppendTime]) -> None:
        """Write the append times of a copy."""
        index = self._opened.append_index = self._append_index_of(append_index.encoded(times))
        files.write(index.path, index.encode())

    def _is_file_of(self, index: AppendIndex, stored: Stored) -> bool:
        """Tell whether the file holds exactly the entries of an index, so that appends can go on in it."""
        if index.data != stored.entries:
            return False
        return not index.data or stored.header_of(self.folder, self.base_offset) is not None

    def _mended(self, stored: Stored, bound_ms: int, *, is_tail_lost: bool) -> AppendIndex:
        log = Described(self.file, self.size, self.base_offset, self.summary)
        return self._append_index_of(append_index.mended(stored, log, bound_ms, is_tail_lost=is_tail_lost))

    def _append_index_of(self, data: Data) -> AppendIndex:
        origin, bound = self.summary.origin, self.shared.open_append_indexes
        return AppendIndex(self.path(APPEND_INDEX), self.base_offset, origin, data, bound)

    def _empty_indexes(self, file_bytes: int | None = None) -> tuple[OffsetIndex, TimeIndex]:
        indexes = (
            OffsetIndex(self.path(INDEX), bytearray(), file_bytes),
            TimeIndex(self.path(TIME_INDEX), bytearray(), file_bytes),
        )
        self._opened.offset_index, self._opened.time_index = indexes
        self._limit_offsets(0, 0, self._append_entries)
        return indexes

    def unread(self, size: int) -> "Segment":
        """Return an active segment of the same log, to scan; it knows only what a log does not hold."""
        summary = self.summary.only_times(self.base_offset)
        segment = type(self)(
            self.folder, self.base_offset, size, summary, self.index_bytes_max, self.shared, State.ACTIVE
        )
        segment.mark = self.mark
        opened = segment._opened
        opened.file = self.file
        opened.digests = Digests()
        opened.append_index = self._opened.append_index
        segment._empty_indexes()
        return segment

    def rebuild(self, refuses: walk.Refuses | None = None, epoch_at: walk.EpochAt | None = None) -> None:
        """Rebuild indexes and summary from the log; what the log does not hold stays as it is."""
        self.summary = self.summary.only_times(self.base_offset)
        self.unverified = None
        self._opened.digests = Digests()
        self._empty_indexes()
        self.scan(refuses, epoch_at)
        self.summary.appended_from = min(self.summary.appended_from, self.next_offset)

    def scan(self, refuses: walk.Refuses | None = None, epoch_at: walk.EpochAt | None = None) -> None:
        """Verify every batch after the end of the summary, and add it to summary and indexes.

        Bytes that are no whole batch, or that are refused, count as damage, up to the next good batch or the end.
        """
        summary, digests = self.summary, self.digests
        digested, damaged_from = summary.log_bytes, NONE
        for batch in walk.verified(
            self.file, summary.log_bytes, self.size, self.base_offset, summary.next_offset, refuses, epoch_at
        ):
            header = batch.header
            if header is None:
                if damaged_from == NONE:
                    damaged_from = batch.position
                continue
            if damaged_from != NONE:
                summary.damage += (Damage(damaged_from, batch.position, header.base_offset),)
                damaged_from = NONE
            if digested < batch.position:
                digests.add_from(self.file, digested, batch.position)
            digests.add(batch.data, batch.position)
            digested = batch.end
            self._note_stored(batch.position, record_times.looked_up(header, batch.data))
        if damaged_from != NONE:
            summary.damage += (Damage(damaged_from, self.size, OFFSET_MAX),)
        digests.add_from(self.file, digested, self.size)
        summary.log_bytes = self.size
        self._finished_size = -1

    def _note_stored(self, position: int, batch: ValidBatch) -> None:
        header = batch.header
        self._note(position, header.base_offset, batch)
        if header.is_log_append_time:
            self.summary.last_append_ms = max(self.summary.last_append_ms, header.max_timestamp)

    def truncate(self, position: int) -> None:
        """Cut off the batch at `position` and everything after it, and become the active segment."""
        self.become(State.ACTIVE)
        self.cut_file(position)
        if self.end_at(position):
            self.append_index.cut_file()

    def cut_file(self, size: int) -> None:
        """Cut the log's file only. The summary is replaced first: no start may apply it to the batches that follow."""
        self.append_index.mend_file()
        self.summary.replace_by_times(self.path(SUMMARY), self.base_offset)
        self.truncate_log(size)

    def truncate_log(self, size: int) -> None:
        """Cut the log's file under this name only: other hard links keep all bytes."""
        self.own_log()
        self.file.truncate(size)

    def own_log(self) -> None:
        """Take its files out of the hard links of forks, backups and readers, before they are changed.

        The other two indexes do this when they are saved.
        """
        if files.own(self.path(LOG)):
            with self.shared.open_segments.lock:
                self._opened.file = None
        if files.own(self.path(APPEND_INDEX)) and self._opened.append_index is not None:
            self._opened.append_index.let_go()

    def end_at(self, position: int) -> bool:
        """Drop everything from `position` on, in memory only; tell whether append times were dropped too."""
        index = self.append_index
        self.identity = next(self.shared.identities)
        self.size = position
        self.rebuild()
        self._opened.append_index = index
        self._entry_ms = NONE
        return index.drop(self.next_offset - self.base_offset)
