"""OffsetForLeaderEpoch.

Versions: 2-4.
Behaviour: returns the end offset of an epoch (KIP-101, KIP-320), so a consumer can detect that a crash has cut off
records that it has read. The epoch increases with every start after a crash, and at no other time.
"""

from contextlib import suppress

from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import Stopping, anywhere
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(
    session: Session, request: OffsetForLeaderEpochRequest, _version: int
) -> OffsetForLeaderEpochResponse:
    """Answer every partition; on a reader thread if there are many."""
    by_name = session.broker.topics.by_name
    topics = []
    for asked in request.topics:
        topic = by_name.get(asked.topic)
        answers = []
        with suppress(Stopping):
            await anywhere()  # There may be many topics without partitions.
        for want in asked.partitions:
            try:
                await anywhere()
                answers.append(_answer(topic, want))
            except Stopping:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                answers.append(EpochEndOffset(partition=want.partition, error_code=code))
        topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(topic: Topic | None, want: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = topic.partition(want.partition) if topic else None
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif partition.log.unopened is not None:
        code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        code = partition.epoch_problem(want.current_leader_epoch)
    if partition is None or code:
        return EpochEndOffset(partition=want.partition, error_code=code)
    epoch, end_offset = partition.log.epochs.end_of(want.leader_epoch, partition.log.log_end_offset)
    return EpochEndOffset(
        partition=want.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end_offset
    )
