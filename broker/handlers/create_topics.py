"""CreateTopics.

Versions: 0-7.
Behaviour: each topic succeeds or fails on its own, with a message. When the broker responds, the topic is durable and
accepts writes. -1 partitions means `num.partitions`. The replication factor must be 1 or -1. With
`tidelog.tolerate.replication.factor` a larger one becomes 1, which the response shows, and an assignment may name other
nodes. `validate_only` reports what would happen. A name that differs from an existing one only in '.' and '_' is
invalid, and so is Kafka's own `__cluster_metadata`. A topic whose creation has not begun within `timeout_ms` is not
created and gets REQUEST_TIMED_OUT. If the broker stops, the error is NOT_CONTROLLER, and clients retry. Options without
effect here are stored, described and logged. A response has the options of at most 1,000 topics. The value of an option
has at most 1,000 characters.
"""

from tidelog.broker.broker import Broker
from tidelog.broker.codes import Refused
from tidelog.broker.session import Session
from tidelog.broker.topic_changes import answer_for, make_many
from tidelog.broker.topic_rules import (
    MOST_OPTION_LENGTH,
    TopicNamesCollide,
    check_option,
    check_partition_count,
    metric_name,
    name_problem,
)
from tidelog.broker.topics import NewTopic, Topic
from tidelog.config.contradictions import TOLERABLE
from tidelog.config.errors import ConfigError
from tidelog.config.topic_options import TopicConfig, null_value
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.topic_names import CLUSTER_METADATA

# The approximate memory of a topic in a waiting request, and of each assignment of a partition.
TOPIC_BYTES = 1000
ASSIGNMENT_BYTES = 300
# An answer has the options of this many topics, 2 KB each. The others get an error code in their place, as in Kafka
# topics do whose options a client may not see.
MOST_DESCRIBED = 1000


async def handle(session: Session, request: CreateTopicsRequest, _version: int) -> CreateTopicsResponse:
    """Create the topics on the maintenance thread."""
    size_bytes = sum(TOPIC_BYTES + len(topic.assignments) * ASSIGNMENT_BYTES for topic in request.topics)
    deadline_ms = session.broker.clock.monotonic_ms() + request.timeout_ms
    task = _create_all(session.broker, request, deadline_ms)
    names = list({topic.name for topic in request.topics})
    return CreateTopicsResponse(
        topics=await session.broker.change(session, size_bytes, task, names, _failure)
    )


async def _create_all(
    broker: Broker, request: CreateTopicsRequest, deadline_ms: int
) -> list[CreatableTopicResult]:
    results = {topic.name: _success(topic.name) for topic in request.topics}
    by_metric_name: dict[str, str] = {}
    described = 0

    def accept(wanted: CreatableTopic) -> tuple[NewTopic, int]:
        nonlocal described
        new, config = _accept(broker, wanted, by_metric_name)
        result = results[new.name]
        result.num_partitions = new.partitions
        if described < MOST_DESCRIBED:
            described += 1
            result.configs = _describe(broker, config)
        else:
            result.topic_config_error_code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return new, new.partitions

    make = None if request.validate_only else broker.create_topics
    outcomes = await make_many(broker, request.topics, deadline_ms, accept, make, "not created")
    for name, outcome in outcomes.items():
        if isinstance(outcome, Topic):
            results[name].topic_id = outcome.id
        else:
            results[name] = _failure(name, *answer_for(outcome))
    return list(results.values())


def _accept(broker: Broker, wanted: CreatableTopic, accepted: dict[str, str]) -> tuple[NewTopic, TopicConfig]:
    """Return the topic to create, and its options. Raise an error if it is refused."""
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


def _success(name: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=bytes(16),
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=-1,
        replication_factor=1,
        configs=[],
    )


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
    check_partition_count(count)
    return count


def _replication_problem(factor: int) -> str:
    if factor < 1:
        return "Replication factor must be larger than 0, or -1 to use the default value."
    return (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        "reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned. "
        f"It must be 1 (or -1): {TOLERABLE}"
    )


def _assigned_partitions(broker: Broker, wanted: CreatableTopic) -> int:
    """Check a manual assignment, which must have each partition from 0 on, on this node; return their number."""
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
    check_partition_count(len(assigned))
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
