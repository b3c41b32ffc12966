"""DescribeProducers.

Versions: 0.
Behaviour: lists the idempotent producers that each partition remembers, with the last sequence of each and the time of
its append. No producer has a transaction, because transactions are not supported yet. A missing partition gets
UNKNOWN_TOPIC_OR_PARTITION. The number of producers in a response is bounded: a partition that does not fit gets
INVALID_REQUEST.
Departures from Kafka: a producer's time is that of its last append, not that of its last record. The response is
bounded.
"""

from tidelog.broker.session import Session
from tidelog.broker.work import LONG, anywhere, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.storage.log import Log

# The most producers in an answer, 40 bytes each and ten times that in memory; and on the event loop, 1 us each.
MOST_PRODUCERS = 100_000
MOST_AT_ONCE = 500


async def handle(
    session: Session, request: DescribeProducersRequest, _version: int
) -> DescribeProducersResponse:
    """Describe the producers of each partition; on a reader thread if there are many."""
    by_name = session.broker.topics.by_name
    left = MOST_PRODUCERS
    topics = []
    for asked in request.topics:
        await anywhere()
        topic = by_name.get(asked.name)
        partitions = []
        for number in asked.partition_indexes:
            partition = topic.partition(number) if topic is not None else None
            count = len(partition.log.producers.producers) if partition is not None else 0
            await (anywhere() if count <= MOST_AT_ONCE else reader(LONG))
            if partition is None:
                partitions.append(_failed(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
                continue
            left -= count
            if left < 0:
                message = (
                    f"an answer has {MOST_PRODUCERS} producers at most; request fewer partitions at once"
                )
                partitions.append(_failed(number, ErrorCode.INVALID_REQUEST, message))
                continue
            active = _producers(partition.log)
            partitions.append(
                PartitionResponse(partition_index=number, error_code=ErrorCode.NONE, active_producers=active)
            )
        topics.append(TopicResponse(name=asked.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _producers(log: Log) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch,
            last_sequence=sender.last.last_sequence,
            last_timestamp=sender.last.append_ms,
            coordinator_epoch=-1,
        )
        for sender in log.producers.senders()
    ]


def _failed(number: int, code: ErrorCode, message: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=number, error_code=code, error_message=message, active_producers=[]
    )
