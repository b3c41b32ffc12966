"""Consumers of several partitions, of which they forget and add some, whose sessions are taken away, and a broker that
starts anew: each record is read, once and in order. aiokafka and confluent-kafka have no sessions, and read as before.
"""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, TopicPartition

from tests.support.broker import Broker, wait_until
from tests.support.java import java_command, needs_java
from tests.support.raw_client import FETCH, RawClient
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.records.build import Record, build_batch

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARTITIONS, ROUNDS = 3, 8
COUNT = PARTITIONS * ROUNDS
START_MS = 1_700_000_000_000

# The partition and offset of each record, as they are read.
Found = list[tuple[int, int]]
# (bootstrap server, topic, what was found): reads COUNT records.
Follow = Callable[[str, str, Found], None]


def by_kafka_python(server: str, topic: str, found: Found) -> None:
    everywhere = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    sessions = set()
    with closing(KafkaConsumer(bootstrap_servers=server, group_id=None)) as source:
        source.assign(everywhere)
        source.seek_to_beginning(*everywhere)
        for poll in range(10_000):
            source.resume(*everywhere)
            source.pause(everywhere[poll % PARTITIONS])
            for records in source.poll(timeout_ms=100).values():
                found += [(record.partition, record.offset) for record in records]
            sessions |= {each.next_metadata.session_id for each in source._fetcher._session_handlers.values()}
            if len(found) >= COUNT:
                break
    assert len(sessions - {0}) > 2, "what was taken away was begun anew"


def by_confluent_kafka(server: str, topic: str, found: Found) -> None:
    source = Consumer(
        {"bootstrap.servers": server, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    everywhere = [ConfluentPartition(topic, index) for index in range(PARTITIONS)]
    with closing(source):
        source.assign([ConfluentPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        for poll in range(10_000):
            source.resume(everywhere)
            source.pause([everywhere[poll % PARTITIONS]])
            for message in source.consume(COUNT, timeout=0.1):
                assert message.error() is None or message.error().retriable(), message.error()
                if message.error() is None:
                    found.append((message.partition(), message.offset()))
            if len(found) >= COUNT:
                break


def by_aiokafka(server: str, topic: str, found: Found) -> None:
    async def follow() -> None:
        everywhere = [AioPartition(topic, index) for index in range(PARTITIONS)]
        source = AIOKafkaConsumer(bootstrap_servers=server)
        await source.start()
        try:
            source.assign(everywhere)
            await source.seek_to_beginning(*everywhere)
            while len(found) < COUNT:
                record = await asyncio.wait_for(source.getone(), 20)
                found.append((record.partition, record.offset))
        finally:
            await source.stop()

    asyncio.run(follow())


def by_java(server: str, topic: str, found: Found) -> None:
    command = java_command("JavaClient", "follow", server, topic, str(PARTITIONS), str(COUNT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            index, offset = line.split()
            found.append((int(index), int(offset)))
    assert process.returncode == 0


def take_session(client: RawClient, topic: str) -> None:
    """Begin a session where there may be one only."""
    wants = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        session_epoch=0,
        topics=[FetchTopic(topic=topic, partitions=wants)],
    )
    assert client.ask(FETCH, 12, request).error_code == 0


@pytest.fixture
def followers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.parametrize(
    "follow",
    [
        by_kafka_python,
        by_confluent_kafka,
        by_aiokafka,
        pytest.param(by_java, marks=[needs_java, pytest.mark.java]),
    ],
)
def test_a_consumer_of_several_partitions_reads_each_record_once_whatever_becomes_of_its_session(
    new_broker: Callable[..., Broker], followers: ThreadPoolExecutor, follow: Follow
) -> None:
    broker = new_broker(
        {
            "log.retention.ms": "-1",
            "max.incremental.fetch.session.cache.slots": "1",
            "min.incremental.fetch.session.eviction.ms": "0",
        }
    )
    batch = build_batch([Record(0, START_MS, None, b"value")])
    with RawClient(broker) as client:
        client.create("followed", PARTITIONS)
    found: Found = []
    following = followers.submit(follow, broker.address, "followed", found)
    try:
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                broker.restart()
            with RawClient(broker) as client:
                for index in range(PARTITIONS):
                    assert not client.produce("followed", batch, index).error_code
                    take_session(client, "followed")
            wait_until(lambda wanted=PARTITIONS * (number + 1): len(found) >= wanted or following.done())  # type: ignore[misc]
    except BaseException:
        found += [(-1, -1)] * COUNT  # It follows no longer.
        raise
    following.result(20)
    assert sorted(found) == [(index, offset) for index in range(PARTITIONS) for offset in range(ROUNDS)]
    for partition in range(PARTITIONS):
        assert [offset for index, offset in found if index == partition] == list(range(ROUNDS))
