"""confluent-kafka (librdkafka) against a running broker: as the others, and a topic of 1,000 partitions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import Broker, Running, wait_until
from tests.support.workload import (
    CODECS,
    LONE_RECORD_OVERHEAD_BYTES,
    MAX_BATCH_BYTES,
    START_MS,
    STEP_MS,
    Sample,
    samples,
)

pytestmark = pytest.mark.e2e
PARTITIONS = 1000


def producer(broker: Running, **settings: object) -> Producer:
    quiet = {"log_level": 0, "linger.ms": 5, "message.timeout.ms": 20_000}
    return Producer({"bootstrap.servers": broker.address, **quiet, **settings})


@contextmanager
def consumer(broker: Running) -> Iterator[Consumer]:
    # librdkafka asks for a group even where only assignment is used; nothing is committed.
    client = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        yield client
    finally:
        client.close()


class Answers:
    """Delivery reports, in the order in which they came."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.messages.append(message) if error is None else self.errors.append(error)


def send(to: Producer, topic: str, records: list[Sample]) -> list[int]:
    answers = Answers()
    for r in records:
        headers = list(r.headers)
        to.produce(topic, r.value, r.key, 0, answers, timestamp=r.timestamp, headers=headers)
    assert to.flush(20) == 0
    assert answers.errors == []
    return [message.offset() for message in answers.messages]


def take(source: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        messages = source.consume(count - len(found), timeout=20)
        assert messages, f"{len(found)} of {count} records, then none for 20 s"
        for message in messages:
            assert message.error() is None, message.error()
        found += messages
    return found


def read(
    source: Consumer, topic: str, count: int, offset: int = OFFSET_BEGINNING
) -> list[tuple[int, Sample]]:
    source.assign([TopicPartition(topic, 0, offset)])
    return [(m.offset(), sample_of(m)) for m in take(source, count)]


def sample_of(message: Message) -> Sample:
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    return Sample(timestamp, message.key(), message.value(), tuple(message.headers() or ()))


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(shared_broker: Running, topic: str, codec: str, idempotent: bool) -> None:
    sent = samples(150, codec)
    settings = {"compression.type": codec, "enable.idempotence": idempotent}
    assert send(producer(shared_broker, **settings), topic, sent) == list(range(len(sent)))
    with consumer(shared_broker) as source:
        assert read(source, topic, len(sent)) == list(enumerate(sent))


@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_has_a_codec_of_its_own(shared_broker: Running, topic: str, stored: str) -> None:
    admin = AdminClient({"bootstrap.servers": shared_broker.address})
    wanted = NewTopic(topic, 1, 1, config={"compression.type": stored})
    admin.create_topics([wanted])[topic].result(20)
    sent = samples(50 * len(CODECS), stored)
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "enable.idempotence": True}
        send(producer(shared_broker, **settings), topic, sent[50 * number :][:50])
    with consumer(shared_broker) as source:
        assert read(source, topic, len(sent)) == list(enumerate(sent))


def test_consume_from_a_time(shared_broker: Running, topic: str) -> None:
    sent = samples(100)
    send(producer(shared_broker), topic, sent)

    def offset_at(timestamp: int) -> int:
        (found,) = source.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=20)
        assert found.error is None
        return int(found.offset)

    with consumer(shared_broker) as source:
        assert offset_at(START_MS + 60 * STEP_MS - 1) == 60
        assert read(source, topic, 40, 60) == list(enumerate(sent))[60:]
        assert offset_at(0) == 0
        assert offset_at(sent[-1].timestamp) == 99
        assert offset_at(sent[-1].timestamp + 1) == -1
        assert source.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 100)


def test_batch_at_the_size_limit_and_one_byte_over(shared_broker: Running, topic: str) -> None:
    largest = b"x" * (MAX_BATCH_BYTES - LONE_RECORD_OVERHEAD_BYTES)
    to = producer(shared_broker, **{"message.max.bytes": 2 * MAX_BATCH_BYTES})
    answers = Answers()
    for value in (largest, largest + b"x", b"after"):
        to.produce(topic, value, partition=0, on_delivery=answers)
        assert to.flush(20) == 0
    assert [message.offset() for message in answers.messages] == [0, 1]
    assert [error.code() for error in answers.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    with consumer(shared_broker) as source:
        assert [r.value for _, r in read(source, topic, 2)] == [largest, b"after"]


def test_restart_in_between(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    sent = samples(200)
    to = producer(broker, **{"enable.idempotence": True})
    with consumer(broker) as source:
        send(to, topic, sent[:100])
        assert len(read(source, topic, 100)) == 100
        broker.restart()
        assert send(to, topic, sent[100:]) == list(range(100, 200))
        assert read(source, topic, 200) == list(enumerate(sent))


def test_topics_are_listed(new_broker: Callable[..., Broker], topic: str) -> None:
    """librdkafka 2.2 and later sends bytes too many behind its question for all topics; Kafka passes them over."""
    broker = new_broker()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    for names in ([], [topic], [topic, topic + "-2"]):
        for name in names[-1:]:
            admin.create_topics([NewTopic(name, 3, 1)])[name].result(30)
        for _ in range(3):
            found = admin.list_topics(timeout=10).topics
            assert {name: len(found[name].partitions) for name in found} == dict.fromkeys(names, 3)


def test_thousand_partitions_survive_a_restart(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    produce_to_each_partition(broker, topic, 0)
    broker.restart()
    produce_to_each_partition(broker, topic, 1)
    with consumer(broker) as source:
        source.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found = {(m.partition(), m.offset(), m.value()) for m in take(source, 2 * PARTITIONS)}
    assert found == {(n, turn, b"%d %d" % (n, turn)) for n in range(PARTITIONS) for turn in (0, 1)}


def produce_to_each_partition(broker: Running, topic: str, turn: int) -> None:
    to, answers = producer(broker), Answers()
    for number in range(PARTITIONS):
        to.produce(topic, b"%d %d" % (number, turn), partition=number, on_delivery=answers)
    assert to.flush(30) == 0
    assert answers.errors == []
    assert {(m.partition(), m.offset()) for m in answers.messages} == {(n, turn) for n in range(PARTITIONS)}


def test_a_consumer_goes_on_with_a_topic_that_was_deleted_and_made_again(
    new_broker: Callable[..., Broker],
) -> None:
    """librdkafka ignores what metadata says of a topic with an older leader epoch; a start after a crash begins one."""
    broker = new_broker()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    made = NewTopic("again", 1, 1)
    admin.create_topics([made])["again"].result(20)
    for _ in range(2):
        broker.kill()
        broker.start()
    source = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "running",
            "auto.offset.reset": "earliest",
            # A client that learns that the topic is gone gives up its partition and commits its offset. Offsets are
            # committed by the topic's name, so if the new topic is there by then, the client goes on at the old offset.
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
    )
    try:
        source.subscribe(["again"])
        to = producer(broker)
        for value in (b"before", b"after"):
            if value == b"after":
                admin.delete_topics(["again"])["again"].result(20)
                admin.create_topics([made])["again"].result(20)
            to.produce("again", value)
            assert to.flush(20) == 0
            wait_until(lambda value=value: value in _values(source))
    finally:
        source.close()


def _values(source: Consumer) -> list[bytes | None]:
    """Return what has come; that the topic is gone for a moment is no error here."""
    return [message.value() for message in source.consume(10, timeout=0.2) if message.error() is None]
