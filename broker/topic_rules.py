"""Rules for the names and options of topics, and the errors of topics that are not created or changed.

Knows nothing of existing topics.
"""

import re
from typing import Final

from tidelog.broker.catalog import TopicRecord
from tidelog.broker.codes import Refused
from tidelog.config.errors import ConfigError
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC
from tidelog.protocol.error_codes import ErrorCode

# Kafka's bound: a partition's folder name must fit a file name, with room for the suffixes of deletion.
MAX_TOPIC_NAME_LENGTH: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC_ID_BYTES: Final = 16
# The longest name or value of an option. Kafka's are far shorter, and every description of a topic repeats its options.
MOST_OPTION_LENGTH: Final = 1000


def name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name, or None. The rules are Kafka's."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def record_problem(record: TopicRecord) -> str | None:
    """Return why a topic of the catalogue cannot be served, or None; its options are not checked."""
    if not isinstance(record.id, bytes) or len(record.id) != TOPIC_ID_BYTES or not any(record.id):
        return f"its id in the catalogue is not {TOPIC_ID_BYTES} bytes, or they are all 0"
    if not isinstance(record.partitions, int) or not 1 <= record.partitions <= MAX_PARTITIONS_PER_TOPIC:
        return f"the catalogue gives it {record.partitions} partitions, not 1 to {MAX_PARTITIONS_PER_TOPIC}"
    return name_problem(record.name)


def check_partition_count(count: int) -> None:
    """Raise Refused for more partitions than a topic may have."""
    if count > MAX_PARTITIONS_PER_TOPIC:
        message = f"{count} partitions: a topic may have {MAX_PARTITIONS_PER_TOPIC} at most"
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)


def check_option(name: str, value: str) -> None:
    """Raise ConfigError for an option that is too long."""
    if len(name) > MOST_OPTION_LENGTH or len(value) > MOST_OPTION_LENGTH:
        problem = f"{len(name)} and {len(value)} characters: at most {MOST_OPTION_LENGTH} each"
        raise ConfigError(name[:MOST_OPTION_LENGTH], problem)


def metric_name(name: str) -> str:
    """Return a topic's name in the names of metrics, where '.' and '_' are the same (Kafka's Topic.java)."""
    return name.replace(".", "_")


class TopicExists(Exception):
    """A topic of that name exists, or is being created."""


class BrokerStops(Exception):
    """A topic was not created or changed because the broker stops."""


class TopicIsGrowing(Exception):
    """Another request is adding partitions to the topic."""


class TopicNamesCollide(Exception):
    """The name of an existing topic is the same in metrics."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(
            f"Topic '{name}' collides with existing topic: {other}. '.' and '_' are one in the names of metrics, "
            "so that either would stand for the other: choose another name."
        )
