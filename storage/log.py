"""The log of one partition: a tuple of segments; appends go to the last one.

Owns offsets, the order of appends, rolling, truncation and the deletion of segments. `durability` flushes,
`batch_rules` checks batches, `retention` says which segments expire, and `search` finds records. Knows batches and
files; nothing of requests.

The event loop appends and reads, the flusher thread flushes, and the maintenance thread does everything else. Readers
take the tuple `segments` and never lock. A thread that needs several of these locks takes them in this order:

1. `replacing`, while segments are replaced: by `recheck` (any thread that may wait) or by compaction. It may be held
   for long; appends and flushes go on.
2. `durability.lock`, for a whole flush, and for operations that must not overlap one: truncation and `retire`.
3. `lock`, for an append, and for every change of `segments`, which publishes a new tuple. It is usually held for
   microseconds; some holders create, rename or write small files.
4. `snapshots.lock`, while a snapshot of the producers is written, and for operations that must not overlap that.
5. The locks of shared objects (`shared`): producer memory, open files, kept times, disk state. Their holders take no
   other lock.

An append is all or nothing: the bytes of one that failed are cut off before the next append. Append times never go
back: before the batch with the last append time is deleted, a batch or a summary on disk has that time, and a new
segment starts with it.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.batch import MAGIC, BatchHeader, set_base
from tidelog.protocol.records.steps import Steps
from tidelog.protocol.records.topic_format import assign_offsets, fits, stamped
from tidelog.protocol.records.validate import ValidBatch
from tidelog.storage import files, layout, pins, verification
from tidelog.storage.batch_rules import Checked as Checked
from tidelog.storage.continuity import bound_damage
from tidelog.storage.deleted_files import DeletedFiles
from tidelog.storage.disk_space import is_passing
from tidelog.storage.durability import Durability
from tidelog.storage.errors import (
    LogDeleted,
    LogOffline,
    Mismatch,
    OffsetOutOfRange,
    OnError,
    ReadFailed,
    TakesLong,
)
from tidelog.storage.files import FileSlice
from tidelog.storage.health import Health
from tidelog.storage.layout import LOG, SUMMARY
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.producer_snapshots import ProducerSnapshots, Write
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.quick_rolls import QuickRolls
from tidelog.storage.roll_times import RollTimes
from tidelog.storage.search import by_offset
from tidelog.storage.search.by_offset import segment_number
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT, Source
from tidelog.storage.unflushed import Unflushed

# The isolation level of consumers that read only decided transactions; 0 is read_uncommitted.
READ_COMMITTED: Final = 1
# A smaller log without producers needs no snapshot: the next start reads its batch headers instead.
SNAPSHOT_FROM_BYTES: Final = 4 << 10

_new: Final = tuple.__new__
_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """Where a batch is stored.

    `append_time_ms` is -1 unless the topic uses LogAppendTime; `duplicate` says that an earlier append stored it.
    """

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool


class Log:
    """The log of one partition. `log_manager` makes it, through `recovery`."""

    unopened: str | None = None  # why the start could not open it (`unopened`)

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
        shared: Shared,
        segments: list[Segment],
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        epochs: LeaderEpochs | None = None,
    ) -> None:
        """Take over loaded segments; the last one is active."""
        self.directory = folder
        self.device = files.device_of(folder)
        self.topic = topic
        self.partition = partition
        self.lock = threading.Lock()
        self.segments: tuple[Segment, ...] = tuple(segments)
        self.active = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.active.next_offset
        self.epochs = epochs or LeaderEpochs(folder)
        self.leader_epoch = self.epochs.latest
        self.shared = shared
        self.producers = ProducerState(shared.producers)
        self.snapshots = ProducerSnapshots(folder, str(self), self.lock, shared.disk)
        self.last_flush_ms = 0  # by `flush.ms`
        self.last_append_ms = max(segment.summary.last_append_ms for segment in segments)
        if not self.active.size:
            # As in a new segment: after retention this summary may be the only place that has it.
            self.active.summary.last_append_ms = self.last_append_ms
        self.last_batch_bytes = 0  # the stored size of the last batch
        self.health = Health(str(self), shared.disk)
        self.deleted = DeletedFiles(folder)
        self.replacing = threading.Lock()
        self._quick_rolls = QuickRolls(str(self))
        unflushed = [s for s in segments[:-1] if s.next_offset > recovery_point or not s.summary.flushed]
        names = bool(unflushed) or self.active.base_offset >= recovery_point
        self.durability = Durability(
            self.health, self.active, recovery_point, Unflushed(folder, unflushed, names, shared.disk)
        )
        self.update_config(config)

    def __str__(self) -> str:
        """Return `topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id, 16 bytes, from the partition's folder; None if the folder has none."""
        return layout.load_topic_id(self.directory)

    @property
    def magic(self) -> int:
        """The record format in which new batches are stored: 0, 1 or 2."""
        return self._rules.magic

    @property
    def prompt_bytes(self) -> int:
        """The largest uncompressed batch that `append` takes without `check`."""
        return self._rules.prompt_bytes

    def keeps(self, size_bytes: int) -> bool:
        """Tell whether a valid, uncompressed batch of this size is stored as it is."""
        return self._rules.keeps(size_bytes)

    @property
    def takes_writes(self) -> bool:
        """Whether an append is likely to be accepted; reads go on either way. Any thread."""
        return self.health.failure is None and not self.shared.disk.is_full

    @property
    def high_watermark(self) -> int:
        """The end of the replicated records: with one replica, the end of the log."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the decided records: without transactions, the end of the log."""
        return self.log_end_offset

    def readable_end(self, isolation_level: int) -> int:
        """Return the offset up to which a consumer with this isolation level may read."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    @property
    def size_bytes(self) -> int:
        """The total size of the segments' `.log` files."""
        return sum(segment.size for segment in self.segments)

    def disk_bytes(self) -> int:
        """Return `size_bytes` plus the space that deleted segments and pins still take. Raise OSError."""
        return self.size_bytes + pins.held_bytes(self.directory)

    @property
    def damaged(self) -> tuple[str, ...]:
        """The damaged byte ranges, each as file@from-to."""
        return tuple(place for place, _ in self.damage())

    def damage(self) -> list[tuple[str, int]]:
        """Return the damaged byte ranges, each with the first offset after it."""
        found = [(each.path(LOG).name, damage) for each in self.segments for damage in each.summary.damage]
        return [(f"{name}@{damage.start}-{damage.end}", damage.next_offset) for name, damage in found]

    def update_config(self, config: TopicConfig) -> None:
        """Replace the options; a segment that has batches keeps its index interval.

        Any thread. A concurrent append uses the old options or the new ones.
        """
        rules = self.shared.rules_of(config)
        with self.lock:
            self.config = config
            self._segment_bytes = config.segment_bytes
            self._rules = rules
            self.active.bound_indexes(config.segment_index_bytes)
            if not self.active.size:
                self.active.summary.index_interval_bytes = config.index_interval_bytes
            self._roll_times = RollTimes(config, self.active.summary)

    # Appending.

    def check(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        *,
        any_format: bool = False,
        fits_anywhere: bool = False,
    ) -> Steps[Checked]:
        """Check a batch that takes long; pass the result to `append`. Any thread. Raise RecordsError.

        With `fits_anywhere`, later appends do not make the result useless (`BatchRules.check`).
        """
        return (yield from self._rules.check(data, now_ms, self.log_end_offset, any_format, fits_anywhere))

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        checked: Checked | None = None,
        any_format: bool = False,
    ) -> Appended:
        """Store one produced batch at the end of the log, without a flush. Its offsets are written into `data`.

        With `any_format` the batch may be a message set of an older format. Where the topic's `message.format.version`
        or `compression.type` asks for another format or codec, a converted copy is stored. On an error nothing is
        stored. Raise RecordsError for an invalid batch and StorageError if the log cannot take it. TakesLong means:
        call `check` on another thread (again, if it was called), and pass its result. Event loop only.
        """
        rules = self._rules
        if rules.log_append_time and now_ms < self.last_append_ms:
            now_ms = self.last_append_ms
        if checked is None:
            data, valid = rules.check_promptly(data, now_ms, self.log_end_offset, any_format)
        else:
            data, valid = checked
            if not fits(valid, self.log_end_offset):
                raise TakesLong(f"{self}: other batches were appended after this one was compressed")
            if rules.log_append_time:
                valid = stamped(data, valid, now_ms)  # Later appends may have moved the clock forward.
        # Not `with`, and not Appended(...): they would cost a tenth of an append.
        self.lock.acquire()
        try:
            return _new(Appended, self._store(data, valid, now_ms, rules.log_append_time))
        except Mismatch as mismatch:
            wrong = mismatch.segment
        finally:
            self.lock.release()
        # The first append since the start found that the index files do not belong to the log file.
        self.recheck(wrong, PATIENT)
        with self.lock:
            return _new(Appended, self._store(data, valid, now_ms, rules.log_append_time))

    def _store(
        self, data: bytearray | memoryview, valid: ValidBatch, now_ms: int, is_stamped: bool
    ) -> tuple[int, int, int, bool]:
        """Assign offsets to a valid batch and write it; return the fields of Appended.

        `is_stamped` comes from the rules that checked the batch: `update_config` may have replaced them.
        """
        health = self.health
        if health.failure is not None and not health.mend():
            raise health.offline()
        header = valid.header
        producer_id = header.producer_id
        if producer_id >= 0:
            sent = self.producers.check(header)
            if sent is not None:
                append_ms = sent.append_ms if is_stamped else -1
                return sent.base_offset, sent.last_offset, append_ms, True
        if now_ms < self.last_append_ms:
            now_ms = self.last_append_ms  # Append times never go back, whatever the clock does.
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment, roll_times = self.active, self._roll_times
        try:
            if (
                segment.size + len(data) > self._segment_bytes
                or last_offset > segment.last_offset_max
                or (valid.max_timestamp > roll_times.timestamp and self._may_roll(valid, now_ms))
                or now_ms > roll_times.wall_ms
            ):
                segment = self.begin_segment(now_ms)
            if header.magic == MAGIC:
                set_base(data, 0, base_offset, self.leader_epoch)
            else:
                assign_offsets(data, valid, base_offset)
            position = segment.append(data, valid, base_offset, now_ms)
        except OSError as error:
            raise self._write_failed(error) from error
        if producer_id >= 0:
            self.producers.note(header, base_offset, now_ms)
        if base_offset == segment.base_offset:
            self._roll_times.begin(segment.summary)
            self.shared.on_first_batch(self)
        if valid.times:
            self.shared.times.keep_appended(
                segment.identity, position, header, valid.times, base_offset, self.leader_epoch
            )
        self.last_append_ms = now_ms
        self.last_batch_bytes = len(data)
        self.log_end_offset = last_offset + 1
        return base_offset, last_offset, now_ms if is_stamped else -1, False

    def _may_roll(self, valid: ValidBatch, now_ms: int) -> bool:
        return self._quick_rolls.allows(self.segments, valid.max_timestamp, self.config, now_ms)

    def _write_failed(self, error: OSError) -> LogOffline:
        """Cut off what a failed write left; if that fails too, the next append tries again. Return the error."""
        self.shared.disk.refused(error)
        try:
            self.active.cut_torn()
        except OSError as second:
            self.health.fail(
                f"a failed write ({error}) could not be undone ({second}); free space in {self.directory}",
                self.active.cut_torn,
            )
        return LogOffline(
            f"{self}: the batch was not stored: {error}; free space in {self.directory} or repair the disk"
        )

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one, unless the active one is empty."""
        with self.lock, self.offline_on_error():
            if self.health.failure is not None:
                raise self.health.offline()
            self.begin_segment(now_ms)
        self.snapshots.write()

    def begin_segment(self, now_ms: int) -> Segment:
        """Roll with `lock` held; return the active segment. Raise OSError if a new one cannot be created."""
        old = self.active
        if not old.size:
            return old
        old.finish()
        self.durability.unflushed.add_names()
        new = Segment.begin(
            self.directory, self.log_end_offset, self.config, self.shared, now_ms, self.last_append_ms
        )
        new.make_files()
        # The new segment exists, so nothing fails from here on: an error in these steps only slows the next start.
        old.seal()
        self.durability.unflushed.sealed.append(old)
        self.publish((*self.segments, new))
        self.copy_producers()
        return new

    def publish(self, segments: tuple[Segment, ...]) -> None:
        """Replace the segments. Call with `lock` held."""
        if segments[-1] is not self.active:
            self.active = segments[-1]
            self.durability.saved_bytes = self.active.size
            self._roll_times = RollTimes(self.config, self.active.summary)
        self.segments = segments

    @property
    def idle_due_ms(self) -> int | None:
        """When the active segment is to be sealed without an append; None while it is empty."""
        return self._roll_times.idle_ms(self.active.summary)

    # Reading.

    def read(self, offset: int, max_bytes: int, at_least_one: bool, source: Source) -> FileSlice:
        """Return a slice of one segment, from the batch that holds `offset`; an empty one at the end of the log.

        The slice has at most `max_bytes` and may end inside a batch, but not inside the first. If the first batch is
        larger, the slice is empty, or with `at_least_one` that batch. The search raises NotInMemory and TakesLong as
        the source asks; the caller reads the slice.
        """
        segments = self.segments
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self}: offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}"
            )
        if offset < self.log_end_offset:
            try:
                number = segment_number(segments, offset)
                while number < len(segments):
                    found = by_offset.read(segments[number], offset, max_bytes, at_least_one, source)
                    if found is not None:
                        return found
                    number += 1
            except Mismatch as mismatch:
                self.recheck(mismatch.segment, source)
                return self.read(offset, max_bytes, at_least_one, source)
            except OSError as error:
                raise ReadFailed(f"{self}: offset {offset} cannot be read: {error}") from error
        return files.NOTHING

    def headers(self, offset: int, *, may_recheck: bool = True) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """Yield (segment, position, header) of every readable batch, from the one that holds `offset` on.

        A caller that holds a lock of the log passes `may_recheck=False`, and gets Mismatch instead of a `recheck`.
        """
        segments = self.segments
        for each in segments[segment_number(segments, offset) :]:
            if each.next_offset > offset:  # otherwise its replacement was read already
                segment = self._verified(each, offset) if may_recheck else each
                for position, header in by_offset.headers(segment, offset):
                    yield segment, position, header
                    offset = header.last_offset + 1

    def _verified(self, segment: Segment, offset: int) -> Segment:
        """Verify a segment from an offset on, with rechecks; return it or its replacement. Not on the event loop."""
        while True:
            try:
                self._verify(segment, offset)
            except Mismatch:
                current = self.recheck(segment, PATIENT)
                if current is None:
                    raise
                segment = current
            else:
                return segment

    @staticmethod
    def _verify(segment: Segment, offset: int) -> None:
        """Verify the bytes of a segment from an offset on; raise Mismatch if its summary does not match them."""
        position, *_ = segment.offset_index.around(offset - segment.base_offset)
        segment.verify(position, segment.size, PATIENT)

    def recheck(self, segment: Segment, source: Source) -> Segment | None:
        """Rebuild a segment's indexes and summary from its log, unless another thread did; return its replacement.

        That may be a larger segment after compaction, and is None after a deletion. Raise TakesLong for a prompt
        source. Appends go on.
        """
        if source.prompt:
            raise TakesLong(f"{self}: a segment has to be checked again")
        with self.replacing:
            if segment in self.segments:
                try:
                    found = verification.recheck(segment, self.epochs.at)
                    self._catch_up(found, segment)
                except OSError as error:
                    raise ReadFailed(f"{segment.path(LOG)}: {error}") from error
                with self.lock:
                    if segment in self.segments:
                        self._catch_up(found, segment)
                        self._replace(segment, found)
                        verification.log_found(found, self.segments)
        now, base = self.segments, segment.base_offset
        return None if base < now[0].base_offset else now[segment_number(now, base)]

    @staticmethod
    def _catch_up(found: Segment, segment: Segment) -> None:
        """Scan what was appended to a segment after the check read it."""
        found.size = segment.size
        found.scan()

    def _replace(self, segment: Segment, found: Segment) -> None:
        """Replace a segment by its rebuilt one, with `lock` held."""
        found.summary.last_append_ms = max(found.summary.last_append_ms, segment.summary.last_append_ms)
        if segment.is_active:
            # If the log ends with damage, the next append still gets the next offset.
            found.summary.next_offset = max(found.next_offset, self.log_end_offset)
        else:
            bound_damage([found, self.segments[self.segments.index(segment) + 1]])
            found.replace_files(flushed=bool(segment.summary.flushed))
        self.durability.unflushed.replace(segment, found)
        self.publish(tuple(found if each is segment else each for each in self.segments))

    # Durability and health.

    def flush(self) -> int:
        """Put everything appended before the call on disk; return the offset after it (`Durability.flush`)."""
        return self.durability.flush(self)

    def mend(self) -> None:
        """Try to repair what a failure left, and take writes again if that succeeds."""
        with self.lock:
            self.health.mend()

    @property
    def recovery_point(self) -> int:
        """The offset up to which every record is known to be on disk."""
        return self.durability.recovery_point

    def copy_producers(self) -> None:
        """Schedule a snapshot of the producers at the end of the log. Call with `lock` held."""
        self.snapshots.keep(self.log_end_offset, self.producers.copy())

    def load_producers(
        self,
        snapshots: list[int],
        since: int = 0,
        write: Write = lambda write: write(),
        *,
        may_recheck: bool = True,
    ) -> None:
        """Load the newest good snapshot and replay the batches after it; no batch before `since` has a producer.

        Batches before the log's start count: a producer may send its last batch again after DeleteRecords. If they
        cannot be read, only those after it do.
        """
        offset = self.snapshots.load(self.producers, snapshots, self.log_end_offset, write)
        start = since if offset is None else offset
        try:
            self._note_producers(start, may_recheck)
        except (OSError, ReadFailed) as error:
            if start >= self.log_start_offset or (isinstance(error, OSError) and is_passing(error)):
                raise
            # Retention will delete what cannot be read. Later batches of a producer that was found may be there.
            _log.warning("producers before the log's start are forgotten log=%s error=%r", self, str(error))
            self.producers.clear()
            self._note_producers(max(since, self.log_start_offset), may_recheck)

    def _note_producers(self, start: int, may_recheck: bool) -> None:
        """Note the producer of every batch from `start` on."""
        end = start  # of the batch before
        if start < self.log_end_offset:
            for segment, _, header in self.headers(start, may_recheck=may_recheck):
                # Converted messages have lost their producer's id, so its remembered sequence may be too old.
                # The same holds for damage that DeleteRecords has left before the log's start.
                if header.magic != MAGIC or (
                    end < min(header.base_offset, self.log_start_offset)
                    and self._has_damage(end, header.base_offset)
                ):
                    self.producers.clear()
                end = header.last_offset + 1
                if header.producer_id >= 0 and not header.is_control:
                    # Only a batch with LogAppendTime has its append time; the segment's last one bounds the others.
                    append_ms = (
                        header.max_timestamp if header.is_log_append_time else segment.summary.last_append_ms
                    )
                    self.producers.note(header, header.base_offset, append_ms)

            if end < self.log_start_offset and self._has_damage(end, self.log_end_offset):
                self.producers.clear()

    def _has_damage(self, start: int, end: int) -> bool:
        """Tell whether offsets of a range, which no batch has, are damaged."""
        damage = (damage for segment in self.segments for damage in segment.summary.damage)
        return any(start < each.next_offset <= end for each in damage)

    # Truncation and deletion.

    def truncate(self, offset: int, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Cut off the batch that holds `offset` and everything after it, durably.

        Before the call, no checkpoint may have a recovery point after the cut (`LogManager.truncate`): the next start
        would report the records as lost. If the cut moves the log's start back, `checkpoint` is called before the next
        append: with the old start, the next broker start would hide new records.
        """
        while True:
            try:
                with self.durability.lock, self.lock:
                    self._truncate(offset, checkpoint)
            except Mismatch as mismatch:  # nothing has been cut yet
                self.recheck(mismatch.segment, PATIENT)
            except OSError as error:
                raise ReadFailed(f"{self}: not truncated, as it cannot be read: {error}") from error
            else:
                return

    def _truncate(self, offset: int, checkpoint: Callable[[], None]) -> None:
        """Truncate with both locks held. Raise Mismatch, before any change, if a segment needs a `recheck`."""
        if self.health.failure is not None:
            raise self.health.offline()
        if offset >= self.log_end_offset:
            return
        # A segment that begins at `offset` stays, empty: the log goes on there.
        kept = [each for each in self.segments if each.base_offset <= offset] or [self.segments[0]]
        for segment in kept:
            self._verify(segment, segment.base_offset)
        start = self.log_start_offset
        position, *_ = by_offset.locate(kept[-1], offset, PATIENT)
        try:
            self._cut(kept, position)
            if self.log_start_offset < start:
                checkpoint()
        except (OSError, Mismatch) as error:
            raise self.health.distrust(f"a cut failed half way ({error})") from error

    def _cut(self, kept: list[Segment], position: int) -> None:
        # First: with a full summary, the next start would report the cut batches as lost (`continuity.known_end`).
        kept[-1].summary.replace_by_times(kept[-1].path(SUMMARY), kept[-1].base_offset)
        gone = self.segments[len(kept) :]
        for segment in kept[:-1]:
            # The new records at these offsets have not been compared with older ones yet.
            segment.bound_clean(kept[-1].base_offset)
        self.deleted.remove_now(gone)
        kept[-1].truncate(position)
        kept[-1].file.sync()  # A crash must not bring the cut bytes back after later appends.
        self.snapshots.cut()
        self.publish(tuple(kept))
        self.durability.cut((*gone, kept[-1]))
        self._roll_times = RollTimes(self.config, self.active.summary)
        self.log_end_offset = self.active.next_offset
        self.durability.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.epochs.keep(self.log_end_offset)
        self.epochs.begin(self.leader_epoch, self.log_end_offset)
        self.epochs.save(durably=True)
        with self.snapshots.lock:
            self.load_producers(self.snapshots.offsets, may_recheck=False)

    def batch_start(self, offset: int) -> int:
        """Return the base offset of the batch that holds an offset, or the log's end."""
        return next((header.base_offset for _, _, header in self.headers(offset)), self.log_end_offset)

    def advance_start(self, offset: int) -> None:
        """Move the log's start forward, to its end at most; the next retention deletes whole segments before it."""
        with self.lock:
            self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)
            self.shared.start_moved()
            self.epochs.drop_before(self.log_start_offset)

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Delete the `count` oldest segments, fewer than all. Call with `lock` held."""
        gone, left = self.segments[:count], self.segments[count:]
        self.durability.unflushed.forget(gone)
        self.publish(left)
        self.log_start_offset = max(self.log_start_offset, left[0].base_offset)
        self.shared.start_moved()
        self.epochs.drop_before(self.log_start_offset)
        self.deleted.mark(gone, now_ms + self.config.file_delete_delay_ms)

    def release(self) -> None:
        """Close files that can be opened again on demand; the active segment keeps its log file open."""
        for segment in self.segments:
            segment.release()

    def close(self) -> bool:
        """Flush and save everything; return False if an earlier failure prevents that."""
        if self.health.failure is not None and not self.health.mend():
            return False
        self.flush()
        with self.lock, self.offline_on_error():
            self.active.close()  # `finish` needs a descriptor, and there may be no other.
            with suppress(Mismatch):  # Nothing was appended to it, so its files stay as they are.
                self.active.finish(flushed=True)
            if self.producers.producers or self.snapshots.offsets or self.size_bytes > SNAPSHOT_FROM_BYTES:
                self.copy_producers()
        self.snapshots.write()
        self.refuse_writes("it was closed")
        return True

    def refuse_writes(self, why: str, refusal: type[LogOffline] = LogOffline) -> None:
        """Refuse writes from now on, with errors of this class."""
        with self.lock:
            self.health.refuse(why, refusal)
        self.producers.clear()

    def delete(self) -> None:
        """Refuse writes from now on: the topic is being deleted."""
        self.refuse_writes("it was deleted", LogDeleted)

    def retire(self, folder: Path) -> None:
        """Refuse writes, and use `folder`, the new name of the log's folder, for all files.

        A new topic may take the old name. Waits for a running flush.
        """
        self.delete()
        with self.durability.lock, self.lock, self.snapshots.lock:
            self.snapshots.retire(folder)
            self.directory = folder
            self.deleted = DeletedFiles(folder)
            for segment in self.segments:
                segment.folder = folder

    def offline_on_error(self) -> OnError[OSError]:
        """Turn an OSError into LogOffline."""
        return OnError(OSError, self._go_offline)

    def _go_offline(self, error: OSError) -> NoReturn:
        self.shared.disk.refused(error)
        raise LogOffline(f"{self}: {error}") from error
