"""P12: a log that takes no writes says so, to the command line and to clients, and is read on."""

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from kafka.errors import KafkaStorageError

from tests.fault.test_damage_served import T0, TOPICS, fetch, fill, make_a_file, make_unreadable
from tests.support.faulty_disk import FaultyDisk
from tests.support.java import needs_java, run_java
from tests.support.served import Client, Serve, Served, until
from tests.support.workload import one_batch
from tidelog.broker import broker
from tidelog.cli import health
from tidelog.cli.main import app
from tidelog.client import producer as client_producer
from tidelog.client.cluster import Cluster
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Record, build_batch

COUNT = 5


def address(served: Served) -> str:
    host, port = served.address
    return f"{host}:{port}"


async def described(served: Served, topic: str, *options: str) -> str:
    words = ["topics", "describe", topic, "--bootstrap", address(served), *options]
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


async def takes_writes(served: Served, topic: str) -> bool:
    """Return what the command says of the topic's only partition, and see that it says the same to people."""
    (partition,) = json.loads(await described(served, topic, "--json"))["partitions"]
    text = await described(served, topic)
    refused = "1 of 1 partitions refuse writes, but can be read: the broker cannot use its files"
    assert text.splitlines()[3].split()[-1] == ("taken" if partition["takes_writes"] else "refused")
    assert (refused in text) != partition["takes_writes"]
    return bool(partition["takes_writes"])


async def offline(client: Client, version: int) -> dict[str, list[int]]:
    """Return the replicas that Metadata says are offline, by topic."""
    answer = await client.ask(METADATA, version, MetadataRequest(topics=None))
    for topic in answer.topics:
        (partition,) = topic.partitions
        assert (topic.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
        assert partition.replica_nodes == partition.isr_nodes == [1]
    return {topic.name: topic.partitions[0].offline_replicas for topic in answer.topics}


async def code_of_production(client: Client, topic: str, acks: int = -1) -> int:
    return int((await client.produce(topic, memoryview(one_batch(2)), acks=acks)).error_code)


async def test_P12_a_log_whose_flush_failed_says_so_until_a_restart(serve: Serve, disk: FaultyDisk) -> None:
    served = await serve()
    client = await served.connect()
    await fill(client, 10)
    assert [await takes_writes(served, topic) for topic in TOPICS] == [True, True]
    with disk.failing("sync", of="bad-0/*"):
        assert await code_of_production(client, "bad") == ErrorCode.KAFKA_STORAGE_ERROR
    for acks in (1, -1):  # that the disk is well again proves nothing
        assert await code_of_production(client, "bad", acks) == ErrorCode.KAFKA_STORAGE_ERROR
    assert await code_of_production(client, "good") == ErrorCode.NONE
    assert [await takes_writes(served, topic) for topic in TOPICS] == [False, True]
    for version in (5, 8, 13):
        assert await offline(client, version) == {"bad": [1], "good": []}
    assert await offline(client, 4) == {"bad": [], "good": []}, "it has no field for that"
    found = await fetch(client, 1)
    assert [found[topic].error_code for topic in TOPICS] == [ErrorCode.NONE] * 2
    assert [bool(found[topic].records) for topic in TOPICS] == [True, True]
    await served.stop()
    served = await serve()
    assert [await takes_writes(served, topic) for topic in TOPICS] == [True, True]
    assert await code_of_production(await served.connect(), "bad") == ErrorCode.NONE


async def test_P12_while_the_disk_is_full_every_log_says_so_and_not_any_longer(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    served = await serve()
    client = await served.connect()
    await fill(client, 10)
    disk.fill()
    assert await code_of_production(client, "bad") == ErrorCode.KAFKA_STORAGE_ERROR
    assert [await takes_writes(served, topic) for topic in TOPICS] == [False, False]
    disk.heal()
    logs = [served.broker.topics.by_name[topic].partitions[0].log for topic in TOPICS]
    await asyncio.wait_for(until(lambda: all(log.takes_writes for log in logs)), 20)
    assert [await takes_writes(served, topic) for topic in TOPICS] == [True, True]


async def test_P12_a_log_that_waited_for_space_takes_writes_before_anybody_has_asked_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    served = await serve()
    client = await served.connect()
    await fill(client, 10)
    log = served.broker.topics.by_name["bad"].partitions[0].log
    has_room, tries = False, 0

    def write() -> None:
        nonlocal tries
        tries += 1
        if not has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log.health.fail("something could not be saved", write)
    await asyncio.wait_for(until(lambda: tries > 1), 20)
    assert await offline(client, 13) == {"bad": [1], "good": []}
    has_room = True
    await asyncio.wait_for(until(lambda: log.takes_writes), 20)
    assert await offline(client, 13) == {"bad": [], "good": []}
    assert await code_of_production(client, "bad") == ErrorCode.NONE


async def command(served: Served, *words: str) -> tuple[int, str, str]:
    """Return the exit code of a command, and what it printed and complained of."""
    invoke = CliRunner().invoke
    result = await asyncio.to_thread(invoke, app, [*words, "--bootstrap", address(served)])
    return result.exit_code, result.stdout, result.stderr


async def make_two(served: Served, client: Client) -> None:
    """Make a topic of two partitions, with a record in each."""
    assert (await command(served, "topics", "create", "bad", "--partitions", "2"))[0] == 0
    for index in (0, 1):
        data = PartitionProduceData(index=index, records=memoryview(one_batch(1)))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="bad", partition_data=[data])]
        )
        answer = (await client.ask(PRODUCE, 9, request)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE


CANNOT_USE = "partition 0 of bad: the broker cannot use its files"


@pytest.mark.parametrize("spoil", [make_unreadable, make_a_file])
async def test_the_command_names_the_partition_that_a_start_could_not_open_and_shows_the_others(
    serve: Serve, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    served = await serve(log_retention_ms="-1")
    await make_two(served, await served.connect())
    await served.stop()
    spoil(tmp_path / "data" / "bad-0")
    served = await serve(log_retention_ms="-1")

    code, shown, said = await command(served, "offsets", "bad", "--json")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert (code, [(row["start"], row["end"]) for row in rows]) == (1, [(None, None), (0, 1)])
    assert CANNOT_USE in said
    code, shown, said = await command(served, "offsets", "bad", "--at", "1970-01-02", "--json")
    assert (code, [json.loads(line)["partition"] for line in shown.splitlines()]) == (1, [1])
    assert CANNOT_USE in said

    code, shown, said = await command(served, "topics", "describe", "bad")
    assert (code, [line.split()[-1] for line in shown.splitlines()[3:]]) == (1, ["refused", "taken"])
    assert CANNOT_USE in said

    for span in ((), ("--since", "1970-01-02")):
        code, shown, said = await command(served, "tail", "bad", "--format", "json", *span)
        assert (code, [json.loads(line)["partition"] for line in shown.splitlines()]) == (1, [1])
        assert f"not read: {CANNOT_USE}" in said
    assert (await command(served, "tail", "bad", "--partition", "0", "--follow"))[0] == 1

    code, _, said = await command(served, "groups", "reset", "g", "--topic", "bad", "--to-offset", "earliest")
    assert (code, CANNOT_USE in said) == (1, True)
    assert (await command(served, "groups", "reset", "g", "--topic", "bad:1", "--to-offset", "0", "--yes"))[
        0
    ] == 0

    code, shown, said = await command(served, "log-dirs", "--json")
    sizes = {row["partition"]: row["bytes"] for row in map(json.loads, shown.splitlines()[:-1])}
    assert (code, said, sizes[0]) == (0, "", None if spoil is make_a_file else 0)
    assert sizes[1] > 0


def test_health_says_of_a_log_whether_it_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [
        {"log": "a-0", "reason": "why", "is_read": True},
        {"log": "b-0", "reason": "why", "is_read": False},
    ]
    told = {
        "status": "refusing writes", "version": "0", "node_id": 1, "topics": 2, "partitions": 2,
        "refusing_writes": 2, "refused": named, "damaged_ranges": 0, "damaged": [],
        "compaction_failing": 0, "not_compacted": [],
    }  # fmt: skip
    monkeypatch.setattr(health, "_ask", lambda _: told)
    result = CliRunner().invoke(app, ["health", "--http", "127.0.0.1:1"])
    assert result.stdout.splitlines()[1:] == ["a-0: takes no writes: why", "b-0: not served: why"]


async def test_the_size_of_what_a_start_could_not_open_is_that_of_its_files(
    serve: Serve, tmp_path: Path
) -> None:
    served = await serve()
    await make_two(served, await served.connect())
    await served.stop()
    log = tmp_path / "data" / "bad-0" / f"{0:020d}.log"
    log.with_name(f"{1 << 30:020d}.log").mkdir()  # a folder where a segment's log belongs
    served = await serve()
    _, shown, _ = await command(served, "log-dirs", "--json")
    assert CANNOT_USE in (await command(served, "offsets", "bad"))[2]
    assert json.loads(shown.splitlines()[0])["bytes"] == log.stat().st_size > 0


async def test_a_group_is_described_beside_a_partition_that_a_start_could_not_open(
    serve: Serve, tmp_path: Path
) -> None:
    served = await serve()
    await make_two(served, await served.connect())
    reset = ("groups", "reset", "g", "--topic", "bad", "--to-offset", "earliest", "--yes")
    assert (await command(served, *reset))[0] == 0
    await served.stop()
    make_a_file(tmp_path / "data" / "bad-0")
    code, shown, said = await command(await serve(), "groups", "describe", "g", "--json")
    rows = json.loads(shown)["partitions"]
    assert (code, [(row["committed"], row["end"], row["lag"]) for row in rows]) == (
        1,
        [(0, None, None), (0, 1, 1)],
    )
    assert CANNOT_USE in said


async def test_a_producer_keeps_what_the_broker_says_of_a_batch_that_it_sends_again(serve: Serve) -> None:
    served = await serve()
    await make_two(served, await served.connect())
    for partition in served.broker.topics.by_name["bad"].partitions:
        partition.log.health.distrust("a flush failed")

    def produce_in_vain() -> str:
        host, port = address(served).rsplit(":", 1)
        with Cluster([(host, int(port))], "test") as cluster:
            to = client_producer.Producer(cluster, 1, lambda _: None)
            to.send("bad", b"v", T0)
            with pytest.raises(client_producer.Stalled) as raised:
                to.flush()
            return str(raised.value)

    said = await asyncio.to_thread(produce_in_vain)
    assert "takes no writes since a flush failed" in said


# Clients. Each reads the records of T0 to T0 + COUNT - 1 from the start on, having found the third by its time.


def read_by_kafka_python(bootstrap: str) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        partition = Partition("bad", 0)
        assert consumer.offsets_for_times({partition: T0 + 2})[partition].offset == 2
        consumer.assign([partition])
        consumer.seek(partition, 0)
        times: list[int] = []
        while len(times) < COUNT:
            found = consumer.poll(timeout_ms=20_000)
            assert found, f"{len(times)} records, then none for 20 s"
            times += [record.timestamp for record in found[partition]]
        return times
    finally:
        consumer.close()


def read_by_librdkafka(bootstrap: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        (found,) = consumer.offsets_for_times([TopicPartition("bad", 0, T0 + 2)], timeout=20)
        assert found.offset == 2
        consumer.assign([TopicPartition("bad", 0, 0)])
        messages = consumer.consume(COUNT, timeout=20)
        assert [message.error() for message in messages] == [None] * COUNT
        return [message.timestamp()[1] for message in messages]
    finally:
        consumer.close()


def read_by_java(bootstrap: str) -> list[int]:
    for words in (("offsets", bootstrap, "bad", str(T0 + 2)), ("consume", bootstrap, "bad", str(COUNT))):
        done = run_java("JavaClient", *words)
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        if words[0] == "offsets":
            assert lines == [[str(T0 + 2), "2", str(T0 + 2)]]
    return [int(line[1]) for line in lines]


READERS = [
    read_by_kafka_python,
    read_by_librdkafka,
    pytest.param(read_by_java, marks=[needs_java, pytest.mark.java]),
]


def refused_by_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, retries=0, enable_idempotence=False)
    try:
        with pytest.raises(KafkaStorageError):
            producer.send("bad", b"v", partition=0).get(timeout=20)
    finally:
        producer.close()


def refused_by_librdkafka(bootstrap: str) -> None:
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "log_level": 0})
    producer.produce("bad", b"v", partition=0, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    assert [error.code() for error in told] == [KafkaError.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("read", READERS)
async def test_P12_clients_read_on_where_writes_are_refused(
    serve: Serve, read: Callable[[str], list[int]]
) -> None:
    """Though the partition's only replica is said to be offline, its leader is asked."""
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    await client.make_topic("bad")
    for n in range(COUNT):
        record = Record(0, T0 + n, None, b"v", [("codec", b"none")])
        data = memoryview(build_batch([record], base_offset=0))
        assert (await client.produce("bad", data, acks=-1)).error_code == ErrorCode.NONE
    for log in served.broker.logs.logs.values():
        log.health.distrust("a flush failed")
    assert await offline(client, 13) == {"bad": [1]}
    assert await asyncio.to_thread(read, address(served)) == [T0 + n for n in range(COUNT)]


@pytest.mark.parametrize("refused", [refused_by_kafka_python, refused_by_librdkafka])
async def test_P12_producers_are_told_of_the_storage(serve: Serve, refused: Callable[[str], None]) -> None:
    served = await serve()
    client = await served.connect()
    await client.make_topic("bad")
    served.broker.topics.by_name["bad"].partitions[0].log.health.distrust("a flush failed")
    await asyncio.to_thread(refused, address(served))
