"""Administration: topics, options, deletion of records, and the disks of brokers."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import Cluster, Partition, by_topic, check
from tidelog.client.connection import Connection
from tidelog.client.errors import BrokerError, Retriable, UnknownTopic, explain
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.protocol.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER_DEFAULT: Final = -1
HIGH_WATERMARK: Final = -1
# In DescribeConfigs, the source of an option that has its default.
DEFAULT_SOURCE: Final = 5
_TIMEOUT_MS: Final = 20_000
_NOT_DELETED: Final = "records can be deleted only if cleanup.policy includes delete"
_DESCRIBED_AT_ONCE: Final = 100
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_BY_ID: Final = 6  # from this version on, DeleteTopics has another list of topics, which takes ids too


class Resource(NamedTuple):
    """A topic, or a broker by its id: both have options."""

    topic: str | None
    node_id: int | None = None

    def __str__(self) -> str:
        """Return `topic NAME` or `broker ID`."""
        return f"broker {self.node_id}" if self.topic is None else f"topic {self.topic}"


def create_topic(cluster: Cluster, name: str, partitions: int, options: Mapping[str, str]) -> int:
    """Create a topic; return the number of its partitions. BrokerError."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=BROKER_DEFAULT,
        configs=[CreatableTopicConfig(name=option, value=value) for option, value in options.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
    what = f"topic {name or repr(name)} was not created"
    answer = _ask_controller(cluster, what, lambda connection: connection.ask(CREATE_TOPICS, request).topics)
    return partitions if answer.num_partitions < 0 else answer.num_partitions


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic; BrokerError."""

    def ask(connection: Connection) -> Any:
        by_id = connection.version(DELETE_TOPICS) >= _BY_ID
        named: dict[str, Any] = (
            {"topics": [DeleteTopicState(name=name)]} if by_id else {"topic_names": [name]}
        )
        return connection.ask(DELETE_TOPICS, DeleteTopicsRequest(timeout_ms=_TIMEOUT_MS, **named)).responses

    _ask_controller(cluster, f"topic {name} was not deleted", ask)


def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Raise the number of a topic's partitions to `count`; BrokerError."""
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS, validate_only=False)
    what = f"topic {name} was not changed"
    _ask_controller(cluster, what, lambda connection: connection.ask(CREATE_PARTITIONS, request).results)


def describe_options(cluster: Cluster, resource: Resource) -> dict[str, Any]:
    """Return all options of a topic or broker by name, as in DescribeConfigs; UnknownTopic, BrokerError."""
    wanted = DescribeConfigsResource(**_named(resource), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted])

    def ask() -> Any:
        (answer,) = _of(cluster, resource).ask(DESCRIBE_CONFIGS, request).results
        _refuse(answer, str(resource), resource.topic)
        return answer.configs

    found = cluster.retried(f"options of {resource}", ask)
    return {each.name: each for each in sorted(found, key=lambda each: str(each.name))}


def described(cluster: Cluster, topics: Collection[str]) -> dict[str, list[Any]]:
    """Return the options of topics with synonyms, as in DescribeConfigs, without missing topics. BrokerError."""
    return {
        name: options
        for at in range(0, len(topics), _DESCRIBED_AT_ONCE)
        for name, options in _described(
            cluster, [Resource(name) for name in list(topics)[at : at + _DESCRIBED_AT_ONCE]]
        ).items()
    }


def described_broker(cluster: Cluster, node_id: int) -> list[Any]:
    """Return the options of a broker with their synonyms, as in DescribeConfigs. BrokerError."""
    return _described(cluster, [Resource(None, node_id)])[str(node_id)]


def _described(cluster: Cluster, resources: list[Resource]) -> dict[str, list[Any]]:
    wanted = [DescribeConfigsResource(**_named(each), configuration_keys=None) for each in resources]
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=True)
    answer = cluster.retried("options", lambda: _of(cluster, resources[0]).ask(DESCRIBE_CONFIGS, request))
    found: dict[str, list[Any]] = {}
    for each in answer.results:
        if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _refuse(each, f"options of {each.resource_name}")
            found[each.resource_name] = each.configs
    return found


def topic_options(cluster: Cluster, topic: str) -> dict[str, str]:
    """Return the values of a topic's options; none if the broker does not return them."""
    wanted = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[wanted])
    answer = cluster.retried(
        f"options of {topic}", lambda: cluster.any_broker().ask(DESCRIBE_CONFIGS, request)
    )
    return {each.name: each.value or "" for result in answer.results for each in result.configs}


def alter_options(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set options of a topic or broker, and delete those with value None; UnknownTopic, BrokerError."""
    steps = [
        AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in changes.items()
    ]
    wanted = AlterConfigsResource(**_named(resource), configs=steps)
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    connection = cluster.retried(str(resource), lambda: _of(cluster, resource))
    (answer,) = connection.ask(INCREMENTAL_ALTER_CONFIGS, request).responses
    _refuse(answer, f"{resource} was not changed", resource.topic)


def _named(resource: Resource) -> dict[str, Any]:
    if resource.topic is None:
        return {"resource_type": _BROKER, "resource_name": str(resource.node_id)}
    return {"resource_type": _TOPIC, "resource_name": resource.topic}


def _of(cluster: Cluster, resource: Resource) -> Any:
    return cluster.any_broker() if resource.node_id is None else cluster.node(resource.node_id)


def _ask_controller(cluster: Cluster, what: str, ask: Callable[[Connection], Any]) -> Any:
    """Send a request to the controller, and return its one result; if the controller has moved, ask the next one."""

    def asked() -> Any:
        (answer,) = ask(cluster.retried("the controller", cluster.controller))
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            raise Retriable(answer.error_message or explain(answer.error_code))
        _refuse(answer, what)
        return answer

    return cluster.retried(what, asked, repeats_lost=False)


def _refuse(answer: Any, what: str, topic: str | None = None) -> None:
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        raise UnknownTopic(topic, f"there is no topic {topic}")
    if answer.error_code:
        raise BrokerError(what, answer.error_code, answer.error_message)


def log_dirs(cluster: Cluster, topics: Mapping[str, Collection[int]] | None) -> dict[int, list[Any]]:
    """Return the data folders of each broker, as in DescribeLogDirs, with some topics or all."""
    wanted = None
    if topics is not None:
        wanted = [
            DescribableLogDirTopic(topic=name, partitions=list(numbers)) for name, numbers in topics.items()
        ]
    request = DescribeLogDirsRequest(topics=wanted)
    return cluster.retried(
        "log dirs",
        lambda: {
            number: cluster.node(number).ask(DESCRIBE_LOG_DIRS, request).results
            for number in cluster.brokers()
        },
    )


def delete_records(cluster: Cluster, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
    """Delete the records before an offset of each partition; return the new first offsets. BrokerError."""
    return cluster.retried("delete records", lambda: _deleted(cluster, wanted))


def _deleted(cluster: Cluster, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for connection, partitions in cluster.by_leader(wanted).items():
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=each.partition, offset=wanted[each])
                        for each in some
                    ],
                )
                for name, some in by_topic(partitions).items()
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        for topic in connection.ask(DELETE_RECORDS, request).topics:
            for answer in topic.partitions:
                key = Partition(topic.name, answer.partition_index)
                what = f"topic {key.topic} partition {key.partition}"
                if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    raise BrokerError(what, answer.error_code)
                # This response has no field for a message.
                if answer.error_code == ErrorCode.POLICY_VIOLATION:
                    raise BrokerError(what, answer.error_code, f"{_NOT_DELETED} (POLICY_VIOLATION, 44)")
                check(answer.error_code, what)
                found[key] = answer.low_watermark
    return found
