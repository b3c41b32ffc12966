"""One partition's log: a tuple of segments, the last of which takes the appends.

Owns offsets, the order of appends, rolling, cutting, and what becomes of segments that expire. What of it is on disk is
`durability`'s, what a batch must be `batch_rules`', who has expired `retention`'s, where a record is `search`'s. Knows
batches and files; nothing of requests.

The event loop appends and reads, the flusher thread flushes, the maintenance thread does everything else. Readers take
the tuple `segments` and never lock. A thread that needs several locks takes them in this order, and leaves out those
that it does not need:

1. `replacing`, while segments are replaced: by what a check has found in their files (`recheck`, any thread that may
   wait), or by compaction. As long as that takes; appends and flushes go on.
2. `durability.lock`, from the beginning of a flush to its end, and by what must not meet one: a cut, and giving the
   folder away.
3. `lock`, by an append, and by every change of `segments`, which publishes a new tuple. Microseconds as a rule; some
   holders make, rename or write small files.
4. `snapshots.lock`, while a snapshot of the producers is written, and by what must not meet that.
5. Those of what logs share (`shared`): memory of producers, open files, kept times, the disk's state. Their holders
   take no other lock.

A batch is either whole after the end of the log or not there: an append that fails is cut off before the next begins.
Append times never go back: what was the last one is in a batch or in a summary that is on disk before the batch that
held it is deleted, and a new segment begins with it.
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
from tidelog.storage.durability import Durability
from tidelog.storage.errors import LogDeleted, LogOffline, OffsetOutOfRange, OnError, ReadFailed, TakesLong
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
from tidelog.storage.segment import Mismatch, Segment
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT, Source
from tidelog.storage.unflushed import Unflushed

# The isolation level of readers who are given nothing that is undecided; 0 is that of all others.
READ_COMMITTED: Final = 1
# Smaller logs without producers need no snapshot: a start reads the headers of their batches.
SNAPSHOT_FROM_BYTES = 4 << 10

_new = tuple.__new__
_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """Where a batch is; `append_time_ms` is -1 unless the log stamps records, `duplicate` if it was there before."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool


class Log:
    """The log of one partition. Made by `log_manager`, through `recovery`."""

    unopened: str | None = None  # why nothing of it is served (`unopened`)

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
        """Serve segments whose batches are known; the last one is active."""
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
            # As a new one has it: it may soon be all that is left to tell.
            self.active.summary.last_append_ms = self.last_append_ms
        self.last_batch_bytes = 0  # of the batch that was appended last, as it is stored
        self.health = Health(str(self), shared.disk)
        self.deleted = DeletedFiles(folder)
        self.replacing = threading.Lock()  # while segments are replaced: the first of the locks above
        self._quick_rolls = QuickRolls(str(self))
        unflushed = [s for s in segments[:-1] if s.next_offset > recovery_point or not s.summary.flushed]
        names = bool(unflushed) or self.active.base_offset >= recovery_point
        self.durability = Durability(
            self, self.health, recovery_point, Unflushed(folder, unflushed, names, shared.disk)
        )
        self.update_config(config)

    def __str__(self) -> str:
        """Return `topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def topic_id(self) -> bytes | None:
        """The 16 bytes of the topic's id, as its folder says; None if it does not."""
        return layout.load_topic_id(self.directory)

    @property
    def magic(self) -> int:
        """The format in which what is produced is stored: 0, 1 or 2."""
        return self._rules.magic

    @property
    def prompt_bytes(self) -> int:
        """How large a batch that is not compressed may be to be taken by `append` without `check`."""
        return self._rules.prompt_bytes

    @property
    def takes_writes(self) -> bool:
        """Whether an append would be taken, as far as is known; reads go on either way. Any thread."""
        return self.health.failure is None and not self.shared.disk.is_full

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read: with one replica, the end of the log."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what is decided: as there are no transactions, the end of the log."""
        return self.log_end_offset

    def readable_end(self, isolation_level: int) -> int:
        """Return the end of what a reader may be given, by its isolation level."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' logs."""
        return sum(segment.size for segment in self.segments)

    def disk_bytes(self) -> int:
        """Return `size_bytes` and what deleted segments and readers' links keep on the disk. OSError."""
        return self.size_bytes + pins.held_bytes(self.directory)

    @property
    def damaged(self) -> tuple[str, ...]:
        """Name each range of bytes that cannot be read, as file@from-to."""
        found = [(each.path(LOG).name, damage) for each in self.segments for damage in each.summary.damage]
        return tuple(f"{name}@{damage.start}-{damage.end}" for name, damage in found)

    def update_config(self, config: TopicConfig) -> None:
        """Go by other options from now on; the index interval of a segment that has batches stays.

        Any thread. A batch that is being appended meanwhile is held to the options before or to these.
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
        """Return what `append` is to be given with a batch that takes long. Any thread. Raise RecordsError.

        With `fits_anywhere` it takes that whatever was appended meanwhile (`BatchRules.check`).
        """
        return (yield from self._rules.check(data, now_ms, self.log_end_offset, any_format, fits_anywhere))

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        checked: Checked | None = None,
        any_format: bool = False,
    ) -> Appended:
        """Store one produced batch, in place given its offsets, after all others; it is not forced to disk.

        With `any_format` it may be a message set of an older format. Where the topic's `message.format.version` or
        `compression.type` asks for another format or codec, a copy in that is stored. Raise RecordsError for a batch
        that may not be stored, StorageError where the log cannot take it, TakesLong where `check` is to be called
        first, on another thread, or once more; either way nothing of it is stored. Event loop only.
        """
        rules = self._rules
        if rules.log_append_time and now_ms < self.last_append_ms:
            now_ms = self.last_append_ms
        if checked is None:
            data, valid = rules.check_promptly(data, now_ms, self.log_end_offset, any_format)
        else:
            data, valid = checked
            if not fits(valid, self.log_end_offset):
                raise TakesLong(f"{self}: others were appended since it was compressed")
            if rules.log_append_time:
                valid = stamped(data, valid, now_ms)  # Others were appended since.
        # Not `with`, and not Appended(...): these two lines of Python would be a tenth of an append.
        self.lock.acquire()
        try:
            return _new(Appended, self._store(data, valid, now_ms, rules.log_append_time))
        except Mismatch as mismatch:
            unknown = mismatch.segment
        finally:
            self.lock.release()
        # The first append since the start finds that the indexes are not of this log.
        self.recheck(unknown, PATIENT)
        with self.lock:
            return _new(Appended, self._store(data, valid, now_ms, rules.log_append_time))

    def _store(
        self, data: bytearray | memoryview, valid: ValidBatch, now_ms: int, is_stamped: bool
    ) -> tuple[int, int, int, bool]:
        """Give a valid batch its offsets and write it; return what Appended holds.

        `is_stamped` as the rules said by which it was checked: others may hold by now (`update_config`).
        """
        health = self.health
        if health.failure is not None and not health.is_mended():
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
            self.shared.on_begun(self)
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
        """Restore the end of the log after a failed write; where that fails too, before the next."""
        self.shared.disk.refused(error)
        try:
            self.active.cut_torn()
        except OSError as second:
            self.health.fail(
                f"a failed write ({error}) could not be taken back ({second}); free space in {self.directory}",
                self.active.cut_torn,
            )
        return LogOffline(
            f"{self}: the batch was not stored: {error}; free space in {self.directory} or mend the disk"
        )

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Seal the active segment, if it holds anything, and begin a new one."""
        with self.lock, self.offline_on_error():
            if self.health.failure is not None:
                raise self.health.offline()
            self.begin_segment(now_ms)
        self.snapshots.write()

    def begin_segment(self, now_ms: int) -> Segment:
        """Do as `roll` does, with `lock` held; return the active segment. OSError if a new one cannot be made."""
        old = self.active
        if not old.size:
            return old
        old.finish()
        config = self.config
        self.durability.unflushed.add_names()
        new = Segment.begin(
            self.directory,
            self.log_end_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            self.shared,
            now_ms,
            self.last_append_ms,
        )
        new.make_files()
        # From here on nothing fails: the new segment is there, and what still goes wrong costs a start some time.
        old.seal()
        self.durability.unflushed.sealed.append(old)
        self.publish((*self.segments, new))
        self.copy_producers()
        return new

    def publish(self, segments: tuple[Segment, ...]) -> None:
        """Have these segments from now on. Call with `lock` held."""
        if segments[-1] is not self.active:
            self.active = segments[-1]
            self.durability.saved_bytes = self.active.size
            self._roll_times = RollTimes(self.config, self.active.summary)
        self.segments = segments

    @property
    def idle_due_ms(self) -> int | None:
        """When the clock seals the active segment, though no append comes to notice; None while it is empty."""
        return self._roll_times.idle_ms(self.active.summary)

    # Reading.

    def read(self, offset: int, max_bytes: int, at_least_one: bool, source: Source) -> FileSlice:
        """Return a slice of one segment from the batch that holds `offset`; of length 0 at the end of the log.

        It is cut at `max_bytes`, through a batch if need be, but the first is whole, or nothing is returned; with
        `at_least_one` the first is returned whatever its size. Finding it takes what the source may take, as
        NotInMemory and TakesLong say; reading what the slice names is up to the caller.
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
        """Yield (segment, position, header) of every readable batch from the one that holds `offset` on.

        A caller that holds a lock of the log may not `recheck`: it gets a Mismatch.
        """
        segments = self.segments
        for each in segments[segment_number(segments, offset) :]:
            if each.next_offset > offset:  # else one that has taken its place was read already
                segment = self._verified(each, offset) if may_recheck else each
                for position, header in by_offset.headers(segment, offset):
                    yield segment, position, header
                    offset = header.last_offset + 1

    def _verified(self, segment: Segment, offset: int) -> Segment:
        """Return a segment whose bytes are verified from an offset on; not on the event loop."""
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
        """Verify the bytes of a segment from an offset on; raise Mismatch if they are not what its summary says."""
        position, *_ = segment.offset_index.around(offset - segment.base_offset)
        segment.verify(position, segment.size, PATIENT)

    def recheck(self, segment: Segment, source: Source) -> Segment | None:
        """Rebuild what is known of a segment from its log, unless that was done; return what is in its place now.

        That is a larger one after compaction, None after a deletion. TakesLong for a prompt source. Appends go on.
        """
        if source.prompt:
            raise TakesLong(f"{self}: a segment is to be checked again")
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
        """Take note of what was appended since."""
        found.size = segment.size
        found.scan()

    def _replace(self, segment: Segment, found: Segment) -> None:
        """Put a rebuilt segment in the place of another, with `lock` held."""
        found.summary.last_append_ms = max(found.summary.last_append_ms, segment.summary.last_append_ms)
        if segment.is_active:
            # What follows damage at its end has these offsets.
            found.summary.next_offset = max(found.next_offset, self.log_end_offset)
        else:
            bound_damage([found, self.segments[self.segments.index(segment) + 1]])
            found.replace_files(flushed=bool(segment.summary.flushed))
        self.durability.unflushed.replace(segment, found)
        self.publish(tuple(found if each is segment else each for each in self.segments))

    # Durability, and taking no writes.

    def mend(self) -> None:
        """Do what a failure has left to do, if there is anything, and take writes again if that was all."""
        with self.lock:
            self.health.is_mended()

    @property
    def recovery_point(self) -> int:
        """The offset up to which all is known to be on disk."""
        return self.durability.recovery_point

    def copy_producers(self) -> None:
        """Have a snapshot of the producers as of the end of the log written soon. Call with `lock` held."""
        self.snapshots.keep(self.log_end_offset, self.producers.copy())

    def load_producers(
        self,
        snapshots: list[int],
        since: int = 0,
        write: Write = lambda write: write(),
        *,
        may_recheck: bool = True,
    ) -> None:
        """Take the newest good snapshot and note the batches after it; none before `since` names a producer."""
        offset = self.snapshots.load(self.producers, snapshots, self.log_end_offset, write)
        start = max(self.log_start_offset, since) if offset is None else offset
        if start < self.log_end_offset:
            for segment, _, header in self.headers(start, may_recheck=may_recheck):
                if header.magic != MAGIC:
                    # What was converted does not say who sent it: its producer is not held to what came before.
                    self.producers.clear()
                if header.producer_id >= 0 and not header.is_control:
                    # Only a batch of LogAppendTime says when it was appended: for others it was no later than that.
                    append_ms = (
                        header.max_timestamp if header.is_log_append_time else segment.summary.last_append_ms
                    )
                    self.producers.note(header, header.base_offset, append_ms)

    # Cutting.

    def truncate(self, offset: int, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Cut off the batch that holds `offset` and everything after it; on return that is on disk.

        No checkpoint may say by then that what is cut was flushed (`LogManager.truncate`): it would be taken for lost.
        Where the log starts earlier from now on, `checkpoint` writes that down before anything is appended: a start
        that was written down before would hide it.
        """
        while True:
            try:
                with self.durability.lock, self.lock:
                    self._truncate(offset, checkpoint)
            except Mismatch as mismatch:  # nothing has been cut yet
                self.recheck(mismatch.segment, PATIENT)
            except OSError as error:
                raise ReadFailed(f"{self}: not cut, as it cannot be read: {error}") from error
            else:
                return

    def _truncate(self, offset: int, checkpoint: Callable[[], None]) -> None:
        """Do as `truncate` does, with both locks held. Mismatch where a segment is to be checked before."""
        if self.health.failure is not None:
            raise self.health.offline()
        if offset >= self.log_end_offset:
            return
        # Of a segment that begins with it nothing is left but its base: there the log goes on.
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
        # First: beside a summary of batches a start takes what is cut for lost (`continuity.known_end`).
        kept[-1].summary.replace_by_times(kept[-1].path(SUMMARY), kept[-1].base_offset)
        gone = self.segments[len(kept) :]
        for segment in kept[:-1]:
            # What comes in the place of what is cut has replaced nothing yet.
            segment.bound_clean(kept[-1].base_offset)
        self.deleted.remove_now(gone)
        kept[-1].truncate(position)
        kept[-1].file.sync()  # What is cut must not come back after what is appended.
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
        """Return the first offset of the batch that holds an offset, or the log's end after them all."""
        return next((header.base_offset for _, _, header in self.headers(offset)), self.log_end_offset)

    def advance_start(self, offset: int) -> None:
        """Let the log start at `offset`, at most its end; whole segments before it go with the next retention."""
        with self.lock:
            self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)
            self.shared.start_moved()
            self.epochs.drop_before(self.log_start_offset)

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Delete the oldest segments, but not all. Call with `lock` held."""
        gone, left = self.segments[:count], self.segments[count:]
        self.durability.unflushed.forget(gone)
        self.publish(left)
        self.log_start_offset = max(self.log_start_offset, left[0].base_offset)
        self.shared.start_moved()
        self.epochs.drop_before(self.log_start_offset)
        self.deleted.mark(gone, now_ms + self.config.file_delete_delay_ms)

    def release(self) -> None:
        """Close the files that are opened again when they are needed; the active segment keeps its log."""
        for segment in self.segments:
            segment.release()

    def close(self) -> bool:
        """Flush and save everything; return whether that was done."""
        if self.health.failure is not None and not self.health.is_mended():
            return False
        self.durability.flush()
        with self.lock, self.offline_on_error():
            self.active.close()  # What is saved needs a descriptor, and there may be no other.
            with suppress(Mismatch):  # Its files stay as they are: it has not been appended to.
                self.active.finish(flushed=True)
            # Of a little that has no producers the next start finds that out.
            if self.producers.producers or self.snapshots.offsets or self.size_bytes > SNAPSHOT_FROM_BYTES:
                self.copy_producers()
        self.snapshots.write()
        self.refuse_writes("it was closed")
        return True

    def refuse_writes(self, why: str, refusal: type[LogOffline] = LogOffline) -> None:
        """Take no more writes, for good; each is refused with the last such error."""
        with self.lock:
            self.health.refuse(why, refusal)
        self.producers.clear()

    def delete(self) -> None:
        """Take no more writes: the topic is being deleted."""
        self.refuse_writes("it was deleted", LogDeleted)

    def retire(self, folder: Path) -> None:
        """Take no more writes, and touch no file by its old name: that of the log's folder is about to be `folder`.

        The old name may soon be that of another topic's folder. Waits for a flush that is under way.
        """
        self.delete()
        with self.durability.lock, self.lock, self.snapshots.lock:
            self.snapshots.retire(folder)
            self.directory = folder
            self.deleted = DeletedFiles(folder)
            for segment in self.segments:
                segment.folder = folder

    def offline_on_error(self) -> OnError[OSError]:
        """Turn an OSError into the error that callers know."""
        return OnError(OSError, self._go_offline)

    def _go_offline(self, error: OSError) -> NoReturn:
        self.shared.disk.refused(error)
        raise LogOffline(f"{self}: {error}") from error
