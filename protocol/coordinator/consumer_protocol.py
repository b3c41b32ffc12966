"""The subscriptions and assignments of consumers in the classic protocol (protocol type `consumer`).

Kafka's definitions: clients/src/main/resources/common/message/ConsumerProtocol*.json. As in Kafka, an unknown version
is read as the last known one, since later versions only add fields at the end.
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
    """The topics that a member subscribes to, and its current partitions."""

    topics: list[str] = field(Array(STRING))
    user_data: bytes | None = field(BYTES, default=None, nullable="0+")
    owned_partitions: list[ProtocolTopicPartitions] = field(
        Array(ProtocolTopicPartitions), "1+", default=[], ignorable=True
    )
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)


@message
class ConsumerProtocolAssignment:
    """The partitions that are assigned to a member."""

    assigned_partitions: list[ProtocolTopicPartitions] = field(Array(ProtocolTopicPartitions))
    user_data: bytes | None = field(BYTES, default=None, nullable="0+")


@message
class ConsumerProtocolTopics:
    """The start of a subscription in all versions; any bytes may follow."""

    topics: list[str] = field(Array(STRING))


_LAST: Final = 3
_TOPICS = Form(ConsumerProtocolTopics, "0", flexible="")
_SUBSCRIPTIONS = Form(ConsumerProtocolSubscription, f"0-{_LAST}", flexible="")
_ASSIGNMENTS = Form(ConsumerProtocolAssignment, f"0-{_LAST}", flexible="")


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription in the metadata of a member; WireError if it is invalid."""
    subscription: ConsumerProtocolSubscription = _read(_SUBSCRIPTIONS, metadata)
    return subscription


def assignment_of(assigned: bytes) -> ConsumerProtocolAssignment:
    """Return the assignment of a member; WireError if it is invalid."""
    assignment: ConsumerProtocolAssignment = _read(_ASSIGNMENTS, assigned)
    return assignment


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Return the topics of a member's subscription; None if its metadata is not a consumer's."""
    try:
        subscription: ConsumerProtocolTopics = _TOPICS.read(metadata, as_version=0)
    except WireError:
        return None
    return subscription.topics


def written_assignment(partitions: Iterable[ProtocolTopicPartitions], metadata: bytes) -> bytes:
    """Return an assignment, in the version of the member's subscription, or 0 if that has none."""
    # The metadata may be invalid: only that of the first protocol is checked when a member joins.
    version = min(version_of(metadata), _LAST) if len(metadata) > 1 else 0
    return _ASSIGNMENTS.write(ConsumerProtocolAssignment(assigned_partitions=list(partitions)), version)


def written_subscription(topics: Iterable[str]) -> bytes:
    """Return a subscription in version 0."""
    return _SUBSCRIPTIONS.write(ConsumerProtocolSubscription(topics=list(topics)), 0)


def _read(form: Form, data: bytes) -> Any:
    return form.read(data, min(version_of(data), _LAST))
