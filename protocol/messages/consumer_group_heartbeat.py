"""ConsumerGroupHeartbeat: the heartbeat of a member of a consumer group, which returns its assignment (KIP-848)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, UUID, Array


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(Array(INT32))


@message
class ConsumerGroupHeartbeatRequest:
    """Join, stay in or leave a group. Fields that have not changed may be left out."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    # 0 joins, -1 leaves, -2 leaves as a static member that will come back.
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, default=None, nullable="0+")
    rack_id: str | None = field(STRING, default=None, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(Array(STRING), default=None, nullable="0+")
    subscribed_topic_regex: str | None = field(STRING, "1+", default=None, nullable="1+")
    server_assignor: str | None = field(STRING, default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = field(
        Array(TopicPartitions), default=None, nullable="0+"
    )


@message
class Assignment:
    """The partitions that a member may read now."""

    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@message
class ConsumerGroupHeartbeatResponse:
    """Answer with the member's epoch, and its assignment if that may be new to it."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")
    member_id: str | None = field(STRING, default=None, nullable="0+")
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, default=None, nullable="0+")


CONSUMER_GROUP_HEARTBEAT = Api(
    key=68,
    versions="0-1",
    flexible="0+",
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
