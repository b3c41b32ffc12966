"""A way to Apache Kafka: the partition folders of a stopped broker open in it (docs/scaling.md)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.e2e.test_files_for_kafka import BATCHES, SETTINGS, fill
from tests.support.broker import Broker
from tests.support.java import jars, needs_java
from tests.support.logs import read_records
from tests.support.raw_client import RawClient
from tests.support.workload import START_MS, one_batch

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.java]

# Kafka allows no segments as small as those of SETTINGS.
FOREVER = {"log.retention.ms": "-1"}
TOPICS = {"plain": 0, "packed": 4}


def records_of(client: RawClient, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for _, data in client.batches(topic)
        for record in read_records(data)
    ]


@needs_java
@pytest.mark.timeout(300)
def test_folders_of_a_stopped_broker_open_in_kafka(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    ours = new_broker(SETTINGS)
    with RawClient(ours) as client:
        for topic, codec in TOPICS.items():
            client.create(topic)
            fill(client, topic, codec)
        expected = {topic: records_of(client, topic) for topic in TOPICS}
    assert {len(records) for records in expected.values()} == {BATCHES * 4}
    ours.stop()

    theirs = tmp_path / "kafka"
    with ApacheKafka(jars(), QUICK_JVM) as kafka:
        kafka.start(0, theirs, FOREVER)
        with RawClient(kafka) as client:
            for topic in TOPICS:
                client.create(topic)
        kafka.stop()
        for topic in TOPICS:
            there = theirs / f"{topic}-0"
            for path in there.iterdir():
                if path.name != "partition.metadata":  # the id that Kafka gave the topic
                    path.unlink()
            for path in (ours.data_dir / f"{topic}-0").iterdir():
                if path.name != "partition.metadata":
                    shutil.copy(path, there)

        kafka.start(0, theirs, FOREVER)
        with RawClient(kafka) as client:
            for topic in TOPICS:
                assert records_of(client, topic) == expected[topic]
                assert client.list_offsets(topic, START_MS + 6000).offset == next(
                    offset for offset, time, *_ in expected[topic] if time >= START_MS + 6000
                )
                assert client.produce(topic, one_batch(1)).base_offset == BATCHES * 4
