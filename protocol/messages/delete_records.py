"""DeleteRecords: delete the oldest records of partitions (KIP-107)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class DeleteRecordsPartition:
    """The new first offset of a partition; -1 for its high watermark."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)


@message
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


@message
class DeleteRecordsRequest:
    """Ask for the records before some offsets to be deleted; what has not started within timeout_ms is not done."""

    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


@message
class DeleteRecordsPartitionResult:
    """The new first offset of a partition."""

    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


@message
class DeleteRecordsTopicResult:
    """The results for the partitions of one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


@message
class DeleteRecordsResponse:
    """Answer with one result per partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))


DELETE_RECORDS = Api(
    key=21, versions="0-2", flexible="2+", request=DeleteRecordsRequest, response=DeleteRecordsResponse
)
