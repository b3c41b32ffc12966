"""A topic read from Apache Kafka: the same rows as from ours, a stream over it, and a group's offsets."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.pipeline import topics
from tests.pipeline.test_from_broker import TIMES, chosen, delete_before, read, remake, rows_of
from tests.pipeline.test_stream import grow, stream
from tests.support.broker import wait_until
from tests.support.java import jars, needs_java
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption

pytestmark = [needs_java, pytest.mark.java, pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(jars(), QUICK_JVM) as kafka:
        yield kafka.start(0, folder / "data", {"log.retention.ms": "-1"})


@pytest.fixture
def client(kafka: ApacheKafka) -> Iterator[RawClient]:
    with contextlib.closing(RawClient(kafka)) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.originalname
    return name.replace("_", "-")


def made(client: RawClient, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic and wait until it takes records: the controller tells its brokers a moment later."""
    assert client.create(topic, partitions, configs).error_code == 0
    wait_until_served(client, topic, partitions)


def wait_until_served(client: RawClient, topic: str, partitions: int = 1) -> None:
    for partition in range(partitions):
        while client.list_offsets(topic, -1, partition).error_code:
            pass


def has_another_id(client: RawClient, was: Any) -> bool:
    (now,) = client.metadata(was.name, create=False).topics
    return not now.error_code and now.topic_id != was.topic_id


def produce(client: RawClient, topic: str, records: bytes, partition: int = 0) -> None:
    assert client.produce(topic, records, partition).error_code == 0


def test_every_record_in_every_codec(kafka: Any, client: RawClient, topic: str) -> None:
    made(client, topic, 2)
    for codec in range(5):
        produce(client, topic, batch(range(NOW, NOW + 300), codec=codec), codec % 2)
    rows = read(chosen(kafka, topic))
    assert [row[:2] for row in rows] == [(0, n) for n in range(900)] + [(1, n) for n in range(600)]
    assert {row[2] for row in rows} == {b"v%d" % n for n in range(300)}


@pytest.mark.parametrize("bounds", [(200, 500), (450, 10_000), (250, 251), (701, 900), (700, 701)])
def test_times_out_of_order(kafka: Any, client: RawClient, topic: str, bounds: tuple[int, int]) -> None:
    topic = f"{topic}-{bounds[0]}-{bounds[1]}"
    made(client, topic)
    for each in TIMES:
        produce(client, topic, batch([NOW + at for at in each]))
    rows = read(chosen(kafka, topic, from_=str(NOW + bounds[0]), to=str(NOW + bounds[1])), ("offset",))
    flat = [at for each in TIMES for at in each]
    assert [row[0] for row in rows] == [n for n, at in enumerate(flat) if bounds[0] <= at < bounds[1]]


def test_append_times(kafka: Any, client: RawClient, topic: str) -> None:
    made(client, topic, **{"message.timestamp.type": "LogAppendTime"})
    made(client, topic + "-none")
    produce(client, topic, batch([5, 6]))
    (first, _) = read(chosen(kafka, topic), ("create_time", "append_time"))
    assert first[0] == first[1]
    at = int(first[0].timestamp() * 1000)
    assert len(read(chosen(kafka, topic, clock="append", from_=str(at), to=str(at + 1)))) == 2
    with pytest.raises(WrongOption, match=r"CreateTime, .*source=segments:FOLDER"):
        read(chosen(kafka, topic + "-none", clock="append", from_=str(at)))


def test_what_is_not_there(kafka: Any, client: RawClient, topic: str) -> None:
    made(client, topic)
    for _ in range(2):
        produce(client, topic, batch([NOW] * 5))
    with pytest.raises(PipelineError, match=rf"there is no topic {topic}s; did you mean {topic}\?"):
        read(chosen(kafka, topic + "s"))
    asked = chosen(kafka, topic)
    (piece,) = from_broker.plan(asked, NOW)
    delete_before(client, topic, 7)
    with pytest.raises(PipelineError, match=rf"{topic}-0@0: retention has deleted offsets 0 to 6"):
        rows_of(from_broker.rows(piece, ("offset",), asked))
    (piece,) = from_broker.plan(asked, NOW)
    (was,) = client.metadata(topic, create=False).topics
    remake(client, topic)
    # Until then Kafka may still serve the deleted topic.
    wait_until(lambda: has_another_id(client, was))
    wait_until_served(client, topic)
    with pytest.raises(PipelineError, match=rf"{topic}-0: the topic was deleted and created again"):
        rows_of(from_broker.rows(piece, ("offset",), asked))


def test_a_stream_and_the_offsets_of_its_group(kafka: Any, client: RawClient, topic: str) -> None:
    made(client, topic)
    produce(client, topic, batch([NOW] * 5))
    reader = stream(f"broker:{kafka.address}", topic, group=f"g-{topic}")
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxRows(3))
    grow(client, topic, 2)
    while len((end := reader.latestOffset(middle, ReadAllAvailable()))["partitions"]) < 2:
        pass
    rows = [row for task in reader.partitions(start, end) for row in rows_of(reader.read(task))]
    assert rows == [(0, n) for n in range(5)]
    reader.commit(end)
    assert topics.committed(kafka, f"g-{topic}", topic) == {0: 5, 1: 0}
