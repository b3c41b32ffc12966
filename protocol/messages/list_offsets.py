"""ListOffsets: look up an offset by time, or at an end of the log."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, INT64, STRING, Array


@message
class ListOffsetsPartition:
    """The time to look up in one partition."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    # In milliseconds; negative for an end of the log or, from version 7, for its largest timestamp.
    timestamp: int = field(INT64)
    # Version 0 asks for up to this many segment starts at or before the time (before KIP-79).
    max_num_offsets: int = field(INT32, "0", default=1)


@message
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition))


@message
class ListOffsetsRequest:
    """Ask for offsets by time. timeout_ms is ignored: there is no other tier to wait for."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, "10+", default=0, ignorable=True)


@message
class ListOffsetsPartitionResponse:
    """The result in one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    # Only version 0, newest first.
    old_style_offsets: list[int] = field(Array(INT64), "0", default=[])
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@message
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    """Answer with one offset per partition; in version 0 with several."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))


LIST_OFFSETS = Api(
    key=2, versions="0-11", flexible="6+", request=ListOffsetsRequest, response=ListOffsetsResponse
)
