"""Spark's own connector, unchanged, against a broker: who has jobs with `format("kafka")` changes an address."""

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame

from tests.pipeline import topics
from tests.support.broker import Broker
from tests.support.workload import unique_topic

NOW = 1_700_000_000_000
COLUMNS = ["partition", "offset", "unix_millis(timestamp) as timestamp_ms", "key", "value", "headers"]
# Both ends of a read of TOPIC, and the offsets that it has of each partition.
ENDS: list[tuple[dict[str, str], range, range]] = [
    ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(50), range(50)),
    (
        {"startingOffsets": '{"TOPIC":{"0":10,"1":-2}}', "endingOffsets": '{"TOPIC":{"0":20,"1":-1}}'},
        range(10, 20),
        range(50),
    ),
    (
        {"startingTimestamp": str(NOW + 20_000), "endingTimestamp": str(NOW + 30_000)},
        range(20, 30),
        range(10, 20),
    ),
    (
        {
            "startingOffsetsByTimestamp": f'{{"TOPIC":{{"0":{NOW + 45_500},"1":{NOW}}}}}',
            "endingOffsetsByTimestamp": f'{{"TOPIC":{{"0":{NOW + 99_000},"1":{NOW + 12_001}}}}}',
        },
        range(46, 50),
        range(3),
    ),
]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unique_topic(request.node.originalname)


@pytest.fixture(scope="module")
def filled(target_broker: Broker) -> str:
    """A topic that tests only read."""
    return fill(target_broker, unique_topic("connector"))


def fill(target_broker: Broker, topic: str) -> str:
    """Make two partitions with 50 records each, one a second; the second partition's are ten seconds later."""
    topics.make(target_broker, topic, 2)
    producer = KafkaProducer(bootstrap_servers=target_broker.address)
    for i in range(100):
        number, at = i % 2, NOW + i // 2 * 1000 + i % 2 * 10_000
        producer.send(topic, b"v%d" % i, b"k%d" % i, [("n", b"%d" % i)], number, at)
    producer.flush()
    producer.close()
    return topic


def frame(spark: Any, broker: Broker, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**given, **options).load()


def read(spark: Any, broker: Broker, topic: str, **options: str) -> list[topics.Read]:
    rows = frame(spark, broker, topic, **options).selectExpr(*COLUMNS).collect()
    return sorted(
        topics.Read(
            *row[:3], *(None if one is None else bytes(one) for one in row[3:5]), headers_of(row.headers)
        )
        for row in rows
    )


def headers_of(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(one.key, bytes(one.value)) for one in headers or ()]


def test_batch_reads_everything_in_as_many_tasks_as_are_asked_for(
    spark: Any, target_broker: Broker, filled: str
) -> None:
    found = read(spark, target_broker, filled)
    assert len(found) == 100
    assert found == topics.read(target_broker, filled)
    tasks = "spark_partition_id() as task", "partition", "offset"
    rows = frame(spark, target_broker, filled, minPartitions="7").selectExpr(*tasks).collect()
    assert len({row.task for row in rows}) >= 7
    assert sorted(row[1:] for row in rows) == [(one.partition, one.offset) for one in found]


def test_both_ends_of_what_a_batch_reads(spark: Any, target_broker: Broker, filled: str) -> None:
    """All reads are one job: to plan and run a job costs more than these records."""
    frames = []
    for number, (options, _, _) in enumerate(ENDS):
        given = {name: text.replace("TOPIC", filled) for name, text in options.items()}
        one = frame(spark, target_broker, filled, **given)
        frames.append(one.selectExpr(f"{number} as number", "partition", "offset"))
    found = sorted(map(tuple, reduce(DataFrame.unionAll, frames).collect()))
    assert found == [
        (number, partition, offset)
        for number, (_, *offsets) in enumerate(ENDS)
        for partition, of_one in enumerate(offsets)
        for offset in of_one
    ]


def test_a_start_behind_every_record_is_an_error_or_nothing_as_asked(
    spark: Any, target_broker: Broker, filled: str
) -> None:
    late = {"startingTimestamp": str(NOW + 100_000)}
    with pytest.raises(Exception, match="No offset matched from request"):
        read(spark, target_broker, filled, **late)
    late["startingOffsetsByTimestampStrategy"] = "latest"
    assert read(spark, target_broker, filled, **late) == []


def test_batch_writes(spark: Any, target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic, 2)
    frame = spark.range(0, 40, 1, 2).selectExpr(
        "if(id = 3, null, binary(cast(id as string))) as key",
        "if(id = 4, null, cast(id as string)) as value",
        "array(named_struct('key', 'n', 'value', binary(cast(id as string)))) as headers",
        "int(id % 2) as partition",
    )
    options = {"kafka.bootstrap.servers": target_broker.address, "topic": topic, "includeHeaders": "true"}
    frame.write.format("kafka").options(**options).save()
    found = topics.read(target_broker, topic)
    numbers = {one.headers[0][1] or b"": one for one in found}
    assert sorted(map(int, numbers)) == list(range(40))
    assert len(found) == 40
    for number, one in numbers.items():
        assert (one.key, one.value) == (
            None if number == b"3" else number,
            None if number == b"4" else number,
        )
        assert one.partition == int(number) % 2


def test_a_stream_from_topic_to_topic(spark: Any, target_broker: Broker, topic: str, tmp_path: Path) -> None:
    """Read and written by the connector, in small batches, and gone on with behind its checkpoint."""
    filled = fill(target_broker, topic)
    copy = topics.make(target_broker, filled + "-copy", 2)
    at = {"kafka.bootstrap.servers": target_broker.address}
    starts = {"startingTimestamp": str(NOW + 10_000), "maxOffsetsPerTrigger": "30"}

    def to_the_end() -> None:
        rows = spark.readStream.format("kafka").options(**at, **starts).option("subscribe", filled).load()
        query = (
            rows.select("key", "value", "partition")
            .writeStream.format("kafka")
            .options(**at, topic=copy, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert len(query.recentProgress) >= 1

    def keys(of: str, from_ms: int) -> list[bytes | None]:
        return sorted(
            (one.key for one in topics.read(target_broker, of) if one.timestamp_ms >= from_ms), key=str
        )

    to_the_end()
    assert keys(copy, 0) == keys(filled, NOW + 10_000)
    producer = KafkaProducer(bootstrap_servers=target_broker.address)
    producer.send(filled, b"later", b"later", timestamp_ms=NOW + 60_000).get()
    producer.close()
    to_the_end()
    assert keys(copy, 0) == keys(filled, NOW + 10_000)
    assert len(keys(copy, 0)) == 91
