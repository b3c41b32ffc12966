"""The connection to the broker at `--bootstrap`, and look-ups that several verbs share.

Client errors become a CommandError here. The client is imported when a verb connects, so that `--help` and errors of
usage are fast.
"""

import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import UNREACHABLE, USAGE
from tidelog.cli.text import called, counted, note

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.offsets import Found

LOOKUP_CLOCK: Final = "lookup.clock"
_CLIENT_ID: Final = "tidelog-cli"


class TooLate(Exception):
    """The time of `within` is up. Not an OSError, which code between would take for one of a socket."""


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raise TooLate in the block after this time. Main thread only."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLate

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def connected(bootstrap: str, answer_s: float = 30.0, flag: str = "--bootstrap") -> Iterator["Cluster"]:
    """Connect to a cluster; client errors become CommandError. `flag` is the option that gave the address."""
    from tidelog.client import address
    from tidelog.client.cluster import Cluster

    try:
        host, port = address.parse(bootstrap)
    except ValueError as error:
        raise CommandError(f"{flag} {bootstrap}: {error}", USAGE) from None
    with Cluster([(host, port)], _CLIENT_ID, answer_s) as cluster, client_errors(bootstrap, flag):
        cluster.any_broker()
        yield cluster


@contextmanager
def client_errors(bootstrap: str, flag: str = "--bootstrap") -> Iterator[None]:
    """Turn errors of a client of the cluster at an address into CommandError."""
    from tidelog.client import address
    from tidelog.client.errors import (
        CannotConnect,
        ClientError,
        Retriable,
        UnknownHost,
        UnknownTopic,
        Unreachable,
    )

    try:
        yield
    except CannotConnect as error:
        _, port = address.parse(bootstrap)
        port_hint = "" if port == address.DEFAULT_PORT else f" --port {port}"
        advice = f"start one with {called()} serve{port_hint}"
        raise _unreachable(bootstrap, error.reason, advice) from error
    except UnknownHost as error:
        raise _unreachable(bootstrap, error.reason, f"{flag} takes the host and port of a broker") from error
    except (Retriable, Unreachable) as error:
        message = f"the broker at {bootstrap} does not answer: {error}"
        raise CommandError(message, UNREACHABLE) from error
    except UnknownTopic as error:
        raise no_topic(error.topic) from error
    except ClientError as error:
        raise CommandError(str(error)) from error


def _unreachable(bootstrap: str, reason: str, advice: str) -> CommandError:
    return CommandError(f"cannot reach a broker at {bootstrap}: {reason}; {advice}", UNREACHABLE)


def no_topic(topic: str, there: Collection[str] = ()) -> CommandError:
    """Return the error for a topic that does not exist; it names the nearest of those that do."""
    from tidelog.config.nearest import guess

    near = guess(topic, there)
    advice = f"{called()} topics list shows all topics" if near is None else f"did you mean {near}?"
    return CommandError(f"topic {topic} does not exist; {advice}")


def describe_topic(cluster: "Cluster", topic: str) -> Any:
    """Return the metadata of a topic; CommandError if it does not exist."""
    from tidelog.client.errors import BrokerError
    from tidelog.protocol.error_codes import ErrorCode

    (found,) = cluster.topics([topic])
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_topic(topic, [each.name for each in cluster.topics()])
    if found.error_code:
        raise BrokerError(f"topic {topic or repr(topic)}", found.error_code)
    return found


def partitions_of(cluster: "Cluster", topic: str, wanted: Collection[int] = ()) -> "list[Partition]":
    """Return the wanted partitions of a topic, or all; CommandError if one is missing."""
    return choose(describe_topic(cluster, topic), wanted)


def choose(described: Any, wanted: Collection[int] = ()) -> "list[Partition]":
    """Return the wanted partitions of a topic by its metadata, or all, by number; CommandError if one is missing."""
    from tidelog.client.cluster import Partition

    topic, there = described.name, {each.partition_index for each in described.partitions}
    if not there:
        raise no_topic(topic)
    if missing := sorted(set(wanted) - there):
        raise CommandError(no_partition(topic, missing[0], there))
    return [Partition(topic, number) for number in sorted(set(wanted or there))]


def no_partition(topic: str, number: int, there: Collection[int]) -> str:
    """Return the words for a partition that does not exist."""
    return f"topic {topic} has no partition {number}; it has {counted(len(there), 'partition')}, from 0 on"


def existing(cluster: "Cluster", wanted: "Collection[Partition]") -> "list[Partition]":
    """Return the partitions that exist: committed offsets outlive a topic for a while."""
    topics = sorted({key.topic for key in wanted})
    found = cluster.topics(topics) if topics else []
    there = {(topic.name, each.partition_index) for topic in found for each in topic.partitions}
    return [key for key in sorted(wanted) if (key.topic, key.partition) in there]


def find_offsets(
    cluster: "Cluster", wanted: "Mapping[Partition, int]"
) -> "tuple[dict[Partition, Found], list[Partition]]":
    """Return the first record at or after a time of each partition, and the partitions that cannot be read.

    CommandError for a topic without timestamps.
    """
    from tidelog.client.offsets import list_offsets
    from tidelog.protocol.error_codes import ErrorCode

    kept = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    found = list_offsets(cluster, wanted, kept)
    for key in sorted(found):
        if found[key].error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise CommandError(
                f"topic {key.topic} has no timestamps: message.format.version sets format 0, which has none; give an "
                "offset instead, or have the broker search by append time: "
                f"{called()} topics alter {key.topic} --config {LOOKUP_CLOCK}=append"
            )
    unread = sorted(key for key, each in found.items() if each.error_code)
    return {key: each for key, each in found.items() if not each.error_code}, unread


def find_all_offsets(cluster: "Cluster", wanted: "Mapping[Partition, int]") -> "dict[Partition, Found]":
    """Return the same as `find_offsets`; CommandError if a partition cannot be read."""
    found, unread = find_offsets(cluster, wanted)
    if unread:
        raise CommandError(unread_words(unread))
    return found


def unread_words(partitions: "Collection[Partition]") -> str:
    """Return the error of partitions that cannot be read: the first, and the number of others."""
    from tidelog.client.errors import explain
    from tidelog.protocol.error_codes import ErrorCode

    first, *others = sorted(partitions)
    more = f" (and {len(others)} more)" if others else ""
    return f"partition {first.partition} of {first.topic}{more}: {explain(ErrorCode.KAFKA_STORAGE_ERROR)}"


def note_unread(partitions: "Collection[Partition]") -> None:
    """Name partitions that cannot be read on standard error."""
    if partitions:
        note(unread_words(partitions))


def lookup_clock(cluster: "Cluster", topic: str) -> str:
    """Return the clock of searches in a topic; Kafka has no such option, and searches by record time."""
    from tidelog.client.admin import topic_options

    return topic_options(cluster, topic).get(LOOKUP_CLOCK, "record")
