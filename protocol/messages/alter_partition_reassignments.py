"""AlterPartitionReassignments: move partitions to other brokers (KIP-455)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, STRING, Array


@message
class ReassignablePartition:
    """The new brokers of a partition; null cancels its reassignment."""

    partition_index: int = field(INT32)
    replicas: list[int] | None = field(Array(INT32), default=None, nullable="0+")


@message
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


@message
class AlterPartitionReassignmentsRequest:
    """Ask for partitions to be moved."""

    timeout_ms: int = field(INT32, default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


@message
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


@message
class ReassignableTopicResponse:
    """The results for the partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


@message
class AlterPartitionReassignmentsResponse:
    """Answer with one result per partition."""

    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))


ALTER_PARTITION_REASSIGNMENTS = Api(
    key=45,
    versions="0-1",
    flexible="0+",
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)
