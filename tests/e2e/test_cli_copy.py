"""`tidelog copy` between brokers: ours, Apache Kafka's, and sources whose answers a test chooses."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from bench.kafka import QUICK_JVM, ApacheKafka
from tests.support import fake_broker
from tests.support.broker import Broker, Running
from tests.support.command import Done, ok, rows, tidelog
from tests.support.fake_broker import FakeBroker
from tests.support.java import jars, needs_java
from tidelog.client import cluster
from tidelog.protocol.messages.fetch import AbortedTransaction, FetchResponse
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListGroupsResponse
from tidelog.protocol.records import entries, message_set
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e

START_MS = 1_709_283_600_000  # 2024-03-01 09:00 UTC
SENT = 60


@pytest.fixture
def target(new_broker: Callable[..., Broker]) -> Broker:
    return new_broker({"log.retention.ms": "-1"}, name="target")


def copied(source: Running | FakeBroker, target: Running, topics: str, *options: str) -> Done:
    return tidelog(target, "copy", "--from", source.address, "--topics", topics, *options)


def records(broker: Running, topic: str) -> list[dict[str, Any]]:
    """Return the records of a topic, without their offsets."""
    found = rows(tidelog(broker, "tail", topic, "--json"))
    return [{name: each[name] for name in each if name != "offset"} for each in found]


def fill(source: Running, topic: str, codec: str | None = None, first: int = 0) -> None:
    """Send records of all shapes, some out of order, to three partitions."""
    with closing(KafkaProducer(bootstrap_servers=source.address, compression_type=codec)) as to:
        for number in range(first, first + SENT):
            to.send(
                topic,
                None if number % 5 == 0 else b"%d" % number,
                key=None if number % 5 == 1 else b"key %d" % (number % 7),
                headers=[("h", b"\xff"), ("h", b"")] if number % 3 == 0 else [],
                partition=number % 3,
                timestamp_ms=START_MS + number * 1000 - 5000 * (number % 11 == 0),
            )
        to.flush()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_copy_has_the_same_records_and_a_rerun_adds_only_new_ones(
    shared_broker: Running, target: Broker, topic: str, codec: str | None
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "3", "--config", "retention.ms=-1"))
    fill(shared_broker, topic, codec)
    counted = {"topic": topic, "partitions": 3, "groups": 0}
    assert rows(copied(shared_broker, target, topic, "--json")) == [{**counted, "present": 0, "copied": SENT}]
    assert records(target, topic) == records(shared_broker, topic)
    assert rows(copied(shared_broker, target, topic, "--json")) == [{**counted, "present": SENT, "copied": 0}]

    fill(shared_broker, topic, codec, SENT)
    assert rows(copied(shared_broker, target, topic, "--json")) == [
        {**counted, "present": SENT, "copied": SENT}
    ]
    assert records(target, topic) == records(shared_broker, topic)
    options = rows(tidelog(target, "configs", "describe", "--topic", topic, "--json"))
    assert {each["option"]: each["value"] for each in options} == {"retention.ms": "-1"}


def test_a_copy_without_a_saved_place_is_recognized_by_its_records(
    shared_broker: Running, target: Broker, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "3"))
    fill(shared_broker, topic)
    ok(copied(shared_broker, target, topic))
    (place,) = rows(tidelog(target, "groups", "list", "--json"))
    ok(tidelog(target, "groups", "delete", place["group"], "--yes"))
    fill(shared_broker, topic, first=SENT)
    (row,) = rows(copied(shared_broker, target, topic, "--json"))
    assert (row["present"], row["copied"]) == (SENT, SENT)
    assert records(target, topic) == records(shared_broker, topic)


def test_the_offsets_of_groups_are_copied_and_never_move_back(
    shared_broker: Running, target: Broker, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "3"))
    fill(shared_broker, topic)
    group = f"{topic}-group"

    def set_to(broker: Running, offset: str) -> None:
        done = tidelog(broker, "groups", "reset", group, "--topic", topic, "--to-offset", offset, "--yes")
        assert done.returncode == 0

    def offsets() -> list[int]:
        (described,) = rows(tidelog(target, "groups", "describe", group, "--json"))
        return [each["committed"] for each in described["partitions"]]

    set_to(shared_broker, "7")
    (row,) = rows(copied(shared_broker, target, topic, "--json"))
    assert (row["groups"], offsets()) == (1, [7, 7, 7])
    set_to(target, "12")
    set_to(shared_broker, "9")
    (row,) = rows(copied(shared_broker, target, topic, "--json"))
    assert (row["groups"], offsets()) == (0, [12, 12, 12])
    set_to(shared_broker, "15")  # of records that an earlier run has copied
    ok(copied(shared_broker, target, topic))
    assert offsets() == [15, 15, 15]


def test_a_group_skips_nothing_if_the_target_looks_up_append_times(
    shared_broker: Running, target: Broker, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--config", "lookup.clock=append"))
    with closing(KafkaProducer(bootstrap_servers=shared_broker.address)) as to:
        for _ in range(5):
            # Later than any append time.
            to.send(topic, b"v", timestamp_ms=(int(time.time()) + 1800) * 1000)
        to.flush()
    group = f"{topic}-group"
    done = tidelog(shared_broker, "groups", "reset", group, "--topic", topic, "--to-offset", "1", "--yes")
    assert done.returncode == 0
    ok(tidelog(shared_broker, "delete-records", topic, "--partition", "0", "--offset", "2", "--yes"))
    for _ in range(2):
        ok(copied(shared_broker, target, topic))
    (described,) = rows(tidelog(target, "groups", "describe", group, "--json"))
    assert [each["committed"] for each in described["partitions"]] == [0]


def source_of(
    *batches: bytes, aborted: Sequence[tuple[int, int]] = (), lost_at: int | None = None
) -> FakeBroker:
    """A broker of topic `t` with these batches; it closes the connection when asked for the offset `lost_at`."""
    ends = [entries.read(each, 0, 1 << 20).last_offset + 1 for each in batches]

    def fetch(offset: int) -> FetchResponse | None:
        if offset == lost_at:
            return None
        until = lost_at if lost_at is not None and offset < lost_at else 1 << 60
        data = b"".join(each for each, end in zip(batches, ends, strict=True) if offset < end <= until)
        answer = fake_broker.records(data)
        part = answer.responses[0].partitions[0]
        part.aborted_transactions = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
        return answer

    no_groups = ListGroupsResponse(error_code=0, groups=[])
    return fake_broker.one_broker(ends[-1], fetch, answers={LIST_GROUPS.key: lambda _: no_groups})


def batch(first: int, *values: bytes, **options: Any) -> bytes:
    made = [Record(first + n, START_MS + first + n, None, value) for n, value in enumerate(values)]
    return build_batch(made, **options)


def values(broker: Running) -> list[tuple[str, int]]:
    return [
        (each["value"], each["timestamp"] - START_MS) for each in rows(tidelog(broker, "tail", "t", "--json"))
    ]


@pytest.mark.parametrize("most", [1, 1000])  # records are collected, or batches sent as they came
def test_control_batches_and_aborted_transactions_are_not_copied(
    target: Broker, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("tidelog.client.copying.AS_IT_CAME_RECORDS", most)
    marker = {"transactional": True, "control": True}
    batches = [
        batch(0, b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        batch(2, b"aborted", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True),
        batch(3, b"", producer_id=7, **marker),
        batch(4, b"", producer_id=8, **marker),
        batch(5, b"c", producer_id=8, producer_epoch=0, base_sequence=1, transactional=True),
        batch(6, b"", producer_id=8, **marker),
    ]
    with source_of(*batches, aborted=[(8, 2)]) as source:
        ok(copied(source, target, "t"))
        ok(copied(source, target, "t"))
    assert values(target) == [("a", 0), ("b", 1), ("c", 5)]


def test_a_batch_keeps_its_times_if_compaction_left_gaps_or_the_broker_set_them(target: Broker) -> None:
    gaps = build_batch([Record(n, START_MS + n, b"k", b"%d" % n) for n in (1, 4, 5)], base_offset=0)
    appended = batch(6, b"6", b"7", log_append_time=True)
    older = [
        message_set.build_message_set([Record(8, START_MS + 8, None, b"8")], magic=1),
        message_set.build_message_set(
            [Record(9, START_MS + 9, None, b"9"), Record(10, 0, None, b"x")], magic=1, codec=1
        ),
    ]
    with source_of(gaps, appended, *map(bytes, older)) as source:
        ok(copied(source, target, "t"))
    times = [("1", 1), ("4", 4), ("5", 5), ("6", 7), ("7", 7), ("8", 8), ("9", 9), ("x", -START_MS)]
    assert sorted(values(target)) == sorted(times)


def test_records_that_were_deleted_between_two_copies_are_named(target: Broker) -> None:
    log: dict[str, Any] = {"start": 0, "end": 2, "data": batch(0, b"a", b"b")}
    no_groups = ListGroupsResponse(error_code=0, groups=[])
    answers: dict[int, Callable[[Any], Any]] = {
        LIST_GROUPS.key: lambda _: no_groups,
        fake_broker.LIST_OFFSETS: lambda request: fake_broker.offsets(log["start"], log["end"], request),
    }
    with fake_broker.one_broker(0, lambda _: fake_broker.records(log["data"]), answers=answers) as source:
        ok(copied(source, target, "t"))
        log |= {"start": 5, "end": 7, "data": batch(5, b"f", b"g")}
        done = copied(source, target, "t")
        assert done.returncode == 0
        assert "t-0: offsets 2 to 4 were deleted at the source before they were copied" in done.stderr
        ok(copied(source, target, "t"))
    assert [value for value, _ in values(target)] == ["a", "b", "f", "g"]


def test_a_source_that_is_lost_ends_with_3_and_a_rerun_continues(
    target: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    batches = [batch(0, b"a", b"b"), batch(2, b"c"), batch(3, b"d")]
    with source_of(*batches, lost_at=3) as source:
        done = copied(source, target, "t", "--json")
        assert f"the broker at {source.address} does not answer" in done.stderr
    assert done.returncode == 3
    assert json.loads(done.stdout)["copied"] == 3
    assert "t-0 is copied up to offset 3 of the source, where a rerun continues" in done.stderr
    with source_of(*batches) as source:
        done = copied(source, target, "t", "--json")
    assert (json.loads(done.stdout)["present"], json.loads(done.stdout)["copied"]) == (3, 1)
    assert [value for value, _ in values(target)] == ["a", "b", "c", "d"]


def test_a_damaged_batch_ends_the_copy_of_its_topic(target: Broker) -> None:
    bad = bytearray(batch(1, b"bad"))
    bad[-2] ^= 1
    with source_of(batch(0, b"good"), bytes(bad)) as source:
        done = copied(source, target, "t")
    assert done.returncode == 1
    assert "t-0@1: the records are damaged; t-0 is copied up to offset" in done.stderr


def test_batches_that_are_too_large_for_the_target_are_split(
    shared_broker: Running, target: Broker, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", "3"))
    ok(tidelog(target, "topics", "create", topic, "--partitions", "3", "--config", "max.message.bytes=300"))
    fill(shared_broker, topic)
    ok(copied(shared_broker, target, topic))
    assert records(target, topic) == records(shared_broker, topic)


@pytest.mark.parametrize(
    ("topics", "exit_code", "message"),
    [
        ("*", 2, "--topics *: nothing to repeat at position 0; '.*' matches every topic"),
        ("none", 1, "--topics: no topic matches none; "),
    ],
)
def test_topics_that_cannot_be_meant_are_refused(
    shared_broker: Running, target: Broker, topics: str, exit_code: int, message: str
) -> None:
    done = copied(shared_broker, target, topics)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert done.stderr.startswith(f"tidelog: {message}")


def test_a_topic_is_not_copied_onto_itself(shared_broker: Running) -> None:
    for options in (("--from", shared_broker.address), ("--to", shared_broker.address)):
        done = tidelog(shared_broker, "copy", "--topics", ".*", *options)
        assert done.returncode == 2
        assert "a topic cannot be copied onto itself" in done.stderr
    done = tidelog(shared_broker, "copy", "--topics", ".*")
    assert (done.returncode, "give --from HOST:PORT" in done.stderr) == (2, True)


def test_a_topic_with_fewer_partitions_or_other_records_is_refused_and_others_are_copied(
    shared_broker: Running, target: Broker, topic: str
) -> None:
    few, foreign, good = names = [f"{topic}-{kind}" for kind in ("few", "foreign", "good")]
    for name in names:
        ok(tidelog(shared_broker, "topics", "create", name, "--partitions", "3"))
        fill(shared_broker, name)
    ok(tidelog(target, "topics", "create", few, "--partitions", "1"))
    ok(tidelog(target, "topics", "create", foreign, "--partitions", "3"))
    with closing(KafkaProducer(bootstrap_servers=target.address)) as to:
        to.send(foreign, b"other", partition=1)
    done = copied(shared_broker, target, f"{topic}-.*", "--json")
    assert done.returncode == 1
    assert {each["topic"]: each["copied"] for each in map(json.loads, done.stdout.splitlines())} == {
        few: 0,
        foreign: SENT // 3,
        good: SENT,
    }
    first, second = done.stderr.splitlines()
    assert f"topic {few} has 1 partition at the target and 3 at the source: run" in first
    assert f"{foreign}-1: the record at offset 0 is not from the source; delete topic" in second


@needs_java
@pytest.mark.java
def test_topics_are_copied_from_apache_kafka_and_back(
    shared_broker: Running, tmp_path: Path, new_broker: Callable[..., Broker], topic: str
) -> None:
    settings = {"log.retention.ms": "-1"}
    with ApacheKafka(jars(), QUICK_JVM).start(0, tmp_path / "kafka", settings) as kafka:
        ok(
            tidelog(
                shared_broker,
                "topics",
                "create",
                topic,
                "--partitions",
                "3",
                "--config",
                "lookup.clock=record",
            )
        )
        fill(shared_broker, topic, "zstd")
        done = tidelog(shared_broker, "copy", "--to", kafka.address, "--topics", topic)
        assert (done.returncode, done.stderr.count("\n")) == (0, 1)
        assert f"topic {topic}: the target refuses lookup.clock=record: " in done.stderr
        assert records(kafka, topic) == records(shared_broker, topic)

        to = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
        to.init_transactions()
        for number in range(6):
            to.begin_transaction()
            to.produce(topic, b"in %d" % number, partition=0, timestamp=START_MS + 100_000 + number)
            to.flush()
            (to.abort_transaction if number % 2 else to.commit_transaction)()
        ours = new_broker(settings, name="ours")
        for _ in range(2):
            done = copied(kafka, ours, topic, "--json")
            assert done.returncode == 0
        assert (json.loads(done.stdout)["present"], json.loads(done.stdout)["copied"]) == (SENT + 3, 0)
        wanted = records(shared_broker, topic)
        assert records(ours, topic)[:SENT] == wanted
        assert [each["value"] for each in records(ours, topic)[SENT:]] == ["in 0", "in 2", "in 4"]
