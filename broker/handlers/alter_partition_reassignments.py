"""AlterPartitionReassignments.

Versions: 0-1.
Behaviour: a partition may be given to this node, where it is: nothing happens then. There is no other node
(INVALID_REPLICA_ASSIGNMENT), and nothing under way that could be ended (NO_REASSIGNMENT_IN_PROGRESS).
"""

from tidelog.broker.broker import Broker
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import anywhere
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    session: Session, request: AlterPartitionReassignmentsRequest, _version: int
) -> AlterPartitionReassignmentsResponse:
    """Say of each partition whether it is where it shall be; on a reader thread where they are many."""
    broker = session.broker
    responses = []
    for asked in request.topics:
        await anywhere()
        topic = broker.topics.by_name.get(asked.name)
        partitions = []
        for wanted in asked.partitions:
            await anywhere()
            code, message = _judge(broker, asked.name, topic, wanted)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


def _judge(
    broker: Broker, name: str, topic: Topic | None, wanted: ReassignablePartition
) -> tuple[ErrorCode, str | None]:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if topic.partition(wanted.partition_index) is None:
        message = f"Unable to find partition {name}:{wanted.partition_index}."
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
    if wanted.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    if wanted.replicas != [broker.node_id]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"each partition is on node {broker.node_id} alone"
    return ErrorCode.NONE, None
