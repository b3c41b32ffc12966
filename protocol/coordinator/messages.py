"""The keys and values of `__consumer_offsets`, as Kafka declares them.

Kafka's definitions: group-coordinator/src/main/resources/common/message. A committed offset, a classic group as of the
end of a rebalance, and the parts of a consumer group (KIP-848).
"""

from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT8, INT32, INT64, STRING, UUID, ZERO_UUID, Array


@message
class OffsetCommitKey:
    """A partition that a group has committed an offset of. Versions 0 and 1 are the same."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message
class OffsetCommitValue:
    """A committed offset. Only version 1 has its expiry, and only version 4 the id of its topic."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=ZERO_UUID, tag=0, tagged="4+", ignorable=True)


@message
class GroupMetadataKey:
    """A group."""

    group: str = field(STRING)


@message
class MemberMetadata:
    """A member: its metadata for the chosen protocol, and its assignment."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=0, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message
class GroupMetadataValue:
    """A group: its generation, its leader and its members."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(Array(MemberMetadata))


@message
class ConsumerGroupMetadataKey:
    """A group."""

    group_id: str = field(STRING)


@message
class ConsumerGroupMetadataValue:
    """The epoch of a group, and the hash of the topics of its assignment."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, default=0, tag=0, tagged="0+")


@message
class ConsumerGroupPartitionMetadataKey:
    """The topics of a group, as Kafka stored them up to 4.0. They are known otherwise."""

    group_id: str = field(STRING)


@message
class ConsumerGroupMemberMetadataKey:
    """A member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class ClassicProtocol:
    """A protocol of a classic member, and its metadata."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message
class ClassicMemberMetadata:
    """The JoinGroup of a member that uses the classic protocol."""

    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol))


@message
class ConsumerGroupMemberMetadataValue:
    """A member and its subscription."""

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
    """The group epoch of the target assignment."""

    assignment_epoch: int = field(INT32)
    # The time of the assignment (KIP-1263), which is not used here.
    assignment_timestamp: int = field(INT64, default=0, tag=0, tagged="0+", ignorable=True)


@message
class ConsumerGroupTargetAssignmentMemberKey:
    """A member in the target assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class TopicPartition:
    """Partitions of one topic."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))


@message
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = field(Array(TopicPartition))


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    """A member and its current assignment."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message
class TopicPartitions:
    """Partitions of one topic, and the epoch of the assignment of each (KIP-1251)."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))
    assignment_epochs: list[int] | None = field(Array(INT32), default=None, nullable="0+", tag=0, tagged="0+")


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    """The current assignment of a member, on its way to the target."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    # 0 stable, 1 must release partitions, 2 waits until others release partitions.
    state: int = field(INT8)
    assigned_partitions: list[TopicPartitions] = field(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(Array(TopicPartitions))


@message
class ConsumerGroupRegularExpressionKey:
    """A regular expression in subscriptions."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


@message
class ConsumerGroupRegularExpressionValue:
    """The topics that matched it, and the time of that."""

    topics: list[str] = field(Array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)
