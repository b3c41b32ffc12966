"""A topic read from a broker: every record once, in every format, by offset and by time; and what is wrong is said."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline import topics
from tests.support.broker import Broker, wait_until
from tests.support.compaction import keyed
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.client import cluster
from tidelog.pipeline import options
from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.tables import RECORDS
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e


def chosen(broker: Any, topic: str, **given: str) -> options.Options:
    named = {"from_": "from"}
    renamed = {named.get(name, name): text for name, text in given.items()}
    return options.parse({"source": f"broker:{broker.address}", "topic": topic, **renamed}, NOW)


def read(
    asked: options.Options, names: tuple[str, ...] = ("partition", "offset", "value")
) -> list[tuple[Any, ...]]:
    pieces = from_broker.plan(asked, NOW)
    return [row for piece in pieces for row in rows_of(from_broker.rows(piece, names, asked))]


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for each in batches for row in each.to_pylist()]


def delete_before(client: RawClient, topic: str, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    named = DeleteRecordsTopic(name=topic, partitions=[partition])
    answer = client.ask(21, 2, DeleteRecordsRequest(topics=[named], timeout_ms=20_000))
    assert answer.topics[0].partitions[0].error_code == 0


def remake(client: RawClient, topic: str) -> None:
    named = DeleteTopicState(name=topic)
    client.ask(20, 6, DeleteTopicsRequest(topics=[named], topic_names=[], timeout_ms=20_000))
    assert client.create(topic).error_code == 0


def test_all_records_of_all_partitions(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic, 3)
    for number in range(9):
        client.produce(topic, batch([NOW + number, NOW]), number % 3)
    rows = read(chosen(broker, topic))
    assert rows == [(p, n, b"v%d" % (n % 2)) for p in range(3) for n in range(6)]
    assert [row[0] for row in read(chosen(broker, topic, partitions="2,0"))] == [0] * 6 + [2] * 6


def test_all_columns(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    record = Record(0, NOW, b"k", None, (("h", b"1"), ("n", None)))
    client.produce(topic, build_batch([record]))
    (row,) = read(chosen(broker, topic), tuple(RECORDS.names))
    found = dict(zip(RECORDS.names, row, strict=True))
    assert found.pop("create_time").timestamp() * 1000 == NOW
    (partition,) = client.metadata(topic).topics[0].partitions
    assert found == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "append_time": None,  # Kafka's protocol does not tell
        "timestamp_type": "CreateTime",
        "key": b"k",
        "value": None,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        "producer_id": -1,
        "batch_base": 0,
        "leader_epoch": partition.leader_epoch,
    }


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_codec(broker: Broker, client: RawClient, topic: str, codec: int) -> None:
    client.create(topic)
    for _ in range(3):
        client.produce(topic, batch(range(NOW, NOW + 500), b"value ", codec=codec))
    assert [row[1:] for row in read(chosen(broker, topic))] == [
        (500 * b + n, b"value %d" % n) for b in range(3) for n in range(500)
    ]


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_older_formats(broker: Broker, client: RawClient, topic: str, version: str) -> None:
    client.create(topic, configs={"message.format.version": version})
    for codec in (0, 1):
        client.produce(topic, batch([NOW, NOW + 1, NOW + 2], codec=codec))
    rows = read(chosen(broker, topic), ("offset", "value", "timestamp_type"))
    kind = "NoTimestampType" if version == "0.9.0" else "CreateTime"
    assert rows == [(n, b"v%d" % (n % 3), kind) for n in range(6)]


def test_ranges_of_offsets_in_tasks(
    broker: Broker, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    for _ in range(6):
        client.produce(topic, batch([NOW] * 7, b"x" * 20_000))
    monkeypatch.setattr(from_broker, "_LEAST_RECORDS", 4)
    asked = chosen(broker, topic, taskBytes=str(100_000))
    pieces = from_broker.between(asked, {0: (3, 40)}, NOW)
    assert [(piece.window.start, piece.window.end) for piece in pieces] == [
        (n, min(n + 4, 40)) for n in range(3, 40, 4)
    ]
    offsets = [row[0] for piece in pieces for row in rows_of(from_broker.rows(piece, ("offset",), asked))]
    assert offsets == list(range(3, 40))
    assert sum(piece.size_bytes for piece in pieces) in range(37 * 20_000, 37 * 20_100)


def test_more_than_one_answer_holds(
    broker: Broker, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.fetching.MOST_BYTES", 3000)
    monkeypatch.setattr("tidelog.client.fetching.LEAST_BYTES", 3000)
    client.create(topic)
    for _ in range(20):
        client.produce(topic, batch([NOW] * 10, b"x" * 100))
    assert [row[1] for row in read(chosen(broker, topic))] == list(range(200))


TIMES = [[300, 100], [500, 200], [400, 600], [250, 700]]


@pytest.mark.parametrize("bounds", [(200, 500), (0, 300), (450, 10_000), (250, 251), (701, 900), (700, 701)])
def test_times_out_of_order_are_an_exact_set(
    broker: Broker, client: RawClient, topic: str, bounds: tuple[int, int]
) -> None:
    client.create(topic)
    for each in TIMES:
        client.produce(topic, batch([NOW + at for at in each]))
    rows = read(chosen(broker, topic, from_=str(NOW + bounds[0]), to=str(NOW + bounds[1])), ("offset",))
    flat = [at for each in TIMES for at in each]
    assert [row[0] for row in rows] == [n for n, at in enumerate(flat) if bounds[0] <= at < bounds[1]]


def test_a_time_spares_what_lies_before(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    for each in TIMES:
        client.produce(topic, batch([NOW + at for at in each]))
    (piece,) = from_broker.plan(chosen(broker, topic, from_=str(NOW + 502)), NOW)
    assert piece.window.start == 5


def test_a_topic_whose_lookups_are_by_append_time(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic, configs={"lookup.clock": "append"})
    soon = int(time.time() * 1000) + 1_800_000
    client.produce(topic, batch([soon]))  # appended before that
    rows = read(chosen(broker, topic, from_=str(soon)), ("offset",))
    assert rows == [(0,)]


def test_append_times_of_a_topic_that_has_them(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic, configs={"message.timestamp.type": "LogAppendTime"})
    client.produce(topic, batch([5, 6]))
    (first, _) = read(chosen(broker, topic), ("create_time", "append_time", "timestamp_type"))
    assert first[0] == first[1]
    assert first[2] == "LogAppendTime"
    at = int(first[0].timestamp() * 1000)
    assert len(read(chosen(broker, topic, clock="append", from_=str(at), to=str(at + 1)))) == 2
    assert read(chosen(broker, topic, clock="append", from_=str(at + 1))) == []
    assert read(chosen(broker, topic, clock="append", to=str(at))) == []


def test_append_times_that_the_protocol_does_not_tell(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW]))
    asked = chosen(broker, topic, clock="append", from_=str(NOW))
    with pytest.raises(WrongOption, match=rf"topic {topic} .*source=segments:FOLDER"):
        read(asked)
    # Nor where the topic has them now, and had not when the batch was appended.
    (piece,) = from_broker.plan(chosen(broker, topic), NOW)
    with pytest.raises(WrongOption, match=rf"{topic}-0@0 has a create time only.*source=segments:FOLDER"):
        rows_of(from_broker.rows(piece, ("offset",), asked))


def test_no_key_is_missed_though_its_record_is_compacted_away_before_it_is_read(
    tmp_path: Path, topic: str
) -> None:
    options = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
    with (
        Broker(tmp_path / "data", {"log.cleaner.backoff.ms": "20"}).start() as broker,
        RawClient(broker) as client,
    ):
        client.create(topic, configs=options)
        for key in (b"a", b"b", b"c"):
            client.produce(topic, keyed((key, b"x" * 100)))
        asked = chosen(broker, topic)
        (piece,), (narrow,) = from_broker.plan(asked, NOW), from_broker.between(asked, {0: (0, 2)}, NOW)
        for number in range(4):
            client.produce(topic, keyed((b"a", b"later %d" % number + b"x" * 100)))
        wait_until(lambda: read(chosen(broker, topic), ("offset",))[0] > (0,))
        read_keys = {key for (key,) in rows_of(from_broker.rows(piece, ("key",), asked))}
        assert read_keys == {b"a", b"b", b"c"}
        # A range of offsets ends where it says.
        assert rows_of(from_broker.rows(narrow, ("offset", "key"), asked)) == [(1, b"b")]
        broker.stop()


def test_what_retention_deletes_while_it_is_read(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    for _ in range(4):
        client.produce(topic, batch([NOW] * 5))
    asked = chosen(broker, topic)
    (piece,) = from_broker.plan(asked, NOW)
    delete_before(client, topic, 7)
    with pytest.raises(
        PipelineError, match=rf"{topic}-0@0: retention has deleted offsets 0 to 6 .*read again"
    ):
        rows_of(from_broker.rows(piece, ("offset",), asked))
    asked = chosen(broker, topic, failOnDataLoss="false")
    assert rows_of(from_broker.rows(piece, ("offset",), asked)) == [(n,) for n in range(7, 20)]
    delete_before(client, topic, 20)
    assert rows_of(from_broker.rows(piece, ("offset",), asked)) == []
    assert from_broker.plan(asked, NOW) == []


def test_a_topic_that_is_made_anew_while_it_is_read(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW] * 5))
    asked = chosen(broker, topic)
    (piece,) = from_broker.plan(asked, NOW)
    remake(client, topic)
    client.produce(topic, batch([NOW] * 5))
    with pytest.raises(PipelineError, match=rf"{topic}-0: the topic was deleted and created again"):
        rows_of(from_broker.rows(piece, ("offset",), asked))


def test_damage_that_the_broker_knows_of(tmp_path: Path, topic: str) -> None:
    with Broker(tmp_path / "data").start() as broker:
        with RawClient(broker) as client:
            client.create(topic)
            for _ in range(3):
                client.produce(topic, batch([NOW] * 5, b"x" * 100))
        broker.stop()
        path = tmp_path / "data" / f"{topic}-0" / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        broker.start()
        with pytest.raises(PipelineError, match=rf"{topic}-0@\d+: the broker answers CORRUPT_MESSAGE"):
            read(chosen(broker, topic))


def test_there_is_no_such_topic(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    with pytest.raises(
        PipelineError, match=rf"{broker.address}: there is no topic {topic}s; did you mean {topic}\?"
    ):
        read(chosen(broker, topic + "s"))
    assert f"{topic}s" not in {each.name for each in client.metadata(create=False).topics}
    with pytest.raises(PipelineError, match="has no partition 3; it has"):
        read(chosen(broker, topic, partitions="0,3"))


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    asked = options.parse({"source": f"broker:127.0.0.1:{port}", "topic": "t"}, NOW)
    with pytest.raises(
        PipelineError, match=rf"127.0.0.1:{port} cannot be reached: .*refused; tried for 0.2 s"
    ):
        read(asked)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("localhost", "the port is missing"),
        ("localhost:1,localhost", "the port is missing"),
        ("localhost:", "write it as host:port"),
        (":9092", "write it as host:port"),
        ("localhost:x", "write it as host:port"),
        ("localhost:\N{ARABIC-INDIC DIGIT THREE}", "write it as host:port"),
        ("::1:9092", r"an IPv6 address as \[::1\]:9092"),
        ("localhost:0", "the port is out of range"),
        ("localhost:65536", "the port is out of range"),
    ],
)
def test_a_place_that_is_none(place: str, reason: str) -> None:
    asked = options.parse({"source": f"broker:{place}", "topic": "t"}, NOW)
    with pytest.raises(WrongOption, match=f"names no HOST:PORT.*{reason}"):
        read(asked)


def test_a_table_that_a_broker_does_not_give() -> None:
    asked = options.parse({"source": "broker:localhost:1", "topic": "t", "table": "segments"}, NOW)
    with pytest.raises(WrongOption, match="option table: a broker gives records; segments are read from"):
        read(asked)


def test_several_addresses_of_which_one_answers(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    source = f"broker:127.0.0.1:{port},{broker.address}"
    assert len(read(options.parse({"source": source, "topic": topic}, NOW))) == 1


def test_offsets_of_a_group(broker: Broker, client: RawClient, topic: str) -> None:
    client.create(topic, 3)
    from_broker.commit(chosen(broker, topic, group="g-" + topic), {0: 5, 2: 7})
    assert topics.committed(broker, "g-" + topic, topic) == {0: 5, 2: 7}
    assert topics.committed(broker, "nobody", topic) == {}


def test_a_group_is_kept_by_brokers_alone() -> None:
    with pytest.raises(WrongOption, match="option group: only a broker"):
        options.parse({"source": "segments:/x", "topic": "t", "group": "g"}, NOW)
