"""The served topics: found by name or id on the event loop; created, changed and deleted on the maintenance thread.

The catalogue is the truth, and the folders follow it: creation and deletion both write the catalogue first. After a
crash in between, `open` removes what was deleted and makes what is missing, later if the disk is full. Partition
folders that the catalogue does not know, such as Kafka's, are adopted as a topic or as more partitions of one. A change
of options or of the number of partitions is in the catalogue before any log uses it. If a failed creation cannot be
undone, the next creation of that name undoes it; a start before that serves the topic, as it serves the remains of a
crash.

`by_name` and `by_id` belong to the event loop. The maintenance thread has its own tables, and posts each change to the
loop before the answer.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.catalog import FIRST_EPOCH_MAX, Catalog, TopicRecord, new_topic_id
from tidelog.broker.partition import Partition
from tidelog.broker.topic_rules import (
    BrokerStops,
    TopicExists,
    TopicIsGrowing,
    TopicNamesCollide,
    metric_name,
    record_problem,
)
from tidelog.broker.work import Coro, all_of, turn
from tidelog.config import stored
from tidelog.config.errors import ConfigError
from tidelog.config.inert import ONE_COPY
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC, TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.topic_names import OFFSETS_TOPIC, is_internal
from tidelog.storage import files
from tidelog.storage.errors import LogDeleted, OnError, StorageError, without_frames
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.troubles import Troubles

if TYPE_CHECKING:
    from tidelog.storage.forking import Forked

_log = logging.getLogger(__name__)
# The key of a trouble: a full disk refuses a creation, and then its undoing, as often as a client asks.
_HALF_MADE: Final = "half made topics"

# Room for two topics to create, five to delete, or three names while they wait. Every connection has this much room
# whatever others hold; a request for more can wait for requests within it.
FEW_TOPICS_BYTES: Final = 2 * 1024
TOO_MANY_WAIT: Final = (
    "too many topics wait to be created, changed or deleted (queued.max.topic.bytes); ask again"
)


class Topic:
    """A topic: its partitions in order, and its options. It is immutable, so any thread may hold it."""

    __slots__ = ("config", "id", "is_internal", "name", "options", "partitions")

    def __init__(self, record: TopicRecord, config: TopicConfig, partitions: Sequence[Partition]) -> None:
        self.name = record.name
        self.is_internal = is_internal(record.name)
        self.id = record.id
        self.options = record.options
        self.config = config
        self.partitions = tuple(partitions)

    def partition(self, index: int) -> Partition | None:
        """Return the partition with this number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def missing(topic: Topic | None, by_id: bool) -> ErrorCode:
    """Return the code for a partition that does not exist; the topic may not exist either."""
    return ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    options: dict[str, str]


# Makes the log of a partition, with its topic's id and options, in a folder beside the others.
MakeLogs = Callable[[int, bytes, TopicConfig], Coro["Forked"]]


class _Creation:
    """Partitions that are being made: all of a topic, or those from `first` on.

    `partitions` are those made so far, `made` the logs to sync, `failure` what prevented the rest.
    """

    __slots__ = ("config", "failure", "first", "made", "partitions", "record")

    def __init__(self, record: TopicRecord, config: TopicConfig, first: int = 0) -> None:
        self.record = record
        self.config = config
        self.first = first
        self.partitions: list[Partition] = []
        self.made: list[Log] = []
        self.failure: Exception | None = None


def _recording_failure(creations: list[_Creation]) -> OnError[Exception]:
    """Record an exception that ends the block as the failure of creations."""

    def note(error: Exception) -> None:
        for creation in creations:
            creation.failure = without_frames(error)

    return OnError((StorageError, BrokerStops), note)


def _not_failed(creations: list[_Creation]) -> list[_Creation]:
    return [creation for creation in creations if creation.failure is None]


class Topics:
    """All topics of the broker."""

    def __init__(
        self, catalog: Catalog, logs: LogManager, config: BrokerConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._catalog = catalog
        self._logs = logs
        self._config_of_broker = config
        self._defaults = config.topic_defaults()
        self._loop = loop
        # Event loop:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.changes = 0  # how often a topic was added, changed or removed
        self._all: tuple[Topic, ...] | None = None
        self._names: tuple[str, ...] | None = None
        self._watchers: list[tuple[Callable[[Topic, bool], None], Callable[[Topic], None]]] = []
        # Maintenance thread: the topics, and the names of topics that are half made or half deleted.
        self._made: dict[str, Topic] = {}
        self._made_by_id: dict[bytes, Topic] = {}
        self._creating: set[str] = set()
        self._by_metric_name: dict[str, set[str]] = {}  # of topics that exist or are being created
        self._deleting: set[str] = set()
        self._leftovers: set[str] = set()
        self._growing: set[bytes] = set()  # by id
        self._troubles = Troubles()
        # Topics that the start could not serve, with the reason. Their names are not available.
        self.left: dict[str, str] = {}
        # Set by the loop, read by the thread, which then leaves things half made.
        self.is_stopping = False

    def all(self) -> tuple[Topic, ...]:
        """Return all topics as a tuple, which may go to other threads. Event loop only."""
        if self._all is None:
            self._all = tuple(self.by_name.values())
        return self._all

    def watch(self, served: Callable[[Topic, bool], None], deleted: Callable[[Topic], None]) -> None:
        """Call `served` for each topic that is served from now on, with whether it is new, and `deleted` for each
        deleted one.

        They are called on the event loop.
        """
        self._watchers.append((served, deleted))

    def names(self) -> tuple[str, ...]:
        """Return the names of all topics, as one tuple for all callers. Event loop only."""
        if self._names is None:
            self._names = tuple(self.by_name)
        return self._names

    def served(self, name: str, topic_id: bytes, by_id: bool) -> Topic | None:
        """Return the topic that a request names, by id or by name."""
        return self.by_id.get(topic_id) if by_id else self.by_name.get(name)

    def on_first_use(self, name: str) -> tuple[int, dict[str, str]]:
        """Return the default number of partitions and the default options of a topic that is created on first use."""
        config = self._config_of_broker
        if name == OFFSETS_TOPIC:
            # Retention would delete committed offsets that groups still need.
            options = {"cleanup.policy": "compact"}
            options["segment.bytes"] = str(config.offsets_topic_segment_bytes)
            return config.offsets_topic_num_partitions, options
        return config.num_partitions, {}

    def open(self) -> None:
        """Open the logs, and serve the topics of the catalogue and of the folders. Before other threads start."""
        known = {record.name: self._honoured(record) for record in self._catalog.topics()}
        options = {name: record.options for name, record in known.items()}
        self.left = {
            name: why for name, record in known.items() if (why := record_problem(record)) is not None
        }
        self._logs.first_epoch = self._catalog.first_epoch()
        self._logs.open(
            lambda name: self._config(name, options.get(name, {})), options.__contains__, self._folder_problem
        )
        for name, why in self.left.items():
            _log.error("topic not served, its files stay untouched topic=%r why=%r", name, why)
        for name in self._catalog.deletions():
            try:
                at_once(self._delete_folders(name))
            except StorageError as error:
                _log.warning(
                    "files of a deleted topic remain, the next start tries again topic=%s error=%r",
                    name,
                    str(error),
                )
        for name, partitions in self._highest().items():
            record = known.get(name)
            if name in self._leftovers or name in self.left:
                continue
            if record is None or partitions > record.partitions:
                adopted = self._adopt(name, record, partitions)
                if adopted is not None:
                    known[name] = adopted
        for name, record in sorted(known.items()):
            if name not in self.left:
                self._serve(self._restored(record))
        self._raise_first_epoch()

    def _raise_first_epoch(self) -> None:
        """Raise the first epoch of new logs, and of logs that are made again, to the highest one that clients may have
        seen.
        """
        epochs = [log.leader_epoch for log in self._logs.logs.values()]
        highest = max((epoch for epoch in epochs if epoch <= FIRST_EPOCH_MAX), default=0)
        if highest > self._logs.first_epoch:
            try:
                self._catalog.raise_first_epoch(highest)
            except StorageError as error:
                _log.warning("leader epochs not noted, the next start tries again error=%r", str(error))
            else:
                self._logs.first_epoch = highest

    def _restored(self, record: TopicRecord) -> Topic:
        """Return a topic of the catalogue; missing folders are made again."""
        creation = _Creation(record, self._config(record.name, record.options))
        at_once(self._make(creation, self._logs.restore))
        at_once(self._logs.sync_made(creation.made))
        return self._settle(creation)

    def _folder_problem(self, name: str, partition: int) -> str | None:
        if partition >= MAX_PARTITIONS_PER_TOPIC:
            return f"there is a folder of partition {partition}, and a topic has at most {MAX_PARTITIONS_PER_TOPIC}"
        return self.left.get(name)

    def _honoured(self, record: TopicRecord) -> TopicRecord:
        """Return a stored topic with the options that can be honoured; log the others."""
        options, refused = stored.topic_options(self._defaults, record.options)
        for problem in refused:
            _log.error("stored option not honoured topic=%s, set or delete it: %s", record.name, problem)
        return record._replace(options=options)

    def _highest(self) -> dict[str, int]:
        """Return the number of partitions of each topic by its folders."""
        highest: dict[str, int] = {}
        for name, partition in sorted(self._logs.logs):
            highest[name] = max(highest.get(name, 0), partition + 1)
        return highest

    def _adopt(self, name: str, record: TopicRecord | None, partitions: int) -> TopicRecord | None:
        """Adopt folders that the catalogue does not know, as partitions of a known topic or of a new one."""
        logs = [log for (topic, _), log in self._logs.logs.items() if topic == name]
        if any(log.unopened for log in logs):
            if record is None:
                self.left[name] = "not all of its partitions could be opened"
            _log.error("folders not adopted topic=%s: not all of its partitions could be opened", name)
            return None
        # From now on a crash may cut what no flush covers, so what was copied here is flushed first.
        for log in logs:
            log.flush()
        self._logs.checkpoint()
        if record is None:
            record = TopicRecord(name, self._id_of(name, logs), partitions, self.on_first_use(name)[1])
        record = record._replace(partitions=partitions)
        self._catalog.add_topic(record)
        _log.info("topic adopted topic=%s partitions=%d", name, partitions)
        if self._logs.has_expired(logs):
            _log.warning(
                "topic adopted topic=%s holds expired records, which are deleted within "
                "log.retention.check.interval.ms; to keep them, stop now and start with log.retention.ms=-1",
                name,
            )
        return record

    def _id_of(self, name: str, logs: list[Log]) -> bytes:
        """Return the id of an adopted topic: that of its folders, unless another topic has it."""
        known = {record.id: record.name for record in self._catalog.topics()}
        topic_id = logs[0].topic_id
        if topic_id is not None and topic_id not in known:
            return topic_id
        if topic_id is not None:
            _log.warning("topic gets a new id topic=%s: its folders had the id of %s", name, known[topic_id])
        topic_id = new_topic_id()
        for log in logs:
            self._logs.save_topic_id(log, topic_id)
        return topic_id

    # Maintenance thread.

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Return the topic of this name, or of this id if `name` is None. Maintenance thread only."""
        return self._made_by_id.get(topic_id) if name is None else self._made.get(name)

    def check_new(self, name: str) -> None:
        """Raise TopicExists or TopicNamesCollide if a name is not available. Maintenance thread only."""
        if name in self._made or name in self._creating:
            raise TopicExists(f"Topic '{name}' already exists.")
        if name in self.left:
            raise TopicExists(f"Topic '{name}' already exists. It is not served: {self.left[name]}")
        if name in self._deleting:
            message = f"Topic '{name}' already exists. It is being deleted: ask again when that is answered."
            raise TopicExists(message)
        others = self._by_metric_name.get(metric_name(name))
        if others:
            raise TopicNamesCollide(name, min(others))

    async def create(self, name: str, partitions: int, options: dict[str, str]) -> Topic:
        """Create one topic, as `create_all` does, and raise what prevented it."""
        outcome = (await self.create_all([NewTopic(name, partitions, options)])).pop(name)
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            del outcome  # a frame that an exception refers to must not refer to the exception

    async def create_all(self, wanted: Sequence[NewTopic]) -> dict[str, Topic | Exception]:
        """Create topics durably, with one change of the catalogue and one sync for all, and a step for each partition.

        Return each topic by name, or what prevented it: TopicExists, TopicNamesCollide, ConfigError, StorageError,
        BrokerStops. A topic that is half made then is not served. Maintenance thread only.
        """
        creations: list[_Creation] = []
        outcomes: dict[str, Topic | Exception] = {}
        try:
            for new in wanted:
                try:
                    creations.append(self._begin(new))
                except (TopicExists, TopicNamesCollide, ConfigError) as error:
                    outcomes[new.name] = without_frames(error)
            for creation in creations:
                with _recording_failure([creation]):
                    await self._delete_leftovers(creation.record.name)
            begun = _not_failed(creations)
            with _recording_failure(begun):
                self._catalog.add_topics([creation.record for creation in begun])
            await self._make_all(_not_failed(begun))
            await self._undo_creations([each for each in creations if each.failure is not None])
            for each in creations:
                outcomes[each.record.name] = each.failure or self._finish(each)
        finally:
            for name in (each.record.name for each in creations):
                self._creating.discard(name)
                if name not in self._made:
                    self._release_name(name)
        return outcomes

    async def fork(self, new: NewTopic, make: MakeLogs) -> Topic:
        """Create a topic from logs that `make` has put on disk beside the others.

        Until all of it is on disk under its name, its folders are on the catalogue's list of deletions, so that a start
        removes them. Raises as `create` does; then nothing is left. Maintenance thread only.
        """
        creation = self._begin(new)
        record = creation.record
        forks: list[Forked] = []
        try:
            with _recording_failure([creation]):
                await self._delete_leftovers(new.name)
                for partition in range(new.partitions):
                    forks += [await make(partition, record.id, creation.config)]
                self._catalog.remove_topic(new.name)
                for partition, made in enumerate(forks):
                    self._check(creation)
                    log = self._logs.adopt(made.folder, new.name, partition, creation.config, *made[1:3])
                    creation.made.append(log)
                    creation.partitions.append(Partition(partition, log))
                    await turn()
                await all_of(self._logs.sync_made(creation.made))
                self._logs.checkpoint()  # where the logs start
                self._check(creation)
                self._catalog.add_topic(record)
            if creation.failure is not None:
                await self._undo_creations([creation])
                raise creation.failure
            return self._finish(creation)
        finally:
            for made in forks:
                files.remove_folder(made.folder)  # one that was not adopted
            self._creating.discard(new.name)
            if new.name not in self._made:
                self._release_name(new.name)

    def _begin(self, new: NewTopic) -> _Creation:
        """Reserve the name of a new topic."""
        self.check_new(new.name)
        config = self._config(new.name, new.options)
        self._creating.add(new.name)
        self._reserve_name(new.name)
        return _Creation(TopicRecord(new.name, new_topic_id(), new.partitions, new.options), config)

    async def _delete_leftovers(self, name: str) -> None:
        """Remove the files of a deleted topic of this name; otherwise the next start would delete the new one."""
        if name in self._leftovers or name in self._catalog.deletions():
            await self._delete_folders(name)
        self._leftovers.add(name)

    async def _make_all(self, creations: list[_Creation]) -> None:
        """Make the partitions of topics durably, or record the failure of each."""
        for number, creation in enumerate(creations):
            with _recording_failure([creation]):
                if number:
                    await turn()
                    self._check(creation)
                await self._make(creation, self._logs.create)
        made = _not_failed(creations)
        with _recording_failure(made):
            for _ in self._logs.sync_made([log for creation in made for log in creation.made]):
                await turn()
                if self.is_stopping:
                    raise BrokerStops("not made, the broker stops")
        for creation in _not_failed(made):
            with _recording_failure([creation]):
                self._check(creation)

    async def _make(self, creation: _Creation, make: Callable[[str, int, bytes, TopicConfig], Log]) -> None:
        """Make the missing partitions of a topic, without syncing them."""
        record = creation.record
        for index in range(creation.first, record.partitions):
            # One may exist already: at a start, or if an earlier try could not be undone.
            log = self._logs.logs.get((record.name, index))
            is_new = log is None
            if log is None:
                if index > creation.first:
                    await turn()
                self._check(creation)
                log = make(record.name, index, record.id, creation.config)
            if log.unopened is None:
                if is_new or creation.first:
                    creation.made.append(log)
                else:
                    self._logs.restore_topic_id(log, record.id)
            creation.partitions.append(Partition(index, log))

    def _check(self, creation: _Creation) -> None:
        """Raise BrokerStops or LogDeleted if a creation must end.

        Nothing else ends what has begun. If a stop interrupts a growing topic, the next start makes the missing
        partitions.
        """
        name = creation.record.name
        if self.is_stopping:
            raise BrokerStops(f"topic {name}: not made, the broker stops")
        if creation.first and creation.record.id not in self._made_by_id:
            raise LogDeleted(f"topic {name} was deleted meanwhile")

    def _finish(self, creation: _Creation) -> Topic:
        """Serve the new partitions."""
        topic = self._settle(creation)
        self._loop.call_soon_threadsafe(self._serve, topic)
        if creation.first:
            _log.info("partitions added topic=%s partitions=%d", topic.name, len(topic.partitions))
        else:
            self._leftovers.discard(topic.name)
            self._troubles.end(_HALF_MADE)
            _log.info("topic created topic=%s partitions=%d", topic.name, len(topic.partitions))
            _log_inert(topic, topic.config.overrides)
        return topic

    def _settle(self, creation: _Creation) -> Topic:
        """Register and return a topic with the new partitions and its present options."""
        record, partitions = creation.record, creation.partitions
        before = self._made_by_id.get(record.id)
        if before is not None:
            record = record._replace(options=before.options)
            partitions = [*before.partitions, *partitions]
        config = self._config(record.name, record.options)
        for log in creation.made:
            if log.config != config:
                log.update_config(config)
        topic = Topic(record, config, partitions)
        self._remake(topic)
        self._reserve_name(topic.name)
        return topic

    def _reserve_name(self, name: str) -> None:
        self._by_metric_name.setdefault(metric_name(name), set()).add(name)

    def _release_name(self, name: str) -> None:
        alike = self._by_metric_name[metric_name(name)]
        alike.discard(name)
        if not alike:
            del self._by_metric_name[metric_name(name)]

    async def _undo_creations(self, failed: list[_Creation]) -> None:
        """Undo failed creations; if that fails, the next creation of that name does it."""
        stopped = [each.record.name for each in failed if isinstance(each.failure, BrokerStops)]
        if stopped:
            # A stop must not take long, so the next start removes the files. What is not removed here it serves.
            with suppress(StorageError):
                self._catalog.remove_topics(stopped)
        for name in (each.record.name for each in failed if each.record.name not in stopped):
            try:
                self._catalog.remove_topic(name)
                await self._delete_folders(name)
            except (StorageError, BrokerStops) as error:
                if self._troubles.begin(_HALF_MADE, ""):
                    _log.warning(
                        "failed creation of topics not undone, the first is topic=%s error=%r: the next creation of "
                        "each topic undoes it",
                        name,
                        str(error),
                    )

    async def alter(self, topic: Topic, options: dict[str, str]) -> None:
        """Replace the own options of a topic, durably. Maintenance thread only.

        Makes a step for each partition; before the first, the options are in the catalogue. Raises ConfigError,
        StorageError.
        """
        config = self.checked(topic.name, options)
        self._catalog.set_options(topic.name, dict(config.overrides))
        changed = {name for name, _ in config.overrides.items() ^ topic.config.overrides.items()}
        record = TopicRecord(topic.name, topic.id, len(topic.partitions), dict(config.overrides))
        self._remake(Topic(record, config, topic.partitions))
        await self._apply(topic.id)
        values = " ".join(f"{name}={config.overrides.get(name, 'default')}" for name in sorted(changed))
        _log.info("options changed topic=%s %s", topic.name, values or "none")
        _log_inert(self._made_by_id.get(topic.id), changed)

    def checked(self, name: str, options: dict[str, str]) -> TopicConfig:
        """Return the configuration of a topic with these options; raise ConfigError for an invalid one."""
        config = self._defaults.override(self.on_first_use(name)[1] | options)
        self._config_of_broker.check_topic(config)
        most = self._defaults.max_decompressed_bytes
        if config.max_decompressed_bytes > most:
            value = str(config.max_decompressed_bytes)
            raise ConfigError(
                "max.decompressed.bytes",
                f"Value must be no more than {most}, the broker's: raise that first",
                value=value,
            )
        return config

    async def change_defaults(self, defaults: TopicConfig) -> None:
        """Apply other defaults of the broker to all topics: a step for each partition. Maintenance thread only."""
        self._defaults = defaults
        for topic_id in list(self._made_by_id):
            topic = self._made_by_id.get(topic_id)
            if topic is not None and not self.is_stopping:
                config = self._config(topic.name, topic.options)
                if config != topic.config:
                    record = TopicRecord(topic.name, topic.id, len(topic.partitions), topic.options)
                    self._remake(Topic(record, config, topic.partitions))
                    await self._apply(topic_id)

    def _remake(self, topic: Topic) -> None:
        self._made[topic.name] = self._made_by_id[topic.id] = topic

    async def _apply(self, topic_id: bytes) -> None:
        """Apply a topic's options to its logs, and then let requests find the topic as it is now.

        Each step reads the topic again: meanwhile its options may change, and it may be deleted.
        """
        number = 0
        while (topic := self._made_by_id.get(topic_id)) is not None and not self.is_stopping:
            if number == len(topic.partitions):
                self._loop.call_soon_threadsafe(self._serve, topic)
                return
            topic.partitions[number].log.update_config(topic.config)
            number += 1
            await turn()

    async def grow_all(self, wanted: Sequence[tuple[Topic, int]]) -> dict[str, Exception | None]:
        """Add partitions to topics durably, with one change of the catalogue and one sync for all.

        Makes a step for each partition. Return by name what prevented it, or None: TopicIsGrowing, if another request
        adds partitions; LogDeleted, if the topic was deleted; StorageError, and then it has as many as before;
        BrokerStops, and then the next start makes the rest. Maintenance thread only.
        """
        outcomes: dict[str, Exception | None] = {}
        growths: list[_Creation] = []
        for topic, count in wanted:
            now = self._made_by_id.get(topic.id)
            if now is None:
                outcomes[topic.name] = LogDeleted(f"topic {topic.name} was deleted meanwhile")
            elif topic.id in self._growing or len(now.partitions) != len(topic.partitions):
                outcomes[topic.name] = TopicIsGrowing(
                    f"topic {topic.name} is being given partitions already; ask again"
                )
            else:
                self._growing.add(topic.id)
                record = TopicRecord(topic.name, topic.id, count, topic.options)
                growths.append(_Creation(record, now.config, len(now.partitions)))
        try:
            with _recording_failure(growths):
                partitions = {each.record.name: each.record.partitions for each in growths}
                self._catalog.set_partitions(partitions)
            await self._make_all(_not_failed(growths))
            await self._undo_growths([each for each in growths if each.failure is not None])
            for growth in growths:
                outcomes[growth.record.name] = growth.failure
                if growth.failure is None:
                    self._finish(growth)
        finally:
            self._growing -= {growth.record.id for growth in growths}
        return outcomes

    async def _undo_growths(self, failed: list[_Creation]) -> None:
        """Remove partitions that were made but not served; if that fails, the next start serves them."""
        for growth in failed:
            name = growth.record.name
            if growth.record.id not in self._made_by_id or isinstance(growth.failure, BrokerStops):
                continue
            try:
                self._catalog.set_partitions({name: growth.first})
                await all_of(self._logs.delete_topic(name, growth.first))
            except StorageError as error:
                _log.warning(
                    "failed creation of partitions not undone, the next start serves them topic=%s error=%r",
                    name,
                    str(error),
                )

    async def delete(self, topic: Topic) -> None:
        """Delete a topic and its data: a step for each file. Maintenance thread only. Raises StorageError.

        The deletion is durable from the first step on. If a stop interrupts it, the next start removes the remaining
        files.
        """
        name = topic.name
        epochs = [partition.log.leader_epoch for partition in topic.partitions]
        if any(partition.log.unopened for partition in topic.partitions):
            epochs.append(self._logs.first_epoch)  # no unknown epoch is above it
        self._catalog.remove_topic(name, max(epochs) + 1)
        self._logs.first_epoch = self._catalog.first_epoch()
        del self._made[name]
        self._release_name(name)
        del self._made_by_id[topic.id]
        self._deleting.add(name)
        try:
            # Requests find the topic until the loop has removed it; its logs then answer that it is deleted.
            for partition in topic.partitions:
                partition.log.delete()
            self._loop.call_soon_threadsafe(self._serve_no_longer, topic)
            await self._delete_folders(name)
        except BrokerStops as error:
            _log.info("%s", error)
        finally:
            self._deleting.discard(name)
        _log.info("topic deleted topic=%s", name)

    async def _delete_folders(self, name: str) -> None:
        self._leftovers.add(name)
        for _ in self._logs.delete_topic(name):
            await turn()  # deletion continues to its end, unless the broker stops
            if self.is_stopping:
                raise BrokerStops(f"topic {name}: its files are removed by the next start, the broker stops")
        self._catalog.deletion_done(name)
        self._leftovers.discard(name)

    def _config(self, name: str, options: dict[str, str]) -> TopicConfig:
        return self._defaults.override(
            self.on_first_use(name)[1] | options, source=f"topic {name}"
        ).bounded_by(self._defaults)

    # Event loop.

    def _serve(self, topic: Topic) -> None:
        is_new = topic.name not in self.by_name
        self.by_id[topic.id] = topic
        self.by_name[topic.name] = topic
        self.changes += 1
        self._all = self._names = None
        for served, _ in self._watchers:
            served(topic, is_new)

    def _serve_no_longer(self, topic: Topic) -> None:
        """Stop serving a topic, and answer the fetches that wait for it. In one turn of the loop."""
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        del self.by_id[topic.id]
        self.changes += 1
        self._all = self._names = None
        for partition in topic.partitions:
            partition.release()
        for _, deleted in self._watchers:
            deleted(topic)


def _log_inert(topic: Topic | None, names: Collection[str]) -> None:
    """Log which of these options of a topic have no effect."""
    if topic is None:
        return
    reasons = dict(topic.config.inert)
    if topic.config.min_insync_replicas > 1:
        reasons["min.insync.replicas"] = ONE_COPY
    for name, why in reasons.items():
        if name in names:
            value = topic.config.overrides.get(name)
            _log.info(
                "option has no effect topic=%s option=%s value=%s reason=%r", topic.name, name, value, why
            )
