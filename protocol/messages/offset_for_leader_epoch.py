"""OffsetForLeaderEpoch: the end of a leader epoch, by which a client detects a truncated log (KIP-320)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class OffsetForLeaderPartition:
    """The epoch to look up in one partition."""

    partition: int = field(INT32)
    # Fences a client with old metadata; -1 for no check.
    current_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


@message
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition))


@message
class OffsetForLeaderEpochRequest:
    """Ask where epochs end."""

    # In versions without it the default is -2, a reader that may read past the high watermark.
    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic))


@message
class EpochEndOffset:
    """The largest epoch up to the requested one, and the offset after its last record."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)


@message
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


@message
class OffsetForLeaderEpochResponse:
    """Answer with the ends of epochs."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))


OFFSET_FOR_LEADER_EPOCH = Api(
    key=23,
    versions="2-4",
    flexible="4+",
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
)
