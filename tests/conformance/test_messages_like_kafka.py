"""Error messages that tools and scripts search for: ours begin with Kafka's, and may go on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.test_administration_like_kafka import BROKER, TOPIC, until_heard
from tests.conformance.test_broker_like_kafka import Sides, compare, made, sides, topic
from tests.support.java import needs_java
from tests.support.raw_client import RawClient
from tidelog.protocol.messages import consumer_group_heartbeat as heartbeat
from tidelog.protocol.messages import create_partitions as partitions
from tidelog.protocol.messages import create_topics as create
from tidelog.protocol.messages import delete_topics as deletion
from tidelog.protocol.messages import incremental_alter_configs as alter

__all__ = ["sides", "topic"]  # fixtures

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e]

Said = tuple[int, str | None]
SET, APPEND = 0, 2


def created(client: RawClient, name: str, count: int = 1, factor: int = 1, **more: Any) -> Said:
    configs = [
        create.CreatableTopicConfig(name=option, value=value)
        for option, value in more.get("configs", {}).items()
    ]
    assignments = [
        create.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
        for index, nodes in more.get("assignments", ())
    ]
    topic = create.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=assignments,
        configs=configs,
    )
    request = create.CreateTopicsRequest(topics=[topic] * more.get("times", 1), timeout_ms=20_000)
    answer = client.ask(create.CREATE_TOPICS.key, 7, request).topics[0]
    return answer.error_code, answer.error_message


def altered(client: RawClient, type_: int, name: str, *options: tuple[str, int, str | None]) -> Said:
    configs = [
        alter.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in options
    ]
    resource = alter.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    request = alter.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = client.ask(alter.INCREMENTAL_ALTER_CONFIGS.key, 1, request).responses
    return answer.error_code, answer.error_message


def grown(client: RawClient, name: str, count: int) -> Said:
    topic = partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=20_000, validate_only=False)
    (answer,) = client.ask(partitions.CREATE_PARTITIONS.key, 3, request).results
    return answer.error_code, answer.error_message


def deleted(client: RawClient, name: str | None, topic_id: bytes = bytes(16)) -> Said:
    state = deletion.DeleteTopicState(name=name, topic_id=topic_id)
    request = deletion.DeleteTopicsRequest(topics=[state], timeout_ms=20_000)
    (answer,) = client.ask(deletion.DELETE_TOPICS.key, 6, request).responses
    return answer.error_code, answer.error_message


def beaten(client: RawClient, **said: Any) -> Said:
    given = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
        "subscribed_topic_names": ["t"],
    }
    request = heartbeat.ConsumerGroupHeartbeatRequest(**{**given, **said})
    answer = client.ask(heartbeat.CONSUMER_GROUP_HEARTBEAT.key, 1, request)
    return answer.error_code, answer.error_message


def of_topics(client: RawClient, topic: str) -> Iterator[Said]:
    yield created(client, topic)
    until_heard(client, topic)
    yield created(client, topic)
    yield created(client, topic.replace("-", "_"))
    for name in ("", ".", "..", "a/b", "a" * 250):
        yield created(client, name)
    other = f"{topic}-other"
    yield created(client, other, times=2)
    yield created(client, other, count=0)
    yield created(client, other, factor=0)
    yield created(client, other, factor=2)
    yield created(client, other, assignments=[(0, [1])])
    yield created(client, other, -1, assignments=[(0, [1])])
    for nodes in ([], [2], [1, 1]):
        yield created(client, other, -1, -1, assignments=[(0, nodes)])
    yield created(client, other, -1, -1, assignments=[(1, [1])])
    for option, value in (
        ("no.such", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("max.message.bytes", "many"),
        ("min.cleanable.dirty.ratio", "2.0"),
        ("min.cleanable.dirty.ratio", "much"),
        ("compression.type", "best"),
        ("preallocate", "maybe"),
        ("cleanup.policy", "shred"),
        ("retention.ms", None),
    ):
        yield created(client, other, configs={option: value})
    yield created(client, other, configs={"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    yield grown(client, topic, 1)
    yield grown(client, topic, 0)
    yield grown(client, other, 2)
    yield deleted(client, other)
    yield deleted(client, None, b"0123456789abcdef")
    yield deleted(client, None)


def of_options(client: RawClient, topic: str) -> Iterator[Said]:
    created(client, topic)
    until_heard(client, topic)
    yield altered(client, TOPIC, f"{topic}-none", ("retention.ms", SET, "1"))
    yield altered(client, TOPIC, topic, ("no.such", SET, "1"))
    yield altered(client, TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield altered(client, TOPIC, topic, ("retention.ms", SET, None))
    yield altered(client, TOPIC, topic, ("retention.ms", SET, "soon"))
    yield altered(client, TOPIC, topic, ("retention.ms", APPEND, "1"))
    yield altered(client, BROKER, "7", ("log.retention.ms", SET, "1"))
    yield altered(client, BROKER, "1", ("node.id", SET, "7"))
    yield altered(client, BROKER, "1", ("log.segment.bytes", SET, "many"))
    yield altered(client, 99, "x", ("a", SET, "1"))


def of_groups(client: RawClient, _topic: str) -> Iterator[Said]:
    yield beaten(client, group_id="")
    yield beaten(client, member_id="")
    yield beaten(client, instance_id="")
    yield beaten(client, rack_id="")
    yield beaten(client, member_epoch=-3)
    yield beaten(client, member_epoch=-2)
    yield beaten(client, rebalance_timeout_ms=-1)
    yield beaten(client, topic_partitions=None)
    yield beaten(client, subscribed_topic_names=None)
    yield beaten(client, server_assignor="fair")


def test_messages_begin_with_kafkas(sides: Sides, topic: str) -> None:
    different = []
    for script in (of_topics, of_options, of_groups):
        name = f"{topic}-{script.__name__}"
        theirs = sides.ask_kafka(lambda client, script=script, name=name: list(script(client, name)))
        with RawClient(sides.ours) as client:
            ours = list(script(client, name))
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            begins = (our[1] or "").startswith((their[1] or "").removesuffix("."))
            if our[0] != their[0] or not begins:
                different.append(f"{script.__name__}[{number}]: we say {our}, Kafka {their}")
    assert not different, "\n".join(different)


# Deletions are compared in this module: topics that come after one begin a later leader epoch than Kafka's.


def test_what_has_not_begun_in_time(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        late = create.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        said = []
        for timeout_ms in (0, -1):
            request = create.CreateTopicsRequest(topics=[late], timeout_ms=timeout_ms)
            said.append(client.ask(create.CREATE_TOPICS.key, 7, request).topics[0].error_code)
        made(client, topic)
        request = deletion.DeleteTopicsRequest(topic_names=[topic], timeout_ms=0)
        said.append(client.ask(deletion.DELETE_TOPICS.key, 5, request).responses[0].error_code)
        return said

    compare(sides, script)


def test_delete_topics_answers(sides: Sides, topic: str) -> None:
    none = bytes(16)

    def script(client: RawClient) -> Any:
        names = [f"{topic}-{letter}" for letter in "abcd"]
        for name in names:
            made(client, name)
        ids = {row.name: row.topic_id for row in client.metadata(*names).topics}
        known = {topic_id: name for name, topic_id in ids.items()} | {none: "none", b"?" * 16: "unknown"}

        def delete(*wanted: tuple[str | None, bytes]) -> Any:
            states = [deletion.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in wanted]
            request = deletion.DeleteTopicsRequest(topics=states, timeout_ms=20_000)
            rows = client.ask(deletion.DELETE_TOPICS.key, 6, request).responses
            return sorted((row.error_code, str(row.name), known[row.topic_id]) for row in rows)

        a, b, c, d = names
        return [
            delete((a, none), (a, none)),
            delete((None, ids[a]), (None, ids[a])),
            delete((None, ids[a]), (a, none)),
            delete((a, ids[a])),
            delete((None, none), (None, none)),
            delete(("nowhere", none), ("nowhere", none)),
            delete((None, b"?" * 16), (None, b"?" * 16)),
            delete((None, b"?" * 16)),
            delete(("", none)),
            delete((a, ids[a]), (None, none), (b, none), (c, none), (c, none), (None, ids[d])),
        ]

    compare(sides, script)
