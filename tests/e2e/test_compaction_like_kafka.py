"""S79, S87 to S91, V6: a topic that Apache Kafka compacts and one that we do have the same last record of each key.

The same batches to both: keys of which few are written often, tombstones, every codec. What each has left is held
against what was sent, and our files against Apache's DumpLogSegments.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.compaction import alter
from bench.kafka import QUICK_JVM, ApacheKafka
from tests.support.broker import Broker, wait_until
from tests.support.java import complaints_about, jars, needs_java
from tests.support.raw_client import RawClient
from tidelog.protocol.records import entries
from tidelog.protocol.records.build import Record, build_batch, read_records

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

BATCH, NOW = 100, 1_790_000_000_000
CLEANER = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "200",
    "log.retention.ms": "-1",
    "log.segment.bytes": str(1 << 20),
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


def batches(count: int) -> Iterator[list[Record]]:
    """Keys by Zipf's law, three tombstones in a hundred."""
    rng, chance = np.random.default_rng(1), random.Random(1)
    weights = np.cumsum(1 / np.arange(1, count // 10 + 1))
    for start in range(0, count, BATCH):
        keys = np.searchsorted(weights, rng.random(BATCH) * weights[-1]).tolist()
        yield [
            Record(
                n, NOW + start + n, b"key-%d" % key, None if chance.random() < 0.03 else chance.randbytes(80)
            )
            for n, key in enumerate(keys)
        ]


def left_of(client: RawClient) -> dict[int, Record]:
    """Return what a reader from the beginning gets, by offset."""
    found: dict[int, Record] = {}
    for _, data in client.batches("t"):
        for record in read_records(data):
            assert record.offset not in found
            found[record.offset] = record
    assert list(found) == sorted(found)
    return found


def count_left(client: RawClient) -> int:
    """Return how many records there are, by the headers of their batches."""
    return sum(entries.peek(data).record_count for _, data in client.batches("t"))


def told(record: Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value


@pytest.mark.parametrize("count", [40_000, pytest.param(2_000_000, marks=pytest.mark.all)])
def test_S79_S87_S90_the_last_record_of_each_key_is_what_kafka_has(tmp_path: Path, count: int) -> None:
    made = list(batches(count))
    sent = dict(enumerate(record for batch in made for record in batch))
    last = {record.key: n for n, record in sent.items()}
    with ApacheKafka(jars(), QUICK_JVM) as kafka, Broker(tmp_path / "ours", CLEANER) as ours:
        for broker in (kafka.start(0, tmp_path / "kafka", CLEANER), ours.start()):
            with RawClient(broker) as client:
                assert client.create("t", configs=COMPACTED).error_code == 0
                wait_until(lambda client=client: client.list_offsets("t", -1).error_code == 0)
                for number, batch in enumerate(made):
                    data = build_batch(batch, codec=number % 5)
                    assert client.produce("t", data).base_offset == number * BATCH
                alter(broker.port, "t", {"min.cleanable.dirty.ratio": "0.01"})
                wait_until(lambda client=client: count_left(client) < count // 2, timeout_s=300)
                left = left_of(client)
            assert {n: told(record) for n, record in left.items()} == {n: told(sent[n]) for n in left}
            assert {record.key: n for n, record in left.items()} == last, broker
        ours.stop()
    # That offsets are missing is what compaction is for.
    found = [each for each in complaints_about(tmp_path / "ours") if "Non-consecutive offsets" not in each]
    assert found == []
