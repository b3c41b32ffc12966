"""Topics of a broker that tests write to: made, and read back by kafka-python."""

from collections.abc import Sequence
from typing import NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from tests.support.broker import Broker, Running
from tidelog.client import groups
from tidelog.pipeline.brokers.connected import connected


class Read(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def make(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> str:
    """Make a topic; an option's dots are underscores here."""
    options = {name.replace("_", "."): value for name, value in configs.items()}
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=options)])
    finally:
        admin.close()
    return topic


def alter(broker: Broker, topic: str, **configs: str) -> None:
    """Have a topic have these options, and no others; an option's dots are underscores here."""
    options = {name.replace("_", "."): value for name, value in configs.items()}
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, options)], incremental=False)
    finally:
        admin.close()


def send(broker: Broker, topic: str, times: Sequence[int]) -> None:
    """Send a record for each time to the first partition; its value is its number."""
    producer = KafkaProducer(bootstrap_servers=broker.address)
    try:
        for number, at_ms in enumerate(times):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=at_ms)
        producer.flush()
    finally:
        producer.close()


def read(broker: Broker, topic: str) -> list[Read]:
    """Return all records, partition by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1000).values():
                found += [
                    Read(one.partition, one.offset, one.timestamp, one.key, one.value, list(one.headers))
                    for one in records
                ]
        return sorted(found)
    finally:
        consumer.close()


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [one.value for one in read(broker, topic)]


def committed(broker: Running, group: str, topic: str) -> dict[int, int]:
    """Return what a group has committed of a topic, by partition."""
    with connected(broker.address) as cluster:
        found = groups.committed(cluster, group)
    return {key.partition: offset for key, offset in found.items() if key.topic == topic}
