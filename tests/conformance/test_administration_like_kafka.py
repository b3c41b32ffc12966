"""The requests of administration put to Apache Kafka and to us, as in test_broker_like_kafka.py."""

import itertools
from typing import Any

import pytest

from tests.conformance.test_broker_like_kafka import SETTINGS, Sides, await_code, compare, made, sides, topic
from tests.support.java import needs_java
from tests.support.raw_client import RawClient
from tests.support.workload import START_MS
from tidelog.protocol.messages import alter_configs as alter
from tidelog.protocol.messages import alter_partition_reassignments as reassign
from tidelog.protocol.messages import create_partitions as partitions
from tidelog.protocol.messages import delete_records as deletion
from tidelog.protocol.messages import describe_configs as configs
from tidelog.protocol.messages import describe_log_dirs as log_dirs
from tidelog.protocol.messages import describe_producers as producers
from tidelog.protocol.messages import describe_quorum as quorum
from tidelog.protocol.messages import describe_topic_partitions as topic_partitions
from tidelog.protocol.messages import elect_leaders as elect
from tidelog.protocol.messages import incremental_alter_configs as incremental
from tidelog.protocol.messages import list_config_resources as resources
from tidelog.protocol.messages import list_partition_reassignments as reassignments
from tidelog.protocol.records.build import Record, build_batch

__all__ = ["SETTINGS", "sides", "topic"]  # fixtures

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e]

TOPIC, BROKER = 2, 4
DYNAMIC_BROKER, STATIC = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_numbers = itertools.count()


def until_heard(client: RawClient, topic: str) -> None:
    """Wait until Kafka's broker has heard of what its controller has answered: it hears of a new topic later still."""
    made(client, f"{topic}-{next(_numbers)}")


def two_records() -> bytes:
    return bytes(build_batch([Record(number, START_MS, None, b"v") for number in range(2)]))


def test_create_partitions_answers(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, 2)

        def grow(*wanted: tuple[str, int, Any], validate_only: bool = False) -> Any:
            topics = [
                partitions.CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=nodes
                    and [partitions.CreatePartitionsAssignment(broker_ids=each) for each in nodes],
                )
                for name, count, nodes in wanted
            ]
            request = partitions.CreatePartitionsRequest(
                topics=topics, timeout_ms=20_000, validate_only=validate_only
            )
            answer = client.ask(partitions.CREATE_PARTITIONS.key, 3, request)
            return sorted((row.name, row.error_code) for row in answer.results)

        return [
            grow((topic, 3, None), validate_only=True),
            grow((topic, 2, None)),
            grow((topic, 1, None)),
            grow((topic, 0, None)),
            grow((topic, -1, None)),
            grow((f"{topic}-none", 3, None)),
            grow((topic, 4, [[1]])),
            grow((topic, 3, [[2]])),
            grow((topic, 3, [[1, 1]])),
            grow((topic, 3, [[]])),
            grow((topic, 3, [])),
            grow((topic, 3, None), (topic, 4, None)),
            grow((topic, 3, [[1]])),
            grow((topic, 5, None)),
        ]

    compare(sides, script)


def test_delete_records_answers(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)
        made(client, f"{topic}-compact", cleanup_policy="compact")
        made(client, f"{topic}-both", cleanup_policy="compact,delete")
        for _ in range(2):
            assert client.produce(topic, two_records()).error_code == 0

        def delete(name: str, *wanted: tuple[int, int]) -> Any:
            asked = [
                deletion.DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in wanted
            ]
            request = deletion.DeleteRecordsRequest(
                topics=[deletion.DeleteRecordsTopic(name=name, partitions=asked)], timeout_ms=20_000
            )
            rows = client.ask(deletion.DELETE_RECORDS.key, 2, request).topics
            return [(each.error_code, each.low_watermark) for row in rows for each in row.partitions]

        return [
            delete(topic, (0, 5)),
            delete(topic, (0, -2)),
            delete(topic, (0, 0)),
            delete(topic, (0, 1)),
            delete(topic, (0, 0)),
            delete(topic, (1, 0)),
            delete(f"{topic}-none", (0, 0)),
            delete(f"{topic}-compact", (0, -1)),
            delete(f"{topic}-both", (0, -1)),
            delete(topic, (0, -1)),
            client.list_offsets(topic, -2).offset,
        ]

    compare(sides, script)


def options(client: RawClient, type_: int, name: str, *keys: str) -> Any:
    resource = configs.DescribeConfigsResource(
        resource_type=type_, resource_name=name, configuration_keys=list(keys) or None
    )
    request = configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (row,) = client.ask(configs.DESCRIBE_CONFIGS.key, 4, request).results
    return row.error_code, sorted(
        (
            each.name,
            each.value,
            each.config_source,
            each.read_only,
            [(s.name, s.value, s.source) for s in each.synonyms],
        )
        for each in row.configs
    )


def change(client: RawClient, type_: int, name: str, *changes: Any, validate_only: bool = False) -> int:
    wanted = [
        incremental.AlterableConfig(name=option, config_operation=operation, value=value)
        for option, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=type_, resource_name=name, configs=wanted)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = client.ask(incremental.INCREMENTAL_ALTER_CONFIGS.key, 1, request).responses
    code: int = row.error_code
    return code


def test_options_of_topics_are_changed(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, max_message_bytes="100000")

        def on(*changes: Any, validate_only: bool = False) -> Any:
            code = change(client, TOPIC, topic, *changes, validate_only=validate_only)
            until_heard(client, topic)
            return code, options(
                client, TOPIC, topic, "max.message.bytes", "cleanup.policy", "retention.bytes"
            )

        return [
            on(("retention.bytes", SET, "7"), validate_only=True),
            on(("retention.bytes", SET, "7")),
            on(("retention.bytes", SET, " 8 ")),
            on(("retention.bytes", DELETE, None), ("max.message.bytes", DELETE, "1")),
            on(("retention.bytes", DELETE, None)),
            on(("cleanup.policy", APPEND, "compact")),
            on(("cleanup.policy", APPEND, "compact")),
            on(("cleanup.policy", SUBTRACT, "delete")),
            on(("cleanup.policy", SUBTRACT, "compact")),
            on(("cleanup.policy", SET, "")),
            on(("cleanup.policy", SET, "compact,compact")),
            on(("cleanup.policy", DELETE, None)),
            on(("retention.bytes", SET, "soon")),
            on(("retention.bytes", SET, None)),
            on(("retention.bytes", APPEND, "1")),
            on(("retention.bytes", SUBTRACT, "1")),
            on(("no.such", SET, "1")),
            on(("no.such", DELETE, None)),
            on(("retention.bytes", SET, "1"), ("retention.bytes", SET, "2")),
            on(("retention.bytes", SET, "1"), ("max.message.bytes", SET, "soon")),
            on(),
            change(client, TOPIC, f"{topic}-none", ("retention.bytes", SET, "1")),
            change(client, TOPIC, topic, ("retention.ms", SET, "5")),
            until_heard(client, topic),
            options(client, TOPIC, topic, "retention.ms"),
        ]

    compare(sides, script)


def test_options_of_the_broker_are_changed(sides: Sides) -> None:
    option = "log.segment.bytes"

    def script(client: RawClient) -> Any:
        def told() -> Any:
            return [options(client, BROKER, node, option)[1] for node in ("1", "")]

        def on(name: str, operation: int, value: str | None, expected: str) -> Any:
            code = change(client, BROKER, name, (option, operation, value))
            # Kafka answers before its brokers have heard of it.
            await_code(0, lambda: told()[0][0][1] != expected)
            return code, told()

        said = [
            on("", SET, "8000000", "8000000"),
            on("1", SET, "9000000", "9000000"),
            on("1", SET, "many", "9000000"),
            on("1", SET, None, "9000000"),
            on("1", DELETE, None, "8000000"),
            on("", DELETE, None, "1073741824"),
            change(client, BROKER, "1", ("node.id", SET, "7")),
            change(client, BROKER, "x", (option, SET, "8000000")),
        ]
        names = ("node.id", "log.dir", "num.partitions", "max.connections", "log.retention.ms", "log.roll.ms")
        return said, [(row[0], row[3]) for row in options(client, BROKER, "1", *names)[1]]

    compare(sides, script)


def test_a_span_is_described_under_each_of_its_names(sides: Sides) -> None:
    names = "log.retention.ms", "log.retention.hours", "log.retention.minutes", "log.roll.hours"

    def script(client: RawClient) -> Any:
        def on(operation: int, value: str | None, source: int) -> Any:
            code = change(client, BROKER, "1", ("log.retention.ms", operation, value))
            await_code(source, lambda: options(client, BROKER, "1", names[0])[1][0][2])
            return code, options(client, BROKER, "1", *names[1:])

        return on(SET, "90001", DYNAMIC_BROKER), on(DELETE, None, STATIC)

    compare(sides, script)


def test_options_are_set_anew(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, max_message_bytes="100000")

        def replace(name: str, values: dict[str, str | None], validate_only: bool = False) -> Any:
            wanted = [alter.AlterableConfig(name=option, value=value) for option, value in values.items()]
            resource = alter.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=wanted)
            request = alter.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            (row,) = client.ask(alter.ALTER_CONFIGS.key, 2, request).responses
            until_heard(client, topic)
            return row.error_code, options(client, TOPIC, topic, "max.message.bytes", "retention.bytes")

        return [
            replace(topic, {"retention.bytes": "7"}, validate_only=True),
            replace(topic, {"retention.bytes": "7"}),
            replace(topic, {"retention.bytes": "soon"}),
            replace(topic, {"retention.bytes": None}),
            replace(topic, {"no.such": "1"}),
            replace(f"{topic}-none", {}),
            replace(topic, {}),
        ]

    compare(sides, script)


def test_what_one_node_tells(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic, 2)
        assert client.produce(topic, two_records()).error_code == 0
        none = f"{topic}-none"
        wanted = [
            reassign.ReassignablePartition(partition_index=index, replicas=nodes)
            for index, nodes in ((0, [1]), (1, [2]), (2, [1]))
        ]
        cancelled = [reassign.ReassignablePartition(partition_index=0, replicas=None)]
        empty = [reassign.ReassignablePartition(partition_index=0, replicas=[])]
        moves = [
            client.ask(
                reassign.ALTER_PARTITION_REASSIGNMENTS.key,
                1,
                reassign.AlterPartitionReassignmentsRequest(
                    topics=[reassign.ReassignableTopic(name=name, partitions=asked)]
                ),
            )
            for name, asked in ((topic, wanted), (topic, cancelled), (topic, empty), (none, cancelled))
        ]
        elections = [
            client.ask(
                elect.ELECT_LEADERS.key,
                2,
                elect.ElectLeadersRequest(
                    election_type=kind,
                    topic_partitions=[elect.TopicPartitions(topic=name, partitions=[0, 9])],
                    timeout_ms=20_000,
                ),
            )
            for kind in (0, 1)
            for name in (topic, none)
        ]
        moving = client.ask(
            reassignments.LIST_PARTITION_REASSIGNMENTS.key,
            0,
            reassignments.ListPartitionReassignmentsRequest(topics=None),
        )
        asked = [log_dirs.DescribableLogDirTopic(topic=name, partitions=[0, 9]) for name in (topic, none)]
        (sizes,) = client.ask(
            log_dirs.DESCRIBE_LOG_DIRS.key, 4, log_dirs.DescribeLogDirsRequest(topics=asked)
        ).results
        sent = client.ask(
            producers.DESCRIBE_PRODUCERS.key,
            0,
            producers.DescribeProducersRequest(
                topics=[producers.TopicRequest(name=name, partition_indexes=[0, 9]) for name in (topic, none)]
            ),
        )
        return [
            [
                (
                    answer.error_code,
                    [
                        (part.partition_index, part.error_code)
                        for row in answer.responses
                        for part in row.partitions
                    ],
                )
                for answer in moves
            ],
            [
                (
                    answer.error_code,
                    sorted(
                        (part.partition_id, part.error_code)
                        for row in answer.replica_election_results
                        for part in row.partition_result
                    ),
                )
                for answer in elections
            ],
            (moving.error_code, moving.topics),
            (
                sizes.error_code,
                [
                    (
                        row.name,
                        [
                            (p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
                            for p in row.partitions
                        ],
                    )
                    for row in sizes.topics
                ],
            ),
            [
                (row.name, part.partition_index, part.error_code, part.active_producers)
                for row in sent.topics
                for part in row.partitions
            ],
        ]

    compare(sides, script)


def test_topics_are_described_in_pages(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        for letter, count in (("a", 2), ("b", 3)):
            made(client, f"{topic}-{letter}", count)

        def page(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Any:
            request = topic_partitions.DescribeTopicPartitionsRequest(
                topics=[topic_partitions.TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor and topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
            )
            answer = client.ask(topic_partitions.DESCRIBE_TOPIC_PARTITIONS.key, 0, request)
            following = answer.next_cursor
            return [
                (
                    row.error_code,
                    row.name,
                    row.is_internal,
                    row.topic_authorized_operations,
                    [
                        (
                            p.partition_index,
                            p.leader_id,
                            p.replica_nodes,
                            p.eligible_leader_replicas,
                            p.last_known_elr,
                        )
                        for p in row.partitions
                    ],
                )
                for row in answer.topics
            ], following and (following.topic_name, following.partition_index)

        a, b, none = f"{topic}-a", f"{topic}-b", f"{topic}-none"
        return [
            page([b, a], 2000),
            page([b, a], 1),
            page([b, a], 2),
            page([b, a], 3),
            page([b, a], 0),
            page([b, a, none], 2, (a, 1)),
            page([a, f"{a}-none", b], 2),
            page([a, f"{a}-none", b], 2, (f"{a}-none", 0)),
            page([b, a], 2, (b, 3)),
            page([b, a], 2, (b, 7)),
            page([b], 2, (a, 0)),
            page([b], 2, (b, -1)),
            page([none, "no/name"], 2),
        ]

    compare(sides, script)


def test_what_has_options(sides: Sides, topic: str) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)

        def ask(version: int, *types: int) -> Any:
            request = resources.ListConfigResourcesRequest(resource_types=list(types))
            answer = client.ask(resources.LIST_CONFIG_RESOURCES.key, version, request)
            return answer.error_code, sorted(
                (row.resource_type, row.resource_name)
                for row in answer.config_resources
                if row.resource_type != TOPIC or row.resource_name == topic
            )

        return [ask(0), ask(1, TOPIC), ask(1, BROKER), ask(1, 16), ask(1, 32), ask(1, 3)]

    compare(sides, script)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_has_one_voter(sides: Sides, topic: str, version: int) -> None:
    def script(client: RawClient) -> Any:
        made(client, topic)

        def ask(name: str, number: int) -> Any:
            asked = quorum.AskedTopicData(
                topic_name=name, partitions=[quorum.AskedPartitionData(partition_index=number)]
            )
            request = quorum.DescribeQuorumRequest(topics=[asked])
            answer = client.ask(quorum.DESCRIBE_QUORUM.key, version, request)
            ((found,),) = [each.partitions for each in answer.topics]
            voters = [
                (
                    voter.replica_id == found.leader_id,
                    voter.last_caught_up_timestamp > START_MS,
                    voter.last_fetch_timestamp > START_MS,
                )
                for voter in found.current_voters
            ]
            return answer.error_code, found.error_code, voters

        return [ask("__cluster_metadata", 0), ask("__cluster_metadata", 1), ask(topic, 0)]

    compare(sides, script)
