"""OffsetDelete: delete committed offsets of a group."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, Array


@message
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = field(INT32)


@message
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


@message
class OffsetDeleteRequest:
    """Ask for committed offsets to be deleted."""

    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


@message
class OffsetDeleteResponsePartition:
    """The result for one offset."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@message
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


@message
class OffsetDeleteResponse:
    """Answer with a code per partition, or one for the group."""

    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))


OFFSET_DELETE = Api(
    key=47, versions="0-0", flexible="", request=OffsetDeleteRequest, response=OffsetDeleteResponse
)
