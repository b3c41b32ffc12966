"""I2: offsets that older or missing files have taken from a log are named and refused."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.support.compaction import COMPACTED, clean_all, keyed
from tests.support.faulty_disk import Died, FaultyDisk
from tests.support.logs import NOW, batch, crash, fill, is_damaged, open_log, scan
from tidelog.config.options import BrokerConfig
from tidelog.storage import continuity, producer_snapshots, producer_state
from tidelog.storage.fsck import Fsck
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.summary import OFFSET_MAX

OPTIONS = {"index_interval_bytes": 150, "segment_bytes": 400}
END = 24
RESTORED = (".log", ".index", ".timeindex", ".summary")


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)


def lost_as_told(text: str) -> list[int]:
    found = re.findall(r"offsets lost from=(\d+) to=(\d+) at=", text)
    return [offset for first, last in found for offset in range(int(first), int(last) + 1)]


def refused(log: Log) -> list[int]:
    return [offset for offset in range(log.log_start_offset, log.log_end_offset) if is_damaged(log, offset)]


def findings(folder: Path) -> list[str]:
    """Return what the check says of logs, notes left out."""
    found = Fsck(folder, deep=False, repair=False).problems()
    return [each.what for each in found if each.path.suffix == ".log" and not each.is_note]


def with_backups(folder: Path, to: Path, **options: object) -> tuple[Log, list[Path]]:
    """Make a log of some segments, closed; with a copy of the folder from after each batch."""
    log = open_log(folder, **OPTIONS, **options)
    copies = []
    for number in range(END):
        log.append(batch([NOW + number]), NOW + number)
        log.flush()
        log.active.save(flushed=True)
        copies.append(crash(log, to / str(number + 1)))
    log.close()
    return log, copies


def restore(backup: Path, folder: Path, base: int) -> None:
    for suffix in RESTORED:
        shutil.copy(backup / f"{base:020d}{suffix}", folder / f"{base:020d}{suffix}")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("number", [0, 2])
def test_I2_an_older_backup_of_a_segment_with_others_after_it_is_named_and_refused(
    tmp_path: Path, number: int, stamped: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"message_timestamp_type": stamped}
    log, copies = with_backups(tmp_path / "a", tmp_path, **options)
    rows = scan(log)
    base, following = (log.segments[n].base_offset for n in (number, number + 1))
    restore(copies[base + 1], tmp_path / "a", base)
    gone = list(range(base + 2, following))
    assert any(
        f"offsets {gone[0]} to {gone[-1]} before it are gone" in what for what in findings(tmp_path / "a")
    )
    for _ in range(2):
        caplog.clear()
        log = open_log(tmp_path / "a", clean=clean, recovery_point=END, **OPTIONS, **options)
        assert (lost_as_told(caplog.text), refused(log)) == (gone, gone)
        assert scan(log) == [row for row in rows if row.offset not in gone]
        assert log.log_end_offset == END
        if clean:
            log.close()


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("restored", [(".log",), (".log", ".appendindex"), RESTORED])
def test_I2_an_older_log_beside_a_later_summary_of_a_compacted_segment_is_named_and_refused(
    tmp_path: Path, stamped: str, restored: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The summary looks like that of another log. Only it tells that the segment was begun here."""
    options = {**COMPACTED, "message_timestamp_type": stamped}
    log = open_log(tmp_path / "topic-0", **options)
    for offset in range(0, 64, 2):
        log.append(keyed((b"k%d" % (offset % 6), b"v" * 50), (b"%d" % offset, b"v" * 20)), NOW + offset * 7)
        if offset == 52:
            older = crash(log, tmp_path / "older-0")
        if offset % 16 == 14:
            log.roll(NOW + offset * 7)
    log.flush()
    assert clean_all(log, NOW + 10**6) > 0
    log.close()
    base = max(int(path.stem) for path in older.glob("*.log"))
    following = min(each.base_offset for each in log.segments if each.base_offset > base)
    gone = list(range(54, following))
    for suffix in restored:
        if (older / f"{base:020d}{suffix}").exists():
            shutil.copy(older / f"{base:020d}{suffix}", log.directory / f"{base:020d}{suffix}")
    assert any(
        f"offsets {gone[0]} to {gone[-1]} before it are gone" in what for what in findings(log.directory)
    )
    again = open_log(log.directory, clean=True, recovery_point=64, **options)
    assert lost_as_told(caplog.text) == gone
    assert set(gone) <= set(refused(again))


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_I2_a_segment_that_is_gone_with_all_its_files_is_named_and_refused(
    tmp_path: Path, number: int, compacted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first one left that shows only where a checkpoint of a clean stop says where the log begins."""
    data = tmp_path / "data"
    config = BrokerConfig()
    topic = config.topic_defaults().override(
        {"segment.bytes": "400", "retention.ms": "-1", "cleanup.policy": "compact" if compacted else "delete"}
    )
    manager = LogManager(data, config, lambda: NOW)
    manager.open()
    log = manager.create("t", 0, bytes(16), topic)
    for offset in range(4):
        for key in (b"a", b"b", b"%d" % offset):
            log.append(keyed((key, b"v" * 300)), NOW)
        log.roll(NOW)
    if compacted:
        assert clean_all(log) > 0
    bounds = [segment.base_offset for segment in log.segments]
    number = min(number, len(bounds) - 2)
    assert manager.close()
    for path in (data / "t-0").glob(f"{bounds[number]:020d}.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    gone = list(range(bounds[number], bounds[number + 1]))
    assert any(f"offsets {gone[0]} to {gone[-1]} before it are gone" in what for what in findings(data))
    for _ in range(2):
        caplog.clear()
        manager = LogManager(data, config, lambda: NOW)
        manager.open(lambda _: topic)
        log = manager.logs["t", 0]
        assert lost_as_told(caplog.text) == gone
        assert set(gone) <= set(refused(log))
        assert log.log_start_offset == 0
        manager.close()


Evidence = Callable[[Path, Path], None]


def keep_snapshot(newer: Path, folder: Path) -> None:
    producer_snapshots.snapshot_path(folder, END).write_bytes(producer_state.encode({}))


def keep_epochs(newer: Path, folder: Path) -> None:
    epochs = LeaderEpochs(folder, [(0, 0), (3, END)])
    epochs.save()


def keep_append_times(newer: Path, folder: Path) -> None:
    path = max(newer.glob("*.appendindex"))
    shutil.copy(path, folder / path.name)


@pytest.mark.parametrize(
    ("keep", "end"), [(keep_snapshot, END), (keep_epochs, END), (keep_append_times, END - 1)]
)
def test_I2_an_older_backup_of_the_last_segment_is_found_by_what_lies_beside_it(
    tmp_path: Path, keep: Evidence, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no checkpoint tells. The last append time is that of a batch which may never have been written."""
    log, copies = with_backups(tmp_path / "a", tmp_path)
    older = log.active.base_offset + 2
    for name, known, is_proof in (
        ("killed", {"recovery_point": older - 1, "was_cut_off": False}, True),
        ("power cut", {"recovery_point": older - 1, "was_cut_off": True}, False),  # which may have taken them
        ("stopped", {"clean": True, "recovery_point": 0}, True),  # and the checkpoint is gone
    ):
        folder = Path(shutil.copytree(copies[older - 1], tmp_path / name))
        keep(tmp_path / "a", folder)
        caplog.clear()
        again = open_log(folder, **known, **OPTIONS)
        gone = list(range(older, end)) if is_proof else []
        assert (lost_as_told(caplog.text), refused(again)) == (gone, gone), name
        assert again.append(batch([NOW]), NOW).base_offset == (end if is_proof else older)


def spoil_snapshot(folder: Path) -> None:
    producer_snapshots.snapshot_path(folder, END).write_bytes(b"broken")


def spoil_epochs(folder: Path) -> None:
    LeaderEpochs(folder, [(0, 0), (3, OFFSET_MAX)]).save()


@pytest.mark.parametrize("spoil", [spoil_snapshot, spoil_epochs])
def test_what_is_broken_beside_a_log_is_no_proof_that_it_was_longer(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, **OPTIONS)
    fill(log, [[NOW]] * 3)
    log.flush()
    log.active.save(flushed=True)
    spoil(tmp_path)
    again = open_log(tmp_path, recovery_point=2, was_cut_off=False, **OPTIONS)
    assert (lost_as_told(caplog.text), again.log_end_offset) == ([], 3)


def test_what_lies_beside_a_log_counts_only_if_its_last_summary_describes_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, **OPTIONS)
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    log.close()
    keep_snapshot(tmp_path, tmp_path)
    assert continuity.known_end(tmp_path, [0, 1], [END]) == END
    log.active.summary.replace_by_times(log.active.path(".summary"), 1)
    assert continuity.known_end(tmp_path, [0, 1], [END]) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_I2_a_backup_of_a_partition_older_than_the_checkpoint_of_its_data_folder(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    manager.open()
    log = manager.create("t", 0, bytes(16), BrokerConfig().topic_defaults())
    fill(log, [[NOW]] * 3)
    log.flush()
    older = crash(log, tmp_path / "older")
    fill(log, [[NOW]] * 3)
    log.flush()
    manager.checkpoint()
    manager.close() if clean else manager.abandon()
    shutil.rmtree(tmp_path / "data" / "t-0")
    shutil.copytree(older, tmp_path / "data" / "t-0")
    assert any(
        "ends before offset 3, but all before 6 had been flushed" in w for w in findings(tmp_path / "data")
    )
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    manager.open()
    assert (lost_as_told(caplog.text), refused(manager.logs["t", 0])) == ([3, 4, 5], [3, 4, 5])
    manager.close()


def test_the_check_finds_the_same_end_as_the_start(tmp_path: Path) -> None:
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    manager.open()
    log = manager.create("t", 0, bytes(16), BrokerConfig().topic_defaults())
    fill(log, [[NOW]] * 3)
    log.flush()
    log.active.save(flushed=True)
    manager.abandon()
    assert findings(tmp_path / "data") == []
    LeaderEpochs(tmp_path / "data" / "t-0", [(0, 0), (1, 5)]).save()
    (what,) = findings(tmp_path / "data")
    assert what.startswith("ends before offset 3, but ")
    assert what.endswith(" offsets up to 4")


@pytest.mark.parametrize("roll_after", [(), (4, 7, 11)])
def test_I2_a_cut_that_a_kill_came_upon_loses_nothing_that_was_there(
    tmp_path: Path, disk: FaultyDisk, roll_after: tuple[int, ...]
) -> None:
    """Snapshots, epochs and append times that tell of what was being cut are no proof that it was lost."""
    for step in count():
        folder = tmp_path / str(step)
        log = open_log(folder / "a", **OPTIONS)
        fill(log, [[NOW]] * 3)
        log.flush()
        log = open_log(folder / "a", recovery_point=3, **OPTIONS)
        for number in range(3, 12):
            log.append(batch([NOW], producer_id=1, producer_epoch=0, base_sequence=number), NOW + number)
            log.snapshots.write()
            if number in roll_after:
                log.roll(NOW + number)
        log.flush()
        log.active.save(flushed=True)
        log.durability.recovery_point = 0
        death = disk.die("write", "truncate", "sync", "rename", "remove", after=step)
        with suppress(Died):
            log.truncate(2)
        disk.heal()
        again = open_log(crash(log, folder / "b"), was_cut_off=False, recovery_point=0, **OPTIONS)
        assert again.damaged == ()
        assert [row.offset for row in scan(again)] == list(range(again.log_end_offset))
        if not death.hits:
            break
    assert step > 25


def test_I2_no_power_cut_amid_a_cut_leaves_a_segment_after_one_that_is_gone(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """Not every file system keeps the order of removals, but for a sync of the folder."""
    log = open_log(tmp_path / "a", **OPTIONS)
    for number in range(4):
        fill(log, [[NOW]] * 3)
        log.roll(NOW + number)
    log.flush()
    disk.calls.clear()
    log.truncate(2)
    steps: list[set[str]] = [set()]  # what is removed between two syncs of the folder
    for kind, path in disk.calls:
        if kind == "sync" and path == tmp_path / "a":
            steps.append(set())
        elif kind == "remove" and path.suffix in (".log", ".summary"):
            steps[-1].add(path.name)
    removed = [step for step in steps if step]
    assert all(name.endswith(".summary") for name in removed[0])
    names = [f"{offset:020d}.log" for offset in (12, 9, 6, 3)]
    assert [{name for name in step if name.endswith(".log")} for step in removed[1:]] == [{n} for n in names]


def test_I2_append_times_of_batches_that_a_power_cut_took_are_no_proof_after_a_kill(tmp_path: Path) -> None:
    """The summary describes all of the log that is left, so the first start scans nothing."""
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW], [NOW + 1]])
    log.flush()
    log.active.save(flushed=True)
    size = log.active.size
    for number in (2, 3):
        log.append(batch([NOW]), NOW + number)
    cut = crash(log, tmp_path / "b")
    os.truncate(cut / f"{0:020d}.log", size)
    log = open_log(cut, was_cut_off=True, recovery_point=2, **OPTIONS)
    assert log.log_end_offset == 2
    again = open_log(crash(log, tmp_path / "c"), was_cut_off=False, recovery_point=0, **OPTIONS)
    assert (again.log_end_offset, refused(again)) == (2, [])
