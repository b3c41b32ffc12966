"""CreatePartitions: add partitions to topics."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, STRING, Array


@message
class CreatePartitionsAssignment:
    """The brokers of a new partition."""

    broker_ids: list[int] = field(Array(INT32))


@message
class CreatePartitionsTopic:
    """A topic, and its new number of partitions."""

    name: str = field(STRING)
    count: int = field(INT32)
    # One for each new partition; null if the broker may choose.
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment), nullable="0+"
    )


@message
class CreatePartitionsRequest:
    """Ask for more partitions, or for a check; what has not started within timeout_ms is not done."""

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@message
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")


@message
class CreatePartitionsResponse:
    """Answer with one result per topic."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))


CREATE_PARTITIONS = Api(
    key=37,
    versions="0-3",
    flexible="2+",
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
