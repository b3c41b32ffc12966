"""Lag in time and latency, as functions of a log."""

from pathlib import Path

import pytest

from tests.support.logs import NOW, batch, fill, open_log
from tidelog.storage.errors import CorruptLog, NotInMemory
from tidelog.storage.files import File
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.search.lag import lag_ms, latency_ms, times_of, waits_ms
from tidelog.storage.sources import PATIENT, WARM, Source


def test_S56_the_lag_of_a_position_is_the_time_from_its_record_to_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=150)
    for n in range(5):
        fill(log, [[NOW + 100 * n - 7, NOW + 100 * n]], NOW + 10 * n)
    by_append = [lag_ms(log, offset, APPEND_TIME, PATIENT) for offset in range(12)]
    assert by_append == [40, 40, 30, 30, 20, 20, 10, 10, 0, 0, 0, 0]
    by_record = [lag_ms(log, offset, RECORD_TIME, PATIENT) for offset in range(12)]
    assert by_record == [407, 400, 307, 300, 207, 200, 107, 100, 7, 0, 0, 0]
    # A reader that stands before the log's start comes to its start next.
    log.advance_start(5)
    assert lag_ms(log, 0, APPEND_TIME, PATIENT) == 20
    assert lag_ms(log, 0, RECORD_TIME, WARM) == 200


def test_S56_a_last_record_that_is_older_is_no_lag_and_one_without_a_time_has_none(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert lag_ms(log, 0, RECORD_TIME, PATIENT) == lag_ms(log, 0, APPEND_TIME, PATIENT) == 0
    fill(log, [[NOW], [NOW - 50]])
    assert lag_ms(log, 0, RECORD_TIME, PATIENT) == 0
    fill(log, [[-1]], NOW + 5)
    assert lag_ms(log, 0, RECORD_TIME, PATIENT) is None
    assert lag_ms(log, 2, RECORD_TIME, PATIENT) is None
    assert lag_ms(log, 0, APPEND_TIME, PATIENT) == 5


def test_S57_the_latency_of_a_record_is_from_its_making_to_its_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW - 30, NOW + 4], [-1]], NOW)
    latencies = []
    for offset in range(3):
        times = times_of(log, offset, PATIENT)
        assert times is not None
        assert (times.offset, times.append_ms, times.is_bound) == (offset, NOW, False)
        latencies.append(latency_ms(times))
    assert latencies == [30, -4, None]
    assert times_of(log, 3, PATIENT) is None
    log = open_log(tmp_path / "stamped", message_timestamp_type="LogAppendTime")
    log.append(batch([NOW - 30]), NOW)
    times = times_of(log, 0, PATIENT)
    assert times == (0, NOW, NOW, False, True)
    assert latency_ms(times) is None


def test_where_the_append_time_is_a_bound_that_is_said(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]], NOW)
    log.close()
    log.active.path(".appendindex").unlink()
    log.active.path(".summary").unlink()
    log = open_log(tmp_path, now_ms=NOW * 2)
    times = times_of(log, 0, PATIENT)
    assert times is not None
    assert times.is_bound
    assert times.append_ms > NOW


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1], [NOW + 2]])

    def cold(file: File, count: int, position: int) -> memoryview:
        raise NotInMemory(f"{file.path}@{position}")

    with pytest.raises(NotInMemory):
        times_of(log, 0, Source(cold, waiting=False, prompt=True))
    log.close()
    path = log.active.path(".log")
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 65] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, clean=True, recovery_point=3)
    with pytest.raises(CorruptLog, match="offset 1 is in damaged bytes"):
        times_of(log, 1, PATIENT)
    times = times_of(log, 2, PATIENT)
    assert times is not None
    assert times.record_ms == NOW + 2


def test_how_long_the_first_record_that_is_not_passed_has_waited(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert waits_ms(log, 0, RECORD_TIME, NOW, PATIENT) == 0
    fill(log, [[NOW - 30, NOW + 4]], NOW - 10)
    fill(log, [[-1]], NOW)
    assert [waits_ms(log, n, RECORD_TIME, NOW, PATIENT) for n in range(5)] == [30, 0, None, 0, 0]
    assert [waits_ms(log, n, APPEND_TIME, NOW, PATIENT) for n in range(5)] == [10, 10, 0, 0, 0]
    log.advance_start(1)
    assert waits_ms(log, 0, RECORD_TIME, NOW + 9, PATIENT) == 5
