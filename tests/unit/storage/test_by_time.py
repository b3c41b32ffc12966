"""Lookups by time, each against a scan of all records."""

import itertools
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.support.logs import NOW, batch, fill, first_at, open_log, scan
from tidelog.protocol.records import compression, validate
from tidelog.protocol.records.batch import HEADER
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files
from tidelog.storage.errors import CorruptLog, NotInMemory, OffsetOutOfRange, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.search import by_offset, by_time, in_batch, times_cache
from tidelog.storage.search.times_cache import TimesCache
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT, WAITING, WARM, Source
from tidelog.storage.time_index import TimeIndex

OUT_OF_ORDER = [[NOW + (n * 37) % 101, NOW + (n * 53) % 97] for n in range(60)]


def kept_bytes(log: Log) -> list[int]:
    """Return how many bytes are kept for each batch of a log's one segment; nothing for a batch that is not kept."""
    places = [times_cache.key_of(segment.identity, position) for segment, position, _ in log.headers(0)]
    return [len(packed) for place in places if (packed := log.shared.times.get(place)) is not None]


def agrees_with_a_scan(log: Log) -> None:
    rows = scan(log)
    for wanted in sorted({row.timestamp + step for row in rows for step in (-1, 0, 1)} | {0, NOW * 2}):
        if wanted >= 0:
            found = first_at(log, wanted, PATIENT)
            expected = next((row for row in rows if row.timestamp >= wanted), None)
            assert (found and (found.offset, found.timestamp)) == (expected and expected[:2]), wanted
    found = by_time.largest_timestamp(log, PATIENT)
    timed = [row for row in rows if row.timestamp >= 0]
    expected = max(timed, key=lambda row: (row.timestamp, -row.offset), default=None)
    assert (found and (found.offset, found.timestamp)) == (expected and expected[:2])


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
def test_S29_S30_S31_S33_S35_the_answer_is_the_first_record_at_or_after(
    tmp_path: Path, codec: int, segment_bytes: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=150, segment_bytes=segment_bytes)
    fill(log, OUT_OF_ORDER, codec=codec)
    agrees_with_a_scan(log)
    log.advance_start(41)
    agrees_with_a_scan(log)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_log_that_begins_within_a_large_batch_gives_nothing_before_its_start(
    tmp_path: Path, codec: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    noise = random.Random(1)
    for first in range(0, 80, 20):
        records = [Record(n, NOW + first + n, None, noise.randbytes(1000), ()) for n in range(20)]
        log.append(memoryview(bytearray(build_batch(records, base_offset=0, codec=codec))), NOW)
    for start in (41, 50, 59, 60):
        log.advance_start(start)
        for _ in range(2):
            agrees_with_a_scan(log)


def test_S34_S84_the_density_of_the_index_changes_no_answer(tmp_path: Path) -> None:
    logs = []
    for interval in (0, 1 << 30):
        log = open_log(tmp_path / str(interval), index_interval_bytes=interval, segment_bytes=2000)
        fill(log, OUT_OF_ORDER)
        logs.append(log)
    for wanted in range(NOW - 1, NOW + 103):
        dense, sparse = (first_at(log, wanted, PATIENT) for log in logs)
        assert dense == sparse


def test_S29_a_segment_whose_largest_timestamp_is_the_target_is_searched(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW + 1]])
    assert first_at(log, NOW, PATIENT) == (NOW, 0, 0)


def test_S32_records_behind_the_answer_may_be_older(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + 5, NOW]])
    assert first_at(log, NOW + 3, PATIENT) == (NOW + 5, 0, 0)


def test_S36_the_answer_has_the_epoch_of_its_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log = open_log(tmp_path, recovery_point=1)
    fill(log, [[NOW + 5]])
    assert [first_at(log, at, PATIENT) for at in (NOW, NOW + 1)] == [(NOW, 0, 0), (NOW + 5, 1, 1)]
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 5, 1, 1)


def test_with_log_append_time_all_records_of_a_batch_have_its_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime", index_interval_bytes=0)
    for now in (NOW, NOW, NOW + 10):
        log.append(batch([5, 900, 7]), now)
    assert first_at(log, NOW, PATIENT) == (NOW, 0, 0)
    assert first_at(log, NOW + 1, PATIENT) == (NOW + 10, 6, 0)
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 10, 6, 0)
    log.advance_start(7)
    assert first_at(log, NOW, PATIENT) == (NOW + 10, 7, 0)
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 10, 7, 0)
    agrees_with_a_scan(log)


def test_a_record_without_a_timestamp_is_never_an_answer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[-1], [-1, -1]])
    assert first_at(log, 0, PATIENT) is None
    assert first_at(log, -1, PATIENT) is None
    assert by_time.largest_timestamp(log, PATIENT) is None
    fill(log, [[-1, 0]])
    assert first_at(log, 0, PATIENT) == (0, 4, 0)


def test_P5_of_an_empty_log_nothing_is_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert first_at(log, 0, PATIENT) is None
    assert by_time.largest_timestamp(log, PATIENT) is None


def test_V5_P4_a_log_start_behind_the_match_does_not_end_the_search(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[100], [200], [120]])
    log.roll(NOW)
    fill(log, [[300]])
    log.advance_start(2)
    assert first_at(log, 150, PATIENT) == (300, 3, 0)


def test_V5_within_one_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[100, 200, 120], [110], [300]])
    log.advance_start(2)
    assert first_at(log, 150, PATIENT) == (300, 4, 0)
    agrees_with_a_scan(log)


def test_V6_P4_P5_an_empty_batch_with_a_timestamp_does_not_hide_what_is_behind_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[100], [200]])
    # What compaction leaves of a producer's last batch: its header, and no record.
    empty = HEADER.pack(2, 49, 0, 2, 0, 0, 2, 500, 500, 7, 0, 0, 0)
    empty = empty[:17] + crc32c(empty[21:]).to_bytes(4, "big") + empty[21:]
    with open(log.active.path(".log"), "ab") as file:
        file.write(empty)
    log = open_log(tmp_path)
    assert log.log_end_offset == 5
    log.roll(NOW)
    fill(log, [[600]])
    assert first_at(log, 400, PATIENT) == (600, 5, 1)
    log.truncate(5)
    assert first_at(log, 400, PATIENT) is None
    assert by_time.largest_timestamp(log, PATIENT) == (200, 1, 0)


def test_P24_P5_the_largest_timestamp_is_never_one_below_the_log_start(tmp_path: Path) -> None:
    stamps = [NOW + 5, NOW + 9, NOW + 9, NOW + 2, NOW + 7, NOW + 7, NOW + 1]
    for sizes in ([7], [3, 4], [1] * 7, [2, 2, 3]):
        log = open_log(tmp_path / str(sizes), index_interval_bytes=0)
        for size, first in zip(sizes, itertools.accumulate(sizes, initial=0), strict=False):
            fill(log, [stamps[first : first + size]])
        for start in range(8):
            log.advance_start(start)
            agrees_with_a_scan(log)
        assert by_time.largest_timestamp(log, PATIENT) is None


def test_P5_the_largest_timestamp_is_the_first_record_that_has_it_after_a_rebuild_too(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW, NOW + 9, NOW + 9], [NOW + 9]])
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 9, 1, 0)
    assert by_time.largest_timestamp(open_log(tmp_path), PATIENT) == (NOW + 9, 1, 0)


def test_P6_times_beyond_32_bits_and_the_ends_of_the_range(tmp_path: Path) -> None:
    far = (1 << 62) + 5
    log = open_log(tmp_path, message_timestamp_after_max_ms=(1 << 63) - 1)
    fill(log, [[0], [1 << 32], [(1 << 32) + 1, 5], [far]], now_ms=0)
    agrees_with_a_scan(log)
    assert first_at(log, (1 << 63) - 1, PATIENT) is None
    assert first_at(log, far, PATIENT) == (far, 4, 0)


@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_large_batches_are_searched_within(tmp_path: Path, clock: str) -> None:
    rng = random.Random(3)
    log = open_log(tmp_path, message_timestamp_type=clock)
    for number in range(6):
        stamps = [NOW + rng.randrange(10**6) for _ in range(700)]
        fill(log, [stamps], now_ms=NOW + 200_000 * number, codec=4)
    rows = scan(log)
    for _ in range(200):
        wanted = NOW + rng.randrange(10**6)
        found = first_at(log, wanted, PATIENT)
        expected = next((row for row in rows if row.timestamp >= wanted), None)
        assert (found and (found.offset, found.timestamp)) == (expected and expected[:2])


def test_many_small_batches_between_two_entries_are_walked(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    fill(log, [[NOW + n] for n in range(1500)])
    assert first_at(log, NOW + 1499, PATIENT) == (NOW + 1499, 1499, 0)


def test_a_record_far_ahead_of_its_time_does_not_make_lookups_walk_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW], [NOW + 1000], *([NOW + n] for n in range(1, 900)), [NOW + 2000]])
    reads = reads_of(monkeypatch)
    assert first_at(log, NOW + 1500, PATIENT) == (NOW + 2000, 901, 0)
    assert sum(reads) < 500


def test_a_batch_that_is_searched_again_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + (n * 37) % 101 for n in range(100)]] * 3, codec=4)
    assert first_at(log, NOW, PATIENT) is not None
    monkeypatch.setattr(in_batch.compression, "decompress", None)
    for wanted in range(NOW, NOW + 100):
        found = first_at(log, wanted, PATIENT)
        assert found is not None
        assert found.timestamp >= wanted


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many bytes each read gives from now on."""
    reads: list[int] = []

    def read(segment: Segment, *args: Any, read: Any = Segment.read) -> Any:
        data = read(segment, *args)
        reads.append(len(data))
        return data

    monkeypatch.setattr(Segment, "read", read)
    return reads


@pytest.mark.parametrize("head_bytes", [43, 60, 61, 62])
@pytest.mark.parametrize("source", [PATIENT, WAITING, WARM])
def test_a_batch_of_which_not_even_the_header_was_read_on_the_way_is_searched(
    tmp_path: Path, source: Source, head_bytes: int
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW, NOW + 1]])
    segment = log.active
    position, size, head = by_offset.locate(segment, 0, PATIENT)
    place = position, size, head[:head_bytes]
    found = in_batch.first_record(segment, place, NOW + 1, 0, log.config.max_decompressed_bytes, source)
    assert found is not None
    assert found[:2] == (NOW + 1, 1)


@pytest.mark.parametrize("source", [PATIENT, WAITING, WARM])
def test_a_large_batch_is_read_up_to_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    log = open_log(tmp_path)
    sizes = [100, 3000, 200_000, 10, 70_000, *[1000] * 500]
    records = [Record(n, NOW + n, None, b"v" * size, ()) for n, size in enumerate(sizes)]
    for each in ([Record(0, NOW - 1, None, b"v", ())], records):
        log.append(memoryview(bytearray(build_batch(each, base_offset=0))), NOW)
    reads = reads_of(monkeypatch)
    for number in [0, 1, 3, 100, 300, 504, 2, 4]:
        log.shared.times = TimesCache()
        reads.clear()
        assert first_at(log, NOW + number, source) == (NOW + number, 1 + number, 0)
        assert sum(reads) < 3 * (sum(sizes[: number + 1]) + by_offset.PART_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr(by_offset, "PART_BYTES", 500)
        patch.setattr(in_batch, "PART_BYTES", 500)
        for number in range(0, 500, 7):
            log.shared.times = TimesCache()
            assert first_at(log, NOW + number, source) == (NOW + number, 1 + number, 0)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("step", [0, 1, 1 << 20])
def test_a_large_batch_that_was_just_written_is_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int, step: int
) -> None:
    log = open_log(tmp_path, message_timestamp_after_max_ms=2**62)
    log.leader_epoch = 3
    fill(log, [[NOW - 2 - n * step for n in range(2000)], [NOW - 1]])
    log.append(batch([NOW + (n ^ 1) * step for n in range(2000)], codec=codec), NOW)
    monkeypatch.setattr(in_batch.kernel, "find_record", None)
    monkeypatch.setattr(in_batch.kernel, "times", None)
    for number in (0, 1, 2, 500, 998):
        found = first_at(log, NOW + number * step, PATIENT)
        assert found == (NOW + (number | 1) * step, 2001 + ((number | 1) ^ 1 if step else 0), 3)


def test_what_is_kept_of_a_written_batch_follows_no_lie_and_no_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_after_max_ms=2**62)
    stamps = [NOW + n % 7 * 1000 for n in range(1000)]
    for claimed in (NOW - 1, NOW + 1, NOW + 127, NOW + 2**40, 2**63 - 1):
        data = batch(stamps, codec=4)
        header = list(HEADER.unpack_from(data))
        header[8] = claimed
        HEADER.pack_into(data, 0, *header)
        header[4] = crc32c(data[21:])
        HEADER.pack_into(data, 0, *header)
        log.append(data, NOW)
        for _ in range(2):
            agrees_with_a_scan(log)
        fill(log, [[NOW - 5 + n for n in range(2000)]])
        log.truncate(1000)
        agrees_with_a_scan(log)
        log.truncate(0)


@pytest.mark.parametrize("codec", [0, 4])
def test_the_times_of_very_many_records_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    monkeypatch.setattr(validate, "_TIMED_RECORDS_MAX", 2999)
    monkeypatch.setattr(in_batch, "_KEPT_BYTES_MAX", 2 * 2999)  # a time takes two bytes
    log = open_log(tmp_path)
    fill(log, [[NOW + n for n in range(3000)]], codec=codec)
    for _ in range(3):
        assert first_at(log, NOW + 7, PATIENT) == (NOW + 7, 7, 0)
    assert kept_bytes(log) == []


@pytest.mark.parametrize(("room_bytes", "is_kept"), [(6000, False), (6100, True)])
def test_what_is_kept_of_a_batch_is_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int, is_kept: bool
) -> None:
    monkeypatch.setattr(validate, "_TIMED_RECORDS_MAX", 2999)
    monkeypatch.setattr(in_batch, "_KEPT_BYTES_MAX", room_bytes)
    log = open_log(tmp_path)
    fill(log, [[NOW + n for n in range(3000)]], codec=4)
    assert first_at(log, NOW + 7, PATIENT) == (NOW + 7, 7, 0)
    assert bool(kept_bytes(log)) == is_kept
    assert times_cache.packed_bytes(next(log.headers(0))[2]) in range(6000, 6100), "two bytes for a time"


@pytest.mark.parametrize("source", [WARM, WAITING])
def test_what_takes_long_is_not_begun_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    monkeypatch.setattr(in_batch, "PROMPT_BYTES", 8192)
    monkeypatch.setattr(validate, "_TIMED_RECORDS_MAX", 0)
    for folder, codec, large in (("a", 4, True), ("b", 4, False), ("c", 0, True)):
        log = open_log(tmp_path / folder)
        stamps = [NOW + n for n in range(900 if large else 300)]
        log.append(batch(stamps, codec=codec, value=b"v" * (5 if codec else 100)), NOW)
        if large:
            with pytest.raises(TakesLong, match="a large batch"):
                first_at(log, stamps[-1], source)
            assert first_at(log, stamps[-1], PATIENT) == (stamps[-1], 899, 0)
        else:
            assert first_at(log, stamps[-1], source) == (stamps[-1], 299, 0)


def test_a_batch_that_is_large_as_it_is_stored_is_not_even_read_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_batch, "PROMPT_BYTES", 4096)
    monkeypatch.setattr(validate, "_TIMED_RECORDS_MAX", 0)
    log = open_log(tmp_path)
    log.append(batch([NOW, NOW + 5], codec=4, value=random.Random(1).randbytes(70_000)), NOW)
    monkeypatch.delattr(compression, "decompress")
    with pytest.raises(TakesLong):
        first_at(log, NOW + 5, WARM)


@pytest.mark.parametrize("source", [WARM, WAITING])
def test_a_walk_that_takes_long_is_given_up_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    monkeypatch.setattr(by_offset, "BRIEF_WALK_BYTES", by_offset.PROMPT_WALK_BYTES)
    log = open_log(tmp_path, index_interval_bytes=2**31 - 1)
    fill(log, [[NOW + n] for n in range(5000)], value=b"v" * 100)
    assert log.active.size > 2 * by_offset.PROMPT_WALK_BYTES
    for ask in (
        lambda n, source: log.read(n, 1, True, source).position,
        lambda n, source: first_at(log, NOW + n, source),
    ):
        assert ask(1000, source) == ask(1000, PATIENT)
        with pytest.raises(TakesLong, match="lies further on"):
            ask(4999, source)
        assert ask(4999, PATIENT)


def test_in_memory_less_is_walked_over_than_where_the_disk_is_waited_for(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=2**31 - 1)
    fill(log, [[NOW + n] for n in range(5000)], value=b"v" * 100)
    assert by_offset.PROMPT_WALK_BYTES < log.active.size < by_offset.BRIEF_WALK_BYTES
    assert log.read(4999, 1, True, WAITING).position == log.read(4999, 1, True, PATIENT).position
    with pytest.raises(TakesLong):
        log.read(4999, 1, True, WARM)


def test_large_batches_that_lie_far_apart_are_found_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_message_bytes=2**20)
    fill(log, [[NOW + n] for n in range(4)], value=b"v" * 500_000)
    for n in range(4):
        assert log.read(n, 1, True, WARM).position == log.read(n, 1, True, PATIENT).position
        assert first_at(log, NOW + n, WARM) == (NOW + n, n, 0)


@pytest.mark.parametrize("source", [WARM, WAITING])
def test_very_many_segments_are_not_gone_through_where_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    log = open_log(tmp_path, segment_bytes=14)
    fill(log, [[NOW + n] for n in range(5)])
    for ask in (
        lambda source: first_at(log, NOW + 3, source),
        lambda *how: by_time.largest_timestamp(log, source),
        lambda source: by_time.offsets_before(log, -1, 3, source),
    ):
        monkeypatch.setattr(by_time, "PROMPT_SEGMENTS", 5)
        assert ask(source) == ask(PATIENT)
        monkeypatch.setattr(by_time, "PROMPT_SEGMENTS", 4)
        with pytest.raises(TakesLong, match="5 segments"):
            ask(source)


def test_not_many_segments_are_searched_in_vain_where_there_is_no_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=14)
    fill(log, [[NOW + 9 - n] for n in range(5)])
    for segment in log.segments[:-1]:
        segment.summary.max_timestamp_offset = -1  # as after a start without a summary
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 9, 0, 0)
    with pytest.raises(TakesLong):
        by_time.largest_timestamp(log, WARM)
    for segment in log.segments:
        segment.summary.max_timestamp = NOW + 100  # as if damaged bytes held it
    assert first_at(log, NOW + 50, PATIENT) is None
    with pytest.raises(TakesLong):
        first_at(log, NOW + 50, WARM)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_kept_times_know_gaps_far_times_and_append_times(tmp_path: Path, codec: int, clock: str) -> None:
    log = open_log(tmp_path, message_timestamp_type=clock, message_timestamp_before_max_ms=2**62)
    for offset in range(3):
        stamps = [(NOW + n * 977 * offset**9) % NOW for n in range(300)]
        log.append(batch(stamps, codec=codec), NOW + offset)
    for _ in range(3):
        agrees_with_a_scan(log)


def test_the_times_of_batches_that_are_kept_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 26 + 300
    log = open_log(tmp_path)
    monkeypatch.setattr(TimesCache, "BYTES_MAX", 3 * (size + TimesCache.ENTRY_BYTES))
    fill(log, [[NOW + batch * 50 + n % 50 for n in range(300)] for batch in range(10)])
    agrees_with_a_scan(log)
    assert kept_bytes(log) == [size] * 3
    fill(log, [[NOW + 1000 + n for n in range(5000)]])
    for _ in range(2):
        assert first_at(log, NOW + 2000, PATIENT) == (NOW + 2000, 4000, 0), "larger than all that is kept"
    assert kept_bytes(log) == []


def test_what_is_kept_takes_no_more_than_is_counted() -> None:
    tracemalloc.start()
    try:
        kept = TimesCache()
        before, counted = tracemalloc.get_traced_memory()[0], 0
        for number in range(50_000):
            kept.keep(times_cache.key_of(7, number), bytes(10 + number % 7))
            counted += 10 + number % 7 + TimesCache.ENTRY_BYTES
        assert tracemalloc.get_traced_memory()[0] - before <= counted
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
def test_I6_random_logs(tmp_path: Path, clock: str) -> None:
    rng = random.Random(clock)
    for number in range(15):
        options: dict[str, Any] = {
            "index_interval_bytes": rng.choice([0, 100, 500]),
            "segment_bytes": rng.choice([300, 1000, 10**6]),
            "message_timestamp_type": clock,
        }
        log = open_log(tmp_path / str(number), **options)
        for _ in range(30):
            stamps: Sequence[int] = [NOW + rng.randrange(60) for _ in range(rng.randrange(1, 5))]
            log.append(batch(stamps, codec=rng.randrange(5)), NOW + rng.randrange(60))
        log.advance_start(rng.randrange(log.log_end_offset))
        agrees_with_a_scan(log)


def test_S37_offsets_before_are_starts_of_segments_newest_first(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert by_time.offsets_before(log, -1, 10, PATIENT) == [0]
    for n in range(3):
        fill(log, [[5], [5]], now_ms=NOW + n * 100)
        log.roll(NOW + n * 100)
    assert by_time.offsets_before(log, -1, 10, PATIENT) == [6, 4, 2, 0]
    assert by_time.offsets_before(log, -2, 10, PATIENT) == [0]
    assert by_time.offsets_before(log, NOW + 150, 10, PATIENT) == [2, 0]
    assert by_time.offsets_before(log, NOW + 200, 2, PATIENT) == [6, 4]
    assert by_time.offsets_before(log, NOW - 1, 10, PATIENT) == []
    assert by_time.offsets_before(log, -1, 0, PATIENT) == []
    fill(log, [[5]], now_ms=NOW + 300)
    assert by_time.offsets_before(log, -1, 2, PATIENT) == [7, 6]
    log.advance_start(1)
    assert by_time.offsets_before(log, -2, 10, PATIENT) == [1]


def test_a_first_batch_of_exactly_what_fits_is_returned(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW, NOW], [NOW], [NOW]])
    sizes = [header.size_bytes for _, _, header in log.headers(0)]
    for at_least_one in (True, False):
        assert log.read(0, sizes[0], at_least_one, PATIENT).length == sizes[0]
        assert log.read(0, sizes[0] + 1, at_least_one, PATIENT).length == sizes[0] + 1
        assert log.read(3, sizes[2], at_least_one, PATIENT).length == sizes[2]
    assert log.read(0, sizes[0] - 1, True, PATIENT).length == sizes[0]
    assert log.read(0, sizes[0] - 1, False, PATIENT).length == 0


@pytest.mark.parametrize(("index", "name"), [(OffsetIndex, "append"), (TimeIndex, "append_if_larger")])
def test_a_lookup_while_an_append_adds_index_entries_skips_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: type, name: str
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW], [NOW + 5]])  # without an entry
    found: list[Any] = []

    def watched(self: Any, *args: Any) -> None:
        found.append(first_at(log, NOW + 5, PATIENT))
        add(self, *args)
        found.append(first_at(log, NOW + 5, PATIENT))

    add = getattr(index, name)
    monkeypatch.setattr(index, name, watched)
    fill(log, [[NOW + 9]])
    assert found == [(NOW + 5, 1, 0)] * 2


def test_a_lookup_skips_no_batch_before_an_entry_that_an_append_adds_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW], [NOW + 5]])
    offset_from = TimeIndex.offset_from
    appended = iter([[[NOW + 9]]])

    def then_append(self: TimeIndex, timestamp: int) -> int:
        offset = offset_from(self, timestamp)
        fill(log, next(appended, []))
        return offset

    monkeypatch.setattr(TimeIndex, "offset_from", then_append)
    assert first_at(log, NOW + 5, PATIENT) == (NOW + 5, 1, 0)
    assert len(log.active.offset_index) == 1


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("count", [3, 100, 2500])
def test_a_batch_that_was_checked_before_its_topic_took_the_time_of_the_append_is_found_by_that(
    tmp_path: Path, count: int, codec: int
) -> None:
    log = open_log(tmp_path, message_timestamp_after_max_ms=2**62)
    data = batch([NOW + 1000 + n for n in range(count)], codec=codec)
    checked = at_once(log.check(data, NOW))
    log.update_config(log.config.override({"message.timestamp.type": "LogAppendTime"}))
    log.append(data, NOW + 5, checked)
    assert {row.timestamp for row in scan(log)} == {NOW + 5}
    for _ in range(2):
        assert first_at(log, NOW + 5, PATIENT) == (NOW + 5, 0, 0)
        assert first_at(log, NOW + 6, PATIENT) is None
    agrees_with_a_scan(log)


@pytest.mark.parametrize("when", ["before its indexes are loaded", "before its log is opened"])
def test_a_lookup_finds_nothing_in_a_segment_that_retention_takes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    owner, name = (
        (type(by_time.RECORD_TIME), "first") if "indexes" in when else (by_offset, "locate_timestamp")
    )
    find = getattr(owner, name)
    for number, ask in enumerate(
        (
            lambda log, at: first_at(log, at, PATIENT),
            lambda log, at: first_at(log, at, WARM),
            lambda log, _: by_time.largest_timestamp(log, PATIENT),
        )
    ):
        log = open_log(tmp_path / str(number), file_delete_delay_ms=0, index_interval_bytes=0)
        fill(log, [[NOW + 9], [NOW + 8]])
        log.roll(NOW)
        fill(log, [[NOW + 5], [NOW + 6]])
        log.segments[0].summary.max_timestamp_offset = -1  # as after a recovery
        log.release()

        def meanwhile(*args: Any, log: Log = log) -> Any:
            if len(log.segments) > 1:
                with log.lock:
                    log.drop_segments(1, NOW)
                log.deleted.remove_due(NOW)
            return find(*args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, meanwhile)
            found = ask(log, NOW)
        assert found in ((NOW + 5, 2, 0), (NOW + 6, 3, 0))
        assert (found == (NOW + 6, 3, 0)) == (number == 2)


def test_a_read_in_a_segment_that_retention_takes_meanwhile_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, file_delete_delay_ms=0)
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    log.release()
    read = by_offset.read

    def meanwhile(*args: Any) -> Any:
        with log.lock:
            log.drop_segments(1, NOW)
        log.deleted.remove_due(NOW)
        return read(*args)

    monkeypatch.setattr(by_offset, "read", meanwhile)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, True, PATIENT)


def test_times_are_kept_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimesCache, "BYTES_MAX", 150 + 2 * TimesCache.ENTRY_BYTES)
    times = TimesCache()
    for _ in range(3):
        times.keep(1, b"x" * 100)
        times.keep(2, b"y" * 50)
    assert [times.get(key) for key in (1, 2)] == [b"x" * 100, b"y" * 50]


def test_the_times_kept_first_are_forgotten_first_and_their_bytes_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = TimesCache()
    monkeypatch.setattr(TimesCache, "BYTES_MAX", 2 * (100 + TimesCache.ENTRY_BYTES))
    for key in (1, 2):
        times.keep(key, b"x" * 100)
    assert [times.get(key) is not None for key in (1, 2)] == [True, True]  # exactly as much as there may be
    times.keep(3, b"x" * 100)
    assert [times.get(key) is not None for key in (1, 2, 3)] == [False, True, True]
    times.keep(1, b"x" * 100)
    assert [times.get(key) is not None for key in (1, 2, 3)] == [True, False, True]


def test_largest_timestamp_looks_through_no_segment_on_the_event_loop(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + 9], [NOW + 7], [NOW + 8]])
    assert by_time.largest_timestamp(log, WARM) == (NOW + 9, 0, 0)
    log.advance_start(1)
    for source in (WARM, WAITING):
        with pytest.raises(TakesLong):
            by_time.largest_timestamp(log, source)
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 8, 2, 0)


def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be in memory from now on."""
    monkeypatch.setattr(files.File, "fill_nowait", lambda *_: False)


def test_a_lookup_waits_for_the_disk_where_its_source_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW], [NOW + 5], [NOW + 3]])
    cold(monkeypatch)
    assert first_at(log, NOW + 1, PATIENT) == (NOW + 5, 1, 0)
    assert log.read(1, 100, True, PATIENT).position > 0
    assert [header.base_offset for _, _, header in log.headers(1)] == [1, 2]
    for ask in (
        lambda: first_at(log, NOW + 1, WARM),
        lambda: first_at(log, NOW + 1, WARM),
        lambda: log.read(1, 100, True, WARM),
    ):
        with pytest.raises(NotInMemory):
            ask()
    log.advance_start(2)
    assert by_time.largest_timestamp(log, PATIENT) == (NOW + 3, 2, 0)


def test_a_lookup_opens_only_segments_that_may_hold_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for at in (10, 50, 30, 90, 70):
        fill(log, [[NOW + at]])
        log.roll(NOW)
    log.advance_start(2)
    log.release()
    searched: list[int] = []
    locate = by_offset.locate_timestamp
    monkeypatch.setattr(
        by_offset,
        "locate_timestamp",
        lambda segment, *args: (searched.append(segment.base_offset), locate(segment, *args))[1],
    )
    assert first_at(log, NOW + 40, PATIENT) == (NOW + 90, 3, 0)
    assert searched == [3], "not those before the start, nor those whose records are all older"
    assert first_at(log, NOW + 91, PATIENT) is None
    assert searched == [3]
    assert first_at(log, NOW + 90, PATIENT) == (NOW + 90, 3, 0)
    log.advance_start(4)
    assert first_at(log, NOW, PATIENT) == (NOW + 70, 4, 0)
    assert searched == [3, 3, 4]


def test_what_is_not_published_yet_is_not_looked_at(tmp_path: Path) -> None:
    """The index of an active segment is a moment ahead of its size."""
    log = open_log(tmp_path, index_interval_bytes=0)
    for n in range(4):
        log.append(batch([NOW + n], b"v" * 10_000), NOW)
    starts = [position for _, position, _ in log.headers(0)]
    for size, last in ((starts[3], 2), (starts[2], 1), (starts[1], 0)):
        log.active.size = size
        for n in range(4):
            found = first_at(log, NOW + n, PATIENT)
            assert found == ((NOW + n, n, 0) if n <= last else None)


@pytest.mark.parametrize("count", [3, 100])
def test_a_compressed_batch_is_decompressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + (n * 37) % 101 for n in range(count)]], codec=4)
    log = open_log(tmp_path, recovery_point=count)
    decompressed = []
    decompress = in_batch.compression.decompress
    monkeypatch.setattr(
        in_batch.compression, "decompress", lambda *args: (decompressed.append(1), decompress(*args))[1]
    )
    for _ in range(3):
        agrees_with_a_scan(log)
    scans = 3 * 2  # a scan, and the largest timestamp, of which a recovered segment does not know the record
    assert len(decompressed) <= 1 + scans


def test_a_large_batch_that_was_searched_is_found_again_without_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for first in (0, 100, 200, 300):
        fill(log, [[NOW + first + n for n in range(100)]], value=b"v" * 100)
    for _ in range(2):  # the first keeps all times of the batch
        reads = reads_of(monkeypatch)
        for number in (200, 250, 299, 300, 399):  # the first that an index leads to lies behind an entry
            assert first_at(log, NOW + number, PATIENT) == (NOW + number, number, 0)
    assert not reads


def test_small_batches_between_two_entries_are_searched_again_without_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for first in range(0, 4000, 100):
        fill(log, [[NOW + first + n for n in range(100)]], value=b"v" * 100, codec=4)
    assert 1 < len(log.active.offset_index) < 20, "several batches between two entries"
    for _ in range(2):
        reads = reads_of(monkeypatch)
        for number in range(0, 4000, 30):
            assert first_at(log, NOW + number, WARM) == (NOW + number, number, 0)
    assert not reads
    # From the first batch on whose times are not kept, bytes are searched.
    kept, log.shared.times = log.shared.times, TimesCache()
    for number, (segment, position, _) in enumerate(log.headers(0)):
        key = times_cache.key_of(segment.identity, position)
        packed = kept.get(key)
        assert packed is not None
        if number != 20:
            log.shared.times.keep(key, packed)
    assert first_at(log, NOW + 2050, WARM) == (NOW + 2050, 2050, 0)
    assert reads


def test_cached_times_are_searched_of_so_many_batches_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    fill(log, [[NOW + n] * 100 for n in range(300)], value=b"", codec=4)
    searched: list[bytes] = []
    find = times_cache.find
    monkeypatch.setattr(
        times_cache, "find", lambda packed, at: (searched.append(packed), find(packed, at))[1]
    )
    assert first_at(log, NOW + 299, WARM) == (NOW + 299, 29900, 0)
    assert len(searched) < 70


def test_a_lookup_of_a_time_before_the_start_of_a_log_reads_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    fill(log, [[NOW + 1000 - n] for n in range(1000)], value=b"v" * 100)
    log.advance_start(900)
    reads = reads_of(monkeypatch)
    assert first_at(log, NOW, PATIENT) == (NOW + 100, 900, 0)
    assert sum(reads) < 2000


def test_a_batch_that_begins_where_the_log_does_is_decompressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 30)
    fill(log, [[NOW] * 4, [NOW + n for n in range(100)]], codec=4)
    log.advance_start(4)
    assert first_at(log, NOW + 30, WARM) == (NOW + 30, 34, 0)
    monkeypatch.setattr(in_batch.compression, "decompress", None)
    assert first_at(log, NOW + 30, WARM) == (NOW + 30, 34, 0)


def test_records_that_claim_to_be_more_than_a_topic_allows_are_corrupt(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW + 1] + [NOW] * 49], value=b"v" * 1000, codec=4)
    log = open_log(tmp_path, recovery_point=50, max_decompressed_bytes=1000)
    place = rf"{0:020d}\.log@0: "
    with pytest.raises(CorruptLog, match=place):
        first_at(log, NOW, PATIENT)
    log.advance_start(7)
    with pytest.raises(CorruptLog, match=place):
        first_at(log, NOW, PATIENT)
    with pytest.raises(CorruptLog, match=place):
        by_time.largest_timestamp(log, PATIENT)


def test_S37_the_end_of_a_log_is_as_old_as_its_last_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, now_ms=NOW)
    fill(log, [[5]], now_ms=NOW + 100)
    assert by_time.offsets_before(log, NOW + 99, 10, PATIENT) == []
    assert by_time.offsets_before(log, NOW + 100, 10, PATIENT) == [1, 0]
    assert by_time.offsets_before(log, NOW + 100, 1, PATIENT) == [1]
    assert by_time.offsets_before(log, 0, 10, PATIENT) == []
    assert by_time.offsets_before(log, -1, -5, PATIENT) == []
    log.roll(NOW + 200)
    assert by_time.offsets_before(log, NOW + 150, 10, PATIENT) == [0], (
        "an empty segment is as old as its making"
    )
    assert by_time.offsets_before(log, NOW + 200, 10, PATIENT) == [1, 0]


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("codec", [0, 4])
def test_a_start_that_moves_into_a_batch_whose_times_are_kept_hides_what_is_before_it(
    tmp_path: Path, codec: int, count: int
) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW + 1000 - n for n in range(count)], [NOW + 500] * count], codec=codec)
    for start in (0, 1, count - 1, count, count + 1):
        log.advance_start(start)
        for _ in range(3):
            agrees_with_a_scan(log)


@pytest.mark.parametrize("interval", [5000, 9000, 20_000])
def test_small_batches_between_entries_that_lie_far_apart_are_not_passed_over(
    tmp_path: Path, interval: int
) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    for n in range(300):
        fill(log, [[NOW + 2 * n]], value=b"v" * (30 if n % 7 else 900))
    for n in range(300):
        assert first_at(log, NOW + 2 * n - 1, PATIENT) == (NOW + 2 * n, n, 0)


def test_the_largest_timestamp_looks_at_no_segment_before_the_start(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for at in (9, 8, 7):
        fill(log, [[NOW + at], [NOW]])
        log.roll(NOW)
    log.advance_start(2)
    assert by_time.largest_timestamp(log, WARM) == (NOW + 8, 2, 0)
    log.advance_start(4)
    assert by_time.largest_timestamp(log, WARM) == (NOW + 7, 4, 0)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_batch_that_somebody_cut_in_the_file_is_corrupt(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path)
    noise = random.Random(1)
    records = [Record(n, NOW + n, None, noise.randbytes(40_000), ()) for n in range(10)]
    log.append(memoryview(bytearray(build_batch(records, base_offset=0, codec=codec))), NOW)
    log.active.file.truncate(200_000)
    for _ in range(2):
        with pytest.raises(CorruptLog, match=rf"{0:020d}\.log@0: "):
            first_at(log, NOW + 9, PATIENT)
