"""All logs of a data folder: found at the start, created, deleted, checkpointed, closed.

Owns the folder: its lock, its identity, its checkpoints and the marker of a clean stop. Partitions are the folders
`<topic>-<partition>`. Knows topics by name only; who made them, and with what options, it is told.

Making a partition syncs nothing: the log's first flush puts its folder on disk before anything in it is acknowledged.
The checkpoints are hints, written after what they say is true.
"""

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidelog.config.options import BrokerConfig, TopicConfig
from tidelog.storage import files, folder_identity, recovery
from tidelog.storage.checkpoints import load_offsets, save_offsets
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import StorageError
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.producer_state import ProducerMemory
from tidelog.storage.segment import Segment

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
# After a crash most of the time goes into reading and checksums, both of which let other threads run.
RECOVERY_THREADS = 4
# Flushes of several files at once share the file system's commits.
CLOSING_THREADS = 8

_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,9})")
_log = logging.getLogger(__name__)


class LogManager:
    """The logs in `directory`."""

    def __init__(self, directory: Path, defaults: BrokerConfig, now_ms: Callable[[], int]) -> None:
        """Describe a data folder; `open` touches it."""
        self.directory = directory
        self.disk = DiskSpace(directory)
        self.logs: dict[tuple[str, int], Log] = {}
        self.cluster_id = ""
        self.directory_id = ""
        self._defaults = defaults
        self._now_ms = now_ms
        self._producer_memory = ProducerMemory(defaults.producer_state_max_bytes)
        self._lock: files.FolderLock | None = None

    def lock(self) -> None:
        """Take the folder for this process, made if it is missing, and learn or give its ids; nothing is loaded."""
        lock = folder_identity.lock(self.directory, self._defaults.node_id)
        with files.holding(lock):
            identity = folder_identity.identify(self.directory, self._defaults.node_id)
        self.cluster_id, self.directory_id = identity
        self._lock = lock

    def open(self, config_of: Callable[[str], TopicConfig] | None = None) -> None:
        """Lock the folder, unless `lock` did, and load every log in it; each is ready on return.

        `config_of` gives a topic's options. After an unclean stop logs are recovered, a few at a time.
        """
        if self._lock is None:
            self.lock()
        assert self._lock is not None
        with files.holding(self._lock):
            clean = files.status(self.directory / CLEAN_SHUTDOWN) is not None
            files.remove(self.directory / CLEAN_SHUTDOWN)
            self._load(config_of or (lambda _: self._defaults.topic_defaults()), clean)
        if not clean and self.logs:
            _log.info("recovered logs=%d after an unclean stop data=%s", len(self.logs), self.directory)

    def _load(self, config_of: Callable[[str], TopicConfig], clean: bool) -> None:
        points = load_offsets(self.directory / RECOVERY_POINTS)
        starts = load_offsets(self.directory / LOG_STARTS)
        now_ms = self._now_ms()

        def load(folder: Path, topic: str, partition: int) -> Log:
            key = (topic, partition)
            known = recovery.Known(clean, points.get(key, 0), starts.get(key, 0))
            log = recovery.load(folder, topic, partition, configs[topic], known, now_ms)
            return self._share(log)

        found = list(self._partitions())
        configs = {topic: config_of(topic) for topic in {topic for _, topic, _ in found}}
        if clean:
            logs = [load(*each) for each in found]
        else:
            with ThreadPoolExecutor(min(RECOVERY_THREADS, os.cpu_count() or 1), "recovery") as pool:
                logs = list(pool.map(lambda each: load(*each), found))
        self.logs = {(log.topic, log.partition): log for log in logs}

    def _partitions(self) -> Iterable[tuple[Path, str, int]]:
        """Yield the folder, topic and number of every partition; remove what a crash left half written or deleted."""
        for name, is_folder in files.list_folder(self.directory):
            if name.endswith(".tmp") and not is_folder:
                files.remove(self.directory / name)
            elif is_folder and name.endswith(DELETE_SUFFIX):
                files.remove_folder(self.directory / name)
            elif is_folder and (match := _PARTITION.fullmatch(name)):
                yield self.directory / name, match["topic"], int(match["partition"])

    def create(self, topic: str, partition: int, topic_id: bytes, config: TopicConfig) -> Log:
        """Make the log of a new partition."""
        name = f"{topic}-{partition}"
        if not _PARTITION.fullmatch(name) or topic in (".", ".."):
            raise StorageError(f"topic {topic!r} has no name that a folder can have")
        if (topic, partition) in self.logs:
            raise StorageError(f"{name}: exists")
        folder = self.directory / name
        try:
            files.make_folder(folder)
            folder_identity.save_topic_id(folder, topic_id)
            segment = Segment.create(
                folder, 0, config.index_interval_bytes, config.segment_index_bytes, self._now_ms()
            )
        except OSError as error:
            self.disk.refused(error)
            files.remove_folder(folder)
            raise StorageError(f"{folder}: cannot be made: {error.strerror}") from error
        log = Log(folder, topic, partition, config, [segment], epochs=LeaderEpochs(folder, [(0, 0)]))
        self.logs[topic, partition] = self._share(log)
        return log

    def _share(self, log: Log) -> Log:
        """Give a log what it has in common with the others."""
        log.producers.share(self._producer_memory)
        log.disk = self.disk
        return log

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's logs: their folders get a name that no start would load, and are removed.

        After a StorageError call it again; the logs take no writes any more.
        """
        gone = [log for log in self.logs.values() if log.topic == topic]
        doomed = [log.directory.with_name(f"{log}.{uuid.uuid4().hex}{DELETE_SUFFIX}") for log in gone]
        try:
            for log, folder in zip(gone, doomed, strict=True):
                log.close(clean=False)
                files.rename(log.directory, folder)
                del self.logs[topic, log.partition]
            if gone:
                files.sync_folder(self.directory)
        except OSError as error:
            raise StorageError(f"topic {topic}: its folders cannot be deleted: {error}") from error
        for folder in doomed:
            files.remove_folder(folder)

    def checkpoint(self) -> None:
        """Write down how far each log is on disk, and where each begins."""
        logs = list(self.logs.items())
        try:
            save_offsets(self.directory / RECOVERY_POINTS, {key: log.recovery_point for key, log in logs})
            save_offsets(self.directory / LOG_STARTS, {key: log.log_start_offset for key, log in logs})
        except OSError as error:
            self.disk.refused(error)
            raise

    def write_snapshots(self) -> None:
        """Write the snapshots of producers that rolls and flushes have asked for."""
        for log in self.logs.values():
            log.write_snapshot()

    def enforce_retention(self) -> int | None:
        """Delete what has expired, forget producers that have gone; a log that fails stops no other.

        Return when there will be more to do if nothing is appended, None for never.
        """
        now_ms = self._now_ms()
        next_ms: list[int] = []
        for log in list(self.logs.values()):
            try:
                due_ms = log.enforce_retention(now_ms)
                if due_ms is not None:
                    next_ms.append(due_ms)
                log.expire_producers(now_ms - self._defaults.producer_id_expiration_ms)
                log.release()
            except StorageError as error:
                _log.error("retention failed log=%s error=%r", log, str(error))
        return min(next_ms, default=None)

    def flush_intervals(self) -> int | None:
        """Flush the logs with `flush.policy=interval` whose `flush.ms` is over; return the shortest of those, in ms."""
        now_ms = self._now_ms()
        shortest: int | None = None
        for log in list(self.logs.values()):
            if log.config.flush_policy != "interval":
                continue
            flush_ms = log.config.flush_ms
            shortest = flush_ms if shortest is None else min(shortest, flush_ms)
            if now_ms - log.last_flush_ms >= flush_ms:
                log.last_flush_ms = now_ms
                try:
                    log.flush()
                except StorageError as error:
                    _log.error("flush failed log=%s error=%r", log, str(error))
        return shortest

    def close(self) -> None:
        """Flush, save and checkpoint everything, leave the marker of a clean stop, and let the folder go."""
        if self._lock is None:
            return
        with ThreadPoolExecutor(CLOSING_THREADS, "closing") as pool:
            clean = all(list(pool.map(_closed, self.logs.values())))
        self.checkpoint()
        if clean:
            files.write_atomically(self.directory / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        self.abandon()

    def abandon(self) -> None:
        """Let the folder go as it is, as a crash would."""
        self.logs = {}
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _closed(log: Log) -> bool:
    """Close a log; tell whether all of it is safe."""
    try:
        return log.close()
    except (StorageError, OSError) as error:
        _log.error("close failed log=%s error=%r", log, str(error))
        return False
