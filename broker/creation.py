"""What is known of topics while they are created. Knows nothing of how that is done (`topics`)."""

from typing import NamedTuple

from tidelog.broker.catalog import TopicRecord
from tidelog.broker.partition import Partition
from tidelog.broker.topic_rules import BrokerStops
from tidelog.config.topic_options import TopicConfig
from tidelog.storage.errors import OnError, StorageError, without_frames
from tidelog.storage.log import Log


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    options: dict[str, str]


class Creation:
    """A topic that is being created: what of it was made so far, and what has kept it from being created."""

    __slots__ = ("config", "failure", "made", "partitions", "record")

    def __init__(self, record: TopicRecord, config: TopicConfig) -> None:
        self.record = record
        self.config = config
        self.partitions: list[Partition] = []
        self.made: list[Log] = []
        self.failure: Exception | None = None


def noting_failure(creations: list[Creation]) -> OnError[Exception]:
    """Have creations fail with what keeps the block from its end."""

    def note(error: Exception) -> None:
        for creation in creations:
            creation.failure = without_frames(error)

    return OnError((StorageError, BrokerStops), note)


def not_failed(creations: list[Creation]) -> list[Creation]:
    """Return those that nothing has kept from being created so far."""
    return [creation for creation in creations if creation.failure is None]
