"""CreatePartitions: give topics more partitions."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, STRING, Array


@message
class CreatePartitionsAssignment:
    """The brokers that shall hold one new partition."""

    broker_ids: list[int] = field(Array(INT32))


@message
class CreatePartitionsTopic:
    """A topic, and how many partitions it shall have then."""

    name: str = field(STRING)
    count: int = field(INT32)
    # One for each new partition; null leaves that to the broker.
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment), nullable="0+"
    )


@message
class CreatePartitionsRequest:
    """Ask for more partitions, or for a check; what has not begun within timeout_ms is not done."""

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@message
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")


@message
class CreatePartitionsResponse:
    """Answer with one result a topic."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))


CREATE_PARTITIONS = Api(
    key=37,
    versions="0-3",
    flexible="2+",
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
