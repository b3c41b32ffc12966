"""Batches that take long to validate: on a reader thread, without a change of order or meaning."""

import threading
from typing import Any

import pytest

from tests.support.builders import fetch_request
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import Steps
from tidelog.storage.batch_rules import PROMPT_BYTES, Checked
from tidelog.storage.log import Log

NOW = 1_700_000_000_000
LARGE = bytes(3 * PROMPT_BYTES[1])


def request(
    *values: bytes, codec: int = compression.ZSTD, acks: int = 1, producer: tuple[int, int] = (-1, -1)
) -> ProduceRequest:
    """Produce a batch of one record for each value, all to one partition."""
    producer_id, sequence = producer
    parts = []
    for number, value in enumerate(values):
        records = build_batch(
            [Record(0, NOW, None, value, ())],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence + number if producer_id >= 0 else -1,
        )
        parts.append(PartitionProduceData(index=0, records=memoryview(bytearray(records))))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
    )


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take note of the threads on which batches that take long are validated."""
    found: list[str] = []
    check = Log.check

    def noted(log: Log, *what: Any, **how: bool) -> Steps[Checked]:
        found.append(threading.current_thread().name.partition("_")[0])
        return (yield from check(log, *what, **how))

    monkeypatch.setattr(Log, "check", noted)
    return found


async def answers(client: Client, count: int) -> list[tuple[int, int]]:
    """Return the codes and base offsets of so many answers, which must come in order."""
    found = []
    for number in range(count):
        correlation_id, response = await client.receive(PRODUCE, 9)
        assert correlation_id == number
        found += [(part.error_code, part.base_offset) for part in response.responses[0].partition_responses]
    return found


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_large_batches_keep_their_order_among_small_ones(
    client: Client, threads: list[str], codec: int
) -> None:
    await client.make_topic("t")
    for number in range(20):
        value = LARGE if number % 3 == 1 else b"%d" % number
        client.send(PRODUCE, 9, number, request(value, codec=codec, acks=-1 if number % 2 else 1))
    assert await answers(client, 20) == [(0, number) for number in range(20)]
    assert threads == ["reader"] * 7


async def test_an_idempotent_producer_may_send_large_batches_ahead(client: Client) -> None:
    await client.make_topic("t")
    for number in range(6):
        client.send(PRODUCE, 9, number, request(LARGE if number % 2 else b"x", producer=(7, number)))
    assert await answers(client, 6) == [(0, number) for number in range(6)]


async def test_a_request_of_several_large_batches_is_one(client: Client, threads: list[str]) -> None:
    await client.make_topic("t")
    client.send(PRODUCE, 9, 0, request(LARGE, b"x", LARGE, b"y"))
    assert await answers(client, 1) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert len(threads) == 2


async def test_a_large_batch_without_acks_gets_no_answer(client: Client, threads: list[str]) -> None:
    await client.make_topic("t")
    client.send(PRODUCE, 9, 5, request(LARGE, acks=0))
    client.send(PRODUCE, 9, 0, request(b"behind"))
    assert await answers(client, 1) == [(0, 1)]
    assert len(threads) == 1


async def test_large_batches_that_are_bad_are_refused_as_small_ones_are(
    serve: Serve, threads: list[str]
) -> None:
    served = await serve(max_decompressed_bytes=str(2 * PROMPT_BYTES[1]))
    client = await served.connect()
    await client.make_topic("t")
    client.send(PRODUCE, 9, 0, request(LARGE))
    future = build_batch([Record(0, 1 << 52, None, LARGE[: len(LARGE) // 2], ())], codec=compression.GZIP)
    late = request(b"")
    late.topic_data[0].partition_data[0].records = memoryview(bytearray(future))
    client.send(PRODUCE, 9, 1, late)
    client.send(PRODUCE, 9, 2, request(b"good"))
    assert await answers(client, 3) == [
        (ErrorCode.MESSAGE_TOO_LARGE, -1),
        (ErrorCode.INVALID_TIMESTAMP, -1),
        (0, 0),
    ]
    assert threads == ["reader"] * 2


async def test_what_is_too_large_by_the_bound_of_the_topic_is_refused_at_once(
    serve: Serve, threads: list[str]
) -> None:
    served = await serve(max_decompressed_bytes=str(PROMPT_BYTES[1]))
    client = await served.connect()
    await client.make_topic("t")
    client.send(PRODUCE, 9, 0, request(LARGE))
    assert await answers(client, 1) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert not threads


async def test_append_times_do_not_go_back_though_validation_takes_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S52: a batch is stamped when it is stored, not when its validation began."""
    slow, quick = await served.connect(), await served.connect()
    await slow.make_topic("t", message_timestamp_type="LogAppendTime")
    served.broker.clock.hold(NOW)
    gate = threading.Event()
    check = Log.check

    def held(log: Log, *what: Any, **how: bool) -> Steps[Checked]:
        assert gate.wait(20)
        return (yield from check(log, *what, **how))

    monkeypatch.setattr(Log, "check", held)
    log = log_of(served.broker, "t")
    slow.send(PRODUCE, 9, 0, request(LARGE))
    await until(lambda: bool(served.connection_of(slow)._reading.reasons))
    served.broker.clock.advance(seconds=10)
    await quick.ask(PRODUCE, 9, request(b"x"))
    assert log.log_end_offset == 1
    gate.set()
    assert await answers(slow, 1) == [(0, 1)]
    stored = bytes((await quick.ask(FETCH, 11, fetch_request("t", 0))).responses[0].partitions[0].records)
    first = batch.read_header(stored, 0)
    second = batch.read_header(stored, first.size_bytes)
    assert (first.max_timestamp, second.max_timestamp) == (NOW + 10_000, NOW + 10_000)
    assert batch.check_crc(stored, first.size_bytes, second)


async def test_the_bytes_of_a_request_that_takes_several_turns_stay_its_own(client: Client) -> None:
    """What comes behind it, and would lie in the same buffer, is other bytes."""
    await client.make_topic("t")
    value = bytes(range(256)) * 5000
    for number in range(8):
        client.send(PRODUCE, 9, number, request(value + bytes([number]), codec=compression.ZSTD))
    assert await answers(client, 8) == [(0, number) for number in range(8)]
    stored = bytes((await client.ask(FETCH, 11, fetch_request("t", 0))).responses[0].partitions[0].records)
    position = 0
    for number in range(8):
        header = batch.read_header(stored, position)
        assert batch.check_crc(stored, position, header)
        body = stored[position + batch.HEADER_BYTES : position + header.size_bytes]
        assert bytes(compression.decompress(header.codec, body, 1 << 30)).endswith(value + bytes([number, 0]))
        position += header.size_bytes


async def test_a_client_that_leaves_while_its_batch_is_validated_leaves_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")
    gate = threading.Event()
    check = Log.check

    def held(log: Log, *what: Any, **how: bool) -> Steps[Checked]:
        assert gate.wait(20)
        return (yield from check(log, *what, **how))

    monkeypatch.setattr(Log, "check", held)
    client.send(PRODUCE, 9, 0, request(LARGE))
    connection = served.connection_of(client)
    await until(lambda: bool(connection._reading.reasons))
    connection.abort()
    await until(lambda: connection not in served.server.connections)
    gate.set()
    assert await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
