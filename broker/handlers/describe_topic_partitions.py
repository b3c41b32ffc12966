"""DescribeTopicPartitions.

Versions: 0.
Behaviour: describes topics in the order of their names, or all topics if the request names none. A page has up to the
requested number of partitions, at most 2,000, and a cursor for the next page, which may point at a missing topic. No
topic is created. If the cursor does not point at a requested topic, or its partition is negative, each topic gets
INVALID_REQUEST.
"""

from tidelog.broker.authorized_operations import NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.broker import Broker
from tidelog.broker.session import Session
from tidelog.broker.topic_rules import name_problem
from tidelog.broker.topics import Topic
from tidelog.broker.work import LONG, anywhere, map_in_chunks, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.protocol.topic_names import is_internal

# Kafka's max.request.partition.size.limit.
MOST_PARTITIONS = 2000
# The most topics or partitions that are described on the event loop, 3 us each.
MOST_AT_ONCE = 250


def _is_bad_cursor(request: DescribeTopicPartitionsRequest) -> bool:
    cursor = request.cursor
    if cursor is None:
        return False
    is_asked = not request.topics or any(asked.name == cursor.topic_name for asked in request.topics)
    return cursor.partition_index < 0 or not is_asked


async def handle(
    session: Session, request: DescribeTopicPartitionsRequest, _version: int
) -> DescribeTopicPartitionsResponse:
    """Describe a page of partitions; on a reader thread if there are many topics or partitions."""
    broker = session.broker
    if _is_bad_cursor(request):
        refused = await map_in_chunks(
            lambda asked: _failed(asked.name, ErrorCode.INVALID_REQUEST, NOT_ASKED), request.topics
        )
        return DescribeTopicPartitionsResponse(topics=refused)
    every_topic = {topic.name: topic for topic in broker.topics.all()} if not request.topics else None
    names = every_topic if every_topic is not None else {asked.name for asked in request.topics}
    await (anywhere() if len(names) <= MOST_AT_ONCE else reader(LONG))
    by_name = every_topic if every_topic is not None else broker.topics.by_name
    cursor = request.cursor or Cursor(topic_name="", partition_index=0)
    left = max(min(request.response_partition_limit, MOST_PARTITIONS), 1)
    topics = []
    next_cursor = None
    for name in sorted(name for name in names if name >= cursor.topic_name):
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = by_name.get(name)
        if topic is None:
            await anywhere()
            topics.append(_missing(name))
        else:
            first = cursor.partition_index if name == cursor.topic_name else 0
            end = min(first + left, len(topic.partitions))
            await (anywhere() if end - first <= MOST_AT_ONCE else reader(LONG))
            topics.append(_describe(broker, topic, range(first, end)))
            left -= max(end - first, 0)
            if end < len(topic.partitions):
                next_cursor = Cursor(topic_name=name, partition_index=end)
                break
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_bad = name_problem(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _failed(name, code, TOPIC_OPERATIONS)


def _failed(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=operations,
    )


def _describe(broker: Broker, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    node = broker.node_id
    nodes, none = [node], list[int]()  # shared: there may be very many partitions
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=none,
                last_known_elr=none,
                offline_replicas=none if partition.log.takes_writes else nodes,
            )
            for partition in topic.partitions[numbers.start : max(numbers.stop, numbers.start)]
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
