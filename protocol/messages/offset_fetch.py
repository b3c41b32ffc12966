"""OffsetFetch: read the committed offsets of groups."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, INT64, STRING, Array


@message
class OffsetFetchRequestTopic:
    """Partitions of one topic."""

    name: str = field(STRING, "0-7", default="")
    partition_indexes: list[int] = field(Array(INT32), "0-7", default=[])


@message
class OffsetFetchRequestTopics:
    """Partitions of one topic."""

    name: str = field(STRING, "8+", default="", ignorable=True)
    partition_indexes: list[int] = field(Array(INT32), "8+", default=[])


@message
class OffsetFetchRequestGroup:
    """A group, and its partitions to return."""

    group_id: str = field(STRING, "8+", default="")
    member_id: str | None = field(STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics), "8+", default=[], nullable="8+"
    )


@message
class OffsetFetchRequest:
    """Ask for the offsets of a group, from version 8 of several; null topics for all of them."""

    group_id: str = field(STRING, "0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), "0-7", default=[], nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), "8+", default=[])
    require_stable: bool = field(BOOL, "7+", default=False)


@message
class OffsetFetchResponsePartition:
    """The committed offset of one partition."""

    partition_index: int = field(INT32, "0-7", default=0)
    committed_offset: int = field(INT64, "0-7", default=0)
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "0-7", default="", nullable="0-7")
    error_code: int = field(INT16, "0-7", default=0)


@message
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    name: str = field(STRING, "0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field(
        Array(OffsetFetchResponsePartition), "0-7", default=[]
    )


@message
class OffsetFetchResponsePartitions:
    """The committed offset of one partition."""

    partition_index: int = field(INT32, "8+", default=0)
    committed_offset: int = field(INT64, "8+", default=0)
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", default="", nullable="8+")
    error_code: int = field(INT16, "8+", default=0)


@message
class OffsetFetchResponseTopics:
    """The partitions of one topic."""

    name: str = field(STRING, "8+", default="", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(
        Array(OffsetFetchResponsePartitions), "8+", default=[]
    )


@message
class OffsetFetchResponseGroup:
    """The committed offsets of one group."""

    group_id: str = field(STRING, "8+", default="")
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics), "8+", default=[])
    error_code: int = field(INT16, "8+", default=0)


@message
class OffsetFetchResponse:
    """Answer with an offset per partition, -1 if none was committed."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), "0-7", default=[])
    error_code: int = field(INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), "8+", default=[])


OFFSET_FETCH = Api(
    key=9, versions="0-9", flexible="6+", request=OffsetFetchRequest, response=OffsetFetchResponse
)
