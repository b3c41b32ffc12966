"""DescribeProducers: the idempotent producers of partitions (KIP-664)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class TopicRequest:
    """The partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


@message
class DescribeProducersRequest:
    """Ask about partitions."""

    topics: list[TopicRequest] = field(Array(TopicRequest))


@message
class ProducerState:
    """A producer and its last batch."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    # -1 without a transaction.
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


@message
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")
    active_producers: list[ProducerState] = field(Array(ProducerState))


@message
class TopicResponse:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


@message
class DescribeProducersResponse:
    """Answer with the producers of each partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TopicResponse] = field(Array(TopicResponse))


DESCRIBE_PRODUCERS = Api(
    key=61, versions="0", flexible="0+", request=DescribeProducersRequest, response=DescribeProducersResponse
)
