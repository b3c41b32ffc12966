"""F7, P12: a disk that is full, for one file after another and for all: refused, read on, healed, nothing lost."""

import asyncio
import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.test_damage_served import T0, fetch, fill, look_up
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, Row, batch, fetch_all, first_at, is_damaged, retain, scan
from tests.support.reference_index import differences
from tests.support.served import Client, Serve, until
from tests.support.workload import one_batch
from tidelog.broker import broker
from tidelog.broker.catalog import CATALOG_FILE, Catalog, TopicRecord, new_topic_id
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.steps import at_once
from tidelog.storage import layout
from tidelog.storage.errors import StorageError
from tidelog.storage.fsck import Fsck
from tidelog.storage.layout import LOG_STARTS, RECOVERY_POINTS
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.sources import PATIENT

SIDECARS = (".index", ".timeindex", ".appendindex", ".summary", ".snapshot", "leader-epoch-checkpoint")
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS)
CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=0)


def opened(folder: Path) -> LogManager:
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.open(lambda _: CONFIG)
    return manager


def made(folder: Path) -> LogManager:
    manager = opened(folder)
    manager.create("t", 0, bytes(16), CONFIG)
    return manager


def log_of(manager: LogManager) -> Log:
    return manager.logs["t", 0]


def append(log: Log, number: int) -> None:
    """Append a batch of an idempotent producer."""
    data = batch([NOW + number, NOW + number + 5], producer_id=7, producer_epoch=0, base_sequence=2 * number)
    log.append(data, NOW)


def go_on(manager: LogManager, number: int) -> int:
    """Append, flush, checkpoint, save: whatever the broker does now and then. Return how many batches were taken."""
    taken = 0
    for _ in range(12):
        with suppress(StorageError):
            append(log_of(manager), number + taken)
            taken += 1
    for step in (
        lambda: log_of(manager).flush(),
        manager.checkpoint,
        lambda: retain(manager),
        lambda: at_once(manager.look_after()),
        lambda: log_of(manager).epochs.save(durably=True),
    ):
        with suppress(StorageError, OSError):
            step()
    return taken


def answers(log: Log, rows: list[Row]) -> None:
    """See that reads and lookups go on."""
    assert fetch_all(log) == rows
    for row in rows[::5]:
        found = first_at(log, row.timestamp, PATIENT)
        assert found is not None
        assert found.offset == next(each.offset for each in rows if each.timestamp >= row.timestamp)


@pytest.mark.parametrize("ends", [".log", *SIDECARS, *CHECKPOINTS, ""])
@pytest.mark.parametrize("then", ["go on", "stop", "crash"])
def test_F7_P12_no_room_for_one_kind_of_file(tmp_path: Path, disk: FaultyDisk, ends: str, then: str) -> None:
    manager = made(tmp_path / "data")
    number = go_on(manager, 0)
    disk.fill(f"*{ends}")
    for _ in range(3):
        taken = go_on(manager, number)
        number += taken
        answers(log_of(manager), scan(log_of(manager)))
    assert disk.refused
    rows = scan(log_of(manager))
    assert len(rows) == 2 * number, "what was acknowledged, and nothing else"
    if then != "go on":
        (manager.close if then == "stop" else manager.abandon)()
        manager = opened(tmp_path / "data")  # on a disk that is still full
        answers(log_of(manager), rows)
    disk.heal()
    assert go_on(manager, number) == 12
    assert len(scan(log_of(manager))) == 2 * number + 24
    assert manager.close()
    assert differences(tmp_path / "data" / "t-0", 100) == []
    manager = opened(tmp_path / "data")
    assert len(fetch_all(log_of(manager))) == 2 * number + 24
    manager.abandon()


@pytest.mark.parametrize(("batches", "room"), [(0, 3), (0, 50), (3, 3)])
@pytest.mark.parametrize("then", ["go on", "stop", "crash", "roll"])
def test_F7_a_part_of_an_append_time_that_the_disk_took_is_cut_and_makes_no_bound_of_others(
    tmp_path: Path, disk: FaultyDisk, batches: int, room: int, then: str
) -> None:
    manager = made(tmp_path / "data")
    log = log_of(manager)
    for number in range(batches):
        append(log, number)
    disk.fill("*.appendindex", room=room)
    with pytest.raises(StorageError, match="No space left"):
        log.append(batch([NOW]), NOW + 9)
    disk.heal()
    if then == "roll":
        log.roll(NOW)
    elif then != "go on":
        (manager.close if then == "stop" else manager.abandon)()
    assert not list(Fsck(tmp_path / "data", deep=False, repair=False, pause=lambda _: None).problems())
    if then in ("stop", "crash"):
        manager = opened(tmp_path / "data")
        log = log_of(manager)
    index = log.segments[0].append_index
    assert [index.time_at(2 * number).is_bound for number in range(batches)] == [False] * batches
    manager.abandon()


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def spoiled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("stop", ["stop", "crash"])
@pytest.mark.parametrize("how", [Path.unlink, torn, spoiled])
@pytest.mark.parametrize("which", [".log", *SIDECARS, "partition.metadata", "boot", *CHECKPOINTS])
def test_F7_P12_a_full_disk_keeps_no_broker_from_starting(
    tmp_path: Path, disk: FaultyDisk, which: str, how: Callable[[Path], None], stop: str
) -> None:
    """Whatever it finds that it would write anew."""
    manager = made(tmp_path / "data")
    go_on(manager, 0)
    rows = scan(log_of(manager))
    (manager.close if stop == "stop" else manager.abandon)()
    paths = [path for path in sorted((tmp_path / "data").rglob("*")) if path.name.endswith(which)]
    if which == ".log":
        paths = paths[-1:]  # What no flush covers may be cut.
    for path in paths:
        if path.stat().st_size:
            how(path)
    disk.fill()
    for _ in range(2):
        manager = opened(tmp_path / "data")
        log = log_of(manager)
        left = scan(log)
        answers(log, left) if which != ".log" else [log.read(row.offset, 1, True, PATIENT) for row in left]
        assert set(left) <= set(rows)
        assert which == ".log" or left == rows
        end = log.log_end_offset
        with pytest.raises(StorageError):
            log.append(batch([NOW]), NOW)
        assert not manager.close() if stop == "stop" else manager.abandon() is None
    manager = opened(tmp_path / "data")
    disk.heal()
    log = log_of(manager)
    assert log.append(batch([NOW]), NOW).base_offset == end
    assert log.flush() == end + 1
    assert set(left) < set(scan(log))
    before = scan(log)
    manager.abandon()
    manager = opened(tmp_path / "data")
    assert scan(log_of(manager)) == before
    assert manager.close()


@pytest.mark.parametrize("how", [torn, spoiled])
def test_F7_P12_a_full_disk_keeps_no_broker_from_starting_after_a_power_cut(
    tmp_path: Path, disk: FaultyDisk, how: Callable[[Path], None]
) -> None:
    """What no flush covers cannot be cut, as the summary could not be replaced: the log ends there all the same."""
    manager = made(tmp_path / "data")
    log = log_of(manager)
    append(log, 0)
    log.flush()
    log.active.save(flushed=True)
    for number in range(1, 5):
        append(log, number)
    rows, path = scan(log), log.active.path(".log")
    assert len(log.segments) == 1
    manager.abandon()
    how(path)
    (tmp_path / "data" / "boot-id").write_text("another\n")
    before = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.stem}.summary")}
    disk.fill()
    for _ in range(2):
        manager = opened(tmp_path / "data")
        log = log_of(manager)
        left = scan(log)
        answers(log, left)
        assert rows[:2] == left[:2]
        assert left == rows[: len(left)] != rows
        assert log.log_end_offset == len(left)
        with pytest.raises(StorageError):
            append(log, 9)
        manager.close()
        assert {name: (path.parent / name).read_bytes() for name in before} == before
        assert not layout.is_same_boot(tmp_path / "data")
    manager = opened(tmp_path / "data")
    disk.heal()
    log = log_of(manager)
    assert log.append(batch([NOW]), NOW).base_offset == len(left)
    assert log.flush() == len(left) + 1
    assert scan(log)[:-1] == left
    manager.abandon()
    manager = opened(tmp_path / "data")
    assert len(scan(log_of(manager))) == len(left) + 1
    assert manager.close()
    assert differences(tmp_path / "data" / "t-0", 100) == []


def test_F7_P12_retention_makes_room_where_there_is_none_for_a_new_segment(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    manager = made(tmp_path / "data")
    number = go_on(manager, 0)
    log = log_of(manager)
    segments = len(log.segments)
    log.update_config(replace(CONFIG, retention_ms=1))
    disk.fill()
    manager._now_ms = lambda: NOW + 1_000_000
    retain(manager)
    assert segments >= 2
    assert [segment is log.active for segment in log.segments] == [True]
    assert manager.disk.is_full
    assert fetch_all(log) == [row for row in scan(log) if row.offset >= log.active.base_offset] != []
    disk.heal()
    retain(manager)
    assert (log.log_start_offset, log.log_end_offset, scan(log)) == (2 * number, 2 * number, [])


def production(acks: int, topic: str = "good") -> ProduceRequest:
    records = memoryview(one_batch(3))
    named = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])


async def produce(client: Client, acks: int, topic: str = "good") -> int:
    answer = await client.ask(PRODUCE, 9, production(acks, topic))
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_F7_P12_what_a_producer_is_told(serve: Serve, disk: FaultyDisk) -> None:
    """acks=1 and acks=all: KAFKA_STORAGE_ERROR; acks=0 hears nothing, and its connection is closed, as Kafka does."""
    served = await serve()
    client, careless = await served.connect(), await served.connect()
    await fill(client, 10)
    disk.fill("*.log")
    assert [await produce(client, acks) for acks in (1, -1)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    careless.send(PRODUCE, 9, 1, production(0))
    assert await careless.reader.read() == b""
    found = await fetch(client, 1)
    assert [found[topic].error_code for topic in ("good", "bad")] == [ErrorCode.NONE] * 2
    assert (await look_up(client, T0 + 1))["good"].offset == 1
    disk.heal()
    assert [await produce(client, acks) for acks in (1, -1)] == [ErrorCode.NONE] * 2


def promised(folder: Path, partitions: int) -> bytes:
    """Leave a topic in the catalogue whose folders are still to be made, as a kill in between does; return its id."""
    catalog = Catalog(folder / CATALOG_FILE)
    topic_id = new_topic_id()
    catalog.add_topic(TopicRecord("new", topic_id, partitions, {}))
    catalog.close()
    return topic_id


async def offline(client: Client, *topics: str) -> list[list[int]]:
    """Return which partitions of each topic metadata says take no writes."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    answer = await client.ask(METADATA, 9, asked)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * len(topics)
    return [
        [partition.partition_index for partition in topic.partitions if partition.offline_replicas]
        for topic in answer.topics
    ]


async def test_F7_P12_folders_that_are_still_to_be_made_keep_no_broker_from_starting_and_are_made_once_there_is_space(
    serve: Serve,
    disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    data = tmp_path / "data"
    served = await serve()
    await fill(await served.connect(), 10)
    await served.stop()
    topic_id = promised(data, 2)
    disk.fill()
    for _ in range(2):
        served = await serve()
        client = await served.connect()
        assert await offline(client, "new", "good") == [[0, 1], [0]]
        assert [await produce(client, acks, "new") for acks in (1, -1)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        found = await fetch(client, 0, ("new", "good"))
        assert [(found[topic].error_code, found[topic].high_watermark) for topic in ("new", "good")] == [
            (ErrorCode.NONE, 0),
            (ErrorCode.NONE, 3),
        ]
        looked = await look_up(client, T0 + 1, ("new", "good"))
        assert [(looked[topic].error_code, looked[topic].offset) for topic in ("new", "good")] == [
            (ErrorCode.NONE, -1),
            (ErrorCode.NONE, 1),
        ]
        assert not list(data.glob("new-*"))
        await served.stop()
    assert "lost" not in caplog.text
    served = await serve()
    client = await served.connect()
    disk.heal()
    logs = [partition.log for partition in served.broker.topics.by_name["new"].partitions]
    await asyncio.wait_for(until(lambda: all(log.takes_writes for log in logs)), 20)
    assert [layout.load_topic_id(data / f"new-{index}") for index in range(2)] == [topic_id] * 2
    assert await offline(client, "new", "good") == [[], []]
    assert [await produce(client, -1, topic) for topic in ("new", "good")] == [ErrorCode.NONE] * 2
    await served.stop()
    client = await (await serve()).connect()
    assert (await fetch(client, 0, ("new",)))["new"].high_watermark == 3
    assert differences(data / "new-0", 4096) == []


async def test_F7_P12_topics_that_are_there_take_writes_beside_one_whose_folders_cannot_be_made(
    serve: Serve, disk: FaultyDisk, tmp_path: Path
) -> None:
    served = await serve()
    await fill(await served.connect(), 10)
    await served.stop()
    promised(tmp_path / "data", 2)
    disk.fill("new-1")
    client = await (await serve()).connect()
    assert await produce(client, -1) == ErrorCode.NONE
    assert await produce(client, -1, "new") == ErrorCode.NONE
    assert (tmp_path / "data" / "new-0").is_dir()
    assert not (tmp_path / "data" / "new-1").exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_F8_P12_a_folder_that_a_start_cannot_make_is_of_one_log(
    tmp_path: Path, disk: FaultyDisk, number: int
) -> None:
    """Where the disk fails it takes no writes until a restart, as of any log."""
    manager = opened(tmp_path)
    with disk.failing("make", of="t-0", error=number):
        logs = [manager.restore("t", partition, bytes(16), CONFIG) for partition in range(2)]
    for log in logs:
        log.mend()
    is_passing = number == errno.EMFILE
    assert [log.health.failure is None for log in logs] == [is_passing, True]
    assert [log.health.is_final for log in logs] == [not is_passing, False]
    assert manager.disk.is_trusted == is_passing
    append(logs[1], 0)
    manager.abandon()


def restored(folder: Path) -> LogManager:
    """Start with a partition in the catalogue that has no folder."""
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.open(lambda _: CONFIG, lambda _: True)
    manager.restore("t", 0, bytes(16), CONFIG)
    return manager


def test_F7_P12_what_was_in_a_folder_that_is_gone_is_not_given_out_again_by_a_full_disk(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    manager = opened(tmp_path / "data")
    log = manager.create("t", 0, bytes(16), CONFIG)
    append(log, 0)
    assert log.flush() == 2
    assert manager.close()
    shutil.rmtree(log.directory)
    disk.fill()
    for _ in range(2):
        manager = restored(tmp_path / "data")
        assert is_damaged(log_of(manager), 0)
        with pytest.raises(StorageError):
            append(log_of(manager), 1)
        assert not manager.close()
    manager = restored(tmp_path / "data")
    log = log_of(manager)
    disk.heal()
    at_once(manager.look_after())
    append(log, 1)
    assert log.flush() == 4
    manager.abandon()
    manager = opened(tmp_path / "data")
    log = log_of(manager)
    assert ([row.offset for row in scan(log)], is_damaged(log, 1)) == ([2, 3], True)
    assert manager.close()
