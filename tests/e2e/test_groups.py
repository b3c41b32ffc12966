"""Consumer groups by real clients, each member a process: they share a topic, lose one of them, and go on.

What is asked is what Kafka does, too: nothing is skipped, and nothing given twice but what the one that died had not
committed.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.support.broker import Broker, Running, wait_until
from tests.support.members import (
    PATIENCE_S,
    Members,
    needs_go,
    needs_java,
    needs_node,
    needs_python_of_old,
    uncommitted,
)
from tests.support.raw_client import RawClient
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 6
EACH = 20
PYTHONS = ["kafka-python", "aiokafka", "confluent-kafka"]
# Each as it comes, and in some ways of its own.
CLIENTS = [
    *(pytest.param(client, {}, id=client) for client in PYTHONS),
    pytest.param("kafka-python-2.0.2", {}, marks=needs_python_of_old, id="kafka-python-2.0.2"),
    pytest.param("java", {}, marks=[needs_java, pytest.mark.java], id="java"),
    pytest.param("go", {}, marks=needs_go, id="go"),
    pytest.param("node", {}, marks=needs_node, id="node"),
    pytest.param("confluent-kafka", {"assignor": "cooperative-sticky"}, id="confluent-kafka-cooperative"),
    pytest.param("kafka-python", {"api_version": (0, 9)}, id="kafka-python-for-0.9"),
    pytest.param("kafka-python", {"api_version": (0, 10)}, id="kafka-python-for-0.10"),
]


@pytest.fixture
def broker(new_broker: Callable[..., Broker]) -> Broker:
    return new_broker()


def make_topic(broker: Running, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    admin.close()


@pytest.fixture
def produce(broker: Running, topic: str) -> Iterator[Callable[[], dict[int, int]]]:
    """Produce EACH records to each partition; return where the partitions end then."""
    make_topic(broker, topic)
    producer = KafkaProducer(bootstrap_servers=broker.address, acks="all")
    ends = dict.fromkeys(range(PARTITIONS), 0)

    def send() -> dict[int, int]:
        for partition in ends:
            for _ in range(EACH):
                producer.send(topic, b"some value", partition=partition)
            ends[partition] += EACH
        producer.flush()
        return ends.copy()

    yield send
    producer.close()


def described(broker: Running, group: str) -> tuple[str, set[str]]:
    """Return a group's state, and the ids of its members."""
    with RawClient(broker) as client:
        (found,) = client.ask(DESCRIBE_GROUPS.key, 5, DescribeGroupsRequest(groups=[group])).groups
    return found.group_state, {member.member_id for member in found.members}


@pytest.mark.parametrize(("client", "told"), CLIENTS)
def test_three_share_a_topic_lose_one_and_go_on(
    broker: Running, topic: str, produce: Callable[[], dict[int, int]], client: str, told: dict[str, Any]
) -> None:
    with Members(broker.address, topic, f"group of {topic}", PARTITIONS, **told) as members:
        first, second, third = members.join(client, client, client)
        members.wait_for_shares()
        members.wait_for(produce())
        assert members.twice() == set()
        members.kill(second)
        ends = produce()
        members.wait_for_shares()
        members.wait_for(ends)
        may_be_twice = uncommitted([second])
        assert members.twice() <= may_be_twice
        members.leave(first, third)
        ends = produce()
        members.join(client)
        members.wait_for(ends)
        assert members.twice() <= may_be_twice, "what was committed is where a group goes on"


@needs_java
@needs_go
@needs_node
@pytest.mark.java
def test_members_of_all_languages_are_one_group(
    broker: Running, topic: str, produce: Callable[[], dict[int, int]]
) -> None:
    clients = ["kafka-python", "aiokafka", "confluent-kafka", "java", "go", "node"]
    with Members(broker.address, topic, f"group of {topic}", PARTITIONS) as members:
        everyone = members.join(*clients)
        members.wait_for_shares()
        members.wait_for(produce())
        members.kill(everyone[0])
        ends = produce()
        members.wait_for_shares()
        members.wait_for(ends)
        assert members.twice() <= uncommitted(everyone[:1])


@pytest.mark.parametrize("clients", [*([client] * 2 for client in PYTHONS), PYTHONS], ids="-".join)
def test_members_go_on_in_their_generation_after_the_broker_was_killed(
    broker: Broker, topic: str, produce: Callable[[], dict[int, int]], clients: list[str]
) -> None:
    group = f"group of {topic}"
    with Members(broker.address, topic, group, PARTITIONS) as members:
        members.join(*clients)
        members.wait_for_shares()
        members.wait_for(produce())
        before = described(broker, group)
        assert (before[0], len(before[1])) == ("Stable", len(clients))
        broker.kill()
        broker.start()
        wait_until(lambda: described(broker, group) == before, PATIENCE_S)
        members.wait_for(produce())
        members.wait_for_shares()
        assert members.twice() == set()
        members.leave(*members.there)
        assert described(broker, group) == ("Empty", set())


def test_static_members_are_started_anew_without_a_rebalance(
    broker: Running, topic: str, produce: Callable[[], dict[int, int]]
) -> None:
    """KIP-345: the other one is given nothing while its fellow is away, and each has what it had."""
    group = f"group of {topic}"
    with Members(broker.address, topic, group, PARTITIONS, session_ms=20_000) as members:
        (one,), (two,) = (members.join("confluent-kafka", instance=name) for name in ("one", "two"))
        members.wait_for_shares()
        members.wait_for(produce())
        had, before = two.assigned, described(broker, group)[1]
        changes = [line for line in one.output if line.startswith("A")]
        members.kill(two)
        (again,) = members.join("confluent-kafka", instance="two")
        members.wait_for_shares()
        members.wait_for(produce())
        assert again.assigned == had
        assert [line for line in one.output if line.startswith("A")] == changes
        assert len(before & described(broker, group)[1]) == 1


def test_a_consumer_with_a_group_that_only_assigns_is_closed_at_once(
    shared_broker: Running, topic: str
) -> None:
    """librdkafka commits as it closes, and looks for a coordinator until it finds one."""
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as producer:
        producer.send(topic, b"x")
    settings = {"bootstrap.servers": shared_broker.address, "group.id": f"only-assigns-{topic}"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([Partition(topic, 0)])
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    consumer.close()
    with closing(
        KafkaConsumer(bootstrap_servers=shared_broker.address, group_id=settings["group.id"])
    ) as reader:
        assert reader.committed(TopicPartition(topic, 0)) == 1
