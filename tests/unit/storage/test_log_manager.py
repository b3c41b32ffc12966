"""The data folder: whose it is, what is found in it, what a stop leaves."""

import errno
import gc
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, fill, held_open, is_damaged, open_log, retain, scan
from tests.support.paths import KAFKA_WRITTEN, TESTS
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files, layout, log_manager
from tidelog.storage.checkpoints import OffsetsByPartition, load_offsets
from tidelog.storage.errors import (
    CorruptLog,
    DataDirLocked,
    ForeignDataDir,
    LogOffline,
    ReadFailed,
    StorageError,
)
from tidelog.storage.fsck import Fsck, Problem
from tidelog.storage.layout import LOG_STARTS, RECOVERY_POINTS
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producer_snapshots import ProducerSnapshots
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Summary

pytestmark = pytest.mark.usefixtures("telling_file_system")

TOPIC_ID = bytes(range(16))
EARLIER = TESTS / "data" / "version-6"


class Folder:
    """A data folder and the manager that has it open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deleted: set[str] = set()  # topics, as the catalogue has it
        self.now_ms = NOW
        self.manager = self.open()

    def open(self, **options: int) -> LogManager:
        self.manager = LogManager(self.path, BrokerConfig(**options), lambda: self.now_ms)
        self.manager.open(is_ours=lambda topic: topic not in self.deleted)
        return self.manager

    def crash(self) -> LogManager:
        self.manager.abandon()
        return self.open()

    def restart(self) -> LogManager:
        self.manager.close()
        return self.open()


def logs_synced(disk: FaultyDisk) -> list[Path]:
    """Return the logs that were synced by themselves."""
    return [path for path in disk.paths("sync") if path.suffix == ".log"]


def checkpoints_written(disk: FaultyDisk) -> list[str]:
    """Return the names of the checkpoints of all partitions that were replaced, sorted."""
    return sorted(path.name for path in disk.paths("rename") if path.name in (RECOVERY_POINTS, LOG_STARTS))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path / "new" / "data")
    yield folder
    folder.manager.abandon()


def test_a_missing_folder_is_made_and_gets_its_ids(data: Folder) -> None:
    lines = (data.path / "meta.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    assert properties == {
        "version": "1",
        "node.id": "1",
        "cluster.id": data.manager.cluster_id,
        "directory.id": data.manager.directory_id,
    }
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", data.manager.cluster_id)
    before = data.manager.cluster_id, data.manager.directory_id
    data.restart()
    assert (data.manager.cluster_id, data.manager.directory_id) == before


def test_partitions_come_back_after_a_clean_stop(data: Folder) -> None:
    log = data.manager.create("a.b-c", 2, TOPIC_ID, TopicConfig())
    fill(log, [[NOW], [NOW + 1]])
    rows = scan(log)
    data.restart()
    assert list(data.manager.logs) == [("a.b-c", 2)]
    again = data.manager.logs["a.b-c", 2]
    assert (scan(again), again.topic_id, again.leader_epoch, again.recovery_point) == (rows, TOPIC_ID, 0, 2)
    assert str(again) == "a.b-c-2"


def test_the_marker_of_a_clean_stop_is_there_only_while_stopped(data: Folder) -> None:
    marker = data.path / ".kafka_cleanshutdown"
    assert not marker.exists()
    data.manager.close()
    assert json.loads(marker.read_text())["version"] == 0
    data.open()
    assert not marker.exists()
    data.crash()
    data.manager.close()
    assert marker.exists()


def test_after_a_crash_all_is_there_and_the_epoch_is_a_new_one(data: Folder) -> None:
    for number in range(5):
        fill(data.manager.create("t", number, TOPIC_ID, TopicConfig()), [[NOW]] * number)
    data.crash()
    ends = {key[1]: log.log_end_offset for key, log in data.manager.logs.items()}
    assert ends == {number: number for number in range(5)}
    assert {log.leader_epoch for log in data.manager.logs.values()} == {1}


def test_a_clean_start_reads_no_log_and_opens_no_file(data: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        log = data.manager.create("t", number, TOPIC_ID, TopicConfig())
        fill(log, [[NOW]])
        log.roll(NOW)
        fill(log, [[NOW]])
    data.manager.close()
    monkeypatch.setattr("tidelog.storage.files.File.__init__", None)
    data.open()
    assert len(data.manager.logs) == 20


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize(
    "text", ["", "x", "0\n", "0\n5\nt 0 1\n", "0\n1\nt zero 1\n", "1\n1\nt 0 1\n", "0\n1\nt 0\n", "\0\0\0"]
)
def test_P10_a_broken_checkpoint_keeps_nobody_from_starting(data: Folder, name: str, text: str) -> None:
    fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]] * 3)
    for stop in ("close", "abandon"):
        getattr(data.manager, stop)()
        (data.path / name).write_text(text)
        data.open()
        assert len(scan(data.manager.logs["t", 0])) == 3


def test_P10_nor_does_a_broken_file_of_a_partition(data: Folder) -> None:
    fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]] * 3)
    data.manager.close()
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        (data.path / "t-0" / name).write_bytes(b"\xff\0garbage")
    data.open()
    log = data.manager.logs["t", 0]
    assert (len(scan(log)), log.leader_epoch, log.topic_id) == (3, 0, None)


def test_checkpoints_are_in_kafkas_format(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 3)
    log.flush()
    log.advance_start(1)
    fill(log, [[NOW]])
    data.manager.create("s", 11, TOPIC_ID, TopicConfig())
    data.manager.checkpoint()
    assert (data.path / "recovery-point-offset-checkpoint").read_text() == "0\n2\ns 11 0\nt 0 3\n"
    assert (data.path / "log-start-offset-checkpoint").read_text() == "0\n2\ns 11 0\nt 0 1\n"
    assert (
        data.path / "t-0" / "partition.metadata"
    ).read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert (data.path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    data.crash()
    assert data.manager.logs["t", 0].log_start_offset == 1


def test_a_log_start_survives_a_clean_stop(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 3)
    log.advance_start(2)
    data.restart()
    assert data.manager.logs["t", 0].log_start_offset == 2


def test_a_deleted_topic_is_gone_also_if_the_removal_was_cut_short(
    data: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("gone", "kept"):
        for number in range(2):
            fill(data.manager.create(topic, number, TOPIC_ID, TopicConfig()), [[NOW]])
    gone = data.manager.logs["gone", 0]
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.files.remove_folder", lambda path: None)
        at_once(data.manager.delete_topic("gone"))
    left = [path.name for path in data.path.iterdir() if path.name.startswith("gone")]
    assert [re.fullmatch(r"gone-[01]\.[0-9a-f]{32}-delete", name) is not None for name in left] == [
        True,
        True,
    ]
    with pytest.raises(StorageError):
        gone.append(batch([NOW]), NOW)
    data.crash()
    assert sorted(data.manager.logs) == [("kept", 0), ("kept", 1)]
    assert not [path for path in data.path.iterdir() if path.name.startswith("gone")]
    data.manager.create("gone", 0, TOPIC_ID, TopicConfig())
    at_once(data.manager.delete_topic("gone"))
    assert not list(data.path.glob("gone*"))
    at_once(data.manager.delete_topic("never was"))


def test_a_start_removes_a_deleted_folder_once_its_name_is_on_disk(
    data: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut might take the rename and not the removal, and leave a partition without its files."""
    deleted = data.path / f"gone-0.{'0' * 32}-delete"
    deleted.mkdir()
    data.manager.abandon()
    steps: list[str] = []

    def refuse(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    def removed(path: Path, remove_folder: Callable[[Path], None] = files.remove_folder) -> None:
        steps.append(f"remove {path.name}")
        remove_folder(path)

    def synced(path: Path, sync_folder: Callable[[Path], None] = files.sync_folder) -> None:
        steps.append(f"sync {path.name}")
        sync_folder(path)

    monkeypatch.setattr(files, "remove_folder", removed)
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_folder", refuse)
        data.open()
    assert (deleted.exists(), steps) == (True, [])
    monkeypatch.setattr(files, "sync_folder", synced)
    data.crash()
    assert steps[:2] == ["sync data", f"remove {deleted.name}"]


def test_a_deletion_that_fails_can_be_tried_again(data: Folder, disk: FaultyDisk) -> None:
    for number in range(2):
        data.manager.create("gone", number, TOPIC_ID, TopicConfig())

    with (
        disk.failing("rename", error=errno.EACCES),
        pytest.raises(StorageError, match=r"topic gone: its folders cannot be deleted: .*Permission"),
    ):
        at_once(data.manager.delete_topic("gone"))
    assert sorted(data.manager.logs) == [("gone", 0), ("gone", 1)]
    at_once(data.manager.delete_topic("gone"))
    assert not data.manager.logs
    assert not list(data.path.glob("gone*"))


def test_a_deletion_goes_in_steps_and_others_go_on_in_between(data: Folder) -> None:
    config = TopicConfig(retention_ms=0, flush_policy="interval", flush_ms=1, segment_bytes=14)
    for topic in ("gone", "kept"):
        for number in range(3):
            fill(data.manager.create(topic, number, TOPIC_ID, config), [[NOW - 100]] * 30)
    gone = [data.manager.logs["gone", number] for number in range(3)]
    data.manager.retain_soon(data.manager.logs.values())
    rounds = [
        data.manager.enforce_retention(),
        data.manager.flush_intervals(),
        data.manager.look_after(),
    ]
    for each in rounds:
        next(each)
    steps = 0
    for _ in data.manager.delete_topic("gone"):
        steps += 1
        data.manager.checkpoint()
    assert steps > 3 * 30 * 3, "a step for each file"
    assert not list(data.path.glob("gone*"))
    again = data.manager.create("gone", 0, TOPIC_ID, config)
    fill(again, [[NOW]])
    # What was under way leaves the logs alone that are gone, and the folder of their name.
    for each in rounds:
        at_once(each)
    assert [log.recovery_point for log in gone] == [0] * 3
    assert scan(again)
    assert data.manager.logs["kept", 0].log_start_offset == 30
    assert data.restart().logs.keys() == {("gone", 0), *(("kept", number) for number in range(3))}


def test_a_deletion_of_one_topic_does_not_wait_for_that_of_another(data: Folder) -> None:
    for topic in ("large", "small"):
        data.manager.create(topic, 0, TOPIC_ID, TopicConfig())
    large = data.manager.delete_topic("large")
    while ("large", 0) in data.manager.logs:
        next(large)
    at_once(data.manager.delete_topic("small"))
    assert [path.name[:5] for path in data.path.glob("*-delete")] == ["large"]
    for _ in large:
        pass
    assert not list(data.path.glob("*-delete"))


def test_retention_takes_many_segments_some_at_a_time(data: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.storage.upkeep.SEALED_AT_ONCE", 5)
    monkeypatch.setattr("tidelog.storage.deleted_files.REMOVED_AT_ONCE", 7)
    config = TopicConfig(retention_ms=0, segment_bytes=14, file_delete_delay_ms=0)
    log = data.manager.create("t", 0, TOPIC_ID, config)
    fill(log, [[NOW - 100]] * 52)
    dropped, removed = [0], 4 * 53
    data.manager.retain_soon([log])
    for _ in data.manager.enforce_retention():
        if log.log_start_offset != dropped[-1]:
            dropped.append(log.log_start_offset)
        left = len(list(log.directory.glob("0*.*")))
        assert removed - left <= 7
        removed = min(removed, left)
    assert dropped == [*range(0, 51, 5), 52]
    assert (log.log_start_offset, len(log.segments), len(log.deleted)) == (52, 1, 0)


def test_what_retention_must_flush_before_it_deletes_is_flushed_by_one_sync(
    data: Folder, disk: FaultyDisk
) -> None:
    config = TopicConfig(retention_ms=-1, retention_bytes=2000, segment_bytes=14)
    log = data.manager.create("t", 0, TOPIC_ID, config)
    fill(log, [[NOW]] * 100)
    disk.dirty_bytes = 0
    retain(data.manager)
    assert (log.recovery_point, log.log_start_offset > 50) == (100, True)
    assert len(disk.paths("syncfs")) == 1
    assert logs_synced(disk) == []


def test_many_logs_with_an_interval_are_flushed_some_at_a_step_by_one_sync(
    data: Folder, monkeypatch: pytest.MonkeyPatch, disk: FaultyDisk
) -> None:
    monkeypatch.setattr("tidelog.storage.log_manager.FLUSHED_AT_ONCE", 10)
    config = TopicConfig(flush_policy="interval", flush_ms=1)
    logs = [data.manager.create("t", number, TOPIC_ID, config) for number in range(25)]
    for log in logs:
        fill(log, [[NOW]])
    disk.dirty_bytes = 0
    done = [sum(log.recovery_point for log in logs) for _ in data.manager.flush_intervals()]
    assert (done, [log.recovery_point for log in logs]) == ([0, 0, 10, 20], [1] * 25)
    assert logs_synced(disk) == []


def test_a_stop_of_many_logs_takes_two_syncs_and_few_files(data: Folder, disk: FaultyDisk) -> None:
    for number in range(20):
        fill(data.manager.create("t", number, TOPIC_ID, TopicConfig()), [[NOW]])
    disk.dirty_bytes = 0
    data.manager.close()
    assert len(disk.paths("syncfs")) == 2
    assert logs_synced(disk) == []
    assert {path.suffix for path in (data.path / "t-0").iterdir()} == {
        ".log",
        ".index",
        ".timeindex",
        ".appendindex",
        ".summary",
        ".metadata",
        "",
    }
    manager = data.open()
    assert [log.recovery_point for log in manager.logs.values()] == [1] * 20


def test_a_stop_needs_no_descriptor_more_than_there_are(
    data: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [data.manager.create("t", number, TOPIC_ID, TopicConfig()) for number in range(9)]
    for log in logs:
        fill(log, [[NOW]])
    held: list[int] = []

    def write(snapshots: ProducerSnapshots) -> None:
        held.extend(held_open(log.directory) for log in logs if log.snapshots is snapshots)

    monkeypatch.setattr(ProducerSnapshots, "write", write)
    data.manager.close()
    assert held == [0] * 9


@pytest.mark.parametrize("topic", ["../x", "a/b", "", ".", "..", "x" * 250, "nul\0", "sp ace", "ü"])
def test_a_topic_whose_name_is_no_folder_name_makes_none(data: Folder, topic: str) -> None:
    before = sorted(data.path.parent.rglob("*"))
    with pytest.raises(StorageError):
        data.manager.create(topic, 0, TOPIC_ID, TopicConfig())
    assert sorted(data.path.parent.rglob("*")) == before


def test_a_partition_is_made_once(data: Folder) -> None:
    data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    with pytest.raises(StorageError, match="t-0: exists"):
        data.manager.create("t", 0, TOPIC_ID, TopicConfig())


def test_options_of_a_topic_are_asked_for_before_its_logs_are_recovered(data: Folder) -> None:
    config = TopicConfig(index_interval_bytes=0)
    fill(data.manager.create("t", 0, TOPIC_ID, config), [[NOW]] * 4)
    data.manager.abandon()
    manager = data.manager = LogManager(data.path, BrokerConfig(), lambda: NOW)
    manager.open({"t": config}.__getitem__)
    assert len(manager.logs["t", 0].active.offset_index) == 3


def test_a_second_broker_on_the_folder_is_refused(data: Folder) -> None:
    second = LogManager(data.path, BrokerConfig(), lambda: NOW)
    with pytest.raises(DataDirLocked, match=f"{data.path}: another broker uses this data folder"):
        second.open()
    data.manager.close()
    second.open()
    second.abandon()


def test_a_folder_that_kafka_has_open_is_refused_and_kafka_refuses_ours(data: Folder) -> None:
    """Java's FileLock is a POSIX lock, which flock does not see: another process, as it has one for all threads."""
    take = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); "
    command = [sys.executable, "-c", take + "print('locked', flush=True); sys.stdin.read()"]
    assert subprocess.run([*command, data.path / ".lock"], capture_output=True, input=b"").returncode == 1
    data.manager.close()
    with subprocess.Popen(
        [*command, data.path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as kafka:
        assert kafka.stdout is not None
        assert kafka.stdin is not None
        assert kafka.stdout.readline() == b"locked\n"
        assert files.is_locked(data.path / ".lock")
        with pytest.raises(DataDirLocked):
            LogManager(data.path, BrokerConfig(), lambda: NOW).open()
        kafka.stdin.close()
    second = LogManager(data.path, BrokerConfig(), lambda: NOW)
    second.open()
    second.abandon()


def hold(path: Path, ready: "multiprocessing.connection.Connection") -> None:
    manager = LogManager(path, BrokerConfig(), lambda: NOW)
    manager.open()
    ready.send(True)
    time.sleep(60)


def test_P25_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path / "data", theirs))
    process.start()
    assert ours.poll(30)
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    with pytest.raises(DataDirLocked):
        manager.open()
    assert process.pid is not None
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    manager.open()
    manager.abandon()
    ours.close()
    theirs.close()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(ForeignDataDir, match=r"holds 'holiday.jpg' but no meta.properties"):
        Folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"holiday.jpg"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\nbroker.id=1\n", "version '0' is not 1"),
        ("version=1\nnode.id=7\ncluster.id=x\n", "belongs to node 7, this broker is 1; set node.id=7"),
        ("version=1\nnode.id=1\n", "no cluster.id"),
        ("", "version None is not 1"),
        ("\0\xff", "version None"),
    ],
)
def test_a_folder_of_another_kind_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ForeignDataDir, match=message) as refused:
        Folder(tmp_path)
    assert "\n" not in str(refused.value)
    # It is left as it was.
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]
    assert (tmp_path / "meta.properties").read_text() == text


def test_a_folder_that_turns_out_foreign_under_the_lock_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the folder and the lock, somebody may put things there."""
    real_lock = files.FolderLock

    def late(path: Path) -> files.FolderLock:
        (tmp_path / "holiday.jpg").write_bytes(b"x")
        return real_lock(path)

    monkeypatch.setattr(files, "FolderLock", late)
    with pytest.raises(ForeignDataDir, match=r"holds 'holiday.jpg'"):
        Folder(tmp_path)
    assert not (tmp_path / "meta.properties").exists()
    real_lock(tmp_path / layout.LOCK).release()


def test_a_broker_that_makes_the_folder_its_own_meanwhile_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first starts at once: the one that comes second meets a lock, or ids, and never "no data folder"."""
    first = LogManager(tmp_path, BrokerConfig(), lambda: NOW)
    real_load = files.load

    def load(path: Path) -> bytes | None:
        monkeypatch.setattr(files, "load", real_load)
        first.open()
        (tmp_path / "catalog.sqlite").write_bytes(b"x")
        return real_load(path)

    monkeypatch.setattr(files, "load", load)
    with pytest.raises(DataDirLocked):
        Folder(tmp_path)
    first.abandon()


def test_ids_that_a_full_disk_cut_off_do_not_keep_the_folder_from_being_used(tmp_path: Path) -> None:
    (tmp_path / "meta.properties.tmp").write_bytes(b"#\nvers")
    Folder(tmp_path).manager.abandon()
    assert (tmp_path / "meta.properties").exists()


def test_a_file_where_the_folder_should_be_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    with pytest.raises(ForeignDataDir, match=f"{path}: cannot be used as a data folder"):
        Folder(path)


def test_meta_properties_as_kafka_formats_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Tue Oct 01 10:00:00 UTC 2024\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\n"
        "directory.id=v_uRSEhGOUHwVnwVHkQaTg\nnode.id=1\n"
    )
    folder = Folder(tmp_path)
    assert (folder.manager.cluster_id, folder.manager.directory_id) == (
        "4L6g3nShT-eMCtK--X86sw",
        "v_uRSEhGOUHwVnwVHkQaTg",
    )
    folder.manager.abandon()


def test_a_partition_folder_that_kafka_wrote_is_found(data: Folder) -> None:
    written = KAFKA_WRITTEN / "m2-none-ct-0"
    data.manager.close()
    shutil.copytree(written, data.path / "from-kafka-0")
    data.open()
    log = data.manager.logs["from-kafka", 0]
    assert log.log_start_offset == 5000
    assert log.append(batch([NOW]), NOW).base_offset == log.log_end_offset - 1


def test_retention_and_expiry_go_through_all_logs(data: Folder) -> None:
    for number in range(3):
        log = data.manager.create("t", number, TOPIC_ID, TopicConfig(retention_ms=100))
        log.append(batch([5], producer_id=1, producer_epoch=0, base_sequence=0), NOW - 101)
    retain(data.manager)
    assert {log.log_start_offset for log in data.manager.logs.values()} == {1}
    assert {len(log.producers.producers) for log in data.manager.logs.values()} == {1}


def test_S41_idle_partitions_hold_no_file_open(data: Folder) -> None:
    before = held_open(data.manager.directory)
    for number in range(50):
        log = data.manager.create("t", number, TOPIC_ID, TopicConfig())
        assert len(log.read(0, 100, True, PATIENT)) == 0
    assert held_open(data.manager.directory) == before
    for log in data.manager.logs.values():
        fill(log, [[NOW]])
        log.roll(NOW)
        fill(log, [[NOW]])
        log.read(0, 100, True, PATIENT)
    retain(data.manager)
    assert held_open(data.manager.directory) == before + 50


def test_a_thousand_partitions_are_made_without_a_sync(data: Folder, disk: FaultyDisk) -> None:
    disk.calls.clear()
    for number in range(100):
        data.manager.create("t", number, TOPIC_ID, TopicConfig())
    assert disk.paths("sync", "syncfs") == []


def test_making_a_partition_takes_few_calls(data: Folder) -> None:
    """Thousands are made at once: no file is looked at before it is made, or opened twice."""
    config = BrokerConfig().topic_defaults()
    data.manager.create("t", 0, TOPIC_ID, config)
    calls: Counter[str] = Counter()

    def note(_: object, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", None) == "posix":
            calls[function.__name__] += 1

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # It may close files of other tests.
    sys.setprofile(note)
    try:
        for number in range(1, 11):
            data.manager.create("t", number, TOPIC_ID, config)
    finally:
        sys.setprofile(before)
        gc.enable()
    for of_names in ("fspath", "_path_splitroot_ex"):  # The system is not asked for these.
        calls.pop(of_names, None)
    assert calls == {"stat": 20, "mkdir": 10, "open": 50, "write": 20, "close": 50}


def checkpoints(data: Folder) -> list[str]:
    """Return the entries of both checkpoints on disk."""
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
    return [line for name in names for line in (data.path / name).read_text().splitlines()[2:]]


def used(data: Folder, topic: str, partitions: int) -> None:
    """Make a topic whose logs begin at 2 and were flushed up to 3, and write that down."""
    for number in range(partitions):
        log = data.manager.create(topic, number, TOPIC_ID, TopicConfig())
        fill(log, [[NOW]] * 3)
        log.flush()
        log.advance_start(2)
    data.manager.checkpoint()


@pytest.mark.parametrize("restart", [False, True])
def test_I1_a_topic_made_again_begins_anew(data: Folder, restart: bool) -> None:
    used(data, "t", 3)
    used(data, "kept", 1)
    at_once(data.manager.delete_topic("t"))
    assert checkpoints(data) == ["kept 0 3", "kept 0 2"]
    if restart:
        data.crash()
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW], [NOW + 1]])
    log.flush()
    data.crash()
    again = data.manager.logs["t", 0]
    assert (again.log_start_offset, [row.offset for row in scan(again)]) == (0, [0, 1])
    assert (data.manager.logs["kept", 0].log_start_offset, again.damaged) == (2, ())


def test_I1_a_deletion_that_dies_at_any_step_leaves_nothing_that_a_new_topic_could_find(
    data: Folder, disk: FaultyDisk
) -> None:
    step = done = 0
    while not done:
        used(data, "t", 2)
        disk.fail("rename", "sync", "make", after=step)
        with suppress(StorageError):
            at_once(data.manager.delete_topic("t"))
            done = 1
        disk.heal()
        data.deleted.add("t")
        data.crash()
        at_once(data.manager.delete_topic("t"))  # The catalogue says that it was not finished.
        data.deleted.clear()
        assert [checkpoints(data), list(data.path.glob("t-*"))] == [[], []]
        fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]])
        data.crash()
        assert [row.offset for row in scan(data.manager.logs["t", 0])] == [0]
        at_once(data.manager.delete_topic("t"))
        step += 1
    assert step > 6


def test_I1_deletions_side_by_side_strike_together_and_only_what_a_checkpoint_names(
    data: Folder, disk: FaultyDisk
) -> None:
    """The checkpoints are of all partitions: to write them for each of many deletions would hold up all the others."""
    for topic in ("a", "b", "c"):
        used(data, topic, 1)
    data.manager.create("never-checkpointed", 0, TOPIC_ID, TopicConfig())
    disk.calls.clear()
    at_once(data.manager.delete_topic("never-checkpointed"))
    assert checkpoints_written(disk) == []
    under_way = [data.manager.delete_topic(topic) for topic in ("a", "b")]
    while under_way:
        under_way = [deletion for deletion in under_way if next(deletion, "done") is None]
    assert checkpoints_written(disk) == ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"]
    assert checkpoints(data) == ["c 0 3", "c 0 2"]


def test_I1_a_start_strikes_what_the_checkpoints_say_of_partitions_that_are_not_there(data: Folder) -> None:
    used(data, "t", 2)
    data.manager.abandon()
    shutil.rmtree(data.path / "t-1")
    data.deleted.add("t")
    data.open()
    assert checkpoints(data) == ["t 0 3", "t 0 2"]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("another", [False, True])
def test_I3_a_partition_whose_folder_is_lost_gives_no_offset_out_again(
    data: Folder, clean: bool, another: bool, caplog: pytest.LogCaptureFixture
) -> None:
    used(data, "t", 2)
    if clean:
        data.manager.close()
    data.manager.abandon()
    shutil.rmtree(data.path / "t-1")
    if another:  # of which the entries are struck
        data.deleted.add("gone")
        points = data.path / "recovery-point-offset-checkpoint"
        points.write_text("0\n3\ngone 0 5\nt 0 3\nt 1 3\n")
    data.open()
    data.manager.checkpoint()
    data.crash()  # The folder has not been made anew yet.
    log = data.manager.create("t", 1, TOPIC_ID, TopicConfig())
    assert f"folder lost, created again folder={data.path / 't-1'}" in caplog.text
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    with pytest.raises(CorruptLog):
        log.read(2, 1 << 20, True, PATIENT)
    at_once(data.manager.sync_made([log]))
    fill(log, [[NOW]])
    log = data.crash().logs["t", 1]
    assert ([header.base_offset for _, _, header in log.headers(3)], log.topic_id) == ([3], TOPIC_ID)
    assert checkpoints(data) == ["t 0 3", "t 1 3", "t 0 2", "t 1 2"]
    at_once(data.manager.delete_topic("t"))
    assert data.manager.create("t", 1, TOPIC_ID, TopicConfig()).log_end_offset == 0


def test_I1_what_is_known_of_a_lost_partition_goes_with_its_topic(data: Folder) -> None:
    used(data, "t", 2)
    data.manager.abandon()
    shutil.rmtree(data.path / "t-1")
    data.open()
    at_once(data.manager.delete_topic("t"))
    assert checkpoints(data) == []
    assert data.manager.create("t", 1, TOPIC_ID, TopicConfig()).log_end_offset == 0


def test_I1_no_partition_is_made_while_a_checkpoint_says_something_of_another_of_that_name(
    data: Folder, disk: FaultyDisk
) -> None:
    used(data, "t", 1)
    data.manager.abandon()
    shutil.rmtree(data.path / "t-0")
    data.deleted.add("t")

    disk.fill("*-checkpoint")
    data.open()
    with pytest.raises(StorageError, match="No space left"):
        data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    disk.heal()
    assert not (data.path / "t-0").exists()
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    assert (checkpoints(data), log.log_end_offset) == ([], 0)


def test_a_deleted_log_touches_nothing_of_the_topic_that_has_its_name_next(data: Folder) -> None:
    """A flush, a fetch or an append may still have the log in hand."""
    old = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(old, [[NOW]] * 2)
    old.roll(NOW)
    fill(old, [[NOW]])
    sealed = old.segments[0]
    sealed.release()
    at_once(data.manager.delete_topic("t"))
    new = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(new, [[NOW + 7]])
    before = {path.name: path.read_bytes() for path in new.directory.iterdir()}
    for use in (
        old.flush,
        lambda: old.append(batch([NOW]), NOW),
        lambda: old.roll(NOW),
        lambda: old.read(0, 99, True, PATIENT),
    ):
        with pytest.raises(StorageError):
            use()
    assert {path.name: path.read_bytes() for path in new.directory.iterdir()} == before


def test_a_folder_that_is_not_served_is_not_written_over(data: Folder) -> None:
    folder = data.path / "t-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"restored from a backup")
    with pytest.raises(StorageError, match=rf"{folder}: exists already, but is not served; move it away"):
        data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    assert [path.name for path in folder.iterdir()] == [f"{0:020d}.log"]


def test_the_marker_of_a_clean_stop_is_gone_from_the_disk_before_anything_is_written(
    data: Folder, disk: FaultyDisk
) -> None:
    data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    data.manager.close()
    disk.calls.clear()
    data.open()
    removed = disk.calls.index(("remove", data.path / ".kafka_cleanshutdown"))
    assert [call for call in disk.calls[:removed] if call[0] in ("make", "write")] == []
    assert disk.calls[removed + 1 : removed + 3] == [("open", data.path), ("sync", data.path)]


def test_a_start_that_is_refused_leaves_the_marker_of_a_clean_stop(data: Folder, disk: FaultyDisk) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])
    epochs = log.epochs.entries
    data.manager.close()

    with (
        disk.failing("list", of="t-0", error=errno.EMFILE),
        pytest.raises(OSError, match="Too many open files"),
    ):
        data.open()
    data.open()
    assert data.manager.logs["t", 0].epochs.entries == epochs


def double(folder: Path) -> str:
    """Put two segments into a folder that hold the same offsets."""
    for path in folder.iterdir():
        path.unlink()
    for base in (0, 1):
        message_set = build_message_set([Record(n, NOW, None, b"v") for n in (base, base + 1)], magic=1)
        (folder / f"{base:020d}.log").write_bytes(message_set)
    return "only one of them can be right"


def unreadable(folder: Path) -> str:
    """Put a folder where a segment's log is expected."""
    path = folder / f"{0:020d}.log"
    path.unlink()
    path.mkdir()
    return "a folder where a file belongs; move it away"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.glob("*.log") if path.is_file()}


def no_folder(folder: Path) -> str:
    """Put a file where a partition's folder is expected."""
    shutil.rmtree(folder)
    folder.touch()
    return "is a file, but must be the partition's folder"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("spoil", [double, unreadable, no_folder])
def test_a_log_that_cannot_be_opened_keeps_no_other_from_being_served(
    data: Folder,
    spoil: Callable[[Path], str],
    clean: bool,
    caplog: pytest.LogCaptureFixture,
    disk: FaultyDisk,
) -> None:
    disk.dirty_bytes = 1 << 40  # so that each file is synced by itself
    for partition in (0, 1):
        log = data.manager.create("t", partition, TOPIC_ID, TopicConfig())
        fill(log, [[NOW]] * 3)
        log.flush()
    data.manager.checkpoint()
    data.manager.close() if clean else data.manager.abandon()
    kept = Path(shutil.copytree(data.path / "t-0", data.path.parent / "kept"))
    why = spoil(data.path / "t-0")
    before = contents(data.path / "t-0")
    for _ in range(2):
        caplog.clear()
        manager = data.open()
        log = manager.logs.get(("t", 0)) or manager.restore("t", 0, TOPIC_ID, TopicConfig())
        assert "log=t-0" in caplog.text
        assert why in caplog.text
        manager.retain_soon(manager.logs.values())
        assert why in (log.unopened or "")
        assert why in (log.health.failure or "")
        with pytest.raises(ReadFailed, match="repair that and restart"):
            log.read(0, 1 << 20, True, PATIENT)
        with pytest.raises(LogOffline):
            log.append(batch([NOW]), NOW)
        assert len(scan(manager.logs["t", 1])) == 3
        at_once(manager.enforce_retention())
        at_once(manager.flush_intervals())
        at_once(manager.look_after())
        assert not manager.disk.is_full
        manager.checkpoint()
        assert manager.close() == clean
        assert contents(data.path / "t-0") == before
    shutil.rmtree(data.path / "t-0") if (data.path / "t-0").is_dir() else (data.path / "t-0").unlink()
    kept.rename(data.path / "t-0")
    log = data.open().logs["t", 0]
    assert (len(scan(log)), log.damaged, log.unopened) == (3, (), None)
    assert log.append(batch([NOW]), NOW).base_offset == 3


def test_the_start_of_a_log_that_could_not_be_opened_is_not_noted_for_it(data: Folder) -> None:
    """Kafka notes no start that is where the first segment begins. A noted 0 would say that offsets are lost."""
    data.manager.close()
    folder = data.path / "t-0"
    log = open_log(folder, clean=True, recovery_point=10, log_start_offset=10)
    fill(log, [[NOW]] * 3)
    log.close()
    path = folder / f"{10:020d}.log"
    path.rename(data.path / "aside")
    path.mkdir()
    assert data.open().logs["t", 0].unopened
    assert data.manager.close()
    path.rmdir()
    (data.path / "aside").rename(path)
    log = data.open().logs["t", 0]
    assert (log.unopened, log.damaged, [row.offset for row in scan(log)]) == (None, (), [10, 11, 12])


def test_a_fault_in_the_opening_of_a_log_is_told_with_its_place(
    data: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data.manager.create("t", 0, TOPIC_ID, TopicConfig())

    def fails(*_: object) -> None:
        raise ValueError("nonsense")

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.recovery.find", fails)
        log = data.crash().logs["t", 0]
    assert log.unopened == "ValueError: nonsense"
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("name", [layout.BOOT, RECOVERY_POINTS, LOG_STARTS])
def test_a_pipe_in_the_place_of_a_file_of_the_data_folder_is_replaced(data: Folder, name: str) -> None:
    fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]])
    data.manager.close()
    (data.path / name).unlink()
    os.mkfifo(data.path / name)
    assert len(scan(data.open().logs["t", 0])) == 1
    data.manager.close()
    assert (data.path / name).is_file()


@pytest.mark.parametrize("name", [layout.BOOT, RECOVERY_POINTS, LOG_STARTS, "meta.properties"])
def test_a_folder_in_the_place_of_a_file_of_the_data_folder_is_named(data: Folder, name: str) -> None:
    data.manager.close()
    (data.path / name).unlink()
    (data.path / name).mkdir()
    with pytest.raises(
        (OSError, ForeignDataDir), match="a folder where a file belongs; move it away"
    ) as error:
        data.open()
    assert str(data.path / name) in str(error.value)


def test_a_folder_in_the_place_of_leader_epochs_keeps_its_partition_alone_from_being_served(
    data: Folder,
) -> None:
    for partition in (0, 1):
        fill(data.manager.create("t", partition, TOPIC_ID, TopicConfig()), [[NOW]])
    data.manager.close()
    path = data.path / "t-0" / "leader-epoch-checkpoint"
    path.unlink()
    path.mkdir()
    first, second = data.open().logs.values()
    assert f"move it away: '{path}'" in (first.unopened or "")
    assert len(scan(second)) == 1
    path.rmdir()
    assert len(scan(data.restart().logs["t", 0])) == 1


def test_a_first_start_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "meta.properties.tmp").write_text("version")
    folder = Folder(tmp_path)
    assert (tmp_path / "meta.properties").exists()
    assert not (tmp_path / "meta.properties.tmp").exists()
    folder.manager.abandon()


def test_KIP101_the_epoch_that_a_crash_begins_is_on_disk_before_anything_is_appended(
    data: Folder, disk: FaultyDisk
) -> None:
    fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]])
    data.manager.abandon()
    disk.calls.clear()
    data.open()
    assert data.manager.logs["t", 0].leader_epoch == 1
    # The file wholly, with its folder, and the folder by its name.
    # The file wholly, with its folder, and the folder by its name.
    steps = [(kind, path.name) for kind, path in disk.calls if kind in ("sync", "rename")]
    assert steps[-4:] == [
        ("sync", "leader-epoch-checkpoint"),
        ("rename", "leader-epoch-checkpoint"),
        ("sync", "t-0"),
        ("sync", "data"),
    ]


def test_KIP101_an_epoch_that_left_no_batch_is_not_begun_again(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 3)
    epochs = []
    for _ in range(3):
        log = data.crash().logs["t", 0]
        epochs.append(log.leader_epoch)
        fill(log, [[NOW]])  # Read, and then lost with its segment's name.
        size = log.segments[0].size
        os.truncate(log.active.path(".log"), 0 if not epochs[1:] else size // 2)
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize("text", ["", "0\n0\n"])
def test_epochs_that_a_full_disk_left_empty_are_found_in_the_batches(data: Folder, text: str) -> None:
    fill(data.manager.create("t", 0, TOPIC_ID, TopicConfig()), [[NOW]] * 3)
    data.manager.close()
    (data.path / "t-0" / "leader-epoch-checkpoint").write_text(text)
    data.open()
    assert data.manager.logs["t", 0].epochs.entries == ((0, 0),)


def test_a_deletion_is_on_disk_though_an_earlier_try_came_as_far_as_the_rename(
    data: Folder, disk: FaultyDisk
) -> None:
    disk.calls.clear()
    at_once(data.manager.delete_topic("renamed before a restart"))
    assert disk.paths("sync") == [data.path]


def test_a_cut_is_no_loss_after_a_crash(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW, NOW]] * 5)
    log.flush()
    data.manager.checkpoint()
    data.manager.truncate("t", 0, 5)
    assert (log.log_end_offset, log.recovery_point) == (4, 4)
    data.crash()
    again = data.manager.logs["t", 0]
    assert (again.log_end_offset, again.damaged) == (4, ())


def test_a_cut_before_the_start_that_was_written_down_hides_nothing_that_is_appended_after_it(
    data: Folder,
) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 5)
    log.advance_start(4)
    data.manager.truncate("t", 0, 2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    fill(log, [[NOW]])
    log.flush()
    data.crash()
    again = data.manager.logs["t", 0]
    assert (again.log_start_offset, again.log_end_offset, len(scan(again))) == (2, 3, 1)


def test_a_log_takes_no_appends_that_a_start_which_was_written_down_would_hide(
    data: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 5)
    log.advance_start(4)
    save, written = log_manager.save_offsets, list[tuple[str, int]]()

    def failing(path: Path, offsets: OffsetsByPartition) -> None:
        if path.name == "log-start-offset-checkpoint" and log.log_start_offset < 4:
            raise OSError(errno.EIO, "bad disk")
        written.append((path.name, offsets["t", 0]))
        save(path, offsets)

    monkeypatch.setattr(log_manager, "save_offsets", failing)
    with pytest.raises(LogOffline, match="bad disk"):
        data.manager.truncate("t", 0, 2)
    # As long as nothing is cut the lower start is not written down: a crash would bring back what lies before 4.
    assert written[1] == ("log-start-offset-checkpoint", 4)
    with pytest.raises(LogOffline):
        fill(log, [[NOW]])
    monkeypatch.undo()
    data.crash()
    again = data.manager.logs["t", 0]
    assert (again.log_start_offset, again.log_end_offset, scan(again)) == (4, 4, [])


def test_a_new_id_never_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter([bytes([0xF8] + [0] * 15), bytes([0xFB] * 16), bytes([0x04] + [0] * 15)])
    monkeypatch.setattr(layout.uuid, "uuid4", lambda: SimpleNamespace(bytes=next(ids)))
    assert layout.new_id() == "B" + "A" * 21


@pytest.mark.parametrize(
    ("text", "topic_id"),
    [
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", TOPIC_ID),
        (b"topic_id:AAECAwQFBgcICQoLDA0ODw", TOPIC_ID),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD\n", None),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0O\n", None),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODxA\n", None),
        (b"version: 0\n", None),
        (b"\xff\n", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_topic_id_of_a_partition_is_what_its_folder_says(
    tmp_path: Path, text: bytes | None, topic_id: bytes | None
) -> None:
    if text is not None:
        (tmp_path / "partition.metadata").write_bytes(text)
    assert layout.load_topic_id(tmp_path) == topic_id


def test_meta_properties_may_hold_comments_and_empty_lines_and_lack_a_directory(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n\n! node.id=7\n#cluster.id=y\n  version = 1  \nnode.id=1\ncluster.id=a=b\n"
    )
    assert layout.identify(tmp_path, 1) == ("a=b", "")


def test_logs_with_an_interval_are_flushed_when_it_is_over(data: Folder) -> None:
    data.manager.abandon()
    now_ms = NOW
    manager = data.manager = LogManager(data.path, BrokerConfig(), lambda: now_ms)
    manager.open()
    assert at_once(manager.flush_intervals()) is None
    every = TopicConfig(flush_policy="interval", flush_ms=100)
    logs = [
        manager.create("never", 0, TOPIC_ID, TopicConfig(flush_policy="none")),
        manager.create("seldom", 0, TOPIC_ID, replace(every, flush_ms=1000)),
        manager.create("often", 0, TOPIC_ID, every),
    ]

    def points() -> list[int]:
        nonlocal now_ms
        assert at_once(manager.flush_intervals()) == 100
        return [log.recovery_point for log in logs]

    for log in logs:
        fill(log, [[NOW]])
    assert points() == [0, 1, 1]
    for log in logs:
        fill(log, [[NOW]])
    now_ms += 99
    assert points() == [0, 1, 1]
    now_ms += 1
    assert points() == [0, 1, 2]
    for log in logs:
        fill(log, [[NOW]])
    now_ms += 99
    assert points() == [0, 1, 2], "it counts from the last flush"
    now_ms += 801
    assert points() == [0, 3, 3]


def test_a_log_whose_flush_fails_keeps_no_other_from_being_flushed(
    data: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = TopicConfig(flush_policy="interval", flush_ms=100)
    bad, good = (data.manager.create(topic, 0, TOPIC_ID, config) for topic in ("bad", "good"))
    for log in (bad, good):
        fill(log, [[NOW]])
    bad.health.failure = "the disk broke"
    assert at_once(data.manager.flush_intervals()) == 100
    assert (bad.recovery_point, good.recovery_point) == (0, 1)
    assert "flush failed log=bad-0" in caplog.text


def test_I1_what_a_checkpoint_that_failed_half_way_has_written_is_struck_too(
    data: Folder, disk: FaultyDisk
) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]] * 3)
    log.flush()
    disk.fill("log-start-offset-checkpoint")
    with pytest.raises(OSError, match="No space left"):
        data.manager.checkpoint()
    disk.heal()
    at_once(data.manager.delete_topic("t"))
    assert checkpoints(data) == []


def test_an_empty_log_is_due_when_it_is_appended_to(data: Folder) -> None:
    """Whatever its options: else each log would be due as often as the one that expires first."""
    assert retain(data.manager) is None
    checked_ms = NOW + data.manager.defaults.log_retention_check_interval_ms
    for topic, config in (
        ("a-minute", TopicConfig(retention_ms=60_000)),
        ("by-segment", TopicConfig(retention_ms=-1, segment_ms=5_000)),
        ("by-lag", TopicConfig(cleanup_policy=("compact",), max_compaction_lag_ms=3_000)),
    ):
        data.manager.create(topic, 0, TOPIC_ID, config)
    assert retain(data.manager) == checked_ms
    for topic, due_ms in (("a-minute", 60_001), ("by-segment", 5_001), ("by-lag", 3_001)):
        log = data.manager.logs[topic, 0]
        log.append(bytearray(build_batch([Record(0, NOW, b"key", b"")])), NOW)
        assert data.manager.note_first_batch(log) == NOW + due_ms
    at_once(data.manager.delete_topic("by-lag"))
    assert data.manager.note_first_batch(log) == NOW + 5_001, "a log that is gone is not due"


def test_the_first_append_to_a_segment_is_told_and_no_other(data: Folder) -> None:
    told: list[Log] = []
    data.manager.shared.on_first_batch = told.append
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    for _ in range(2):
        fill(log, [[NOW]] * 3)
        log.roll(NOW)
    assert told == [log, log]


def test_a_round_of_retention_looks_at_the_logs_that_are_due_and_at_no_others(
    data: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("purged", "kept", "empty"):
        data.manager.create(topic, 0, TOPIC_ID, TopicConfig(retention_ms=1 if topic == "purged" else 60_000))
    purged, kept, _ = logs = list(data.manager.logs.values())
    looked: list[Log] = []
    real = log_manager.enforce_retention
    monkeypatch.setattr(
        log_manager, "enforce_retention", lambda log, *how: looked.append(log) or real(log, *how)
    )
    for log in (purged, kept):
        fill(log, [[NOW]])
        data.manager.note_first_batch(log)
    for data.now_ms in range(NOW, NOW + 2):
        at_once(data.manager.enforce_retention())
    assert looked == []
    data.now_ms = NOW + 2
    at_once(data.manager.enforce_retention())
    assert (set(looked), purged.log_start_offset) == ({purged}, 1)
    data.now_ms += data.manager.defaults.log_retention_check_interval_ms
    at_once(data.manager.enforce_retention())
    assert set(looked) == set(logs)


def test_a_log_is_looked_at_within_the_interval_however_long_it_keeps_its_records(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig(retention_ms=10**12))
    fill(log, [[NOW]])
    data.manager.retain_soon([log])
    assert retain(data.manager) == NOW + data.manager.defaults.log_retention_check_interval_ms


def test_no_log_waits_longer_for_retention_as_the_clock_is_set_back(data: Folder) -> None:
    data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    checked_ms = data.manager.defaults.log_retention_check_interval_ms
    for data.now_ms in (NOW, NOW - 86_400_000):
        at_once(data.manager.enforce_retention())
        assert at_once(data.manager.enforce_retention()) == data.now_ms + checked_ms


def test_a_log_whose_retention_fails_keeps_no_other_from_its_own(
    data: Folder, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = (
        data.manager.create(topic, 0, TOPIC_ID, TopicConfig(retention_ms=1)) for topic in ("bad", "good")
    )
    for log in (bad, good):
        fill(log, [[NOW - 100]], now_ms=NOW - 100)
    disk.fail("rename", of="bad-0/*")
    retain(data.manager)
    assert good.log_start_offset == 1
    assert "retention failed log=bad-0" in caplog.text
    assert "log=good-0" not in caplog.text


def test_it_is_said_how_many_logs_an_unclean_stop_left(
    data: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number in range(2):
        data.manager.create("t", number, TOPIC_ID, TopicConfig())
    data.restart()
    assert "after an unclean stop" not in caplog.text
    data.crash()
    assert "recovered logs=2 after an unclean stop" in caplog.text


def test_a_clean_start_changes_no_file_of_a_partition(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    data.manager.close()

    def changes() -> dict[str, tuple[int, int]]:
        paths = sorted((data.path / "t-0").iterdir())
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}

    before = changes()
    data.open()
    assert changes() == before


def test_a_topic_is_deleted_without_a_flush_of_what_nobody_will_read(data: Folder, disk: FaultyDisk) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])

    disk.fail("sync", of="*.log")
    at_once(data.manager.delete_topic("t"))
    assert not list(data.path.glob("t-0*"))


def test_a_folder_that_is_not_held_is_not_touched_by_a_stop(data: Folder, tmp_path: Path) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])
    data.manager.close()
    before = {path: path.read_bytes() for path in data.path.rglob("*") if path.is_file()}
    data.manager.close()
    assert {path: path.read_bytes() for path in data.path.rglob("*") if path.is_file()} == before
    never = tmp_path / "never"
    LogManager(never, BrokerConfig(), lambda: NOW).close()
    assert not never.exists()


def test_a_checkpoint_that_finds_the_disk_full_says_so(data: Folder, disk: FaultyDisk) -> None:
    disk.fill("*-checkpoint")
    with pytest.raises(OSError, match="No space left"):
        data.manager.checkpoint()
    assert data.manager.disk.is_full


def test_S52_a_start_that_owes_append_times_is_no_start_for_the_next(data: Folder, disk: FaultyDisk) -> None:
    """A power cut took the last of them, and a full disk refuses what bounds them: a kill then says nothing more."""
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]], NOW)
    fill(log, [[NOW]], NOW + 50)
    data.manager.abandon()
    (data.path / "boot-id").write_text("another")
    times = log.active.path(".appendindex")
    times.write_bytes(times.read_bytes()[:16])

    disk.fill("*.appendindex")
    data.open()
    assert not layout.is_same_boot(data.path)
    manager = data.crash()
    disk.heal()
    assert manager.logs["t", 0].active.append_index.time_at(1)[2]
    at_once(manager.look_after())
    assert layout.is_same_boot(data.path)
    assert data.crash().logs["t", 0].active.append_index.time_at(1)[2]


def test_what_a_failed_sync_has_taken_back_no_mending_brings_again(data: Folder) -> None:
    """As the log that it happened to may have been deleted, and all others are well."""
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    log.health.distrust("a sync has failed")
    at_once(data.manager.delete_topic("t"))
    at_once(data.manager.look_after())
    assert not layout.is_same_boot(data.path)


def test_I2_what_a_checkpoint_knows_of_a_log_outlives_its_folder(data: Folder) -> None:
    """Or its offsets were given out again, where somebody has removed it under a log that takes no writes."""
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])
    log.flush()
    log.health.distrust("a sync has failed")
    shutil.rmtree(log.directory)
    data.manager.checkpoint()
    assert load_offsets(data.path / RECOVERY_POINTS) == {("t", 0): 1}


def test_P12_nothing_is_mended_while_the_disk_is_full(data: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    tried: list[bool] = []
    log.health.fail("something could not be saved", lambda: tried.append(data.manager.disk.is_full))
    disk = data.manager.disk
    monkeypatch.setattr(type(disk), "look", lambda _: None)
    disk.is_full = True
    at_once(data.manager.look_after())
    assert not log.takes_writes
    disk.is_full = False
    at_once(data.manager.look_after())
    assert (log.takes_writes, tried) == (True, [False])


def test_what_lies_before_the_logs_start_has_expired(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig(retention_ms=-1))
    fill(log, [[NOW]])
    log.roll(NOW)
    assert not data.manager.has_expired([log])
    log.advance_start(1)
    assert data.manager.has_expired([log])


def test_I5_an_empty_log_gets_no_index_back_that_a_power_cut_has_left(data: Folder) -> None:
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    data.manager.close()
    log.active.path(".timeindex").write_bytes(bytes(12))
    log.active.path(".summary").unlink(missing_ok=True)
    data.open().close()
    assert log.active.path(".timeindex").read_bytes() == b""


@pytest.mark.parametrize(("policy", "is_flushed"), [("acks", True), ("interval", False), ("none", False)])
def test_P7_what_nobody_waits_for_is_put_on_disk_where_it_is_much(
    data: Folder, save_every: Callable[[int], None], policy: str, is_flushed: bool
) -> None:
    """A start after a kill scans what was not flushed: there must be a bound to that."""
    save_every(1000)
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig(flush_policy=policy))
    fill(log, [[NOW]], value=bytes(300))
    at_once(data.manager.look_after())
    assert log.recovery_point == 0
    fill(log, [[NOW]] * 2, value=bytes(300))
    at_once(data.manager.look_after())
    assert log.recovery_point == (3 if is_flushed else 0)
    summary = Summary.load(log.active.path(".summary"))
    assert (summary is not None and summary.flushed == 1) == is_flushed
    # A sealed segment is, whatever its size.
    fill(log, [[NOW]])
    at_once(data.manager.look_after())
    log.roll(NOW)
    assert log.recovery_point == (3 if is_flushed else 0)
    at_once(data.manager.look_after())
    assert log.recovery_point == (4 if is_flushed else 0)


def test_P12_what_one_log_cannot_do_the_others_do(
    data: Folder, disk: FaultyDisk, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    stuck, bad, *others = [data.manager.create("t", number, TOPIC_ID, TopicConfig()) for number in range(4)]
    for log in (bad, *others):
        fill(log, [[NOW]])

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stuck.health.fail("it is full", refuse)
    bad.snapshots.keep(1, bad.producers.copy())
    others[0].health.fail("it was full", lambda: None)
    others[1].snapshots.keep(1, others[1].producers.copy())
    disk.fail("sync", of="t-1/*.log")
    disk.fill("t-1/*.snapshot")
    at_once(data.manager.look_after())
    assert [log.takes_writes for log in (stuck, bad, *others)] == [False, False, True, True]
    assert [log.recovery_point for log in (bad, *others)] == [0, 1, 1]
    assert [log.snapshots.offsets for log in (bad, others[1])] == [[], [1]]


def test_F8_a_log_that_takes_no_writes_is_not_flushed_again(
    data: Folder, disk: FaultyDisk, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    log = data.manager.create("t", 0, TOPIC_ID, TopicConfig())
    fill(log, [[NOW]])
    syncs = disk.fail("sync", of="*.log")
    for _ in range(3):
        at_once(data.manager.look_after())
    assert syncs.hits == 1
    assert not log.takes_writes


def test_an_append_index_of_another_version_without_a_summary_becomes_bounds_and_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a kill leaves that of a segment that was being written."""
    folder = Path(shutil.copytree(EARLIER, tmp_path / "data"))
    (folder / ".kafka_cleanshutdown").unlink()
    for path in (folder / "t-0").glob("*.*"):
        if not path.name.startswith(f"{14:020d}") and path.name[:20].isdigit():
            path.unlink()
    (folder / "t-0" / f"{14:020d}.summary").unlink()
    (problem,) = Fsck(folder, deep=True, repair=False).problems()
    assert (problem.is_note, "of another version" in problem.what) == (True, True)
    for number in range(2):
        caplog.clear()
        manager = LogManager(folder, BrokerConfig(), lambda: NOW + 10_000)
        manager.open()
        assert ("segments=1: their summaries and append indexes" in caplog.text) == (number == 0)
        index = manager.logs["t", 0].segments[0].append_index
        assert [index.entry(n)[1:] for n in range(len(index))] == [(0, True)]
        manager.abandon()


@pytest.fixture
def cut_off(tmp_path: Path) -> Path:
    """Return a folder of an earlier version after a power cut: four batches, the second damaged, and no flush known."""
    folder = Path(shutil.copytree(EARLIER, tmp_path / "data"))
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / layout.BOOT).write_text("another run of the system\n")
    (folder / RECOVERY_POINTS).write_text("0\n1\nt 0 0\n")
    for path in (folder / "t-0").glob("[0-9]*"):
        if not path.name.startswith(f"{0:020d}"):
            path.unlink()
    log = folder / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:100] + b"xxx" + log.read_bytes()[103:])
    return folder


def found_in_logs(folder: Path) -> list[Problem]:
    return [each for each in Fsck(folder, deep=True, repair=False).problems() if each.path.suffix == ".log"]


@pytest.mark.parametrize("appended", [None, bytes(64)], ids=["another version", "zeros"])
def test_after_a_power_cut_an_append_index_of_no_use_keeps_nothing_from_being_cut(
    cut_off: Path, appended: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    name = cut_off / "t-0" / f"{0:020d}"
    name.with_suffix(".summary").unlink()
    if appended is not None:
        name.with_suffix(".appendindex").write_bytes(appended)
    (noted,) = found_in_logs(cut_off)
    assert (noted.is_note, noted.what.endswith("; the next start cuts it")) == (True, True)
    manager = LogManager(cut_off, BrokerConfig(), lambda: NOW + 10_000)
    manager.open()
    assert ("are of another version" in caplog.text) == (appended is None)
    log = manager.logs["t", 0]
    assert [row.offset for row in scan(log)] == [0]
    assert log.append(batch([NOW]), NOW + 10_000).base_offset == 1
    manager.close()
    assert not list(Fsck(cut_off, deep=True, repair=False).problems())


def test_after_a_power_cut_a_summary_of_another_version_keeps_damage_from_being_cut(cut_off: Path) -> None:
    """It may say that the batches were flushed."""
    (kept,) = found_in_logs(cut_off)
    assert (kept.is_note, "the next start" in kept.what) == (False, False)
    manager = LogManager(cut_off, BrokerConfig(), lambda: NOW + 10_000)
    manager.open()
    log = manager.logs["t", 0]
    assert [row.offset for row in scan(log)] == [0, 2, 3]
    assert is_damaged(log, 1)
    manager.close()
    (damage,) = found_in_logs(cut_off)
    assert not damage.is_note


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_folder_of_a_version_with_other_summaries_is_served_and_loses_nothing(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches 0 to 11 and 14; 12 and 13 had been lost there, and a segment stands for them."""
    folder = Path(shutil.copytree(EARLIER, tmp_path / "data"))
    if not clean:
        (folder / ".kafka_cleanshutdown").unlink()
    (problem,) = Fsck(folder, deep=True, repair=False).problems()
    assert (problem.is_note, "of another version" in problem.what) == (True, True)
    for number in range(2):
        caplog.clear()
        manager = LogManager(folder, BrokerConfig(), lambda: NOW + 10_000)
        manager.open()
        log = manager.logs["t", 0]
        assert ("version; append times are bounds" in caplog.text) == (number == 0)
        assert [row.offset for row in scan(log)] == [*range(12), 14, *[15] * number]
        assert [offset for offset in range(15) if is_damaged(log, offset)] == [12, 13]
        index = log.segments[0].append_index
        assert [index.entry(n)[1:] for n in range(len(index))] == [(0, True)]
        if not number:
            assert log.append(batch([NOW]), NOW + 10_000).base_offset == 15
        assert manager.close() if clean else manager.abandon() is None
        assert not [
            each for each in Fsck(folder, deep=True, repair=False).problems() if each.path.suffix != ".log"
        ]


def test_a_folder_of_another_user_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / ".lock"))

    monkeypatch.setattr(files, "make_folder", refused)
    with pytest.raises(
        ForeignDataDir, match="Permission denied; run the broker as the owner of the folder, or"
    ):
        layout.lock(tmp_path, 1)
