"""F10: When batches were appended, which on most topics no batch tells: written with them, kept, mended, searched."""

import errno
import os
import resource
import shutil
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, crash, new_shared, open_files, open_log
from tidelog.storage import append_index, files, layout
from tidelog.storage.append_index import HEADER_BYTES
from tidelog.storage.errors import LogOffline
from tidelog.storage.layout import APPEND_INDEX, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME, first_at_or_after
from tidelog.storage.search.times_cache import Found
from tidelog.storage.sources import PATIENT, WARM

LOG_APPEND_TIME = {"message_timestamp_type": "LogAppendTime"}


def filled(folder: Path, appended_ms: Sequence[int], records: int = 1, **options: Any) -> Log:
    """Make a log of a batch for each append time."""
    log = open_log(folder, **options)
    for at in appended_ms:
        log.append(batch([NOW + at % 7] * records), at)
    return log


def times_of(log: Log) -> list[tuple[int, bool]]:
    """Return for each batch what is known of its append: the time, and whether that is a bound."""
    times = []
    for segment, _, header in log.headers(log.log_start_offset):
        time_ms, _, is_bound = segment.append_index.time_at(header.base_offset - segment.base_offset)
        times.append((time_ms, is_bound))
    return times


def exact(appended_ms: Sequence[int]) -> list[tuple[int, bool]]:
    return [(at, False) for at in appended_ms]


def with_id(folder: Path, topic_id: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    layout.save_topic_id(folder, topic_id)
    return folder


def found_at(log: Log, time_ms: int) -> Found | None:
    return first_at_or_after(log, time_ms, APPEND_TIME, WARM)


def bytes_of(log: Log) -> bytes:
    return log.active.path(APPEND_INDEX).read_bytes()


def without(folder: Path, *suffixes: str) -> Path:
    for path in list(folder.iterdir()):
        if path.suffix in suffixes:
            path.unlink()
    return folder


TOPIC_ID = bytes(range(16))
RISING = [NOW, NOW, NOW + 5, NOW + 6, NOW + 6, NOW + 6, NOW + 90]


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    """As docs/formats.md has them; read by hand, so that no release changes them unnoticed."""
    data = bytes_of(filled(with_id(tmp_path / "topic-7", TOPIC_ID), [NOW, NOW, NOW + 1]))
    assert [part.hex() for part in (data[:8], data[8:24], data[24:28], data[28:36])] == [
        "544c414900010000", bytes(range(16)).hex(), "00000007", "0000000000000000",
    ]  # fmt: skip
    assert data[36:40] == crc32c(data[:36]).to_bytes(4, "big")
    entries = ["0000018bcfe5680000000000", "0000018bcfe5680100000002"]
    assert [data[at : at + 12].hex() for at in (40, 56)] == entries
    assert [data[at : at + 4] for at in (52, 68)] == [
        crc32c(bytes.fromhex(each)).to_bytes(4, "big") for each in entries
    ]
    bound = append_index.encoded([append_index.AppendTime(NOW, 5, True)])
    assert bound[:12].hex() == "0000018bcfe56800" + "fffffffa"


def test_S43_S44_every_batch_has_its_append_time_beside_what_it_carries(tmp_path: Path) -> None:
    log = filled(tmp_path, RISING, records=2, segment_bytes=300)
    assert len(log.segments) > 2
    assert times_of(log) == exact(RISING)


def test_there_is_an_entry_where_the_time_changes_and_no_other(tmp_path: Path) -> None:
    log = filled(tmp_path, RISING, records=2)
    index = log.active.append_index
    assert [index.entry(number)[:2] for number in range(len(index))] == [
        (NOW, 0), (NOW + 5, 4), (NOW + 6, 6), (NOW + 90, 12),
    ]  # fmt: skip
    assert bytes_of(log)[HEADER_BYTES:] == index.data


def test_S52_S53_P23_a_clock_that_is_set_back_takes_no_append_time_back(tmp_path: Path) -> None:
    log = filled(tmp_path, [NOW, NOW - 1000, NOW - 500, NOW + 1])
    assert times_of(log) == exact([NOW, NOW, NOW, NOW + 1])
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False)
    again.append(batch([NOW]), NOW - 7)
    assert times_of(again)[-1] == (NOW + 1, False)


def test_F10_a_clock_that_is_set_forward_by_years_and_back_takes_no_append_time_back(tmp_path: Path) -> None:
    years = 10 * 365 * 86_400_000
    log = filled(tmp_path / "a", [NOW, NOW + years, NOW + 1, NOW + years + 1, NOW + 2])
    expected = exact([NOW, NOW + years, NOW + years, NOW + years + 1, NOW + years + 1])
    assert times_of(log) == expected
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False)
    assert times_of(again) == expected
    assert found_at(again, NOW + 3) == Found(NOW + years, 1, 0)


def test_S58_the_two_clocks_of_the_example_in_docs_time(tmp_path: Path) -> None:
    minute = 60_000
    log = open_log(tmp_path)
    for record, append in ((0, 0), (2, 2), (-45, 3), (3, 3), (1, 4), (4, 4)):
        log.append(batch([NOW + record * minute]), NOW + append * minute)
    for at, by_record, by_append in ((1, 1, 1), (3, 3, 2)):
        wanted = NOW + at * minute
        answers = [first_at_or_after(log, wanted, clock, WARM) for clock in (RECORD_TIME, APPEND_TIME)]
        assert [found.offset for found in answers if found] == [by_record, by_append]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_a_process_that_ends_loses_none(tmp_path: Path, clean: bool, segment_bytes: int) -> None:
    log = filled(tmp_path / "a", RISING, segment_bytes=segment_bytes)
    if clean:
        log.close()
    again = open_log(crash(log, tmp_path / "b"), clean=clean, was_cut_off=False, segment_bytes=segment_bytes)
    assert times_of(again) == exact(RISING)
    again.append(batch([NOW]), NOW + 100)
    again.append(batch([NOW]), NOW + 101)
    assert times_of(again) == exact([*RISING, NOW + 100, NOW + 101])
    assert found_at(again, NOW + 101) == Found(NOW + 101, 8, again.leader_epoch)


def assert_bounded(log: Log, appended_ms: Sequence[int]) -> None:
    """Every batch was appended at the time that is known of it, or earlier, and that is said; none is skipped."""
    known = times_of(log)
    assert len(known) == len(appended_ms)
    for (time_ms, is_bound), at in zip(known, appended_ms, strict=True):
        assert time_ms == at or (is_bound and time_ms > at)
    assert [time_ms for time_ms, _ in known] == sorted(time_ms for time_ms, _ in known)
    for at in {*appended_ms, NOW - 1, NOW + 7}:
        found = found_at(log, at)
        first = bisect_left(appended_ms, at)
        assert (found is not None and found.offset <= first) if first < len(appended_ms) else True


@pytest.mark.parametrize("with_summary", [False, True])
def test_what_a_power_cut_takes_is_bounded_by_the_time_of_the_file(
    tmp_path: Path, with_summary: bool
) -> None:
    log = filled(tmp_path / "a", RISING)
    if with_summary:
        log.active.save()
    whole = bytes_of(log)
    for size in range(len(whole) + 1):
        folder = crash(log, tmp_path / "b")
        (folder / log.active.path(APPEND_INDEX).name).write_bytes(whole[:size])
        again = open_log(folder, now_ms=NOW + 1000)
        assert_bounded(again, RISING)
        assert again.last_append_ms >= RISING[-1]
        shutil.rmtree(folder)


def test_S52_what_is_cut_after_a_kill_is_bounded_and_nothing_is_skipped(tmp_path: Path) -> None:
    """No power cut, as far as anybody knows: the summary vouches for more of it."""
    log = filled(tmp_path / "a", RISING)
    log.active.save()
    whole = bytes_of(log)
    for size in range(len(whole)):
        folder = crash(log, tmp_path / "b")
        (folder / log.active.path(APPEND_INDEX).name).write_bytes(whole[:size])
        assert_bounded(open_log(folder, was_cut_off=False, now_ms=NOW + 1000), RISING)
        shutil.rmtree(folder)


def test_an_entry_of_a_batch_that_was_not_written_is_dropped(tmp_path: Path) -> None:
    """A kill between the two: what comes before the entry is exact."""
    times = [NOW, NOW + 5, NOW + 5]
    log = filled(tmp_path / "a", times)
    log.active.append_index.append_if_later(3, NOW + 6)
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False)
    assert times_of(again) == exact(times)


@pytest.mark.parametrize("was_cut_off", [False, True])
@pytest.mark.parametrize("kept", [[], [SUMMARY]])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.all)])
def test_every_bit_is_checked(tmp_path: Path, kept: list[str], was_cut_off: bool, step: int) -> None:
    log = filled(tmp_path / "a", RISING)
    log.close()
    data = bytes_of(log)
    for at in range(0, len(data), step):
        folder = without(crash(log, tmp_path / "b"), *{SUMMARY} - set(kept))
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        (folder / log.active.path(APPEND_INDEX).name).write_bytes(flipped)
        assert_bounded(open_log(folder, was_cut_off=was_cut_off, now_ms=NOW + 1000), RISING)
        shutil.rmtree(folder)


def test_an_index_of_another_segment_says_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", RISING, segment_bytes=300)
    log.close()
    folder = without(crash(log, tmp_path / "b"), SUMMARY)
    first, second = sorted(folder.glob(f"*{APPEND_INDEX}"))[:2]
    shutil.copy(first, second)
    assert_bounded(open_log(folder, now_ms=NOW + 1000, segment_bytes=300), RISING)


@pytest.mark.parametrize("other", ["topic id", "partition", "base offset", "nothing"])
def test_a_file_is_that_of_the_segment_which_its_header_names(tmp_path: Path, other: str) -> None:
    """It alone tells where no summary vouches for an entry: after a kill, of the segment being written."""
    log = filled(with_id(tmp_path / "topic-0", TOPIC_ID), RISING)
    folder = crash(log, tmp_path / ("topic-1" if other == "partition" else "topic-0-copy-0"))
    with_id(folder, bytes(16 - 1) + b"\1" if other == "topic id" else TOPIC_ID)
    if other == "base offset":
        path = folder / log.active.path(APPEND_INDEX).name
        stored = append_index.load(path)
        assert stored.header is not None
        header = stored.header._replace(base_offset=7)
        path.write_bytes(header.encode() + bytes(stored.entries))
    known = times_of(open_log(folder, was_cut_off=False, now_ms=NOW + 1000))
    assert known == (exact(RISING) if other == "nothing" else [(NOW + 1000, True)] * len(RISING))


def test_S51_of_a_log_that_came_without_it_the_time_of_the_file_is_the_bound(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", RISING, segment_bytes=300)
    log.close()
    folder = without(crash(log, tmp_path / "b"), SUMMARY, APPEND_INDEX)
    again = open_log(folder, now_ms=NOW + 1000, segment_bytes=300)
    assert times_of(again) == [(NOW + 1000, True)] * len(RISING)
    assert found_at(again, NOW + 3) == Found(NOW + 1000, 0, 0)
    again.append(batch([NOW]), NOW + 2000)
    assert times_of(again)[-1] == (NOW + 2000, False)


@pytest.mark.parametrize("lost", [(APPEND_INDEX,), (APPEND_INDEX, SUMMARY)])
def test_with_log_append_time_it_is_made_again_from_the_log(tmp_path: Path, lost: tuple[str, ...]) -> None:
    log = filled(tmp_path / "a", RISING, **LOG_APPEND_TIME)
    log.close()
    again = open_log(without(crash(log, tmp_path / "b"), *lost), now_ms=NOW + 1000, **LOG_APPEND_TIME)
    assert times_of(again) == exact(RISING)
    again.active.save()
    assert bytes_of(again)[HEADER_BYTES:] == bytes_of(log)[HEADER_BYTES:]


@pytest.mark.parametrize("call", ["truncate", "sync"])
def test_P12_the_entry_of_a_batch_that_was_refused_goes_though_the_disk_refuses_that_at_first(
    tmp_path: Path, disk: FaultyDisk, call: str
) -> None:
    log = filled(tmp_path / "a", [NOW])
    with disk.failing("grow", of="*.log", error=errno.ENOSPC), disk.failing(call, of=f"*{APPEND_INDEX}"):
        with pytest.raises(LogOffline):
            log.append(batch([NOW]), NOW + 10)
        log.mend()
        assert not log.takes_writes
    disk.calls.clear()
    log.mend()
    assert log.active.path(APPEND_INDEX) in disk.paths("sync")
    for at in (NOW + 5000, NOW + 6000):
        log.append(batch([NOW]), at)
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False)
    assert times_of(again) == exact([NOW, NOW + 5000, NOW + 6000])
    assert again.last_append_ms == NOW + 6000


def test_a_cut_takes_what_was_appended_after_it(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", RISING, segment_bytes=300)
    log.truncate(3)
    assert times_of(log) == exact(RISING[:3])
    log.append(batch([NOW]), NOW)
    assert times_of(log) == exact([*RISING[:3], RISING[-1]])
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False, segment_bytes=300)
    assert times_of(again) == exact([*RISING[:3], RISING[-1]])


def rebuilt(log: Log) -> None:
    log.recheck(log.segments[0], PATIENT)


def cut(log: Log) -> None:
    log.truncate(3)


@pytest.mark.parametrize("act", [rebuilt, cut])
def test_S52_what_only_the_summary_tells_of_a_short_index_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Log], None]
) -> None:
    """A kill that comes once the summary has gone: an index without one says nothing of what it has lost."""
    log = filled(tmp_path / "a", RISING)
    log.roll(NOW + 90)
    log.append(batch([NOW]), NOW + 91)
    log.close()
    folder, killed = crash(log, tmp_path / "b"), tmp_path / "c"
    os.truncate(folder / log.segments[0].path(APPEND_INDEX).name, HEADER_BYTES + 16)
    log = open_log(folder, clean=True, recovery_point=log.log_end_offset)
    for real in (files.remove, files.write_atomically):

        def watched(path: Path, *data: bytes, real: Callable[..., None] = real) -> None:
            real(path, *data)
            if path == log.segments[0].path(SUMMARY):
                shutil.rmtree(killed, ignore_errors=True)
                crash(log, killed)

        monkeypatch.setattr(files, real.__name__, watched)
    act(log)
    again = open_log(killed, was_cut_off=False, now_ms=NOW + 1000)
    assert_bounded(again, [*RISING, NOW + 91][: again.log_end_offset])


@pytest.mark.parametrize("which", [".log", APPEND_INDEX])
def test_a_write_that_fails_leaves_neither_batch_nor_entry(
    tmp_path: Path, disk: FaultyDisk, which: str
) -> None:
    log = filled(tmp_path / "a", RISING)
    disk.fill(f"*{which}", room=5)
    with pytest.raises(LogOffline, match="No space left"):
        log.append(batch([NOW]), NOW + 200)
    disk.heal()
    log.append(batch([NOW]), NOW + 300)
    assert times_of(log) == exact([*RISING, NOW + 300])
    again = open_log(crash(log, tmp_path / "b"), was_cut_off=False)
    assert times_of(again) == exact([*RISING, NOW + 300])


def test_a_batch_is_never_there_without_its_entry(tmp_path: Path, disk: FaultyDisk) -> None:
    filled(tmp_path, [NOW, NOW, NOW + 1])
    grown = [path.suffix for path in disk.paths("grow") if path.suffix in (APPEND_INDEX, ".log")]
    assert grown == [APPEND_INDEX, ".log", ".log", APPEND_INDEX, ".log"]


def test_a_full_index_seals_its_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, range(NOW, NOW + 40), segment_index_bytes=160, index_interval_bytes=0)
    assert max(len(segment.append_index) for segment in log.segments) <= 11
    assert times_of(log) == exact(range(NOW, NOW + 40))


def test_few_hold_their_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 12))
    shared = new_shared(tmp_path)
    logs = [filled(tmp_path / str(n), [NOW], shared=shared) for n in range(5)]
    for at in range(1, 4):
        for log in logs:
            log.append(batch([NOW]), NOW + at)
    assert sum(path.suffix == ".appendindex" for path in open_files(tmp_path)) <= 3
    for number, log in enumerate(logs):
        again = open_log(crash(log, tmp_path / f"b{number}"), was_cut_off=False)
        assert times_of(again) == exact(range(NOW, NOW + 4))


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(-3, 5), st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=25
    ),
    segment_bytes=st.sampled_from([300, 1 << 20]),
    data=st.data(),
)
def test_I6_every_answer_is_that_of_a_scan(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int, int]],
    segment_bytes: int,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = open_log(folder / "0", segment_bytes=segment_bytes)
    now_ms, batches = NOW, list[tuple[int, int, int]]()
    last_ms = 0
    for number, (later, records, happens) in enumerate(steps):
        now_ms += later
        last_ms = max(last_ms, now_ms)
        at = log.append(batch([NOW - number] * records), now_ms)
        batches.append((last_ms, at.base_offset, at.last_offset))
        if happens in (7, 8):
            if happens == 7:
                log.close()
            log = open_log(
                crash(log, folder / str(number + 1)), clean=happens == 7, was_cut_off=False,
                segment_bytes=segment_bytes, log_start_offset=log.log_start_offset,
            )  # fmt: skip
        elif happens == 9:
            log.advance_start(data.draw(st.integers(log.log_start_offset, log.log_end_offset)))
    start = log.log_start_offset
    for wanted in range(NOW - 80, now_ms + 3):
        first = next(
            ((at, max(base, start)) for at, base, last in batches if at >= wanted and last >= start), None
        )
        found = found_at(log, wanted)
        assert first == (None if found is None else (found.timestamp, found.offset))
    assert first_at_or_after(log, now_ms + 100, APPEND_TIME, PATIENT) is None


@pytest.mark.parametrize(
    ("is_described", "cut_off"),
    [(True, True), (False, True), (False, False)],  # where all that was written is there they would be lost
)
def test_S52_times_of_batches_that_a_crash_took_are_not_those_of_the_next(
    tmp_path: Path, is_described: bool, cut_off: bool
) -> None:
    """A power cut took all of a log and left its append index: others get their offsets."""
    log = filled(tmp_path / "a", RISING)
    if is_described:
        log.active.save()
    folder = crash(log, tmp_path / "b")
    (folder / log.active.path(".log").name).write_bytes(b"")
    log = open_log(folder, was_cut_off=cut_off)
    assert log.log_end_offset == 0
    log.append(batch([NOW]), NOW + 1000)
    log.append(batch([NOW]), NOW + 1001)
    for again in (log, open_log(crash(log, tmp_path / "c"), was_cut_off=cut_off)):
        assert times_of(again) == exact([NOW + 1000, NOW + 1001])
        assert found_at(again, NOW + 1000) == (NOW + 1000, 0, again.epochs.at(0))


def swapped(folder: Path, *, clean: bool) -> Log:
    """Open a log beside whose first segment lies the append index of another log, of as many batches."""
    log = filled(folder / "a", RISING)
    other = filled(folder / "other", [at + 1 for at in RISING])
    for each in (log, other):
        each.roll(NOW + 90)
        each.flush()
        each.close()
    there = folder / "b"
    crash(log, there)
    shutil.copy(other.segments[0].path(APPEND_INDEX), there)
    return open_log(there, clean=clean, recovery_point=log.log_end_offset, now_ms=NOW + 1000)


@pytest.mark.parametrize("clean", [False, True])
def test_S52_an_index_of_another_log_with_the_same_base_offset_says_nothing(
    tmp_path: Path, clean: bool
) -> None:
    """Each of its entries is sound by itself; only the summary knows that they are of other batches."""
    log = swapped(tmp_path, clean=clean)
    assert times_of(log) == [(RISING[-1], True)] * len(RISING)
    assert found_at(log, NOW + 6) == (RISING[-1], 0, 0)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_what_is_left_of_a_damaged_index_is_believed_at_every_start(
    tmp_path: Path, sealed: bool, clean: bool
) -> None:
    """Also after a kill: then its summary is as old as the damage."""
    log = filled(tmp_path / "0", RISING)
    if sealed:
        log.roll(NOW + 100)
    log.flush()
    log.close()
    for number in (1, 2, 3):
        folder = crash(log, tmp_path / f"{number}")
        if number == 1:
            path = folder / f"{0:020d}{APPEND_INDEX}"
            data = bytearray(path.read_bytes())
            data[HEADER_BYTES + 16] ^= 1
            path.write_bytes(data)
        log = open_log(folder, clean=clean and number == 1, was_cut_off=False, now_ms=NOW + 1000)
        assert times_of(log)[:7] == exact(RISING[:1]) + [(NOW + 6, True)] * 2 + exact(RISING[3:])
        log.append(batch([NOW]), NOW + 1000 + number)
    assert times_of(log)[-3:] == exact([NOW + 1001, NOW + 1002, NOW + 1003])


@pytest.mark.parametrize("lost", [(".log",), (".log", APPEND_INDEX)])
def test_S52_what_was_appended_in_place_of_what_a_crash_took_keeps_its_times(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """As many entries as those for which the summary vouches, which are gone with their batches."""
    log = filled(tmp_path / "a", RISING)
    log.active.save()
    folder = crash(log, tmp_path / "b")
    for suffix in lost:
        (folder / log.active.path(suffix).name).write_bytes(b"")
    log = open_log(folder)
    times = [NOW + 1000 + n for n in range(7)]
    for at in times:
        log.append(batch([NOW]), at)
    assert times_of(open_log(crash(log, tmp_path / "c"), was_cut_off=False)) == exact(times)
