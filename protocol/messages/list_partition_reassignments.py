"""ListPartitionReassignments: list partitions that are being moved (KIP-455)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, Array


@message
class ListPartitionReassignmentsTopics:
    """The partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


@message
class ListPartitionReassignmentsRequest:
    """Ask about partitions, null for all of them."""

    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), default=None, nullable="0+"
    )


@message
class OngoingPartitionReassignment:
    """The current and the new brokers of a partition."""

    partition_index: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    adding_replicas: list[int] = field(Array(INT32))
    removing_replicas: list[int] = field(Array(INT32))


@message
class OngoingTopicReassignment:
    """The partitions of one topic that are being moved."""

    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


@message
class ListPartitionReassignmentsResponse:
    """Answer with the reassignments."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))


LIST_PARTITION_REASSIGNMENTS = Api(
    key=46,
    versions="0",
    flexible="0+",
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
