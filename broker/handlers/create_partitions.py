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

from collections import Counter
from functools import partial

from tidelog.broker.answers import Later
from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, Refused, error_code
from tidelog.broker.maintenance import Task
from tidelog.broker.session import Session
from tidelog.broker.topic_rules import BrokerStops, TopicIsGrowing
from tidelog.broker.topics import MADE_AT_ONCE, TOO_MANY_WAIT, Topic
from tidelog.broker.work import Work, made_of_many
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.storage.errors import StorageError, without_frames

# What a topic in a request takes in memory until it is changed, about, and each assignment of a partition.
TOPIC_BYTES = 400
ASSIGNMENT_BYTES = 300


def handle(
    session: Session, request: CreatePartitionsRequest, _version: int
) -> CreatePartitionsResponse | Later | Work[CreatePartitionsResponse]:
    """Add the partitions on the maintenance thread."""
    deadline_ms = session.broker.clock.monotonic_ms() + request.timeout_ms
    size_bytes = sum(
        TOPIC_BYTES + len(topic.assignments or ()) * ASSIGNMENT_BYTES for topic in request.topics
    )
    work = _grow_all(session.broker, request, deadline_ms)
    return session.broker.change(session, size_bytes, work, partial(_turn_away, request.topics))


async def _turn_away(topics: list[CreatePartitionsTopic]) -> CreatePartitionsResponse:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    results = await made_of_many(lambda topic: _result(topic.name, code, TOO_MANY_WAIT), topics)
    return CreatePartitionsResponse(results=results)


def _grow_all(
    broker: Broker, request: CreatePartitionsRequest, deadline_ms: int
) -> Task[CreatePartitionsResponse]:
    yield
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    outcomes: dict[str, Exception | None] = {}
    waiting: list[tuple[Topic, int]] = []
    waiting_partitions = 0
    for wanted in asked.values():
        is_dropped = yield
        try:
            if is_dropped:
                raise Refused(ErrorCode.NOT_CONTROLLER, "no partitions added, the broker stops")
            if broker.clock.monotonic_ms() >= deadline_ms:
                why = f"not begun within timeout_ms={request.timeout_ms}, no partitions added"
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, why)
            if times[wanted.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = _checked(broker, wanted)
        except Refused as refused:
            outcomes[wanted.name] = without_frames(refused)
            continue
        if request.validate_only:
            continue
        waiting.append((topic, wanted.count))
        waiting_partitions += wanted.count - len(topic.partitions)
        if waiting_partitions >= MADE_AT_ONCE:
            outcomes |= yield from broker.topics.grow_all(waiting)
            waiting, waiting_partitions = [], 0
    if waiting:
        outcomes |= yield from broker.topics.grow_all(waiting)
    return CreatePartitionsResponse(results=[_result(name, *_told(outcomes.get(name))) for name in asked])


def _told(outcome: Exception | None) -> tuple[ErrorCode, str | None]:
    """Return the code and the message of what came of a topic."""
    if outcome is None:
        return ErrorCode.NONE, None
    if isinstance(outcome, Refused):
        return outcome.code, str(outcome)
    if isinstance(outcome, TopicIsGrowing):
        return ErrorCode.REQUEST_TIMED_OUT, str(outcome)
    if isinstance(outcome, BrokerStops):
        return ErrorCode.NOT_CONTROLLER, str(outcome)
    assert isinstance(outcome, StorageError)
    return error_code(outcome), str(outcome)


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
