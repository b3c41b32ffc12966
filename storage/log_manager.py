"""All logs of a data folder: opened at the start, created, deleted, checkpointed and closed.

Owns the folder: its lock, its ids, its checkpoints and the marker of a clean stop. Partitions are the folders
`<topic>-<partition>`. Knows topics by name only; callers supply their options.

Creating a partition syncs nothing; `sync_made` syncs many at once. The checkpoints are hints, written after what they
say is true. They name partitions, not topic ids, so an entry must not outlive its partition: it is removed, durably,
before the name of a deleted topic is free, and before a partition of that name is created. An entry without a folder,
whose topic was not deleted, shows that the folder was lost.

One thread at a time creates, deletes and checkpoints (the broker's maintenance thread), so no checkpoint can bring back
an entry that another has removed. Long work is a generator that yields before each step, so that this thread can do
something else in between. A log may be deleted between two steps; the rest of the work skips it.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import cut, files, layout, pins, recovery
from tidelog.storage.checkpoints import load_offsets, save_offsets
from tidelog.storage.due_times import DueTimes
from tidelog.storage.errors import StorageError, logged
from tidelog.storage.group_sync import GroupSync, Trust
from tidelog.storage.layout import (
    CLEAN_SHUTDOWN,
    DELETE_SUFFIX,
    LOG_STARTS,
    NAME_BYTES_MAX,
    RECOVERY_POINTS,
    SUFFIXES,
    partition_of,
)
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.retention import expired
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared
from tidelog.storage.unopened import UnopenedLog
from tidelog.storage.upkeep import enforce_retention, next_due_ms

# Recovery of a large log mostly reads and computes checksums, both without the interpreter's lock.
RECOVERY_THREADS: Final = 4
# With so many logs recovery mostly runs Python: threads would only wait for that lock.
MANY_LOGS: Final = 1000
# Concurrent flushes share the file system's journal commits.
CLOSING_THREADS: Final = 8
# How many logs are flushed in one step: the first sync usually writes the data of the others too.
FLUSHED_AT_ONCE: Final = 100

_log = logging.getLogger(__name__)

T = TypeVar("T")
Steps = Generator[None, None, T]


class LogManager:
    """The logs in `directory`."""

    def __init__(self, directory: Path, defaults: BrokerConfig, now_ms: Callable[[], int]) -> None:
        """Describe a data folder; `open` touches it."""
        self.directory = directory
        self.shared = Shared(directory, defaults.producer_state_max_bytes)
        self.disk = self.shared.disk
        self.logs: dict[tuple[str, int], Log] = {}
        self.cluster_id = ""
        self.directory_id = ""
        # The partitions that a checkpoint on disk may name, and those of them that were deleted.
        self._entries: set[tuple[str, int]] = set()
        self._absent: set[tuple[str, int]] = set()
        # What the checkpoints know of existing partitions whose folder is missing, until it is created again.
        self._lost: dict[tuple[str, int], recovery.Known] = {}
        # By the arguments of `delete_topic`: folders that were renamed and not removed yet.
        self._deleting: dict[tuple[str, int], set[Path]] = {}
        # When retention looks at each log next.
        self._due: DueTimes[tuple[str, int]] = DueTimes()
        self._looked_ms = 0
        self.first_epoch = 0  # the leader epoch of new logs
        self.defaults = defaults  # replaced as a whole when options change
        self._now_ms = now_ms
        self._lock: files.FolderLock | None = None
        self._is_boot_saved = False
        self._group_sync: GroupSync
        self.trust = Trust(self.disk)

    def lock(self) -> None:
        """Lock the folder for this process, create it if it is missing, and load or assign its ids."""
        lock = layout.lock(self.directory, self.defaults.node_id)
        with files.holding(lock):
            identity = layout.identify(self.directory, self.defaults.node_id)
            self._group_sync = GroupSync(self.directory, self.trust)
        self.cluster_id, self.directory_id = identity
        self._lock = lock

    def open(
        self,
        config_of: Callable[[str], TopicConfig] | None = None,
        is_ours: Callable[[str], bool] = lambda _: True,
        problem_of: Callable[[str, int], str | None] = lambda *_: None,
    ) -> None:
        """Lock the folder, unless `lock` did, and open every log in it.

        `config_of` returns a topic's options; `is_ours` tells a topic that was created here from one whose folders were
        copied here. `problem_of` returns why a partition may not be served, or None. A log that cannot be opened has
        `unopened` set, and is not served. After an unclean stop, logs are recovered, a few at a time.
        """
        if self._lock is None:
            self.lock()
        assert self._lock is not None
        began_s = time.monotonic()
        with files.holding(self._lock):
            clean = files.status(self.directory / CLEAN_SHUTDOWN) is not None
            self._load(
                config_of or (lambda _: self.defaults.topic_defaults()), is_ours, problem_of, clean=clean
            )
            if clean:
                # After all logs have loaded. Durably: a marker that comes back after a crash would vouch for later
                # writes.
                files.remove(self.directory / CLEAN_SHUTDOWN)
                files.sync_folder(self.directory)
        self.shared.tally.open_s = time.monotonic() - began_s
        if not clean and self.logs:
            _log.info("recovered logs=%d after an unclean stop data=%s", len(self.logs), self.directory)

    def _load(
        self,
        config_of: Callable[[str], TopicConfig],
        is_ours: Callable[[str], bool],
        problem_of: Callable[[str, int], str | None],
        *,
        clean: bool,
    ) -> None:
        found = list(self._partitions())
        points = load_offsets(self.directory / RECOVERY_POINTS)
        starts = load_offsets(self.directory / LOG_STARTS)
        now_ms = self._now_ms()
        was_cut_off = not layout.is_same_boot(self.directory)

        def known_of(key: tuple[str, int]) -> recovery.Known:
            return recovery.Known(
                clean,
                points.get(key, 0),
                starts.get(key, 0),
                is_ours(key[0]),
                was_cut_off,
                is_start_noted=key in starts,
                first_epoch=self.first_epoch,
            )

        def load(folder: Path, topic: str, partition: int) -> Log:
            known = known_of((topic, partition))
            try:
                if problem := problem_of(topic, partition):
                    raise StorageError(problem)
                return recovery.find(folder, topic, partition, configs[topic], self.shared, known, now_ms)
            except Exception as error:  # Any error of one partition must not stop the others.
                if isinstance(error, OSError) and error.errno in files.SHORTAGES:
                    raise  # It is not this partition's error.
                return self._unopened(folder, topic, partition, configs[topic], known, error)

        configs = {topic: config_of(topic) for topic in {topic for _, topic, _ in found}}
        if clean:
            logs = [load(*each) for each in found]
            recovery.put_on_disk(_opened(logs), self._group_sync, first_epoch=self.first_epoch)
        else:
            with ThreadPoolExecutor(min(RECOVERY_THREADS, os.cpu_count() or 1), "recovery") as pool:
                each = pool.map if len(found) < MANY_LOGS else map
                logs = list(each(lambda args: load(*args), found))
                recovery.put_on_disk(_opened(logs), self._group_sync, pool.map, self.first_epoch)
        self.logs = {(log.topic, log.partition): log for log in logs}
        self._leave_whole(is_ours, known_of)
        for log in self.logs.values():
            # Segments that expired since the stop are not deleted at once, so that there is time to change an option.
            spans_ms = (log.config.max_segment_ms, log.config.retention_ms)
            self._look_again(log, now_ms + min(span_ms for span_ms in spans_ms if span_ms >= 0))
        self._entries = points.keys() | starts.keys()
        self._absent = self._entries - self.logs.keys()
        self._lost = {key: known_of(key) for key in self._absent if is_ours(key[0])}
        self._absent -= self._lost.keys()
        try:
            if not clean:
                # If a crash took a folder's name, it would be created again with leader epochs from 0.
                files.sync_folder(self.directory)
            self._strike_absent()
            self._save_boot()
        except OSError as error:
            self.disk.refused(error)
            _log.warning(
                "the result of the start is not all on disk data=%s error=%r", self.directory, str(error)
            )

    def _leave_whole(
        self, is_ours: Callable[[str], bool], known_of: Callable[[tuple[str, int]], recovery.Known]
    ) -> None:
        """Serve no partition of a copied topic if one of them could not be opened.

        The broker has not adopted the topic yet, and retention must not start on a part of it.
        """
        unopened = {log.topic: log for log in self.logs.values() if log.unopened is not None}
        for key, log in self.logs.items():
            if log.topic in unopened and log.unopened is None and not is_ours(log.topic):
                error = StorageError(
                    f"{unopened[log.topic]} could not be opened: {unopened[log.topic].unopened}"
                )
                self.logs[key] = self._unopened(log.directory, *key, log.config, known_of(key), error)

    def _unopened(
        self,
        folder: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
        known: recovery.Known,
        error: Exception,
    ) -> UnopenedLog:
        """Return a stand-in for a log that cannot be opened, and log why."""
        why, fault = logged(error)
        _log.error(
            "log not opened: it is not served until you repair it and restart the broker log=%s-%d error=%r",
            topic,
            partition,
            why,
            exc_info=fault,
        )
        return UnopenedLog(folder, topic, partition, config, self.shared, known, why, self._now_ms())

    def _save_boot(self) -> None:
        """Save the boot id, so that the next start trusts unflushed data, unless the disk or a log has failed."""
        if all(log.health.failure is None for log in self.logs.values()):
            self._is_boot_saved = self.disk.trust()

    def _partitions(self) -> Iterable[tuple[Path, str, int]]:
        """Yield the folder, topic and number of every partition; remove temporary files and deleted folders."""
        entries = files.list_folder(self.directory)
        self._remove_deleted(
            [name for name, is_folder in entries if is_folder and name.endswith(DELETE_SUFFIX)]
        )
        for name, is_folder in entries:
            if name.endswith(".tmp") and not is_folder:
                try:
                    files.remove(self.directory / name)
                except OSError as error:
                    self.disk.refused(error)  # The next write of that file replaces it.
            elif is_folder and (named := partition_of(name)) is not None:
                yield self.directory / name, *named

    def _remove_deleted(self, names: list[str]) -> None:
        """Remove the folders of deleted partitions; the next start tries again what fails."""
        if not names:
            return
        try:
            # A power cut must not bring back the name of a partition whose files are gone.
            files.sync_folder(self.directory)
        except OSError as error:
            self.disk.refused(error)
            return
        for name in names:
            files.remove_folder(self.directory / name)

    def create(self, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> Log:
        """Create the log of a new partition."""
        folder = self._folder_of_new(topic, partition)
        try:
            log = self._made(folder, topic, partition, topic_id, config)
        except OSError as error:
            raise StorageError(f"{folder}: cannot be created: {error.strerror}") from error
        self.logs[topic, partition] = log
        self._look_again(log)
        return log

    def adopt(
        self, made: Path, topic: str, partition: int, config: TopicConfig, start_offset: int, end_offset: int
    ) -> Log:
        """Open a log that was made in a folder beside the others, and is on disk, as that of a new partition."""
        folder = self._folder_of_new(topic, partition)
        try:
            if (topic, partition) in self._absent:
                self._strike_absent()
            files.rename(made, folder)
            known = recovery.Known(
                clean=True,
                recovery_point=end_offset,
                log_start_offset=start_offset,
                ours=True,
                first_epoch=self.first_epoch,
            )
            log = recovery.load(folder, topic, partition, config, self.shared, known, self._now_ms())
        except OSError as error:
            self.disk.refused(error)
            raise StorageError(f"{folder}: cannot be created: {error.strerror}") from error
        self.logs[topic, partition] = log
        self._look_again(log)
        return log

    def restore(self, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> Log:
        """Create the log of a partition whose folder the start did not find.

        On a full disk the log may have no folder; then it is created before the first append.
        """
        unknown = recovery.Known(clean=True, ours=True, first_epoch=self.first_epoch)
        known = self._lost.get((topic, partition), unknown)
        log: Log
        try:
            folder = self._folder_of_new(topic, partition)
            log = self._made(folder, topic, partition, topic_id, config)
        except StorageError:
            # Something has the folder's name, and it is no folder: the start opened all of those.
            folder = self.directory / f"{topic}-{partition}"
            error = StorageError(f"{folder}: is a file, but must be the partition's folder; move it away")
            log = self._unopened(folder, topic, partition, config, known, error)
            self._lost.pop((topic, partition), None)
        except OSError:
            now_ms = self._now_ms()
            log = recovery.make(folder, topic, partition, topic_id, config, self.shared, known, now_ms)
        self.logs[topic, partition] = log
        self._look_again(log)
        return log

    def _folder_of_new(self, topic: str, partition: int) -> Path:
        """Return the folder for a new partition. Raise StorageError if the name is invalid or taken."""
        name = f"{topic}-{partition}"
        if partition_of(name) is None or topic in (".", ".."):
            raise StorageError(f"topic {topic!r}: the name cannot be used for a folder")
        if (topic, partition) in self.logs:
            raise StorageError(f"{name}: exists")
        folder = self.directory / name
        if files.status(folder) is not None:
            raise StorageError(
                f"{folder}: exists already, but is not served; move it away, or restart to serve it"
            )
        return folder

    def _made(self, folder: Path, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> Log:
        """Create a folder and the log in it. On OSError, remove what was created."""
        try:
            if (topic, partition) in self._absent:
                self._strike_absent()
            if (topic, partition) in self._lost:
                return self._recreated(folder, topic, partition, topic_id, config)
            return self._made_empty(folder, topic, partition, topic_id, config)
        except OSError as error:
            self.disk.refused(error)
            files.remove_folder(folder)
            raise

    def _made_empty(
        self, folder: Path, topic: str, partition: int, topic_id: bytes, config: TopicConfig
    ) -> Log:
        """Create a log that begins at 0."""
        segment = Segment.begin(folder, 0, config, self.shared, self._now_ms())
        epochs = LeaderEpochs(folder, [(self.first_epoch, 0)])
        contents = {
            layout.PARTITION_METADATA: layout.topic_id_file(topic_id),
            epochs.path.name: epochs.encoded(),  # Here, so that the flusher thread need not write it.
        }
        files.make_folder_with(folder, contents | dict.fromkeys(segment.new_names, b""))
        epochs.is_saved = True
        return Log(folder, topic, partition, config, self.shared, [segment], epochs=epochs)

    def _recreated(
        self, folder: Path, topic: str, partition: int, topic_id: bytes, config: TopicConfig
    ) -> Log:
        """Create the log of a partition whose folder was lost; its old offsets are not used again."""
        _log.error("folder lost, created again folder=%s", folder)
        files.make_folder(folder)
        layout.save_topic_id(folder, topic_id)
        known = self._lost[topic, partition]
        log = recovery.load(folder, topic, partition, config, self.shared, known, self._now_ms())
        del self._lost[topic, partition]
        return log

    def sync_made(self, logs: Iterable[Log]) -> Steps[None]:
        """Put the folders of new logs, with their topic ids, on disk, so that a later start finds them.

        For many logs one sync of the file system does it; otherwise each log is synced in a step of its own.
        """
        try:
            # A log of `restore` may have no folder yet.
            made = [log for log in logs if files.status(log.directory) is not None]
            if not made or self._group_sync.sync_in_place_of(2 * len(made)):
                return
            for log in made:
                if self._is_served(log):  # Its topic may have been deleted between two steps.
                    files.sync(log.directory / layout.PARTITION_METADATA)
                    files.sync_folder(log.directory)
                yield
            files.sync_folder(self.directory)
        except OSError as error:
            raise StorageError(f"{self.directory}: cannot be synced: {error}") from error

    def restore_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Write the topic's id into a partition's folder if it has none, or a torn one. Not durable."""
        with self.disk.optional_write("topic id", log):
            if log.topic_id is None:
                layout.save_topic_id(log.directory, topic_id)

    def save_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Write the topic's id into a partition's folder. Not durable."""
        with self.disk.optional_write("topic id", log):
            layout.save_topic_id(log.directory, topic_id)

    def delete_topic(self, topic: str, first: int = 0) -> Steps[None]:
        """Delete a topic's logs, or those from partition `first` on, and their entries in the checkpoints.

        The folders are renamed, so that no start loads them, and removed. Then the entries are removed, which may need
        the space that is free by then. A crash in between leaves entries without a folder; the next start removes
        them. After a StorageError call this again; the logs take no more writes.
        """
        renamed = self._deleting.setdefault((topic, first), set())
        try:
            going = [(key, log) for key, log in self.logs.items() if key[0] == topic and key[1] >= first]
            for key, log in going:
                yield
                if not self._is_served(log):
                    continue  # The whole topic was deleted between two steps.
                suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
                folder = self.directory / (str(log)[: NAME_BYTES_MAX - len(suffix)] + suffix)
                log.retire(folder)
                files.rename(self.directory / str(log), folder)
                renamed.add(folder)
                del self.logs[key]
                self._due.drop(key)
                if key in self._entries:
                    self._absent.add(key)
            for key in [key for key in self._lost if key[0] == topic and key[1] >= first]:
                del self._lost[key]
                self._absent.add(key)
            yield
            # Even if nothing was renamed: an earlier call may have failed here.
            files.sync_folder(self.directory)
            while renamed:
                yield from _removed(renamed.pop())
            for _, log in going:
                # Free the space even if something still refers to the log; readers keep the files that they read.
                log.release()
                log.active.close()
            self._deleting.pop((topic, first), None)
            self._strike_absent()
        except OSError as error:
            raise StorageError(f"topic {topic}: its folders cannot be deleted: {error}") from error

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate a log, with the checkpoints that `Log.truncate` requires.

        The recovery point moves back before the cut. The log's start moves back only after it: otherwise a crash in
        between would bring back records before the start.
        """
        log = self.logs[topic, partition]
        try:
            log.durability.recovery_point = min(log.recovery_point, log.batch_start(offset))
            self.checkpoint()
        except OSError as error:
            raise StorageError(f"{log}: not truncated: {error}") from error
        log.truncate(offset, self.checkpoint)

    def _strike_absent(self) -> None:
        """Rewrite the checkpoints, durably, if they name a deleted partition."""
        if self._absent:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the recovery point and the start offset of each log, durably."""
        logs = {key: log for key, log in self.logs.copy().items() if not self._is_unmade(log)}
        self._entries |= logs.keys()
        points = {key: known.recovery_point for key, known in self._lost.items()}
        starts = {key: known.log_start_offset for key, known in self._lost.items()}
        points |= {key: log.recovery_point for key, log in logs.items()}
        starts |= {key: log.log_start_offset for key, log in logs.items() if _is_start_known(log)}
        try:
            save_offsets(self.directory / RECOVERY_POINTS, points)
            save_offsets(self.directory / LOG_STARTS, starts)
        except OSError as error:
            self.disk.refused(error)
            raise
        self._entries = logs.keys() | self._lost.keys()
        self._absent.clear()

    @staticmethod
    def _is_unmade(log: Log) -> bool:
        """Tell whether a log of `restore` has no folder yet; with an entry, the next start would take it for lost."""
        return (
            log.health.failure is not None and log.log_end_offset == 0 and files.status(log.directory) is None
        )

    def _is_served(self, log: Log) -> bool:
        """Tell whether a log has not been deleted, or replaced by another of its name."""
        return self.logs.get((log.topic, log.partition)) is log

    def look_after(self) -> Steps[None]:
        """Do small pending work of the logs; one log's failure does not stop the others.

        Logs that failed take writes again if that is possible. Scheduled snapshots of producers are written. With
        `flush.policy=acks`, a log is flushed when much was appended since its last flush. That bounds what the start
        after a kill scans, and keeps the system from throttling appends to write dirty memory.
        """
        self.disk.look()
        for log in list(self.logs.values()):
            yield
            if log.health.failure is not None and not self.disk.is_full:
                log.mend()
            log.snapshots.write()
            if log.config.flush_policy == "acks" and log.durability.is_flush_due(log):
                self._group_sync.flush([log])
        if not self._is_boot_saved and not self.disk.is_full:
            with suppress(OSError):
                self._save_boot()

    def enforce_retention(self) -> Steps[int | None]:
        """Delete expired segments and forget expired producers of the logs that are due.

        Return when the next log is due, None without logs. A log that fails does not stop the others. Each log is due
        again after `log.retention.check.interval.ms` at the latest.
        """
        now_ms = self._now_ms()
        if now_ms < self._looked_ms:
            # The clock was set back, so all due times are too late.
            self.retain_soon(self.logs.values())
        self._looked_ms = now_ms
        for key in self._due.take(now_ms):
            log = self.logs.get(key)
            if log is None:
                continue
            due_ms = None
            try:
                due_ms = yield from self._retain(log)
            except StorageError as error:
                _log.error("retention failed log=%s error=%r", log, str(error))
            if self._is_served(log):
                self._look_again(log, due_ms)
        return self._due.next_ms()

    def retain_soon(self, logs: Iterable[Log]) -> None:
        """Make these logs due for retention now."""
        now_ms = self._now_ms()
        for log in logs:
            self._due.hasten((log.topic, log.partition), now_ms)

    def note_first_batch(self, log: Log) -> int | None:
        """Record that a segment has got its first batch, so the log may be due sooner; return when the next log is due.

        The due time of an empty segment is unknown before that.
        """
        due_ms = next_due_ms(log, self._now_ms())
        if due_ms is not None and self._is_served(log):
            self._due.hasten((log.topic, log.partition), due_ms)
        return self._due.next_ms()

    def _look_again(self, log: Log, due_ms: int | None = None) -> None:
        """Make a log due at `due_ms`, or after `log.retention.check.interval.ms` if that is sooner."""
        latest_ms = self._now_ms() + self.defaults.log_retention_check_interval_ms
        self._due.put((log.topic, log.partition), latest_ms if due_ms is None else min(due_ms, latest_ms))

    def _retain(self, log: Log) -> Steps[int | None]:
        """Enforce retention on one log, some segments and files per step; return when it is due again."""
        due_ms = None
        # A bounded number of steps: a log that is written to may expire segments for ever.
        for _ in range(2 + len(log.segments) + len(log.deleted)):
            yield
            if not self._is_served(log):
                return None
            before = log.log_start_offset, len(log.deleted)
            due_ms = enforce_retention(log, self._now_ms(), self._flush_one)
            if before == (log.log_start_offset, len(log.deleted)):
                break
        log.producers.expire(self._now_ms() - self.defaults.producer_id_expiration_ms)
        log.release()
        return due_ms

    def sweep_pins(self) -> Steps[None]:
        """Remove pins that readers outside the broker have left, and the cuts of backups that have ended."""
        for log in list(_opened(self.logs.values())):
            yield
            if self._is_served(log):
                pins.sweep(log.directory, self._now_ms())
        yield
        cut.sweep(self.directory, self._now_ms())

    def has_expired(self, logs: Iterable[Log]) -> bool:
        """Tell whether a broker that starts now would soon delete segments of these logs."""
        now_ms = self._now_ms() + self.defaults.log_retention_check_interval_ms
        return any(expired(log.segments, log.log_start_offset, log.config, now_ms) for log in logs)

    def _flush_one(self, log: Log) -> None:
        """Flush one log, which may have many files to sync. Raise StorageError."""
        for error in self._group_sync.flush([log]).values():
            raise error

    def flush_intervals(self) -> Steps[int | None]:
        """Flush the logs with `flush.policy=interval` that are due; return the shortest `flush.ms` of such logs."""
        yield
        logs = [log for log in _opened(self.logs.values()) if log.config.flush_policy == "interval"]
        for first in range(0, len(logs), FLUSHED_AT_ONCE):
            yield
            now_ms = self._now_ms()
            due = [
                log
                for log in logs[first : first + FLUSHED_AT_ONCE]
                if now_ms - log.last_flush_ms >= log.config.flush_ms and self._is_served(log)
            ]
            for log in due:
                log.last_flush_ms = now_ms
            self._group_sync.flush(due)
        return min((log.config.flush_ms for log in logs), default=None)

    def close(self) -> bool:
        """Flush, save and checkpoint everything, write the marker of a clean stop, and unlock the folder.

        Return False if something failed: the reason was logged, and the next start recovers.
        """
        if self._lock is None:
            return True
        # The next start removes a topic whose deletion is under way. Each log's `close` flushes it, if this does not.
        logs = [log for log in self.logs.values() if (log.topic, 0) not in self._deleting]
        self._group_sync.flush_together(_opened(logs))
        with ThreadPoolExecutor(CLOSING_THREADS, "closing") as pool:
            clean = all(list(pool.map(_closed, logs)))
        try:
            self.checkpoint()
            if clean:
                self._sync_closed(_opened(logs))
                files.write_atomically(self.directory / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        except OSError as error:
            clean = False
            _log.error("the next start recovers data=%s error=%r", self.directory, str(error))
        self.abandon()
        return clean

    def _sync_closed(self, logs: list[Log]) -> None:
        """Sync the files that `Log.close` has written: the marker must be true after a power cut too."""
        if self._group_sync.sync_in_place_of(len(SUFFIXES) * len(logs)):
            return
        with ThreadPoolExecutor(CLOSING_THREADS, "closing") as pool:
            for _ in pool.map(_sync_saved, logs):
                pass

    def abandon(self) -> None:
        """Unlock the folder and leave its content as it is, like a crash."""
        self.logs = {}
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _opened(logs: Iterable[Log]) -> list[Log]:
    return [log for log in logs if log.unopened is None]


def _is_start_known(log: Log) -> bool:
    """Tell whether a checkpoint is to have the start offset of a log."""
    return not isinstance(log, UnopenedLog) or log.known.is_start_noted


def _removed(folder: Path) -> Steps[None]:
    """Remove a folder, one file per step; the next start tries again what fails."""
    yield
    entries: list[files.Entry] = []
    with suppress(OSError):
        entries = files.list_folder(folder)
    for name, _ in entries:
        yield
        with suppress(OSError):
            files.remove(folder / name)
    files.remove_folder(folder)


def _sync_saved(log: Log) -> None:
    for suffix in SUFFIXES:
        files.sync(log.active.path(suffix))
    files.sync_folder(log.directory)


def _closed(log: Log) -> bool:
    """Close a log; tell whether all of it is on disk."""
    try:
        return log.close()
    except (StorageError, OSError) as error:
        _log.error("close failed log=%s error=%r", log, str(error))
        return False
