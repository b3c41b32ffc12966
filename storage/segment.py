"""One segment: its log file, its three indexes, its summary.

Owns the bytes of one `<base>.log` and keeps two indexes a pure function of them and of the index interval: whether a
batch arrives by append, by recovery or by a rebuild, it goes through `_note`. Knows nothing of other segments, of
producers, of when to roll or of how it is searched (`search`). Not locked: the log that owns it is.

The log file is opened on first use. The indexes are in memory while the segment is active, mapped on first use once it
is sealed; a sealed one lets go of all of them where too many are open (`open_segments`). The summary vouches for the
index files and for the log that were there when the segment was loaded: `read` and `slice` give no byte of it that was
not verified since, and `Mismatch` says that what is known of the segment has to be rebuilt (`verification`).
"""

from collections.abc import Iterable
from enum import Enum, auto
from pathlib import Path

from crc32c import crc32c

from tidelog.protocol.records import entries, record_times
from tidelog.protocol.records.batch import CONTROL, DELETE_HORIZON, MAGIC, TRANSACTIONAL, Buffer
from tidelog.protocol.records.search import tally_messages
from tidelog.protocol.records.validate import ValidBatch
from tidelog.storage import append_index, files, walk
from tidelog.storage.append_index import AppendIndex, AppendTime, Described, Stored
from tidelog.storage.blocks import Digests, Unverified
from tidelog.storage.errors import CorruptLog, OffsetOutOfRange
from tidelog.storage.index_file import Data
from tidelog.storage.key_sample import KeySample
from tidelog.storage.layout import APPEND_INDEX, INDEX, LOG, SUMMARY, TIME_INDEX
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.shared import Shared
from tidelog.storage.sources import Source
from tidelog.storage.summary import NONE, OFFSET_MAX, Damage, Origin, Summary
from tidelog.storage.time_index import TimeIndex
from tidelog.storage.walk import INT32_MAX

_RARE = DELETE_HORIZON | TRANSACTIONAL | CONTROL


class State(Enum):
    """Where a segment is in its life. `_NEXT` has the ways from one state to another.

    An active segment and a copy keep their files open. The others open them when they are needed, and let go of them
    where too many are open. A sealed segment that Kafka wrote may be known by the last entries of its indexes alone
    (`Segment.is_known_by_index`), until it is first read.
    """

    ACTIVE = auto()  # takes appends, or is being scanned
    SEALED = auto()  # is only read
    COPY = auto()  # made by compaction: its files have not got their names yet, and end with its `mark`
    REPLACED = auto()  # a copy has its place, and may have its names: it opens no more files


_NEXT = {
    # By a roll, or by a start that has scanned it.
    State.ACTIVE: {State.SEALED},
    # By a cut or a start, after which it takes the appends; by a scan; by compaction.
    State.SEALED: {State.ACTIVE, State.REPLACED},
    # Once its files have their names; by a scan, where a reader finds it before.
    State.COPY: {State.SEALED, State.ACTIVE},
    State.REPLACED: set(),
}


def log_bytes(folder: Path) -> int:
    """Return how many bytes the `.log` files in a partition's folder have; OSError where it cannot be listed."""
    logs = (
        files.status(folder / entry.name)
        for entry in files.list_folder(folder)
        if entry.name.endswith(LOG) and not entry.is_folder
    )
    return sum(each.size for each in logs if each is not None)


class Mismatch(CorruptLog):
    """The files of a segment are not what its summary says: rebuild what is known of it, and look again."""

    def __init__(self, message: str, segment: "Segment") -> None:
        """Name the segment to `Log.recheck`."""
        super().__init__(message)
        self.segment = segment


class Segment:
    """A segment; `size` is what of its log is published to readers.

    `identity` stands for the bytes of its log, for as long as what is `shared` lives: a cut gives it another. The names
    of its files end with its `mark`, which only a copy has. `unverified` are the blocks that were there when it was
    loaded, None once all of them have been verified. `sample` is what is known of its keys.
    """

    __slots__ = (
        "__weakref__", "_append_index", "_digests", "_entry_ms", "_file", "_finished_size", "_offset_index",
        "_time_index", "base_offset", "folder", "identity", "index_bytes_max", "last_offset_max", "mark", "sample",
        "shared", "size", "state", "summary", "unverified",
    )  # fmt: skip

    def __init__(
        self,
        folder: Path,
        base_offset: int,
        size: int,
        summary: Summary,
        index_bytes_max: int,
        shared: Shared,
    ) -> None:
        """Describe a sealed segment whose files exist; nothing is opened."""
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.summary = summary
        self.index_bytes_max = index_bytes_max
        self.shared = shared
        self.state = State.SEALED
        self.mark = ""
        self.identity = next(shared.identities)
        self.sample: KeySample | None = None
        self.unverified: Unverified | None = None
        self._file: files.File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._append_index: AppendIndex | None = None
        self._digests: Digests | None = None
        self._finished_size = -1
        self._entry_ms = NONE  # the append time for which the last batch needed no entry any more
        self.last_offset_max = 0
        self._limit_offsets(summary.offset_entries, summary.time_entries, summary.append_entries)

    @classmethod
    def begin(
        cls,
        folder: Path,
        base_offset: int,
        interval: int,
        index_bytes_max: int,
        shared: Shared,
        now_ms: int,
        last_append_ms: int = NONE,
        origin: Origin = Origin.APPENDED,
        mark: str = "",
    ) -> "Segment":
        """Describe a new, active segment, whose files are to be made by `make_files`.

        `last_append_ms` is when the log it belongs to was last appended to; `mark` ends the names of a copy.
        """
        summary = Summary(0, 0, base_offset, now_ms, interval, last_append_ms=last_append_ms, origin=origin)
        segment = cls(folder, base_offset, 0, summary, index_bytes_max, shared)
        segment.mark = mark
        segment.state = State.COPY if mark else State.ACTIVE
        segment._finished_size = 0
        segment._empty_indexes(file_bytes=0)
        segment._append_index = segment._append_index_of(bytearray())
        return segment

    # Its files.

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files."""
        return self.folder / self.name(suffix)

    def name(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return f"{self.base_offset:020d}{suffix}{self.mark}"

    @property
    def file(self) -> files.File:
        """The log file, opened on first use; what is read from it past `read` and `slice` was not verified."""
        file = self._file
        return self._open() if file is None else file

    def _open(self) -> files.File:
        try:
            opened = self._open_file()
        except FileNotFoundError:
            self._refuse_replaced()
            raise OffsetOutOfRange(f"{self.path(LOG)} was just deleted by retention") from None
        self._refuse_replaced()
        with self.shared.open_segments.lock:
            # There is one only, also where two threads open it at once: it knows where the next append goes.
            if self._file is None:
                opened.size = self.size
                self._file = opened
                if not self.is_active:
                    self.shared.open_segments.note(self)
            return self._file

    def _open_file(self) -> files.File:
        return files.File(self.path(LOG))

    def release(self) -> None:
        """Let go of what can be opened again; readers keep what they hold."""
        with self.shared.open_segments.lock:
            self.let_go()
            if self._append_index is not None:
                self._append_index.let_go()

    def let_go(self) -> None:
        """Do as `release` does, where the lock of `open_segments` is held; not while its files change their names."""
        if self.state in (State.SEALED, State.REPLACED):
            self._file = self._offset_index = self._time_index = self._append_index = self._digests = None

    def close(self) -> None:
        """Let go of the log's file, which has been flushed, even while active: no more is appended."""
        with self.shared.open_segments.lock:
            self._file = None
            if self._append_index is not None:
                self._append_index.let_go()

    def sync(self) -> None:
        """Return once the files of a sealed segment are on disk; one that was deleted meanwhile need not be."""
        file = self._file
        if file is not None:
            file.sync()
        else:
            files.sync(self.path(LOG))
        for suffix in (INDEX, TIME_INDEX, APPEND_INDEX):
            files.sync(self.path(suffix))

    def make_files(self) -> None:
        """Make the files of a new segment, all or none. Their names are durable once the folder is synced.

        The log comes last: what a crash leaves without one is no segment.
        """
        files.create_all([self.folder / name for name in self.new_names])

    @property
    def new_names(self) -> list[str]:
        """The names of the files that a new segment has, empty, in the order in which to make them."""
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
        """Read bytes of its log from a source; raise Mismatch if they are not what was written."""
        if self.unverified is not None:
            self.verify(position, position + count, source)
        return source.read(self._file or self._open(), count, position)

    def slice(self, position: int, length: int, data: bytes | None, source: Source) -> files.FileSlice:
        """Return a slice of its log, verified now; `data` are its bytes, where they are known already."""
        if self.unverified is not None:
            self.verify(position, position + length, source)
        return files.FileSlice(self._file or self._open(), position, length, data)

    def verify(self, start: int, end: int, source: Source) -> None:
        """Verify what was in a range when the segment was loaded, if nobody has; raise Mismatch if it has changed."""
        unverified = self.unverified
        if unverified is None:
            return
        if not unverified.verify(self.file, start, end, source):
            raise Mismatch(f"{self.path(LOG)}@{start}-{end}: not what its summary says", self)
        if unverified.is_done:
            self.unverified = None

    @property
    def is_known_by_index(self) -> bool:
        """Whether only the last entries of its indexes were read: the log and indexes cannot be, before a check."""
        return self.unverified is not None and not self.unverified.has_digests

    @property
    def digests(self) -> Digests:
        """The digests of its blocks, to go on with."""
        digests = self._digests
        if digests is None:
            digests = self._digests = Digests(self.summary.digests)
        return digests

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded on first use."""
        index = self._offset_index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded on first use."""
        index = self._time_index
        return self._load_indexes()[1] if index is None else index

    @property
    def append_index(self) -> AppendIndex:
        """The append index, loaded on first use."""
        index = self._append_index
        return self._load_append_index() if index is None else index

    def _refuse_replaced(self) -> None:
        """Raise Mismatch if files of its names may be those of another: to be asked once they are open."""
        if self.state is State.REPLACED:
            raise Mismatch(f"{self.path(LOG)}: compaction has put another in its place", self)

    # Writing.

    def append(self, data: memoryview | bytearray, valid: ValidBatch, base_offset: int, now_ms: int) -> int:
        """Write one batch that has its offsets, take note of it, and return its position.

        After an OSError call `cut_torn`.
        """
        if self._offset_index is None:
            self._load_indexes()
        digests, summary = self._digests or self.digests, self.summary
        position = self.size
        end = position + len(data)
        file = self._file or self.file
        if now_ms != self._entry_ms:
            # First, so that no batch is ever there without it.
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
                # At once: without timestamps, rolling counts from the creation time, which the log does not hold.
                with self.shared.disk.may_refuse("summary", self.path(SUMMARY)):
                    self.save()
        return position

    def extend(self, data: Buffer, batches: Iterable[ValidBatch]) -> None:
        """Write batches of other segments, one after another, into a copy; their append times are not noted."""
        self.file.append(data)
        self.digests.add(data, self.size)
        for batch in batches:
            self._note(self.size, batch.header.base_offset, batch)
            self.size += batch.size_bytes

    def _note(self, position: int, base_offset: int, batch: ValidBatch) -> None:
        """Bring summary and indexes up to date with the batch at `position`, the next in the log.

        `base_offset` is its offset, whatever its header says.
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
        # An empty batch, left by compaction, has a timestamp that no record has.
        if max_timestamp > summary.max_timestamp and record_count:
            summary.max_timestamp = max_timestamp
            delta = batch.max_timestamp_offset_delta
            summary.max_timestamp_offset = base_offset + delta if delta >= 0 else NONE
            summary.max_timestamp_last_offset = last_offset
        # Bytes since the last entry, this batch not counted; a difference needs no counter that a restart could lose.
        if position - summary.indexed_position > summary.index_interval_bytes:
            self._index(position, last_offset)
        summary.record_count += record_count
        summary.batch_count += 1
        summary.next_offset = last_offset + 1

    def _note_messages(self, position: int, data: memoryview | bytearray) -> None:
        """Take note of messages of an older format, each an entry of the log.

        All those of one stretch that get no index entry change the same few figures: they are looked at together.
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
        offset_index.append(last_offset - self.base_offset, position)
        time_index.append_if_larger(
            summary.max_timestamp, summary.max_timestamp_last_offset - self.base_offset
        )
        summary.indexed_position = position
        self._limit_offsets(len(offset_index), len(time_index), self._append_entries)

    @property
    def _append_entries(self) -> int:
        return self.summary.append_entries if self._append_index is None else len(self._append_index)

    def bound_indexes(self, index_bytes_max: int) -> None:
        """Let no index grow beyond a size from now on."""
        self.index_bytes_max = index_bytes_max
        offsets, times = self.summary.offset_entries, self.summary.time_entries
        if self._offset_index is not None and self._time_index is not None:
            offsets, times = len(self._offset_index), len(self._time_index)
        self._limit_offsets(offsets, times, self._append_entries)

    def _limit_offsets(self, offset_entries: int, time_entries: int, append_entries: int) -> None:
        """Set the last offset that fits: by its distance from the base, or none where an index is full."""
        self.last_offset_max = self.base_offset + INT32_MAX
        # One slot of the time index is kept for the entry that sealing adds.
        if (
            offset_entries >= self.index_bytes_max // OffsetIndex.entry_bytes
            or time_entries >= self.index_bytes_max // TimeIndex.entry_bytes - 1
            or append_entries >= max(self.index_bytes_max // AppendIndex.entry_bytes, 1)
        ):
            self.last_offset_max = -1

    def cut_torn(self) -> None:
        """Remove what a failed append left after the published end: nothing, if the file could not be opened."""
        if self._file is not None:
            self._file.truncate(self.size)
        self._entry_ms = NONE
        if self._append_index is not None:
            self._append_index.cut(self.next_offset - self.base_offset)

    def save(self, *, final: bool = False, flushed: bool = False, durably: bool = False) -> bytes:
        """Write indexes and summary as they stand, with `final` as if sealed; `durably` forces the summary to disk.

        `flushed` says that the log is there. Return what the summary's file is to hold once it is.
        """
        summary, offset_index, time_index = self.summary, self.offset_index, self.time_index
        entry = b""
        if final:
            relative_offset = summary.max_timestamp_last_offset - self.base_offset
            entry = time_index.next_entry(summary.max_timestamp, relative_offset)
        summary.log_bytes = self.size
        summary.digests = self.digests.encode(self.size)
        # Before they are written: where that fails no file passes for them once they are let go.
        summary.offset_entries, summary.time_entries = len(offset_index), len(time_index) + bool(entry)
        summary.offset_crc, summary.time_crc = offset_index.save(), time_index.save(entry)
        if self._append_index is not None:  # else nothing was appended since the summary was read
            summary.append_entries, summary.append_crc = len(self._append_index), self._append_index.save()
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
        """Save at once what was found in a log that is on disk, where the summary's file says something else."""
        self.save(final=finished, flushed=True, durably=True)

    def replace_files(self, *, flushed: bool) -> None:
        """Seal with files of its own: readers of the ones before keep what they have mapped."""
        self.become(State.SEALED)
        with self.shared.disk.may_refuse("indexes", self.path(INDEX)):
            self.append_index.mend_file()
            for suffix in (SUMMARY, INDEX, TIME_INDEX):
                files.remove(self.path(suffix))
            self.offset_index.forget_file()
            self.time_index.forget_file()
            self.finish(flushed=flushed)

    def seal(self) -> None:
        """Take less memory: from now on it is only read. It must be finished."""
        self.become(State.SEALED)
        self._offset_index = self._time_index = self._append_index = self._digests = None

    def become(self, state: State) -> None:
        """Go on to another state, or stay as it is."""
        assert state is self.state or state in _NEXT[self.state], f"{self.path(LOG)}: {self.state} to {state}"
        with self.shared.open_segments.lock:
            self.state = state
            if state is State.SEALED and self._file is not None:
                self.shared.open_segments.note(self)

    def note_flushed(self) -> None:
        """Have the summary of a sealed segment say that all of it is on disk, if it says so of its indexes."""
        if self._finished_size == self.size:
            self.summary.flushed = 1
            self.write_summary(self.summary.encode())

    def write_summary(self, data: bytes) -> None:
        """Replace the summary's file; a failure costs time at the next start, nothing else."""
        with self.shared.disk.may_refuse("summary", self.path(SUMMARY)):
            self.summary.file_append_ms = NONE
            files.write(self.path(SUMMARY), data)

    def bound_clean(self, offset: int) -> None:
        """Know, on disk too, of no replacement by a record from an offset on."""
        if self.summary.cleaned_to > offset:
            self.summary.cleaned_to = offset
            files.write_atomically(self.path(SUMMARY), self.summary.encode())

    # Loading.

    def believe(self, summary: Summary, *, finished: bool) -> None:
        """Take what a summary says, for as long as nothing shows that it is not true.

        `finished` if it was written when the segment was sealed or closed.
        """
        self.summary = summary
        if summary.log_bytes:
            self.unverified = Unverified(summary.digests, summary.log_bytes, summary.next_offset)
        self._limit_offsets(summary.offset_entries, summary.time_entries, summary.append_entries)
        self._finished_size = self.size if finished else -1

    def load_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        """Take the index files if they are as the summary says; what is after its entries is not looked at."""
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
            # Closing added an entry that the log, as it will go on, does not call for.
            time_index.drop_final(offset_index.entry(len(offset_index) - 1)[0] if len(offset_index) else -1)
        indexes = offset_index, time_index
        with self.shared.open_segments.lock:
            self._offset_index, self._time_index = indexes
            if not self.is_active:
                self.shared.open_segments.note(self)
        return indexes

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        indexes = None if self.is_known_by_index else self.load_indexes()
        if indexes is None:
            self._refuse_replaced()
            if files.status(self.path(LOG)) is None:
                raise OffsetOutOfRange(f"{self.path(LOG)} was just deleted by retention")
            raise Mismatch(f"{self.path(INDEX)}: missing, or not of this log", self)
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
            self._append_index = index
            if not self.is_active:
                self.shared.open_segments.note(self)
        return index

    def mend_append_index(self, bound_ms: int, *, is_tail_lost: bool = False) -> AppendIndex | None:
        """Have append times for what was found in the log, after a stop that may have taken some.

        All was appended by `bound_ms`, which stands in where no entry and no batch tells. Return the index if its file
        has yet to be replaced, or if the summary vouches for entries that are gone: it would take others in their place
        for those of another log.
        """
        summary, stored = self.summary, append_index.load(self.path(APPEND_INDEX))
        index = self._append_index = self._mended(stored, bound_ms, is_tail_lost=is_tail_lost)
        if index.data:
            summary.first_append_ms = index.entry(0).time_ms
            summary.last_append_ms = max(summary.last_append_ms, index.entry(len(index) - 1).time_ms)
        is_known = self._is_file_of(index, stored) and append_index.is_vouched(index.data, summary)
        return index if self.is_active and not is_known else None

    def write_append_times(self, times: Iterable[AppendTime]) -> None:
        """Write the append times of a copy."""
        index = self._append_index = self._append_index_of(append_index.encoded(times))
        files.write(index.path, index.encode())

    def _is_file_of(self, index: AppendIndex, stored: Stored) -> bool:
        """Tell whether entries can go on in the file as it is."""
        if index.data != stored.entries:
            return False
        return not index.data or stored.header_of(self.folder, self.base_offset) is not None

    def _mended(self, stored: Stored, bound_ms: int, *, is_tail_lost: bool) -> AppendIndex:
        log = Described(self.file, self.size, self.base_offset, self.summary)
        return self._append_index_of(append_index.mended(stored, log, bound_ms, is_tail_lost=is_tail_lost))

    def _append_index_of(self, data: Data) -> AppendIndex:
        origin, opened = self.summary.origin, self.shared.open_append_indexes
        return AppendIndex(self.path(APPEND_INDEX), self.base_offset, origin, data, opened)

    def _empty_indexes(self, file_bytes: int | None = None) -> tuple[OffsetIndex, TimeIndex]:
        indexes = (
            OffsetIndex(self.path(INDEX), bytearray(), file_bytes),
            TimeIndex(self.path(TIME_INDEX), bytearray(), file_bytes),
        )
        self._offset_index, self._time_index = indexes
        self._limit_offsets(0, 0, self._append_entries)
        return indexes

    def unread(self, size: int) -> "Segment":
        """Return an active segment of the same log, of which nothing is known but what a log does not hold."""
        summary = self.summary.only_times(self.base_offset)
        segment = type(self)(self.folder, self.base_offset, size, summary, self.index_bytes_max, self.shared)
        segment._file = self.file
        segment.mark = self.mark
        segment.state = State.ACTIVE
        segment._digests = Digests()
        segment._append_index = self._append_index
        segment._empty_indexes()
        return segment

    def rebuild(self, refuses: walk.Refuses | None = None, epoch_at: walk.EpochAt | None = None) -> None:
        """Make indexes and summary from the log alone; what the log does not hold stays as it is."""
        self.summary = self.summary.only_times(self.base_offset)
        self.unverified = None
        self._digests = Digests()
        self._empty_indexes()
        self.scan(refuses, epoch_at)
        self.summary.appended_from = min(self.summary.appended_from, self.next_offset)

    def scan(self, refuses: walk.Refuses | None = None, epoch_at: walk.EpochAt | None = None) -> None:
        """Verify every batch after what the summary describes, and take note of it.

        What is not a whole batch, or is refused, is noted as damage, to the end of the file where no batch follows.
        """
        summary, digests = self.summary, self.digests
        digested, damaged_from = summary.log_bytes, NONE
        for batch in walk.verified(
            self.file, summary.log_bytes, self.size, self.base_offset, summary.next_offset, refuses, epoch_at
        ):
            if batch.end - digested >= walk.CHUNK_BYTES:
                # Soon after the walk, while they are in memory.
                digests.add_from(self.file, digested, batch.end)
                digested = batch.end
            header = batch.header
            if header is None:
                if damaged_from == NONE:
                    damaged_from = batch.position
                continue
            if damaged_from != NONE:
                summary.damage += (Damage(damaged_from, batch.position, header.base_offset),)
                damaged_from = NONE
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
        """Cut off the batch at `position` and all after it, and go on from there as the active segment."""
        self.become(State.ACTIVE)
        self.cut_file(position)
        if self.end_at(position):
            self.append_index.cut_file()

    def cut_file(self, size: int) -> None:
        """Cut the log's file only. The summary vouches for what goes: no start may believe it of what follows."""
        self.append_index.mend_file()
        self.summary.replace_by_times(self.path(SUMMARY), self.base_offset)
        self.file.truncate(size)

    def end_at(self, position: int) -> bool:
        """Know of no batch from `position` on, in memory only; tell whether append times are dropped as well."""
        index = self.append_index
        self.identity = next(self.shared.identities)
        self.size = position
        self.rebuild()
        self._append_index = index
        self._entry_ms = NONE
        return index.drop(self.next_offset - self.base_offset)
