"""What a crash or a bad disk leaves behind: torn tails, damage, lost and false files; and recovering twice."""

import logging
import random
import shutil
from pathlib import Path

import pytest

from tests.support.logs import (
    NOW,
    Row,
    batch,
    crash,
    fetch_all,
    fill,
    index_bytes,
    is_damaged,
    log_bytes,
    open_log,
    scan,
)
from tests.support.reference_index import differences
from tidelog.storage import files, seek, walk
from tidelog.storage.errors import CorruptLog
from tidelog.storage.log import Log

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
    log.close()
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
            again.read(2 * number, 100, True)
        assert again.log_end_offset == 24
        assert (tmp_path / "b" / f"{0:020d}.log").read_bytes() == bytes(data)
        appended = again.append(batch([NOW + 999]), NOW)
        assert appended.base_offset == 24
        expected = [*(row for row in rows if row.offset not in lost), Row(24, NOW + 999, b"v0")]
        for wanted in range(NOW, NOW + 130):
            found = seek.first_at_or_after(again, wanted)
            first = next((row for row in expected if row.timestamp >= wanted), None)
            assert (found and found[:2]) == (first and (first.timestamp, first.offset))


def test_V10_a_fetch_stops_before_the_damage(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    starts = positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[5] + 66] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    piece = again.read(0, 1 << 20, True)
    assert (piece.position, len(piece)) == (0, starts[5])
    assert again.read(12, 1 << 20, True).position == starts[6]


@pytest.mark.parametrize("field", [3, 8, 11, 16, 23])
def test_a_damaged_header_does_not_lose_the_batches_behind_it(tmp_path: Path, field: int) -> None:
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[4] + field] ^= 0x21
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    assert scan(again) == [row for row in rows if row.offset not in (8, 9)]
    assert [is_damaged(again, offset) for offset in (7, 8, 9, 10)] == [False, True, True, False]


def test_damage_with_batches_behind_it_is_kept_even_where_nothing_was_flushed(tmp_path: Path) -> None:
    log = made(tmp_path / "a")
    rows, starts = scan(log), positions(log)
    data = log.active.path(".log").read_bytes()
    holes = data[: starts[3]] + bytes(starts[6] - starts[3]) + data[starts[6] :]
    again = open_log(copied(log, tmp_path / "b", holes), **OPTIONS)
    assert scan(again) == rows[:6] + rows[12:]
    assert again.damaged == (f"{0:020d}.log@{starts[3]}-{starts[6]}",)


def test_damage_at_the_end_below_the_flushed_point_is_kept_and_its_offsets_are_not_given_again(
    tmp_path: Path,
) -> None:
    log = made(tmp_path / "a")
    starts = positions(log)
    data = bytearray(log.active.path(".log").read_bytes())
    data[starts[11] + 66] ^= 1
    again = open_log(copied(log, tmp_path / "b", bytes(data)), recovery_point=24, **OPTIONS)
    assert again.log_end_offset == 24
    assert is_damaged(again, 22)
    assert is_damaged(again, 23)
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


def test_I9_a_recovery_that_is_itself_cut_short_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        died = die_at(monkeypatch, changes, folder)
        with monkeypatch.context() as patch:
            for name in ("File.truncate", "File.write_at", "write", "remove", "create"):
                patch.setattr(f"tidelog.storage.files.{name}", died(name))
            try:
                open_log(crash_copy(folder, tmp_path / "d"), segment_bytes=700, **OPTIONS)
            except Died:
                pass
            else:
                break
        again = open_log(tmp_path / "d", segment_bytes=700, **OPTIONS)
        assert (scan(again), again.log_end_offset) == expected
        again.close()
        assert differences(tmp_path / "d", 150) == []
        changes += 1
    assert changes > 10


class Died(Exception):
    """The process ended here."""


def crash_copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))


def die_at(monkeypatch: pytest.MonkeyPatch, number: int, folder: Path):
    """Return a maker of stand-ins for file calls, which count together and die at the given one."""
    left = [number]

    def stand_in(name: str):
        owner, _, attribute = name.rpartition(".")
        real = getattr(getattr(files, owner) if owner else files, attribute)

        def call(*args: object, **kwargs: object) -> object:
            if left[0] == 0:
                raise Died
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    return stand_in


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


def test_P7_what_a_flush_covered_is_not_scanned_though_no_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.storage.log.SAVE_INTERVAL_BYTES", 200)
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
        assert [seek.first_at_or_after(again, row.timestamp) is not None for row in rows] == [True] * 12
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
            assert scan(again) == rows  # the leader epoch is outside the checksum, and harmless
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
        # A segment that is gone leaves a gap; the rest is there.
        assert scan(again) == [row for row in rows if not bases[1] <= row.offset < bases[2]]
        assert again.read(bases[1], 1000, True).read()[:8] == bases[2].to_bytes(8, "big")
    else:
        assert scan(again) == rows
        again.close()
        assert index_bytes(folder) == good


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


def test_a_log_that_lost_what_lies_before_its_start_goes_on_from_there(tmp_path: Path) -> None:
    log = made(tmp_path / "a", batches=2)
    again = open_log(crash(log, tmp_path / "b"), log_start_offset=50, **OPTIONS)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert again.append(batch([NOW]), NOW).base_offset == 50


def test_KIP101_an_unclean_start_begins_an_epoch_and_a_clean_one_does_not(tmp_path: Path) -> None:
    log = made(tmp_path, batches=2)
    assert (log.leader_epoch, log.epoch_end(0)) == (0, (0, 4))
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=4, **OPTIONS)
    assert log.leader_epoch == 0
    log = open_log(tmp_path, **OPTIONS)
    assert (log.leader_epoch, log.epoch_end(0), log.epoch_end(1)) == (1, (0, 4), (1, 4))
    fill(log, [[NOW]])
    assert [log.epoch_at(offset) for offset in (0, 3, 4)] == [0, 0, 1]
    (tmp_path / "leader-epoch-checkpoint").write_text("0\nbroken")
    log = open_log(tmp_path, clean=True, **OPTIONS)
    assert list(log.epochs.entries) == [(0, 0), (1, 4)]
