"""What members of protocol type `consumer` say to one another in the classic protocol: subscriptions and assignments.

Kafka's definitions: clients/src/main/resources/common/message/ConsumerProtocol*.json. A version that is not known is
read as the last one that is, as Kafka does: later ones begin alike.
"""

from collections.abc import Iterable
from typing import Any, Final

from tidelog.protocol.coordinator.form import Form, version_of
from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT32, STRING, Array

CONSUMER: Final = "consumer"  # the protocol type of consumers


@message
class ProtocolTopicPartitions:
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


@message
class ConsumerProtocolSubscription:
    """What a member wants to read, and what it has."""

    topics: list[str] = field(Array(STRING))
    user_data: bytes | None = field(BYTES, default=None, nullable="0+")
    owned_partitions: list[ProtocolTopicPartitions] = field(
        Array(ProtocolTopicPartitions), "1+", default=[], ignorable=True
    )
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)


@message
class ConsumerProtocolAssignment:
    """What a member is to read."""

    assigned_partitions: list[ProtocolTopicPartitions] = field(Array(ProtocolTopicPartitions))
    user_data: bytes | None = field(BYTES, default=None, nullable="0+")


@message
class ConsumerProtocolTopics:
    """The beginning of a subscription, in all versions; members may write what they like after it."""

    topics: list[str] = field(Array(STRING))


_LAST: Final = 3
_TOPICS = Form(ConsumerProtocolTopics, "0", flexible="")
_SUBSCRIPTIONS = Form(ConsumerProtocolSubscription, f"0-{_LAST}", flexible="")
_ASSIGNMENTS = Form(ConsumerProtocolAssignment, f"0-{_LAST}", flexible="")


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return what a member says. WireError where that is nothing of the kind."""
    subscription: ConsumerProtocolSubscription = _read(_SUBSCRIPTIONS, metadata)
    return subscription


def assignment_of(assigned: bytes) -> ConsumerProtocolAssignment:
    """Return what a member was assigned. WireError where that is nothing of the kind."""
    assignment: ConsumerProtocolAssignment = _read(_ASSIGNMENTS, assigned)
    return assignment


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Return the topics that a member names, None where its metadata are not those of a consumer."""
    try:
        subscription: ConsumerProtocolTopics = _TOPICS.read(metadata, as_version=0)
    except WireError:
        return None
    return subscription.topics


def written_assignment(partitions: Iterable[ProtocolTopicPartitions], metadata: bytes) -> bytes:
    """Return an assignment, in the version in which the member wrote its subscription, the first if that has none."""
    # Only what it says for the first of its protocols is read when it joins; another one may be chosen later.
    version = min(version_of(metadata), _LAST) if len(metadata) > 1 else 0
    return _ASSIGNMENTS.write(ConsumerProtocolAssignment(assigned_partitions=list(partitions)), version)


def written_subscription(topics: Iterable[str]) -> bytes:
    """Return a subscription as the simplest client writes it."""
    return _SUBSCRIPTIONS.write(ConsumerProtocolSubscription(topics=list(topics)), 0)


def _read(form: Form, data: bytes) -> Any:
    return form.read(data, min(version_of(data), _LAST))
