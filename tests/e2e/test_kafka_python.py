"""kafka-python against a running broker: produce, consume by assignment, search by time, sizes, a restart."""

from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import MessageSizeTooLargeError

from tests.support.broker import Broker, Running
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


def producer(broker: Running, **settings: object) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=broker.address, linger_ms=5, **settings)


def consumer(broker: Running) -> KafkaConsumer:
    return KafkaConsumer(bootstrap_servers=broker.address, group_id=None, auto_offset_reset="earliest")


def send(to: KafkaProducer, topic: str, records: list[Sample]) -> list[int]:
    """Send the records and return the offsets that the broker gave them."""
    answers = [
        to.send(topic, r.value, r.key, list(r.headers), partition=0, timestamp_ms=r.timestamp)
        for r in records
    ]
    to.flush(timeout=20)
    return [answer.get(timeout=20).offset for answer in answers]


def read(source: KafkaConsumer, topic: str, count: int, offset: int = 0) -> list[tuple[int, Sample]]:
    """Read `count` records by assignment from `offset`."""
    partition = TopicPartition(topic, 0)
    source.assign([partition])
    source.seek(partition, offset)
    found: list[tuple[int, Sample]] = []
    while len(found) < count:
        batches = source.poll(timeout_ms=20_000)
        assert batches, f"{len(found)} of {count} records, then none for 20 s"
        found += [
            (r.offset, Sample(r.timestamp, r.key, r.value, tuple(r.headers))) for r in batches[partition]
        ]
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_S55_produce_and_consume(shared_broker: Running, topic: str, codec: str) -> None:
    sent = samples(150, codec)
    compression = None if codec == "none" else codec
    with closing(producer(shared_broker, compression_type=compression)) as to:
        assert send(to, topic, sent) == list(range(len(sent)))
    with closing(consumer(shared_broker)) as source:
        assert read(source, topic, len(sent)) == list(enumerate(sent))


@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_has_a_codec_of_its_own(shared_broker: Running, topic: str, stored: str) -> None:
    """Whatever the producers chose, readers and searches find the records in the codec of the topic."""
    with closing(KafkaAdminClient(bootstrap_servers=shared_broker.address)) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"compression.type": stored})])
    sent = samples(50 * len(CODECS), stored)
    for number, codec in enumerate(CODECS):
        compression = None if codec == "none" else codec
        with closing(producer(shared_broker, compression_type=compression)) as to:
            send(to, topic, sent[50 * number :][:50])
    partition = TopicPartition(topic, 0)
    with closing(consumer(shared_broker)) as source:
        assert read(source, topic, len(sent)) == list(enumerate(sent))
        for number in range(0, len(sent), 7):
            found = source.offsets_for_times({partition: sent[number].timestamp})[partition]
            assert (found.offset, found.timestamp) == (number, sent[number].timestamp)


def test_produce_without_idempotence(shared_broker: Running, topic: str) -> None:
    sent = samples(20)
    with closing(producer(shared_broker, enable_idempotence=False, acks=1)) as to:
        assert send(to, topic, sent) == list(range(len(sent)))
    with closing(consumer(shared_broker)) as source:
        assert read(source, topic, len(sent)) == list(enumerate(sent))


def test_consume_from_a_time(shared_broker: Running, topic: str) -> None:
    sent = samples(100)
    with closing(producer(shared_broker)) as to:
        send(to, topic, sent)
    partition = TopicPartition(topic, 0)
    with closing(consumer(shared_broker)) as source:
        between = START_MS + 60 * STEP_MS - 1
        found = source.offsets_for_times({partition: between})[partition]
        assert (found.offset, found.timestamp) == (60, START_MS + 60 * STEP_MS)
        assert read(source, topic, 40, found.offset) == list(enumerate(sent))[60:]

        assert source.offsets_for_times({partition: 0})[partition].offset == 0
        assert source.offsets_for_times({partition: sent[-1].timestamp})[partition].offset == 99
        assert source.offsets_for_times({partition: sent[-1].timestamp + 1})[partition] is None
        assert source.beginning_offsets([partition]) == {partition: 0}
        assert source.end_offsets([partition]) == {partition: 100}


def test_batch_at_the_size_limit_and_one_byte_over(shared_broker: Running, topic: str) -> None:
    largest = b"x" * (MAX_BATCH_BYTES - LONE_RECORD_OVERHEAD_BYTES)
    # Not idempotent: after a refusal kafka-python's idempotent producer gives up for good.
    settings = {"max_request_size": 2 * MAX_BATCH_BYTES, "enable_idempotence": False}
    with closing(producer(shared_broker, **settings)) as to:
        assert to.send(topic, largest, partition=0).get(timeout=20).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            to.send(topic, largest + b"x", partition=0).get(timeout=20)
        assert to.send(topic, b"after", partition=0).get(timeout=20).offset == 1
    with closing(consumer(shared_broker)) as source:
        assert [r.value for _, r in read(source, topic, 2)] == [largest, b"after"]


def test_restart_in_between(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    sent = samples(200)
    with closing(producer(broker)) as to, closing(consumer(broker)) as source:
        send(to, topic, sent[:100])
        assert len(read(source, topic, 100)) == 100
        broker.restart()
        assert send(to, topic, sent[100:]) == list(range(100, 200))
        assert read(source, topic, 200) == list(enumerate(sent))
