"""When a segment is sealed and the next begun."""

import dataclasses
import json
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.support.logs import NOW, batch, crash, fill, open_log
from tests.support.reference_index import differences
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.append_index import HEADER_BYTES
from tidelog.storage.minima import Minima
from tidelog.storage.quick_rolls import QUICK_ROLLS
from tidelog.storage.segment import Segment
from tidelog.storage.summary import Origin
from tidelog.storage.upkeep import enforce_retention


def bases(segments: tuple[Segment, ...]) -> list[int]:
    return [segment.base_offset for segment in segments]


def test_a_segment_is_never_larger_than_its_bound_unless_one_batch_is(tmp_path: Path) -> None:
    size = len(batch([NOW]))
    log = open_log(tmp_path, segment_bytes=2 * size)
    fill(log, [[NOW]] * 5)
    log.append(batch([NOW], b"x" * 400), NOW)
    fill(log, [[NOW]])
    assert bases(log.segments) == [0, 2, 4, 5, 6]


def test_S27_time_counts_from_the_first_batch_of_the_segment_and_by_the_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100)
    fill(log, [[NOW, NOW + 10], [NOW + 60]])
    # Neither the clock, nor the largest timestamp so far, nor a time before the first has a say.
    fill(log, [[NOW + 110], [NOW - 500]], now_ms=NOW + 10**6)
    assert bases(log.segments) == [0]
    fill(log, [[NOW + 5, NOW + 111]])
    assert bases(log.segments) == [0, 5]
    fill(log, [[NOW + 211]])
    assert bases(log.segments) == [0, 5]
    fill(log, [[NOW + 212]])
    assert bases(log.segments) == [0, 5, 8]


def test_S27_the_jitter_is_subtracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda stop: stop - 1)
    log = open_log(tmp_path, segment_ms=100, segment_jitter_ms=41)
    fill(log, [[NOW], [NOW + 60]])
    assert bases(log.segments) == [0]
    fill(log, [[NOW + 61]])
    assert bases(log.segments) == [0, 2]


def test_a_compacted_log_rolls_by_the_shorter_of_its_span_and_its_lag(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000, max_compaction_lag_ms=100, cleanup_policy=("compact",))

    def append(at_ms: int) -> list[int]:
        log.append(bytearray(build_batch([Record(0, at_ms, b"k", b"v")])), NOW)
        return bases(log.segments)

    append(NOW)
    assert append(NOW + 100) == [0]
    assert append(NOW + 101) == [0, 2]
    log.update_config(dataclasses.replace(log.config, cleanup_policy=("delete",)))
    assert append(NOW + 1101) == [0, 2]
    log.update_config(dataclasses.replace(log.config, cleanup_policy=("compact", "delete")))
    assert append(NOW + 1101) == [0, 2, 4]


def test_S27_a_first_timestamp_of_0_is_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000)
    fill(log, [[0]], now_ms=NOW)
    fill(log, [[1000]], now_ms=NOW + 5000)
    assert len(log.segments) == 1
    fill(log, [[1001]], now_ms=NOW + 5000)
    assert len(log.segments) == 2


def test_S28_without_timestamps_the_age_of_the_segment_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100, now_ms=NOW)
    fill(log, [[-1]], now_ms=NOW + 90)
    fill(log, [[NOW - 10**6]], now_ms=NOW + 100)
    assert bases(log.segments) == [0]
    fill(log, [[-1]], now_ms=NOW + 101)
    assert bases(log.segments) == [0, 2]


@pytest.mark.parametrize("clean", [True, False])
def test_S28_the_age_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    options = {"segment_ms": 100}
    log = open_log(tmp_path / "a", now_ms=NOW, **options)
    fill(log, [[-1]], now_ms=NOW + 50)
    if clean:
        log.close()
    folder = crash(log, tmp_path / "b")
    again = open_log(folder, clean=clean, recovery_point=int(clean), now_ms=NOW + 80, **options)
    fill(again, [[-1]], now_ms=NOW + 100)
    assert bases(again.segments) == [0]
    fill(again, [[-1]], now_ms=NOW + 101)
    assert bases(again.segments) == [0, 2]


def test_the_first_batch_decides_after_a_restart_too(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a", segment_ms=100)
    fill(log, [[NOW]])
    again = open_log(crash(log, tmp_path / "b"), segment_ms=100)
    fill(again, [[NOW + 100], [NOW + 101]])
    assert bases(again.segments) == [0, 2]


@pytest.mark.parametrize(("timestamps", "entries"), [(range(9), (3, 2)), ([0] * 9, (5, 1))])
def test_S7_a_full_index_seals_its_segment_and_the_time_index_keeps_a_slot(
    tmp_path: Path, timestamps: list[int], entries: tuple[int, int]
) -> None:
    # 40 bytes: five offset entries, or three time entries, of which one is kept for the sealing.
    log = open_log(tmp_path, index_interval_bytes=0, segment_index_bytes=40)
    fill(log, [[NOW + at] for at in timestamps])
    first = log.segments[0]
    assert len(log.segments) > 1
    if entries[0] == 5:
        assert (len(first.offset_index), len(first.time_index)) == (5, 1)
    else:
        assert len(first.offset_index) == 2
        assert len(first.time_index) <= 3
    assert all(path.stat().st_size <= 40 for path in tmp_path.glob("*.[it]*index"))
    log.close()
    assert differences(tmp_path, 0) == []


def test_an_offset_that_does_not_fit_its_segment_begins_another(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log.log_end_offset = (1 << 31) - 2
    fill(log, [[NOW, NOW]])
    assert bases(log.segments) == [0]
    fill(log, [[NOW]])
    assert bases(log.segments) == [0, 1 << 31]


def test_P21_an_idle_segment_is_sealed_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100)
    enforce_retention(log, NOW + 10**6)
    assert bases(log.segments) == [0]
    fill(log, [[5]], now_ms=NOW)
    enforce_retention(log, NOW + 100)
    assert bases(log.segments) == [0]
    enforce_retention(log, NOW + 101)
    assert bases(log.segments) == [0, 1]


def test_rolling_an_empty_segment_is_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.roll(NOW)
    assert bases(log.segments) == [0]


DAY = 24 * 3_600_000


def test_S59_P18_times_that_jump_open_few_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, segment_ms=DAY, message_timestamp_after_max_ms=1000 * DAY)
    for number in range(1000):
        log.append(batch([NOW - 5000 * DAY + 2 * DAY * number]), NOW)
    assert len(log.segments) == QUICK_ROLLS
    log.append(batch([NOW]), NOW + 32 * 10_000 - 1)
    assert len(log.segments) == QUICK_ROLLS
    log.append(batch([NOW]), NOW + 32 * 10_000)
    assert len(log.segments) == QUICK_ROLLS + 1
    for number in range(100):
        log.append(batch([NOW + 2 * DAY * number]), NOW + 32 * 10_000)
    assert len(log.segments) == 2 * QUICK_ROLLS
    (told,) = [record.getMessage() for record in caplog.records if "jump" in record.message]
    assert "topic-0" in told


@pytest.mark.parametrize(("clock", "rolls"), [("bounded", True), ("record", True), ("append", False)])
def test_S59_no_record_is_kept_longer_for_it(tmp_path: Path, clock: str, rolls: bool) -> None:
    log = open_log(tmp_path, segment_ms=DAY, retention_ms=100 * DAY, retention_clock=clock)
    for number in range(90):
        log.append(batch([NOW - 190 * DAY + 2 * DAY * number]), NOW)
    # Half of them expire at once: these need no segment each. By the clock of appends they all expire together.
    assert len(log.segments) == (QUICK_ROLLS + 90 // 2 if rolls else QUICK_ROLLS)


@pytest.mark.parametrize(("first_ms", "step_ms"), [(NOW - 10**6, 2000), (NOW + DAY, 2 * DAY)])
def test_S59_no_segment_for_what_is_hardly_kept_longer(tmp_path: Path, first_ms: int, step_ms: int) -> None:
    log = open_log(
        tmp_path, segment_ms=1000, retention_ms=100 * DAY, message_timestamp_after_max_ms=1000 * DAY
    )
    for number in range(100):
        log.append(batch([first_ms + step_ms * number]), NOW)
    assert len(log.segments) == QUICK_ROLLS


def test_S59_segments_that_size_calls_for_are_begun_as_ever(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=14)
    fill(log, [[NOW]] * 100)
    assert len(log.segments) == 100


def test_a_summary_is_written_with_the_sealing(tmp_path: Path) -> None:
    log = open_log(tmp_path, now_ms=NOW - 7)
    fill(log, [[NOW + 3, NOW + 9], [NOW - 4]], now_ms=NOW)
    fill(log, [[NOW + 9]], now_ms=NOW + 2)
    log.roll(NOW + 2)
    log.flush()
    again = open_log(tmp_path, clean=True)
    summary = again.segments[0].summary
    found = {name: getattr(summary, name) for name in summary.__slots__}
    assert found.pop("offset_crc") == 0
    assert found.pop("time_crc") > 0
    expected = {
        "flushed": 1,
        "log_bytes": log.segments[0].size,
        "next_offset": 4,
        "created_ms": NOW - 7,
        "index_interval_bytes": 4096,
        "record_count": 4,
        "batch_count": 3,
        "first_timestamp": NOW + 9,
        "min_timestamp": NOW - 4,
        "max_timestamp": NOW + 9,
        "max_timestamp_offset": 1,
        "max_timestamp_last_offset": 1,
        "first_append_ms": NOW,
        "last_append_ms": NOW + 2,
        "indexed_position": 0,
        "offset_entries": 0,
        "time_entries": 1,
        "append_entries": 2,
        "is_created_bound": 0,
        "transactional": 0,
        "horizon_ms": -1,
        "cleaned_to": -1,
        "cleaned_ms": -1,
        "source_bytes": -1,
        "seen_to": -1,
        "seen_ms": -1,
        "append_crc": crc32c(log.segments[0].path(".appendindex").read_bytes()[HEADER_BYTES:]),
        "origin": Origin.APPENDED,
        "appended_from": 0,
        "damage": (),
        "minima": Minima(4096, [NOW - 4]),
        "digests": crc32c(log.segments[0].path(".log").read_bytes()).to_bytes(4, "big"),
        "file_append_ms": -1,  # not of the file
    }
    assert found == expected, json.dumps(found, default=str)


def test_a_first_batch_of_the_first_millisecond_of_1970_counts_by_its_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100, now_ms=NOW)
    fill(log, [[0], [100]], now_ms=NOW + 10**6)
    assert bases(log.segments) == [0]
    fill(log, [[101]])
    assert bases(log.segments) == [0, 2]


def test_the_age_of_an_empty_segment_seals_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100, now_ms=NOW)
    fill(log, [[NOW]], now_ms=NOW + 500)
    fill(log, [[NOW + 50]], now_ms=NOW + 600)
    assert bases(log.segments) == [0]


def test_S27_a_jitter_takes_no_more_than_all_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.randrange", lambda stop: stop - 1)
    log = open_log(tmp_path, segment_ms=100, segment_jitter_ms=1000)
    fill(log, [[NOW], [NOW + 1]])
    assert bases(log.segments) == [0]
    fill(log, [[NOW + 2]])
    assert bases(log.segments) == [0, 2]


def test_S7_a_bound_on_indexes_that_is_made_smaller_holds_from_the_next_append_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW + n] for n in range(6)])
    log.update_config(log.config.override({"segment.index.bytes": "40"}))
    fill(log, [[NOW + 6]])
    assert bases(log.segments) == [0, 6]
    log.update_config(log.config.override({"segment.index.bytes": "4000"}))
    fill(log, [[NOW + 7 + n] for n in range(20)])
    assert bases(log.segments) == [0, 6]


def test_S7_a_full_index_seals_its_segment_after_a_restart_too(tmp_path: Path) -> None:
    options = {"index_interval_bytes": 0, "segment_index_bytes": 40}
    log = open_log(tmp_path, **options)
    fill(log, [[NOW]] * 6)  # the first of them has no entry
    assert bases(log.segments) == [0]
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=6, **options)
    fill(log, [[NOW]])
    assert bases(log.segments) == [0, 6]
    assert (tmp_path / f"{0:020d}.index").stat().st_size == 40
