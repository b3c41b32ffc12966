"""CreatePartitions.

Versions: 0-3.
Behaviour: each topic succeeds or fails on its own, with a message; its new partitions are durable and can be written
when the answer leaves. `validate_only` says what would happen. Assignments name this node alone; with
`tidelog.tolerate.replication.factor` they may name others beside it, and are taken as of this one. What has not begun
when `timeout_ms` is over is answered REQUEST_TIMED_OUT, and does not happen; so is a topic that is being given
partitions for somebody else. At a stop it is NOT_CONTROLLER, which clients try again: what has begun the next start
brings to its end.
Departures from Kafka: a topic that is being given partitions already is REQUEST_TIMED_OUT; Kafka's controller does one
after the other. Internal topics keep their number of partitions, by which what is in them is found.
"""

from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, Refused
from tidelog.broker.session import Session
from tidelog.broker.topic_changes import answer_for, make_many
from tidelog.broker.topics import Topic
from tidelog.broker.work import Coro
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

# What a topic in a request takes in memory until it is changed, about, and each assignment of a partition.
TOPIC_BYTES = 400
ASSIGNMENT_BYTES = 300


def handle(
    session: Session, request: CreatePartitionsRequest, _version: int
) -> Coro[CreatePartitionsResponse]:
    """Add the partitions on the maintenance thread."""
    size_bytes = sum(
        TOPIC_BYTES + len(topic.assignments or ()) * ASSIGNMENT_BYTES for topic in request.topics
    )
    deadline_ms = session.broker.clock.monotonic_ms() + request.timeout_ms
    task = _grow_all(session.broker, request, deadline_ms)
    names = [topic.name for topic in request.topics]
    return session.broker.change(session, size_bytes, task, names, _result, _respond)


def _respond(results: list[CreatePartitionsTopicResult]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=results)


async def _grow_all(
    broker: Broker, request: CreatePartitionsRequest, deadline_ms: int
) -> CreatePartitionsResponse:
    def accept(wanted: CreatePartitionsTopic) -> tuple[tuple[Topic, int], int]:
        topic = _checked(broker, wanted)
        return (topic, wanted.count), wanted.count - len(topic.partitions)

    make = None if request.validate_only else broker.topics.grow_all
    outcomes = await make_many(broker, request.topics, deadline_ms, accept, make, "no partitions added")
    results = []
    for name in dict.fromkeys(topic.name for topic in request.topics):
        error = outcomes.get(name)
        results.append(_result(name, *((ErrorCode.NONE, None) if error is None else answer_for(error))))
    return _respond(results)


def _checked(broker: Broker, wanted: CreatePartitionsTopic) -> Topic:
    """Return the topic that is to grow. Raise Refused where it cannot."""
    topic = broker.topics.find(wanted.name, b"")
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION)
    if topic.is_internal:
        message = f"what {topic.name} keeps is found by the number of its partitions, which stays as it is"
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
    if count > MAX_PARTITIONS_PER_TOPIC:
        message = f"{count} partitions: a topic has {MAX_PARTITIONS_PER_TOPIC} at most"
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
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
