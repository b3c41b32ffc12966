"""Many logs on disk by one sync of their file system, and when each is synced on its own."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import KEEP_ALL, NOW, crash, fill, open_log
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, group_sync, layout, log_manager
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogOffline
from tidelog.storage.group_sync import DIRTY_BYTES_MAX, FILE_BYTES, FILES_MIN, LOOK_EVERY_S, GroupSync, Trust
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

pytestmark = pytest.mark.usefixtures("telling_file_system")


@pytest.fixture
def disk(disk: FaultyDisk) -> FaultyDisk:
    """A disk for which nothing waits to be written, whatever else the machine does."""
    disk.dirty_bytes = 0
    return disk


@pytest.fixture
def logs(tmp_path: Path, disk: FaultyDisk) -> list[Log]:
    """Logs that are on disk, but for one batch each."""
    logs = [open_log(tmp_path / f"t-{number}") for number in range(FILES_MIN)]
    for log in logs:
        fill(log, [[NOW]])
        log.flush()
        fill(log, [[NOW + 1]])
    disk.calls.clear()
    return logs


def syncs(disk: FaultyDisk) -> tuple[int, int]:
    """Return how often a file system was synced, and how often a single file or folder."""
    return len(disk.paths("syncfs")), len(disk.paths("sync"))


def test_many_logs_take_one_sync(tmp_path: Path, disk: FaultyDisk, logs: list[Log]) -> None:
    assert GroupSync(tmp_path).flush(logs) == {}
    assert syncs(disk) == (1, 0)
    assert [log.recovery_point for log in logs] == [2] * FILES_MIN


def test_a_few_are_synced_one_by_one(tmp_path: Path, disk: FaultyDisk, logs: list[Log]) -> None:
    GroupSync(tmp_path).flush(logs[1:])
    assert syncs(disk) == (0, FILES_MIN - 1)


def test_where_much_else_is_dirty_each_is_synced_on_its_own(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    disk.dirty_bytes = 1 << 30
    GroupSync(tmp_path).flush(logs)
    assert syncs(disk) == (0, FILES_MIN)
    assert [log.recovery_point for log in logs] == [2] * FILES_MIN


def test_a_log_on_another_disk_is_synced_there(tmp_path: Path, disk: FaultyDisk, logs: list[Log]) -> None:
    elsewhere = open_log(tmp_path / "elsewhere")
    fill(elsewhere, [[NOW]])
    elsewhere.flush()
    fill(elsewhere, [[NOW]])
    elsewhere.device += 1
    disk.calls.clear()
    GroupSync(tmp_path).flush([*logs, elsewhere])
    assert syncs(disk) == (1, 1)
    assert elsewhere.recovery_point == 2


def test_what_was_rolled_and_named_is_on_disk_by_the_same_sync(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    new = open_log(tmp_path / "new")
    fill(new, [[NOW]])
    new.roll(NOW)
    fill(new, [[NOW]])
    disk.calls.clear()
    assert GroupSync(tmp_path).flush([*logs, new]) == {}
    assert (syncs(disk), new.recovery_point, new.durability.files_to_flush(new)) == ((1, 0), 2, 0)


def test_one_log_of_many_sealed_segments_takes_one_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "tiny", segment_bytes=14)
    fill(log, [[NOW]] * 50)
    disk.calls.clear()
    assert GroupSync(tmp_path).flush([log]) == {}
    assert (syncs(disk), log.recovery_point, log.durability.files_to_flush(log)) == ((1, 0), 50, 0)
    again = open_log(crash(log, tmp_path / "again"), recovery_point=50)
    assert [segment.summary.flushed for segment in again.segments[:-1]] == [1] * 49


def test_the_more_files_there_are_the_more_may_be_dirty(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "tiny", segment_bytes=14)
    fill(log, [[NOW]] * 50)
    disk.dirty_bytes = log.durability.files_to_flush(log) * FILE_BYTES
    assert disk.dirty_bytes > DIRTY_BYTES_MAX
    disk.calls.clear()
    GroupSync(tmp_path).flush([log])
    assert syncs(disk) == (1, 0)
    fill(log, [[NOW]] * 50)
    disk.dirty_bytes = log.durability.files_to_flush(log) * FILE_BYTES + 1
    GroupSync(tmp_path).flush([log])
    assert len(disk.paths("syncfs")) == 1
    assert log.durability.files_to_flush(log) == 0


def test_a_failed_sync_of_all_fails_only_the_log_whose_own_sync_fails(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    disk.fail("syncfs")
    disk.fail("sync", of="t-1/*")
    failures = GroupSync(tmp_path).flush(logs)
    assert list(failures) == [logs[1]]
    assert isinstance(failures[logs[1]], LogOffline)
    assert [log.recovery_point for log in logs] == [2, 1, 2, 2]


def test_what_is_cut_meanwhile_is_not_taken_for_durable(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    def cut() -> None:
        logs[0].truncate(1)
        fill(logs[0], [[NOW]])
        disk.calls.clear()

    disk.on("syncfs", do=cut)
    assert GroupSync(tmp_path).flush(logs) == {}
    # What was appended after the cut lies where the mark was: only a sync of its own has been there.
    assert disk.paths("sync") == [logs[0].active.path(".log")]
    assert [log.recovery_point for log in logs] == [2] * FILES_MIN


def test_what_is_appended_meanwhile_is_not_taken_for_durable(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    disk.on("syncfs", do=lambda: fill(logs[0], [[NOW]]))
    assert GroupSync(tmp_path).flush(logs) == {}
    assert [(log.recovery_point, log.log_end_offset) for log in logs] == [(2, 3), (2, 2), (2, 2), (2, 2)]


def test_a_log_whose_own_flush_failed_meanwhile_is_not_saved_by_a_sync_of_all(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    """The failed sync has dropped the pages; the sync of all, which comes after, finds nothing to write."""

    def fail_first() -> None:
        disk.fail("sync", of="t-0/*")
        with pytest.raises(LogOffline):
            logs[0].flush()

    disk.on("syncfs", do=fail_first)
    failures = GroupSync(tmp_path).flush(logs)
    assert list(failures) == [logs[0]]
    assert [log.recovery_point for log in logs] == [1, 2, 2, 2]


def test_what_is_dirty_is_read_from_the_system() -> None:
    def told() -> int:
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return sum(int(rows[name].removesuffix(" kB")) * 1024 for name in ("Dirty", "Writeback"))

    memory = files.DirtyMemory()
    # It changes all the time: only between two looks that agree is there something to compare.
    looks = ((told(), memory.bytes(), told()) for _ in range(10_000))
    before, dirty, _ = next(look for look in looks if look[0] == look[2])
    assert dirty == before


def test_what_is_dirty_is_asked_for_now_and_then(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(group_sync.time, "monotonic", lambda: now_s[0])
    group = GroupSync(tmp_path)

    def together() -> bool:
        disk.calls.clear()
        for log in logs:
            fill(log, [[NOW]])
        group.flush(logs)
        return bool(disk.paths("syncfs"))

    disk.dirty_bytes = DIRTY_BYTES_MAX
    assert together(), "as much as there may be"
    disk.dirty_bytes += 1
    now_s[0] += LOOK_EVERY_S / 2
    assert together(), "not looked at again so soon"
    now_s[0] += LOOK_EVERY_S
    assert not together()
    disk.dirty_bytes = 0
    now_s[0] += LOOK_EVERY_S / 2
    assert not together()
    now_s[0] += LOOK_EVERY_S
    assert together()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("invalid literal for int()")])
def test_where_nobody_tells_what_is_dirty_each_is_synced_on_its_own(
    error: Exception,
    tmp_path: Path,
    disk: FaultyDisk,
    logs: list[Log],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: files.DirtyMemory) -> int:
        raise error

    monkeypatch.setattr(group_sync, "LOOK_EVERY_S", -1.0)
    group = GroupSync(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files.DirtyMemory, "bytes", refuse)
        for _ in range(2):
            assert group.flush(logs) == {}
            for log in logs:
                fill(log, [[NOW]])
    assert disk.paths("syncfs") == []
    assert caplog.text.count("dirty memory is unknown") == 1
    group.flush(logs)
    assert len(disk.paths("syncfs")) == 1
    for log in logs:
        fill(log, [[NOW]])
    monkeypatch.setattr(files.DirtyMemory, "bytes", refuse)
    group.flush(logs)
    assert caplog.text.count("dirty memory is unknown") == 2, "it had ended: it is news again"


def test_few_that_need_no_more_than_a_sync_are_synced_one_by_one(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    logs[0].device += 1
    GroupSync(tmp_path).flush(logs)
    assert syncs(disk) == (0, FILES_MIN)
    assert [log.recovery_point for log in logs] == [2] * FILES_MIN


def test_after_a_sync_of_all_that_failed_the_next_start_takes_nothing_for_granted(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log]
) -> None:
    """What it gave up may be of a log that is not among these, and that nobody flushes before the process ends."""
    layout.save_boot(tmp_path)
    trust = Trust(DiskSpace(tmp_path))
    with disk.failing("syncfs"):
        assert GroupSync(tmp_path, trust).flush(logs) == {}
    assert (trust.is_lost, layout.is_same_boot(tmp_path)) == (True, False)
    for log in logs:
        fill(log, [[NOW]])
    disk.calls.clear()
    assert GroupSync(tmp_path, trust).flush(logs) == {}
    assert syncs(disk) == (0, FILES_MIN), "nor does another sync of all prove anything"


def test_a_flush_goes_on_where_not_even_the_next_start_can_be_told_that_a_sync_of_all_failed(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log], caplog: pytest.LogCaptureFixture
) -> None:
    layout.save_boot(tmp_path)
    space = DiskSpace(tmp_path)
    with disk.failing("syncfs"), disk.failing("remove", error=errno.EROFS):
        assert GroupSync(tmp_path, Trust(space)).flush(logs) == {}
    assert [log.recovery_point for log in logs] == [2] * FILES_MIN
    assert f"not removed file={tmp_path / 'boot-id'}" in caplog.text
    assert layout.is_same_boot(tmp_path)
    space.look()
    assert not layout.is_same_boot(tmp_path), "it is told as soon as the disk takes that"


def test_what_fails_again_and_again_is_said_once_and_when_it_is_over(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for number, log in enumerate(logs):
        log.partition = number
    group = GroupSync(tmp_path)
    disk.fail("syncfs")
    disk.fail("sync", of="t-1/*")
    for _ in range(3):
        assert list(group.flush(logs)) == [logs[1]]
        for log in logs:
            if log is not logs[1]:
                fill(log, [[NOW]])
    assert caplog.text.count("file system not synced") == 1
    assert caplog.text.count(f"flush failed log={logs[1]}") == 1
    assert "works again" not in caplog.text
    disk.heal()
    logs[1].health.failure = None
    for _ in range(2):
        assert group.flush(logs) == {}
    assert caplog.text.count(f"flush works again log={logs[1]}") == 1


def test_that_a_log_was_deleted_is_no_failure_to_tell_of(
    tmp_path: Path, disk: FaultyDisk, logs: list[Log], caplog: pytest.LogCaptureFixture
) -> None:
    logs[1].delete()
    assert list(GroupSync(tmp_path).flush(logs)) == [logs[1]]
    assert caplog.text == ""


def crashed(folder: Path, count: int) -> None:
    """Leave a data folder as a kill does, of logs that have one record each, on disk, and nothing since."""
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.open()
    for number in range(count):
        fill(manager.create("topic", number, bytes(16), TopicConfig(**KEEP_ALL)), [[NOW]])
    assert GroupSync(folder).flush(list(manager.logs.values())) == {}
    manager.checkpoint()
    manager.abandon()


def started(folder: Path, first_epoch: int = 0) -> list[Log]:
    """Start on a folder; return its logs."""
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.first_epoch = first_epoch
    manager.open()
    logs = list(manager.logs.values())
    manager.abandon()
    return logs


def saved_epochs(log: Log) -> tuple[tuple[int, int], ...] | None:
    """Return what the file has."""
    loaded = LeaderEpochs.load(log.directory)
    return loaded and loaded.entries


def test_a_start_after_a_crash_puts_all_logs_on_disk_by_one_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    """Else a folder of many partitions, to which nothing was appended, would take as long as three syncs of each."""
    needed = []
    for count in (FILES_MIN, 8 * FILES_MIN):
        crashed(tmp_path / str(count), count)
        disk.calls.clear()
        logs = started(tmp_path / str(count))
        needed.append(len(disk.paths("sync")))
        assert len(disk.paths("syncfs")) == 1
        assert [saved_epochs(log) for log in logs] == [((0, 0), (1, 1))] * count
        assert {log.leader_epoch for log in logs} == {1}
        assert "leader-epoch-checkpoint" not in {path.name for path in disk.paths("rename")}
        assert not list((tmp_path / str(count)).glob("*/*.tmp"))
    assert needed[0] == needed[1] < 10, "what is synced by itself is the data folder's, not the logs'"


def test_logs_that_no_sync_of_all_puts_on_disk_after_a_crash_are_put_there_one_by_one(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    crashed(tmp_path, FILES_MIN)
    disk.calls.clear()
    disk.fail("syncfs", times=1)
    logs = started(tmp_path)
    assert [saved_epochs(log) for log in logs] == [((0, 0), (1, 1))] * FILES_MIN
    assert syncs(disk) == (1, 4 * FILES_MIN + 1), (
        "where each ends, its append times, its epochs, their name; the data folder"
    )
    assert not layout.is_same_boot(tmp_path), "what that sync gave up may be of any log"
    started(tmp_path)
    assert layout.is_same_boot(tmp_path)


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_epochs_that_only_the_file_remembers_are_replaced_durably_log_by_log(
    tmp_path: Path, disk: FaultyDisk, first_epoch: int
) -> None:
    """A power cut may tear a file that is overwritten. The first epoch of new logs makes up for its epochs."""
    crashed(tmp_path, FILES_MIN)
    started(tmp_path)
    disk.calls.clear()
    logs = started(tmp_path, first_epoch)
    assert [saved_epochs(log) for log in logs] == [((0, 0), (2, 1))] * FILES_MIN
    assert len(disk.paths("syncfs")) == first_epoch


def test_one_log_with_an_epoch_of_its_own_is_put_on_disk_alone(tmp_path: Path, disk: FaultyDisk) -> None:
    crashed(tmp_path, FILES_MIN + 1)
    (tmp_path / "topic-1" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    disk.calls.clear()
    logs = {log.partition: log for log in started(tmp_path)}
    assert saved_epochs(logs[1]) == ((0, 0), (8, 1))
    assert len(disk.paths("syncfs")) == 1
    replaced = [path for path in disk.paths("rename") if path.name == "leader-epoch-checkpoint"]
    assert replaced == [logs[1].epochs.path]


@pytest.mark.parametrize("first_epoch", [0, 1, 2])
def test_a_clean_start_that_mends_epochs_puts_them_on_disk_too(
    tmp_path: Path, disk: FaultyDisk, first_epoch: int
) -> None:
    crashed(tmp_path, FILES_MIN)
    manager = LogManager(tmp_path, BrokerConfig(), lambda: NOW)
    manager.open()
    assert manager.close()
    for path in tmp_path.glob("*/leader-epoch-checkpoint"):
        path.write_text("0\n1\n1 1\n")  # The epoch of the first record is made from it.
    disk.calls.clear()
    logs = started(tmp_path, first_epoch)
    assert [saved_epochs(log) for log in logs] == [((0, 0), (max(1, first_epoch), 1))] * FILES_MIN
    assert len(disk.paths("syncfs")) == (1 if first_epoch else 0), "one by one where only the file knows them"


@pytest.mark.parametrize("many", [FILES_MIN, FILES_MIN + 1])
def test_threads_recover_logs_unless_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    crashed(tmp_path, FILES_MIN)
    monkeypatch.setattr(log_manager, "MANY_LOGS", many)
    threads: set[str] = set()
    manager = LogManager(tmp_path, BrokerConfig(), lambda: NOW)
    manager.open(problem_of=lambda *_: threads.add(threading.current_thread().name))
    manager.abandon()
    assert (threading.current_thread().name in threads) == (many == FILES_MIN)


def test_after_a_sync_of_all_that_failed_at_a_start_only_the_log_whose_own_sync_fails_takes_no_writes(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    crashed(tmp_path, FILES_MIN)
    manager = LogManager(tmp_path, BrokerConfig(), lambda: NOW)
    manager.open()
    for log in manager.logs.values():
        fill(log, [[NOW]])
    manager.abandon()
    disk.fail("sync", of="topic-1/*.log")
    disk.fail("syncfs")
    assert [log.partition for log in started(tmp_path, first_epoch=1) if not log.takes_writes] == [1]


def test_where_a_log_ends_after_a_crash_is_put_on_disk_once_a_full_disk_has_room(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    crashed(tmp_path, FILES_MIN)
    disk.dirty_bytes = 1 << 40  # each by itself
    with disk.failing("sync", of="topic-2/*.log", error=errno.ENOSPC):
        logs = {log.partition: log for log in started(tmp_path)}
    assert [number for number, log in logs.items() if log.health.failure is not None] == [2]
    disk.calls.clear()
    logs[2].mend()
    assert logs[2].health.failure is None
    assert logs[2].active.path(".log") in disk.paths("sync")


def test_after_a_crash_where_much_is_dirty_each_log_is_put_on_disk_alone(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    crashed(tmp_path, FILES_MIN)
    disk.calls.clear()
    disk.dirty_bytes = 1 << 40
    assert [saved_epochs(log) for log in started(tmp_path)] == [((0, 0), (1, 1))] * FILES_MIN
    assert disk.paths("syncfs") == []


def test_after_a_crash_logs_that_are_put_on_disk_alone_are_so_several_at_once(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other thousands would take as long as their syncs together."""
    crashed(tmp_path, FILES_MIN)
    disk.dirty_bytes = 1 << 40
    monkeypatch.setattr(log_manager.os, "cpu_count", lambda: 2)
    both = threading.Barrier(2)
    disk.on("rename", of="leader-epoch-checkpoint", do=lambda: both.wait(20))
    assert [log.health.failure for log in started(tmp_path)] == [None] * FILES_MIN


def test_a_start_says_what_it_waits_for_before_a_sync_that_may_be_slow(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    crashed(tmp_path, FILES_MIN)
    caplog.set_level("INFO")
    said: list[str] = []
    disk.on("syncfs", do=lambda: said.append(caplog.text))
    started(tmp_path)
    assert len(said) == 1
    assert f"syncing the whole file system for logs={FILES_MIN}" in said[0]


def test_P12_a_log_whose_epochs_a_full_disk_refuses_after_a_crash_stops_no_other(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    crashed(tmp_path, FILES_MIN)
    disk.calls.clear()
    disk.fill("topic-2/leader-epoch-checkpoint")
    logs = {log.partition: log for log in started(tmp_path)}
    assert {number: log.health.failure is None for number, log in sorted(logs.items())} == {
        0: True,
        1: True,
        2: False,
        3: True,
    }
    assert syncs(disk) == (1, 3), "one log alone, and the data folder"
    disk.heal()
    logs[2].mend()
    assert (logs[2].health.failure, saved_epochs(logs[2])) == (None, ((0, 0), (1, 1)))


def test_after_a_crash_a_log_on_another_disk_is_put_there_alone(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    device_of = files.device_of
    needed = []
    for elsewhere in (0, 1):
        folder = tmp_path / str(elsewhere)
        crashed(folder, 2 * FILES_MIN)
        monkeypatch.setattr(
            files, "device_of", lambda path, by=elsewhere: device_of(path) + by * (path.name == "topic-1")
        )
        disk.calls.clear()
        assert [saved_epochs(log) for log in started(folder)] == [((0, 0), (1, 1))] * 2 * FILES_MIN
        assert len(disk.paths("syncfs")) == 1
        needed.append(len(disk.paths("sync")))
    assert needed[1] == needed[0] + 4, "where it ends, its append times, its epochs, their name"


@pytest.mark.parametrize("told", [False, OSError(38, "Function not implemented"), ImportError("no ctypes")])
def test_where_a_sync_of_all_proves_nothing_each_log_is_synced_by_itself(
    logs: list[Log],
    disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: Any,
) -> None:
    """As on overlayfs, whose `syncfs` says nothing of what the file system below has lost."""
    asked = []

    def reports_errors(system: files.FileSystem) -> bool:
        asked.append(system)
        if isinstance(told, Exception):
            raise told
        return bool(told)

    monkeypatch.setattr(files.FileSystem, "reports_errors", reports_errors)
    group = GroupSync(logs[0].directory.parent)
    with caplog.at_level("INFO"):
        for _ in range(2):
            disk.calls.clear()
            assert not group.flush(logs)
            assert syncs(disk) == (0, len(logs))
            assert all(log.recovery_point == log.log_end_offset for log in logs)
            for log in logs:
                fill(log, [[NOW + 2]])
    assert len(asked) == 1, "of one folder it is asked once"
    assert caplog.text.count("each log is synced by itself") == 1
