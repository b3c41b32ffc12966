"""DescribeQuorum.

Versions: 0-2 (1 has the times when voters were last seen, KIP-836; 2 directory ids and listeners, KIP-853).
Behaviour: the quorum of `__cluster_metadata` has one voter, this broker, which leads it. Any other partition has no
quorum: UNKNOWN_TOPIC_OR_PARTITION.
Departures from Kafka: topics and options are kept in a catalogue, not in a log, so the leader epoch and the offsets
never change. The voter has no listeners, because there is no other voter, and no directory id. A request for several
partitions, or none, is INVALID_REQUEST; Kafka answers UNKNOWN_TOPIC_OR_PARTITION for each of them.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tidelog.protocol.topic_names import CLUSTER_METADATA

# As if the log had one record, at offset 0: the features in ApiVersions, which are of epoch 0.
LEADER_EPOCH = 1
LOG_END_OFFSET = 1
NODES_SINCE = 2


def handle(session: Session, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
    """Describe the quorum of one voter."""
    asked = request.topics[0] if len(request.topics) == 1 else None
    if asked is None or len(asked.partitions) != 1:
        return DescribeQuorumResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="ask about one partition at once"
        )
    node_id, number = session.broker.node_id, asked.partitions[0].partition_index
    is_metadata = (asked.topic_name, number) == (CLUSTER_METADATA, 0)
    found = _quorum(node_id, session.broker.clock.now_ms()) if is_metadata else _unknown(number)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[TopicData(topic_name=asked.topic_name, partitions=[found])],
        nodes=[Node(node_id=node_id, listeners=[])] if version >= NODES_SINCE else [],
    )


def _quorum(node_id: int, now_ms: int) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=LOG_END_OFFSET,
        current_voters=[
            ReplicaState(
                replica_id=node_id,
                log_end_offset=LOG_END_OFFSET,
                last_caught_up_timestamp=now_ms,
                last_fetch_timestamp=now_ms,
            )
        ],
    )


def _unknown(number: int) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"only {CLUSTER_METADATA}-0 has a quorum",
    )
