"""Consumer groups (KIP-848) by real clients: members of both protocols that are killed, regular expressions, topics
that come, static members, and groups that become classic ones and consumer groups again while they are read.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import Broker, Running
from tests.support.java import needs_java, run_java
from tests.support.members import Members, uncommitted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUICK = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}
CLASSIC = {
    "group.protocol": "classic",
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 200,
    "partition.assignment.strategy": "cooperative-sticky",
}

Join = Callable[..., Consumer]


@pytest.fixture
def broker(new_broker: Callable[..., Broker]) -> Broker:
    return new_broker(QUICK)


@pytest.fixture
def join(broker: Running) -> Iterator[Join]:
    """Start members of group `g`; all leave when the test ends."""
    with ExitStack() as stack:

        def begin(*topics: str, **settings: object) -> Consumer:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.address,
                    "group.id": "g",
                    "group.protocol": "consumer",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "log_level": 0,
                    **named,
                }
            )
            stack.callback(consumer.close)
            consumer.subscribe(list(topics))
            return consumer

        yield begin


def make(broker: Running, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = [NewTopic(name, count, 1) for name, count in topics.items()]
    for made in admin.create_topics(new).values():
        made.result(20)


def shares(*members: Consumer) -> list[int]:
    return sorted(len(member.assignment()) for member in members)


def settle(wanted: list[int], *members: Consumer) -> None:
    """Poll until the members have so many partitions each, all of them different ones."""
    ends_s = time.monotonic() + 30
    while shares(*members) != wanted:
        assert time.monotonic() < ends_s, shares(*members)
        for member in members:
            message = member.poll(0.02)
            assert message is None or message.error() is None, message.error()
    had = [(each.topic, each.partition) for member in members for each in member.assignment()]
    assert len(set(had)) == len(had)


def kind(broker: Running) -> str:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    (group,) = admin.list_consumer_groups().result(20).valid
    return str(group.type.name)


NEW, OLD = "consumer", "classic"
PARTITIONS, EACH = 6, 20
GROUPS = [
    [("confluent-kafka", NEW)] * 3,
    pytest.param([("java", NEW)] * 3, marks=[needs_java, pytest.mark.java]),
    pytest.param(
        [("kafka-python", OLD), ("java", NEW), ("confluent-kafka", NEW)], marks=[needs_java, pytest.mark.java]
    ),
]


@pytest.fixture
def produce(broker: Running, topic: str) -> Callable[[], dict[int, int]]:
    """Produce EACH records to each partition of the test's topic; return where the partitions end then."""
    make(broker, {topic: PARTITIONS})
    ends = dict.fromkeys(range(PARTITIONS), 0)

    def send() -> dict[int, int]:
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        for partition in ends:
            for _ in range(EACH):
                producer.produce(topic, b"some value", partition=partition)
            ends[partition] += EACH
        assert producer.flush(20) == 0
        return ends.copy()

    return send


@pytest.mark.parametrize("clients", GROUPS, ids=lambda clients: ", ".join(f"{c} {p}" for c, p in clients))
def test_three_members_of_which_one_is_killed_and_a_broker_that_is(
    broker: Broker, topic: str, produce: Callable[[], dict[int, int]], clients: list[tuple[str, str]]
) -> None:
    with Members(broker.address, topic, f"group of {topic}", PARTITIONS) as members:
        first, second, third = (members.join(name, protocol=protocol)[0] for name, protocol in clients)
        members.wait_for(produce())
        members.wait_for_shares()
        assert kind(broker) == "CONSUMER"
        members.kill(second)
        ends = produce()
        members.wait_for_shares()
        members.wait_for(ends)
        may_be_twice = uncommitted([second])
        assert members.twice() <= may_be_twice
        broker.kill()
        broker.start()
        members.wait_for(produce())
        assert members.twice() <= may_be_twice
        members.leave(first, third)
        ends = produce()
        members.join(clients[2][0], protocol=NEW)
        members.wait_for(ends)
        assert members.twice() <= may_be_twice, "what was committed is where a group goes on"


def test_a_regular_expression_takes_in_topics_that_come_later(broker: Broker, join: Join) -> None:
    make(broker, {"events-a": 3, "events-b": 2, "other": 1})
    one = join("^events-.*")
    settle([5], one)
    make(broker, {"events-c": 4, "more-events-d": 1})
    settle([9], one)
    two = join("^events-[ab]")
    settle([4, 5], one, two)


@needs_java
@pytest.mark.java
def test_a_regular_expression_of_javas_goes_on_with_a_topic_that_was_made_again(broker: Broker) -> None:
    make(broker, {"events": 1})
    done = run_java("JavaClient", "remade", broker.address, "events")
    assert (done.returncode, done.stdout) == (0, "of the new one\n"), done.stderr


def test_a_regular_expression_that_is_none_ends_its_consumer_and_no_other(broker: Broker, join: Join) -> None:
    make(broker, {"events": 2})
    one = join("events")
    settle([2], one)
    wrong = join(r"^(e)\1vents")  # RE2 takes no reference back, librdkafka does
    error = None
    ends_s = time.monotonic() + 20
    while error is None and time.monotonic() < ends_s:
        message = wrong.poll(0.1)
        error = None if message is None else message.error()
    assert error is not None
    assert error.code() in (KafkaError.INVALID_REGULAR_EXPRESSION, KafkaError._FATAL)
    settle([2], one)


def test_a_static_member_comes_back_to_its_partitions(broker: Broker, join: Join) -> None:
    make(broker, {"events": 6})
    one, two = join("events", group_instance_id="one"), join("events", group_instance_id="two")
    settle([3, 3], one, two)
    before, kept = two.assignment(), one.assignment()
    two.close()
    again = join("events", group_instance_id="two")
    settle([3, 3], one, again)
    assert sorted(again.assignment()) == sorted(before)
    assert sorted(one.assignment()) == sorted(kept)


def test_a_group_changes_its_kind_while_it_is_read(broker: Broker, join: Join) -> None:
    make(broker, {"events": 6})
    old = join("events", **CLASSIC)
    settle([6], old)
    assert kind(broker) == "CLASSIC"
    new = join("events")
    settle([3, 3], old, new)
    assert kind(broker) == "CONSUMER"
    broker.kill()
    broker.start()
    third = join("events")
    settle([2, 2, 2], old, new, third)
    new.close()
    third.close()
    settle([6], old)
    assert kind(broker) == "CLASSIC"
    again = join("events")
    settle([3, 3], old, again)
    assert kind(broker) == "CONSUMER"


def test_a_group_that_is_not_to_be_upgraded_refuses_the_new_protocol(
    new_broker: Callable[..., Broker],
) -> None:
    broker = new_broker({**QUICK, "group.consumer.migration.policy": "DISABLED"})
    make(broker, {"events": 2})
    settings = {"bootstrap.servers": broker.address, "group.id": "g", "log_level": 0}
    old, new = Consumer({**settings, **CLASSIC}), Consumer({**settings, "group.protocol": "consumer"})
    try:
        old.subscribe(["events"])
        settle([2], old)
        new.subscribe(["events"])
        error = None
        ends_s = time.monotonic() + 20
        while error is None and time.monotonic() < ends_s:
            message = new.poll(0.1)
            error = None if message is None else message.error()
        assert error is not None
        assert error.code() == KafkaError._FATAL
        settle([2], old)
    finally:
        old.close()
        new.close()


def test_a_commit_of_a_member_that_was_taken_out_is_refused(broker: Broker, join: Join) -> None:
    make(broker, {"events": 1})
    one = join("events")
    settle([1], one)
    (partition,) = one.assignment()
    partition.offset = 0
    one.commit(offsets=[partition], asynchronous=False)
    one.unsubscribe()
    two = join("events")
    settle([1], two)
    with pytest.raises(KafkaException):
        one.commit(offsets=[partition], asynchronous=False)
