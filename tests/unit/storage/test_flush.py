"""What a flush puts on disk, what it may say is there, and what must wait for the next one."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, crash, fetch_all, fill, open_log, scan
from tidelog.storage.durability import Mark
from tidelog.storage.errors import FlushPostponed, LogOffline
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Summary
from tidelog.storage.upkeep import enforce_retention


def synced(disk: FaultyDisk) -> list[str]:
    """Return the names of the files and folders that were synced, in order."""
    return [path.name for path in disk.paths("sync")]


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def flushed_log(folder: Path, disk: FaultyDisk, **options: Any) -> Log:
    """Make a log of which one batch is on disk and one is not."""
    log = open_log(folder, **options)
    fill(log, [[NOW]])
    log.flush()
    fill(log, [[NOW]])
    disk.calls.clear()
    return log


@pytest.mark.parametrize("with_sealed", [False, True])
def test_the_recovery_point_is_what_was_there_when_the_sync_began(
    tmp_path: Path, disk: FaultyDisk, with_sealed: bool
) -> None:
    log = flushed_log(tmp_path, disk)
    if with_sealed:
        log.roll(NOW)
        fill(log, [[NOW]])
    end = log.log_end_offset
    disk.on("sync", do=lambda: fill(log, [[NOW]]), times=1)
    assert (log.flush(), log.recovery_point, log.log_end_offset) == (end, end, end + 1)
    assert (log.flush(), log.recovery_point) == (end + 1, end + 1)


@pytest.mark.parametrize("with_sealed", [False, True])
def test_a_roll_during_a_flush_leaves_the_sealed_segment_and_the_new_name_to_the_next(
    tmp_path: Path, disk: FaultyDisk, with_sealed: bool
) -> None:
    log = flushed_log(tmp_path / "topic-0", disk)
    if with_sealed:
        log.roll(NOW)
        fill(log, [[NOW]])
    end = log.log_end_offset

    def roll() -> None:
        fill(log, [[NOW]])
        log.roll(NOW)
        fill(log, [[NOW]])

    disk.on("sync", do=roll, times=1)
    assert (log.flush(), log.recovery_point) == (end, end)
    assert log.durability.files_to_flush(log) == 1 + 4 + 2
    rolled = log.segments[-2].base_offset
    disk.calls.clear()
    assert log.flush() == end + 2
    assert synced(disk)[:5] == [
        name(rolled),
        name(rolled, ".index"),
        name(rolled, ".timeindex"),
        name(rolled, ".appendindex"),
        name(end + 1),
    ]
    assert synced(disk)[-1] == "topic-0"
    assert log.durability.files_to_flush(log) == 0


def mark_of(log: Log) -> Mark:
    mark = log.durability.flush_mark(log)
    assert mark is not None
    return mark


def test_a_mark_covers_what_was_pending_and_not_what_came_since(tmp_path: Path, disk: FaultyDisk) -> None:
    log = flushed_log(tmp_path, disk)
    assert (mark_of(log).end, mark_of(log).pending, log.durability.files_to_flush(log)) == (2, None, 1)
    log.roll(NOW)
    mark = mark_of(log)
    assert log.durability.files_to_flush(log) == 1 + 4 + 2
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    assert log.durability.flushed(log, mark)
    assert log.recovery_point == 2
    assert says_flushed(log, 0)
    assert not says_flushed(log, 2)
    assert log.durability.files_to_flush(log) == 1 + 4 + 2
    assert log.durability.flushed(log, mark_of(log))
    assert (log.recovery_point, log.durability.files_to_flush(log)) == (4, 0)
    assert says_flushed(log, 2)
    assert synced(disk) == []


def test_marks_that_overlap_leave_what_a_later_one_is_to_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    log = flushed_log(tmp_path, disk)
    early = mark_of(log)
    log.roll(NOW)
    fill(log, [[NOW]])
    late = mark_of(log)
    assert log.durability.flushed(log, late)
    log.roll(NOW)
    assert log.durability.flushed(log, early)
    assert log.durability.files_to_flush(log) == 4 + 2 + 1
    assert log.flush() == 3
    assert {name(2), tmp_path.name} <= set(synced(disk))


def test_a_mark_saves_what_is_due_and_says_so_once_it_is_flushed(
    tmp_path: Path, disk: FaultyDisk, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    log = flushed_log(tmp_path, disk)
    early = mark_of(log)
    assert not says_flushed(log, 0)
    fill(log, [[NOW]])
    late = mark_of(log)
    # Of the two only the later save is what the indexes' files are.
    assert log.durability.flushed(log, early)
    assert not says_flushed(log, 0)
    assert log.durability.flushed(log, late)
    assert says_flushed(log, 0)


def test_a_mark_that_saved_a_segment_says_nothing_of_the_next_though_it_is_as_long(
    tmp_path: Path, disk: FaultyDisk, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    log = flushed_log(tmp_path, disk)
    early = mark_of(log)
    log.roll(NOW)
    fill(log, [[NOW]] * 2)
    late = mark_of(log)
    assert log.durability.flushed(log, early)
    assert not says_flushed(log, 2)
    assert log.durability.flushed(log, late)
    assert says_flushed(log, 2)


def test_a_mark_of_a_new_log_writes_its_epochs(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "topic-0")
    log.epochs.is_saved = False
    (tmp_path / "topic-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
    fill(log, [[NOW]])
    disk.calls.clear()
    assert log.durability.flushed(log, mark_of(log))
    assert log.epochs.is_saved
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").exists()
    assert synced(disk) == []


@pytest.mark.parametrize("point", ["log_end_offset", "active"])
def test_whatever_a_roll_comes_between_no_flush_says_more_than_it_synced(
    tmp_path: Path, disk: FaultyDisk, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flusher reads the end, the active segment and what is pending without the lock: in an order that holds."""
    log = flushed_log(tmp_path, disk)
    rolled = []

    class Watched(Log):
        def __getattribute__(self, attribute: str) -> Any:
            value = super().__getattribute__(attribute)
            if attribute == point and not rolled and threading.current_thread() is thread:
                rolled.append(True)
                fill(log, [[NOW]])
                log.roll(NOW)
                fill(log, [[NOW]])
            return value

    targets: list[int] = []
    thread = threading.Thread(target=lambda: targets.append(log.flush()))
    log.__class__ = Watched
    thread.start()
    thread.join()
    log.__class__ = Log
    assert rolled
    sealed, active = log.segments[-2:]
    assert targets == [log.recovery_point]
    if log.recovery_point > active.base_offset:
        assert {name(sealed.base_offset), name(active.base_offset)} <= set(synced(disk))
    else:
        assert log.recovery_point == 2  # of which the second record lies in what was sealed meanwhile
        assert name(sealed.base_offset) in synced(disk)


@pytest.mark.parametrize("what", [".log", ".index", "active", "folder"])
def test_a_failed_sync_moves_no_recovery_point_and_is_final(
    tmp_path: Path, disk: FaultyDisk, what: str
) -> None:
    log = flushed_log(tmp_path / "topic-0", disk)
    log.roll(NOW)
    fill(log, [[NOW]])
    names = {".log": name(0), ".index": name(0, ".index"), "active": name(2), "folder": "topic-0"}
    disk.fail("sync", of=names[what])
    for _ in range(2):
        with pytest.raises(LogOffline, match=r"flush failed .*Input/output error.*restart"):
            log.flush()
        disk.heal()
    assert (log.recovery_point, log.durability.flush_mark(log), log.close()) == (1, None, False)
    assert not says_flushed(log, 0)
    with pytest.raises(LogOffline):
        log.append(batch([NOW]), NOW)
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2]


def says_flushed(log: Log, base: int) -> bool:
    """Return what the summary's file of a segment says."""
    summary = Summary.load(log.directory / name(base, ".summary"))
    assert summary is not None
    return bool(summary.flushed)


# Retention and flushes.


@pytest.mark.parametrize("released", [False, True])
def test_a_segment_deleted_during_its_flush_gets_no_summary_back(
    tmp_path: Path, disk: FaultyDisk, released: bool
) -> None:
    log = flushed_log(tmp_path, disk, retention_ms=100)
    log.roll(NOW)
    fill(log, [[NOW + 500]], now_ms=NOW + 500)
    if released:
        log.release()
    # Not by way of what makes retention flush first.
    log.durability.recovery_point = 3
    fill(log, [[NOW + 500]], now_ms=NOW + 500)
    disk.on("sync", do=lambda: enforce_retention(log, NOW + 200), times=1)
    assert log.flush() == 4
    assert log.log_start_offset == 2
    assert not (tmp_path / name(0, ".summary")).exists()
    assert (tmp_path / name(0, ".summary.deleted")).exists()


def test_a_segment_sealed_and_deleted_while_it_is_saved_gets_no_summary_back(
    tmp_path: Path, disk: FaultyDisk, save_every: Callable[[int], None]
) -> None:
    log = flushed_log(tmp_path, disk)
    save_every(1)

    def delete() -> None:
        log.roll(NOW)
        log.durability.recovery_point = 99  # Something that stays is on disk.
        fill(log, [[NOW]])
        log.advance_start(2)
        enforce_retention(log, NOW)

    disk.on("sync", do=delete, times=1)
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [2]
    assert not (tmp_path / name(0, ".summary")).exists()


def test_a_segment_sealed_while_it_is_saved_keeps_the_summary_of_its_sealing(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, save_every: Callable[[int], None]
) -> None:
    log = flushed_log(tmp_path, disk)
    save_every(1)

    def roll() -> None:
        fill(log, [[NOW]])
        log.roll(NOW)

    disk.on("sync", do=roll, times=1)
    log.flush()
    fill(log, [[NOW]])
    log.flush()
    rows = scan(log)
    monkeypatch.setattr("tidelog.storage.walk.verified", None)
    again = open_log(crash(log, tmp_path.parent / "b"), recovery_point=0, clean=False, segment_bytes=1 << 30)
    assert (again.segments[0].size, rows[:3]) == (log.segments[0].size, scan(again)[:3])


# A lack of descriptors.


def is_refused(
    disk: FaultyDisk, left: int, kind: type[Exception], job: Callable[[], object], error: int = errno.EMFILE
) -> bool:
    """Do a job that may open so many files; tell whether it failed because it needs more."""
    disk.fail("open", error=error, after=left)
    try:
        job()
    except kind as refusal:
        return os.strerror(error) in str(refusal)
    finally:
        disk.heal()
    return False


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_is_no_failed_flush(tmp_path: Path, disk: FaultyDisk, error: int) -> None:
    """At every open of the flush: it is put off, and the next one does all of it."""
    folder = tmp_path / "topic-0"
    log = open_log(folder)
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    log.release()
    refused = 0
    while is_refused(disk, refused, FlushPostponed, log.flush, error):
        assert (log.recovery_point, log.health.failure) == (0, None)
        disk.calls.clear()
        refused += 1
        fill(log, [[NOW]])
    assert refused >= 7
    assert log.recovery_point == log.log_end_offset
    wanted = {name(base, suffix) for base in (0, 1) for suffix in (".log", ".index", ".timeindex")}
    assert wanted | {name(2), "topic-0", tmp_path.name} <= set(synced(disk))
    assert log.close()


def test_EMFILE_at_the_first_open_of_a_new_log_leaves_everything_right(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, segment_bytes=150, index_interval_bytes=0)
    fill(log, [[NOW], [NOW]])
    refused = 0
    while is_refused(disk, refused, LogOffline, lambda: log.append(batch([NOW]), NOW)):
        assert (log.log_end_offset, log.health.failure) == (2, None)
        assert [row.offset for row in fetch_all(log)] == [0, 1]
        refused += 1
    assert refused >= 4
    fill(log, [[NOW], [NOW]])
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2, 3, 4]
    for clean in (False, True):
        again = open_log(
            crash(log, tmp_path.parent / f"again-{clean}"), clean=clean and log.close(), recovery_point=5
        )
        assert [row.offset for row in fetch_all(again)] == [0, 1, 2, 3, 4]


def test_EMFILE_at_the_first_open_of_a_log_file_takes_nothing_back_that_was_not_written(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW]])
    log.roll(NOW)
    assert is_refused(disk, 0, LogOffline, lambda: log.append(batch([NOW]), NOW))
    assert (log.log_end_offset, log.health.failure) == (2, None)
    assert log.append(batch([NOW]), NOW).base_offset == 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_a_roll_that_dies_leaves_no_log(tmp_path: Path, disk: FaultyDisk, suffix: str) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW]])
    disk.on("make", of=name(2, suffix), do=die)
    with pytest.raises(Died):
        log.roll(NOW)
    assert not (tmp_path / name(2)).exists()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
@pytest.mark.parametrize("clean", [False, True])
def test_I1_I2_a_segment_is_made_or_not(tmp_path: Path, disk: FaultyDisk, suffix: str, clean: bool) -> None:
    folder = tmp_path / "a"
    log = open_log(folder, segment_bytes=150)
    fill(log, [[NOW], [NOW]])
    disk.fill(name(2, suffix))
    with pytest.raises(LogOffline):
        log.append(batch([NOW]), NOW)
    assert not list(folder.glob(f"{2:020d}*"))
    # The old segment goes on, past where the new one would have begun.
    log.update_config(log.config.override({"segment.bytes": "300"}))
    fill(log, [[NOW], [NOW]])
    point = log.flush()
    if clean:
        log.close()
    again = open_log(crash(log, tmp_path / "b"), clean=clean, recovery_point=point)
    assert [row.offset for row in fetch_all(again)] == [0, 1, 2, 3]
    assert again.append(batch([NOW]), NOW).base_offset == 4


def test_a_full_disk_that_refuses_the_epochs_is_no_failed_flush(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log.epochs.is_saved = False
    refused = disk.fail("open", of="leader-epoch-checkpoint", error=errno.ENOSPC)
    assert (log.flush(), log.health.failure) == (1, None)
    assert refused.hits


# Append times.

LOG_APPEND_TIME = {"message_timestamp_type": "LogAppendTime"}


def appended_ms(log: Log, now_ms: int) -> int:
    return log.append(batch([NOW]), now_ms).append_time_ms


@pytest.mark.parametrize("stop", ["clean", "kill", "power cut"])
@pytest.mark.parametrize("emptied", [False, True])
def test_S52_C18_append_times_never_go_back_whatever_became_of_the_log(
    tmp_path: Path, stop: str, emptied: bool
) -> None:
    options = {**LOG_APPEND_TIME, "retention_ms": 100, "file_delete_delay_ms": 0}
    log = open_log(tmp_path / "a", **options)
    assert appended_ms(log, NOW + 50) == NOW + 50
    log.flush()
    if emptied:
        enforce_retention(log, NOW + 151)
        enforce_retention(log, NOW + 151)
        assert (log.log_start_offset, log.size_bytes) == (1, 0)
    if stop == "clean":
        log.close()
    folder = crash(log, tmp_path / "b")
    if stop == "power cut" and not emptied:
        for path in folder.glob("*.summary"):
            path.unlink()
    for path in folder.glob("*.log"):
        os.utime(path, (1, 1))
    again = open_log(folder, clean=stop == "clean", recovery_point=1, now_ms=NOW - 500, **options)
    assert appended_ms(again, NOW - 500) == NOW + 50
    assert appended_ms(again, NOW + 51) == NOW + 51


def test_S52_C18_an_empty_log_hands_its_last_append_time_on_and_on(tmp_path: Path) -> None:
    options = {**LOG_APPEND_TIME, "retention_ms": 100}
    log = open_log(tmp_path / "0", **options)
    appended_ms(log, NOW + 50)
    enforce_retention(log, NOW + 500)
    for generation in range(1, 5):
        if generation % 2:
            log.close()
        folder = crash(log, tmp_path / str(generation))
        log = open_log(folder, clean=generation % 2 == 1, recovery_point=1, now_ms=NOW, **options)
        assert log.last_append_ms == NOW + 50
    assert appended_ms(log, NOW) == NOW + 50


@pytest.mark.parametrize("stamped", [True, False])
def test_S52_the_time_of_a_copied_file_is_no_append_time(tmp_path: Path, stamped: bool) -> None:
    options = LOG_APPEND_TIME if stamped else {}
    log = open_log(tmp_path / "a", **options)
    log.append(batch([NOW]), NOW)
    folder = crash(log, tmp_path / "b")
    (folder / name(0, ".appendindex")).unlink()
    later = NOW // 1000 + 86_400
    os.utime(folder / name(0), (later, later))
    again = open_log(folder, now_ms=NOW + 10, **LOG_APPEND_TIME)
    # Of a log that stamps records the batches tell; otherwise it is some time up to now.
    assert again.last_append_ms == (NOW if stamped else NOW + 10)
    assert appended_ms(again, NOW + 10) == NOW + 10


@pytest.mark.parametrize(
    ("seconds", "appended_ms", "created_ms"),
    [
        (-60.5, NOW - 60_500 + 10, NOW - 60_500),
        (-60, NOW - 60_000 + 1000, NOW - 60_000),
        (86_400, NOW + 10, NOW + 10),
    ],
)
def test_S26_without_timestamps_the_time_of_the_file_stands_in_but_never_one_to_come(
    tmp_path: Path, seconds: float, appended_ms: int, created_ms: int
) -> None:
    """It stands for what was appended then or earlier: it may be behind the clock by a tick, or by a second."""
    log = open_log(tmp_path / "a")
    log.append(batch([-1]), NOW)
    folder = crash(log, tmp_path / "b")
    for suffix in (".summary", ".appendindex"):
        (folder / name(0, suffix)).unlink()
    at = NOW // 1000 + seconds
    os.utime(folder / name(0), (at, at))
    summary = open_log(folder, now_ms=NOW + 10).active.summary
    assert (summary.last_append_ms, summary.created_ms) == (appended_ms, created_ms)


@pytest.mark.parametrize(
    ("record_s", "file_s", "expected_s"),
    [
        (86_400, 86_398, 86_399),  # both are from after now: it is the clock that stands in the past
        (-100, 86_400, 0),  # a file from the future
        (86_400, -60, -59),  # a record from the future
    ],
)
def test_P1_I8_a_clock_that_stands_in_the_past_makes_nothing_old(
    tmp_path: Path, record_s: int, file_s: int, expected_s: int
) -> None:
    log = open_log(tmp_path / "a", message_timestamp_after_max_ms=1 << 60)
    log.append(batch([NOW + 1000 * record_s]), NOW)
    folder = crash(log, tmp_path / "b")
    (folder / name(0, ".appendindex")).unlink()
    os.utime(folder / name(0), (NOW // 1000 + file_s, NOW // 1000 + file_s))
    summary = open_log(folder, now_ms=NOW).active.summary
    assert summary.last_append_ms == NOW + 1000 * expected_s


def test_S52_retention_leaves_an_old_empty_segment_that_tells_the_last_append(tmp_path: Path) -> None:
    """A power cut took what was in it, and its summary."""
    log = open_log(tmp_path / "a", retention_ms=1000)
    log.append(batch([NOW]), NOW + 500)
    log.roll(NOW)
    folder = crash(log, tmp_path / "b")
    log = open_log(folder, retention_ms=1000)
    enforce_retention(log, NOW + 10_000)
    assert log.log_start_offset == 1
    again = open_log(crash(log, tmp_path / "c"))
    assert again.last_append_ms == NOW + 500


def test_I5_S12_indexes_end_as_closed_though_a_power_cut_took_what_closing_wrote(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", index_interval_bytes=1 << 20)
    fill(log, [[NOW], [NOW + 1]])
    log.active.save(flushed=True)
    left = crash(log, tmp_path / "b")
    log.close()
    final = log.active.path(".timeindex").read_bytes()
    assert final
    again = open_log(left, clean=True, recovery_point=2)
    again.close()
    assert again.active.path(".timeindex").read_bytes() == final


@pytest.mark.parametrize("number", [0, 1])
def test_a_summary_of_another_segment_is_not_believed_though_its_log_is_as_long(
    tmp_path: Path, number: int
) -> None:
    """Restored by mistake, say: it would have offsets lost, or skipped, or a start refused."""
    for folder, count, size in (("a", 1, 28), ("b", 3, 4)):  # of one size, batch by batch
        log = open_log(tmp_path / folder)
        fill(log, [[NOW] * count], value=bytes(size))
        log.roll(NOW)
        fill(log, [[NOW] * count], value=bytes(size))
        log.close()
    mine, others = (open_log(tmp_path / each, clean=True) for each in "ab")
    of_mine, of_other = mine.segments[number], others.segments[number]
    assert of_mine.size == of_other.size
    of_mine.path(".summary").write_bytes(of_other.path(".summary").read_bytes())
    again = open_log(tmp_path / "a", clean=True, recovery_point=2)
    assert again.log_end_offset == 2
    assert [row.offset for row in fetch_all(again)] == [0, 1]
    assert again.damaged == ()


def test_a_cut_is_on_disk_before_it_returns(tmp_path: Path, disk: FaultyDisk) -> None:
    """Else a power cut may bring back what was cut, after what was appended since."""
    log = flushed_log(tmp_path, disk)
    log.truncate(1)
    calls = [kind for kind, path in disk.calls if path == log.active.path(".log")]
    assert calls.index("truncate") < calls.index("sync")


def test_after_a_cut_the_last_epoch_goes_on_from_there_on_disk_too(tmp_path: Path, disk: FaultyDisk) -> None:
    log = flushed_log(tmp_path / "a", disk)
    log.close()
    log = open_log(tmp_path / "a", clean=False, recovery_point=2)
    fill(log, [[NOW]] * 2)
    assert log.epochs.entries == ((0, 0), (1, 2))
    disk.calls.clear()
    log.truncate(1)
    assert log.epochs.entries == ((0, 0), (1, 1))
    saved = LeaderEpochs.load(tmp_path / "a")
    assert saved is not None
    assert saved.entries == ((0, 0), (1, 1))
    assert "leader-epoch-checkpoint" in synced(disk)


def test_a_sync_of_all_that_ends_late_takes_no_recovery_point_back(tmp_path: Path, disk: FaultyDisk) -> None:
    log = flushed_log(tmp_path, disk)
    early = mark_of(log)
    fill(log, [[NOW]])
    late = mark_of(log)
    assert (early.end, late.end) == (2, 3)
    assert log.durability.flushed(log, late)
    assert log.recovery_point == 3
    assert log.durability.flushed(log, early)
    assert log.recovery_point == 3


def test_a_sealed_segment_that_a_cut_makes_active_again_is_flushed_as_one(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a")
    fill(log, [[NOW], [NOW + 1]])
    log.roll(NOW)
    fill(log, [[NOW + 2]])
    log.truncate(1)
    fill(log, [[NOW + 3]], value=b"another")
    log.flush()
    summary = Summary.load(tmp_path / "a" / name(0, ".summary"))
    assert summary is not None
    assert summary.log_bytes == 0, "it is not sealed: no summary of batches is true for long"
    fill(log, [[NOW + 4]])
    rows = scan(log)
    again = open_log(crash(log, tmp_path / "b"), recovery_point=log.recovery_point)
    assert scan(again) == rows


def test_what_a_segment_has_since_a_cut_is_on_disk_only_after_a_flush_that_began_later(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1]])
    log.roll(NOW)
    log.truncate(1)

    def roll() -> None:
        fill(log, [[NOW + 2]])
        log.roll(NOW)

    fill(log, [[NOW + 2]])
    disk.on("sync", do=roll, times=1)
    assert log.flush() == 2
    assert not says_flushed(log, 0)
    assert log.flush() == 3
    assert says_flushed(log, 0)


def test_a_mark_from_before_a_second_cut_covers_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 3)
    log.truncate(2)
    mark = mark_of(log)
    log.truncate(1)
    fill(log, [[NOW]])
    assert not log.durability.flushed(log, mark)
    assert log.recovery_point == 0
    for end in (2, 3):
        assert log.durability.flushed(log, mark_of(log))
        assert log.recovery_point == end
        fill(log, [[NOW]])


def test_a_segment_that_is_rebuilt_before_it_is_flushed_is_flushed_in_its_new_form(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1]])
    log.roll(NOW)
    fill(log, [[NOW + 2]])
    sealed = log.segments[0]
    assert log.recheck(sealed, PATIENT) is log.segments[0]
    assert log.segments[0] is not sealed
    log.flush()
    summary = Summary.load(tmp_path / name(0, ".summary"))
    assert summary is not None
    assert (summary.flushed, summary.batch_count, log.segments[0].summary.flushed) == (1, 2, 1)


def test_what_recovery_goes_by_is_saved_once_for_so_many_bytes(
    tmp_path: Path, save_every: Callable[[int], None]
) -> None:
    save_every(1000)
    log = open_log(tmp_path)
    saved: list[int] = []
    for _ in range(6):
        fill(log, [[NOW]], value=b"v" * 400)
        log.flush()
        summary = Summary.load(tmp_path / name(0, ".summary"))
        saved.append(summary.batch_count if summary else 0)
    assert saved == [0, 0, 3, 3, 3, 6]


def test_I5_no_summary_vouches_for_indexes_that_a_full_disk_has_refused(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW + n] for n in range(6)])
    before = log.active.offset_index.data[:]
    log.roll(NOW)
    sealed = log.segments[0]
    sealed.path(".index").write_bytes(b"spoiled!")
    disk.fill("*.index")
    log.recheck(sealed, PATIENT)
    assert disk.refused
    disk.heal()
    log.flush()
    again = open_log(crash(log, tmp_path.with_name("again")), clean=True, index_interval_bytes=100)
    assert again.segments[0].offset_index.data[:] == before
    assert [row.offset for row in fetch_all(again)] == list(range(6))
