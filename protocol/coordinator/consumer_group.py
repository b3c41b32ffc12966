"""What is written of a consumer group: the keys and values 3 to 8 and 16 of `__consumer_offsets` (KIP-848).

Kafka's definitions: group-coordinator/src/main/resources/common/message.
"""

from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT8, INT32, INT64, STRING, UUID, Array

__all__ = [
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "TopicPartition",
    "TopicPartitions",
]


@message
class ConsumerGroupMetadataKey:
    """A group."""

    group_id: str = field(STRING)


@message
class ConsumerGroupMetadataValue:
    """Its epoch, and a hash of the topics that it was assigned by."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, default=0, tag=0, tagged="0+")


@message
class ConsumerGroupPartitionMetadataKey:
    """What Kafka up to 4.0 kept of a group's topics. It says nothing that is not known otherwise."""

    group_id: str = field(STRING)


@message
class ConsumerGroupMemberMetadataKey:
    """A member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class ClassicProtocol:
    """A protocol that a classic member knows, and what it says for it."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message
class ClassicMemberMetadata:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol))


@message
class ConsumerGroupMemberMetadataValue:
    """Who the member is, and what it subscribes to."""

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(Array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, default=None, nullable="0+", tag=0, tagged="0+"
    )


@message
class ConsumerGroupTargetAssignmentMetadataKey:
    """A group's target assignment."""

    group_id: str = field(STRING)


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group's epoch that the target assignment was made for."""

    assignment_epoch: int = field(INT32)
    # When it was made (KIP-1263); nobody asks here.
    assignment_timestamp: int = field(INT64, default=0, tag=0, tagged="0+", ignorable=True)


@message
class ConsumerGroupTargetAssignmentMemberKey:
    """A member's part of the target assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class TopicPartition:
    """Partitions of one topic."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))


@message
class ConsumerGroupTargetAssignmentMemberValue:
    """What the member is to read in the end."""

    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    """What a member has now."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class TopicPartitions:
    """Partitions of one topic, and since which epoch the member has each (KIP-1251)."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))
    assignment_epochs: list[int] | None = field(Array(INT32), default=None, nullable="0+", tag=0, tagged="0+")


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    """How far the member has come from what it had to what it is to read."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    # 0 is stable, 1 has to give up partitions, 2 waits for what others have to give up.
    state: int = field(INT8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(Array(TopicPartitions))


@message
class ConsumerGroupRegularExpressionKey:
    """A regular expression that members subscribe by."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


@message
class ConsumerGroupRegularExpressionValue:
    """The topics that matched it, and when."""

    topics: list[str] = field(Array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)
