"""F7, P12: a disk that is full, for one file after another and for all: refused, read on, healed, nothing lost."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.test_damage_served import T0, fetch, fill, look_up
from tests.support.full_disk import FullDisk, full_disk
from tests.support.logs import NOW, Row, batch, fetch_all, first_at, scan
from tests.support.reference_index import differences
from tests.support.served import Client, Connect, Serve, connect, serve
from tests.support.workload import one_batch
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.steps import at_once
from tidelog.storage import folder_identity
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LOG_STARTS, RECOVERY_POINTS, LogManager
from tidelog.storage.sources import PATIENT

__all__ = ["connect", "full_disk", "serve"]

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
        lambda: log_of(manager).durability.flush(),
        manager.checkpoint,
        lambda: at_once(manager.enforce_retention()),
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
def test_F7_P12_no_room_for_one_kind_of_file(
    tmp_path: Path, full_disk: FullDisk, ends: str, then: str
) -> None:
    manager = made(tmp_path / "data")
    number = go_on(manager, 0)
    full_disk.end(ends)
    for _ in range(3):
        taken = go_on(manager, number)
        number += taken
        answers(log_of(manager), scan(log_of(manager)))
    assert full_disk.refused
    rows = scan(log_of(manager))
    assert len(rows) == 2 * number, "what was acknowledged, and nothing else"
    if then != "go on":
        (manager.close if then == "stop" else manager.abandon)()
        manager = opened(tmp_path / "data")  # on a disk that is still full
        answers(log_of(manager), rows)
    full_disk.heal()
    assert go_on(manager, number) == 12
    assert len(scan(log_of(manager))) == 2 * number + 24
    assert manager.close()
    assert differences(tmp_path / "data" / "t-0", 100) == []
    manager = opened(tmp_path / "data")
    assert len(fetch_all(log_of(manager))) == 2 * number + 24
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
    tmp_path: Path, full_disk: FullDisk, which: str, how: Callable[[Path], None], stop: str
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
    full_disk.end()
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
    full_disk.heal()
    log = log_of(manager)
    assert log.append(batch([NOW]), NOW).base_offset == end
    assert log.durability.flush() == end + 1
    assert set(left) < set(scan(log))
    before = scan(log)
    manager.abandon()
    manager = opened(tmp_path / "data")
    assert scan(log_of(manager)) == before
    assert manager.close()


@pytest.mark.parametrize("how", [torn, spoiled])
def test_F7_P12_a_full_disk_keeps_no_broker_from_starting_after_a_power_cut(
    tmp_path: Path, full_disk: FullDisk, how: Callable[[Path], None]
) -> None:
    """What no flush covers cannot be cut, as the summary could not be replaced: the log ends there all the same."""
    manager = made(tmp_path / "data")
    log = log_of(manager)
    append(log, 0)
    log.durability.flush()
    log.active.save(flushed=True)
    for number in range(1, 5):
        append(log, number)
    rows, path = scan(log), log.active.path(".log")
    assert len(log.segments) == 1
    manager.abandon()
    how(path)
    (tmp_path / "data" / "boot-id").write_text("another\n")
    before = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.stem}.summary")}
    full_disk.end()
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
        assert not folder_identity.is_same_boot(tmp_path / "data")
    manager = opened(tmp_path / "data")
    full_disk.heal()
    log = log_of(manager)
    assert log.append(batch([NOW]), NOW).base_offset == len(left)
    assert log.durability.flush() == len(left) + 1
    assert scan(log)[:-1] == left
    manager.abandon()
    manager = opened(tmp_path / "data")
    assert len(scan(log_of(manager))) == len(left) + 1
    assert manager.close()
    assert differences(tmp_path / "data" / "t-0", 100) == []


def test_F7_P12_retention_makes_room_where_there_is_none_for_a_new_segment(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    manager = made(tmp_path / "data")
    number = go_on(manager, 0)
    log = log_of(manager)
    segments = len(log.segments)
    log.update_config(replace(CONFIG, retention_ms=1))
    full_disk.end()
    manager._now_ms = lambda: NOW + 1_000_000
    at_once(manager.enforce_retention())
    assert segments >= 2
    assert [segment is log.active for segment in log.segments] == [True]
    assert manager.disk.is_full
    assert fetch_all(log) == [row for row in scan(log) if row.offset >= log.active.base_offset] != []
    full_disk.heal()
    at_once(manager.enforce_retention())
    assert (log.log_start_offset, log.log_end_offset, scan(log)) == (2 * number, 2 * number, [])


def production(acks: int) -> ProduceRequest:
    records = memoryview(one_batch(3))
    named = TopicProduceData(name="good", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])


async def produce(client: Client, acks: int) -> int:
    answer = await client.ask(PRODUCE, 9, production(acks))
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_F7_P12_what_a_producer_is_told(serve: Serve, connect: Connect, full_disk: FullDisk) -> None:
    """acks=1 and acks=all: KAFKA_STORAGE_ERROR; acks=0 hears nothing, and its connection is closed, as Kafka does."""
    served = await serve()
    client, careless = await connect(served), await connect(served)
    await fill(client, 10)
    full_disk.end(".log")
    assert [await produce(client, acks) for acks in (1, -1)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    careless.send(PRODUCE, 9, 1, production(0))
    assert await careless.reader.read() == b""
    found = await fetch(client, 1)
    assert [found[topic].error_code for topic in ("good", "bad")] == [ErrorCode.NONE] * 2
    assert (await look_up(client, T0 + 1))["good"].offset == 1
    full_disk.heal()
    assert [await produce(client, acks) for acks in (1, -1)] == [ErrorCode.NONE] * 2
