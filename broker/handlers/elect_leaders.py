"""ElectLeaders.

Versions: 0-2.
Behaviour: the only node leads every partition, so both types of election get ELECTION_NOT_NEEDED. A request for all
partitions gets an empty response: as in Kafka, it omits partitions that need no election.
"""

from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import anywhere
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


async def handle(session: Session, request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    """Answer that each partition has its leader; on a reader thread if there are many."""
    by_name = session.broker.topics.by_name
    if request.election_type not in (PREFERRED, UNCLEAN):
        # Version 0 has no field for the error.
        code = ErrorCode.INVALID_REQUEST if version else ErrorCode.NONE
        return ElectLeadersResponse(error_code=code, replica_election_results=[])
    results = []
    for asked in request.topic_partitions or ():
        await anywhere()
        topic = by_name.get(asked.topic)
        partitions = []
        for number in asked.partitions:
            await anywhere()
            partitions.append(_result(topic, number))
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=partitions))
    return ElectLeadersResponse(replica_election_results=results)


def _result(topic: Topic | None, number: int) -> PartitionResult:
    if topic is None or topic.partition(number) is None:
        # Without the topic's name, which would make the answer many times larger than the request.
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=number, error_code=code, error_message=message)
