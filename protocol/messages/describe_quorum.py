"""DescribeQuorum: the voters of the metadata log, and their positions (KIP-595, KIP-836, KIP-853)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, UINT16, UUID, ZERO_UUID, Array


@message
class AskedPartitionData:
    """A partition to describe."""

    partition_index: int = field(INT32)


@message
class AskedTopicData:
    """A topic to describe: `__cluster_metadata` is the only one with a quorum."""

    topic_name: str = field(STRING)
    partitions: list[AskedPartitionData] = field(Array(AskedPartitionData))


@message
class DescribeQuorumRequest:
    """Ask about the quorum of a partition."""

    topics: list[AskedTopicData] = field(Array(AskedTopicData))


@message
class ReplicaState:
    """A replica and its position."""

    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+", default=ZERO_UUID)
    log_end_offset: int = field(INT64, default=0)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


@message
class PartitionData:
    """The quorum of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", default="", nullable="2+", ignorable=True)
    leader_id: int = field(INT32, default=0)
    leader_epoch: int = field(INT32, default=0)
    high_watermark: int = field(INT64, default=0)
    current_voters: list[ReplicaState] = field(Array(ReplicaState), default=[])
    observers: list[ReplicaState] = field(Array(ReplicaState), default=[])


@message
class TopicData:
    """The partitions of one topic."""

    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message
class Listener:
    """A listener of a voter."""

    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


@message
class Node:
    """A voter and its listeners."""

    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field(Array(Listener), "2+")


@message
class DescribeQuorumResponse:
    """Answer with the quorum of each partition."""

    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, "2+", default="", nullable="2+", ignorable=True)
    topics: list[TopicData] = field(Array(TopicData), default=[])
    nodes: list[Node] = field(Array(Node), "2+", default=[])


DESCRIBE_QUORUM = Api(
    key=55, versions="0-2", flexible="0+", request=DescribeQuorumRequest, response=DescribeQuorumResponse
)
