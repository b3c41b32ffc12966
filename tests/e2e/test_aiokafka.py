"""aiokafka against a running broker: produce, consume by assignment, search by time, sizes, a restart."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from tests.support.broker import Broker, Running
from tests.support.command import ok, tidelog
from tests.support.raw_client import RawClient
from tests.support.workload import (
    CODECS,
    LONE_RECORD_OVERHEAD_BYTES,
    MAX_BATCH_BYTES,
    START_MS,
    STEP_MS,
    Sample,
    samples,
)
from tidelog.protocol.records.batch import MAGIC_POSITION

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def producer(broker: Running, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=broker.address, linger_ms=5, **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def consumer(broker: Running) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def send(to: AIOKafkaProducer, topic: str, records: list[Sample]) -> list[int]:
    answers = [
        await to.send(topic, r.value, r.key, 0, timestamp_ms=r.timestamp, headers=list(r.headers))
        for r in records
    ]
    await to.flush()
    return [(await answer).offset for answer in answers]


async def read(source: AIOKafkaConsumer, topic: str, count: int, offset: int = 0) -> list[tuple[int, Sample]]:
    partition = TopicPartition(topic, 0)
    source.assign([partition])
    source.seek(partition, offset)
    found: list[tuple[int, Sample]] = []
    while len(found) < count:
        r = await asyncio.wait_for(source.getone(), 20)
        found.append((r.offset, Sample(r.timestamp, r.key, r.value, tuple(r.headers))))
    return found


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
async def test_produce_and_consume(shared_broker: Running, topic: str, codec: str, idempotent: bool) -> None:
    sent = samples(150, codec)
    settings = {"compression_type": None if codec == "none" else codec, "enable_idempotence": idempotent}
    async with producer(shared_broker, **settings) as to:
        assert await send(to, topic, sent) == list(range(len(sent)))
    async with consumer(shared_broker) as source:
        assert await read(source, topic, len(sent)) == list(enumerate(sent))


async def test_consume_from_a_time(shared_broker: Running, topic: str) -> None:
    sent = samples(100)
    async with producer(shared_broker) as to:
        await send(to, topic, sent)
    partition = TopicPartition(topic, 0)
    async with consumer(shared_broker) as source:
        between = START_MS + 60 * STEP_MS - 1
        found = (await source.offsets_for_times({partition: between}))[partition]
        assert (found.offset, found.timestamp) == (60, START_MS + 60 * STEP_MS)
        assert await read(source, topic, 40, found.offset) == list(enumerate(sent))[60:]

        after = sent[-1].timestamp + 1
        assert (await source.offsets_for_times({partition: after}))[partition] is None
        assert await source.beginning_offsets([partition]) == {partition: 0}
        assert await source.end_offsets([partition]) == {partition: 100}


async def test_batch_at_the_size_limit_and_one_byte_over(shared_broker: Running, topic: str) -> None:
    largest = b"x" * (MAX_BATCH_BYTES - LONE_RECORD_OVERHEAD_BYTES)
    async with producer(shared_broker, max_request_size=2 * MAX_BATCH_BYTES) as to:
        assert (await to.send_and_wait(topic, largest, partition=0)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await to.send_and_wait(topic, largest + b"x", partition=0)
        assert (await to.send_and_wait(topic, b"after", partition=0)).offset == 1
    async with consumer(shared_broker) as source:
        assert [r.value for _, r in await read(source, topic, 2)] == [largest, b"after"]


async def test_restart_in_between(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    sent = samples(200)
    async with producer(broker, enable_idempotence=True) as to, consumer(broker) as source:
        await send(to, topic, sent[:100])
        assert len(await read(source, topic, 100)) == 100
        await asyncio.to_thread(broker.restart)
        assert await send(to, topic, sent[100:]) == list(range(100, 200))
        assert await read(source, topic, 200) == list(enumerate(sent))


READS_TWO = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer

async def main():
    async with AIOKafkaConsumer(sys.argv[1], bootstrap_servers=sys.argv[2], auto_offset_reset="earliest") as source:
        print([(await source.getone()).value for _ in range(2)])

asyncio.run(main())
"""


def test_without_its_extensions_it_reads_a_response_with_several_formats(
    shared_broker: Running, topic: str
) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic, "--config", "message.format.version=0.10.2"))
    ok(tidelog(shared_broker, "produce", topic, text="old\n"))
    ok(tidelog(shared_broker, "topics", "alter", topic, "--config", "message.format.version=2"))
    ok(tidelog(shared_broker, "produce", topic, text="new\n"))
    with RawClient(shared_broker) as client:
        assert [data[MAGIC_POSITION] for _, data in client.batches(topic)] == [1, 2]
    done = subprocess.run(
        [sys.executable, "-c", READS_TWO, topic, shared_broker.address],
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert done.stdout == "[b'old', b'new']\n"
