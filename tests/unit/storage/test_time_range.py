"""Ranges of times, each against a scan of all records."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.logs import KEEP_ALL, NOW, Row, batch, crash, fill, open_log, scan
from tidelog.storage import minima
from tidelog.storage.append_index import HEADER_BYTES
from tidelog.storage.errors import NotInMemory, TakesLong
from tidelog.storage.files import File
from tidelog.storage.log import Log
from tidelog.storage.minima import UNKNOWN, Minima
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.time_range import between
from tidelog.storage.sources import PATIENT, WAITING, WARM, Source

OUT_OF_ORDER = [[NOW + (n * 37) % 101, NOW + (n * 53) % 97] for n in range(60)]


def expected(rows: list[Row], from_ms: int, to_ms: int) -> range:
    offsets = [row.offset for row in rows if max(from_ms, 0) <= row.timestamp < to_ms]
    return range(offsets[0], offsets[-1] + 1) if offsets else range(0)


def agrees_with_a_scan(log: Log) -> None:
    rows = scan(log)
    times = sorted({row.timestamp + step for row in rows for step in (0, 1)} | {-1, 0, NOW * 2})
    for from_ms in times[:: max(1, len(times) // 15)]:
        for to_ms in times[:: max(1, len(times) // 17)]:
            found = between(log, from_ms, to_ms, RECORD_TIME, PATIENT)
            assert found == expected(rows, from_ms, to_ms), (from_ms - NOW, to_ms - NOW)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
def test_I6_S58_a_range_is_from_the_first_record_in_it_to_the_last(
    tmp_path: Path, codec: int, segment_bytes: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=150, segment_bytes=segment_bytes)
    fill(log, OUT_OF_ORDER, codec=codec)
    agrees_with_a_scan(log)
    log.advance_start(41)
    agrees_with_a_scan(log)
    log = open_log(crash(log, tmp_path / "crashed"), log_start_offset=41)
    agrees_with_a_scan(log)
    log.truncate(80)
    agrees_with_a_scan(log)


def test_S58_a_record_that_came_late_is_within_its_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 10], [NOW + 20], [NOW + 5], [NOW + 30]])
    assert between(log, NOW, NOW + 10, RECORD_TIME, PATIENT) == range(4)
    assert between(log, NOW + 10, NOW + 20, RECORD_TIME, PATIENT) == range(1, 2)
    # The first record at or after it lies beyond the range, and what came late is in it.
    assert between(log, NOW + 1, NOW + 7, RECORD_TIME, PATIENT) == range(3, 4)
    # Only what is older than the range came late.
    assert between(log, NOW + 20, NOW + 25, RECORD_TIME, PATIENT) == range(2, 3)
    assert between(log, NOW + 6, NOW + 10, RECORD_TIME, PATIENT) == range(0)


def test_where_nothing_can_be_in_a_range_it_is_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for timeline in (RECORD_TIME, APPEND_TIME):
        assert not between(log, 0, NOW * 2, timeline, PATIENT)
    fill(log, [[NOW]])
    for timeline in (RECORD_TIME, APPEND_TIME):
        assert between(log, NOW, NOW + 1, timeline, PATIENT) == range(1)
        for from_ms, to_ms in ((NOW, NOW), (NOW + 1, NOW + 2), (0, NOW), (NOW + 1, NOW - 1), (-5, 0)):
            assert not between(log, from_ms, to_ms, timeline, PATIENT)


def test_a_record_without_a_timestamp_is_in_no_range_of_record_times(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[-1], [-1, NOW, -1], [-1]])
    assert between(log, -10, NOW + 1, RECORD_TIME, PATIENT) == range(2, 3)
    assert between(log, -10, NOW + 1, APPEND_TIME, PATIENT) == range(5)


def test_S46_with_log_append_time_both_clocks_say_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime")
    for now in (NOW, NOW + 10, NOW + 20):
        log.append(batch([5, 900, 7]), now)
    for timeline in (RECORD_TIME, APPEND_TIME):
        assert between(log, NOW, NOW + 11, timeline, PATIENT) == range(6)
        assert between(log, NOW + 10, NOW + 20, timeline, PATIENT) == range(3, 6)
    log.advance_start(4)
    assert between(log, NOW, NOW + 11, RECORD_TIME, PATIENT) == range(4, 6)
    log = open_log(crash(log, tmp_path / "crashed"), message_timestamp_type="LogAppendTime")
    assert minimum_of(log) == NOW  # as the headers say
    agrees_with_a_scan(log)


def minimum_of(log: Log) -> int:
    return min(log.active.summary.minima.stretches.times)


def test_of_append_times_the_end_is_the_first_that_came_later(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for n in range(8):
        fill(log, [[NOW - n], [NOW]], NOW + n // 2 * 10)
    for first in range(-1, 5):
        for last in range(-1, 6):
            inside = [n for n in range(16) if first * 10 <= n // 4 * 10 < last * 10]
            found = between(log, NOW + first * 10, NOW + last * 10, APPEND_TIME, PATIENT)
            assert found == (range(inside[0], inside[-1] + 1) if inside else range(0))
    log.advance_start(9)
    assert between(log, NOW + 10, NOW + 30, APPEND_TIME, PATIENT) == range(9, 12)


def test_where_append_times_are_bounds_what_may_be_in_the_range_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(4):
        fill(log, [[NOW]], NOW + n * 10)
    log.close()
    path = log.active.path(".appendindex")
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 16] ^= 1  # the entry of offset 1: it was appended by NOW + 20, as offset 2 was
    path.write_bytes(data)
    log.active.path(".summary").unlink()
    log = open_log(tmp_path)
    index = log.active.append_index
    assert [index.entry(n)[1:] for n in range(len(index))] == [(0, False), (1, True), (2, False), (3, False)]
    assert between(log, NOW, NOW + 5, APPEND_TIME, PATIENT) == range(2)
    assert between(log, NOW + 5, NOW + 10, APPEND_TIME, PATIENT) == range(1, 2)
    assert between(log, NOW + 20, NOW + 21, APPEND_TIME, PATIENT) == range(1, 3)


class Counted:
    """Counts what is read."""

    def __init__(self) -> None:
        self.bytes = self.reads = 0
        self.source = Source(self.read, waiting=True, prompt=False)

    def read(self, file: File, count: int, position: int) -> memoryview:
        self.bytes += count
        self.reads += 1
        return PATIENT.read(file, count, position)


def large_log(folder: Path, times: Sequence[int], value_bytes: int = 1000) -> Log:
    log = open_log(folder, segment_bytes=400_000, **KEEP_ALL)
    noise = random.Random(1).randbytes(value_bytes)
    for at in times:
        log.append(batch([at, at], noise), NOW)
    return log


def test_little_is_read_of_a_log_in_order_and_of_one_with_stragglers(tmp_path: Path) -> None:
    """S58: a segment or a stretch that cannot hold the end of a range is not read."""
    in_order = large_log(tmp_path / "1", range(NOW, NOW + 600))
    late = large_log(tmp_path / "2", [NOW + n - 200 * (n % 7 == 3) for n in range(600)])
    for log, expected_end in ((in_order, 620), (late, 1016)):
        assert len(log.segments) > 2
        counted = Counted()
        found = between(log, NOW + 300, NOW + 310, RECORD_TIME, counted.source)
        assert found == expected(scan(log), NOW + 300, NOW + 310)
        assert counted.bytes < 60_000
        assert expected_end - 20 < found.stop <= expected_end


def test_minima_that_nobody_knows_are_found_out_once(tmp_path: Path) -> None:
    log = large_log(tmp_path / "1", range(NOW, NOW + 100))
    known = log.active.summary.minima.stretches.times
    log = open_log(crash(log, tmp_path / "crashed"))
    log.active.summary.minima = Minima(
        times=[UNKNOWN] * len(known)
    )  # as a release before minima has left them
    with pytest.raises(TakesLong, match="topic-0: a range of times"):
        between(log, NOW + 10, NOW + 20, RECORD_TIME, WAITING)
    assert between(log, NOW + 10, NOW + 20, RECORD_TIME, PATIENT) == range(20, 40)
    learned = list(log.active.summary.minima.stretches.times)
    # Those before the answer were not looked at, and the last one of an active segment is never settled.
    assert learned.count(UNKNOWN) < 12
    assert learned[-1] == UNKNOWN
    assert all(each in (was, UNKNOWN) for each, was in zip(learned, known, strict=True))
    counted = Counted()
    between(log, NOW + 10, NOW + 20, RECORD_TIME, counted.source)
    assert counted.bytes < 30_000


def test_what_is_sealed_and_saved_is_known_to_the_next_start(tmp_path: Path) -> None:
    log = large_log(tmp_path / "1", range(NOW, NOW + 300))
    sealed = [segment.summary.minima for segment in log.segments]
    log.close()
    log = open_log(tmp_path / "1", clean=True)
    assert [segment.summary.minima for segment in log.segments] == sealed
    assert UNKNOWN not in sealed[0].stretches.times


def test_who_has_no_time_is_told_so(tmp_path: Path) -> None:
    log = large_log(tmp_path / "1", range(NOW, NOW + 300))
    assert between(log, NOW + 10, NOW + 20, RECORD_TIME, WARM) == range(20, 40)
    assert between(log, NOW + 10, NOW + 20, RECORD_TIME, WAITING) == range(20, 40)
    # In every stretch of this one there are records before the range, and after it.
    log = large_log(tmp_path / "2", [at for n in range(300) for at in (NOW, NOW + 500 + n)])
    for source in (WARM, WAITING):
        with pytest.raises(TakesLong):
            between(log, NOW, NOW + 0, RECORD_TIME, source) or between(
                log, NOW + 1, NOW + 9, RECORD_TIME, source
            )
    assert not between(log, NOW + 1, NOW + 9, RECORD_TIME, PATIENT)

    def cold(file: File, count: int, position: int) -> memoryview:
        raise NotInMemory(f"{file.path}@{position}")

    with pytest.raises(NotInMemory):
        between(log, NOW, NOW + 1, RECORD_TIME, Source(cold, waiting=False, prompt=True))


def test_damage_is_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, OUT_OF_ORDER)
    log.close()
    data = bytearray(log.active.path(".log").read_bytes())
    size = len(data) // 60
    for number in (7, 8, 30, 59):
        data[number * size + 70] ^= 1
    log.active.path(".log").write_bytes(data)
    log = open_log(tmp_path, clean=True, recovery_point=120)
    agrees_with_a_scan(log)
    assert log.damaged
    agrees_with_a_scan(log)


def test_stretches_that_became_one_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minima, "STRETCHES_MAX", 4)
    log = large_log(tmp_path / "1", [NOW + (n * 37) % 101 for n in range(60)])
    assert log.active.summary.minima.stretches.stretch_bytes > 16_000
    agrees_with_a_scan(log)


def test_what_a_reader_learned_is_lost_and_not_wrong_where_stretches_became_one_meanwhile() -> None:
    grown = Minima(times=[UNKNOWN] * minima.STRETCHES_MAX)
    stretches = grown.stretches
    grown.note(minima.STRETCHES_MAX * minima.STRETCH_BYTES, 4)
    stretches.times[5] = 7
    assert grown.stretches.times[2] == UNKNOWN


def test_a_walk_begins_at_the_last_entry_before_a_position(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW]] * 4)
    index, size = log.active.offset_index, log.active.size // 4
    for position in range(4 * size):
        assert index.position_at(position) == position // size * size
