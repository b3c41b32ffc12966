"""The topics being served: found by name or id on the event loop, created and deleted on the maintenance thread.

The catalogue is the truth, the folders follow it: creating writes the catalogue first, deleting too. So after a
crash between the two, `open` makes what is missing and removes what was deleted. Partition folders that the
catalogue does not know (ones that Kafka wrote, say) are adopted as a topic.
"""

import logging
import re

from tidelog.broker.catalog import Catalog, TopicRecord, new_topic_id
from tidelog.broker.partition import Partition
from tidelog.config.options import BrokerConfig, TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.errors import StorageError
from tidelog.storage.log_manager import LogManager

_log = logging.getLogger(__name__)

# Kafka's bound: a partition's folder name must fit a file name, with room for the suffixes of deletion.
MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
# The log of Kafka's controllers. Kafka creates it for nobody, and so do we.
CLUSTER_METADATA = "__cluster_metadata"
# One request must not be able to exhaust the machine; each partition costs a file descriptor and a few KB.
MAX_PARTITIONS_PER_TOPIC = 10_000


class Topic:
    """One topic: its partitions in order, and its options."""

    __slots__ = ("config", "id", "name", "options", "partitions")

    def __init__(self, record: TopicRecord, config: TopicConfig, partitions: list[Partition]) -> None:
        self.name = record.name
        self.id = record.id
        self.options = record.options
        self.config = config
        self.partitions = partitions

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
    """A topic of that name is already there."""


class TopicNamesCollide(Exception):
    """A topic is already there whose name is the same in metrics."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(
            f"topic {name} collides with {other}: '.' and '_' are one in the names of metrics, so that either would "
            "stand for the other; choose another name"
        )


class Topics:
    """All topics of the broker."""

    def __init__(self, catalog: Catalog, logs: LogManager, config: BrokerConfig) -> None:
        self._catalog = catalog
        self._logs = logs
        self._defaults = config.topic_defaults()
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._by_metric_name: dict[str, set[str]] = {}  # Maintenance thread only.

    def open(self) -> None:
        """Load the logs, and serve what they and the catalogue hold."""
        options = {record.name: record.options for record in self._catalog.topics()}
        self._logs.open(lambda name: self._config(name, options.get(name, {})))
        for name in self._catalog.deletions():
            self._delete_folders(name)
        known = {record.name for record in self._catalog.topics()}
        for name in sorted({topic for topic, _ in self._logs.logs} - known):
            self._adopt(name)
        for record in self._catalog.topics():
            self._serve(record)

    def _adopt(self, name: str) -> None:
        logs = [log for (topic, _), log in self._logs.logs.items() if topic == name]
        partitions = 1 + max(log.partition for log in logs)
        self._catalog.add_topic(TopicRecord(name, logs[0].topic_id or new_topic_id(), partitions, {}))
        _log.info("topic adopted topic=%s partitions=%d", name, partitions)

    def create(self, name: str, partitions: int, options: dict[str, str]) -> Topic:
        """Create a topic, durably. Maintenance thread only.

        Raises TopicExists, TopicNamesCollide, ConfigError, StorageError.
        """
        self.check_new(name)
        self._config(name, options)
        if name in self._catalog.deletions():
            self._delete_folders(
                name
            )  # Else the next start would take the new topic for what is left of the old.
        record = TopicRecord(name, new_topic_id(), partitions, options)
        self._catalog.add_topic(record)
        try:
            topic = self._serve(record)
        except StorageError:
            self._catalog.remove_topic(name)
            self._delete_folders(name)
            raise
        _log.info("topic created topic=%s partitions=%d", name, partitions)
        for option, why in topic.config.inert.items():
            value = topic.config.overrides[option]
            _log.info("option has no effect topic=%s option=%s value=%s reason=%r", name, option, value, why)
        return topic

    def check_new(self, name: str) -> None:
        """Raise TopicExists or TopicNamesCollide where a name cannot be given again. Maintenance thread only."""
        if name in self.by_name:
            raise TopicExists(f"topic {name} exists")
        others = self._by_metric_name.get(metric_name(name))
        if others:
            raise TopicNamesCollide(name, min(others))

    def delete(self, topic: Topic) -> None:
        """Delete a topic and its data. Maintenance thread only."""
        self._catalog.remove_topic(topic.name)
        del self.by_name[topic.name]
        del self.by_id[topic.id]
        alike = self._by_metric_name[metric_name(topic.name)]
        alike.remove(topic.name)
        if not alike:
            del self._by_metric_name[metric_name(topic.name)]
        self._delete_folders(topic.name)
        _log.info("topic deleted topic=%s", topic.name)

    def _delete_folders(self, name: str) -> None:
        self._logs.delete_topic(name)
        self._catalog.deletion_done(name)

    def _config(self, name: str, options: dict[str, str]) -> TopicConfig:
        return self._defaults.override(options, source=f"topic {name}")

    def _serve(self, record: TopicRecord) -> Topic:
        config = self._config(record.name, record.options)
        partitions = []
        for index in range(record.partitions):
            log = self._logs.logs.get((record.name, index))
            if log is None:
                log = self._logs.create(record.name, index, record.id, config)
            partitions.append(Partition(index, log))
        topic = Topic(record, config, partitions)
        self.by_id[topic.id] = topic
        self.by_name[topic.name] = topic
        self._by_metric_name.setdefault(metric_name(topic.name), set()).add(topic.name)
        return topic
