"""AlterPartitionReassignments.

Versions: 0-1.
Behaviour: assigning a partition to this node succeeds and changes nothing. Any other node gets
INVALID_REPLICA_ASSIGNMENT. Cancelling gets NO_REASSIGNMENT_IN_PROGRESS, because no reassignment ever runs.
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
    """Check each partition; on a reader thread if there are many."""
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
        message = f"the only node is {broker.node_id}, and each partition is on it"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return ErrorCode.NONE, None
