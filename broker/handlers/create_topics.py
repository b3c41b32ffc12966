"""CreateTopics.

Versions: 0-7.
Behaviour: each topic succeeds or fails on its own, with a message; it is durable and can be written when the answer
leaves. -1 partitions means `num.partitions`; the replication factor is 1, or -1; with
`tidelog.tolerate.replication.factor` a larger one is taken as 1, which the answer says, and so is an assignment that
names other nodes beside this one. `validate_only` says what would
happen. A name that differs from another only in '.' and '_' is refused, as is Kafka's own `__cluster_metadata`. What
has not begun when `timeout_ms` is over is answered REQUEST_TIMED_OUT, and does not happen; at a stop it is
NOT_CONTROLLER, which clients try again. Options that do nothing here are kept, described, and named in the log; the
options of a thousand topics are described in one answer. An option's value has 1000 characters at most.
"""

from collections import Counter
from functools import partial
from typing import Final

from tidelog.broker.answers import Later
from tidelog.broker.broker import Broker
from tidelog.broker.codes import Refused
from tidelog.broker.creation import NewTopic
from tidelog.broker.maintenance import Task
from tidelog.broker.session import Session
from tidelog.broker.topic_rules import (
    MOST_OPTION_LENGTH,
    BrokerStops,
    TopicExists,
    TopicNamesCollide,
    check_option,
    metric_name,
    name_problem,
)
from tidelog.broker.topics import MADE_AT_ONCE, TOO_MANY_WAIT, Topic
from tidelog.broker.work import Work, made_of_many
from tidelog.config.contradictions import TOLERABLE
from tidelog.config.errors import ConfigError
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC, TopicConfig, null_value
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.storage.errors import StorageError
from tidelog.storage.log_names import CLUSTER_METADATA

# What a topic in a request takes in memory until it is created, about, and each assignment of a partition.
TOPIC_BYTES = 1000
ASSIGNMENT_BYTES = 300
# An answer describes the options of so many topics, 2 KB each; of the others it says why not, as Kafka does of those
# whose options a client may not see.
MOST_DESCRIBED = 1000
NOT_CREATED = "not created, the broker stops"

_FAILURES: Final = {
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    TopicNamesCollide: ErrorCode.INVALID_TOPIC_EXCEPTION,
    ConfigError: ErrorCode.INVALID_CONFIG,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    BrokerStops: ErrorCode.NOT_CONTROLLER,
}


def handle(
    session: Session, request: CreateTopicsRequest, _version: int
) -> CreateTopicsResponse | Later | Work[CreateTopicsResponse]:
    """Create the topics on the maintenance thread."""
    broker = session.broker
    deadline_ms = session.broker.clock.monotonic_ms() + request.timeout_ms
    size_bytes = sum(TOPIC_BYTES + len(topic.assignments) * ASSIGNMENT_BYTES for topic in request.topics)
    work = _create_all(broker, request, deadline_ms)
    return broker.change(
        session, size_bytes, work, partial(_turn_away, {topic.name for topic in request.topics})
    )


async def _turn_away(names: set[str]) -> CreateTopicsResponse:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    results = await made_of_many(lambda name: _failure(name, code, TOO_MANY_WAIT), list(names))
    return CreateTopicsResponse(topics=results)


def _create_all(broker: Broker, request: CreateTopicsRequest, deadline_ms: int) -> Task[CreateTopicsResponse]:
    yield
    times = Counter(topic.name for topic in request.topics)
    accepted: dict[str, str] = {}  # by their names in metrics
    results: dict[str, CreatableTopicResult] = {}
    waiting: list[NewTopic] = []
    waiting_partitions = 0
    for wanted in {topic.name: topic for topic in request.topics}.values():
        is_dropped = yield
        try:
            if is_dropped:
                raise BrokerStops(NOT_CREATED)
            if broker.clock.monotonic_ms() >= deadline_ms:
                message = f"not begun within timeout_ms={request.timeout_ms}, and not created"
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, message)
            if times[wanted.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new, config = _accept(broker, wanted, accepted)
        except (Refused, ConfigError, TopicExists, TopicNamesCollide, BrokerStops) as error:
            results[wanted.name] = _refusal(wanted.name, error)
            continue
        result = results[wanted.name] = _success(new)
        if len(results) <= MOST_DESCRIBED:
            result.configs = _describe(broker, config)
        else:
            result.topic_config_error_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.validate_only:
            continue
        waiting.append(new)
        waiting_partitions += new.partitions
        if waiting_partitions >= MADE_AT_ONCE:
            yield from _create(broker, waiting, results)
            waiting, waiting_partitions = [], 0
    yield from _create(broker, waiting, results)
    return CreateTopicsResponse(topics=list(results.values()))


def _accept(broker: Broker, wanted: CreatableTopic, accepted: dict[str, str]) -> tuple[NewTopic, TopicConfig]:
    """Return what is to be created, and its options; raise what keeps it from being created."""
    problem = name_problem(wanted.name)
    if problem:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if wanted.name == CLUSTER_METADATA:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{CLUSTER_METADATA} is the log of Kafka's controllers")
    broker.topics.check_new(wanted.name)
    if other := accepted.get(metric_name(wanted.name)):
        raise TopicNamesCollide(wanted.name, other)
    partitions = _partition_count(broker, wanted)
    config = broker.topics.checked(wanted.name, _options(wanted))
    accepted[metric_name(wanted.name)] = wanted.name
    return NewTopic(wanted.name, partitions, dict(config.overrides)), config


def _create(broker: Broker, waiting: list[NewTopic], results: dict[str, CreatableTopicResult]) -> Task[None]:
    """Create topics that were accepted, and say in their results what has become of them."""
    if not waiting:
        return
    if (yield):
        for new in waiting:
            results[new.name] = _refusal(new.name, BrokerStops(NOT_CREATED))
        return
    outcomes = yield from broker.create_topics(waiting)
    for name, outcome in outcomes.items():
        if isinstance(outcome, Topic):
            results[name].topic_id = outcome.id
        else:
            results[name] = _refusal(name, outcome)


def _success(new: NewTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=new.name,
        topic_id=bytes(16),
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=new.partitions,
        replication_factor=1,
        configs=[],
    )


def _refusal(name: str, error: Exception) -> CreatableTopicResult:
    if isinstance(error, Refused):
        return _failure(name, error.code, str(error))
    if isinstance(error, ConfigError):
        return _failure(name, ErrorCode.INVALID_CONFIG, error.answer)
    code = next(code for kind, code in _FAILURES.items() if isinstance(error, kind))
    return _failure(name, code, str(error))


def _partition_count(broker: Broker, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return _assigned_partitions(broker, wanted)
    is_tolerated = broker.config.tidelog_tolerate_replication_factor and wanted.replication_factor > 1
    if wanted.replication_factor not in (-1, 1) and not is_tolerated:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, _replication_problem(wanted.replication_factor))
    count = broker.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    if count < 1:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
    _check_count(count)
    return count


def _replication_problem(factor: int) -> str:
    if factor < 1:
        return "Replication factor must be larger than 0, or -1 to use the default value."
    return (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        "reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned. "
        f"It must be 1 (or -1): {TOLERABLE}"
    )


def _check_count(count: int) -> None:
    if count > MAX_PARTITIONS_PER_TOPIC:
        message = f"{count} partitions: a topic has {MAX_PARTITIONS_PER_TOPIC} at most"
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)


def _assigned_partitions(broker: Broker, wanted: CreatableTopic) -> int:
    """Check a manual assignment: every partition from 0, each on this node."""
    for name, value in (
        ("replication factor", wanted.replication_factor),
        ("numPartitions", wanted.num_partitions),
    ):
        if value != -1:
            message = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
    assigned = {entry.partition_index: entry.broker_ids for entry in wanted.assignments}
    if sorted(assigned) != list(range(len(wanted.assignments))):
        message = "partitions should be a consecutive 0-based integer sequence, and each named once"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for nodes in assigned.values():
        broker.check_assignment(nodes)
    _check_count(len(assigned))
    return len(assigned)


def _options(wanted: CreatableTopic) -> dict[str, str]:
    options = {}
    for config in wanted.configs:
        if config.value is None:
            name = config.name[:MOST_OPTION_LENGTH]
            raise ConfigError(name, null_value([name]))
        check_option(config.name, config.value)
        options[config.name] = config.value
    return options


def _describe(broker: Broker, config: TopicConfig) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=option.name,
            value=option.text,
            read_only=False,
            config_source=option.source,
            is_sensitive=False,
        )
        for option in config.describe(broker.config.synonyms)
    ]


def _failure(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=code,
        error_message=message,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )
