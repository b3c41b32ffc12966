"""The files that we write, judged by Apache's DumpLogSegments; and folders that Kafka wrote, served by us."""

import json
import shutil
from collections.abc import Callable

import pytest

from tests.support.broker import Broker
from tests.support.java import complaints_about, dump_log_segments, needs_java, segment_files
from tests.support.logs import read_records
from tests.support.paths import KAFKA_WRITTEN
from tests.support.raw_client import RawClient
from tests.support.reference_index import differences
from tests.support.workload import START_MS, one_batch
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e

INTERVAL_BYTES = 512
# Small segments and a dense index: there must be something to judge.
SETTINGS = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "8192",
    "log.index.interval.bytes": str(INTERVAL_BYTES),
}
# The codec in which batches come, and the topic's options.
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "none": (0, {}),
    "gzip": (1, {}),
    "snappy": (2, {}),
    "lz4": (3, {}),
    "zstd": (4, {}),
    "append-time": (0, {"message.timestamp.type": "LogAppendTime"}),
    "append-time-zstd": (0, {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}),
    "to-gzip": (4, {"compression.type": "gzip"}),
    "to-snappy": (0, {"compression.type": "snappy"}),
    "to-lz4": (0, {"compression.type": "lz4"}),
    "to-zstd": (1, {"compression.type": "zstd"}),
    "to-uncompressed": (3, {"compression.type": "uncompressed"}),
}
BATCHES = 120


def fill(client: RawClient, topic: str, codec: int) -> None:
    """Write batches whose times go back and forth, idempotently, over several segments."""
    who = client.init_producer_id()
    for number in range(BATCHES):
        times = [START_MS + number * 100 + late for late in (0, -5000, 40, 40)]
        records = [Record(i, time, b"k%d" % i, b"v" * (number % 90)) for i, time in enumerate(times)]
        data = build_batch(
            records,
            codec=codec,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=number * len(records),
        )
        assert client.produce(topic, data).base_offset == number * len(records)


@needs_java
@pytest.mark.java
@pytest.mark.timeout(300)
def test_dump_log_segments_has_no_complaint(new_broker: Callable[..., Broker]) -> None:
    """Over every codec, both timestamp types, rolled segments, snapshots; after a stop and after a crash."""
    broker = new_broker(SETTINGS)
    with RawClient(broker) as client:
        for topic, (codec, configs) in TOPICS.items():
            client.create(topic, configs=configs)
            fill(client, topic, codec)
    for end in (broker.kill, broker.stop):
        end()
        broker.start()
        with RawClient(broker) as client:
            for topic in TOPICS:
                assert client.produce(topic, one_batch(2)).error_code == 0
    broker.stop()
    files = segment_files(broker.data_dir)
    kinds = {kind: sum(path.suffix == kind for path in files) for kind in (".log", ".timeindex", ".snapshot")}
    assert min(kinds.values()) > len(TOPICS), kinds
    assert complaints_about(broker.data_dir) == []
    for topic in TOPICS:
        assert differences(broker.data_dir / f"{topic}-0", INTERVAL_BYTES) == []


@needs_java
@pytest.mark.java
def test_dump_log_segments_reads_back_what_was_sent(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    with RawClient(broker) as client:
        client.create("t")
        client.produce("t", one_batch(3, codec=4))
        broker.stop()
    printed = dump_log_segments(segment_files(broker.data_dir), "--print-data-log").stdout
    for offset in range(3):
        assert f"offset: {offset} CreateTime: {START_MS + offset}" in printed
        assert f"key: key {offset} payload: {'v' * 10}" in printed


@pytest.mark.parametrize("folder", sorted(path.name for path in KAFKA_WRITTEN.glob("m*")))
def test_partition_that_kafka_wrote_is_served(new_broker: Callable[..., Broker], folder: str) -> None:
    broker = new_broker({"log.retention.ms": "-1"})
    broker.stop()
    shutil.copytree(KAFKA_WRITTEN / folder, broker.data_dir / "adopted-0")
    broker.start()
    expected = [
        json.loads(line) for line in (KAFKA_WRITTEN / folder / "expected.jsonl").read_text().splitlines()
    ]
    with RawClient(broker) as client:
        found = [
            record for _, data in client.batches("adopted", offset=5000) for record in read_records(data)
        ]
        assert [(r.offset, r.timestamp) for r in found] == [(e["offset"], e["ts"]) for e in expected]
        assert [None if r.value is None else r.value.hex() for r in found] == [e["value"] for e in expected]
        middle = max(expected[len(expected) // 2]["ts"], 0)
        first = next((e for e in expected if e["ts"] >= middle), {"offset": -1, "ts": -1})  # v0 has no times
        answer = client.list_offsets("adopted", middle)
        assert (answer.offset, answer.timestamp) == (first["offset"], first["ts"])
        end = expected[-1]["offset"] + 1
        assert client.produce("adopted", one_batch(1)).base_offset == end
