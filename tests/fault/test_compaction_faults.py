"""P13 to P15: compaction on a disk that fails or is full, beside damage, with little memory, and while others change
the log or read it. What was acknowledged is there, the partition goes on, and the next pass on a disk that is well is
made."""

import contextlib
import errno
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compaction import (
    COMPACTED,
    KeyedRow,
    clean,
    clean_all,
    finished,
    keyed,
    latest_of,
    rows_of,
    spoil,
    steps_of,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, is_damaged, new_shared, open_log, read_records
from tests.support.reference_index import rebuilt
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import set_base
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import fsck
from tidelog.storage.compaction import plan
from tidelog.storage.compaction.passes import WORKER_BYTES
from tidelog.storage.errors import CorruptLog, OffsetOutOfRange, StorageError
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention

MERGING = {**COMPACTED, "segment_bytes": 1 << 20}
CALLS = ("open", "make", "read", "write", "truncate", "sync", "rename", "remove", "list")


def filled(folder: Path, segments: int = 4, **options: Any) -> Log:
    log = open_log(folder, **{**MERGING, **options})
    for n in range(segments):
        log.append(keyed((b"a", b"%d" % n), (b"b", b"%d" % n), (b"c%d" % n, b"x")), NOW + n)
        log.roll(NOW + n)
    log.append(keyed((b"z", b"1")), NOW + 9)
    return log


def latest_stays(log: Log, before: list[KeyedRow]) -> None:
    """I7, I2: the latest of each key is there, and nothing that was not."""
    after = rows_of(log)
    assert set(after) <= set(before)
    end = log.log_end_offset
    assert latest_of(after, end) == latest_of(before, end)


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "until-mended"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_P13_I1_whatever_fails_in_a_pass_nothing_is_lost_and_the_next_is_made(
    tmp_path: Path, disk: FaultyDisk, number: int, lasts: bool
) -> None:
    for nth in range(1, 1000):
        folder = tmp_path / str(nth) / "topic-0"
        log = filled(folder)
        before = rows_of(log)
        log.flush()
        fault = disk.fail(*CALLS, error=number, after=nth - 1, times=None if lasts else 1)
        with contextlib.suppress(OSError, StorageError):
            clean(log, NOW + 10)
        disk.heal()
        latest_stays(log, before)
        if not fault.hits:
            assert nth > 20
            return
        if not log.health.is_final:  # else until a restart
            log.mend()
            log.append(keyed((b"a", b"new")), NOW + 11)
            before += rows_of(log, start=13)
            clean_all(log, NOW + 12)
            latest_stays(log, before)
            assert len(log.segments) == 2
            assert log.close()
            assert list(fsck.Fsck(folder, deep=True, repair=False).problems()) == []
        recovery_point = min(log.recovery_point, log.log_end_offset)
        again = open_log(folder, shared=new_shared(folder), recovery_point=recovery_point, **MERGING)
        latest_stays(again, before)
        assert not again.damaged
        clean_all(again, NOW + 13)
        latest_stays(again, before)
        assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap")]
    raise AssertionError("a pass without an end")


def test_P8_P13_a_segment_that_is_damaged_before_a_pass_stays_as_it_is_and_the_others_are_compacted(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "topic-0", **MERGING)
    for n in range(4):
        log.append(keyed((b"a", b"%d" % n), (b"b", b"%d" % n)), NOW)
        log.append(keyed((b"d%d" % n, b"%d" % n), (b"c", b"%d" % n)), NOW)
        log.roll(NOW)
    log.append(keyed((b"a", None), (b"z", b"1")), NOW)
    log.roll(NOW)
    log.flush()
    before = rows_of(log)
    spoil(log, 1, 4)
    with contextlib.suppress(CorruptLog):
        clean(log, NOW + 1)  # that comes upon it
    assert clean_all(log, NOW + 1) <= 2
    assert is_damaged(log, 4)
    assert [each.base_offset for each in log.segments] == [0, 4, 8, 18]
    readable = [row for row in before if row.offset not in (4, 5)]
    after = rows_of(log, start=6) + rows_of_segment(log, 0)
    assert set(after) <= set(readable)
    assert {row.offset for row in after} >= {6, 7}, "what is beside the damage stays"
    assert latest_of(after, 18) == latest_of(readable, 18)
    # A tombstone stays as long as what it has replaced may be in there.
    retention_ms = log.config.delete_retention_ms
    for late_ms in (retention_ms, 2 * retention_ms, 3 * retention_ms):
        assert clean_all(log, NOW + late_ms + 2) <= 2
    assert any(row.key == b"a" and row.value is None for row in rows_of(log, start=8))


def rows_of_segment(log: Log, number: int) -> list[KeyedRow]:
    data, at, rows = log.segments[number].path(".log").read_bytes(), 0, []
    while at < len(data):
        size = entries.peek(data, at).size_bytes
        rows += [KeyedRow(r.offset, r.timestamp, r.key, r.value) for r in read_records(data[at : at + size])]
        at += size
    return rows


def test_S94_a_map_that_is_too_small_by_a_thousand_takes_more_passes_and_loses_nothing(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "topic-0", **{**COMPACTED, "segment_bytes": 20_000})
    for n in range(300):
        log.append(keyed(*((b"k%d" % ((n * 7 + i) % 900), b"%d" % n) for i in range(10))), NOW)
    log.roll(NOW)
    before = rows_of(log)
    # 900 keys take 24 bytes each.
    count = clean_all(log, NOW + 1, buffer_bytes=24 * 20, load_factor=0.9)
    assert count > 10
    latest_stays(log, before)
    after = rows_of(log)
    assert len(after) == 900


def test_a_key_of_a_mebibyte_is_a_key_like_any_other(tmp_path: Path) -> None:
    key = b"k" * (1 << 20)
    log = open_log(tmp_path / "topic-0", **{**MERGING, "segment_bytes": 3 << 20}, max_message_bytes=3 << 20)
    for n in range(4):
        data = keyed((key, b"%d" % n), (key + b"x", b"%d" % n)[: n % 2 * 2] or (b"s", b"%d" % n))
        checked = next_of(log.check(data, NOW))
        log.append(bytearray(checked[0]), NOW, checked)
        log.roll(NOW)
    before = rows_of(log)
    clean(log, NOW + 1)
    latest_stays(log, before)
    assert len(rows_of(log)) == 3


def next_of(steps: Any) -> Any:
    from tidelog.protocol.records.steps import at_once

    return at_once(steps)


def test_S92_all_records_of_one_key_leave_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED)
    for n in range(200):
        log.append(keyed((b"k", b"%d" % n)), NOW)
    log.roll(NOW)
    clean(log, NOW, buffer_bytes=48)
    assert [row.offset for row in rows_of(log)] == [199]
    before = len(log.segments)
    log.append(keyed((b"k", b"new")), NOW)
    log.roll(NOW)
    clean(log, NOW, buffer_bytes=48)
    assert [row.offset for row in rows_of(log)] == [200]
    assert len(log.segments) < before / 2


def far_log(folder: Path, offsets: list[int]) -> Log:
    """Return a log of a segment for each of some offsets, as Kafka would have compacted it."""
    folder.mkdir(parents=True)
    for offset in offsets:
        records = [Record(offset + n, NOW, b"k%d" % n, b"%d" % offset) for n in range(2)]
        data = b"".join(build_batch([record], leader_epoch=0) for record in records)
        (folder / f"{offset:020d}.log").write_bytes(data)
        for suffix, index in zip((".index", ".timeindex"), rebuilt(data, offset, 0), strict=True):
            (folder / f"{offset:020d}{suffix}").write_bytes(index)
    return open_log(
        folder, clean=True, recovery_point=offsets[-1] + 2, log_start_offset=offsets[0], **MERGING
    )


def test_P14_no_segment_gets_offsets_that_its_indexes_cannot_hold(tmp_path: Path) -> None:
    far = 1 << 31
    log = far_log(tmp_path / "topic-0", [5, far + 5, far + 100, 3 * far, 3 * far + 9])
    log.append(keyed((b"new", b"1")), NOW)
    log.roll(NOW)
    before = rows_of(log)
    for _ in range(10):
        with contextlib.suppress(CorruptLog):  # each is read when it is first wanted
            if clean(log, NOW + 1) is None:
                break
    latest_stays(log, before)
    assert [row.offset for row in rows_of(log)] == [3 * far + 9, 3 * far + 10, 3 * far + 11]
    for segment in log.segments:
        assert segment.next_offset - 1 - segment.base_offset < far
    assert [each.base_offset for each in log.segments[:2]] == [5, far + 5]
    log.close()
    assert list(fsck.Fsck(log.directory, deep=True, repair=False).problems()) == []


def test_P13_what_kafka_has_left_and_nobody_has_read_takes_one_pass(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    log = filled(folder, index_interval_bytes=0, segment_bytes=200)
    for n in range(8):
        log.append(keyed((b"a", b"%d" % n)), NOW)
    before = rows_of(log)
    log.close()
    for path in (*folder.glob("*.summary"), *folder.glob("*.appendindex")):
        path.unlink()
    end = log.log_end_offset
    log = open_log(folder, clean=True, recovery_point=end, shared=new_shared(folder), **MERGING)
    assert any(segment.is_known_by_index for segment in log.segments)
    assert clean(log, NOW + 20) is not None
    latest_stays(log, before)
    assert len(rows_of(log)) < len(before)


# Others change the log amid a pass.


def amid(log: Log, change: Callable[[], object], before_swap: bool) -> None:
    """Make a pass, and a change after its first step, or just before the copy takes the place of the others."""
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    is_done: list[bool] = []

    def structural(step: Callable[[], Any]) -> Any:
        if before_swap and not is_done:
            is_done.append(True)
            change()
        return step()

    going = steps_of(log, due, structural=structural)
    with contextlib.suppress(StorageError, OSError):
        next(going)
        if not before_swap:
            change()
        finished(going)


@pytest.mark.parametrize("before_swap", [False, True])
def test_retention_that_takes_a_segment_away_amid_a_pass_takes_nothing_else(
    tmp_path: Path, before_swap: bool
) -> None:
    log = filled(tmp_path / "topic-0")
    log.flush()
    before = rows_of(log)

    def expire() -> None:
        log.advance_start(6)
        enforce_retention(log, NOW + 10)

    amid(log, expire, before_swap)
    assert log.log_start_offset == 6
    latest_stays(log, [row for row in before if row.offset >= 6])
    assert not [path for path in log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    clean_all(log, NOW + 11)
    latest_stays(log, [row for row in before if row.offset >= 6])


@pytest.mark.parametrize("by_yield", [False, True])
@pytest.mark.parametrize("steps_before", [0, 1, 2, 3, 5])
def test_a_pass_that_retention_meets_ends_without_an_error(
    tmp_path: Path, steps_before: int, by_yield: bool
) -> None:
    """Before its first step, and amid it, when the files are gone and nobody holds them open."""
    log = filled(tmp_path / "topic-0", file_delete_delay_ms=0)
    log.flush()
    before = rows_of(log)
    due = plan.due(log, NOW + 10, by_yield=by_yield)
    assert due is not None
    going = steps_of(log, due)
    for _ in range(steps_before):
        next(going)
    log.release()
    start = log.segments[-2].base_offset
    log.advance_start(start)
    enforce_retention(log, NOW + 10)
    finished(going)
    latest_stays(log, [row for row in before if row.offset >= start])
    clean_all(log, NOW + 11)
    latest_stays(log, [row for row in before if row.offset >= start])


def test_a_pass_goes_on_with_the_other_groups_where_retention_took_a_segment_of_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "topic-0", segments=12, segment_bytes=400)
    log.flush()
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    groups = plan.groups(list(due.candidates), log.segments[:-1], log.config)
    assert len(groups) > 2
    start = groups[0][-1].base_offset
    latest = latest_of([row for row in rows_of(log) if row.offset >= start], log.log_end_offset)

    def structural(step: Callable[[], Any]) -> Any:
        if log.log_start_offset < start:
            log.advance_start(start)
            enforce_retention(log, NOW + 10)
        return step()

    cleaned = finished(steps_of(log, due, structural=structural))
    assert cleaned.segments == sum(map(len, groups[1:]))
    assert latest_of(rows_of(log), log.log_end_offset) == latest


@pytest.mark.parametrize("before_swap", [False, True])
@pytest.mark.parametrize("offset", [9, 6, 12])
def test_P15_what_is_cut_off_amid_a_pass_has_replaced_nothing(
    tmp_path: Path, offset: int, before_swap: bool
) -> None:
    log = filled(tmp_path / "topic-0")
    log.flush()
    before = rows_of(log)
    amid(log, lambda: log.truncate(offset), before_swap)
    left = [row for row in before if row.offset < offset]
    latest_stays(log, left)
    # Nor has what comes in its place been in a pass.
    for n in range(4):
        log.append(keyed((b"a", None), (b"b", b"new%d" % n)), NOW + 11)
        log.roll(NOW + 11)
    log.flush()
    left += rows_of(log, start=offset)
    retention_ms = log.config.delete_retention_ms
    for at_ms in (12, retention_ms + 13, 2 * retention_ms + 14):
        clean_all(log, NOW + at_ms)
        assert [row.value for row in rows_of(log) if row.key == b"a"] in ([], [None])
        assert [row.value for row in rows_of(log) if row.key == b"b"] == [b"new3"]


def test_I7_a_cut_takes_back_what_was_known_to_be_clean(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **{**COMPACTED, "segment_bytes": 100})
    for n, key in enumerate((b"a", b"b", b"c", b"d")):
        log.append(keyed((key, b"%d" % n)), NOW)
        log.roll(NOW)
    log.flush()
    clean(log, NOW)
    log.truncate(2)  # which leaves a whole and clean segment
    log.append(keyed((b"a", None)), NOW)
    log.roll(NOW)
    log.flush()
    again = open_log(tmp_path / "topic-0", shared=new_shared(tmp_path), recovery_point=3, **COMPACTED)
    # A pass that goes by yield may leave the first as it is: nobody compares it with what has come at 2.
    assert [each.segments[0].summary.cleaned_to for each in (log, again)] == [2, 2]
    retention_ms = again.config.delete_retention_ms
    for at_ms in (1, 2 * retention_ms, 4 * retention_ms):
        clean_all(again, NOW + at_ms)
        assert [row.value for row in rows_of(again) if row.key == b"a"] in ([None], [])


# Readers.


@pytest.fixture
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switch_often")
@pytest.mark.parametrize(("worker_bytes", "rounds"), [(WORKER_BYTES, 60), (0, 15)])
def test_F11_S96_S98_readers_go_on_while_segments_are_replaced(
    tmp_path: Path, worker_bytes: int, rounds: int
) -> None:
    log = open_log(tmp_path / "topic-0", **{**COMPACTED, "segment_bytes": 400, "index_interval_bytes": 0})
    failures: list[BaseException] = []
    stop = threading.Event()
    keys = 9

    def from_the_start() -> None:
        rows = rows_of(log)
        offsets = [row.offset for row in rows]
        assert offsets == sorted(set(offsets))
        assert all(row.value == b"%d" % row.offset for row in rows)
        assert {row.key for row in rows} >= {b"k%d" % n for n in range(keys)}

    def by_offset() -> None:
        for offset in range(0, log.log_end_offset, 7):
            data = log.read(offset, 1, True, PATIENT).read()
            assert entries.peek(data).last_offset >= offset

    def let_go() -> None:
        log.release()

    def repeat(job: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                job()
        except BaseException as error:
            failures.append(error)

    def put(n: int) -> None:
        at = log.log_end_offset
        log.append(keyed(*((b"k%d" % ((n + i) % keys), b"%d" % (at + i)) for i in range(3))), NOW)

    for n in range(3 * keys):
        put(n)
    threads = [threading.Thread(target=repeat, args=(job,)) for job in (from_the_start, by_offset, let_go)]
    for thread in threads:
        thread.start()
    try:
        for n in range(rounds):
            for i in range(6):
                put(7 * n + i)
            log.flush()
            clean(log, NOW + n, worker_bytes=worker_bytes)
            if failures:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    assert len(log.segments) < 12


def test_a_reader_that_holds_a_segment_gets_its_records_or_looks_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "topic-0")
    log.flush()
    log.release()
    held, before = log.segments, rows_of(log)
    log.release()
    clean(log, NOW + 10)
    for segment in held[:-1]:
        segment.release()
        assert log.recheck(segment, PATIENT) in log.segments
    for number in (0, 1, 3):
        with pytest.raises(CorruptLog):
            _ = held[number].offset_index, held[number].file
    latest_stays(log, before)
    log.advance_start(12)
    enforce_retention(log, NOW + 10)
    assert log.recheck(held[0], PATIENT) is None or log.recheck(held[0], PATIENT) in log.segments
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, True, PATIENT)


def test_P13_what_is_left_of_a_swap_that_a_full_disk_stopped_is_done_before_the_next_append(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    log = filled(tmp_path / "topic-0")
    log.flush()
    before = rows_of(log)
    with disk.failing("remove", error=errno.ENOSPC):
        with contextlib.suppress(StorageError):
            clean(log, NOW + 10)
        assert log.health.failure is not None
        log.release()
        latest_stays(log, before)
        assert plan.due(log, NOW + 10) is None
    again = keyed((b"y", b"1"))
    set_base(again, 0, 0, -1)
    log.append(again, NOW + 11)
    assert [path.name[20:] for path in sorted(log.directory.glob("*.swap"))] == []
    log.release()
    latest_stays(log, before + rows_of(log, start=13))
