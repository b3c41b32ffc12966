"""DescribeTopicPartitions: topics and their partitions, a page at a time (KIP-966)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, STRING, UUID, ZERO_UUID, Array


@message
class TopicRequest:
    """A topic to describe."""

    name: str = field(STRING)


@message
class Cursor:
    """The first partition of a page."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message
class DescribeTopicPartitionsRequest:
    """Ask about topics, by default all, from the cursor on."""

    topics: list[TopicRequest] = field(Array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(Cursor, default=None, nullable="0+")


@message
class DescribeTopicPartitionsResponsePartition:
    """One partition."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(INT32))
    isr_nodes: list[int] = field(Array(INT32))
    # Null is allowed but must not be sent: the Java client fails on it.
    eligible_leader_replicas: list[int] | None = field(Array(INT32), default=None, nullable="0+")
    last_known_elr: list[int] | None = field(Array(INT32), default=None, nullable="0+")
    offline_replicas: list[int] = field(Array(INT32), ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic:
    """One topic, and its partitions on this page."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="0+")
    topic_id: bytes = field(UUID, default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    # One bit per operation; the smallest integer if the request did not ask for them.
    topic_authorized_operations: int = field(INT32, default=-(1 << 31))


@message
class DescribeTopicPartitionsResponse:
    """Answer with a page, and the start of the next one; null after the last."""

    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(Cursor, default=None, nullable="0+")


DESCRIBE_TOPIC_PARTITIONS = Api(
    key=75,
    versions="0",
    flexible="0+",
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
)
