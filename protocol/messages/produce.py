"""Produce: append batches to partitions."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, RECORDS, STRING, UUID, ZERO_UUID, Array


@message
class PartitionProduceData:
    """The batches for one partition: a view of the frame."""

    index: int = field(INT32)
    records: memoryview | None = field(RECORDS, nullable="0+")


@message
class TopicProduceData:
    """The partitions of one topic: named up to version 12, by id from 13 on (KIP-516)."""

    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


@message
class ProduceRequest:
    """Ask for batches to be appended. timeout_ms is ignored: the client decides how long to wait."""

    transactional_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    # 0 for no response, 1 for one after the write, -1 for one when every replica has the records.
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


@message
class BatchIndexAndErrorMessage:
    """A record that made the broker reject its batch (KIP-467)."""

    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", default=None, nullable="8+")


@message
class LeaderIdAndEpoch:
    """The current leader of the partition (KIP-951)."""

    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


@message
class PartitionProduceResponse:
    """The result for one partition."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    # -1 if records keep their producer's timestamps.
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage), "8+", default=[], ignorable=True
    )
    error_message: str | None = field(STRING, "8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, "10+", default=LeaderIdAndEpoch(), tag=0, tagged="10+"
    )


@message
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


@message
class NodeEndpoint:
    """The address of a leader in the answer (KIP-951)."""

    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", default=None, nullable="10+")


@message
class ProduceResponse:
    """Answer with one result per partition."""

    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "10+", default=[], tag=0, tagged="10+")


PRODUCE = Api(
    key=0,
    versions="0-13",
    flexible="9+",
    request=ProduceRequest,
    response=ProduceResponse,
)
