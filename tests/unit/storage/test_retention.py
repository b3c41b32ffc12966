"""What expires, when, and in which order."""

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, crash, fill, held_open, open_log, scan
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import files, retention
from tidelog.storage.errors import LogOffline
from tidelog.storage.log import Log
from tidelog.storage.summary import Summary
from tidelog.storage.upkeep import enforce_retention

HOUR = 3_600_000


def log_of(folder: Path, *segments: list[int], now_ms: int = NOW, **options: Any) -> Log:
    """Make a log with a segment for each list of timestamps, and an empty one to append to."""
    log = open_log(folder, now_ms=now_ms, **options)
    for stamps in segments:
        fill(log, [[at] for at in stamps], now_ms=now_ms)
        log.roll(now_ms)
    return log


def test_S24_a_segment_goes_when_its_largest_timestamp_is_more_than_retention_ago(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW - 10, NOW, NOW - 50], [NOW + 5], retention_ms=100, now_ms=NOW + 5)
    enforce_retention(log, NOW + 100)
    assert log.log_start_offset == 0
    enforce_retention(log, NOW + 101)
    assert (log.log_start_offset, [row.offset for row in scan(log)]) == (3, [3])
    enforce_retention(log, NOW + 106)
    assert (log.log_start_offset, log.log_end_offset, scan(log)) == (4, 4, [])


def test_what_is_cut_off_goes_newest_first(tmp_path: Path, disk: FaultyDisk) -> None:
    """Else a crash might leave a gap before what is still there."""
    log = log_of(tmp_path, *[[NOW]] * 4)
    log.truncate(1)
    gone = [path.name for path in disk.paths("remove") if path.suffix == ".log"]
    assert gone == [f"{base:020d}.log" for base in (4, 3, 2)]


def test_S24_minus_one_keeps_everything(tmp_path: Path) -> None:
    log = log_of(tmp_path, [0], [1], retention_ms=-1)
    enforce_retention(log, NOW * 2)
    assert log.log_start_offset == 0


def test_S25_the_first_that_has_not_expired_ends_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW - 500], [NOW], [NOW - 500], retention_ms=100)
    enforce_retention(log, NOW + 50)
    assert log.log_start_offset == 1
    assert [row.offset for row in scan(log)] == [1, 2]


def test_S26_P3_without_timestamps_the_last_append_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, [-1], [0], retention_ms=100)
    enforce_retention(log, NOW + 100)
    assert log.log_start_offset == 0
    enforce_retention(log, NOW + 101)
    assert log.log_start_offset == 2


@pytest.mark.parametrize("stamp", [0, -1])
def test_P3_a_timestamp_of_0_counts_for_none(tmp_path: Path, stamp: int) -> None:
    log = log_of(tmp_path, [stamp], retention_ms=100)
    enforce_retention(log, NOW + 100)
    assert log.log_start_offset == 0
    enforce_retention(log, NOW + 101)
    assert log.log_start_offset == 1


def test_S24_a_timestamp_of_1_is_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, [1], retention_ms=100)
    enforce_retention(log, NOW)
    assert log.log_start_offset == 1


def test_P1_a_record_from_the_future_pins_nothing(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, [NOW + 365 * 24 * HOUR], [NOW], retention_ms=100, message_timestamp_after_max_ms=(1 << 62)
    )
    enforce_retention(log, NOW + 101)
    assert log.log_start_offset == 2


@pytest.mark.parametrize(
    ("clock", "stamp", "expires_after"),
    [
        ("record", HOUR, HOUR), ("bounded", HOUR, 0), ("append", HOUR, 0),
        ("record", -HOUR, -HOUR), ("bounded", -HOUR, -HOUR), ("append", -HOUR, 0),
    ],
)  # fmt: skip
def test_P1_P2_the_clock_of_retention(tmp_path: Path, clock: str, stamp: int, expires_after: int) -> None:
    """Stamps from the future and from the past: where they count, and where the append does."""
    options = {"retention_clock": clock, "message_timestamp_after_max_ms": 1 << 62}
    log = log_of(tmp_path, [NOW + stamp], retention_ms=2 * HOUR, **options)
    for late, start in ((0, 0), (1, 1)):
        enforce_retention(log, NOW + 2 * HOUR + expires_after + late)
        assert log.log_start_offset == start


@pytest.mark.parametrize(
    ("retention_ms", "late_ms", "stays_ms"), [(HOUR, 300, 300), (100, 300, 100), (1, 300, 1)]
)
@pytest.mark.parametrize("clock", ["bounded", "record"])
def test_P2_records_that_are_too_old_when_they_come_can_be_read_for_a_while(
    tmp_path: Path, clock: str, retention_ms: int, late_ms: int, stays_ms: int
) -> None:
    log = open_log(tmp_path, retention_ms=retention_ms, retention_clock=clock, late_ms=late_ms)
    fill(log, [[NOW - 10 * HOUR]])
    log.roll(NOW)
    fill(log, [[NOW - 5 * HOUR]], now_ms=NOW + 50)
    for now_ms, start in (
        (NOW, 0),
        (NOW + stays_ms - 1, 0),
        (NOW + stays_ms, 1),
        (NOW + 50 + stays_ms - 1, 1),
    ):
        due_ms = enforce_retention(log, now_ms)
        assert (log.log_start_offset, due_ms) == (start, NOW + stays_ms + 50 * start)
        assert retention.is_late(log.segments[0], log.config)
    enforce_retention(log, NOW + 50 + stays_ms)
    assert log.log_start_offset == 2


def test_records_that_are_old_for_long_go_as_soon_as_retention_is_cut_short(tmp_path: Path) -> None:
    """That is how people empty a topic."""
    log = open_log(tmp_path, retention_ms=HOUR, late_ms=300_000)
    fill(log, [[NOW]] * 3)
    log.update_config(log.config.override({"retention.ms": "1"}))
    enforce_retention(log, NOW + 2)
    assert log.log_start_offset == 3


def test_P1_after_a_restart_too(tmp_path: Path) -> None:
    options = {"retention_ms": 100, "message_timestamp_after_max_ms": 1 << 62}
    log_of(tmp_path, [NOW + HOUR], **options).close()
    log = open_log(tmp_path, clean=True, recovery_point=1, **options)
    enforce_retention(log, NOW + 101)
    assert log.log_start_offset == 1


def test_the_active_segment_goes_only_with_all_others_and_offsets_go_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=100)
    fill(log, [[NOW]] * 3)
    enforce_retention(log, NOW + 101)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    fill(log, [[NOW + 200]], now_ms=NOW + 200)
    assert [row.offset for row in scan(log)] == [3]


def test_what_goes_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = log_of(tmp_path, [NOW], [NOW], [NOW + 1], retention_ms=100, now_ms=NOW + 1)
    for now_ms in (NOW + 100, NOW + 101, NOW + 101):
        enforce_retention(log, now_ms)
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"retention deleted log={log} segments=2 log_start_offset=2"]


def test_an_empty_log_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=0)
    enforce_retention(log, NOW * 2)
    assert (len(log.segments), log.log_end_offset) == (1, 0)


@pytest.mark.parametrize(("kept", "start"), [(10**6, 0), (5, 0), (4, 1), (3, 2), (2, 3), (1, 4), (0, 4)])
def test_by_size_the_oldest_go_while_enough_stays(tmp_path: Path, kept: int, start: int) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        log.roll(NOW)
        fill(log, [[NOW]])
    one = log.size_bytes // 5
    log.update_config(log.config.override({"retention.bytes": str(kept * one)}))
    enforce_retention(log, NOW)
    # With room for four of five, one must go; the active one stays even where there is room for none.
    assert (log.log_start_offset, log.log_end_offset) == (start, 5)


@pytest.mark.parametrize(("policy", "start"), [("compact", 1), ("compact,delete", 5), ("delete", 5)])
def test_with_compaction_alone_only_what_lies_before_the_log_start_goes(
    tmp_path: Path, policy: str, start: int
) -> None:
    log = log_of(tmp_path, [NOW - 500], [NOW - 500], [NOW], [NOW], [NOW], retention_ms=100)
    log.update_config(log.config.override({"cleanup.policy": policy, "retention.bytes": "0"}))
    log.advance_start(1)
    due_ms = enforce_retention(log, NOW + 50)
    assert log.log_start_offset == start
    log.append(bytearray(build_batch([Record(0, NOW, b"key", b"")])), NOW)
    due_by_time_ms = retention.next_due_ms(log.segments[0], log.config)
    assert due_by_time_ms == (None if policy == "compact" else NOW + 101)
    if policy == "compact":
        verdicts = retention.verdicts(log.segments, log.log_start_offset, log.config, NOW + 10**9)
        assert {(verdict.rule, verdict.due_ms) for verdict in verdicts} == {(None, None)}
        assert not retention.would_keep_longer(log.segments[0], NOW, log.config, NOW)
        assert due_ms != NOW + 50


def test_segments_before_the_log_start_go(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW, NOW], [NOW, NOW])
    log.advance_start(3)
    enforce_retention(log, NOW)
    assert ([segment.base_offset for segment in log.segments], log.log_start_offset) == ([2, 4], 3)


@pytest.mark.parametrize(("start", "bases"), [(1, [0, 2, 4]), (2, [2, 4]), (3, [2, 4]), (4, [4])])
def test_a_segment_that_ends_where_the_log_starts_goes(tmp_path: Path, start: int, bases: list[int]) -> None:
    log = log_of(tmp_path, [NOW, NOW], [NOW, NOW])
    log.advance_start(start)
    enforce_retention(log, NOW)
    assert ([segment.base_offset for segment in log.segments], log.log_start_offset) == (bases, start)


def test_I8_what_one_rule_deletes_does_not_hide_from_the_next_what_is_behind_it(tmp_path: Path) -> None:
    """Kafka's order: what lies before the start, then what is too much, then what has expired of the rest."""
    for number, (start, kept_bytes) in enumerate([(1, -1), (0, 3), (0, 2)]):
        log = log_of(tmp_path / str(number), [NOW], [NOW - 500], [NOW - 500], [NOW], retention_ms=100)
        one = log.size_bytes // 4
        log.advance_start(start)
        log.update_config(
            log.config.override({"retention.bytes": str(kept_bytes * one if kept_bytes > 0 else -1)})
        )
        enforce_retention(log, NOW + 50)
        assert log.log_start_offset == 3


def test_epochs_go_with_their_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        fill(log, [[NOW], [NOW]])
        log.roll(NOW)
        log = open_log(tmp_path)
    assert list(log.epochs.entries) == [(0, 0), (1, 2), (2, 4), (3, 6)]
    log.update_config(log.config.override({"retention.bytes": str(log.size_bytes // 3 + 1)}))
    enforce_retention(log, NOW)
    assert (log.log_start_offset, log.epochs.entries) == (2, ((1, 2), (2, 4), (3, 6)))
    log.advance_start(5)
    assert (log.epochs.entries, log.epochs.end_of(0, log.log_end_offset)) == (((2, 5), (3, 6)), (0, 5))


def order_of(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Note calls into `files`, by name and file."""
    steps: list[str] = []
    for name in names:
        real = getattr(files, name)

        def noted(path: Path, *rest: Any, name: str = name, real: Any = real) -> Any:
            steps.append(f"{name} {path.name}")
            return real(path, *rest)

        monkeypatch.setattr(files, name, noted)
    return steps


def test_I1_what_is_left_of_an_emptied_log_is_on_disk_before_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "topic-0", retention_ms=100)
    fill(log, [[NOW]] * 3)
    log.flush()
    steps = order_of(monkeypatch, "sync", "sync_folder", "rename")
    enforce_retention(log, NOW + 101)
    assert steps[:3] == [f"sync {3:020d}.summary", "sync_folder topic-0", f"rename {0:020d}.log"]


def test_I1_what_is_left_is_flushed_if_none_of_it_was(tmp_path: Path) -> None:
    for flushed in (False, True):
        log = log_of(tmp_path / str(flushed), [NOW - 500], retention_ms=100)
        log.flush()
        fill(log, [[NOW]])
        if flushed:
            log.flush()
            fill(log, [[NOW]])
        enforce_retention(log, NOW)
        assert (log.log_start_offset, log.recovery_point) == (1, 2)


EMPTIED: dict[str, Any] = {"retention_ms": 100, "message_timestamp_type": "LogAppendTime"}


def emptied(folder: Path) -> Log:
    """Make a log whose batches have gone; the summary of what is left tells of the last append, at NOW + 7."""
    log = log_of(folder, [NOW], now_ms=NOW + 7, **EMPTIED)
    enforce_retention(log, NOW + 200)
    assert (log.log_start_offset, log.size_bytes) == (1, 0)
    return log


def next_append_ms(folder: Path) -> int:
    """Append after a crash, by a clock that has gone back."""
    return open_log(folder, now_ms=NOW, **EMPTIED).append(batch([NOW]), NOW).append_time_ms


def test_S52_a_write_that_is_cut_short_takes_no_append_time_that_only_the_summary_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = emptied(tmp_path)

    def torn(path: Path, data: bytes) -> None:
        path.write_bytes(data[:78])
        raise OSError(errno.ENOSPC, "No space left", str(path))

    with monkeypatch.context() as disk, suppress(LogOffline):
        disk.setattr(files, "write", torn)
        log.close()
    assert next_append_ms(tmp_path) == NOW + 7


@pytest.mark.parametrize("clean", [False, True])
def test_S52_a_summary_that_alone_tells_of_the_last_append_is_written_over_once_batches_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """A power cut may tear what is written over, and take the batches that it describes."""
    log = emptied(tmp_path / "a")
    written: list[Path] = []
    write = files.write
    monkeypatch.setattr(files, "write", lambda path, data: (written.append(path), write(path, data)))
    path = log.active.path(".summary")
    for _ in range(2):
        log.close()
        log = open_log(tmp_path / "a", clean=clean, recovery_point=1, log_start_offset=1, **EMPTIED)
    log.append(batch([-1]), NOW + 9)
    log.active.save()
    log.append(batch([NOW]), NOW + 10)
    log.roll(NOW + 10)
    assert path not in written
    folder = crash(log, tmp_path / "b")
    for suffix in (".log", ".appendindex"):
        (folder / log.segments[0].path(suffix).name).write_bytes(b"")
    assert next_append_ms(folder) == NOW + 7
    log.flush()
    assert path in written
    summary = Summary.load(path)
    assert summary is not None
    assert (summary.flushed, summary.last_append_ms) == (1, NOW + 10)


def test_S52_a_cut_takes_no_append_time_that_only_a_summary_tells(tmp_path: Path) -> None:
    log = emptied(tmp_path / "a")
    log.append(batch([NOW]), NOW + 9)
    log.truncate(1)
    assert next_append_ms(crash(log, tmp_path / "b")) == NOW + 9
    log.close()
    assert next_append_ms(crash(log, tmp_path / "c")) == NOW + 9


def test_files_are_removed_once_all_of_them_have_been_renamed_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path / "topic-0", [NOW], retention_ms=100, file_delete_delay_ms=1000)
    enforce_retention(log, NOW + 101)
    steps = order_of(monkeypatch, "sync_folder", "remove")
    enforce_retention(log, NOW + 1100)
    assert steps == []
    enforce_retention(log, NOW + 1101)
    assert steps[:2] == ["sync_folder topic-0", f"remove {0:020d}.log.deleted"]


def test_a_deleted_segment_is_let_go_though_nothing_is_ever_flushed(tmp_path: Path) -> None:
    """With `flush.policy=none` the list of what is to be flushed would keep its file open, and its space taken."""
    log = log_of(tmp_path, *[[NOW - 500]] * 5, retention_ms=100, file_delete_delay_ms=0)
    fill(log, [[NOW]])
    log.durability.recovery_point = log.log_end_offset  # As if it had been; else retention would flush.
    assert held_open(tmp_path) == 7
    enforce_retention(log, NOW)
    assert (log.log_start_offset, held_open(tmp_path)) == (5, 2)


def test_files_are_renamed_at_once_and_removed_after_the_delay(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW], retention_ms=100, file_delete_delay_ms=1000)
    before = {path.name for path in tmp_path.glob(f"{0:020d}.*") if path.suffix != ".snapshot"}
    enforce_retention(log, NOW + 101)
    assert {path.name for path in tmp_path.glob(f"{0:020d}.*.deleted")} == {
        f"{name}.deleted" for name in before
    }
    assert not (tmp_path / f"{0:020d}.log").exists()
    enforce_retention(log, NOW + 1100)
    assert list(tmp_path.glob("*.deleted"))
    enforce_retention(log, NOW + 1101)
    assert not list(tmp_path.glob("*.deleted"))


def test_I2_what_could_not_be_renamed_is_before_anything_newer(tmp_path: Path, disk: FaultyDisk) -> None:
    """Else a crash brings the older segments back, and the newer one is missing between them and the rest."""
    log = log_of(tmp_path / "log", [NOW - 50], [NOW], retention_ms=100, file_delete_delay_ms=1000)
    fill(log, [[NOW + 100]], now_ms=NOW + 100)

    with disk.failing("rename", error=errno.ENOSPC), pytest.raises(LogOffline):
        enforce_retention(log, NOW + 51)
    assert (log.log_start_offset, log.deleted.next_due_ms()) == (1, NOW + 1051)
    disk.calls.clear()
    enforce_retention(log, NOW + 101)
    renamed = [path.name for path in disk.paths("rename") if path.suffix == ".log"]
    assert renamed == [f"{0:020d}.log", f"{1:020d}.log"]
    assert log.deleted.next_due_ms() == NOW + 1051
    again = open_log(crash(log, tmp_path / "crashed"))
    assert [row.offset for row in scan(again)] == [2]


def test_what_could_not_be_renamed_is_tried_again_though_nothing_else_expires(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = log_of(tmp_path, [NOW], retention_ms=100, file_delete_delay_ms=0)
    with disk.failing("rename"), pytest.raises(LogOffline):
        enforce_retention(log, NOW + 101)
    assert len(log.deleted) > 0
    enforce_retention(log, NOW + 102)
    assert (len(log.deleted), {path.name[:20] for path in tmp_path.glob("*.log*")}) == (0, {f"{1:020d}"})


def test_a_retired_log_renames_and_removes_nothing_by_its_old_name(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", [NOW], retention_ms=100, file_delete_delay_ms=1000)
    enforce_retention(log, NOW + 101)
    log.retire(tmp_path / "log-delete")
    assert (len(log.deleted), log.deleted.folder) == (0, tmp_path / "log-delete")


def test_what_was_renamed_before_a_crash_is_removed_at_the_start(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW], retention_ms=100)
    enforce_retention(log, NOW + 101)
    again = open_log(tmp_path)
    assert not list(tmp_path.glob("*.deleted"))
    assert again.log_start_offset == 1


def test_S24_a_log_start_that_was_not_checkpointed_is_the_first_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW, NOW], [NOW + 50], retention_ms=100, now_ms=NOW + 50)
    enforce_retention(log, NOW + 101)
    assert open_log(tmp_path).log_start_offset == 2


def test_S51_the_age_of_a_segment_without_batches_is_a_bound_where_nobody_noted_its_creation(
    tmp_path: Path,
) -> None:
    for left, is_bound in ((b"", False), (bytes(10), True)):  # of a batch that a crash has left unfinished
        log = open_log(tmp_path / str(len(left)))
        log.close()
        log.active.path(".log").write_bytes(left)
        active = open_log(log.directory, clean=False).active
        begins = retention.stamp(active, "append")
        assert (active.size, begins.by, retention.is_bound(active, begins)) == (0, "created", is_bound)


def test_it_tells_when_to_come_again(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW - 10], [NOW], retention_ms=100, file_delete_delay_ms=1000, segment_ms=5000)
    assert enforce_retention(log, NOW) == NOW + 91
    assert enforce_retention(log, NOW + 91) == NOW + 101
    assert log.log_start_offset == 1
    # Of an empty log: when files are to be removed, and then not at all.
    assert enforce_retention(log, NOW + 101) == NOW + 1091
    assert enforce_retention(log, NOW + 1091) == NOW + 1101
    assert enforce_retention(log, NOW + 1101) is None
    log.update_config(log.config.override({"retention.ms": "-1"}))
    fill(log, [[5]], now_ms=NOW + 2000)
    assert enforce_retention(log, NOW + 2000) == NOW + 7001
    assert enforce_retention(log, NOW + 7001) is None
    assert [segment.base_offset for segment in log.segments] == [2, 3]


def test_P12_an_offline_log_still_lets_go_of_what_has_expired_but_not_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path, [NOW - 500], retention_ms=100, segment_ms=1000)
    fill(log, [[NOW]])
    log.flush()
    log.health.failure = "a test"
    enforce_retention(log, NOW)
    assert (log.log_start_offset, len(log.segments)) == (1, 1)
    enforce_retention(log, NOW + 5000)
    assert (log.log_start_offset, len(log.segments)) == (1, 1)
    # What is due and cannot be done waits for the next round.
    assert enforce_retention(log, NOW + 100_000) is None
    assert not list(tmp_path.glob("*.deleted"))


@pytest.mark.parametrize("back", [0, 1, 2])
def test_I2_what_a_crash_brings_back_of_a_deletion_goes_again_with_what_is_older(
    tmp_path: Path, back: int
) -> None:
    """A power cut may lose any of the renames."""
    log = log_of(tmp_path, [NOW - 500], [NOW - 500], [NOW - 500], [NOW], retention_ms=100)
    log.flush()
    enforce_retention(log, NOW)
    for path in tmp_path.glob(f"{back:020d}.*.deleted"):
        path.rename(path.with_suffix(""))
    log = open_log(tmp_path, recovery_point=4)
    expected = 3 if back < 2 else 2
    assert (log.log_start_offset, [row.offset for row in scan(log)]) == (expected, [2, 3][expected - 2 :])
    assert log.damaged == ()
    assert {int(path.name[:20]) for path in tmp_path.glob("0*.log*")} == {*range(expected, 4), 4}


def test_a_log_that_starts_where_a_segment_does_loses_those_before_it_and_no_other(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW, NOW], [NOW, NOW], [NOW])
    for start, bases in ((1, [0, 2, 4, 5]), (2, [2, 4, 5]), (3, [2, 4, 5]), (4, [4, 5]), (5, [5])):
        log.advance_start(start)
        enforce_retention(log, NOW)
        assert [segment.base_offset for segment in log.segments] == bases
    enforce_retention(log, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_S24_a_record_of_the_first_millisecond_of_1970_counts_by_its_append(tmp_path: Path) -> None:
    log = log_of(tmp_path, [0], [1], retention_ms=100)
    enforce_retention(log, NOW + 100)
    assert log.log_start_offset == 0, "the second expired long ago, but the first comes first"
    assert enforce_retention(log, NOW + 100) == NOW + 101
    enforce_retention(log, NOW + 101)
    assert log.log_start_offset == 2


def test_deleted_files_are_removed_each_at_its_time(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW - 10], [NOW], retention_ms=100, file_delete_delay_ms=1000)
    for now_ms in (NOW + 91, NOW + 101):
        enforce_retention(log, now_ms)
    assert log.deleted.next_due_ms() == NOW + 1091
    log.deleted.remove_due(NOW + 1091)
    assert {path.name[:20] for path in tmp_path.glob("*.log.deleted")} == {f"{1:020d}"}
    assert log.deleted.next_due_ms() == NOW + 1101
    log.deleted.remove_due(NOW + 1101)
    assert not list(tmp_path.glob("*.deleted"))
    assert log.deleted.next_due_ms() is None


def test_each_rule_looks_at_what_the_one_before_it_leaves(tmp_path: Path) -> None:
    """Before the start, then too much, then expired: what one of them takes keeps nothing behind it from the next."""
    log = log_of(tmp_path, [NOW], [NOW - 500], [NOW - 500], [NOW], [NOW - 500])
    one = log.segments[0].size
    log.update_config(log.config.override({"retention.ms": "100"}))
    enforce_retention(log, NOW)
    assert log.log_start_offset == 0
    log.update_config(log.config.override({"retention.bytes": str(4 * one)}))
    enforce_retention(log, NOW)
    assert log.log_start_offset == 3, "the first was too much, and the next two had expired"
    log.update_config(log.config.override({"retention.bytes": "-1"}))
    log.advance_start(4)
    enforce_retention(log, NOW)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
