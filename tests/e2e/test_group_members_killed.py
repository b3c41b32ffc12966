"""Groups of real consumers in ways of their own: cooperative, as old as Kafka 0.9, static; and a broker that is killed.

What was read and not yet committed may be read again; what was committed is not.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.support.broker import Broker, Running, wait_until
from tests.support.raw_client import RawClient
from tests.support.sockets import LEAVES_SOCKETS
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150), *LEAVES_SOCKETS]

ROOT = Path(__file__).parents[2]
PARTITIONS = 6
PATIENCE_S = 40.0


class Member:
    """A consumer in a process of its own, and what it has written down."""

    def __init__(self, folder: Path, name: str, **said: Any) -> None:
        self.name = name
        self._journal = folder / name
        said["journal"] = str(self._journal)
        said.setdefault("settings", {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.group_worker", json.dumps(said)],
            cwd=ROOT,
            stderr=(folder / f"{name}.err").open("wb"),
        )

    def lines(self) -> list[list[str]]:
        text = self._journal.read_text() if self._journal.exists() else ""
        return [line.split() for line in text.splitlines()]

    @property
    def read(self) -> list[tuple[int, int]]:
        return [(int(line[1]), int(line[2])) for line in self.lines() if line[0] == "r"]

    @property
    def committed(self) -> dict[int, int]:
        return {int(line[1]): int(line[2]) for line in self.lines() if line[0] == "c"}

    @property
    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.read}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def start(tmp_path: Path, topic: str) -> Iterator[Callable[..., Member]]:
    """Start members of one group that read the test's topic; all are gone when it ends."""
    with ExitStack() as stack:

        def begin(broker: Running, name: str, client: str, **settings: Any) -> Member:
            member = Member(
                tmp_path,
                name,
                client=client,
                address=broker.address,
                topic=topic,
                group=f"group-of-{topic}",
                settings=settings,
            )
            stack.callback(member.kill)
            return member

        yield begin


def make(broker: Running, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])


def produce(broker: Running, topic: str, count: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush(timeout=20)


def everything(count: int) -> set[tuple[int, int]]:
    return {(number % PARTITIONS, number // PARTITIONS) for number in range(count)}


def seen(*members: Member) -> set[tuple[int, int]]:
    return {record for member in members for record in member.read}


def states(broker: Running, group: str) -> tuple[str, set[str]]:
    """Return the group's state, and the ids of its members."""
    with RawClient(broker) as client:
        (found,) = client.ask(DESCRIBE_GROUPS.key, 5, DescribeGroupsRequest(groups=[group])).groups
    return found.group_state, {member.member_id for member in found.members}


# Beside the clients as they come, which `test_groups` has.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "confluent-kafka, cooperative": (
        "confluent-kafka",
        {"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "kafka-python for 0.9": ("kafka-python", {"api_version": [0, 9]}),
    "kafka-python for 0.10": ("kafka-python", {"api_version": [0, 10]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_three_members_of_which_one_is_killed(
    new_broker: Callable[..., Broker], topic: str, start: Callable[..., Member], kind: str
) -> None:
    broker = new_broker()
    make(broker, topic)
    produce(broker, topic, 60)
    client, settings = KINDS[kind]
    members = [start(broker, f"m{n}", client, **settings) for n in range(3)]
    # Until each has partitions of its own, more records come.
    sent = 60

    def all_read() -> bool:
        nonlocal sent
        if sent < 3000 and seen(*members) >= everything(sent):
            produce_more()
        return all(member.read for member in members) and states(broker, f"group-of-{topic}")[0] == "Stable"

    def produce_more() -> None:
        nonlocal sent
        with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)) as producer:
            for number in range(sent, sent + 60):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            producer.flush(timeout=20)
        sent += 60

    wait_until(all_read, PATIENCE_S)
    victim, others = members[1], [members[0], members[2]]
    victim.kill()
    at_kill = [len(member.read) for member in members]
    produce_more()
    produce_more()
    wait_until(lambda: seen(*members) >= everything(sent), PATIENCE_S)
    for member, count in zip(members, at_kill, strict=True):
        for partition, offset in member.read[count:] if member is not victim else []:
            assert offset >= victim.committed.get(partition, 0), (member.name, partition, offset)
    wait_until(lambda: len(states(broker, f"group-of-{topic}")[1]) == 2, PATIENCE_S)
    for member in others:
        member.leave()
    wait_until(lambda: states(broker, f"group-of-{topic}") == ("Empty", set()), PATIENCE_S)
    committed = committed_by(broker, topic)
    assert committed == dict.fromkeys(range(PARTITIONS), sent // PARTITIONS)


def committed_by(broker: Running, topic: str) -> Mapping[int, int]:
    with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id=f"group-of-{topic}")) as reader:
        return {
            partition: reader.committed(TopicPartition(topic, partition)) for partition in range(PARTITIONS)
        }


@pytest.mark.parametrize("kind", ["kafka-python", "aiokafka", "confluent-kafka"])
def test_the_broker_is_killed_and_members_go_on_in_their_generation(
    new_broker: Callable[..., Broker], topic: str, start: Callable[..., Member], kind: str
) -> None:
    broker = new_broker({"offsets.topic.num.partitions": "3"})
    make(broker, topic)
    produce(broker, topic, 60)
    members = [start(broker, f"m{n}", kind) for n in range(2)]
    group = f"group-of-{topic}"
    wait_until(
        lambda: states(broker, group)[0] == "Stable" and len(states(broker, group)[1]) == 2,
        PATIENCE_S,
    )
    wait_until(lambda: seen(*members) >= everything(60), PATIENCE_S)
    _, ids = states(broker, group)
    broker.kill()
    broker.start()
    wait_until(lambda: states(broker, group)[0] == "Stable", PATIENCE_S)
    assert states(broker, group)[1] == ids
    at_kill = [(member, len(member.read), dict(member.committed)) for member in members]
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)) as producer:
        for number in range(60, 120):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush(timeout=20)
    wait_until(lambda: seen(*members) >= everything(120), PATIENCE_S)
    for member, count, committed in at_kill:
        for partition, offset in member.read[count:]:
            assert offset >= committed.get(partition, 0)
    for member in members:
        member.leave()
    assert committed_by(broker, topic) == dict.fromkeys(range(PARTITIONS), 20)


def test_static_members_are_started_anew_without_a_rebalance(
    new_broker: Callable[..., Broker], topic: str, start: Callable[..., Member]
) -> None:
    """KIP-345: the other one is given nothing while its fellow is away, and each has what it had."""
    broker = new_broker()
    make(broker, topic)
    produce(broker, topic, 60)
    group = f"group-of-{topic}"
    settings = [{"group.instance.id": name, "session.timeout.ms": 20_000} for name in ("one", "two")]
    one, two = (start(broker, f"m{n}", "confluent-kafka", **each) for n, each in enumerate(settings))

    def is_shared() -> bool:
        state, ids = states(broker, group)
        return state == "Stable" and len(ids) == 2

    wait_until(is_shared, PATIENCE_S)
    wait_until(lambda: seen(one, two) >= everything(60), PATIENCE_S)
    _, before = states(broker, group)
    two.kill()
    again = start(broker, "again", "confluent-kafka", **settings[1])
    wait_until(lambda: is_shared() and states(broker, group)[1] != before, PATIENCE_S)
    count = len(one.read)
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5)) as producer:
        for number in range(60, 120):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush(timeout=20)
    wait_until(lambda: seen(one, two, again) >= everything(120), PATIENCE_S)
    kept = {partition for partition, _ in one.read[count:]}
    assert (len(kept), kept | again.partitions) == (3, set(range(PARTITIONS)))
    _, after = states(broker, group)
    assert len(before & after) == 1


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
