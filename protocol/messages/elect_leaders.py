"""ElectLeaders: elect leaders of partitions (KIP-183, KIP-460)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, STRING, Array


@message
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


@message
class ElectLeadersRequest:
    """Ask for elections: of the preferred replica (type 0), or of any (1); null for all partitions."""

    election_type: int = field(INT8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(INT32, default=60000)


@message
class PartitionResult:
    """The result of the election of one partition."""

    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


@message
class ReplicaElectionResult:
    """The results for the partitions of one topic."""

    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(Array(PartitionResult))


@message
class ElectLeadersResponse:
    """Answer with one result per partition."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(Array(ReplicaElectionResult))


ELECT_LEADERS = Api(
    key=43, versions="0-2", flexible="2+", request=ElectLeadersRequest, response=ElectLeadersResponse
)
