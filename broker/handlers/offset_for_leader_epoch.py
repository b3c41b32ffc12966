"""OffsetForLeaderEpoch.

Versions: 2-4.
Behaviour: tells where the records of an epoch end (KIP-101, KIP-320), so that a consumer can see that what
it read was cut off by a crash. The epoch grows with every start after a crash, and at no other time.
"""

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.answers import Elsewhere
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection
    from tidelog.broker.topics import Topic

# Partitions that are looked up on the event loop, 2 us each.
MOST_AT_ONCE = 1000


def handle(
    connection: "Connection", request: OffsetForLeaderEpochRequest, _version: int
) -> OffsetForLeaderEpochResponse | Elsewhere:
    """Answer every partition of the request."""
    answer = partial(_respond, connection.broker.topics.by_name, request)
    count = sum(len(asked.partitions) for asked in request.topics)
    return answer() if count <= MOST_AT_ONCE else Elsewhere(answer)


def _respond(
    by_name: "dict[str, Topic]", request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=asked.topic,
                partitions=[_answer(by_name.get(asked.topic), want) for want in asked.partitions],
            )
            for asked in request.topics
        ]
    )


def _answer(topic: "Topic | None", want: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = topic.partition(want.partition) if topic else None
    if partition is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        code = partition.epoch_problem(want.current_leader_epoch)
    if partition is None or code:
        return EpochEndOffset(partition=want.partition, error_code=code)
    epoch, end_offset = partition.log.epoch_end(want.leader_epoch)
    return EpochEndOffset(
        partition=want.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end_offset
    )
