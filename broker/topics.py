"""The topics being served: found by name or id on the event loop, created and deleted on the maintenance thread.

The catalogue is the truth, the folders follow it: creating writes the catalogue first, deleting too. So after a
crash between the two, `open` makes what is missing and removes what was deleted. Partition folders that the
catalogue does not know (ones that Kafka wrote, say) are adopted, as a topic or as more partitions of one. What a
creation that failed could not take back is taken back by the next one of that name; a start before that serves it, as
it serves what a crash left.

`by_name` and `by_id` belong to the event loop; the maintenance thread knows what it has made by itself, and hands each
change to the loop before the answer to whoever asked for it.
"""

import asyncio
import logging
import re
from dataclasses import replace

from tidelog.broker.catalog import Catalog, TopicRecord, new_topic_id
from tidelog.broker.maintenance import Task
from tidelog.broker.partition import Partition
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.steps import at_once
from tidelog.storage.errors import StorageError
from tidelog.storage.log_manager import LogManager
from tidelog.storage.troubles import Troubles

_log = logging.getLogger(__name__)
# A full disk refuses the creation, and then what would undo it, as often as a client asks.
_HALF_MADE = "half made topics"

# Kafka's bound: a partition's folder name must fit a file name, with room for the suffixes of deletion.
MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
# One request must not be able to exhaust the machine; each partition costs a file descriptor and a few KB.
MAX_PARTITIONS_PER_TOPIC = 10_000
# Two to create, five to delete, or three names, as they are counted while they wait: a connection has room for so much
# whatever others hold, and a request for more can wait for one that asks for no more than that.
FEW_TOPICS_BYTES = 2 * 1024
TOO_MANY_WAIT = "too many topics wait to be created or deleted (queued.max.topic.bytes); ask again"


class Topic:
    """One topic: its partitions in order, and its options. It never changes, so any thread may hold it."""

    __slots__ = ("config", "id", "name", "options", "partitions")

    def __init__(self, record: TopicRecord, config: TopicConfig, partitions: list[Partition]) -> None:
        self.name = record.name
        self.id = record.id
        self.options = record.options
        self.config = config
        self.partitions = tuple(partitions)

    def partition(self, index: int) -> Partition | None:
        """Return the partition of that number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def missing(topic: Topic | None, by_id: bool) -> ErrorCode:
    """Return the code for a partition that is not there, of a topic that may not be there either."""
    return ErrorCode.UNKNOWN_TOPIC_ID if topic is None and by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def name_problem(name: str) -> str | None:
    """Say what is wrong with a topic name, or None. The rules are Kafka's."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic name cannot be '.' or '..'"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"a topic name has at most {MAX_TOPIC_NAME_LENGTH} characters, this one has {len(name)}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"topic name {name!r}: only ASCII letters and digits, '.', '_' and '-' are allowed"
    return None


def metric_name(name: str) -> str:
    """Return what stands for a topic in the names of metrics, where '.' and '_' are one (Kafka's Topic.java)."""
    return name.replace(".", "_")


class TopicExists(Exception):
    """A topic of that name is already there, or being created."""


class BrokerStops(Exception):
    """A topic was not created because the broker stops."""


class TopicNamesCollide(Exception):
    """A topic is already there whose name is the same in metrics."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(
            f"topic {name} collides with {other}: '.' and '_' are one in the names of metrics, so that either would "
            "stand for the other; choose another name"
        )


class Topics:
    """All topics of the broker."""

    def __init__(
        self, catalog: Catalog, logs: LogManager, config: BrokerConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._catalog = catalog
        self._logs = logs
        self._defaults = config.topic_defaults()
        self._loop = loop
        # The event loop's:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._all: tuple[Topic, ...] | None = None
        # The maintenance thread's: what there is, and names under which something is half made or half deleted.
        self._made: dict[str, Topic] = {}
        self._made_by_id: dict[bytes, Topic] = {}
        self._creating: set[str] = set()
        self._by_metric_name: dict[str, set[str]] = {}  # of those made and being created
        self._deleting: set[str] = set()
        self._leftovers: set[str] = set()
        self._troubles = Troubles()
        # Set by the loop, looked at by the thread: what is half made is left.
        self.is_stopping = False

    def all(self) -> tuple[Topic, ...]:
        """Return every topic, as of now: the tuple may go to other threads. Event loop only."""
        if self._all is None:
            self._all = tuple(self.by_name.values())
        return self._all

    def served(self, name: str, topic_id: bytes, by_id: bool) -> Topic | None:
        """Return the topic that a request names, by its id or by its name, as of now."""
        return self.by_id.get(topic_id) if by_id else self.by_name.get(name)

    def open(self) -> None:
        """Load the logs, and serve what they and the catalogue hold. Before other threads start."""
        options = {record.name: record.options for record in self._catalog.topics()}
        self._logs.open(lambda name: self._config(name, options.get(name, {})), options.__contains__)
        for name in self._catalog.deletions():
            at_once(self._delete_folders(name))
        known = {record.name: record for record in self._catalog.topics()}
        for name, partitions in self._highest().items():
            record = known.get(name)
            if record is None or partitions > record.partitions:
                self._adopt(name, record, partitions)
        for record in self._catalog.topics():
            self._serve(at_once(self._make(record)))

    def _highest(self) -> dict[str, int]:
        """Return how many partitions each topic has by its folders."""
        highest: dict[str, int] = {}
        for name, partition in sorted(self._logs.logs):
            highest[name] = max(highest.get(name, 0), partition + 1)
        return highest

    def _adopt(self, name: str, record: TopicRecord | None, partitions: int) -> None:
        """Take folders that the catalogue does not know for partitions: of a topic that it knows, or of a new one."""
        logs = [log for (topic, _), log in self._logs.logs.items() if topic == name]
        # From now on a crash may take what no flush has covered: what was copied here is covered first.
        for log in logs:
            log.durability.flush()
        self._logs.checkpoint()
        if record is None:
            record = TopicRecord(name, logs[0].topic_id or new_topic_id(), partitions, {})
        self._catalog.add_topic(replace(record, partitions=partitions))
        _log.info("topic adopted topic=%s partitions=%d", name, partitions)
        if self._logs.has_expired(logs):
            _log.warning(
                "topic adopted topic=%s holds records older than retention keeps: they go within "
                "log.retention.check.interval.ms; to keep them stop now, and start with log.retention.ms=-1",
                name,
            )

    # Maintenance thread.

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Return the topic of that name, or of that id if it has no name. Maintenance thread only."""
        return self._made_by_id.get(topic_id) if name is None else self._made.get(name)

    def check_new(self, name: str) -> None:
        """Raise TopicExists or TopicNamesCollide where a name cannot be given again. Maintenance thread only."""
        if name in self._made or name in self._creating:
            raise TopicExists(f"topic {name} exists")
        if name in self._deleting:
            raise TopicExists(f"topic {name} is being deleted; ask again when that is answered")
        others = self._by_metric_name.get(metric_name(name))
        if others:
            raise TopicNamesCollide(name, min(others))

    def create(self, name: str, partitions: int, options: dict[str, str]) -> Task[Topic]:
        """Create a topic, durably: a step for each partition. Maintenance thread only.

        Raises TopicExists, TopicNamesCollide, ConfigError, StorageError, BrokerStops; what is half made then is not
        served.
        """
        self.check_new(name)
        self._config(name, options)
        self._creating.add(name)
        self._take_name(name)
        try:
            if name in self._leftovers or name in self._catalog.deletions():
                # Else the next start would take the new topic for what is left of the old.
                yield from self._delete_folders(name)
            record = TopicRecord(name, new_topic_id(), partitions, options)
            self._leftovers.add(name)
            self._catalog.add_topic(record)
            topic = yield from self._make(record)
        except StorageError:
            self._give_name_back(name)
            yield from self._take_back(name)
            raise
        except BrokerStops:
            self._give_name_back(name)
            self._catalog.remove_topic(name)  # The next start removes the rest: a stop must not take long.
            raise
        finally:
            self._creating.discard(name)
        self._leftovers.discard(name)
        self._troubles.end(_HALF_MADE)
        self._loop.call_soon_threadsafe(self._serve, topic)
        _log.info("topic created topic=%s partitions=%d", name, partitions)
        for option, why in topic.config.inert.items():
            value = topic.config.overrides[option]
            _log.info("option has no effect topic=%s option=%s value=%s reason=%r", name, option, value, why)
        return topic

    def _take_name(self, name: str) -> None:
        self._by_metric_name.setdefault(metric_name(name), set()).add(name)

    def _give_name_back(self, name: str) -> None:
        alike = self._by_metric_name[metric_name(name)]
        alike.discard(name)
        if not alike:
            del self._by_metric_name[metric_name(name)]

    def _make(self, record: TopicRecord) -> Task[Topic]:
        """Make the partitions that are not there yet."""
        config = self._config(record.name, record.options)
        partitions = []
        made = []
        for index in range(record.partitions):
            log = self._logs.logs.get((record.name, index))
            if log is None:
                if index:
                    yield  # What has begun is brought to an end, but for a stop.
                    if self.is_stopping:
                        raise BrokerStops(f"topic {record.name}: not created, the broker stops")
                log = self._logs.create(record.name, index, record.id, config)
                made.append(log)
            partitions.append(Partition(index, log))
        if made:
            self._logs.sync_made(made)
        topic = Topic(record, config, partitions)
        self._made[topic.name] = self._made_by_id[topic.id] = topic
        self._take_name(topic.name)
        return topic

    def _take_back(self, name: str) -> Task[None]:
        """Remove what was made of a topic; what cannot be, the next creation of that name removes."""
        try:
            self._catalog.remove_topic(name)
            yield from self._delete_folders(name)
        except (StorageError, BrokerStops) as error:
            if self._troubles.begin(_HALF_MADE, ""):
                _log.warning(
                    "topics that could not be made are not removed, this one first topic=%s error=%r: each is when its "
                    "name is given again",
                    name,
                    str(error),
                )

    def delete(self, topic: Topic) -> Task[None]:
        """Delete a topic and its data: a step for each of its files. Maintenance thread only. Raises StorageError.

        From the first step on it is gone, durably. What a stop leaves of its files the next start removes.
        """
        name = topic.name
        self._catalog.remove_topic(name)
        del self._made[name]
        self._give_name_back(name)
        del self._made_by_id[topic.id]
        self._deleting.add(name)
        try:
            # Who still finds it, until the loop has heard, is told by its logs that it is gone.
            for partition in topic.partitions:
                partition.log.delete()
            self._loop.call_soon_threadsafe(self._serve_no_longer, topic)
            yield from self._delete_folders(name)
        except BrokerStops as error:
            _log.info("%s", error)
        finally:
            self._deleting.discard(name)
        _log.info("topic deleted topic=%s", name)

    def _delete_folders(self, name: str) -> Task[None]:
        self._leftovers.add(name)
        for _ in self._logs.delete_topic(name):
            yield  # What has begun is brought to an end, but for a stop.
            if self.is_stopping:
                raise BrokerStops(f"topic {name}: its files are removed by the next start, the broker stops")
        self._catalog.deletion_done(name)
        self._leftovers.discard(name)

    def _config(self, name: str, options: dict[str, str]) -> TopicConfig:
        return self._defaults.override(options, source=f"topic {name}").bounded_by(self._defaults)

    # Event loop.

    def _serve(self, topic: Topic) -> None:
        self.by_id[topic.id] = topic
        self.by_name[topic.name] = topic
        self._all = None

    def _serve_no_longer(self, topic: Topic) -> None:
        """Find a topic no more, and answer the fetches that are parked on it. In one turn of the loop."""
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        del self.by_id[topic.id]
        self._all = None
        for partition in topic.partitions:
            partition.release()
