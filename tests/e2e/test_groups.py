"""Consumer groups by real clients, each member a process: they share a topic, lose one of them, and go on.

What is asked is what Kafka does, too: nothing is skipped, and nothing given twice but what the one that died had not
committed.
"""

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tests.support.broker import Broker, Running
from tests.support.members import Members, needs_go, needs_java, needs_node, needs_python_of_old, uncommitted
from tests.support.sockets import LEAVES_SOCKETS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150), *LEAVES_SOCKETS]

PARTITIONS = 6
EACH = 20
CLIENTS = [
    "kafka-python",
    pytest.param("kafka-python-2.0.2", marks=needs_python_of_old),
    "aiokafka",
    "confluent-kafka",
    pytest.param("java", marks=[needs_java, pytest.mark.java]),
    pytest.param("go", marks=needs_go),
    pytest.param("node", marks=needs_node),
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


@pytest.mark.parametrize("client", CLIENTS)
def test_three_share_a_topic_lose_one_and_go_on(
    broker: Running, topic: str, produce: Callable[[], dict[int, int]], client: str
) -> None:
    with Members(broker.address, topic, f"group of {topic}", PARTITIONS) as members:
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


def test_a_group_goes_on_where_it_was_after_the_broker_was_killed(
    broker: Broker, topic: str, produce: Callable[[], dict[int, int]]
) -> None:
    with Members(broker.address, topic, f"group of {topic}", PARTITIONS) as members:
        members.join("kafka-python", "confluent-kafka")
        members.wait_for_shares()
        members.wait_for(produce())
        broker.kill()
        broker.start()
        members.wait_for(produce())
        members.wait_for_shares()
        assert members.twice() == set()
