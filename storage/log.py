"""One partition's log: a tuple of segments, the last of which takes the appends.

Owns offsets, the order of appends, rolling, and what is on disk and what is not. Knows batches and files; nothing of
requests. Structural changes take `lock` and publish a new tuple `segments`; readers take the tuple and never lock. The
event loop appends and reads, the flusher thread calls `flush`, the maintenance thread everything else. What must not
meet a flush (cutting the log, giving its folder away) waits for it by `_flush_lock`, which is taken before `lock`.

A batch is either whole behind the end of the log or not there: an append that fails is cut off before the next begins.
Append times never go back: what was the last one is in a batch or in a summary that is on disk before the batch that
held it is deleted, and a new segment begins with it.
"""

import dataclasses
import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidelog.config.options import TopicConfig
from tidelog.protocol.records.batch import BatchHeader, set_base
from tidelog.protocol.records.errors import BatchTooLarge
from tidelog.protocol.records.recompress import recompress, target
from tidelog.protocol.records.validate import Rules, ValidBatch, stamped, validate
from tidelog.storage import files, folder_identity, producer_state, retention, verification
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import (
    FlushPostponed,
    LogDeleted,
    LogOffline,
    Mismatch,
    OffsetOutOfRange,
    ReadFailed,
    TakesLong,
)
from tidelog.storage.files import FileSlice
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.producer_state import Producers, ProducerState
from tidelog.storage.roll_times import RollTimes
from tidelog.storage.search import by_offset
from tidelog.storage.search.times_cache import keep_appended
from tidelog.storage.segment import LOG, SUMMARY, Segment
from tidelog.storage.unflushed import Pending, Unflushed

__all__ = ["Appended", "FileSlice", "Log"]

# What a recovery scans at most of what was flushed: so often are indexes and producers saved in between.
SAVE_INTERVAL_BYTES = 16 << 20
SNAPSHOTS_KEPT = 2
# Smaller logs without producers need no snapshot: a start reads the headers of their batches.
SNAPSHOT_FROM_BYTES = 4 << 10
# What is done to sealed segments with the lock held is done to so many: a millisecond or two. Then others get the lock,
# if there is a moment in which nobody has it.
SEALED_AT_ONCE = 20
_LET_OTHERS_S = 0.0001
_UNTIL_RESTART = "; reads go on; restart when the disk is well"
# What of a batch is checked where it is appended, some milliseconds at most: its size as sent, and decompressed. And
# where it may have to be compressed.
PROMPT_BYTES = (4 << 20, 1 << 20)
PROMPT_COMPRESSED_BYTES = (64 << 10, 64 << 10)

# A batch as it is to be stored, and what is true of it.
Checked = tuple[bytearray | memoryview, ValidBatch]

_new = tuple.__new__
_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """Where a batch is; `append_time_ms` is -1 unless the log stamps records, `duplicate` if it was there before."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    duplicate: bool


class Mark(NamedTuple):
    """What a flush puts on disk: all up to an offset, of a log that was cut so often, and what else was pending."""

    end: int
    cuts: int
    active: Segment
    pending: Pending | None


class Log:
    """The log of one partition. Made by `log_manager`, through `recovery`."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
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
        self.recovery_point = recovery_point
        self.epochs = epochs or LeaderEpochs(folder)
        self.leader_epoch = self.epochs.latest
        self.disk = DiskSpace(folder)
        self.producers = ProducerState()
        self.snapshots: list[int] = []  # by `_snapshot_lock`
        self._snapshot_lock = threading.Lock()
        # Of the producers as of an offset and a number of cuts, to be written by whoever has the time for it; the
        # latest is enough.
        self._unsaved: tuple[int, Producers, int] | None = None
        self.last_flush_ms = 0  # by `flush.ms`
        self.last_append_ms = max(segment.summary.last_append_ms for segment in segments)
        self.last_batch_bytes = 0  # of the batch that was appended last, as it is stored
        self.failure: str | None = None
        self._refusal = LogOffline
        self._remedy: Callable[[], None] | None = None
        self.deleted = retention.DeletedFiles(folder)
        self._flush_lock = threading.Lock()
        self._judging = threading.Lock()
        unflushed = [s for s in segments[:-1] if s.next_offset > recovery_point or not s.summary.flushed]
        names = bool(unflushed) or self.active.base_offset >= recovery_point
        self.unflushed = Unflushed(folder, unflushed, names)
        self._cuts = 0
        self._saved_bytes = self.active.size
        self.update_config(config)

    def __str__(self) -> str:
        """Return `topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def topic_id(self) -> bytes | None:
        """The 16 bytes of the topic's id, as its folder says; None if it does not."""
        return folder_identity.load_topic_id(self.directory)

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read: with one replica, the end of the log."""
        return self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments' logs."""
        return sum(segment.size for segment in self.segments)

    @property
    def damaged(self) -> tuple[str, ...]:
        """Name each range of bytes that cannot be read, as file@from-to."""
        return tuple(
            f"{segment.base_offset:020d}.log@{damage.start}-{damage.end}"
            for segment in self.segments
            for damage in segment.summary.damage
        )

    def update_config(self, config: TopicConfig) -> None:
        """Go by other options from now on; the index interval of a segment that has batches stays."""
        self.config = config
        self._log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._segment_bytes = config.segment_bytes
        self._rules = Rules(
            log_append_time=self._log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            max_batch_bytes=config.max_message_bytes,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        self._codec = target(config.compression_type, levels)
        most, most_decompressed = PROMPT_BYTES if self._codec is None else PROMPT_COMPRESSED_BYTES
        self._prompt_rules = dataclasses.replace(
            self._rules,
            max_batch_bytes=min(config.max_message_bytes, most),
            max_decompressed_bytes=min(config.max_decompressed_bytes, most_decompressed),
        )
        with self.lock:
            self.active.bound_indexes(config.segment_index_bytes)
            if not self.active.size:
                self.active.summary.index_interval_bytes = config.index_interval_bytes
            self._roll_times = RollTimes(config, self.active.summary)

    # Appending.

    def check(self, data: bytearray | memoryview, now_ms: int) -> Checked:
        """Return what `append` is to be given with a batch that takes long. Any thread. Raise RecordsError."""
        valid = validate(data, self._rules, now_ms)
        return (data, valid) if self._codec is None else recompress(data, valid, self._codec, self._rules)

    def append(self, data: bytearray | memoryview, now_ms: int, checked: Checked | None = None) -> Appended:
        """Store one produced batch, in place given its offsets, behind all others; it is not forced to disk.

        Where the topic's `compression.type` asks for another codec, a copy in that is stored. Raise RecordsError for a
        batch that may not be stored, StorageError where the log cannot take it, TakesLong where `check` is to be called
        first, on another thread; either way nothing of it is stored. Event loop only.
        """
        if self._log_append_time and now_ms < self.last_append_ms:
            now_ms = self.last_append_ms  # Append times never go back, whatever the clock does.
        if checked is not None:
            data, valid = checked
            if self._log_append_time:
                valid = stamped(data, valid, now_ms)  # Others were appended since.
        else:
            try:
                valid = validate(data, self._prompt_rules, now_ms)
            except BatchTooLarge as error:
                if self._is_beyond_all_bounds(len(data)):
                    raise
                raise TakesLong(str(error)) from None
            if self._codec is not None:
                data, valid = recompress(data, valid, self._codec, self._rules)
        # Not `with`, and not Appended(...): these two lines of Python would be a tenth of an append.
        self.lock.acquire()
        try:
            return _new(Appended, self._store(data, valid, now_ms))
        except Mismatch as mismatch:
            unknown = mismatch.segment
        finally:
            self.lock.release()
        # The first append since the start finds that the indexes are not of this log.
        self.judge(unknown)
        with self.lock:
            return _new(Appended, self._store(data, valid, now_ms))

    def _is_beyond_all_bounds(self, size_bytes: int) -> bool:
        """Tell whether a batch that is too large to be checked promptly is too large for the topic as well."""
        prompt, rules = self._prompt_rules, self._rules
        if size_bytes > prompt.max_batch_bytes:
            return size_bytes > rules.max_batch_bytes
        return prompt.max_decompressed_bytes == rules.max_decompressed_bytes

    def _store(
        self, data: bytearray | memoryview, valid: ValidBatch, now_ms: int
    ) -> tuple[int, int, int, bool]:
        """Give a valid batch its offsets and write it; return what Appended holds."""
        if self.failure is not None and not self._is_mended():
            raise self._offline()
        header = valid.header
        producer_id = header.producer_id
        if producer_id >= 0:
            sent = self.producers.check(header)
            if sent is not None:
                append_ms = sent.append_ms if self._log_append_time else -1
                return sent.base_offset, sent.last_offset, append_ms, True
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment, roll_times = self.active, self._roll_times
        try:
            if (
                segment.size + len(data) > self._segment_bytes
                or last_offset > segment.last_offset_max
                or valid.max_timestamp > roll_times.timestamp
                or now_ms > roll_times.wall_ms
            ):
                segment = self._roll(now_ms)
            set_base(data, 0, base_offset, self.leader_epoch)
            position = segment.append(data, valid, base_offset, last_offset, now_ms)
        except OSError as error:
            raise self._write_failed(error) from error
        if producer_id >= 0:
            self.producers.note(header, base_offset, now_ms)
        if base_offset == segment.base_offset:
            self._roll_times.begin(segment.summary)
        if valid.times:
            keep_appended(segment.identity, position, header, valid.times, base_offset, self.leader_epoch)
        self.last_append_ms = now_ms
        self.last_batch_bytes = len(data)
        self.log_end_offset = last_offset + 1
        return base_offset, last_offset, now_ms if self._log_append_time else -1, False

    def _offline(self) -> LogOffline:
        return self._refusal(f"{self}: takes no writes since {self.failure}")

    def _write_failed(self, error: OSError) -> LogOffline:
        """Restore the end of the log after a failed write; where that fails too, before the next."""
        self.disk.refused(error)
        try:
            self.active.cut_torn()
        except OSError as second:
            self.failure = (
                f"a failed write ({error}) could not be taken back ({second}); free space in {self.directory}"
            )
            self._remedy = self.active.cut_torn
        return LogOffline(
            f"{self}: the batch was not stored: {error}; free space in {self.directory} or mend the disk"
        )

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Seal the active segment, if it holds anything, and begin a new one."""
        with self.lock, self._offline_on_error():
            if self.failure is not None:
                raise self._offline()
            self._roll(now_ms)
        self.write_snapshot()

    def _roll(self, now_ms: int) -> Segment:
        old = self.active
        if not old.size:
            return old
        old.finish()
        config = self.config
        self.unflushed.add_names()
        new = Segment.create(
            self.directory,
            self.log_end_offset,
            config.index_interval_bytes,
            config.segment_index_bytes,
            now_ms,
            self.last_append_ms,
        )
        # From here on nothing fails: the new segment is there, and what still goes wrong costs a start some time.
        old.seal()
        self.unflushed.sealed.append(old)
        self._publish((*self.segments, new))
        self._copy_producers()
        return new

    def _publish(self, segments: tuple[Segment, ...]) -> None:
        if segments[-1] is not self.active:
            self.active = segments[-1]
            self._saved_bytes = self.active.size
            self._roll_times = RollTimes(self.config, self.active.summary)
        self.segments = segments

    def roll_if_idle(self, now_ms: int) -> None:
        """Seal a segment whose `segment.ms` is over by the clock, though no append comes to notice."""
        due_ms = self._roll_times.idle_ms(self.active.summary)
        if due_ms is not None and now_ms >= due_ms and self.failure is None:
            self.roll(now_ms)

    # Reading.

    def read(
        self, offset: int, max_bytes: int, at_least_one: bool, wait: bool = True, brief: bool = False
    ) -> FileSlice:
        """Return a slice of one segment from the batch that holds `offset`; of length 0 at the end of the log.

        It is cut at `max_bytes`, through a batch if need be, but the first is whole, or nothing is returned; with
        `at_least_one` the first is returned whatever its size. With `wait` false raise NotInMemory if finding it would
        wait for the disk; reading what the slice names is up to the caller. Without `wait`, or with `brief`, raise
        TakesLong if it would take long.
        """
        segments = self.segments
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self}: offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}"
            )
        if offset < self.log_end_offset:
            try:
                for number in range(self._segment_number(segments, offset), len(segments)):
                    found = by_offset.read(segments[number], offset, max_bytes, at_least_one, wait, brief)
                    if found is not None:
                        return found
            except Mismatch as mismatch:
                self.judge(mismatch.segment, wait and not brief)
                return self.read(offset, max_bytes, at_least_one, wait, brief)
            except OSError as error:
                raise ReadFailed(f"{self}: offset {offset} cannot be read: {error}") from error
        return files.NOTHING

    @staticmethod
    def _segment_number(segments: tuple[Segment, ...], offset: int) -> int:
        """Return the number of the last segment that starts at or before an offset."""
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)

    def headers(self, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """Yield (segment, position, header) of every readable batch from the one that holds `offset` on."""
        segments = self.segments
        for segment in segments[self._segment_number(segments, offset) :]:
            for position, header in by_offset.headers(self._verified(segment, offset), offset):
                yield segment, position, header

    def _verified(self, segment: Segment, offset: int) -> Segment:
        """Return a segment whose bytes are verified from an offset on; not on the event loop."""
        while True:
            try:
                segment.verify(segment.offset_index.around(offset - segment.base_offset)[0], segment.size)
            except Mismatch:
                current = self.judge(segment)
                if current is None:
                    raise
                segment = current
            else:
                return segment

    def judge(self, segment: Segment, wait: bool = True) -> Segment | None:
        """Make what is known of a segment anew from its log, unless that was done; return what is in its place now.

        That is None once it is deleted. With `wait` false raise TakesLong. Appends go on meanwhile.
        """
        if not wait:
            raise TakesLong(f"{self}: a segment is to be judged")
        with self._judging:
            if segment in self.segments:
                try:
                    found = verification.judge(segment, self.epochs.at)
                    self._catch_up(found, segment)
                except OSError as error:
                    raise ReadFailed(f"{segment.path(LOG)}: {error}") from error
                with self.lock:
                    if segment in self.segments:
                        self._catch_up(found, segment)
                        self._replace(segment, found)
                        verification.tell_damage(found)
        return next((each for each in self.segments if each.base_offset == segment.base_offset), None)

    @staticmethod
    def _catch_up(found: Segment, segment: Segment) -> None:
        """Take note of what was appended since."""
        found.size = segment.size
        found.scan()

    def _replace(self, segment: Segment, found: Segment) -> None:
        """Put a judged segment in the place of another, with `lock` held."""
        found.summary.last_append_ms = max(found.summary.last_append_ms, segment.summary.last_append_ms)
        if segment.is_active:
            # What follows damage at its end has these offsets.
            found.summary.next_offset = max(found.next_offset, self.log_end_offset)
        else:
            found.replace_files(flushed=bool(segment.summary.flushed))
        self.unflushed.replace(segment, found)
        self._publish(tuple(found if each is segment else each for each in self.segments))

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to this one and the offset behind its records; (-1, -1) if there is none."""
        return self.epochs.end_of(leader_epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset."""
        return self.epochs.at(offset)

    # Durability.

    def flush(self) -> int:
        """Return once everything appended before the call is on disk, with the offset behind it. Flusher thread.

        FlushPostponed if it could not begin: it may be tried again. Any other failure is final: the system may have
        dropped the pages, so that a second try would prove nothing.
        """
        with self._flush_lock:
            if self.failure is not None:
                raise self._offline()
            # As a rule there is the tail of one file to sync, and no need for the lock that appends take. The order
            # matters: a roll says that there is more before it publishes another active segment.
            target, active = self.log_end_offset, self.active
            if target == self.recovery_point and not self.unflushed.sealed:
                return target
            with self._failures():
                if self.unflushed or self._is_save_due(active):
                    return self._flush_all()
                active.file.sync()
            self.recovery_point = target
            return target

    def _flush_all(self) -> int:
        """Flush sealed segments and names too, and save now and then what recovery goes by."""
        with self.lock:
            file = self.active.file
            mark, pending = self._mark_all()
        self.unflushed.sync(pending, file, self.epochs)
        self._note_flushed(mark)
        return mark.end

    def _mark_all(self) -> tuple[Mark, Pending]:
        """Return what a flush that begins now puts on disk, saved if that is due. Call with `lock` held."""
        pending = self.unflushed.pending(self._save_if_due())
        return Mark(self.log_end_offset, self._cuts, self.active, pending), pending

    def _note_flushed(self, mark: Mark) -> None:
        """Take note that what a mark says is on disk. Call with `_flush_lock` held."""
        self.recovery_point = max(self.recovery_point, mark.end)
        pending = mark.pending
        if pending is None:
            return
        with self.lock:
            self.unflushed.done(pending)
            saved = pending.saved
            if saved is not None and mark.active is self.active and saved[0] == self._saved_bytes:
                self.active.write_summary(saved[1])
        # Some at a time: appends wait for the lock.
        for first in range(0, len(pending.sealed), SEALED_AT_ONCE):
            if first:
                time.sleep(_LET_OTHERS_S)
            with self.lock:
                for segment in pending.sealed[first : first + SEALED_AT_ONCE]:
                    # A summary is written by name, and what retention has taken away meanwhile has none any more.
                    number = self._segment_number(self.segments, segment.base_offset)
                    if self.segments[number] is segment:
                        segment.note_flushed()

    def save_epochs(self) -> None:
        """Put the leader epochs on disk, wholly; where that fails take no writes until it succeeds.

        Records of an epoch that a crash would begin again could not be told from those that it took.
        """
        save = partial(self.epochs.save, durably=True)
        try:
            save()
        except OSError as error:
            self.failure = f"its leader epochs could not be saved ({error}); free space in {self.directory}"
            self._remedy = save
            _log.warning("epochs not saved log=%s error=%r", self, str(error))

    def _is_mended(self) -> bool:
        """Try again what failed and has kept the log from taking writes since; tell whether it takes them now.

        Call with `lock` held, or when no other thread has the log.
        """
        if self._remedy is None:
            return False
        try:
            self._remedy()
        except OSError:
            return False
        self.failure = self._remedy = None
        return True

    @property
    def files_to_flush(self) -> int:
        """How many files `flush` would sync, about."""
        if self.log_end_offset == self.recovery_point and not self.unflushed.sealed:
            return 0
        return 1 + self.unflushed.count

    def flush_mark(self) -> Mark | None:
        """Return what a sync of the whole file system, begun now, puts on disk; None where `flush` is to say why not.

        What has to be written for it is written.
        """
        with self._flush_lock:
            # The same order as in `flush`.
            end, active = self.log_end_offset, self.active
            if self.failure is not None:
                return None
            if not self.unflushed and not self._is_save_due(active):
                return Mark(end, self._cuts, active, None)
            with self.lock:
                mark, pending = self._mark_all()
            self.unflushed.prepare(pending, self.epochs)
            return mark

    def flushed(self, mark: Mark) -> bool:
        """Take note that a sync which began after `flush_mark` has succeeded; return whether that proves anything.

        It does not for a log that was cut meanwhile, or had a failed flush: what that sync did not find dirty may be
        what the failed one lost.
        """
        with self._flush_lock:
            if mark.cuts != self._cuts or self.failure is not None:
                return False
            self._note_flushed(mark)
            return True

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Take no more writes after a failed sync; where a file could not even be opened nothing has been lost."""
        try:
            yield
        except files.Shortage as error:
            raise FlushPostponed(
                f"{self}: not flushed yet: {error}; the next flush tries again; raise the limit of open files"
            ) from error
        except OSError as error:
            # An append may be about to mend an earlier failure, which this one is not to go with.
            with self.lock:
                offline = self._distrust(f"a flush failed ({error})")
            raise offline from error

    def _distrust(self, why: str) -> LogOffline:
        """Take no more writes, and let the next start not believe what memory holds; return what to raise.

        Call with `lock` held.
        """
        self.failure, self._remedy = why + _UNTIL_RESTART, None
        with suppress(OSError):
            folder_identity.forget_boot(self.directory.parent)
        return self._offline()

    def _is_save_due(self, active: Segment) -> bool:
        return active.size - self._saved_bytes >= SAVE_INTERVAL_BYTES

    def _save_if_due(self) -> tuple[int, bytes] | None:
        """Save now and then what a recovery, once all is flushed, need not scan for; return `Pending.saved`."""
        active = self.active
        if not self._is_save_due(active):
            return None
        self._saved_bytes = active.size
        try:
            self._copy_producers()
            return active.size, active.save()
        except OSError as error:
            _log.warning("state not saved log=%s error=%r", self, str(error))
            return None

    def _copy_producers(self) -> None:
        """Have a snapshot of the producers as of the end of the log written soon. Call with `lock` held."""
        self._unsaved = self.log_end_offset, self.producers.copy(), self._cuts

    def write_snapshot(self) -> None:
        """Write the snapshot that is waiting to be, if there is one, and drop all but the newest ones.

        It is a hint: a failure costs time at the next start. Maintenance thread: of many producers it takes long.
        """
        if self._unsaved is None:
            return
        with self.lock:
            unsaved, self._unsaved = self._unsaved, None
        with self._snapshot_lock:
            if unsaved is None or unsaved[0] in self.snapshots or unsaved[2] != self._cuts:
                return
            offset, producers, _ = unsaved
            try:
                files.write(
                    producer_state.snapshot_path(self.directory, offset), producer_state.encode(producers)
                )
                self.snapshots = producer_state.drop_older(
                    self.directory, [*self.snapshots, offset], SNAPSHOTS_KEPT
                )
            except OSError as error:
                _log.warning("producers not saved log=%s error=%r", self, str(error))

    def load_producers(self, snapshots: list[int]) -> None:
        """Take the newest good snapshot and note the batches behind it."""
        end = self.log_end_offset
        offset = producer_state.load_latest(self.producers, self.directory, snapshots, end)
        self.snapshots = [known for known in snapshots if offset is not None and known <= offset]
        start = self.log_start_offset if offset is None else offset
        if start < end:
            for segment, _, header in self.headers(start):
                if header.producer_id >= 0 and not header.is_control:
                    # Only a batch of LogAppendTime says when it was appended: for others it was no later than that.
                    append_ms = (
                        header.max_timestamp if header.is_log_append_time else segment.summary.last_append_ms
                    )
                    self.producers.note(header, header.base_offset, append_ms)

    def expire_producers(self, before_ms: int) -> None:
        """Forget idempotent producers that have sent nothing since."""
        self.producers.expire(before_ms)

    # Cutting.

    def truncate(self, offset: int) -> None:
        """Cut off the batch that holds `offset` and everything behind it; on return that is on disk.

        No checkpoint may say by then that what is cut was flushed (`LogManager.truncate`): it would be taken for lost.
        """
        with self._flush_lock, self.lock:
            if self.failure is not None:
                raise self._offline()
            if offset >= self.log_end_offset:
                return
            # Of a segment that begins with it nothing is left but its base: there the log goes on.
            kept = [segment for segment in self.segments if segment.base_offset <= offset] or [
                self.segments[0]
            ]
            try:
                self._cut(kept, by_offset.locate(kept[-1], offset)[0])
            except OSError as error:
                raise self._distrust(f"a cut failed half way ({error})") from error

    def _cut(self, kept: list[Segment], position: int) -> None:
        gone = self.segments[len(kept) :]
        self.deleted.remove_now(gone)
        kept[-1].truncate(position)
        kept[-1].file.sync()  # What is cut must not come back behind what is appended.
        self._cuts += 1
        self.unflushed.forget((*gone, kept[-1]))
        self._publish(tuple(kept))
        self._saved_bytes = 0
        self._roll_times = RollTimes(self.config, self.active.summary)
        self.log_end_offset = self.active.next_offset
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.epochs.keep(self.log_end_offset)
        self.epochs.begin(self.leader_epoch, self.log_end_offset)
        self.epochs.save(durably=True)
        with self._snapshot_lock:
            self._unsaved = None
            self.load_producers(self.snapshots)

    def batch_start(self, offset: int) -> int:
        """Return the first offset of the batch that holds an offset, or the log's end behind them all."""
        return next((header.base_offset for _, _, header in self.headers(offset)), self.log_end_offset)

    def advance_start(self, offset: int) -> None:
        """Let the log start at `offset`, at most its end; whole segments before it go with the next retention."""
        with self.lock:
            self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)
            self.epochs.drop_before(self.log_start_offset)

    def enforce_retention(
        self, now_ms: int, flush: Callable[["Log"], object] = lambda log: log.flush()
    ) -> int | None:
        """Delete what has expired, roll an idle segment, and remove files that were deleted long enough ago.

        Some segments and files at most; `flush` is for what must be on disk before. Return when there will be more to
        do if nothing is appended, None for never. Maintenance thread.
        """
        # Before segments go: those behind the latest snapshot may be all that tells of their producers.
        self.write_snapshot()
        try:
            self._delete_and_roll(now_ms, flush)
        except Mismatch as mismatch:
            self.judge(mismatch.segment)
            self._delete_and_roll(now_ms, flush)
        due = (
            retention.next_due_ms(self, now_ms),
            self._roll_times.idle_ms(self.active.summary),
            self.deleted.next_due_ms(),
        )
        return min((at for at in due if at is not None), default=None)

    def _delete_and_roll(self, now_ms: int, flush: Callable[["Log"], object]) -> None:
        with self._offline_on_error():
            self._drop_expired(now_ms, flush)
            self.roll_if_idle(now_ms)
            self.deleted.remove_due(now_ms)

    def _drop_expired(self, now_ms: int, flush: Callable[["Log"], object]) -> None:
        """Delete the oldest segments, as retention counts them; if that is all of them, begin a new one first."""
        with self.lock:
            count = retention.count(self, now_ms)
            if count == len(self.segments) and self.failure is None:
                self._roll(now_ms)
            count = min(count, SEALED_AT_ONCE)
            left = self.segments[count:]
        # Only this thread takes segments away from the front, so that these are still the same ones below.
        if not count or not self._keep_ends(left, flush):
            return
        with self.lock:
            self.drop_segments(count, now_ms)
        _log.info(
            "retention deleted log=%s segments=%d log_start_offset=%d", self, count, self.log_start_offset
        )

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Delete the oldest segments, but not all. Call with `lock` held."""
        gone, left = self.segments[:count], self.segments[count:]
        self.unflushed.forget(gone)
        self._publish(left)
        self.log_start_offset = max(self.log_start_offset, left[0].base_offset)
        self.epochs.drop_before(self.log_start_offset)
        self.deleted.mark(gone, now_ms + self.config.file_delete_delay_ms)

    def _keep_ends(self, left: tuple[Segment, ...], flush: Callable[["Log"], object]) -> bool:
        """See to it that the log's end and its last append time are on disk in what retention leaves.

        That is so if a batch that stays is. Where none is, what stays is flushed; where none stays, the new segment's
        name and summary tell. Return false where that can no longer be done. Without the lock, as it may wait.
        """
        if any(segment.size and segment.base_offset < self.recovery_point for segment in left):
            return True
        if self.failure is not None:
            return False
        with self.lock:
            active = self.active
            is_empty = not any(segment.size for segment in left)
            if is_empty:
                # For good, so that no write that is cut short replaces it as long as nothing else tells.
                active.save(final=True)
        if is_empty:
            files.sync(active.path(SUMMARY))
            files.sync_folder(self.directory)
        else:
            flush(self)
        return True

    def release(self) -> None:
        """Close the files of sealed segments; they are opened again when they are read."""
        for segment in self.segments:
            segment.release()

    def close(self) -> bool:
        """Flush and save everything; return whether that was done."""
        if self.failure is not None and not self._is_mended():
            return False
        self.flush()
        with self.lock, self._offline_on_error():
            self.active.close()  # What is saved needs a descriptor, and there may be no other.
            with suppress(Mismatch):  # Its files stay as they are: it has not been appended to.
                self.active.finish(flushed=True)
            if self._has_producers_to_find():
                self._copy_producers()
        self.write_snapshot()
        self.refuse_writes("it was closed")
        return True

    def _has_producers_to_find(self) -> bool:
        """Tell whether the next start is to be told of producers; of a little that has none it finds that out."""
        return bool(self.producers.producers or self.snapshots or self.size_bytes > SNAPSHOT_FROM_BYTES)

    def refuse_writes(self, why: str, refusal: type[LogOffline] = LogOffline) -> None:
        """Take no more writes, for good; each is refused with the last such error."""
        with self.lock:
            self.failure, self._refusal = self.failure or why, refusal
            self._remedy = None
        self.producers.clear()

    def delete(self) -> None:
        """Take no more writes: the topic is being deleted."""
        self.refuse_writes("it was deleted", LogDeleted)

    def retire(self, folder: Path) -> None:
        """Take no more writes, and touch no file by its old name: that of the log's folder is about to be `folder`.

        The old name may soon be that of another topic's folder. Waits for a flush that is under way.
        """
        self.delete()
        with self._flush_lock, self.lock, self._snapshot_lock:
            self._unsaved = None
            self.directory = folder
            self.deleted = retention.DeletedFiles(folder)
            for segment in self.segments:
                segment.folder = folder

    @contextmanager
    def _offline_on_error(self) -> Iterator[None]:
        """Turn an OSError into the error that callers know."""
        try:
            yield
        except OSError as error:
            raise LogOffline(f"{self}: {error}") from error
