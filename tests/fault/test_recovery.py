"""F4, F13: What a crash or a bad disk leaves behind: torn tails, damage, lost and false files; and recovering twice."""

import errno
import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.faulty_disk import Died, FaultyDisk
from tests.support.logs import (
    KEEP_ALL,
    NOW,
    Row,
    batch,
    crash,
    fetch_all,
    fill,
    first_at,
    index_bytes,
    is_damaged,
    log_bytes,
    new_shared,
    open_log,
    scan,
)
from tests.support.reference_index import differences
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.build import Record
from tidelog.protocol.records.message_set import build_message_set
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files, layout, recovery, walk
from tidelog.storage.errors import CorruptLog, LogOffline
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention

OPTIONS = {"index_interval_bytes": 150}


def made(folder: Path, batches: int = 12, **options: object) -> Log:
    log = open_log(folder, **{**OPTIONS, **options})
    fill(log, [[NOW + n * 10, NOW + n * 10 + 3] for n in range(batches)])
    return log


def positions(log: Log) -> list[int]:
    return [position for _, position, _ in log.headers(0)]


def copied(log: Log, folder: Path, data: bytes) -> Path:
    """Copy a log of one segment with other bytes in it."""
    shutil.rmtree(folder, ignore_errors=True)
    crash(log, folder)
    (folder / f"{0:020d}.log").write_bytes(data)
    return folder


def test_I4_a_log_cut_at_every_byte_of_its_last_three_batches_keeps_all_whole_ones(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    data = (tmp_path / "a" / f"{0:020d}.log").read_bytes()
    rows, starts = scan(log), [*positions(log), len(data)]
    for size in range(starts[-4], len(data) + 1):
        again = open_log(copied(log, tmp_path / "b", data[:size]), **OPTIONS)
        whole = sum(start <= size for start in starts) - 1
        assert scan(again) == rows[: 2 * whole]
        assert again.log_end_offset == 2 * whole
        assert again.size_bytes == starts[whole]
        assert again.append(batch([NOW]), NOW).base_offset == 2 * whole
        assert again.active.summary.batch_count == whole + 1


@pytest.mark.parametrize(
    "tail", ["zeros", "noise", "a batch without its end", "a batch with a wrong byte", "an old batch"]
)
@pytest.mark.parametrize("keep", [0, 1, 12])
def test_what_is_behind_the_last_whole_batch_is_cut(tmp_path: Path, tail: str, keep: int) -> None:
    log = made(tmp_path / "a")
    data = log.active.path(".log").read_bytes()
    starts = [*positions(log), len(data)]
    flipped = bytearray(data[: starts[1]])
    flipped[70] ^= 1
    junk = {
        "zeros": bytes(5000),
        "noise": random.Random(1).randbytes(5000),
        "a batch without its end": data[: starts[1] - 1],
        "a batch with a wrong byte": bytes(flipped),
        "an old batch": data[: starts[1]] if keep else b"\0",
    }[tail]
    again = open_log(copied(log, tmp_path / "b", data[: starts[keep]] + junk), **OPTIONS)
    assert (again.log_end_offset, again.size_bytes) == (2 * keep, starts[keep])
    assert not again.damaged
    again.close()
    assert differences(again.directory, 150) == []


def test_V10_P8_one_bit_flipped_below_the_flushed_point_costs_one_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    for number in range(12):
        data = bytearray(log.active.path(".log").read_bytes())
        data[starts[number] + 66] ^= 0x10
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
        end = starts[number + 1] if number < 11 else len(data)
        assert again.damaged == (f"{0:020d}.log@{starts[number]}-{end}",)
        assert f"{0:020d}.log@{starts[number]}-{end}" in caplog.text
        lost = {2 * number, 2 * number + 1}
        assert scan(again) == [row for row in rows if row.offset not in lost]
        for offset in range(24):
            assert is_damaged(again, offset) == (offset in lost)
        with pytest.raises(CorruptLog, match=f"offset {2 * number} is in damaged bytes, .*read on from"):
            again.read(2 * number, 100, True, PATIENT)
        assert again.log_end_offset == 24
        assert (tmp_path / "b" / f"{0:020d}.log").read_bytes() == bytes(data)
        appended = again.append(batch([NOW + 999]), NOW)
        assert appended.base_offset == 24
        expected = [*(row for row in rows if row.offset not in lost), Row(24, NOW + 999, b"v0")]
        for wanted in range(NOW, NOW + 130):
            found = first_at(again, wanted, PATIENT)
            first = next((row for row in expected if row.timestamp >= wanted), None)
            assert (found and found[:2]) == (first and (first.timestamp, first.offset))


def test_V10_a_fetch_stops_before_the_damage(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    starts = positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[5] + 66] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    piece = again.read(0, 1 << 20, True, PATIENT)
    assert (piece.position, len(piece)) == (0, starts[5])
    assert again.read(12, 1 << 20, True, PATIENT).position == starts[6]


@pytest.mark.parametrize("field", [3, 8, 11, 16, 23])
def test_a_damaged_header_does_not_lose_the_batches_behind_it(tmp_path: Path, field: int) -> None:
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[4] + field] ^= 0x21
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    assert scan(again) == [row for row in rows if row.offset not in (8, 9)]
    assert [is_damaged(again, offset) for offset in (7, 8, 9, 10)] == [False, True, True, False]


def with_a_hole(log: Log, first: int, behind: int) -> bytes:
    """Return the bytes of the log with those of some batches lost, as a crash loses pages that were never synced."""
    data, starts = log.active.path(".log").read_bytes(), positions(log)
    return data[: starts[first]] + bytes(starts[behind] - starts[first]) + data[starts[behind] :]


@pytest.mark.parametrize(("flushed", "end"), [(0, 6), (6, 6), (7, 24), (24, 24)])
def test_I4_damage_that_no_flush_was_behind_ends_the_log(tmp_path: Path, flushed: int, end: int) -> None:
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    folder = copied(log, tmp_path / "b", with_a_hole(log, 3, 6))
    again = open_log(folder, recovery_point=flushed, **OPTIONS)
    assert again.log_end_offset == end
    if end == 6:
        assert (scan(again), again.size_bytes, again.damaged) == (rows[:6], starts[3], ())
        again.close()
        assert differences(folder, 150) == []
    else:
        assert scan(again) == rows[:6] + rows[12:]
        assert again.damaged == (f"{0:020d}.log@{starts[3]}-{starts[6]}",)


def test_I3_what_is_cut_is_cut_on_disk_before_anything_takes_its_place(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = made(tmp_path / "a")
    folder = copied(log, tmp_path / "b", with_a_hole(log, 3, 6))
    sizes: list[int] = []
    disk.on(
        "sync", of="*.log", do=lambda: sizes.append((folder / log.active.path(".log").name).stat().st_size)
    )
    open_log(folder, **OPTIONS)
    assert sizes[-1] == positions(log)[3]


def test_a_deletion_is_finished_on_disk_before_its_marks_go(tmp_path: Path, disk: FaultyDisk) -> None:
    """Without them its sidecars would tell of a log that was lost."""
    folder = tmp_path / "topic-0"
    made(folder, batches=1)
    for name in (f"{0:020d}.log.deleted", f"{1:020d}.log.deleted", f"{1:020d}.index"):
        (folder / name).touch()
    disk.calls.clear()
    open_log(folder, **OPTIONS)
    steps = [f"{kind} {path.name}" for kind, path in disk.calls if kind in ("remove", "sync")]
    synced = steps.index("sync topic-0")
    assert {f"remove {0:020d}.log", f"remove {1:020d}.index"} <= set(steps[:synced])
    assert not [step for step in steps[:synced] if "deleted" in step]
    assert len([step for step in steps[synced:] if "deleted" in step]) == 2


def test_damage_in_a_log_that_came_from_elsewhere_is_kept_though_nothing_tells_of_a_flush(
    tmp_path: Path,
) -> None:
    log = made(tmp_path / "a")
    rows = scan(log)
    folder = copied(log, tmp_path / "b", with_a_hole(log, 3, 6))
    again = recovery.load(
        folder, "topic", 0, TopicConfig(retention_ms=-1, **OPTIONS), new_shared(folder), recovery.Known(), NOW
    )
    assert scan(again) == rows[:6] + rows[12:]


@pytest.mark.parametrize("kept", ["", "the first batch"])
@pytest.mark.parametrize("flushed", [0, 4, 8])
def test_I4_a_segment_behind_a_hole_that_no_flush_can_have_passed_goes(
    tmp_path: Path, kept: str, flushed: int
) -> None:
    """A roll, then power is lost: the new segment is there, the end of the old one is not."""
    log = made(tmp_path / "a", batches=4)
    log.roll(NOW)
    fill(log, [[NOW + 100]] if kept else [])
    rows, starts = scan(log), positions(log)
    folder = crash(log, tmp_path / "b")
    for path in (*folder.glob("*.summary"), *folder.glob("*.snapshot")):
        path.unlink()
    os.truncate(folder / f"{0:020d}.log", starts[2])
    again = open_log(folder, recovery_point=flushed, **OPTIONS)
    if flushed <= 4:
        assert (again.log_end_offset, scan(again)) == (4, rows[:4])
        assert [path.name for path in folder.glob("*.log")] == [f"{0:020d}.log"]
        assert again.append(batch([NOW]), NOW).base_offset == 4
    else:
        assert (again.log_end_offset, scan(again)) == (8 + bool(kept), rows[:4] + rows[8:])


def lose(folder: Path, shape: str) -> tuple[int, int]:
    """Take flushed data of a log of 24 offsets away; return the first offset that is gone, and the first behind it."""
    logs = sorted(folder.glob("*.log"))
    bases = [int(path.stem) for path in logs]
    if shape == "the last log":
        logs[-1].unlink()
        return bases[-1], 24
    if shape == "the last segment":
        for path in folder.glob(f"{logs[-1].stem}.*"):
            path.unlink()
        return bases[-1], 24
    if shape == "all logs":
        for path in logs:
            path.unlink()
        return 0, 24
    if shape == "all bytes":
        for path in logs:
            os.truncate(path, 0)
        return 0, 24
    if shape == "a log in between":
        logs[1].unlink()
        return bases[1], bases[2]
    path = logs[-1] if shape == "the end" else logs[0]
    with files_open(path) as file:
        header = [header for _, header in walk.headers(file, 0, file.size)]
    os.truncate(path, path.stat().st_size - header[-1].size_bytes)
    return header[-1].base_offset, header[-1].last_offset + 1


@contextmanager
def files_open(path: Path) -> Iterator[files.File]:
    yield files.File(path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        "the end",
        "the end of the first",
        "the last log",
        "the last segment",
        "all logs",
        "all bytes",
        "a log in between",
    ],
)
def test_I2_no_offset_that_was_on_disk_is_given_out_again(
    tmp_path: Path, shape: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**OPTIONS, "segment_bytes": 400}
    log = made(tmp_path / "a", segment_bytes=400)
    assert len(log.segments) == 3
    rows = scan(log)
    log.flush()
    if clean:
        log.close()
    folder = crash(log, tmp_path / "b")
    first, behind = lose(folder, shape)
    if shape == "all bytes":
        rows = []
    rows = [row for row in rows if not first <= row.offset < behind]
    for restart in range(4):
        caplog.clear()
        again = open_log(folder, clean=clean, recovery_point=24 + restart, **options)
        told = re.findall(r"offsets lost from=(\d+) to=(\d+) at=", caplog.text)
        assert [int(at) for at in (told[0][0], told[-1][1])] == [first, behind - 1]
        assert (again.log_start_offset, again.log_end_offset) == (0, 24 + restart)
        assert scan(again) == rows
        for offset in range(24 + restart):
            assert is_damaged(again, offset) == (first <= offset < behind), offset
        with pytest.raises(CorruptLog, match=f"read on from {behind}"):
            again.read(behind - 1, 1000, True, PATIENT)
        for wanted in (NOW, NOW + 60, NOW + 113):
            found = first_at(again, wanted, PATIENT)
            expected = next((row for row in rows if row.timestamp >= wanted), None)
            assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))
        assert again.append(batch([NOW + 200]), NOW).base_offset == 24 + restart
        rows.append(Row(24 + restart, NOW + 200, b"v0"))
        again.close() if clean else again.flush()
        folder = crash(again, tmp_path / f"c{restart}")


def test_I2_a_mark_of_lost_offsets_is_enough_to_know_where_to_go_on(tmp_path: Path) -> None:
    """The segment behind it lost as well, and the checkpoint."""
    log = made(tmp_path / "a", segment_bytes=400)
    log.flush()
    folder = crash(log, tmp_path / "b")
    first, behind = lose(folder, "the end")
    assert open_log(folder, recovery_point=24, **OPTIONS).log_end_offset == behind == 24
    for path in folder.glob(f"{behind:020d}.*"):
        path.unlink()
    again = open_log(folder, **OPTIONS)
    assert (again.log_end_offset, is_damaged(again, first)) == (24, True)


def test_what_kafka_deleted_in_between_is_not_taken_for_lost(tmp_path: Path) -> None:
    """Its compaction does; a crash may come between the renames."""
    log = made(tmp_path / "a", segment_bytes=400)
    log.close()
    folder = crash(log, tmp_path / "b")
    for path in (*folder.glob("*.appendindex"), *folder.glob("*.summary")):
        path.unlink()  # Kafka has none
    base = log.segments[1].base_offset
    path = folder / f"{base:020d}.log"
    path.rename(path.with_name(path.name + ".deleted"))
    config = TopicConfig(retention_ms=-1, **OPTIONS)
    again = recovery.load(folder, "topic", 0, config, new_shared(folder), recovery.Known(), NOW)
    assert (again.damaged, again.log_start_offset) == ((), 0)
    assert again.read(base, 1000, True, PATIENT).read()[:8] == log.segments[2].base_offset.to_bytes(8, "big")


def test_what_was_lost_expires_with_what_is_around_it(tmp_path: Path) -> None:
    log = made(tmp_path / "a", segment_bytes=400)
    log.flush()
    folder = crash(log, tmp_path / "b")
    first, _ = lose(folder, "a log in between")
    again = open_log(folder, recovery_point=24, now_ms=NOW + 1000, segment_bytes=400, **OPTIONS)
    again.update_config(again.config.override({"retention.ms": "1000"}))
    enforce_retention(again, NOW + 2000)
    assert (again.log_start_offset, is_damaged(again, first)) == (first, True)
    enforce_retention(again, NOW + 2001)
    assert again.log_start_offset == 24


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("elsewhere", ["both", "before", "after", "empty before"])
def test_a_gap_beside_what_may_come_from_elsewhere_is_read_over(
    tmp_path: Path, elsewhere: str, clean: bool
) -> None:
    """Compaction leaves such gaps in what Kafka wrote."""
    log = made(tmp_path / "a", batches=20, segment_bytes=400)
    before, gone, after, *_ = (segment.base_offset for segment in log.segments)
    log.close()
    folder = crash(log, tmp_path / "b")
    of_kafka = {"both": (before, after), "after": (after,)}.get(elsewhere, (before,))
    for base in of_kafka:
        for suffix in (".appendindex", ".summary"):
            (folder / f"{base:020d}{suffix}").unlink()
    if elsewhere == "empty before":
        (folder / f"{before:020d}.log").write_bytes(b"")
    for path in folder.glob(f"{gone:020d}.*"):
        path.unlink()
    for _ in range(2):
        again = open_log(
            folder, clean=clean, was_cut_off=False, recovery_point=40, segment_bytes=400, **OPTIONS
        )
        assert again.read(gone, 1000, True, PATIENT).read()[:8] == after.to_bytes(8, "big")
        assert again.damaged == ()
        if clean:
            again.close()


def test_an_empty_segment_within_another_is_removed(tmp_path: Path) -> None:
    """What was left of a roll that found no room for its second file."""
    log = made(tmp_path / "a", batches=6)
    for clean in (True, False):
        if clean:
            log.close()
        folder = crash_copy(tmp_path / "a", tmp_path / "b")
        for suffix in (".log", ".index"):
            (folder / f"{8:020d}{suffix}").touch()
        for _ in range(2):
            again = open_log(folder, clean=clean, recovery_point=12, **OPTIONS)
            assert (again.log_end_offset, fetch_all(again)) == (12, scan(log))
            assert not list(folder.glob(f"{8:020d}.*"))


def test_segments_that_hold_the_same_offsets_are_refused_by_name(tmp_path: Path) -> None:
    log = made(tmp_path / "a", batches=6)
    folder = crash(log, tmp_path / "b")
    other = made(tmp_path / "c", batches=1)
    shutil.copy(other.active.path(".log"), folder / f"{8:020d}.log")
    before = log_bytes(folder)
    for _ in range(2):
        with pytest.raises(CorruptLog) as refused:
            open_log(folder, **OPTIONS)
        for part in (
            f"{0:020d}.log holds offsets up to 11",
            f"{8:020d}.log begins with 8",
            "move the other out",
        ):
            assert part in str(refused.value)
        assert log_bytes(folder) == before


def test_damage_at_the_end_below_the_flushed_point_is_kept_and_its_offsets_are_not_given_again(
    tmp_path: Path,
) -> None:
    log = made(tmp_path / "a")
    starts = positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[11] + 66] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    assert again.log_end_offset == 24
    for offset in (22, 23):
        with pytest.raises(CorruptLog, match="read on from 24"):
            again.read(offset, 100, True, PATIENT)
    assert again.append(batch([NOW]), NOW).base_offset == 24
    assert scan(again)[-1].offset == 24
    # Not flushed, the same damage is a torn write.
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=22, **OPTIONS)
    assert again.log_end_offset == 22
    assert not again.damaged


def test_I9_recovering_again_changes_nothing(tmp_path: Path) -> None:
    log = made(tmp_path / "a", segment_bytes=700)
    folder = crash(log, tmp_path / "b")
    first = folder / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(bytes(data))
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    again = open_log(folder, recovery_point=10, segment_bytes=700, **OPTIONS)
    state = (scan(again), again.log_end_offset, again.damaged, log_bytes(folder))
    for clean in (False, False, True, True):
        if clean:
            again.close()
        again = open_log(folder, clean=clean, recovery_point=10, segment_bytes=700, **OPTIONS)
        assert (scan(again), again.log_end_offset, again.damaged, log_bytes(folder)) == state


def test_I9_a_recovery_that_is_itself_cut_short_is_begun_again(tmp_path: Path, disk: FaultyDisk) -> None:
    """Every change that a recovery makes to a file is a place where it may die."""
    log = made(tmp_path / "a", 30, segment_bytes=700)
    folder = crash(log, tmp_path / "b")
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    (folder / f"{0:020d}.index").unlink()
    whole = open_log(crash_copy(folder, tmp_path / "c"), segment_bytes=700, **OPTIONS)
    expected = (scan(whole), whole.log_end_offset)
    changes = 0
    while True:
        death = disk.die("truncate", "write", "remove", "make", after=changes)
        with suppress(Died):
            open_log(crash_copy(folder, tmp_path / "d"), segment_bytes=700, **OPTIONS)
        disk.heal()
        if not death.hits:
            break
        again = open_log(tmp_path / "d", segment_bytes=700, **OPTIONS)
        assert (scan(again), again.log_end_offset) == expected
        again.close()
        assert differences(tmp_path / "d", 150) == []
        changes += 1
    assert changes > 10


def crash_copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))


def test_S17_P7_only_what_lies_behind_the_recovery_point_is_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(tmp_path / "a", 30, segment_bytes=700)
    log.flush()
    once_flushed = log.active.save()
    folder = crash(log, tmp_path / "before the flush")
    log.active.write_summary(once_flushed)
    point = log.recovery_point
    fill(log, [[NOW + 500]])
    scanned = []
    verified = walk.verified

    def watched(file, position, end, base_offset, *args):
        scanned.append((base_offset, position, end))
        return verified(file, position, end, base_offset, *args)

    monkeypatch.setattr("tidelog.storage.walk.verified", watched)
    active = log.active
    before = active.size - (log.size_bytes - sum(segment.size for segment in log.segments))
    again = open_log(crash(log, tmp_path / "b"), recovery_point=point, segment_bytes=700, **OPTIONS)
    assert scan(again) == scan(log)
    assert [entry[0] for entry in scanned] == [active.base_offset]
    assert 0 < scanned[0][1] < scanned[0][2] == before
    again.close()
    assert differences(again.directory, 150) == []
    scanned.clear()
    # What a summary describes before it was flushed may be gone, whatever the checkpoint says.
    open_log(folder, recovery_point=point, segment_bytes=700, **OPTIONS)
    assert [entry[:2] for entry in scanned] == [(active.base_offset, 0)]


def test_P7_a_scan_reads_each_byte_of_a_log_once(tmp_path: Path) -> None:
    """The digests come from what the scan has read, and the header of the last batch does not need its records."""
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW]] * 4, value=b"v" * 500_000)
    folder = crash(log, tmp_path / "b")
    before = bytes_read()
    again = open_log(folder, **OPTIONS)
    assert bytes_read() - before < 1.2 * log.size_bytes
    assert scan(again) == scan(log)


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def test_P7_what_a_flush_covered_is_not_scanned_though_no_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.storage.durability.SAVE_INTERVAL_BYTES", 200)
    log = made(tmp_path / "a", 30, segment_bytes=700)
    log.flush()
    flushed = log.active.size
    fill(log, [[NOW + 400]])
    scanned = []
    verified = walk.verified

    def watched(file, position, end, base_offset, *args):
        scanned.append((base_offset, position))
        return verified(file, position, end, base_offset, *args)

    monkeypatch.setattr("tidelog.storage.walk.verified", watched)
    again = open_log(crash(log, tmp_path / "b"), segment_bytes=700, **OPTIONS)
    assert scan(again) == scan(log)
    assert scanned == [(log.active.base_offset, flushed)]
    # Nor is a summary believed that a crash kept while it took the flush.
    log = made(tmp_path / "c", 4)
    log.active.save()
    scanned.clear()
    open_log(crash(log, tmp_path / "d"), **OPTIONS)
    assert scanned == [(0, 0)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".summary"])
def test_every_bit_of_a_sidecar_is_either_checked_or_harmless(tmp_path: Path, suffix: str) -> None:
    log = made(tmp_path / "a", batches=6)
    log.roll(NOW)
    log.close()
    rows, good = scan(log), index_bytes(tmp_path / "a")
    path = tmp_path / "a" / f"{0:020d}{suffix}"
    data = path.read_bytes()
    rng = random.Random(suffix)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        folder = crash_copy(tmp_path / "a", tmp_path / "b")
        (folder / path.name).write_bytes(bytes(flipped))
        again = open_log(folder, clean=at % 2 == 0, recovery_point=12, **OPTIONS)
        assert fetch_all(again) == rows
        assert [first_at(again, row.timestamp, PATIENT) is not None for row in rows] == [True] * 12
        again.close()
        assert index_bytes(folder) == good


def test_every_bit_of_the_log_is_checked(tmp_path: Path) -> None:
    log = made(tmp_path / "a", batches=5)
    data = log.active.path(".log").read_bytes()
    rows, starts = scan(log), positions(log)
    for at in range(len(data)):
        number = sum(start <= at for start in starts) - 1
        place = at - starts[number]
        flipped = bytearray(data)
        flipped[at] ^= 1
        again = open_log(copied(log, tmp_path / "b", bytes(flipped)), recovery_point=10, **OPTIONS)
        if 12 <= place < 16:
            # The leader epoch is outside the checksum. What the batches around tell costs its batch, else nothing does.
            assert scan(again) in (rows, [row for row in rows if row.offset // 2 != number])
            assert (scan(again) == rows) == (number in (0, 4))
        elif place < 8:
            # The offset is outside of it too: the batches around tell, but for the last one, which nothing contradicts.
            assert [row for row in scan(again) if row in rows] == [r for r in rows if r.offset // 2 != number]
            assert number == 4 or len(scan(again)) == 8
        else:
            assert scan(again) == [row for row in rows if row.offset // 2 != number]


@pytest.mark.parametrize("missing", [".index", ".timeindex", ".summary", ".log"])
def test_files_that_are_missing(tmp_path: Path, missing: str) -> None:
    log = made(tmp_path / "a", 30, segment_bytes=700)
    log.close()
    rows, good = scan(log), index_bytes(tmp_path / "a")
    bases = [segment.base_offset for segment in log.segments]
    folder = crash_copy(tmp_path / "a", tmp_path / "b")
    (folder / f"{bases[1]:020d}{missing}").unlink()
    again = open_log(folder, segment_bytes=700, **OPTIONS)
    if missing == ".log":
        assert scan(again) == [row for row in rows if not bases[1] <= row.offset < bases[2]]
        assert is_damaged(again, bases[1])
    else:
        assert scan(again) == rows
        again.close()
        assert index_bytes(folder) == good


# Fields of a batch: offset (low and high), length of the last delta, count, a record.
@pytest.mark.parametrize(("place", "is_exact"), [(3, True), (7, True), (26, False), (60, False), (66, True)])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_V10_I2_a_complete_batch_at_the_end_that_is_wrong_is_damage_and_was_no_torn_write(
    tmp_path: Path, place: int, is_exact: bool, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill leaves a beginning of what was written: nobody knows whether the rest of it was acknowledged."""
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    for number, at in ((10, place), (11, 66)):
        data[starts[number] + at] ^= 8
    folder = copied(log, tmp_path / "b", bytes(data))
    for _ in range(2):
        again = open_log(folder, clean=clean, was_cut_off=False, **OPTIONS)
        assert again.damaged == (f"{0:020d}.log@{starts[10]}-{len(data)}",)
        assert scan(again) == rows[:20]
        assert all(is_damaged(again, offset) for offset in range(20, 24))
        end = again.log_end_offset
        assert end == 24 if is_exact else end > 24
        assert log_bytes(folder)[f"{0:020d}.log"] == data
        if clean:
            again.close()
    again = open_log(folder, was_cut_off=False, **OPTIONS)
    assert again.append(batch([NOW]), NOW).base_offset == end
    # After a power cut nobody can tell it from a write that reached the disk in part: it goes, and the log says so.
    caplog.clear()
    again = open_log(copied(log, tmp_path / "b", bytes(data)), **OPTIONS)
    assert (again.log_end_offset, again.damaged) == (20, ())
    assert f"is cut file={folder}/{0:020d}.log from={starts[10]} to={len(data)}" in caplog.text


def test_I4_what_is_incomplete_after_a_damaged_batch_is_kept_with_it(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    starts = positions(log)
    data = bytearray(log.active.path(".log").read_bytes())[:-1]
    data[starts[10] + 66] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), was_cut_off=False, **OPTIONS)
    assert again.damaged == (f"{0:020d}.log@{starts[10]}-{len(data)}",)
    assert again.append(batch([NOW]), NOW).base_offset == 22  # The last batch was never acknowledged.


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 2])
def test_V10_I2_messages_of_older_formats_at_the_end_that_are_wrong_are_damage(
    tmp_path: Path, magic: int, codec: int
) -> None:
    log = open_log(tmp_path / "a", message_format_version=str(magic))
    for _ in range(3):
        records = [Record(n, NOW, None, b"v") for n in range(4)]
        log.append(bytearray(build_message_set(records, magic=magic, codec=codec)), NOW, any_format=True)
    assert log.log_end_offset == 12
    data = bytearray(log.active.path(".log").read_bytes())
    data[-1] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), was_cut_off=False)
    assert again.damaged
    assert again.append(batch([NOW]), NOW).base_offset == 12


def test_an_empty_segment_behind_a_torn_one_goes_with_the_tail(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    log.roll(NOW)
    folder = crash(log, tmp_path / "b")
    first = folder / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:-1])
    again = open_log(folder, **OPTIONS)
    assert (again.log_end_offset, len(again.segments)) == (22, 1)
    assert [path.name for path in folder.glob("*.log")] == [first.name]
    again.close()
    assert differences(folder, 150) == []


@pytest.mark.parametrize("was_cut_off", [False, True])
def test_a_torn_tail_is_cut_from_this_log_and_not_from_a_copy_by_hard_links(
    tmp_path: Path, was_cut_off: bool
) -> None:
    folder = crash(made(tmp_path / "a"), tmp_path / "b")
    first = folder / f"{0:020d}.log"
    data = first.read_bytes()[:-1]
    first.write_bytes(data)
    shared = tmp_path / "shared.log"
    shared.hardlink_to(first)
    again = open_log(folder, was_cut_off=was_cut_off, **OPTIONS)
    assert again.log_end_offset == 22
    assert again.append(batch([NOW]), NOW).base_offset == 22
    assert [record.offset for record in scan(again)] == list(range(23))
    assert shared.read_bytes() == data
    again.close()
    assert differences(folder, 150) == []


def test_a_log_that_lost_what_lies_before_its_start_goes_on_from_there(tmp_path: Path) -> None:
    log = made(tmp_path / "a", batches=2)
    again = open_log(crash(log, tmp_path / "b"), log_start_offset=50, **OPTIONS)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.append(batch([NOW]), NOW).base_offset == 50


def test_KIP101_an_unclean_start_begins_an_epoch_and_a_clean_one_does_not(tmp_path: Path) -> None:
    log = made(tmp_path, batches=2)
    assert (log.leader_epoch, log.epochs.end_of(0, log.log_end_offset)) == (0, (0, 4))
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=4, **OPTIONS)
    assert log.leader_epoch == 0
    log = open_log(tmp_path, **OPTIONS)
    assert (
        log.leader_epoch,
        log.epochs.end_of(0, log.log_end_offset),
        log.epochs.end_of(1, log.log_end_offset),
    ) == (1, (0, 4), (1, 4))
    fill(log, [[NOW]])
    assert [log.epochs.at(offset) for offset in (0, 3, 4)] == [0, 0, 1]
    (tmp_path / "leader-epoch-checkpoint").write_text("0\nbroken")
    log = open_log(tmp_path, clean=True, **OPTIONS)
    assert list(log.epochs.entries) == [(0, 0), (1, 4)]


@pytest.mark.parametrize("same_boot", [True, False])
def test_V10_what_a_crash_cannot_have_done_is_damage(tmp_path: Path, same_boot: bool) -> None:
    """Within a run of the system all that was written is there: only a power cut takes what no flush covers."""
    manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
    manager.open()
    log = manager.create("topic", 0, bytes(range(16)), TopicConfig(**KEEP_ALL))
    fill(log, [[NOW + n] for n in range(10)])
    path = log.active.path(".log")
    manager.abandon()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if not same_boot:
        (tmp_path / "boot-id").write_text("another\n")
    manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
    manager.open()
    log = manager.logs["topic", 0]
    if same_boot:
        assert [row.offset for row in scan(log)] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert is_damaged(log, 5)
        assert log.append(batch([NOW]), NOW).base_offset == 10
    else:
        assert [row.offset for row in fetch_all(log)] == [0, 1, 2, 3, 4]
    assert (tmp_path / "boot-id").read_bytes() == files.boot_id()
    manager.close()


def flush(log: Log) -> None:
    log.flush()


def cut(log: Log) -> None:
    log.truncate(0)


@pytest.mark.parametrize("act", [flush, cut])
def test_after_a_failed_sync_nothing_that_was_written_is_taken_for_granted(
    tmp_path: Path, disk: FaultyDisk, act: Callable[[Log], None]
) -> None:
    manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
    manager.open()
    log = manager.create("topic", 0, bytes(range(16)), TopicConfig(**KEEP_ALL))
    fill(log, [[NOW]])
    assert layout.is_same_boot(tmp_path)

    with disk.failing("sync", of="*.log"), pytest.raises(LogOffline):
        act(log)
    assert not layout.is_same_boot(tmp_path)
    for again in (flush, cut):
        with pytest.raises(LogOffline, match="restart"):
            again(log)
    manager.abandon()


@pytest.mark.parametrize(("number", "is_trusted"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_after_a_write_that_the_disk_refused_nothing_that_was_written_is_taken_for_granted(
    tmp_path: Path, disk: FaultyDisk, number: int, is_trusted: bool
) -> None:
    """The disk may have gone, with what was written to it; that there is no room says nothing of that."""
    manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
    manager.open()
    log = manager.create("topic", 0, bytes(range(16)), TopicConfig(**KEEP_ALL))
    manager._is_boot_saved = False  # As where a full disk has kept the start from it.

    with disk.failing("write", error=number), pytest.raises(LogOffline):
        fill(log, [[NOW]])
    fill(log, [[NOW]])
    at_once(manager.look_after())
    assert layout.is_same_boot(tmp_path) == is_trusted
    manager.abandon()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_F8_P12_a_sync_that_fails_while_what_a_start_owes_is_paid_is_final(
    tmp_path: Path, disk: FaultyDisk, number: int
) -> None:
    """What lies before a cut was not on disk for sure: another sync would say that it is."""
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 10)
    path = log.active.path(".log")
    size = path.stat().st_size
    data = bytearray(path.read_bytes())
    data[size * 3 // 4] ^= 1
    path.write_bytes(data)
    with disk.failing("truncate", of="*.log", error=errno.ENOSPC):
        again = open_log(tmp_path)
    assert again.health.failure is not None
    assert not again.health.is_final
    with disk.failing("sync", of="*.log", error=number):
        again.mend()
    for _ in range(2):
        again.mend()
        with pytest.raises(LogOffline, match="restart"):
            again.append(batch([NOW]), NOW)
    assert [row.offset for row in scan(again)] == list(range(7))


def test_P12_I5_what_a_start_owes_to_a_segment_that_was_written_in_part_keeps_no_log_from_writes(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """A full disk took a part of a last time entry; the indexes were let go, and do not fit any more."""
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW + n] for n in range(10)])
    log.flush()
    first = log.active
    first.save(flushed=True)
    kept = {suffix: first.path(suffix).read_bytes() for suffix in (".summary", ".timeindex", ".index")}
    log.roll(NOW)
    fill(log, [[NOW]])
    for suffix, data in kept.items():
        first.path(suffix).write_bytes(data)
    disk.fill("*0.timeindex", room=5)
    disk.fail("write", of=("*.log", "*.index", "*.summary"), error=errno.ENOSPC)
    again = open_log(tmp_path, recovery_point=10, index_interval_bytes=100)
    assert not again.takes_writes
    disk.heal()
    again.mend()
    assert again.health.failure is None
    assert [row.offset for row in scan(again)] == list(range(11))
    again.close()
    assert differences(tmp_path, 100) == []


def test_P12_I5_what_a_start_owes_to_a_segment_that_is_let_go_is_not_an_index_without_entries(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW + n] for n in range(30)])
    first = log.active
    log.roll(NOW)
    fill(log, [[NOW]])
    log.flush()
    data = bytearray(first.path(".log").read_bytes())
    data[-3] ^= 1
    first.path(".log").write_bytes(data)
    disk.fail("write", error=errno.ENOSPC)
    again = open_log(tmp_path, recovery_point=31, index_interval_bytes=100)
    again.release()  # as each round of retention does
    disk.heal()
    again.mend()
    assert again.health.failure is None
    assert [row.offset for row in scan(again)] == [*range(29), 30]
    assert len(again.segments[0].offset_index) > 5
    with pytest.raises(CorruptLog, match="read on from 30"):
        again.read(29, 1 << 20, True, PATIENT)
    again.close()
    assert len(open_log(tmp_path, recovery_point=31, index_interval_bytes=100).segments[0].offset_index) > 5


def test_P12_I2_a_lost_segment_whose_sidecars_a_start_cannot_remove_is_marked_once_they_are_gone(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """The mark has files of the same names."""
    log = open_log(tmp_path, index_interval_bytes=0)
    for number in range(3):
        fill(log, [[NOW + number]] * 3)
        log.roll(NOW)
    log.flush()
    lost = log.segments[1]
    lost.path(".log").unlink()
    assert lost.path(".index").stat().st_size

    with disk.failing("remove", error=errno.ENOSPC):
        again = open_log(tmp_path, recovery_point=9)
    assert again.health.failure is not None
    again.mend()
    assert again.health.failure is None
    for each in (again, open_log(tmp_path, recovery_point=9)):
        assert [row.offset for row in scan(each)] == [0, 1, 2, 6, 7, 8]
        assert [is_damaged(each, offset) for offset in (2, 3, 5, 6)] == [False, True, True, False]
    assert differences(tmp_path, 0) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    "left",
    [
        "topic-0/00000000000000000099.snapshot",
        "topic-0/00000000000000000099.index",
        "topic-0/00000000000000000001.log",
        "topic-0/leader-epoch-checkpoint.tmp",
        "recovery-point-offset-checkpoint.tmp",
    ],
)
def test_P12_what_a_disk_does_not_let_a_start_remove_is_of_one_log(
    tmp_path: Path, disk: FaultyDisk, left: str, number: int
) -> None:
    def started() -> LogManager:
        manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
        manager.open(lambda _: TopicConfig(**KEEP_ALL))
        return manager

    manager = started()
    for partition in range(2):
        fill(manager.create("topic", partition, bytes(range(16)), TopicConfig(**KEEP_ALL)), [[NOW]] * 2)
    manager.abandon()
    (tmp_path / left).write_bytes(b"")
    with disk.failing("remove", of=left.removesuffix(".tmp"), error=number):
        manager = started()
    for log in manager.logs.values():
        assert [row.offset for row in scan(log)] == [0, 1]
        log.mend()
    is_final = number == errno.EIO and "/" in left
    assert [log.health.failure is None for log in manager.logs.values()] == [not is_final, True]
    manager.abandon()


def damaged_by_a_power_cut(folder: Path) -> None:
    """Leave logs of which one has a tail to cut, a deletion to finish and a snapshot that is of no use."""
    manager = LogManager(folder, BrokerConfig(log_dir=folder), lambda: NOW)
    manager.open()
    for number in range(2):
        log = manager.create("topic", number, bytes(range(16)), TopicConfig(**KEEP_ALL, segment_bytes=250))
        fill(log, [[NOW + n] for n in range(4)])
        log.flush()
    fill(log, [[NOW + n] for n in range(4)])
    log.snapshots.write()
    manager.checkpoint()
    manager.abandon()
    (folder / "boot-id").write_text("another\n")
    last = log.active.path(".log")
    last.write_bytes(last.read_bytes()[:-3])
    (log.directory / f"{90:020d}.snapshot").write_bytes(b"of no use")
    (log.directory / f"{0:020d}.index.deleted").touch()
    (log.directory / f"{0:020d}.log").rename(log.directory / f"{0:020d}.log.deleted")


def test_F8_P12_a_sync_that_fails_at_the_start_is_of_one_log_and_final(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    for nth in range(1, 20):
        folder = tmp_path / str(nth)
        damaged_by_a_power_cut(folder)
        caplog.clear()
        fault = disk.fail("sync", of=("topic-1", "topic-1/*"), after=nth - 1, times=1)
        manager = LogManager(folder, BrokerConfig(log_dir=folder), lambda: NOW)
        manager.open()
        good, bad = (manager.logs["topic", number] for number in range(2))
        disk.heal()
        if not fault.hits:
            break
        assert "flush failed log=topic-1" in caplog.text
        assert not layout.is_same_boot(folder)
        rows = scan(bad)
        assert rows == fetch_all(bad) != []
        for _ in range(2):
            with pytest.raises(LogOffline, match="repair the disk and restart"):
                fill(bad, [[NOW]])
            bad.mend()
        fill(good, [[NOW]])
        assert not manager.close()
        manager = LogManager(folder, BrokerConfig(log_dir=folder), lambda: NOW)
        manager.open()
        bad = manager.logs["topic", 1]
        assert scan(bad) == rows
        fill(bad, [[NOW]])
        bad.flush()
        manager.abandon()
    assert nth > 4


def test_a_topic_with_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    manager = LogManager(tmp_path, BrokerConfig(log_dir=tmp_path), lambda: NOW)
    manager.open()
    for partition in range(2):
        manager.create("a" * 249, partition, bytes(range(16)), TopicConfig(**KEEP_ALL))
    at_once(manager.delete_topic("a" * 249))
    assert not manager.logs
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    manager.close()


def test_I1_what_was_flushed_behind_the_logs_start_stays_where_less_is_left_before_it(tmp_path: Path) -> None:
    """The segments before the start are to be deleted: it does not matter what a power cut took of them."""
    log = made(tmp_path / "a", batches=2)
    log = open_log(crash(log, tmp_path / "b"), log_start_offset=6, **OPTIONS)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (6, 6, 2)
    fill(log, [[NOW], [NOW + 1]])
    log.flush()
    for start in (6, 7):
        again = open_log(crash(log, tmp_path / f"c{start}"), log_start_offset=start, **OPTIONS)
        assert [row.offset for row in scan(again)] == [*range(start, 8)]
        assert (again.log_end_offset, again.damaged) == (8, ())
    # Behind the start nothing can follow a gap that no flush has covered.
    again = open_log(crash(log, tmp_path / "d"), log_start_offset=3, **OPTIONS)
    assert (again.log_start_offset, again.log_end_offset) == (3, 4)


def test_I5_an_index_that_a_deletion_took_of_a_segment_before_the_start_is_missed_by_nobody(
    tmp_path: Path,
) -> None:
    """A power cut has undone a deletion in part: the log has its name again, and its index has not."""
    options = {"segment_bytes": 300, "index_interval_bytes": 10}
    log = made(tmp_path / "a", batches=12, **options)
    log.flush()
    start = log.segments[2].base_offset
    folder = crash(log, tmp_path / "b")
    log.segments[0].path(".index").rename(folder / f"{0:020d}.index.deleted")
    (folder / f"{0:020d}.index").unlink()
    log = open_log(folder, log_start_offset=start, recovery_point=log.log_end_offset, **options)
    assert log.segments[0].base_offset == 0
    assert [row.offset for row in fetch_all(log)] == [*range(start, 24)]
    assert first_at(log, 0, PATIENT) == (NOW + start * 5, start, log.epochs.at(start))
    assert log.damaged == ()
    enforce_retention(log, NOW)
    assert (log.segments[0].base_offset, log.damaged) == (start, ())


def test_I5_a_sealed_segment_has_its_last_time_entry_though_a_power_cut_took_the_sealing(
    tmp_path: Path,
) -> None:
    """Its summary is that of a flush before, which vouches for all of the log and for the time index without it."""
    log = made(tmp_path / "a", batches=4, index_interval_bytes=4096)
    log.flush()
    log.active.save(flushed=True)
    before = {suffix: log.active.path(suffix).read_bytes() for suffix in (".summary", ".timeindex")}
    log.roll(NOW)
    folder = crash(log, tmp_path / "b")
    for suffix, data in before.items():
        (folder / f"{0:020d}{suffix}").write_bytes(data)
    expected = log.segments[0].path(".timeindex").read_bytes()
    assert before[".timeindex"] != expected
    again = open_log(folder, recovery_point=log.recovery_point, index_interval_bytes=4096)
    assert (folder / f"{0:020d}.timeindex").read_bytes() == expected
    assert scan(again) == scan(log)
    assert again.close()
    again = open_log(folder, clean=True, recovery_point=8, index_interval_bytes=4096)
    assert (again.segments[0].summary.flushed, len(again.segments[0].time_index)) == (1, 1)


def test_epochs_that_a_cut_left_and_batches_that_it_did_not_take_agree(tmp_path: Path) -> None:
    """A cut that failed half way may be undone by a power cut, though a start in between began an epoch behind it."""
    log = made(tmp_path / "a", batches=4)
    data = log.active.path(".log").read_bytes()
    folder = copied(log, tmp_path / "b", data[: positions(log)[1]])
    assert open_log(folder, **OPTIONS).epochs.entries == ((0, 0), (1, 2))
    (folder / f"{0:020d}.log").write_bytes(data)
    again = open_log(folder, **OPTIONS)
    assert (again.log_end_offset, again.epochs.entries) == (8, ((0, 0), (2, 8)))


def test_I2_a_cut_that_a_kill_came_upon_is_on_disk_before_a_stop_vouches_for_the_log(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = made(tmp_path / "a", batches=4)
    log.flush()
    folder = copied(log, tmp_path / "b", log.active.path(".log").read_bytes()[: positions(log)[1]])
    disk.calls.clear()
    log = open_log(folder, recovery_point=2, **OPTIONS)  # as the checkpoint says before a cut
    assert log.log_end_offset == log.recovery_point == 2
    assert log.close()
    assert log.active.path(".log") in disk.paths("sync")


def test_V10_what_no_flush_covers_is_cut_behind_damage_that_one_did(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    data, starts = bytearray(log.active.path(".log").read_bytes()), positions(log)
    for number in (3, 8):
        data[starts[number] + 8] ^= 0x40  # its length: no way leads over it
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=10, **OPTIONS)
    assert [row.offset for row in scan(again)] == [0, 1, 2, 3, 4, 5, *range(8, 16)]
    assert (again.log_end_offset, again.size_bytes) == (16, starts[8])
    assert is_damaged(again, 6)
