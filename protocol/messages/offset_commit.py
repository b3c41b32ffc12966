"""OffsetCommit: store the committed offsets of a group."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class OffsetCommitRequestPartition:
    """The committed offset of one partition."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


@message
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


@message
class OffsetCommitRequest:
    """Ask for offsets to be stored. retention_time_ms -1 is the broker's default."""

    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", default="", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


@message
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@message
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


@message
class OffsetCommitResponse:
    """Answer with a code per partition."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))


OFFSET_COMMIT = Api(
    key=8, versions="0-9", flexible="8+", request=OffsetCommitRequest, response=OffsetCommitResponse
)
