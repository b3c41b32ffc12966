"""OffsetDelete.

Versions: 0 (KIP-496).
Behaviour: deletes committed offsets. Responds when the deletion is on disk. A topic that a member of the group reads
gets GROUP_SUBSCRIBED_TO_TOPIC. A group with members and a protocol type other than "consumer" gets NON_EMPTY_GROUP. The
group with the empty id, for which offsets can be committed and fetched, gets INVALID_GROUP_ID, as in Kafka.
"""

from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.groups.classic import Operation
from tidelog.broker.partition import Partition
from tidelog.broker.session import Session
from tidelog.broker.work import loop
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(session: Session, request: OffsetDeleteRequest, _version: int) -> OffsetDeleteResponse:
    """Delete offsets of a group."""
    groups = session.broker.groups
    code = groups.problem(request.group_id)
    group = groups.group(request.group_id)
    if not code:
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        code = missing if group is None else group.deletion_problem(Operation.DELETE_OFFSETS)
    if code or group is None:
        return OffsetDeleteResponse(error_code=code, topics=[])
    by_name = session.broker.topics.by_name
    partitions: set[Partition] = set()
    topics = []
    for named in request.topics:
        topic = by_name.get(named.name)
        answers = []
        for each in named.partitions:
            await loop()
            code = ErrorCode.NONE
            if topic is None or topic.partition(each.partition_index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.reads(named.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif groups.committed(group.id, named.name, each.partition_index) is not None:
                removed = groups.remove(group.id, [(named.name, each.partition_index)])
                if isinstance(removed, Partition):
                    partitions.add(removed)
                else:
                    code = removed
            elif (partition := groups.log.partition(group.id)) is not None:
                partitions.add(partition)  # An earlier deletion of this offset may not be on disk yet.
            answers.append(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        topics.append(OffsetDeleteResponseTopic(name=named.name, partitions=answers))
    size_bytes = ANSWER_BYTES * sum(len(topic.partitions) for topic in topics)
    if not await groups.are_on_disk(partitions, size_bytes):
        return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR, topics=[])
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics)
