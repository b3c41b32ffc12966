"""`tidelog backup` and `tidelog restore`: of one moment under load, verified, and whole or nothing after a kill."""

import json
import os
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker import Broker, BrokerEndedError, wait_until
from tests.support.command import Done, command, ok, rows, tidelog
from tests.support.small_disk import fill
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.storage import backup as storage_backup
from tidelog.storage import files, layout
from tidelog.storage.errors import ForeignDataDir
from tidelog.storage.files import FolderLock

pytestmark = pytest.mark.e2e

LOG = f"{0:020d}.log"
Stored = dict[int, tuple[int, bytes | None, bytes | None, Any]]


def read_all(broker: Broker, topic: str, partition: int) -> Stored:
    """Return every record of a partition by offset: its time, key, value and headers."""
    stored: Stored = {}
    consumer = KafkaConsumer(bootstrap_servers=broker.address)
    try:
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end = consumer.end_offsets([where])[where]
        while consumer.position(where) < end:
            for records in consumer.poll(timeout_ms=1000).values():
                for each in records:
                    stored[each.offset] = (each.timestamp, each.key, each.value, tuple(each.headers))
        return stored
    finally:
        consumer.close()


def restore(source: Path, target: Path) -> Done:
    return tidelog(Broker(target), "restore", "--from", source, "--data-dir", target)


def assert_sound(data: Path) -> None:
    done = tidelog(Broker(data), "fsck", data, "--deep")
    assert (done.returncode, "no damage" in done.stdout) == (OK, True), done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Path]]:
    """A broker with two topics, and a backup of it."""
    folder = tmp_path_factory.mktemp("made")
    with Broker(folder / "data").start() as broker:
        ok(tidelog(broker, "topics", "create", "a", "--partitions", "2", "--config", "retention.ms=-1"))
        ok(tidelog(broker, "topics", "create", "empty", "--partitions", "3"))
        tidelog(broker, "produce", "a", "--partition", "0", text="one\ntwo\nthree\n")
        ok(tidelog(broker, "backup", "--to", folder / "backup"))
        yield broker, folder / "backup"


@pytest.fixture
def backup(made: tuple[Broker, Path], tmp_path: Path) -> Path:
    """A copy of that backup, which a test may damage."""
    return shutil.copytree(made[1], tmp_path / "backup")


@pytest.mark.slow
def test_a_backup_under_load_is_of_one_moment(tmp_path: Path) -> None:
    """Two topics, one made from the other; a group that commits; compaction and retention at work."""
    options = {
        "log.retention.check.interval.ms": "50",
        "log.cleaner.backoff.ms": "20",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.delete.delay.ms": "0",
    }
    sent: dict[tuple[str, int], Stored] = defaultdict(dict)
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as failure:
                failures.append(failure)

        return threading.Thread(target=run)

    with Broker(tmp_path / "data", options).start() as broker:
        rolls = ["--config", "segment.bytes=20000"]
        for topic, more in (
            ("numbers", ["retention.bytes=60000"]),
            ("copies", ["retention.ms=-1"]),
            ("keyed", ["cleanup.policy=compact"]),
        ):
            ok(tidelog(broker, "topics", "create", topic, "--partitions", "2", *rolls, "--config", *more))
        producer = KafkaProducer(bootstrap_servers=broker.address, acks="all", linger_ms=0)
        consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id="g", enable_auto_commit=False)
        consumer.assign([TopicPartition("copies", 0), TopicPartition("copies", 1)])

        def put(topic: str, partition: int, key: bytes | None, value: bytes) -> int:
            headers = [("n", value[:8])]
            found = producer.send(topic, value, key, headers, partition).get(20)
            sent[topic, partition][found.offset] = (found.timestamp, key, value, tuple(headers))
            return int(found.offset)

        def write(partition: int) -> None:
            offset = put("numbers", partition, None, os.urandom(300))
            put("copies", partition, None, b"%d" % offset)
            put("keyed", partition, b"%d" % (offset % 5), os.urandom(300))

        def follow() -> None:
            if consumer.poll(timeout_ms=50):
                consumer.commit()

        threads = [guarded(lambda: write(0)), guarded(lambda: write(1)), guarded(follow)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(sent["numbers", 0]) > 400 and len(sent["numbers", 1]) > 400, 60)
            (about,) = rows(tidelog(broker, "backup", "--to", tmp_path / "backup", "--json"))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            producer.close()
            consumer.close()
        assert failures == []
        wanted = ok(tidelog(broker, "configs", "describe", "--topic", "keyed", "--json"))
    assert about["problems"] == {}

    done = restore(tmp_path / "backup", tmp_path / "restored")
    assert (done.returncode, done.stderr) == (OK, "")
    assert_sound(tmp_path / "restored")
    with Broker(
        tmp_path / "restored", options | {"log.retention.check.interval.ms": "600000"}
    ).start() as broker:
        assert ok(tidelog(broker, "configs", "describe", "--topic", "keyed", "--json")) == wanted
        ends: dict[tuple[str, int], int] = {}
        for (topic, partition), known in sent.items():
            stored = read_all(broker, topic, partition)
            assert stored
            ends[topic, partition] = max(stored) + 1
            # A record may be stored before its producer has the answer, and a stopped writer has all of its answers.
            assert stored == {offset: known[offset] for offset in stored}
            if topic != "keyed":
                assert list(stored) == list(range(min(stored), max(stored) + 1))
            if topic == "copies":
                assert min(stored) == 0
                assert all(
                    int(value or b"") < ends["numbers", partition] for _, _, value, _ in stored.values()
                )
        (group,) = rows(tidelog(broker, "groups", "describe", "g", "--json"))
        assert len(group["partitions"]) == 2
        for each in group["partitions"]:
            assert 0 < each["committed"] <= ends["copies", each["partition"]]


def test_append_times_and_starts_are_restored(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker:
        ok(tidelog(broker, "topics", "create", "a"))
        for lines in ("one\ntwo\n", "three\nfour\n"):
            tidelog(broker, "produce", "a", text=lines)
        ok(tidelog(broker, "delete-records", "a", "-p", "0", "--offset", "2", "-y"))
        ok(tidelog(broker, "backup", "--to", tmp_path / "backup"))
        starts = ok(tidelog(broker, "offsets", "a", "--json"))
    assert restore(tmp_path / "backup", tmp_path / "restored").returncode == OK
    times = [
        (tmp_path / each / "a-0" / f"{0:020d}.appendindex").read_bytes() for each in ("data", "restored")
    ]
    assert times[0] == times[1]
    with Broker(tmp_path / "restored").start() as broker:
        assert ok(tidelog(broker, "offsets", "a", "--json")) == starts


def test_a_backup_needs_an_empty_folder_outside_of_the_data(
    made: tuple[Broker, Path], tmp_path: Path
) -> None:
    broker, backup = made
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for folder, why in (
        (tmp_path / "link", f"is a link to {tmp_path / 'gone'}, which does not exist"),
        (backup, "is not empty"),
        (broker.data_dir / "x", "is in the data folder"),
        (Path("/proc/x"), "cannot be used"),
    ):
        done = tidelog(broker, "backup", "--to", folder)
        assert done.returncode == USAGE
        assert why in done.stderr
    assert not (broker.data_dir / ".backup").exists()
    assert not (broker.data_dir / "x").exists()


def test_a_full_disk_is_foreseen_and_survived(
    made: tuple[Broker, Path], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = fill(small_disk)
    done = tidelog(made[0], "backup", "--to", small_disk / "b")
    assert done.returncode != OK
    filler.unlink()
    filler.write_bytes(bytes(4_000_000))
    done = tidelog(made[0], "backup", "--to", small_disk / "b")
    assert (done.returncode, "the backup needs" in done.stderr) == (FAILED, True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 0, 1 << 30))
    done = tidelog(made[0], "backup", "--to", small_disk / "b")
    assert (done.returncode, "No space left on device" in done.stderr) == (FAILED, True)
    assert os.listdir(small_disk) == ["filler"]
    assert not (made[0].data_dir / ".backup").exists()


def test_a_mount_point_is_restored_to(backup: Path, small_disk: Path) -> None:
    assert restore(backup, small_disk).returncode == OK
    assert_sound(small_disk)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda b: flip(b / "files/a-0" / LOG), "not those of the backup"),
        (lambda b: flip(b / "files/catalog.sqlite"), "catalog.sqlite: damaged: its bytes"),
        (lambda b: (b / "files/meta.properties").write_text("x"), "meta.properties: damaged: has 1 byte"),
        (lambda b: (b / "files/a-0" / LOG).unlink(), f"files/a-0/{LOG}: missing"),
        (lambda b: (b / "files/a-0/other").write_text(""), "files/a-0/other: is not in manifest.json"),
        (lambda b: (b / "manifest.json").unlink(), "manifest.json, so it is no backup"),
        (lambda b: (b / "manifest.json").write_text(""), "was not finished; make it again"),
        (lambda b: (b / "manifest.json").write_text("{"), "manifest.json: damaged"),
        (lambda b: (b / "manifest.json").write_text("[]"), "manifest.json: damaged"),
        (lambda b: change(b / "manifest.json", version="x"), "manifest.json: damaged"),
        (lambda b: change(b / "manifest.json", files=[1]), "manifest.json: damaged"),
        (lambda b: change(b / "manifest.json", version=2), "a newer version of Tidelog wrote this backup"),
        (shutil.rmtree, "there is no such folder"),
    ],
)  # fmt: skip
def test_a_damaged_backup_restores_nothing(
    backup: Path, tmp_path: Path, harm: Callable[[Path], object], why: str
) -> None:
    harm(backup)
    done = restore(backup, tmp_path / "new")
    assert (done.returncode, why in done.stderr) == (FAILED, True), done.stderr
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert restore(backup, tmp_path / "there").returncode == FAILED
    assert not layout.contents(tmp_path / "there")


def test_a_restore_needs_an_unused_folder(made: tuple[Broker, Path], backup: Path, tmp_path: Path) -> None:
    for folder in (made[0].data_dir, backup.parent):
        before = sorted(os.listdir(folder))
        done = restore(backup, folder)
        assert (done.returncode, "is not empty" in done.stderr) == (FAILED, True)
        assert sorted(os.listdir(folder)) == before
    assert restore(backup, backup / "x").returncode == USAGE
    (tmp_path / "locked").mkdir()
    lock = FolderLock(tmp_path / "locked" / layout.LOCK)
    assert "another broker uses" in restore(backup, tmp_path / "locked").stderr
    lock.release()


def test_a_kill_of_a_restore_leaves_nothing_that_a_broker_starts_on(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder before each rename is what a kill at that moment leaves."""
    rename, target = files.rename, tmp_path / "new"
    left: list[Path] = []

    def remembered(old: Path, new: Path) -> None:
        if new.parent == target:
            left.append(Path(shutil.copytree(target, tmp_path / f"killed-{len(left)}")))
        rename(old, new)

    monkeypatch.setattr(files, "rename", remembered)
    assert restore(backup, target).returncode == OK
    monkeypatch.undo()
    assert len(left) > 5
    for killed in left:
        with pytest.raises(ForeignDataDir, match="no data folder"):
            layout.lock(killed, 1)
        assert "holds a restore that did not finish" in restore(backup, killed).stderr
    assert not (target / ".restore").exists()


def test_a_kill_of_a_backup_leaves_nothing_that_a_broker_starts_on(
    made: tuple[Broker, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folder before each file is what a kill at that moment leaves."""
    copy, save, target = storage_backup.copy, storage_backup.save, tmp_path / "b"
    left: list[Path] = []

    def remember() -> None:
        left.append(Path(shutil.copytree(target, tmp_path / f"killed-{len(left)}" / "b")))

    def remembered_copy(*arguments: Any) -> storage_backup.Copied:
        remember()
        return copy(*arguments)

    def remembered_save(*arguments: Any) -> None:
        remember()
        save(*arguments)

    monkeypatch.setattr(storage_backup, "copy", remembered_copy)
    monkeypatch.setattr(storage_backup, "save", remembered_save)
    ok(tidelog(made[0], "backup", "--to", target))
    monkeypatch.undo()
    assert len(left) > 5
    (tmp_path / "link").symlink_to(left[-1] / "files")
    for folder in (tmp_path / "link", *left, *(each / "files" for each in left)):
        with pytest.raises(
            ForeignDataDir, match=r"which is not finished; make it again: tidelog backup --to /"
        ):
            layout.lock(folder, 1)
    for killed in left[:-1]:  # a copy elsewhere has no ids until all files are there
        with pytest.raises(ForeignDataDir) if os.listdir(killed / "files") else nullcontext():
            layout.check(killed.joinpath("files").rename(killed.parent / "moved"), 1)
    for killed in (left[0], left[-1]):
        assert "this backup was not finished" in restore(killed, tmp_path / "new").stderr
        ok(tidelog(made[0], "backup", "--to", killed))
        assert restore(killed, killed.parent / "new").returncode == OK
    with pytest.raises(ForeignDataDir, match=f"belongs to the backup {target}, which must not change"):
        layout.lock(target, 1)


def test_two_backups_do_not_share_a_folder(made: tuple[Broker, Path], tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "manifest.json")
    done = tidelog(made[0], "backup", "--to", tmp_path)
    lock.release()
    assert (done.returncode, "another command makes a backup there" in done.stderr) == (USAGE, True)
    ok(tidelog(made[0], "backup", "--to", tmp_path))
    assert "is not empty" in tidelog(made[0], "backup", "--to", tmp_path).stderr


def test_no_broker_starts_on_the_links_that_a_backup_reads(made: tuple[Broker, Path]) -> None:
    cut = made[0].data_dir / ".backup" / "process"
    cut.mkdir(parents=True)
    (cut / "meta.properties").write_bytes((made[0].data_dir / "meta.properties").read_bytes())
    with pytest.raises(ForeignDataDir, match="for a backup; use that folder"):
        layout.lock(cut, 1)
    shutil.rmtree(cut.parent)


@pytest.mark.slow
def test_a_killed_command_leaves_no_backup_and_no_links(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker:
        tidelog(broker, "produce", "a", text="x" * 1000 + "\n")
        line, variables = command(broker, "backup", "--to", str(tmp_path / "b"), "--rate", "1")
        running = subprocess.Popen(line, env=variables)
        wait_until(
            lambda: (tmp_path / "b" / "files").exists() and any((tmp_path / "b" / "files").iterdir()), 30
        )
        (made,) = (tmp_path / "data" / ".backup").iterdir()
        assert files.is_locked(made / "cut.json")
        running.kill()
        running.wait()
        with (
            Broker(tmp_path / "b" / "files") as served,
            pytest.raises(BrokerEndedError, match="is not finished"),
        ):
            served.start()
        assert "was not finished" in restore(tmp_path / "b", tmp_path / "new").stderr
        ok(tidelog(broker, "backup", "--to", tmp_path / "b"))
        assert restore(tmp_path / "b", tmp_path / "new").returncode == OK
        broker.kill()
        broker.start()
        wait_until(lambda: not (tmp_path / "data" / ".backup").exists(), 30)


@pytest.mark.slow
def test_a_backup_ends_well_without_its_broker(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker:
        tidelog(broker, "produce", "a", text="hello\n")
        line, variables = command(broker, "backup", "--to", str(tmp_path / "b"), "--rate", "100000")
        running = subprocess.Popen(line, env=variables)
        wait_until(
            lambda: (tmp_path / "b" / "files").exists() and any((tmp_path / "b" / "files").iterdir()), 30
        )
        broker.kill()
        assert running.wait(60) == OK
    assert restore(tmp_path / "b", tmp_path / "new").returncode == OK
    with Broker(tmp_path / "new").start() as broker:
        assert "hello" in ok(tidelog(broker, "tail", "a", "-n", "1"))


def test_partitions_that_do_not_open_are_backed_up_as_they_are(tmp_path: Path) -> None:
    with Broker(tmp_path / "data").start() as broker:
        ok(tidelog(broker, "topics", "create", "a", "--partitions", "2"))
        broker.stop()
        (tmp_path / "data" / "a-1" / f"{2**63 + 1:020d}.log").write_bytes(b"")
        broker.start()
        done = tidelog(broker, "backup", "--to", tmp_path / "b")
        assert (done.returncode, "a-1: could not be opened" in done.stderr) == (OK, True)
    done = restore(tmp_path / "b", tmp_path / "new")
    assert (done.returncode, "a-1: damaged, restored as it is" in done.stderr) == (OK, True)
    with Broker(tmp_path / "new").start() as broker:
        tidelog(broker, "produce", "a", "--partition", "0", text="x\n")
