"""P12: a log that takes no writes says so, to the command line and to clients, and is read on."""

import asyncio
import errno
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from kafka.errors import KafkaStorageError
from typer.testing import CliRunner

from tests.fault.test_damage_served import T0, TOPICS, fetch, fill
from tests.support.full_disk import FullDisk, full_disk
from tests.support.java import needs_java, run_java
from tests.support.served import Client, Connect, Serve, Served, connect, serve, until
from tests.support.sockets import LEAVES_SOCKETS
from tests.support.workload import one_batch
from tests.unit.test_handlers import produce
from tidelog.broker import broker
from tidelog.cli.main import app
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import files

__all__ = ["connect", "full_disk", "serve"]  # fixtures

pytestmark = LEAVES_SOCKETS
COUNT = 5


def spoil_flushes(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """Have every flush of a partition fail."""
    fdatasync = os.fdatasync

    def failing(fd: int) -> None:
        if f"/{of}/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fdatasync(fd)

    monkeypatch.setattr(files.os, "fdatasync", failing)


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
    refused = "1 of 1 partitions refuse writes and are read on: the broker's disk fails or is full"
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
    return int((await produce(client, topic, memoryview(one_batch(2)), acks=acks)).error_code)


async def test_P12_a_log_whose_flush_failed_says_so_until_a_restart(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve()
    client = await connect(served)
    await fill(client, 10)
    assert [await takes_writes(served, topic) for topic in TOPICS] == [True, True]
    with monkeypatch.context() as patch:
        spoil_flushes(patch, "bad-0")
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
    assert await code_of_production(await connect(served), "bad") == ErrorCode.NONE


async def test_P12_while_the_disk_is_full_every_log_says_so_and_not_any_longer(
    serve: Serve, connect: Connect, full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    served = await serve()
    client = await connect(served)
    await fill(client, 10)
    full_disk.end()
    assert await code_of_production(client, "bad") == ErrorCode.KAFKA_STORAGE_ERROR
    assert [await takes_writes(served, topic) for topic in TOPICS] == [False, False]
    full_disk.heal()
    logs = [served.broker.topics.by_name[topic].partitions[0].log for topic in TOPICS]
    await asyncio.wait_for(until(lambda: all(log.takes_writes for log in logs)), 20)
    assert [await takes_writes(served, topic) for topic in TOPICS] == [True, True]


async def test_P12_a_log_that_waited_for_space_takes_writes_before_anybody_has_asked_it(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    served = await serve()
    client = await connect(served)
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
    serve: Serve, connect: Connect, read: Callable[[str], list[int]]
) -> None:
    """Though the partition's only replica is said to be offline, its leader is asked."""
    served = await serve(log_retention_ms="-1")
    client = await connect(served)
    await client.make_topic("bad")
    for n in range(COUNT):
        record = Record(0, T0 + n, None, b"v", [("codec", b"none")])
        data = memoryview(build_batch([record], base_offset=0))
        assert (await produce(client, "bad", data, acks=-1)).error_code == ErrorCode.NONE
    for log in served.broker.logs.logs.values():
        log.health.distrust("a flush failed")
    assert await offline(client, 13) == {"bad": [1]}
    assert await asyncio.to_thread(read, address(served)) == [T0 + n for n in range(COUNT)]


@pytest.mark.parametrize("refused", [refused_by_kafka_python, refused_by_librdkafka])
async def test_P12_producers_are_told_of_the_storage(
    serve: Serve, connect: Connect, refused: Callable[[str], None]
) -> None:
    served = await serve()
    client = await connect(served)
    await client.make_topic("bad")
    served.broker.topics.by_name["bad"].partitions[0].log.health.distrust("a flush failed")
    await asyncio.to_thread(refused, address(served))
