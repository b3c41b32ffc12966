"""Clients as old as Kafka 0.8 against topics of every format: each reads what the newest wrote, and the reverse.

kafka-python is told which broker it talks to (`api_version`), and librdkafka by `broker.version.fallback`: both then
write and ask in the way that such a broker would take.
"""

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker import Running
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.e2e

VERSIONS = [None, (0, 8, 2), (0, 9), (0, 10), (0, 10, 1), (0, 11)]
CODECS = [None, "gzip", "snappy", "lz4"]
# For those before that, librdkafka 2.16 reads no answer to Metadata 0: "tmpabuf memory shortage".
FALLBACKS = ["0.10.0"]
# Fetch by brokers of these versions has messages without timestamps.
UNTIMED = {(0, 8, 2), (0, 9)}
START_MS = 1_700_000_000_000
COUNT = 20


def version(api_version: tuple[int, ...] | None) -> dict[str, Any]:
    return {} if api_version is None else {"api_version": api_version}


def produce(broker: Running, topic: str, api_version: tuple[int, ...] | None, codec: str | None) -> None:
    settings = version(api_version) | ({"enable_idempotence": False} if api_version else {})
    producer = KafkaProducer(
        bootstrap_servers=broker.address, compression_type=codec, linger_ms=5, retries=0, **settings
    )
    with closing(producer):
        answers = [
            producer.send(topic, b"value %d" % n, b"key %d" % n, timestamp_ms=START_MS + n)
            for n in range(COUNT)
        ]
        for answer in answers:
            answer.get(timeout=20)


def consume(
    broker: Running, topic: str, api_version: tuple[int, ...] | None, count: int
) -> list[tuple[int, bytes, bytes, int]]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        group_id=None,
        auto_offset_reset="earliest",
        **version(api_version),
    )
    found: list[tuple[int, bytes, bytes, int]] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            batches = consumer.poll(timeout_ms=20_000)
            assert batches, f"{len(found)} of {count} records, then none for 20 s"
            for records in batches.values():
                found += [(r.offset, r.key, r.value, r.timestamp) for r in records]
    return found


def check(found: list[tuple[int, bytes, bytes, int]], times: list[int]) -> None:
    """Compare what was read with what each writer wrote, one after another; times of -1 are none."""
    assert found == [
        (n, b"key %d" % (n % COUNT), b"value %d" % (n % COUNT), at) for n, at in enumerate(times)
    ]


@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.2", "2"])
def test_S76_V7_kafka_python_of_every_age_reads_what_every_other_wrote(
    shared_broker: Running, topic: str, message_format: str
) -> None:
    with RawClient(shared_broker) as client:
        client.create(topic, 1, {"message.format.version": message_format})
    times: list[int] = []
    for api_version in VERSIONS:
        for codec in CODECS:
            produce(shared_broker, topic, api_version, codec)
            is_timed = api_version not in UNTIMED and message_format != "0.9.0"
            times += [START_MS + n if is_timed else -1 for n in range(COUNT)]
    for api_version in VERSIONS:
        is_timed = api_version not in UNTIMED
        found = consume(shared_broker, topic, api_version, len(times))
        check(
            [(o, k, v, -1 if t is None else t) for o, k, v, t in found],
            times if is_timed else [-1] * len(times),
        )


@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.2", "2"])
def test_librdkafka_without_api_versions_reads_what_the_newest_wrote_and_the_reverse(
    shared_broker: Running, topic: str, message_format: str
) -> None:
    with RawClient(shared_broker) as client:
        client.create(topic, 1, {"message.format.version": message_format})
    count = 0
    for fallback in FALLBACKS:
        settings = {
            "bootstrap.servers": shared_broker.address,
            "api.version.request": False,
            "broker.version.fallback": fallback,
        }
        for codec in ("none", "gzip", "snappy", "lz4"):
            producer = Producer(settings | {"compression.type": codec, "linger.ms": 5})
            for n in range(COUNT):
                producer.produce(topic, b"value %d" % n, b"key %d" % n, 0, timestamp=START_MS + n)
            assert producer.flush(20) == 0
            count += COUNT
        produce(shared_broker, topic, None, "gzip")
        count += COUNT
        consumer = Consumer(settings | {"group.id": "none", "enable.auto.commit": False})
        try:
            consumer.assign([Partition(topic, 0, 0)])
            found: list[Any] = []
            while len(found) < count:
                messages = consumer.consume(100, 20)
                assert messages, f"{len(found)} of {count} records, then none for 20 s"
                found += [m for m in messages if m.error() is None]
        finally:
            consumer.close()
        assert [(m.offset(), m.key(), m.value()) for m in found] == [
            (n, b"key %d" % (n % COUNT), b"value %d" % (n % COUNT)) for n in range(count)
        ]
        rows = consume(shared_broker, topic, None, count)
        assert [row[:3] for row in rows] == [(m.offset(), m.key(), m.value()) for m in found]
