"""Appending and reading: offsets, slices, what is refused."""

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.support.logs import NOW, Row, batch, fetch_all, fill, held_open, open_log, scan, whole_rows
from tidelog.protocol.records.batch import read_header
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.errors import BatchTooLarge, InvalidTimestamp, RecordsError
from tidelog.storage import files
from tidelog.storage.errors import LogOffline, OffsetOutOfRange
from tidelog.storage.log import Appended, Log
from tidelog.storage.producer_snapshots import ProducerSnapshots
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention


def test_S80_offsets_count_up_from_zero_whatever_the_sizes(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    assert log.append(batch([NOW] * 3), NOW) == Appended(0, 2, -1, False)
    assert log.append(batch([NOW], b"x" * 500), NOW) == Appended(3, 3, -1, False)
    assert log.append(batch([NOW] * 2), NOW) == Appended(4, 5, -1, False)
    assert [row.offset for row in scan(log)] == [0, 1, 2, 3, 4, 5]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 6, 6)
    assert log.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.log"))


def test_S79_keys_values_and_headers_come_back_and_null_is_not_empty(tmp_path: Path) -> None:
    records = [
        Record(0, NOW, None, None),
        Record(1, NOW, b"", b"", (("h", None), ("h", b""), ("", b"x"))),
        Record(2, NOW, b"key", b"value", (("a", b"1"),)),
    ]
    log = open_log(tmp_path)
    log.append(bytearray(build_batch(records)), NOW)
    assert list(read_records(log.read(0, 1 << 20, True, PATIENT).read())) == records


@pytest.mark.parametrize("codec", range(5))
def test_S64_a_batch_is_stored_as_it_came_but_for_its_offset_and_epoch(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    sent = batch([NOW, NOW + 1], b"abc" * 50, codec=codec)
    before = bytes(sent)
    log.append(sent, NOW)
    stored = log.read(1, 1 << 20, True, PATIENT).read()
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[16:] == before[16:]


def test_S81_a_fetch_into_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW] * 5, [NOW] * 5])
    for offset in range(5, 10):
        assert whole_rows(log.read(offset, 1, True, PATIENT).read())[0].offset == 5


def test_a_read_is_cut_at_max_bytes_but_its_first_batch_is_whole_or_absent(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 4)
    size = log.size_bytes // 4
    assert len(log.read(0, size * 2 + 5, False, PATIENT)) == size * 2 + 5
    assert len(log.read(0, size - 1, False, PATIENT)) == 0
    assert len(log.read(0, size - 1, True, PATIENT)) == size
    assert len(log.read(0, 0, True, PATIENT)) == size
    assert len(log.read(2, 1 << 20, False, PATIENT)) == size * 2


def test_a_read_at_the_end_is_empty_and_outside_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert len(log.read(0, 100, True, PATIENT)) == 0
    fill(log, [[NOW] * 3])
    assert len(log.read(3, 100, True, PATIENT)) == 0
    for offset in (-1, 4, 1 << 62):
        with pytest.raises(OffsetOutOfRange, match=f"topic-0: offset {offset} "):
            log.read(offset, 100, True, PATIENT)
    log.advance_start(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100, True, PATIENT)
    assert whole_rows(log.read(2, 100, True, PATIENT).read())[-1].offset == 2


def test_reads_cross_segments_one_slice_at_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    fill(log, [[NOW + n] for n in range(20)])
    assert len(log.segments) > 5
    assert [row.offset for row in fetch_all(log)] == list(range(20))


def test_a_slice_reads_without_waiting_what_is_in_memory(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW] * 3])
    piece = log.read(0, 1 << 20, True, PATIENT)
    assert piece.read_nowait() in (None, piece.read())
    assert bytes(files.FileSlice(piece.file, 0, len(piece)).read()) == piece.read()


def test_S9_a_batch_with_a_time_too_far_off_is_refused_whole_and_leaves_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0, message_timestamp_after_max_ms=1000)
    fill(log, [[NOW], [NOW + 1]])
    before = (log.active.summary.encode(), bytes(log.active.time_index.data), log.size_bytes)
    with pytest.raises(InvalidTimestamp):
        log.append(batch([NOW, NOW + 1001]), NOW)
    assert (log.active.summary.encode(), bytes(log.active.time_index.data), log.size_bytes) == before
    assert log.append(batch([NOW + 1000]), NOW).base_offset == 2


def test_P19_records_from_the_past_are_taken_unless_the_topic_bounds_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in (0, 1, NOW - 20 * 365 * 24 * 3_600_000):
        log.append(batch([at]), NOW)
    assert [row.timestamp for row in scan(log)] == [0, 1, NOW - 20 * 365 * 24 * 3_600_000]
    log.update_config(log.config.override({"message.timestamp.before.max.ms": "1000"}))
    with pytest.raises(InvalidTimestamp):
        log.append(batch([0]), NOW)


def test_S47_the_bound_on_the_past_is_separate(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp):
        log.append(batch([NOW - 1001]), NOW)
    assert log.append(batch([NOW - 1000]), NOW).base_offset == 0


@pytest.mark.parametrize(
    ("newer", "behind", "ahead"),
    [
        ({}, 500, 500),
        ({"message_timestamp_before_max_ms": 1000}, 1000, 500),
        ({"message_timestamp_after_max_ms": 1000}, 500, 1000),
    ],
)
def test_S47_the_older_option_bounds_what_the_newer_do_not(
    tmp_path: Path, newer: dict[str, int], behind: int, ahead: int
) -> None:
    log = open_log(tmp_path, message_timestamp_difference_max_ms=500, **newer)
    for at in (NOW - behind, NOW + ahead):
        log.append(batch([at]), NOW)
    for at in (NOW - behind - 1, NOW + ahead + 1):
        with pytest.raises(InvalidTimestamp):
            log.append(batch([at]), NOW)


def test_S46_the_index_works_for_both_clocks(tmp_path: Path) -> None:
    for kind in ("CreateTime", "LogAppendTime"):
        log = open_log(tmp_path / kind, message_timestamp_type=kind)
        fill(log, [[5], [6]], now_ms=NOW)
        assert log.active.summary.max_timestamp == (NOW if kind == "LogAppendTime" else 6)


def test_S46_a_producer_may_not_send_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(InvalidTimestamp):
        log.append(batch([NOW], log_append_time=True), NOW)


def test_S48_P22_the_maximum_is_recomputed_from_the_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = batch([NOW, NOW + 8, NOW + 3])
    sent[35:43] = (-1).to_bytes(8, "big", signed=True)
    sent[17:21] = crc32c(sent[21:]).to_bytes(4, "big")
    log.append(sent, NOW)
    stored = log.read(0, 1 << 20, True, PATIENT).read()
    header = read_header(stored)
    assert header.max_timestamp == NOW + 8
    assert header.crc == crc32c(stored[21:])
    assert log.active.summary.max_timestamp_offset == 1


def test_S52_S53_P23_append_time_never_goes_back_not_even_across_restarts(tmp_path: Path) -> None:
    options = {"message_timestamp_type": "LogAppendTime"}
    log = open_log(tmp_path, **options)
    told = [log.append(batch([1]), now).append_time_ms for now in (NOW, NOW + 50, NOW - 3_600_000, NOW + 49)]
    assert told == [NOW, NOW + 50, NOW + 50, NOW + 50]
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=4, **options)
    assert log.append(batch([1]), NOW - 10).append_time_ms == NOW + 50
    log.roll(NOW)
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=5, **options)
    assert log.append(batch([1]), NOW - 10).append_time_ms == NOW + 50
    for path in tmp_path.glob("*.summary"):
        path.unlink()
    log = open_log(tmp_path, **options)
    assert log.last_append_ms >= NOW + 50
    assert sorted(row.timestamp for row in scan(log)) == [row.timestamp for row in scan(log)]


def test_with_log_append_time_the_records_keep_their_create_time_in_the_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime")
    sent = batch([5, 9])
    before = bytes(sent)
    log.append(sent, NOW)
    stored = log.read(0, 1000, True, PATIENT).read()
    assert stored[61:] == before[61:]
    assert [row.timestamp for row in scan(log)] == [NOW, NOW]


@pytest.mark.parametrize("position", [8, 17, 23, 57, 62])
def test_a_batch_that_is_not_right_leaves_nothing(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    sent = batch([NOW])
    sent[position] ^= 0x40
    with pytest.raises(RecordsError):
        log.append(sent, NOW)
    assert (log.log_end_offset, log.size_bytes) == (1, len(sent))
    assert log.append(batch([NOW]), NOW).base_offset == 1


def test_a_batch_above_the_limit_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_message_bytes=200)
    with pytest.raises(BatchTooLarge):
        log.append(batch([NOW], b"x" * 200), NOW)


def test_memoryviews_of_a_frame_are_stored_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    sent = batch([NOW, NOW])
    frame = bytearray(b"head") + sent + b"tail"
    log.append(memoryview(frame)[4:-4], NOW)
    assert (bytes(frame[:4]), bytes(frame[-4:])) == (b"head", b"tail")
    assert scan(log)[1:] == [Row(1, NOW, b"v0"), Row(2, NOW, b"v1")]


def test_a_reader_of_a_deleted_segment_reads_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100, file_delete_delay_ms=0, retention_ms=1000)
    fill(log, [[NOW + n] for n in range(5)])
    piece = log.read(0, 1 << 20, True, PATIENT)
    before = piece.read()
    enforce_retention(log, NOW + 10_000)
    assert not (tmp_path / f"{0:020d}.log").exists()
    assert piece.read() == before
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, True, PATIENT)


def test_truncate_cuts_whole_batches_and_offsets_go_on_from_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    fill(log, [[NOW] * 2 for _ in range(10)])
    log.truncate(7)
    assert log.log_end_offset == 6
    assert log.append(batch([NOW]), NOW).base_offset == 6
    log.truncate(100)
    assert log.log_end_offset == 7
    log.truncate(0)
    assert (log.log_end_offset, log.size_bytes, len(log.segments)) == (0, 0, 1)
    assert [path.name for path in tmp_path.glob("*.log")] == [f"{0:020d}.log"]


def test_a_cut_leaves_no_file_of_a_segment_that_it_removes(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    fill(log, [[NOW] * 2 for _ in range(10)])
    log.close()  # now the last one has a summary too
    log = open_log(tmp_path, clean=True, recovery_point=20)
    assert log.active.path(".summary").exists()
    log.truncate(1)
    assert {path.stem for path in tmp_path.iterdir() if path.stem.isdigit()} == {f"{0:020d}"}


def test_a_cut_where_a_segment_begins_leaves_its_offset_to_go_on_from(tmp_path: Path) -> None:
    """What lies before it may be gone, or end earlier: a log whose start was moved goes on from there."""
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 2)
    log = open_log(tmp_path, log_start_offset=6)
    fill(log, [[NOW], [NOW + 1]])
    log.truncate(6)
    assert (log.log_start_offset, log.log_end_offset, log.active.size) == (6, 6, 0)
    assert log.append(batch([NOW]), NOW).base_offset == 6


def test_behind_a_cut_a_segment_is_sealed_by_the_time_of_what_is_left(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100)
    fill(log, [[NOW], [NOW + 100], [NOW + 101]])
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.truncate(1)
    fill(log, [[NOW + 100]])
    assert len(log.segments) == 1
    fill(log, [[NOW + 101]])
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.truncate(0)
    fill(log, [[NOW + 5000], [NOW + 5100]])
    assert len(log.segments) == 1


def test_after_a_cut_of_records_without_times_a_segment_is_sealed_by_those_of_others(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=100)
    fill(log, [[-1]])
    log.truncate(0)
    fill(log, [[NOW + 5000], [NOW + 5001]], now_ms=NOW + 5000)
    assert len(log.segments) == 1


def test_a_segment_that_changes_amid_a_cut_has_the_log_take_no_append_and_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, segment_bytes=200, index_interval_bytes=1)
    fill(log, [[NOW]] * 9)
    log.close()
    log = open_log(tmp_path, recovery_point=9, clean=True, segment_bytes=200, index_interval_bytes=1)
    load = ProducerSnapshots.load

    def load_then_spoil(*args: Any) -> int | None:
        first = log.segments[0]
        first.release()
        first.path(".index").write_bytes(b"")
        return load(*args)

    monkeypatch.setattr(ProducerSnapshots, "load", load_then_spoil)
    raised: list[Exception] = []

    def cut() -> None:
        try:
            log.truncate(7)
        except LogOffline as error:
            raised.append(error)

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    thread.join(10)
    (error,) = raised
    assert "a cut failed half way" in str(error)
    assert not log.takes_writes
    assert log.log_end_offset == 7


def test_a_cut_takes_the_log_start_and_the_recovery_point_back_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 6)
    log.flush()
    log.advance_start(4)
    log.truncate(5)
    assert (log.log_start_offset, log.recovery_point, log.log_end_offset) == (4, 5, 5)
    log.truncate(5)
    assert log.log_end_offset == 5
    log.truncate(3)
    assert (log.log_start_offset, log.recovery_point, log.log_end_offset) == (3, 3, 3)
    fill(log, [[NOW]])
    assert (log.flush(), log.recovery_point) == (4, 4)


def test_a_log_start_moves_forward_only_and_not_beyond_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 5)
    for offset, start in ((2, 2), (1, 2), (4, 4), (100, 5), (0, 5)):
        log.advance_start(offset)
        assert log.log_start_offset == start


def test_the_size_of_the_last_batch_is_that_of_what_was_stored(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for value in (b"v", b"v" * 500, b""):
        before = log.size_bytes
        fill(log, [[NOW]], value=value)
        assert log.last_batch_bytes == log.size_bytes - before


def test_a_sealed_segment_lets_its_files_go_and_is_read_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=150)
    fill(log, [[NOW + n] for n in range(6)])
    rows = fetch_all(log)
    assert held_open(tmp_path) > len(log.segments)
    log.release()
    assert held_open(tmp_path) == 1, "the active segment stays open"
    assert fetch_all(log) == rows


def test_damage_is_named_by_file_and_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 3)
    assert log.damaged == ()
    size = log.size_bytes // 3
    log.flush()
    log.active.file.write_at(b"?", 2 * size - 1)
    log = open_log(tmp_path, recovery_point=3)
    scan(log)
    assert log.damaged == (f"{0:020d}.log@{size}-{2 * size}",)


def test_a_listing_goes_around_damage_that_nobody_has_met_before(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]] * 3)
    size = log.size_bytes // 3
    log.close()
    log.active.file.write_at(b"?", 2 * size - 1)
    log = open_log(tmp_path, clean=True, recovery_point=3)
    assert [header.base_offset for _, _, header in log.headers(0)] == [0, 2]
    log = open_log(tmp_path, clean=True, recovery_point=3)
    assert [header.base_offset for _, _, header in log.headers(2)] == [2]


def test_a_cut_in_a_log_that_was_just_loaded_leaves_nothing_to_be_doubted(
    tmp_path: Path, blocks_of: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    blocks_of(4096)
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW]] * 8, value=b"v" * 5000)
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=8, index_interval_bytes=0)
    log.truncate(4)
    assert log.active.unverified is None
    fill(log, [[NOW]] * 4, value=b"others")
    assert [row.offset for row in fetch_all(log)] == list(range(8))
    assert "rebuilt from the log" not in caplog.text


def test_a_cut_of_nothing_takes_no_sync_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log.flush()
    fill(log, [[NOW]])
    mark = log.durability.flush_mark(log)
    assert mark is not None
    log.truncate(2)
    assert log.durability.flushed(log, mark)
    assert log.recovery_point == 2


def test_what_may_be_read_ends_where_the_log_does_as_long_as_nothing_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW, NOW]])
    assert log.high_watermark == log.last_stable_offset == 2
    assert [log.readable_end(isolation_level) for isolation_level in (0, 1)] == [2, 2]
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda _: 1))
    assert [log.readable_end(isolation_level) for isolation_level in (0, 1)] == [2, 1]


def test_a_log_that_nobody_has_any_more_holds_no_file_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(2):
        fill(log, [[NOW]])
        log.roll(NOW)
        log.flush()
    log.read(0, 100, True, PATIENT)
    gc.disable()
    try:
        assert held_open(tmp_path) > 0
        del log
        assert held_open(tmp_path) == 0
    finally:
        gc.enable()
