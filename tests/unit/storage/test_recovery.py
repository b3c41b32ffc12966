"""What a start does with the files that it finds in a partition's folder."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import KEEP_ALL, NOW, fill, is_damaged, new_shared, open_log, scan
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import read_only, recovery, retention
from tidelog.storage.errors import CorruptLog
from tidelog.storage.layout import LOG, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Summary


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a log of three segments, of two batches each, that was stopped cleanly."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for base in range(0, 6, 2):
        if base:
            log.roll(NOW)
        fill(log, [[NOW + base], [NOW + base + 1]])
    log.close()
    return log.directory


def from_elsewhere(folder: Path) -> Log:
    """Open the log of a folder that was copied here: nobody tells what became of it."""
    return recovery.load(
        folder, "topic", 0, TopicConfig(**KEEP_ALL), new_shared(folder), recovery.Known(), NOW
    )


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_not_in_force_goes_and_what_is_not_of_a_log_stays(folder: Path, clean: bool) -> None:
    before = names(folder)
    gone = {
        name(0, ".index.deleted"),
        name(4, ".index.deleted"),
        name(2, ".log.cleaned"),
        name(4, ".timeindex.cleaned"),
        name(4, ".summary.tmp"),
        "leader-epoch-checkpoint.tmp",
    }
    kept = {"README", "0.log", "0.index", name(7, ".txt"), f"{name(9, '')[:-1]}x.log", f"x{name(9, '.log')}"}
    for each in gone | kept:
        (folder / each).write_bytes(b"x")
    log = open_log(folder, clean=clean, recovery_point=6)
    assert kept <= names(folder)
    assert not gone & names(folder)
    assert names(folder) - kept == before
    assert [row.offset for row in scan(log)] == list(range(6))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_I5_an_index_whose_cut_a_power_cut_has_undone_is_cut_by_the_next_stop(
    tmp_path: Path, suffix: str
) -> None:
    """After a clean stop, which puts no index on disk; without timestamps a time index has no entry that tells."""
    log = open_log(tmp_path / "t-0", message_format_version="0", index_interval_bytes=0)
    fill(log, [[-1], [-1]])
    log.close()
    index = log.active.path(suffix)
    right = index.read_bytes()
    index.write_bytes(right + bytes(24))
    open_log(tmp_path / "t-0", clean=True, recovery_point=2, index_interval_bytes=0).close()
    assert index.read_bytes() == right


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".summary"])
def test_a_sidecar_without_its_log_goes_and_those_with_one_stay(folder: Path, suffix: str) -> None:
    (folder / name(2, ".log")).rename(folder / "elsewhere")
    for other in {".index", ".timeindex", ".summary"} - {suffix}:
        (folder / name(2, other)).unlink()
    log = open_log(folder, clean=True, recovery_point=6)
    assert (folder / name(0, suffix)).exists()
    # That it was there says that offsets were lost, and the gap is no end of the log.
    assert [is_damaged(log, offset) for offset in range(6)] == [False, False, True, True, False, False]
    with pytest.raises(CorruptLog, match=r"read on from 4$"):
        log.read(2, 1000, True, PATIENT)
    assert [row.offset for row in scan(log)] == [0, 1, 4, 5]


def test_a_deletion_that_a_crash_cut_short_is_finished(folder: Path) -> None:
    """Of three segments two were to go; the names of the second are on disk, those of the first are not."""
    for path in folder.glob(f"{name(2, '')}.*"):
        if path.suffix != ".snapshot":
            path.rename(path.with_name(path.name + ".deleted"))
    copy = Path(shutil.copytree(folder, folder.with_name("copy")))
    log = open_log(folder, clean=True, recovery_point=6)
    assert (log.log_start_offset, [row.offset for row in scan(log)]) == (4, [4, 5])
    assert not [each for each in names(folder) if each.startswith((name(0, "."), name(2, ".")))]
    assert log.damaged == ()
    # In a folder that came from elsewhere nobody knows in which order things were deleted.
    other = from_elsewhere(copy)
    assert [row.offset for row in scan(other)] == [0, 1, 4, 5]
    assert (copy / name(0, ".log")).exists()
    assert not list(copy.glob("*.deleted"))


def test_the_marks_of_a_deletion_go_when_what_they_tell_of_is_gone_durably(
    folder: Path, disk: FaultyDisk
) -> None:
    (folder / name(2, ".log")).rename(folder / name(2, ".log.deleted"))
    open_log(folder, clean=True, recovery_point=6)
    steps = [(kind, path.name) for kind, path in disk.calls if kind in ("remove", "sync")]
    synced = steps.index(("sync", "t-0"))
    assert ("remove", name(0, ".log")) in steps[:synced]
    assert ("remove", name(2, ".index")) in steps[:synced]
    assert ("remove", name(2, ".log.deleted")) in steps[synced:]


def test_a_start_without_leftovers_syncs_nothing(folder: Path, disk: FaultyDisk) -> None:
    assert len(scan(open_log(folder, clean=True, recovery_point=6))) == 6
    assert disk.paths("sync", "syncfs") == []


@pytest.mark.parametrize("known", [(0, 0), (0, 3), (9, 0), (2, 9)])
def test_an_empty_folder_gets_a_log_that_goes_on_from_what_is_known(
    tmp_path: Path, known: tuple[int, int]
) -> None:
    point, start = known
    log = open_log(tmp_path, clean=True, recovery_point=point, log_start_offset=start)
    assert (log.log_start_offset, log.log_end_offset) == (max(0, start), max(point, start))
    fill(log, [[NOW]])
    assert [row.offset for row in scan(log)] == [max(point, start)]


@pytest.mark.parametrize("tail", [b"\0", b"?" * 200, None])
def test_a_write_that_never_finished_is_cut_wherever_the_log_comes_from(
    folder: Path, tail: bytes | None
) -> None:
    path = folder / name(4, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole + (whole[:60] if tail is None else tail))
    log = from_elsewhere(folder)
    assert (log.log_end_offset, log.damaged) == (6, ())
    assert path.read_bytes() == whole
    fill(log, [[NOW + 6]])
    assert [row.offset for row in scan(log)] == list(range(7))


@pytest.mark.parametrize("clean", [True, False])
def test_S12_a_log_that_was_saved_before_a_crash_gets_its_last_time_entry_when_it_is_closed(
    tmp_path: Path, save_every: Callable[[int], None], clean: bool
) -> None:
    """Also if its folder then came to a broker that was stopped cleanly."""
    save_every(1)
    log = open_log(tmp_path, index_interval_bytes=1 << 20)
    fill(log, [[NOW], [NOW + 50], [NOW + 2]])
    log.flush()
    summary = Summary.load(tmp_path / name(0, ".summary"))
    assert summary is not None
    assert (summary.flushed, summary.log_bytes) == (1, log.size_bytes)
    log = open_log(tmp_path, clean=clean, recovery_point=3, index_interval_bytes=1 << 20)
    assert log.close()
    entry = (NOW + 50).to_bytes(8, "big") + (1).to_bytes(4, "big")
    assert (tmp_path / name(0, ".timeindex")).read_bytes() == entry


def test_I5_the_segment_that_has_become_the_last_is_saved_again(tmp_path: Path) -> None:
    """Its index may hold entries of batches that a power cut took, behind those that its summary tells of."""
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1]])
    log.close()
    index = tmp_path / f"{0:020d}.index"
    before = index.read_bytes()
    index.write_bytes(before + bytes(16))
    (tmp_path / f"{99:020d}.log").touch()
    log = open_log(tmp_path, recovery_point=2)
    assert (len(log.segments), log.log_end_offset) == (1, 2)
    log.close()
    assert index.read_bytes() == before


def test_V10_where_nothing_tells_of_batches_from_elsewhere_a_gap_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 3)
    log.flush()
    log.close()
    path = log.active.path(".log")
    for suffix in (".summary", ".appendindex"):
        log.active.path(suffix).unlink()
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 3 * 2 + 7)
        file.write(b"\5")  # the last offset, which no checksum covers
    log = open_log(tmp_path, was_cut_off=False, recovery_point=3)
    assert [row.offset for row in scan(log)] == [0, 1]
    assert is_damaged(log, 2)


def test_S51_what_was_lost_of_append_times_was_not_before_what_the_summary_tells(tmp_path: Path) -> None:
    """A file that was copied may be older than the appends in it."""
    log = open_log(tmp_path)
    fill(log, [[NOW]], NOW)
    log.active.save()
    fill(log, [[NOW]], NOW)
    log.active.path(".appendindex").unlink()
    os.utime(log.active.path(".log"), (1, 1))
    index = open_log(tmp_path, now_ms=NOW + 9).active.append_index
    assert [tuple(index.entry(number)) for number in range(len(index))] == [(NOW, 0, True)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("modified_ms", [NOW - 500, NOW + 500])
def test_I8_an_empty_segment_of_which_nothing_tells_was_made_before_now(
    tmp_path: Path, clean: bool, modified_ms: int
) -> None:
    path = tmp_path / name(0, ".log")
    path.touch()
    os.utime(path, (modified_ms / 1000, modified_ms / 1000))
    log = open_log(tmp_path, clean=clean)
    assert retention.stamp(log.active, "bounded") == (min(modified_ms, NOW), "created")


def test_I5_an_empty_log_gets_no_index_back_that_a_crash_has_left(tmp_path: Path) -> None:
    for suffix in (".log", ".timeindex"):
        (tmp_path / name(0, suffix)).touch()
    (tmp_path / name(0, ".index")).write_bytes(bytes(8))
    open_log(tmp_path).close()
    assert (tmp_path / name(0, ".index")).read_bytes() == b""


def test_V10_an_offset_that_changed_behind_what_the_summary_tells_of_is_damage(
    tmp_path: Path, save_every: Callable[[int], None]
) -> None:
    save_every(1)
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 2)
    log.flush()
    fill(log, [[NOW]] * 2)
    path = log.active.path(".log")
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 4 * 3 + 7)
        file.write(b"\5")  # the last offset, which no checksum covers
    log = open_log(tmp_path, was_cut_off=False, recovery_point=4)
    assert [row.offset for row in scan(log)] == [0, 1, 2]
    assert is_damaged(log, 3)


def test_S51_a_creation_that_nobody_noted_is_marked_as_a_bound_and_stays_one(tmp_path: Path) -> None:
    made = {name: open_log(tmp_path / name, now_ms=NOW) for name in ("noted", "lost", "new")}
    for name in ("noted", "lost"):
        fill(made[name], [[NOW]])
    for log in made.values():
        log.close()
    made["lost"].active.path(SUMMARY).unlink()
    for name in ("lost", "new"):  # Of one that nothing was written to its file tells.
        os.utime(made[name].active.path(LOG), (NOW / 1000 + 5, NOW / 1000 + 5))
    expected = {"noted": (NOW, 0), "lost": (NOW + 5000, 1), "new": (NOW + 5000, 0)}
    for clean in (False, True, True):
        again = {
            name: open_log(tmp_path / name, clean=clean, recovery_point=name != "new", now_ms=NOW + 60_000)
            for name in made
        }
        found = {name: log.active.summary for name, log in again.items()}
        assert {name: (each.created_ms, each.is_created_bound) for name, each in found.items()} == expected
        for name, log in again.items():
            seen = read_only.load(log.directory, "topic", 0, log.config, 0, NOW + 60_000).active
            assert (seen.summary.created_ms, seen.summary.is_created_bound) == expected[name]
            log.close()
