"""One connection: the order of answers, what it may make us hold, and how it ends. In one process, over loopback."""

import asyncio
import resource

import pytest

from tests.support.builders import fetch_request, produce_request, records
from tests.support.faulty_disk import FaultyDisk
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker.broker import Broker
from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.net import pending
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.produce import (
    PRODUCE,
    ProduceRequest,
)
from tidelog.storage.log import Log

ACKS_ALL = -1


def produce(topic: str, value: bytes, acks: int = ACKS_ALL) -> ProduceRequest:
    return produce_request(topic, records(value), acks=acks)


async def test_answers_leave_in_the_order_of_the_requests(client: Client, disk: FaultyDisk) -> None:
    await client.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    client.send(PRODUCE, 9, 100, produce("t", b"waits for the disk"))
    client.send(API_VERSIONS, 2, 101, ApiVersionsRequest())
    client.send(PRODUCE, 9, 102, produce("t", b"so does this"))
    await flushes.met()
    answer = asyncio.create_task(client.receive(PRODUCE, 9))
    done, _ = await asyncio.wait([answer], timeout=0.05)
    assert not done, "the answer to acks=all left before the flush"
    flushes.let_go()
    correlation_id, first = await answer
    assert (correlation_id, first.responses[0].partition_responses[0].base_offset) == (100, 0)
    assert (await client.receive(API_VERSIONS, 2))[0] == 101
    correlation_id, last = await client.receive(PRODUCE, 9)
    assert (correlation_id, last.responses[0].partition_responses[0].base_offset) == (102, 1)


async def test_a_produce_that_waits_for_its_fsync_does_not_hold_up_the_next(
    served: Served, disk: FaultyDisk
) -> None:
    slow, quick = await served.connect(), await served.connect()
    await slow.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    slow.send(PRODUCE, 9, 1, produce("t", b"waits"))
    await flushes.met()
    response = await quick.ask(PRODUCE, 9, produce("t", b"does not", acks=1))
    assert response.responses[0].partition_responses[0].base_offset == 1
    flushes.let_go()
    await slow.receive(PRODUCE, 9)


async def test_requests_in_flight_are_bounded_and_none_is_lost(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MAX_REQUESTS_IN_FLIGHT", 10)
    served = await serve()
    client = await served.connect()
    await client.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    for number in range(100):
        client.send(PRODUCE, 9, number, produce("t", b"%d" % number))
    await flushes.met()
    log = log_of(served.broker, "t")
    other = await served.connect()
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert log.log_end_offset <= 10
    flushes.let_go()
    answers = [await client.receive(PRODUCE, 9) for _ in range(100)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(100))
    offsets = [answer.responses[0].partition_responses[0].base_offset for _, answer in answers]
    assert offsets == list(range(100))


async def test_answers_to_come_are_bounded_by_how_many_partitions_they_are_about(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MAX_UNSENT_BYTES", 10 * ANSWER_BYTES)
    served = await serve()
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    request = produce("t", b"one of five")
    request.topic_data[0].partition_data *= 5
    for number in range(6):
        client.send(PRODUCE, 9, number, request)
    log = log_of(served.broker, "t")
    await asyncio.wait_for(until(lambda: log.log_end_offset >= 10), 20)
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    await flushes.met()
    assert log.log_end_offset == 10
    flushes.let_go()
    assert [(await client.receive(PRODUCE, 9))[0] for _ in range(6)] == list(range(6))
    assert log.log_end_offset == 30


async def test_who_does_not_read_answers_is_not_served_on(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")
    await client.ask(PRODUCE, 9, produce("t", b"x" * 900_000))
    for number in range(60):
        client.send(FETCH, 11, number, fetch_request("t", 0))
    connection = served.connection_of(client)
    other = await served.connect()
    while not connection._sender.is_full:
        await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert connection._reading.reasons
    for number in range(60):
        correlation_id, response = await client.receive(FETCH, 11)
        assert correlation_id == number
        assert len(response.responses[0].partitions[0].records) > 900_000


async def test_frames_of_every_size_arrive_whole_however_they_are_cut(client: Client) -> None:
    await client.make_topic("t")
    sizes = [0, 1, 100, 16_200, 16_384, 16_500, 70_000, 5, 400_000, 3]
    frames = b"".join(
        encode_request(PRODUCE, 9, number, "c", produce("t", bytes([number]) * size, acks=1))
        for number, size in enumerate(sizes)
    )
    for start in range(0, len(frames), 7_919):
        client.writer.write(frames[start : start + 7_919])
        await client.writer.drain()
    for number in range(len(sizes)):
        correlation_id, response = await client.receive(PRODUCE, 9)
        assert (correlation_id, response.responses[0].partition_responses[0].error_code) == (number, 0)
    response = await client.ask(FETCH, 11, fetch_request("t", 0, max_bytes=1 << 24))
    records = bytes(response.responses[0].partitions[0].records)
    assert all(bytes([number]) * size in records for number, size in enumerate(sizes))


async def test_a_frame_that_is_cut_into_single_bytes_is_served(client: Client) -> None:
    for byte in encode_request(API_VERSIONS, 2, 7, "c", ApiVersionsRequest()):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    assert (await client.receive(API_VERSIONS, 2))[0] == 7


@pytest.mark.parametrize("size", [-1, 0, 5, 5_000])
async def test_a_frame_of_a_size_that_cannot_be_ends_the_connection_at_once(
    serve: Serve, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(socket_request_max_bytes="4096", queued_max_request_bytes="8192")
    client = await served.connect()
    client.writer.write(size.to_bytes(4, "big", signed=True) + bytes(5))
    assert await asyncio.wait_for(client.reader.read(), 20) == b""
    assert "connection closed" in caplog.text
    await (await served.connect()).ask(API_VERSIONS, 2, ApiVersionsRequest())


async def test_large_frames_wait_for_one_anothers_memory(serve: Serve) -> None:
    served = await serve(socket_request_max_bytes="1000000", queued_max_request_bytes="1000000")
    clients = [await served.connect() for _ in range(5)]
    await clients[0].make_topic("t")
    frame = encode_request(PRODUCE, 9, 1, "c", produce("t", b"x" * 600_000, acks=1))
    for client in clients:
        client.writer.write(frame[:-1])
    await until(lambda: served.server.shared.frame_memory.is_waited_for)
    for client in clients:
        client.writer.write(frame[-1:])
    for client in clients:
        _, response = await client.receive(PRODUCE, 9)
        assert response.responses[0].partition_responses[0].error_code == 0


async def test_one_connection_too_many_is_closed_and_the_others_go_on(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(max_connections="2")
    first, second = await served.connect(), await served.connect()
    for client in (first, second):
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    third = await served.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(third.frame(), 20)
    assert "max.connections=2 reached" in caplog.text
    second.writer.close()
    await until(lambda: len(served.server.connections) == 1)
    fourth = await served.connect()
    for client in (first, fourth):
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())


async def test_connections_leave_descriptors_for_files(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(max_connections=str((1 << 31) - 1))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    clients = [await served.connect() for _ in range(3)]
    for client in clients:
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    one_more = await served.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(one_more.frame(), 20)
    assert "3 connections, three quarters of the files that the broker may open" in caplog.text
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    await (await served.connect()).ask(API_VERSIONS, 2, ApiVersionsRequest())


async def test_connections_per_address_are_bounded(serve: Serve) -> None:
    served = await serve(max_connections_per_ip="1")
    first = await served.connect()
    await first.ask(API_VERSIONS, 2, ApiVersionsRequest())
    second = await served.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(second.frame(), 20)
    for _ in range(2):  # who leaves makes room for the next
        first.writer.close()
        await until(lambda: not served.server.connections)
        first = await served.connect()
        await first.ask(API_VERSIONS, 2, ApiVersionsRequest())


async def test_a_silent_connection_is_closed_and_a_talking_one_is_not(serve: Serve) -> None:
    served = await serve(connections_max_idle_ms="300")
    silent, talking = await served.connect(), await served.connect()
    end_of_silent = asyncio.create_task(silent.reader.read())
    while not end_of_silent.done():
        await talking.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert await end_of_silent == b""
    await talking.ask(API_VERSIONS, 2, ApiVersionsRequest())


async def test_a_stop_answers_what_is_owed(served: Served, disk: FaultyDisk) -> None:
    producer, consumer = await served.connect(), await served.connect()
    await producer.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    consumer.send(FETCH, 11, 5, fetch_request("t", 0, max_wait_ms=600_000))
    await until(lambda: bool(served.broker.parked))
    producer.send(PRODUCE, 9, 6, produce("t", b"x"))
    await flushes.met()
    served.server.stop()
    assert (await consumer.receive(FETCH, 11))[0] == 5
    flushes.let_go()
    _, response = await producer.receive(PRODUCE, 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert await producer.reader.read() == b""


async def test_a_client_that_leaves_takes_its_parked_fetch_with_it(broker: Broker, client: Client) -> None:
    await client.make_topic("t")
    client.send(FETCH, 11, 5, fetch_request("t", 0, max_wait_ms=600_000))
    await until(lambda: bool(broker.parked))
    client.writer.close()
    await until(lambda: not broker.parked)
    assert not broker.topics.by_name["t"].partitions[0].waiters.count


async def test_our_own_fault_ends_one_connection_and_says_everything(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")

    def broken(*_arguments: object) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(Log, "append", broken)
    client.send(PRODUCE, 9, 1, produce("t", b"x"))
    assert await asyncio.wait_for(client.reader.read(), 20) == b""
    assert "a bug of ours" in caplog.text
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
