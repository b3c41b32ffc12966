"""CreatePartitions.

Versions: 0-3.
Behaviour: each topic succeeds or fails on its own, with a message. When the broker responds, the new partitions are
durable and accept writes. `validate_only` reports what would happen. Assignments may name this node only; with
`tidelog.tolerate.replication.factor` they may name other nodes, which are ignored. A change that has not begun within
`timeout_ms` does not happen and gets REQUEST_TIMED_OUT. If the broker stops, the error is NOT_CONTROLLER, and clients
retry; the next start completes a change that has begun.
Departures from Kafka: while another request adds partitions to the topic, the error is REQUEST_TIMED_OUT; Kafka's
controller makes one change after the other. The number of partitions of internal topics cannot change, because it
decides where their records are.
"""

from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, Refused
from tidelog.broker.session import Session
from tidelog.broker.topic_changes import answer_for, make_many
from tidelog.broker.topic_rules import check_partition_count
from tidelog.broker.topics import Topic
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

# The approximate memory of a topic in a waiting request, and of each assignment of a partition.
TOPIC_BYTES = 400
ASSIGNMENT_BYTES = 300


async def handle(
    session: Session, request: CreatePartitionsRequest, _version: int
) -> CreatePartitionsResponse:
    """Add the partitions on the maintenance thread."""
    size_bytes = sum(
        TOPIC_BYTES + len(topic.assignments or ()) * ASSIGNMENT_BYTES for topic in request.topics
    )
    deadline_ms = session.broker.clock.monotonic_ms() + request.timeout_ms
    task = _grow_all(session.broker, request, deadline_ms)
    names = [topic.name for topic in request.topics]
    return CreatePartitionsResponse(
        results=await session.broker.change(session, size_bytes, task, names, _result)
    )


async def _grow_all(
    broker: Broker, request: CreatePartitionsRequest, deadline_ms: int
) -> list[CreatePartitionsTopicResult]:
    def accept(wanted: CreatePartitionsTopic) -> tuple[tuple[Topic, int], int]:
        topic = _checked(broker, wanted)
        return (topic, wanted.count), wanted.count - len(topic.partitions)

    make = None if request.validate_only else broker.topics.grow_all
    outcomes = await make_many(broker, request.topics, deadline_ms, accept, make, "no partitions added")
    results = []
    for name in dict.fromkeys(topic.name for topic in request.topics):
        error = outcomes.get(name)
        results.append(_result(name, *((ErrorCode.NONE, None) if error is None else answer_for(error))))
    return results


def _checked(broker: Broker, wanted: CreatePartitionsTopic) -> Topic:
    """Return the topic to grow. Raise Refused if it cannot."""
    topic = broker.topics.find(wanted.name, b"")
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION)
    if topic.is_internal:
        message = f"{topic.name} is internal: its number of partitions is fixed, as records are found by it"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    count, more = wanted.count, wanted.count - len(topic.partitions)
    if more == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if more < 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {len(topic.partitions)} partition(s); "
            f"{count} would not be an increase.",
        )
    check_partition_count(count)
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            message = (
                f"Attempted to add {more} additional partition(s), but {len(wanted.assignments)} assignment(s) "
                "were specified."
            )
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        for each in wanted.assignments:
            broker.check_assignment(each.broker_ids)
    return topic


def _result(name: str, code: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
