"""A bad disk as clients see it: the partition that is hit says so, the others are served."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import Client, Serve
from tidelog.broker.metrics.health import health
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.steps import at_once

T0 = 1_700_000_000_000
TOPICS = ("bad", "good")


async def fill(client: Client, size: int) -> None:
    for topic in TOPICS:
        await client.make_topic(topic)
        for n in range(3):
            records = memoryview(
                build_batch([Record(0, T0 + n, None, b"%d" % n + b"v" * size)], base_offset=0)
            )
            named = TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
            )
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])
            answer = (await client.ask(PRODUCE, 9, request)).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NONE


async def fetch(
    client: Client, offset: int, topics: tuple[str, ...] = TOPICS, last_epoch: int = -1
) -> dict[str, Any]:
    want = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, last_fetched_epoch=last_epoch
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=t, partitions=[want]) for t in topics],
    )
    response = await client.ask(FETCH, 12, request)
    return {answer.topic: answer.partitions[0] for answer in response.responses}


async def look_up(client: Client, timestamp: int, topics: tuple[str, ...] = TOPICS) -> dict[str, Any]:
    want = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=t, partitions=[want]) for t in topics]
    )
    response = await client.ask(LIST_OFFSETS, 7, request)
    return {answer.name: answer.partitions[0] for answer in response.topics}


@pytest.mark.parametrize("least_bytes", [0, 30_000])
async def test_P27_an_error_in_a_cold_read_is_that_partitions_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    """In the reads that find the batch, or only in the one that takes its bytes."""
    served = await serve()
    client = await served.connect()
    await fill(client, 60_000)
    read = os.pread

    def cold(*_: object) -> int:
        raise BlockingIOError

    def pread(fd: int, count: int, position: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if "/bad-0/" in path and path.endswith(".log") and count >= least_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, count, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", cold)
        patch.setattr(os, "pread", pread)
        for topics in (TOPICS, TOPICS[::-1]):
            found = await fetch(client, 1, topics)
            assert (found["bad"].error_code, bytes(found["bad"].records)) == (
                ErrorCode.KAFKA_STORAGE_ERROR,
                b"",
            )
            assert found["good"].error_code == ErrorCode.NONE
            assert [r.value[:1] for r in read_records(found["good"].records)] == [b"1"]
        alone = await fetch(client, 1, ("bad",))
        assert alone["bad"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        if not least_bytes:
            looked = await look_up(client, T0 + 1)
            assert looked["bad"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (looked["good"].error_code, looked["good"].offset) == (ErrorCode.NONE, 1)
    found = await fetch(client, 1)
    assert [found[topic].error_code for topic in TOPICS] == [ErrorCode.NONE] * 2


def flip_in_the_middle(folder: Path) -> int:
    """Change a bit of the log of one topic; return its size."""
    (path,) = folder.rglob(f"bad-0/{0:020d}.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return len(data)


async def test_V10_P9_a_damaged_batch_is_refused_after_a_clean_stop_too(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    client = await served.connect()
    await fill(client, 100)
    await served.stop()
    size = flip_in_the_middle(tmp_path)
    for look_first in (True, False):
        served = await serve()
        client = await served.connect()
        for _ in range(3):  # the same again takes another way through the broker
            if look_first:
                looked = await look_up(client, T0 + 1)
                assert [looked[topic].offset for topic in TOPICS] == [2, 1]
            for topics in (TOPICS, ("bad",)):
                found = await fetch(client, 1, topics)
                code, sent = found["bad"].error_code, bytes(found["bad"].records)
                assert (code, sent) == (ErrorCode.CORRUPT_MESSAGE, b"")
                if "good" in found:
                    assert next(read_records(found["good"].records)).offset == 1
            for offset in (0, 2):
                records = bytes((await fetch(client, offset, ("bad",)))["bad"].records)
                assert int.from_bytes(records[:8], "big") == offset
                assert len(records) == size // 3
        await served.stop()


def make_unreadable(folder: Path) -> None:
    path = folder / f"{0:020d}.log"
    path.unlink()
    path.mkdir()
    (folder / "partition.metadata").unlink()


def make_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"no folder")


@pytest.mark.parametrize("spoil", [make_unreadable, make_a_file])
async def test_a_partition_that_cannot_be_opened_is_refused_and_the_rest_is_served(
    serve: Serve, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    served = await serve(log_retention_ms="-1")
    await fill(await served.connect(), 100)
    await served.stop()
    spoil(tmp_path / "data" / "bad-0")
    for _ in range(2):
        served = await serve(log_retention_ms="-1")
        client = await served.connect()
        for last_epoch in (-1, 0):  # OFFSET_OUT_OF_RANGE would have a consumer begin elsewhere.
            found = await fetch(client, 1, last_epoch=last_epoch)
            assert [found[topic].error_code for topic in TOPICS] == [
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.NONE,
            ]
        for timestamp in (-1, -2, -3, T0 + 1):
            looked = await look_up(client, timestamp)
            codes = [looked[topic].error_code for topic in TOPICS]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        records = memoryview(build_batch([Record(0, T0, None, b"v")], base_offset=0))
        for topic, code in zip(TOPICS, codes, strict=True):
            data = [PartitionProduceData(index=0, records=records)]
            produced = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
            )
            answer = (await client.ask(PRODUCE, 9, produced)).responses[0].partition_responses[0]
            assert answer.error_code == code
            epochs = OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                    )
                ]
            )
            answer = (await client.ask(OFFSET_FOR_LEADER_EPOCH, 3, epochs)).topics[0].partitions[0]
            assert answer.error_code == code
            deleted = DeleteRecordsRequest(
                timeout_ms=1000,
                topics=[
                    DeleteRecordsTopic(
                        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
                    )
                ],
            )
            answer = (await client.ask(DELETE_RECORDS, 2, deleted)).topics[0].partitions[0]
            assert answer.error_code == code
        status, told = at_once(health(served.broker, is_stopping=False))
        assert (status, told["refusing_writes"], [each["log"] for each in told["refused"]]) == (
            503,
            1,
            ["bad-0"],
        )
        assert "could not open it: " in told["refused"][0]["reason"]
        assert not told["refused"][0]["is_read"]
        await served.stop()
        assert not (tmp_path / "data" / "bad-0" / "partition.metadata").exists(), "it is left as it is"
    served = await serve(log_retention_ms="-1")
    client = await served.connect()
    deleted_topics = DeleteTopicsRequest(topic_names=["bad"], timeout_ms=5000)
    (answer,) = (await client.ask(DELETE_TOPICS, 5, deleted_topics)).responses
    assert answer.error_code == ErrorCode.NONE
    await client.make_topic("bad")
    found = await fetch(client, 0)
    assert [found[topic].error_code for topic in ("bad",)] == [ErrorCode.NONE]
