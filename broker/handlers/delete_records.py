"""DeleteRecords.

Versions: 0-2.
Behaviour: moves the start of a partition to an offset, or to its high watermark (-1). When the broker responds, the new
start is durable. Readers no longer get earlier records, and segments that have only earlier records are deleted soon.
An offset before the start changes nothing; one after the high watermark gets OFFSET_OUT_OF_RANGE. As in Kafka, internal
topics get INVALID_TOPIC_EXCEPTION, and topics with `cleanup.policy=compact` alone get POLICY_VIOLATION. If the disk is
full, the error is KAFKA_STORAGE_ERROR, but segments are deleted all the same, and a retry succeeds. `timeout_ms` is
ignored: in Kafka it bounds the wait for followers, and there are none.
Departures from Kafka: the response waits until the new start is on disk; Kafka writes it within a minute.
"""

from collections.abc import Iterable

from tidelog.broker.broker import Broker
from tidelog.broker.codes import Refused
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import Stopping, step, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from tidelog.storage.log import Log

# The approximate memory of a topic, and of a partition, in a waiting request.
TOPIC_BYTES = 300
PARTITION_BYTES = 200
HIGH_WATERMARK = -1

# The results of partitions that begin at or after the requested offset, their logs, and whether the start has moved.
_Done = list[tuple[DeleteRecordsPartitionResult, Log, bool]]


async def handle(session: Session, request: DeleteRecordsRequest, _version: int) -> DeleteRecordsResponse:
    """Move the starts of the logs on the maintenance thread."""
    size_bytes = sum(TOPIC_BYTES + len(topic.partitions) * PARTITION_BYTES for topic in request.topics)
    task = _delete_all(session.broker, request.topics)

    def refuse(topic: DeleteRecordsTopic, code: ErrorCode, _message: str) -> DeleteRecordsTopicResult:
        return _all(topic, code)

    return DeleteRecordsResponse(
        topics=await session.broker.change(session, size_bytes, task, request.topics, refuse)
    )


async def _delete_all(broker: Broker, topics: list[DeleteRecordsTopic]) -> list[DeleteRecordsTopicResult]:
    done: _Done = []
    results = []
    for wanted in topics:
        try:
            await step()
            partitions = await _delete(broker, wanted, done)
            results.append(DeleteRecordsTopicResult(name=wanted.name, partitions=partitions))
        except Stopping:
            results.append(_all(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    # Even if no start has moved: an earlier request may have moved one and failed to write it.
    if done and not broker.save_log_starts([log for _, log, is_later in done if is_later]):
        for result, *_ in done:
            result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1
    return results


async def _delete(
    broker: Broker, wanted: DeleteRecordsTopic, done: _Done
) -> list[DeleteRecordsPartitionResult]:
    topic = broker.topics.find(wanted.name, b"")
    results = []
    for asked in wanted.partitions:
        await turn()
        try:
            log = _log_of(topic, asked)
            offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
            if not 0 <= offset <= log.high_watermark:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, "")
        except Refused as refused:
            results.append(_result(asked.partition_index, refused.code))
        else:
            is_later = offset > log.log_start_offset
            log.advance_start(offset)
            result = _result(asked.partition_index, ErrorCode.NONE, log.log_start_offset)
            done.append((result, log, is_later))
            results.append(result)
    return results


def _log_of(topic: Topic | None, asked: DeleteRecordsPartition) -> Log:
    partition = topic.partition(asked.partition_index) if topic is not None else None
    if topic is None or partition is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    if topic.is_internal:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "")
    if topic.config.compacts and not topic.config.deletes:
        raise Refused(ErrorCode.POLICY_VIOLATION, "")
    if partition.log.unopened is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "")
    return partition.log


def _all(topic: DeleteRecordsTopic, code: ErrorCode) -> DeleteRecordsTopicResult:
    partitions: Iterable[DeleteRecordsPartition] = topic.partitions
    return DeleteRecordsTopicResult(
        name=topic.name, partitions=[_result(each.partition_index, code) for each in partitions]
    )


def _result(index: int, code: ErrorCode, low_watermark: int = -1) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
