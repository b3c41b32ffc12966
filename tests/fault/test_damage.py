"""P9, P27, V10: damage is found before it is served, whatever was stopped how; and what recovery may believe."""

import errno
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, Row, batch, fill, first_at, is_damaged, open_log, scan, whole_rows
from tests.support.reference_index import differences
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, walk
from tidelog.storage.errors import CorruptLog, OffsetOutOfRange, ReadFailed, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT, WAITING, WARM
from tidelog.storage.summary import Summary
from tidelog.storage.upkeep import enforce_retention

OPTIONS = {"index_interval_bytes": 150}
CODECS = {"plain": 0, "compressed": 4}


class Answers(NamedTuple):
    """What a log answers: the bytes from each offset on, None where they are damaged; and each time's record."""

    reads: list[bytes | None]
    found: list[tuple[int, int, int] | None]


def made(folder: Path, codec: int) -> Log:
    """Make a log of several segments and of two leader epochs, times not in order, and stop it cleanly."""
    log = open_log(folder, **OPTIONS)
    fill(log, [[NOW + 30, NOW + 10], [NOW + 20], [NOW, NOW + 40]], codec=codec)
    log.flush()
    log = open_log(folder, recovery_point=log.recovery_point, **OPTIONS)
    fill(log, [[NOW + 50, NOW + 60], [NOW + 55]], codec=codec)
    log.roll(NOW)
    fill(log, [[NOW + 70] * 10])
    log.roll(NOW)
    fill(log, [[NOW + 90], [NOW + 80, NOW + 100]], codec=codec)
    log.close()
    assert len(log.segments) == 3
    assert list(log.epochs.entries) == [(0, 0), (1, 5)]
    return log


def answers(log: Log, times: Sequence[int], lookups_first: bool = False) -> Answers:
    """Ask for every offset and every time."""

    def read(offset: int) -> bytes | None:
        try:
            return bytes(log.read(offset, 1, True, PATIENT).read())
        except CorruptLog as error:
            return None if f"offset {offset} is in damaged bytes" in str(error) else b"another error"

    if lookups_first:
        found = [first_at(log, at, PATIENT) for at in times]
    reads = [read(offset) for offset in range(log.log_start_offset, log.log_end_offset)]
    if not lookups_first:
        found = [first_at(log, at, PATIENT) for at in times]
    return Answers(reads, found)


def expected(rows: list[Row], log: Log, times: Sequence[int]) -> list[tuple[int, int, int] | None]:
    """Return each time's record by a look at all of them."""
    first = [next((row for row in rows if row.timestamp >= at), None) for at in times]
    return [row and (row.timestamp, row.offset, log.epochs.at(row.offset)) for row in first]


def flipped(folder: Path, to: Path, name: str, at: int, bit: int) -> Path:
    """Copy a folder with one bit of a file changed."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    data = bytearray((to / name).read_bytes())
    data[at] ^= 1 << bit
    (to / name).write_bytes(data)
    return to


def batches(log: Log) -> Iterator[tuple[str, int, int, range]]:
    """Yield file, first position, position behind and offsets of each batch."""
    for segment, position, header in log.headers(0):
        offsets = range(header.base_offset, header.last_offset + 1)
        yield segment.path(".log").name, position, position + header.size_bytes, offsets


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: what is cut off by a crash is not the question here."""
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".summary", "checkpoint"])
@pytest.mark.parametrize(("codec", "block_bytes"), [("plain", 128), ("compressed", 1 << 16)])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.all)])
def test_P9_P27_V10_a_flipped_bit_anywhere_costs_its_batch_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, block_bytes: int, suffix: str, step: int
) -> None:
    """Of each byte, or of every fifth, which are others with each file."""
    monkeypatch.setattr("tidelog.storage.blocks.BLOCK_BYTES", block_bytes)
    log = made(tmp_path / "a", CODECS[codec])
    end, rows, where = log.log_end_offset, scan(log), list(batches(log))
    times = [NOW - 1, *sorted({row.timestamp for row in rows}), NOW + 1000]
    good = answers(log, times)
    assert good.found == expected(rows, log, times)
    rng = random.Random(codec)
    for name in [path.name for path in sorted((tmp_path / "a").iterdir()) if path.name.endswith(suffix)]:
        for at in range(rng.randrange(step), (tmp_path / "a" / name).stat().st_size, step):
            folder = flipped(tmp_path / "a", tmp_path / "b", name, at, rng.randrange(8))
            again = open_log(folder, clean=True, recovery_point=end, **OPTIONS)
            lost = next(
                (o for file, start, stop, o in where if file == name and start <= at < stop), range(0)
            )
            reads = [None if offset in lost else good.reads[offset] for offset in range(end)]
            without = expected([row for row in rows if row.offset not in lost], log, times)
            first = answers(again, times, lookups_first=at % 2 == 0)
            assert first.reads == reads, (name, at)
            for found, right, rest in zip(first.found, good.found, without, strict=True):
                assert found in (right, rest), (name, at)
            assert again.log_end_offset == end
            assert answers(again, times) == (reads, without), (name, at)
            # And so it stays, however it is stopped.
            is_clean = at % 4 == 0
            if is_clean:
                again.close()
            again = open_log(folder, clean=is_clean, recovery_point=end, **OPTIONS)
            assert answers(again, times) == (reads, without), (name, at)
            assert again.append(batch([NOW]), NOW).base_offset == end


def image(folder: Path, to: Path) -> Path:
    """Copy a folder as a crash leaves it."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))


def check(folder: Path, rows: list[Row], recovery_point: int, *, clean: bool = False) -> Log:
    """Open a log and compare everything that it answers, by offset and by time, with the records it should have."""
    log = open_log(folder, clean=clean, recovery_point=recovery_point, **OPTIONS)
    assert not log.damaged
    for row in rows:
        data = log.read(row.offset, 1, True, PATIENT).read()
        assert row in whole_rows(data)
    for at in sorted({row.timestamp for row in rows if row.timestamp >= 0}):
        found = first_at(log, at, PATIENT)
        first = next(row for row in rows if row.timestamp >= at)
        assert found is not None
        assert found[:2] == (first.timestamp, first.offset)
    assert scan(log) == rows
    assert not log.damaged
    return log


def test_I1_a_summary_of_bytes_that_a_power_cut_took_is_not_believed_later(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW], [NOW + 10]])
    log.flush()
    kept, point = log.active.size, log.recovery_point
    fill(log, [[NOW + 100], [NOW + 90]])
    log.active.save()  # as every 16 MiB; before the flush is over the power goes, and takes what was not flushed
    folder = image(tmp_path / "a", tmp_path / "b")
    path = folder / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:kept])
    log = open_log(folder, recovery_point=point, **OPTIONS)
    assert log.log_end_offset == 2
    fill(log, [[NOW + 20], [NOW + 30], [NOW + 40]], value=b"other")
    log.flush()
    rows = scan(log)
    check(image(folder, tmp_path / "c"), rows, log.recovery_point)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("same_end", [True, False])
def test_a_summary_that_says_flushed_is_not_believed_of_other_bytes_of_the_same_length(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    clean: bool,
    same_end: bool,
) -> None:
    monkeypatch.setattr("tidelog.storage.blocks.BLOCK_BYTES", 128)
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW + 90], [NOW + 20], [NOW + 30], [NOW + 40], [NOW + 50]])
    log.close()
    other = open_log(tmp_path / "b", **OPTIONS)
    fill(
        other, [[NOW + 10], [NOW + 20], [NOW + 30], [NOW + 40], [NOW + (50 if same_end else 99)]], value=b"v"
    )
    other.close()
    (tmp_path / "b" / f"{0:020d}.summary").write_bytes((tmp_path / "a" / f"{0:020d}.summary").read_bytes())
    rows = scan(other)
    log = check(tmp_path / "b", rows, 5, clean=clean)
    assert "rebuilt from the log" in caplog.text
    assert "reason=summary-not-of-this-log" in caplog.text
    fill(log, [[NOW + 60]])
    log.flush()
    rows = scan(log)
    caplog.clear()
    # What was found is written down: after a crash at the latest, as then the end is looked at.
    again = check(image(tmp_path / "b", tmp_path / "c"), rows, 6)
    again.close()
    caplog.clear()
    check(tmp_path / "c", rows, 6, clean=True)
    assert not caplog.records


def test_a_summary_that_ends_elsewhere_than_was_flushed_is_held_against_the_log_at_once(
    tmp_path: Path,
) -> None:
    two = batch([NOW, NOW], bytes(50))
    one = next(each for each in (batch([NOW], bytes(n)) for n in range(200)) if len(each) == len(two))
    for name, data in (("a", two), ("b", one)):
        log = open_log(tmp_path / name, **OPTIONS)
        log.append(data, NOW)
        log.close()
    name = log.active.path(".summary").name
    (tmp_path / "b" / name).write_bytes((tmp_path / "a" / name).read_bytes())
    log = open_log(tmp_path / "b", clean=True, recovery_point=1, **OPTIONS)
    assert log.append(batch([NOW]), NOW).base_offset == 1
    assert [row.offset for row in scan(log)] == [0, 1]


def test_a_summary_of_more_than_there_is_goes_before_the_log_takes_an_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW], [NOW + 10], [NOW + 20]], now_ms=NOW + 77)
    log.close()
    path = tmp_path / "a" / f"{0:020d}.log"
    size = len(path.read_bytes())
    path.write_bytes(path.read_bytes()[: size // 3])  # an older copy of the log, put back
    log = open_log(tmp_path / "a", **OPTIONS)
    summary = Summary.load(log.segments[0].path(".summary"))
    assert summary is not None
    assert (summary.flushed, summary.log_bytes, summary.first_append_ms) == (0, size // 3, NOW + 77)
    # What it held was on disk: its offsets are not given out again.
    fill(log, [[NOW + 1], [NOW + 2]], value=b"w")
    rows = scan(log)
    assert [row.offset for row in rows] == [0, 3, 4]
    assert scan(open_log(image(tmp_path / "a", tmp_path / "b"), **OPTIONS)) == rows


def test_a_summary_is_replaced_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways, before the log is there to be appended to."""
    written = []
    write = files.write_atomically
    monkeypatch.setattr(
        "tidelog.storage.files.write_atomically",
        lambda path, data: (written.append(path.name), write(path, data)),
    )
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW], [NOW + 10], [NOW + 20]])
    log.close()
    for change in (lambda data: data[:-1], lambda data: data[:-1] + b"?"):
        folder = image(tmp_path / "a", tmp_path / "b")
        path = folder / f"{0:020d}.log"
        path.write_bytes(change(path.read_bytes()))
        written.clear()
        open_log(folder, recovery_point=3, **OPTIONS)
        assert list(dict.fromkeys(written)) == [f"{0:020d}.summary", "leader-epoch-checkpoint"]


def damaged(log: Log, folder: Path, number: int, place: int = 65) -> Path:
    """Copy the folder of a log that was stopped cleanly, with one bit of one of its batches changed."""
    name, start, _, _ = list(batches(log))[number]
    return flipped(log.directory, folder, name, start + place, 3)


def test_damage_at_the_end_is_followed_by_the_next_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.storage.blocks.BLOCK_BYTES", 128)
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW + n, NOW + n] for n in range(5)])
    log.close()
    rows, size = scan(log), log.active.size
    for looks_first in (True, False):
        folder = damaged(log, tmp_path / "b", 4)
        again = open_log(folder, clean=True, recovery_point=10, **OPTIONS)
        if looks_first:
            with pytest.raises(CorruptLog, match="read on from 10"):
                again.read(9, 100, True, PATIENT)
        fill(again, [[NOW + 10]])
        again.roll(NOW)
        with pytest.raises(CorruptLog, match="read on from 10"):
            again.read(9, 100, True, PATIENT)
        assert [row.offset for row in scan(again)] == [*range(8), 10]
        assert scan(again)[:8] == rows[:8]
        again.flush()
        for clean in (False, True):
            if clean:
                again.close()
            again = open_log(folder, clean=clean, recovery_point=11, **OPTIONS)
            with pytest.raises(CorruptLog, match="read on from 10"):
                again.read(8, 100, True, PATIENT)
            assert [row.offset for row in scan(again)] == [*range(8), 10]
            assert again.segments[0].size == size + again.read(10, 100, True, PATIENT).length
    # A crash before anything followed it: it is no torn tail, as it was whole once.
    folder = damaged(log, tmp_path / "c", 4)
    again = open_log(folder, recovery_point=0, **OPTIONS)
    assert (again.log_end_offset, again.size_bytes) == (10, size)
    with pytest.raises(CorruptLog, match="read on from 10"):
        again.read(8, 100, True, PATIENT)
    assert again.append(batch([NOW]), NOW).base_offset == 10
    # A start that finds it has nothing more written there.
    again = open_log(damaged(log, tmp_path / "d", 4, place=78), recovery_point=10, **OPTIONS)
    assert [segment.base_offset for segment in again.segments] == [0, 10]


def test_damage_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = made(tmp_path / "a", 0)
    again = open_log(damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, **OPTIONS)
    assert not caplog.records
    for _ in range(3):
        with pytest.raises(CorruptLog):
            again.read(2, 1, True, PATIENT)
        first_at(again, NOW, PATIENT)
    (record,) = caplog.records
    _, start, end, _ = list(batches(log))[1]
    place = f"{tmp_path}/b/{0:020d}.log@{start}-{end}"
    assert (record.levelname, record.getMessage()) == (
        "ERROR",
        f"damaged bytes at={place}: kept, and answered as corrupt up to offset 2",
    )


def test_the_event_loop_rebuilds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = made(tmp_path / "a", 0)
    again = open_log(damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, **OPTIONS)
    for ask in (
        lambda source: again.read(2, 1, True, source),
        lambda source: again.read(0, 1, True, source),
        lambda source: first_at(again, NOW, source),
    ):
        with monkeypatch.context() as patch:
            patch.delattr("tidelog.storage.walk.verified")
            with pytest.raises(TakesLong):
                ask(WARM)
            with pytest.raises(TakesLong):
                ask(WAITING)
    assert again.read(0, 1, True, PATIENT).length
    assert again.read(0, 1, True, WARM).length
    with pytest.raises(CorruptLog):
        again.read(2, 1, True, WARM)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("then", ["append", "roll", "retention", "close", "update"])
def test_an_index_that_is_not_of_the_log_stops_nothing(tmp_path: Path, suffix: str, then: str) -> None:
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW + n] for n in range(9)])
    log.flush()
    folder = tmp_path / "a"
    log.close()
    log.active.path(suffix).write_bytes(b"?" * 8)
    # Of a crash, so that a close has something to write.
    log = open_log(folder, recovery_point=9, segment_ms=60_000, **OPTIONS)
    later = NOW + 100_000
    if then == "append":
        fill(log, [[NOW + 9]], now_ms=later)
    elif then == "roll":
        log.roll(later)
    elif then == "retention":
        enforce_retention(log, later)
        assert len(log.segments) == 2
    elif then == "update":
        log.update_config(TopicConfig(segment_index_bytes=1024, segment_bytes=4096, retention_ms=-1))
    assert log.close()
    check(folder, scan(log), log.log_end_offset, clean=True)
    log = open_log(folder, clean=True, recovery_point=log.log_end_offset, **OPTIONS)
    scan(log)
    log.close()
    assert differences(folder, 150) == []


def test_appends_go_on_while_a_segment_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes during the walk, and between it and the lock, is in what the walk makes."""
    monkeypatch.setattr(
        "tidelog.storage.log.SNAPSHOT_FROM_BYTES", 0
    )  # A start reads no batch for its producers.
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW + n, NOW + n] for n in range(6)])
    log.close()
    rows = scan(log)
    again = open_log(damaged(log, tmp_path / "b", 2), clean=True, recovery_point=12, **OPTIONS)
    appended = []
    verified = walk.verified

    def slow(*args: object) -> Iterator[walk.Batch]:
        for each in verified(*args):  # type: ignore[arg-type]
            yield each
            if len(appended) < 20 and not again.lock.locked():
                at = NOW + 100 + len(appended)
                appended.append(again.append(batch([at]), NOW))

    old = again.active
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.walk.verified", slow)
        with pytest.raises(CorruptLog):
            again.read(4, 1, True, PATIENT)
    assert again.active is not old
    assert [each.base_offset for each in appended] == [*range(12, 12 + len(appended))]
    assert len(appended) > 6
    fill(again, [[NOW + 200]])
    want = [row for row in rows if row.offset not in (4, 5)]
    want += [Row(12 + n, NOW + 100 + n, b"v0") for n in range(len(appended))]
    want.append(Row(12 + len(appended), NOW + 200, b"v0"))
    assert scan(again) == want
    assert first_at(again, NOW + 100, PATIENT)[1] == 12  # type: ignore[index]
    again.close()
    again = open_log(tmp_path / "b", clean=True, recovery_point=again.log_end_offset, **OPTIONS)
    assert scan(again) == want
    assert len(again.damaged) == 1


def test_readers_that_find_damage_at_once_agree(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", **OPTIONS)
    fill(log, [[NOW + n] for n in range(300)])
    log.roll(NOW)
    log.close()
    again = open_log(damaged(log, tmp_path / "b", 100), clean=True, recovery_point=300, **OPTIONS)

    def ask(number: int) -> list[int | None]:
        got: list[int | None] = []
        for offset in range(number, 300, 3):
            try:
                got.append(int.from_bytes(again.read(offset, 1, True, PATIENT).read()[:8], "big"))
            except CorruptLog:
                got.append(None)
            found = first_at(again, NOW + offset, PATIENT)
            assert found is not None
            assert found.offset in (offset, offset + (offset == 100))
        return got

    with ThreadPoolExecutor(3) as pool:
        for number, got in enumerate(pool.map(ask, range(3))):
            assert got == [None if offset == 100 else offset for offset in range(number, 300, 3)]


def test_a_segment_that_is_deleted_while_it_is_rebuilt_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(tmp_path / "a", 0)
    again = open_log(
        damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, file_delete_delay_ms=0, **OPTIONS
    )
    verified = walk.verified

    def meanwhile(*args: object) -> Iterator[walk.Batch]:
        with again.lock:
            again.drop_segments(again.segments[0].base_offset == 0, NOW)
        again.deleted.remove_due(NOW)
        return verified(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.walk.verified", meanwhile)
        with pytest.raises(OffsetOutOfRange):
            again.read(2, 1, True, PATIENT)
    assert not list((tmp_path / "b").glob(f"{0:020d}.*"))
    again = open_log(damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.walk.verified", meanwhile)
        found = first_at(again, NOW, PATIENT)
    assert found is not None
    assert found.offset == again.segments[0].base_offset


def test_a_full_disk_keeps_no_rebuilt_segment_from_being_read(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = made(tmp_path / "a", 0)
    again = open_log(damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, **OPTIONS)
    disk.fail("write", error=errno.ENOSPC)
    assert again.read(0, 1, True, PATIENT).length
    with pytest.raises(CorruptLog, match="read on from 3"):
        again.read(2, 1, True, PATIENT)
    assert "not written what=" in caplog.text


def test_an_error_of_the_disk_while_a_segment_is_rebuilt_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(tmp_path / "a", 0)
    again = open_log(damaged(log, tmp_path / "b", 1), clean=True, recovery_point=21, **OPTIONS)

    def fails(*_: object) -> Iterator[walk.Batch]:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.walk.verified", fails)
        for ask in (lambda: again.read(2, 1, True, PATIENT), lambda: first_at(again, NOW, PATIENT)):
            with pytest.raises(ReadFailed, match="Input/output error"):
                ask()
        assert not again.damaged
    with pytest.raises(CorruptLog, match="read on from 3"):
        again.read(2, 1, True, PATIENT)
    assert len(again.damaged) == 1


def flushed_in_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: list[list[int]]
) -> tuple[Log, int, Path]:
    """Fill a log with 8 batches, flush it, and add more; return it, the flushed bytes, and an image of its folder."""
    monkeypatch.setattr("tidelog.storage.durability.SAVE_INTERVAL_BYTES", 500)
    log = open_log(folder / "a", **OPTIONS)
    fill(log, [[NOW + n] for n in range(8)])
    log.flush()
    flushed = log.active.size
    fill(log, more)
    return log, flushed, image(folder / "a", folder / "b")


def test_what_was_not_flushed_is_not_called_so_though_an_index_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, flushed, folder = flushed_in_part(tmp_path, monkeypatch, [[NOW + 9], [NOW + 10]])
    (folder / f"{0:020d}.index").write_bytes(b"?" * 8)
    log = check(folder, scan(log), 8)
    summary = Summary.load(log.active.path(".summary"))
    assert summary is None or summary.flushed * summary.log_bytes <= flushed


def change_epoch(path: Path, start: int, epoch: int) -> None:
    """Change the leader epoch of the batch at a position."""
    data = path.read_bytes()
    new = epoch.to_bytes(4, "big", signed=True)
    assert data[start + 12 : start + 16] != new
    path.write_bytes(data[: start + 12] + new + data[start + 16 :])


@pytest.mark.parametrize("epoch", [-1, 0, 3, 1 << 30])
@pytest.mark.parametrize("clean", [True, False])
def test_V10_a_batch_of_another_leader_epoch_is_refused(tmp_path: Path, epoch: int, clean: bool) -> None:
    """Though -1 is what messages of the older formats are said to have."""
    log = made(tmp_path / "a", 0)
    name, start, _, offsets = list(batches(log))[3]
    path = log.directory / name
    change_epoch(path, start, epoch)
    again = open_log(log.directory, clean=clean, recovery_point=log.log_end_offset, **OPTIONS)
    assert all(is_damaged(again, offset) for offset in offsets)
    assert not any(is_damaged(again, offset) for offset in range(offsets[0]))


def test_V10_a_batch_of_another_leader_epoch_is_refused_after_what_the_summary_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, flushed, folder = flushed_in_part(tmp_path, monkeypatch, [[NOW + 9 + n] for n in range(5)])
    summary = Summary.load(folder / f"{0:020d}.summary")
    assert summary is not None
    assert 0 < summary.log_bytes <= flushed
    name, start, _, offsets = list(batches(log))[10]
    change_epoch(folder / name, start, 3)
    again = open_log(folder, clean=False, recovery_point=8, **OPTIONS)
    assert is_damaged(again, offsets[0]) or again.log_end_offset <= offsets[0]
    assert not any(is_damaged(again, offset) for offset in range(offsets[0]))


@pytest.mark.timeout(300)
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_V10_fields_outside_the_checksum_that_are_changed_never_give_wrong_records(
    data: st.DataObject,
) -> None:
    """Offsets, lengths and epochs, one or several at once: refused, and every batch that is whole is served."""
    with tempfile.TemporaryDirectory() as folder:
        log = made(Path(folder) / "a", data.draw(st.sampled_from([0, 4])))
        end, rows, where = log.log_end_offset, scan(log), list(batches(log))
        good = answers(log, [])
        hit = data.draw(st.sets(st.integers(0, len(where) - 1), min_size=1, max_size=2))
        for number in hit:
            name, start, _, _ = where[number]
            at, size = data.draw(st.sampled_from([(0, 8), (8, 4), (12, 4)]))
            path = log.directory / name
            old = path.read_bytes()
            field = old[start + at : start + at + size]
            near = int.from_bytes(field, "big") + data.draw(st.integers(-12, 12))
            new = data.draw(
                st.binary(min_size=size, max_size=size)
                | st.just((near % (1 << 8 * size)).to_bytes(size, "big"))
            )
            path.write_bytes(old[: start + at] + new + old[start + at + size :])
            if new == field:
                hit = hit - {number}
        lost = {offset for number in hit for offset in where[number][3]}
        times = sorted({row.timestamp for row in rows})
        clean = data.draw(st.booleans())
        again = open_log(log.directory, clean=clean, recovery_point=end, **OPTIONS)
        first = answers(again, [], data.draw(st.booleans())).reads
        if len(hit) == 1:
            assert first == [None if offset in lost else good.reads[offset] for offset in range(end)]
        else:
            # A batch between two that are false may be refused with them, but none that is false is served.
            assert all(got is None or got == right for got, right in zip(first, good.reads, strict=True))
            assert all(first[offset] is None for offset in lost)
        left = [row for row in rows if first[row.offset] is not None]
        assert answers(again, times) == (first, expected(left, log, times))


def test_a_cut_finds_damage_in_what_it_leaves(tmp_path: Path) -> None:
    """It reads the producers of older batches again, with the locks held that a check of a segment takes."""
    log = open_log(tmp_path, clean=True, segment_bytes=1)
    for sequence in range(6):
        log.append(batch([NOW], producer_id=7, producer_epoch=0, base_sequence=sequence), NOW)
    assert log.close()
    log = open_log(tmp_path, clean=True, segment_bytes=1, recovery_point=6)
    path = log.segments[0].path(".log")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    log.truncate(2)
    assert (log.log_end_offset, len(log.damaged)) == (2, 1)
    assert [sender.last.last_sequence for sender in log.producers.senders()] == [1]
