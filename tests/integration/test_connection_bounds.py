"""One client does not take what belongs to all: what a connection may hold and do, and that it loses nothing by it."""

import asyncio
import dataclasses
import errno
import gc
import logging
import os
import random
import socket
import threading
from pathlib import Path
from types import CoroutineType
from typing import Any

import pytest

from tests.integration.test_connection import produce
from tests.support.builders import fetch_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.running import run
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker import answers, dispatch
from tidelog.broker.answers import AT_ONCE_BYTES, Later, NotAnswered, Streamed, answer_of
from tidelog.broker.broker import Broker
from tidelog.broker.handlers import fetch as fetching
from tidelog.broker.handlers import metadata
from tidelog.broker.net import connection as connections
from tidelog.broker.net import frame_memory, pending, receive_buffer, sender, server
from tidelog.broker.net.connection import FINISHING, Connection
from tidelog.broker.net.receive_buffer import SMALL_BUFFER_BYTES
from tidelog.broker.session import Session
from tidelog.protocol.frame import decode_response, encode_request
from tidelog.protocol.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tidelog.protocol.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.storage.files import File, FileSlice
from tidelog.storage.log import Log

MIB = 1 << 20
READER, MAIN = "reader", "MainThread"


async def filled(served: Served, client: Client, batches: int = 4) -> None:
    """Make topic "t" with batches of 900 KB."""
    await client.make_topic("t")
    for number in range(batches):
        await client.ask(PRODUCE, 9, produce("t", b"%d" % number * 900_000, acks=1))


def names(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"there-is-no-such-topic-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


# -- answers -------------------------------------------------------------------------------------------------


async def test_of_fetches_in_one_packet_no_more_are_served_than_the_client_reads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await served.connect(), await served.connect()
    await filled(served, client)
    reads: list[int] = []
    read = Log.read
    monkeypatch.setattr(
        Log, "read", lambda log, offset, *rest, **how: reads.append(offset) or read(log, offset, *rest, **how)
    )
    packet = b"".join(
        encode_request(FETCH, 11, number, "test", fetch_request("t", 0, max_bytes=50 * MIB))
        for number in range(20)
    )
    client.writer.write(packet)
    await until(lambda: bool(served.connection_of(client)._reading.reasons))
    for _ in range(50):
        await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert len(reads) <= 3
    held = served.broker.queued_answers.total_bytes
    assert held <= sender.TRANSPORT_BYTES + sender.PIECE_BYTES + 1000
    for number in range(20):
        correlation_id, response = await client.receive(FETCH, 11)
        records = bytes(response.responses[0].partitions[0].records)
        assert correlation_id == number
        assert len(records) > 4 * 900_000
        assert all(b"%d" % n * 900_000 in records for n in range(4))
    assert await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert served.broker.queued_answers.total_bytes == 0


@pytest.mark.parametrize("partitions", [1, 10])
async def test_small_answers_to_one_packet_leave_in_several_turns_and_in_few_parts(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(connections, "BRIEF_S", 60)  # what is counted here is bytes, not time
    served = await serve(num_partitions=str(partitions))
    client = await served.connect()
    await client.make_topic("t")
    size = 60_000 // partitions
    for index in range(partitions):
        request = produce("t", b"v" * size, acks=1)
        request.topic_data[0].partition_data[0].index = index
        await client.ask(PRODUCE, 9, request)
    sent: list[list[int]] = []
    send = Connection._send

    def noted(connection: Connection, out: answers.Parts) -> None:
        sent.append([len(part) for part in out])
        send(connection, out)

    monkeypatch.setattr(Connection, "_send", noted)
    wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in range(partitions)]
    fetches = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=MIB, topics=[FetchTopic(topic="t", partitions=wanted)]
    )
    packet = b"".join(encode_request(FETCH, 11, number, "test", fetches) for number in range(40))
    client.writer.write(packet)
    for number in range(40):
        correlation_id, response = await client.receive(FETCH, 11)
        assert correlation_id == number
        assert [len(part.records) > size for part in response.responses[0].partitions] == [True] * partitions
    assert max(map(sum, sent)) <= answers.MAX_UNSENT_BYTES + 64 * 1024
    # The head and what is large; or, of more than a few, all of them as one.
    most = 1 + answers.MAX_UNSENT_BYTES // 60_000
    assert max(map(len, sent)) <= most * (2 if partitions == 1 else 1)


async def test_answers_behind_one_that_is_owed_count_too(
    served: Served, client: Client, disk: FaultyDisk
) -> None:
    await filled(served, client, 1)
    flushes = disk.hold("sync", of="*.log")
    client.send(PRODUCE, 9, 0, produce("t", b"waits for the disk"))
    await flushes.met()
    for number in range(1, 60):
        client.send(FETCH, 11, number, fetch_request("t", 0))
    connection = served.connection_of(client)
    await until(lambda: bool(connection._reading.reasons))
    assert len(connection._pending.answers) <= 4
    flushes.let_go()
    assert (await client.receive(PRODUCE, 9))[0] == 0
    for number in range(1, 60):
        correlation_id, response = await client.receive(FETCH, 11)
        assert correlation_id == number
        assert len(response.responses[0].partitions[0].records) > 900_000


@pytest.mark.parametrize("are_ready_together", [False, True])
async def test_answers_of_parked_fetches_are_read_when_they_can_leave(
    served: Served, monkeypatch: pytest.MonkeyPatch, are_ready_together: bool
) -> None:
    """One by one, or all at once because the answer before them comes last."""
    client, producer = await served.connect(), await served.connect()
    await client.make_topic("first")
    await client.make_topic("t")
    count, value_bytes = 300, 60_000
    client.send(FETCH, 11, 0, fetch_request("first", 0, max_wait_ms=600_000))
    for number in range(count):
        client.send(FETCH, 11, 1 + number, fetch_request("t", 0, max_wait_ms=600_000))
    await until(lambda: len(served.broker.parked) == 1 + count)
    its_socket = served.connection_of(client)._transport.get_extra_info("socket")
    its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # else the kernel may take all of it
    reads: list[int] = []
    read = Log.read
    monkeypatch.setattr(
        Log, "read", lambda log, offset, *rest, **how: reads.append(offset) or read(log, offset, *rest, **how)
    )
    values = {"first": b"", "t": b"x" * value_bytes}
    for topic in ("t", "first") if are_ready_together else ("first", "t"):
        waiting = len(served.broker.parked) - (count if topic == "t" else 1)
        await producer.ask(PRODUCE, 9, produce(topic, values[topic], acks=1))
        await until(lambda waiting=waiting: len(served.broker.parked) == waiting)
    await until(lambda: served.connection_of(client)._sender.is_paused)
    assert len(reads) < count / 2
    for number in range(1 + count):
        correlation_id, response = await client.receive(FETCH, 11)
        assert correlation_id == number
        assert len(response.responses[0].partitions[0].records) > (value_bytes if number else 0)


@pytest.mark.parametrize("times", [1, 4])
async def test_a_parked_fetch_that_has_to_wait_for_the_disk_too_keeps_its_place(
    served: Served, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    client, producer = await served.connect(), await served.connect()
    await client.make_topic("t")
    for number in range(times):
        client.send(FETCH, 11, number, fetch_request("t", 0, max_wait_ms=600_000))
    client.send(API_VERSIONS, 2, times, ApiVersionsRequest())
    await until(lambda: len(served.broker.parked) == times)
    monkeypatch.setattr(FileSlice, "read_nowait", lambda _: None)
    await producer.ask(PRODUCE, 9, produce("t", b"x" * 5000, acks=1))
    for number in range(times):
        correlation_id, response = await client.receive(FETCH, 11)
        assert (correlation_id, bool(response.responses[0].partitions[0].records)) == (number, True)
    assert (await client.receive(API_VERSIONS, 2))[0] == times
    assert served.connection_of(client)._pending.size_bytes == 0


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("partition_bytes", [50 * MIB, 1_000_000])
async def test_large_answers_come_whole_whether_in_memory_or_not(
    served: Served,
    client: Client,
    disk: FaultyDisk,
    is_warm: bool,
    partition_bytes: int,
) -> None:
    await filled(served, client)
    expected = await client.ask(FETCH, 11, fetch_request("t", 0, max_bytes=partition_bytes))
    threads = set()
    disk.calls.clear()
    disk.on("read", do=lambda: threads.add(threading.current_thread().name.partition("_")[0]))
    disk.is_cold = not is_warm
    for _ in range(5):
        assert await client.ask(FETCH, 11, fetch_request("t", 0, max_bytes=partition_bytes)) == expected
    assert threads == ({MAIN} if is_warm else {READER})
    if not is_warm:
        size = min(4 * 900_000, partition_bytes)
        assert len(disk.paths("read")) >= 5 * size / sender.COLD_PIECE_BYTES


async def test_an_answer_of_a_mebibyte_is_read_in_two_pieces_and_its_client_is_not_held_back(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 MiB is the default of a client's `max.partition.fetch.bytes`."""
    await filled(served, client)
    read, pause = FileSlice.read_nowait, connections.Reading.pause
    sizes: list[int] = []
    pauses: list[int] = []
    monkeypatch.setattr(FileSlice, "read_nowait", lambda piece: sizes.append(len(piece)) or read(piece))
    monkeypatch.setattr(
        connections.Reading, "pause", lambda to, reason: pauses.append(reason) or pause(to, reason)
    )
    part = await client.fetch("t", max_bytes=MIB)
    assert len(part.records) == sum(sizes) == MIB
    assert len(sizes) == 2
    assert pauses == []


async def test_clients_that_read_unevenly_or_leave_amid_an_answer_do_not_disturb_each_other(
    served: Served, client: Client
) -> None:
    await filled(served, client)
    expected = [bytes((await client.fetch("t", offset, max_bytes=50 * MIB)).records) for offset in range(3)]
    chance = random.Random(1)

    async def receive(leaves_at_bytes: int) -> None:
        reader = await served.connect()
        for offset in range(3):
            reader.send(FETCH, 11, offset, fetch_request("t", offset, max_bytes=50 * MIB))
        received = bytearray()
        for offset, records in enumerate(expected):
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                if leaves_at_bytes <= 0:
                    reader.writer.transport.abort()
                    return
                data = await asyncio.wait_for(reader.reader.read(chance.randrange(1, 100_000)), 20)
                received += data
                leaves_at_bytes -= len(data)
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(0)
            size = int.from_bytes(received[:4], "big")
            correlation_id, response = decode_response(FETCH, 11, bytes(received[4 : 4 + size]))
            del received[: 4 + size]
            assert correlation_id == offset
            assert bytes(response.responses[0].partitions[0].records) == records

    whole = sum(map(len, expected)) + MIB
    await asyncio.gather(*(receive(most) for most in (whole, whole, whole, 300_000, 2_000_000, 4_000_000)))
    await until(lambda: len(served.server.connections) == 4)
    assert served.broker.queued_answers.total_bytes == 0


async def test_small_answers_behind_a_large_one_keep_their_place(served: Served, client: Client) -> None:
    await filled(served, client)
    for number in range(30):
        if number % 3:
            client.send(API_VERSIONS, 2, number, ApiVersionsRequest())
        else:
            client.send(FETCH, 11, number, fetch_request("t", 0, max_bytes=50 * MIB))
    for number in range(30):
        api, version = (API_VERSIONS, 2) if number % 3 else (FETCH, 11)
        assert (await client.receive(api, version))[0] == number


async def test_what_was_to_be_sent_stays_where_the_client_has_ceased_to_read_meanwhile(
    served: Served, client: Client
) -> None:
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection = served.connection_of(client)
    sending = connection._sender
    sending.send([b"answer"])
    connection.pause_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert sending.queued_bytes == len(b"answer")
    connection.resume_writing()
    assert await asyncio.wait_for(client.reader.readexactly(len(b"answer")), 20) == b"answer"
    assert sending.is_empty


async def test_small_answers_behind_one_that_is_being_read_from_the_disk_keep_their_place(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(served, client)
    begun, gate, pread = threading.Event(), threading.Event(), File.pread

    def held(file: File, count: int, position: int) -> Any:
        begun.set()
        assert gate.wait(20)
        return pread(file, count, position)

    monkeypatch.setattr(File, "read_nowait", lambda *_: None)
    monkeypatch.setattr(File, "pread", held)
    client.send(
        FETCH, 11, 0, fetch_request("t", 0, max_bytes=1000)
    )  # a batch of 900 KB: less than stops the taking
    await asyncio.to_thread(begun.wait, 20)
    behind = served.connection_of(client)._sender
    for number in range(1, 4):
        unsent = behind.queued_bytes
        client.send(API_VERSIONS, 2, number, ApiVersionsRequest())
        await until(lambda unsent=unsent: behind.queued_bytes > unsent)  # type: ignore[misc]
    gate.set()
    for number in range(4):
        api, version = (FETCH, 11) if not number else (API_VERSIONS, 2)
        assert (await client.receive(api, version))[0] == number


async def test_who_is_cut_off_while_his_answer_is_read_from_the_disk_leaves_nothing(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(served, client)
    begun, gate, pread = threading.Event(), threading.Event(), File.pread

    def held(file: File, count: int, position: int) -> Any:
        begun.set()
        assert gate.wait(20)
        return pread(file, count, position)

    monkeypatch.setattr(File, "read_nowait", lambda *_: None)
    monkeypatch.setattr(File, "pread", held)
    client.send(
        FETCH, 11, 0, fetch_request("t", 0, max_bytes=1000)
    )  # a batch of 900 KB: less than stops the taking
    await asyncio.to_thread(begun.wait, 20)
    connection = served.connection_of(client)
    left = connection._sender
    connection.abort()
    await until(lambda: not served.server.connections)
    gate.set()
    await asyncio.wait_for(until(lambda: not left._is_busy), 10)
    assert left.is_empty
    assert served.broker.queued_answers.total_bytes == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["an error", "too few bytes"])
@pytest.mark.parametrize("is_warm", [True, False])
async def test_an_answer_that_cannot_be_read_to_its_end_ends_the_connection_and_says_why(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
    is_warm: bool,
) -> None:
    client, other = await served.connect(), await served.connect()
    await filled(served, client)

    def bad(_file: File, count: int, position: int) -> bytes | None:
        if position < 2 * MIB:
            return bytes(count)
        if how == "an error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(count - 1)

    monkeypatch.setattr(File, "pread", bad)
    cold = (
        how == "too few bytes" or not is_warm
    )  # what is in memory is there to its end, or counts as not there
    monkeypatch.setattr(File, "read_nowait", (lambda *_: None) if cold else bad)
    client.send(FETCH, 11, 1, fetch_request("t", 0, max_bytes=50 * MIB))
    client.send(API_VERSIONS, 2, 2, ApiVersionsRequest())
    received = await asyncio.wait_for(client.reader.read(), 20)
    assert int.from_bytes(received[:4], "big") > 4 * 900_000 > len(received)
    assert [record.levelname for record in caplog.records if "answer cut short" in record.message] == [
        "ERROR"
    ]
    assert await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert served.broker.queued_answers.total_bytes == 0


@pytest.mark.parametrize("is_warm", [True, False])
async def test_while_too_much_is_unread_in_all_pieces_are_small_and_nothing_is_lost(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, is_warm: bool
) -> None:
    served = await serve(queued_max_response_bytes=str(MIB))
    deaf, client = await served.connect(), await served.connect()
    await filled(served, client)
    others = served.connection_of(client).session
    served.broker.queued_answers.add(others, MIB)
    asked: list[int] = []
    first = FileSlice.first

    def noted(piece: FileSlice, count: int) -> FileSlice:
        asked.append(count)
        return first(piece, count)

    monkeypatch.setattr(FileSlice, "first", noted)
    disk.is_cold = not is_warm
    deaf.send(FETCH, 11, 1, fetch_request("t", 0, max_bytes=50 * MIB))
    response = await client.ask(FETCH, 11, fetch_request("t", 0, max_bytes=50 * MIB))
    assert len(response.responses[0].partitions[0].records) > 4 * 900_000
    assert max(asked) <= sender.SMALL_PIECE_BYTES
    served.broker.queued_answers.add(others, -MIB)
    assert (await deaf.receive(FETCH, 11))[1] == response
    assert served.broker.queued_answers.total_bytes == 0


async def test_an_answer_of_very_many_parts_leaves_whole(client: Client) -> None:
    """More than the 1024 that one writev takes, to a client that does not take them at once."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(900)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=f"t{n}", partitions=partitions) for n in range(4)]
    )
    for number in range(25):
        client.send(LIST_OFFSETS, 7, number, request)
    await asyncio.sleep(0)
    for number in range(25):
        correlation_id, response = await client.receive(LIST_OFFSETS, 7)
        assert correlation_id == number
        assert [len(topic.partitions) for topic in response.topics] == [900] * 4


async def test_a_stop_does_not_wait_for_who_does_not_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 0.1)
    served = await serve()
    deaf = await served.connect()
    await filled(served, deaf)
    for number in range(10):
        deaf.send(FETCH, 11, number, fetch_request("t", 0, max_bytes=50 * MIB))
    await until(lambda: served.connection_of(deaf)._sender.is_paused)
    await served.stop()
    assert "stopped with unread answers" in caplog.text


async def test_a_silent_client_that_does_not_read_is_closed_in_the_end(serve: Serve) -> None:
    served = await serve(connections_max_idle_ms="200")
    deaf = await served.connect()
    await filled(served, deaf)
    for number in range(10):
        deaf.send(FETCH, 11, number, fetch_request("t", 0, max_bytes=50 * MIB))
    await until(lambda: not served.server.connections)
    assert served.broker.queued_answers.total_bytes == 0


async def test_a_write_that_fails_for_another_reason_than_the_client_is_logged(
    served: Served, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    connection = served.connection_of(client)
    caplog.set_level(logging.DEBUG)
    connection.connection_lost(OSError(errno.EINVAL, os.strerror(errno.EINVAL)))
    connection.connection_lost(ConnectionResetError("gone"))
    assert [record.levelname for record in caplog.records if "connection lost" in record.message] == [
        "ERROR",
        "DEBUG",
    ]


# -- turns ---------------------------------------------------------------------------------------------------


async def test_a_packet_full_of_requests_leaves_others_their_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, other = await served.connect(), await served.connect()
    for client in (busy, other):
        await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    monkeypatch.setattr("tidelog.broker.turns.TURN_S", 0)
    order: list[Session] = []
    serve_one = served.server.shared.dispatch

    def noted(session: Session, *frame: Any) -> Any:
        order.append(session)
        return serve_one(session, *frame)

    served.dispatch_by(noted)
    frames = [encode_request(API_VERSIONS, 2, number, "test", ApiVersionsRequest()) for number in range(1000)]
    busy.writer.write(b"".join(frames))
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert len(order) < 500, "all that came in one packet was answered first"
    assert [(await busy.receive(API_VERSIONS, 2))[0] for _ in frames] == list(range(1000))


async def test_a_produce_of_very_many_batches_leaves_others_their_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")
    monkeypatch.setattr("tidelog.broker.turns.TURN_S", 0)
    records = produce("t", b"x").topic_data[0].partition_data[0].records
    batches = [PartitionProduceData(index=0, records=records) for _ in range(300)]
    topics = [TopicProduceData(name="t", partition_data=batches)]
    client.send(PRODUCE, 9, 7, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
    client.send(PRODUCE, 9, 8, produce("t", b"behind", acks=1))
    log = log_of(served.broker, "t")
    await until(lambda: log.log_end_offset > 0)
    await other.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert log.log_end_offset < 300
    _, response = await client.receive(PRODUCE, 9)
    offsets = [answer.base_offset for answer in response.responses[0].partition_responses]
    assert offsets == list(range(300))
    _, response = await client.receive(PRODUCE, 9)
    assert response.responses[0].partition_responses[0].base_offset == 300


# -- large requests ------------------------------------------------------------------------------------------


def decoded_by(monkeypatch: pytest.MonkeyPatch, key_version: int) -> list[str]:
    """Take note of the threads that decode requests of a version from now on."""
    threads: list[str] = []
    route = dispatch._find_route(key_version)

    def read(*arguments: Any) -> tuple[Any, int]:
        request = route.read(*arguments)
        threads.append(threading.current_thread().name.partition("_")[0])
        return request

    monkeypatch.setitem(dispatch._routes, key_version, dataclasses.replace(route, read=read))
    return threads


async def test_a_large_request_is_served_elsewhere_and_those_behind_it_wait(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t")
    threads = decoded_by(monkeypatch, 3 << 16 | 9)
    log = log_of(broker, "t")
    many = names(20_000)
    for number in range(3):
        client.send(METADATA, 9, 10 + number, many)
        client.send(PRODUCE, 9, 20 + number, produce("t", b"behind", acks=1))
    for number in range(3):
        correlation_id, response = await client.receive(METADATA, 9)
        assert (correlation_id, len(response.topics)) == (10 + number, 20_000)
        assert [topic.name for topic in response.topics] == [topic.name for topic in many.topics or []]
        correlation_id, answer = await client.receive(PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].base_offset == number
    assert threads == [READER] * 3
    assert log.log_end_offset == 3


async def test_the_bytes_of_a_request_that_is_decoded_elsewhere_stay_its_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it, in the same packet, takes its place in the buffer before it is decoded."""
    monkeypatch.setattr(dispatch, "MOST_ELEMENTS", 10)
    served = await serve()
    client = await served.connect()
    gate = threading.Event()
    for number in range(2):
        run(served.broker, lambda: gate.wait(20), str(number))
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    received = served.connection_of(client)._received
    after = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 200)], allow_auto_topic_creation=False)
    client.send(METADATA, 9, 1, names(100))
    client.send(METADATA, 9, 2, after)
    await until(lambda: received.filled > 4 and received.view[11] == 2)  # of the second, the correlation id
    gate.set()
    for correlation_id, asked in ((1, names(100)), (2, after)):
        answered, response = await client.receive(METADATA, 9)
        assert answered == correlation_id
        assert [topic.name for topic in response.topics] == [topic.name for topic in asked.topics or []]


async def test_every_request_passes_the_gate_on_the_loop_wherever_it_was_decoded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, passed = dispatch.gate, []

    def note(session: Session, route: Any, request: Any) -> Any:
        passed.append((route.name, len(request.topics), threading.current_thread()))
        return gate(session, route, request)

    monkeypatch.setattr(dispatch, "gate", note)
    for count in (1, 20_000):
        assert len((await client.ask(METADATA, 9, names(count))).topics) == count
    assert passed == [("Metadata v9", count, threading.main_thread()) for count in (1, 20_000)]


@pytest.mark.parametrize("count", [10, 4000])
async def test_what_is_decoded_elsewhere_depends_on_elements_and_not_on_records(
    client: Client, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await client.make_topic("t")
    threads = decoded_by(monkeypatch, 0 << 16 | 9)
    records = produce("t", bytes(400_000)).topic_data[0].partition_data[0].records
    parts = [PartitionProduceData(index=5, records=None) for _ in range(count)]
    topics = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)]),
        TopicProduceData(name="t", partition_data=parts),
        TopicProduceData(name="t", partition_data=parts[:100]),
    ]
    response = await client.ask(PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
    assert [len(topic.partition_responses) for topic in response.responses] == [1, count, min(count, 100)]
    assert response.responses[0].partition_responses[0].error_code == 0
    # Not on the reader: the first try is on the loop, which gives up at its bound.
    assert threads == (["MainThread"] if count == 10 else [READER])


async def test_a_large_request_that_is_malformed_ends_its_connection_as_a_small_one_does(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = await served.connect(), await served.connect()
    whole = encode_request(METADATA, 9, 1, "test", names(20_000))
    cut = (len(whole) - 4 - 1000).to_bytes(4, "big") + whole[4:-1000]
    client.writer.write(cut)
    assert await asyncio.wait_for(client.reader.read(), 20) == b""
    assert "bad request, connection closed" in caplog.text
    assert await other.ask(API_VERSIONS, 2, ApiVersionsRequest())


def wide_fetch(count: int, max_wait_ms: int, min_bytes: int = 1) -> FetchRequest:
    """Fetch partition 0 of "t" from 0 and, to no avail, many others of it from their ends."""
    first = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    empty = [FetchPartition(partition=n + 1, fetch_offset=0, partition_max_bytes=MIB) for n in range(count)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 * MIB,
        topics=[FetchTopic(topic="t", partitions=[first, *empty])],
    )


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a fetch of forty partitions weigh what else one of eighty thousand does."""
    monkeypatch.setattr(fetching, "WANTED_BYTES", MIB)


@pytest.mark.usefixtures("wide")
async def test_a_fetch_of_very_many_partitions_waits_as_others_do(serve: Serve) -> None:
    """And so what its own connection asks for next is served meanwhile."""
    served = await serve(num_partitions="41")
    client = await served.connect()
    await client.make_topic("t")
    client.send(FETCH, 11, 1, wide_fetch(40, max_wait_ms=600_000))
    await until(lambda: len(served.broker.parked) == 1)
    client.send(PRODUCE, 9, 2, produce("t", b"x", acks=1))
    _, response = await client.receive(FETCH, 11)
    parts = response.responses[0].partitions
    assert len(parts) == 41
    assert bool(parts[0].records)
    assert not any(part.records or part.error_code for part in parts[1:])
    assert (await client.receive(PRODUCE, 9))[0] == 2
    client.send(FETCH, 11, 3, wide_fetch(40, max_wait_ms=20, min_bytes=MIB))
    assert (await client.receive(FETCH, 11))[0] == 3


@pytest.mark.usefixtures("wide")
async def test_a_client_that_leaves_takes_its_wide_fetch_with_it(serve: Serve) -> None:
    served = await serve(num_partitions="41")
    client = await served.connect()
    await client.make_topic("t")
    client.send(FETCH, 11, 1, wide_fetch(40, max_wait_ms=600_000))
    await until(lambda: len(served.broker.parked) == 1)
    client.writer.close()
    await until(lambda: not served.broker.parked)


async def test_a_partition_that_is_named_again_is_fetched_once_as_the_last_entry_says(serve: Serve) -> None:
    served = await serve(num_partitions="3")
    client = await served.connect()
    await client.make_topic("t")
    for value in (b"first", b"second"):
        await client.ask(PRODUCE, 9, produce("t", value, acks=1))

    def entries(*wanted: tuple[int, int]) -> list[FetchPartition]:
        return [
            FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=MIB) for n, offset in wanted
        ]

    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(topic="t", partitions=entries((2, 0), (0, 10**6), (1, 0))),
            FetchTopic(topic="none", partitions=[]),
            FetchTopic(topic="t", partitions=entries((0, 0), (0, 1), (2, 0))),
        ],
    )
    (topic,) = (await client.ask(FETCH, 11, request)).responses
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(2, 0), (0, 0), (1, 0)]
    assert b"second" in bytes(topic.partitions[1].records)
    assert b"first" not in bytes(topic.partitions[1].records)


@pytest.mark.parametrize("count", [1, 50_000])
async def test_a_fetch_that_waits_keeps_nothing_that_its_answer_does_not_need(
    client: Client, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await client.make_topic("t")
    parked: list[FetchRequest] = []
    park = fetching._Fetch.park
    monkeypatch.setattr(fetching._Fetch, "park", lambda self: parked.append(self._request) or park(self))
    request = wide_fetch(0, max_wait_ms=600_000)
    request.topics[0].partitions *= count
    request.forgotten_topics_data = [ForgottenTopic(topic="x" * 200, partitions=[1] * 100)] * 5
    request.rack_id = "r" * 10_000
    client.send(FETCH, 11, 1, request)
    await until(lambda: bool(parked))
    (kept,) = parked
    assert [len(topic.partitions) for topic in kept.topics] == [1]
    assert (kept.forgotten_topics_data, kept.rack_id) == ([], "")


async def test_a_fetch_that_waits_keeps_neither_what_it_found_nor_the_bytes_of_its_request(
    serve: Serve,
) -> None:
    served = await serve(num_partitions="2")
    client = await served.connect()
    await client.make_topic("t")
    await client.ask(PRODUCE, 9, produce("t", b"v"))
    trailing = bytes(2 << 20)
    for number, partitions in enumerate((1, 2)):
        frame = encode_request(
            FETCH, 11, number, "test", wide_fetch(partitions - 1, max_wait_ms=600_000, min_bytes=MIB)
        )
        client.writer.write((len(frame) - 4 + len(trailing)).to_bytes(4, "big") + frame[4:] + trailing)
        await until(lambda parked=number + 1: len(served.broker.parked) == parked)  # type: ignore[misc]
    views = [each for each in gc.get_objects() if type(each) is memoryview and len(each) >= len(trailing)]
    holders = [type(holder) for view in views for holder in gc.get_referrers(view)]
    assert CoroutineType not in holders
    assert not [each for each in gc.get_objects() if isinstance(each, PartitionData)]


async def test_what_was_lent_to_a_large_request_is_given_back_when_it_is_done(
    served: Served, client: Client
) -> None:
    await client.make_topic("t")
    frames = served.server.shared.frame_memory
    request = wide_fetch(0, max_wait_ms=600_000)
    request.forgotten_topics_data = [ForgottenTopic(topic="x", partitions=[1] * 20_000)]
    client.send(FETCH, 11, 1, request)
    await until(lambda: len(served.broker.parked) == 1)
    await until(lambda: not frames.small.total_bytes)


# -- clients that leave --------------------------------------------------------------------------------------


@pytest.fixture
def watched_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have connections looked at fifty times a second."""
    monkeypatch.setattr(server, "PACE_INTERVAL_S", 0.02)


def waiting_fetches(count: int) -> bytes:
    whole = [encode_request(FETCH, 11, n, "test", wide_fetch(0, max_wait_ms=600_000)) for n in range(count)]
    return b"".join(whole)


async def test_a_client_that_has_said_all_and_listens_is_answered(serve: Serve, disk: FaultyDisk) -> None:
    """What waits for the disk waits on; a fetch that waits for records has what is there."""
    served = await serve(num_partitions="2")
    client = await served.connect()
    await client.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    client.send(PRODUCE, 9, 1, produce("t", b"v"))
    client.send(FETCH, 11, 2, wide_fetch(1, max_wait_ms=600_000, min_bytes=MIB))
    client.send(API_VERSIONS, 2, 3, ApiVersionsRequest())
    client.writer.write_eof()
    await flushes.met()
    await until(lambda: bool(served.connection_of(client)._reading.reasons & FINISHING))
    flushes.let_go()
    _, stored = await client.receive(PRODUCE, 9)
    assert stored.responses[0].partition_responses[0].error_code == 0
    number, fetched = await client.receive(FETCH, 11)
    assert (number, len(fetched.responses[0].partitions)) == (2, 2)
    assert (await client.receive(API_VERSIONS, 2))[0] == 3
    assert await client.reader.read() == b""
    await asyncio.wait_for(until(lambda: not served.server.connections), 10)


@pytest.mark.usefixtures("watched_often")
async def test_a_large_request_is_given_up_when_its_client_sends_no_more(
    served: Served, client: Client
) -> None:
    gate = threading.Event()
    blocking = [run(served.broker, lambda: gate.wait(20), name) for name in ("one", "two")]
    names = [MetadataRequestTopic(name="n") for _ in range(40_000)]
    client.send(METADATA, 9, 1, MetadataRequest(topics=names))
    await until(lambda: any(each._pending.answers for each in served.server.connections))
    client.writer.write_eof()
    await asyncio.wait_for(until(lambda: not served.server.connections), 10)
    gate.set()
    await until(lambda: all(each.response is not None for each in blocking))


@pytest.mark.usefixtures("watched_often")
async def test_a_client_that_leaves_while_it_is_not_read_from_is_noticed_and_what_it_sent_is_served(
    served: Served,
) -> None:
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t")
    await client.make_topic("u")
    # More fetches than it may have waiting, and behind them what is not answered.
    client.writer.write(waiting_fetches(1100))
    client.send(PRODUCE, 9, 1, produce("u", b"the last", acks=0))
    await until(
        lambda: bool(served.connection_of(client)._reading.reasons) and len(served.broker.parked) > 500
    )
    client.writer.write_eof()
    await asyncio.wait_for(until(lambda: len(served.server.connections) == 1), 10)
    assert not served.broker.parked
    assert served.broker.parked.quota.total_bytes == 0
    response = await other.ask(FETCH, 11, fetch_request("u", 0))
    assert b"the last" in bytes(response.responses[0].partitions[0].records)


@pytest.mark.usefixtures("watched_often")
async def test_a_client_that_breaks_off_while_it_is_not_read_from_is_noticed(
    served: Served, client: Client
) -> None:
    await client.make_topic("t")
    client.writer.write(waiting_fetches(1100))
    await until(
        lambda: bool(served.connection_of(client)._reading.reasons) and len(served.broker.parked) > 500
    )
    client.writer.transport.abort()
    await asyncio.wait_for(until(lambda: not served.server.connections), 10)
    assert not served.broker.parked


@pytest.mark.usefixtures("watched_often")
async def test_a_frame_that_waits_for_memory_goes_with_its_client_if_it_cannot_become_whole(
    serve: Serve,
) -> None:
    served = await serve(queued_max_request_bytes=str(2 * MIB), socket_request_max_bytes=str(2 * MIB))
    frames = served.server.shared.frame_memory
    await (maker := await served.connect()).make_topic("t")
    greedy = [await served.connect() for _ in range(6)]
    for each in greedy:
        each.writer.write((MIB - 4).to_bytes(4, "big") + bytes(300_000))
    await until(lambda: bool(frames.small.waiting))
    whole, cut = await served.connect(), await served.connect()
    data = encode_request(PRODUCE, 9, 1, "test", produce("t", b"x" * 90_000, acks=0))
    whole.writer.write(data)
    cut.writer.write(data[:-1])
    waiting = lambda: frames.small.waiting["127.0.0.1"]  # noqa: E731
    received = [served.connection_of(client)._received for client in (whole, cut)]
    await until(lambda: set(received) <= waiting().keys())
    left = served.connection_of(cut)
    whole.writer.close()
    cut.writer.close()
    await asyncio.wait_for(until(lambda: left not in served.server.connections), 10)
    for each in greedy:
        each.writer.close()
    await asyncio.wait_for(until(lambda: len(served.server.connections) == 1), 10)
    response = await maker.ask(FETCH, 11, fetch_request("t", 0))
    assert len(response.responses[0].partitions[0].records) > 90_000, "what came whole is served"
    assert frames.small.total_bytes == 0


@pytest.mark.usefixtures("watched_often")
async def test_a_watcher_of_connections_does_not_die_silently(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slip(*_: Any) -> None:
        raise LookupError("a slip")

    monkeypatch.setattr(Connection, "look_after", slip)
    served = await serve()
    await served.connect()
    await asyncio.wait_for(until(lambda: served.broker.failure is not None), 10)
    assert served.broker.failure == "task _watch_pace was ended by LookupError('a slip')"
    await served.stop()
    assert [record.levelname for record in caplog.records if "_watch_pace" in record.getMessage()] == [
        "CRITICAL"
    ]


async def test_a_connection_that_is_over_keeps_no_buffer_until_the_collector_comes(
    served: Served, client: Client
) -> None:
    client.writer.write(MIB.to_bytes(4, "big") + bytes(300_000))
    await until(
        lambda: bool(served.server.connections) and served.connection_of(client)._received.filled > 300_000
    )
    connection = served.connection_of(client)
    client.writer.close()
    await until(lambda: not served.server.connections)
    assert len(connection._received.view) == 0


# -- frames --------------------------------------------------------------------------------------------------


async def test_a_buffer_grows_with_what_has_come_and_not_with_what_is_said(
    served: Served, client: Client
) -> None:
    client.writer.write((100 * MIB).to_bytes(4, "big") + bytes(16 * 1024))
    await until(lambda: bool(served.server.connections))
    connection = served.connection_of(client)
    await until(lambda: connection._received.filled == 16 * 1024 + 4)
    assert len(connection._received.view) == 32 * 1024
    for filled_to in (40_000, 300_000, 5_000_000):
        client.writer.write(bytes(filled_to - connection._received.filled))
        await until(lambda: connection._received.filled == filled_to)  # noqa: B023
        assert len(connection._received.view) <= 2 * filled_to + 1
        frames = served.server.shared.frame_memory
        assert frames.small.total_bytes + frames.large.total_bytes in (0, len(connection._received.view))
    client.writer.close()
    await until(lambda: not served.server.connections)
    assert (frames.small.total_bytes, frames.large.total_bytes) == (0, 0)


async def test_a_large_buffer_is_kept_for_the_next_frame_while_any_come(
    served: Served, client: Client
) -> None:
    await client.make_topic("t")
    connection = served.connection_of(client)
    await client.ask(PRODUCE, 9, produce("t", b"v" * 300_000, acks=1))
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    kept_bytes = len(connection._received.view)
    assert kept_bytes > 300_000
    assert served.server.shared.frame_memory.small.total_bytes == kept_bytes
    assert [connection.idle_sweeps(), len(connection._received.view)] == [0, kept_bytes]
    assert [connection.idle_sweeps(), len(connection._received.view)] == [1, SMALL_BUFFER_BYTES]
    assert served.server.shared.frame_memory.small.total_bytes == 0


async def test_who_takes_his_answers_is_not_idle(served: Served, client: Client) -> None:
    await client.make_topic("t")
    connection = served.connection_of(client)
    assert [connection.idle_sweeps() for _ in range(3)] == [0, 1, 2]
    connection.pause_writing()
    assert connection.idle_sweeps() == 3
    connection.resume_writing()
    assert connection.idle_sweeps() == 0
    await client.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert connection.idle_sweeps() == 0


async def test_small_frames_do_not_wait_behind_large_ones(serve: Serve) -> None:
    served = await serve(queued_max_request_bytes=str(8 * MIB), socket_request_max_bytes=str(8 * MIB))
    greedy = [await served.connect() for _ in range(6)]
    client = await served.connect()
    await client.make_topic("t")
    for each in greedy:
        each.writer.write((8 * MIB).to_bytes(4, "big") + bytes(3 * MIB))
    await until(lambda: bool(served.server.shared.frame_memory.large.waiting))
    response = await client.ask(PRODUCE, 9, produce("t", b"x" * 900_000, acks=1))
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("is_waited_for", [False, True])
@pytest.mark.usefixtures("watched_often")
async def test_a_frame_that_trickles_is_cut_off(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_waited_for: bool,
) -> None:
    bound = "PRESSED_OVER_S" if is_waited_for else "SLOWEST_OVER_S"
    monkeypatch.setattr(receive_buffer, bound, 0.1)
    served = await serve()
    slow, steady, quiet = [await served.connect() for _ in range(3)]
    await quiet.ask(API_VERSIONS, 2, ApiVersionsRequest())
    monkeypatch.setattr(frame_memory.FrameMemory, "is_waited_for", is_waited_for)
    slow.writer.write((50 * MIB).to_bytes(4, "big") + bytes(100_000))
    steady.writer.write((50 * MIB).to_bytes(4, "big"))

    async def go_on() -> None:
        for _ in range(40):
            steady.writer.write(bytes(20_000))
            if not slow.writer.transport.is_closing():
                slow.writer.write(b"x")
            await asyncio.sleep(0.01)

    going_on = asyncio.create_task(go_on())
    await until(lambda: "comes too slowly" in caplog.text)
    await asyncio.sleep(0.1)
    assert not going_on.done()
    assert served.connection_of(steady)
    await going_on
    assert await quiet.ask(API_VERSIONS, 2, ApiVersionsRequest())
    assert caplog.text.count("comes too slowly") == 1


@pytest.mark.usefixtures("watched_often")
async def test_a_client_that_we_hold_back_is_not_slow(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_buffer, "SLOWEST_OVER_S", 0.1)
    served = await serve()
    client = await served.connect()
    await client.make_topic("t")
    flushes = disk.hold("sync", of="*.log")
    monkeypatch.setattr(pending, "MAX_REQUESTS_IN_FLIGHT", 1)
    frame = encode_request(PRODUCE, 9, 1, "test", produce("t", b"x" * 9000))
    client.writer.write(frame * 2 + frame[:5000])
    await flushes.met()
    await asyncio.sleep(0.3)
    flushes.let_go()
    client.writer.write(frame[5000:])
    for _ in range(3):
        await client.receive(PRODUCE, 9)


def test_the_exception_that_took_the_place_of_an_answer_is_the_cause_of_the_one_that_is_raised() -> None:
    later = Later()
    later.response = fault = OSError("the answer was not made")
    with pytest.raises(NotAnswered, match="Fetch v12") as caught:
        later.answering(7, lambda *_: ([b"an answer"], 9), "Fetch v12").encoded()
    assert caught.value.__cause__ is fault


def test_a_few_parts_are_sent_as_they_are_and_many_as_one() -> None:
    few, many = answers.MOST_PARTS, answers.MOST_PARTS + 1
    assert answers.answer_of(([b"one"], 3)) == ([b"one"], 3)
    assert answers.answer_of(([b"a"] * few, few)) == ([b"a"] * few, few)
    assert answers.answer_of(([b"a"] * many, many)) == ([b"a" * many], many)
    large = answers.answer_of(([b"a" * 50_000] * 2, 100_000))
    assert isinstance(large, answers.Streamed)
    assert large.size_bytes == 100_000


async def test_a_client_that_has_left_as_much_as_it_may_gets_no_further_answers(served: Served) -> None:
    sending = served.connection_of(await served.connect())._sender
    sending.send([bytes(answers.MAX_UNSENT_BYTES - 1)])
    assert not sending.is_full
    sending.send([b"x"])
    assert sending.is_full


def test_records_that_are_still_in_the_log_are_streamed_however_few_there_are(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(AT_ONCE_BYTES + 1))
    piece = FileSlice(File(tmp_path / "log"), 0, AT_ONCE_BYTES + 1)
    slices, in_memory = [b"head", piece, b"end"], [b"head", bytes(AT_ONCE_BYTES), b"end"]
    assert answer_of((slices, AT_ONCE_BYTES + 8)) == Streamed(slices, AT_ONCE_BYTES + 8)
    assert type(answer_of((in_memory, AT_ONCE_BYTES + 7))) is tuple
    assert type(answer_of((slices, AT_ONCE_BYTES))) is tuple


# -- what is answered on the event loop, and what elsewhere -----------------------------------------------------


async def test_so_many_partitions_are_answered_on_the_event_loop_and_no_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "MOST_AT_ONCE", 3)
    served = await serve(num_partitions="3")
    client = await served.connect()
    await client.make_topic("t")
    jobs: list[int] = []
    put = served.broker.readers.put

    def counted(*job: Any) -> None:
        jobs.append(1)
        put(*job)

    monkeypatch.setattr(served.broker.readers, "put", counted)
    every = (METADATA, 9, MetadataRequest(topics=None))
    by_name = (METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    topic_id = served.broker.topics.by_name["t"].id
    by_id = (METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]))
    for api, version, question in (every, by_name, by_id):
        await client.ask(api, version, question)
        assert not jobs, api.name
    monkeypatch.setattr(metadata, "MOST_AT_ONCE", 2)
    for api, version, question in (every, by_name, by_id):
        await client.ask(api, version, question)
        assert len(jobs) == 1, (api.name, question)
        jobs.clear()
