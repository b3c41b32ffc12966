"""Links of segments for readers: one a segment and process, kept by leases, and removed when nothing needs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.logs import NOW, batch, open_log
from tidelog.storage import files, pins
from tidelog.storage.fsck import Fsck
from tidelog.storage.log import Log

ME = pins.process_of(os.getpid())
LATER = 10 * 365 * 24 * 3600 * 1000  # ms: beyond any lease that the file system has just dated


def segments(folder: Path) -> Log:
    """Make a log of some sealed segments."""
    log = open_log(folder, segment_bytes=200, file_delete_delay_ms=0)
    for number in range(8):
        log.append(batch([NOW] * 2, b"x" * 50), NOW + number)
    assert len(log.segments) > 3
    return log


def lease_of(folder: Path, name: str) -> Path:
    return folder / pins.FOLDER / ME / name


def lease(log: Log) -> str:
    return pins.begin([log.directory], ME, 1)


def bases(folder: Path) -> list[int]:
    """Return the segments that have links, by any process."""
    return sorted(int(path.name[:20]) for path in folder.glob(f"{pins.FOLDER}/*/*-*/"))


def killed() -> str:
    """Return the name of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = pins.process_of(process.pid)
    assert not pins.has_ended(name)
    process.kill()
    process.communicate()
    return name


def test_a_process_that_its_parent_has_not_awaited_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = pins.process_of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert pins.has_ended(name)
    process.communicate()


def dated(path: Path, at_ms: int) -> None:
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def test_a_segment_is_linked_once_with_what_lies_beside_it(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    base = log.segments[1].base_offset
    first = pins.pin(log.directory, ME, base)
    assert first is not None
    assert {path.suffix for path in first.iterdir()} >= {".log", ".index", ".summary"}
    replaced = first / f"{base:020d}.summary"
    (log.directory / "new").write_bytes(b"mended")
    (log.directory / "new").replace(log.directory / replaced.name)
    assert pins.pin(log.directory, ME, base) == first
    assert replaced.read_bytes() == b"mended"
    assert len(list(log.directory.glob(f"{pins.FOLDER}/**/*.log"))) == 1


def test_a_segment_that_is_replaced_has_links_of_its_own(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    first = pins.pin(log.directory, ME, 0)
    path = log.directory / f"{0:020d}.log"
    (log.directory / "new").write_bytes(b"compacted")
    (log.directory / "new").replace(path)
    second = pins.pin(log.directory, ME, 0)
    assert first is not None
    assert second is not None
    assert first != second
    assert (second / path.name).read_bytes() == b"compacted" != (first / path.name).read_bytes()


def test_a_segment_that_is_gone_is_not_linked_nor_is_a_folder_made(tmp_path: Path) -> None:
    assert pins.pin(tmp_path / "t-0", ME, 0) is None
    with pytest.raises(FileNotFoundError):
        pins.begin([tmp_path / "t-0"], ME, 1)
    assert not (tmp_path / "t-0").exists()


def test_links_stay_until_the_last_plan_that_needs_them_has_been_read(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    old, new = log.segments[0].base_offset, log.segments[1].base_offset
    first = pins.begin([log.directory], ME, 2)
    for base in (old, new):
        folder = pins.pin(log.directory, ME, base)
        assert folder is not None
        dated(folder, NOW)
    dated_lease = lease_of(log.directory, first)
    files.File(dated_lease).write_at((NOW).to_bytes(8, "big"), 0)
    second = pins.begin([log.directory], ME, 1)
    pins.pin(log.directory, ME, new)
    pins.finish(lease_of(log.directory, first), [1, 1])
    assert bases(log.directory) == [old, new]
    pins.finish(lease_of(log.directory, first), [0])
    assert bases(log.directory) == [new]
    pins.finish(lease_of(log.directory, first), [0])  # as a task that Spark runs again
    pins.finish(lease_of(log.directory, second), [0])
    assert not (log.directory / pins.FOLDER).exists()


def test_one_lease_keeps_the_links_of_all_partitions_of_a_plan(tmp_path: Path) -> None:
    logs = [segments(tmp_path / f"t-{n}") for n in range(3)]
    name = pins.begin([log.directory for log in logs[:2]], ME, 2)
    for log in logs[:2]:
        pins.pin(log.directory, ME, 0)
    dated(lease_of(logs[0].directory, name), NOW)
    pins.sweep(logs[1].directory, NOW + pins.LEASE_MS)
    assert bases(logs[1].directory) == [0]
    pins.renew(lease_of(logs[0].directory, name))
    renewed = files.status(lease_of(logs[1].directory, name))
    assert renewed is not None
    assert renewed.modified_ms > NOW
    pins.finish(lease_of(logs[0].directory, name), [0, 1])
    assert not list(tmp_path.glob(f"*/{pins.FOLDER}"))


def test_a_lease_that_nobody_renews_ends(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    name = pins.begin([log.directory], ME, 1)
    pins.pin(log.directory, ME, 0)
    dated(lease_of(log.directory, name), NOW)
    pins.sweep(log.directory, NOW + pins.LEASE_MS)
    assert bases(log.directory) == [0]
    pins.sweep(log.directory, NOW + pins.LEASE_MS + 1)
    assert not (log.directory / pins.FOLDER).exists()
    pins.renew(lease_of(log.directory, name))
    pins.finish(lease_of(log.directory, name), [0])


def test_the_oldest_lease_says_which_links_are_needed(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    oldest, *others = (lease_of(log.directory, name) for name in sorted(lease(log) for _ in range(3)))
    folder = pins.pin(log.directory, ME, 0)
    assert folder is not None
    for each, made_ms in ((oldest, NOW), *((other, NOW + 2) for other in others)):
        files.File(each).write_at(made_ms.to_bytes(8, "big"), 0)
    dated(folder, NOW + 1)
    pins.sweep(log.directory, NOW)
    assert bases(log.directory) == [0]
    pins.finish(oldest, [0])
    assert bases(log.directory) == []


def test_a_lease_can_be_renewed_by_executors_of_another_user(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    assert lease_of(log.directory, lease(log)).stat().st_mode & 0o777 == 0o666


def test_a_plan_that_cannot_lease_all_its_partitions_leaves_no_lease(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    with pytest.raises(FileNotFoundError):
        pins.begin([log.directory, tmp_path / "t-1"], ME, 1)
    assert not (log.directory / pins.FOLDER).exists()


def test_a_segment_that_is_replaced_while_it_is_linked_is_linked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = segments(tmp_path / "t-0")
    path = log.directory / f"{0:020d}.log"
    compacted = tmp_path / "compacted"
    compacted.write_bytes(b"compacted")
    link = files.link

    def late_link(source: Path, target: Path) -> None:
        if source == path and compacted.exists():
            compacted.replace(path)
        link(source, target)

    monkeypatch.setattr(files, "link", late_link)
    folder = pins.pin(log.directory, ME, 0)
    assert folder == log.directory / pins.FOLDER / ME / f"{0:020d}-{path.stat().st_ino}"
    assert (folder / path.name).read_bytes() == b"compacted"
    assert bases(log.directory) == [0], "the links of the one before are gone"


def test_what_a_process_elsewhere_has_just_made_stays_and_is_removed_when_it_is_old(tmp_path: Path) -> None:
    """A plan makes its folder before its lease."""
    log = segments(tmp_path / "t-0")
    folder = log.directory / pins.FOLDER / "elsewhere-1-1-1"
    folder.mkdir(parents=True)
    (folder / "begun").touch()
    dated(folder, NOW)
    pins.sweep(log.directory, NOW + pins.LEASE_MS)
    assert (folder / "begun").exists()
    pins.sweep(log.directory, NOW + pins.LEASE_MS + 1)
    assert not (log.directory / pins.FOLDER).exists()


def test_links_of_a_process_that_was_killed_go_at_once_and_those_of_others_stay(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    gone = killed()
    host, namespace, pid, started = gone.rsplit("-", 3)
    others = [f"{host}-1{namespace}-{pid}-{started}", f"elsewhere-{namespace}-{pid}-{started}", ME]
    for process in (gone, *others):
        pins.begin([log.directory], process, 1)
        pins.pin(log.directory, process, 0)
    assert [path.name for path in pins.abandoned(log.directory)] == [gone]
    pins.sweep(log.directory, NOW)
    assert {path.name for path in (log.directory / pins.FOLDER).iterdir()} == set(others)


def test_what_only_links_keep_on_the_disk_is_counted_once(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    for process in (ME, "elsewhere-1-1-1"):
        for segment in log.segments[:2]:
            pins.pin(log.directory, process, segment.base_offset)
    assert pins.held_bytes(log.directory) == 0
    size = log.segments[0].size
    log.drop_segments(1, NOW)
    log.deleted.remove_due(NOW + LATER)
    assert pins.held_bytes(log.directory) == size > 0


def test_fsck_names_what_a_killed_reader_left_and_repair_removes_it(tmp_path: Path) -> None:
    log = segments(tmp_path / "t-0")
    gone = killed()
    for process in (gone, ME):
        pins.pin(log.directory, process, 0)
    log.close()
    (found,) = Fsck(log.directory, deep=False, repair=False).problems()
    assert (found.path, found.is_note, found.is_repaired) == (log.directory / pins.FOLDER / gone, True, False)
    assert "left by a reader that was killed" in found.what
    (found,) = Fsck(log.directory, deep=False, repair=True).problems()
    assert found.is_repaired
    assert [path.name for path in (log.directory / pins.FOLDER).iterdir()] == [ME]
