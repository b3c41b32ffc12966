"""What is known of a stored batch's times when nothing but the log tells: what was known as it was appended."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compaction import COMPACTED, clean, keyed
from tests.support.logs import NOW, batch, crash, open_log
from tests.support.messages import wrapper
from tidelog.protocol.records import entries, record_times
from tidelog.protocol.records.batch import read_header
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.protocol.records.record_times import BEYOND, NONE, UNKNOWN, by_header, looked_up
from tidelog.protocol.records.steps import at_once
from tidelog.storage.layout import SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.summary import Summary

TIMES = [[5, 3, 9, 9, 4], [7], [2, 2], [11, 10], [1] * 40]


def known_of(summary: Summary) -> tuple[object, ...]:
    return (
        summary.minima,
        summary.min_timestamp,
        summary.max_timestamp,
        summary.max_timestamp_offset,
        summary.max_timestamp_last_offset,
        summary.first_timestamp,
        summary.record_count,
        summary.batch_count,
    )


def append(log: Log, data: bytearray, now_ms: int) -> None:
    checked = at_once(log.check(data, now_ms))
    log.append(bytearray(checked[0]), now_ms, checked)


def assert_made_again(log: Log, folder: Path) -> None:
    """Without its summaries a log comes to be known as it was."""
    folder = crash(log, folder)
    for path in folder.glob(f"*{SUMMARY}"):
        path.unlink()
    again = open_log(folder, was_cut_off=False)
    assert [known_of(each.summary) for each in again.segments] == [
        known_of(each.summary) for each in log.segments
    ]


@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_S50_a_summary_that_is_lost_is_made_again_from_the_log(
    tmp_path: Path, version: str, codec: int, clock: str
) -> None:
    options = {"message_format_version": version, "message_timestamp_type": clock, "segment_bytes": 2000}
    log = open_log(tmp_path / "a", **options)
    for number, times in enumerate(TIMES * 2):
        append(log, batch([NOW + at for at in times], codec=codec), NOW + 100 + number)
    assert_made_again(log, tmp_path / "b")


@pytest.mark.parametrize("clock", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", [0, ZSTD])
def test_so_is_one_of_batches_that_compaction_has_left_with_holes(
    tmp_path: Path, codec: int, clock: str
) -> None:
    log = open_log(tmp_path / "a", **COMPACTED, message_timestamp_type=clock)
    records = [Record(n, NOW + at, b"%d" % (n % 3), b"v") for n, at in enumerate([9, 3, 8, 1, 1, 8])]
    for gone in ("0", "3", "05", "45", "0123"):
        log.append(bytearray(build_batch(records, codec=codec)), NOW + 50)
        log.append(keyed(*[(key.encode(), b"later") for key in gone]), NOW + 60)
        log.roll(NOW + 60)
    clean(log, NOW + 100)
    assert_made_again(log, tmp_path / "b")


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.sampled_from([0, GZIP, ZSTD]))
def test_of_any_times_the_smallest_and_the_first_of_the_largest_are_found(
    times: list[int], codec: int
) -> None:
    data = batch(times, codec=codec)
    found = looked_up(read_header(data), memoryview(data))
    assert (found.min_timestamp, found.max_timestamp) == (min(times), max(times))
    assert found.max_timestamp_offset_delta == times.index(max(times))


def test_what_a_header_tells_is_not_looked_up() -> None:
    def told(times: list[int], **fields: int) -> tuple[int, int]:
        found = by_header(read_header(batch(times))._replace(**fields))
        return found.min_timestamp, found.max_timestamp_offset_delta

    assert told([9]) == (9, 0)
    assert told([7, 9]) == (UNKNOWN, NONE)
    assert told([7, 9], record_count=0) == (BEYOND, NONE)
    assert told([7, 9], attributes=8) == (9, 0)
    assert told([7, 9, 8], attributes=8, record_count=2) == (9, NONE)
    assert told([7, 9], record_count=1) == (9, NONE), "the one that is left may have any offset"


def test_of_records_that_cannot_be_read_no_more_is_known_than_the_header_says() -> None:
    data = wrapper(1, GZIP, b"no messages", timestamp=NOW)
    header = entries.read(data, 0, 1000)
    assert looked_up(header._replace(record_count=3, last_offset_delta=2), data) == by_header(
        header._replace(record_count=3, last_offset_delta=2)
    )
    torn = batch([1, 2, 3])
    torn[-1] = 0x55
    header = read_header(torn)
    assert looked_up(header, torn) == by_header(header)


def test_a_largest_time_that_no_record_has_is_what_the_header_says(tmp_path: Path) -> None:
    """P22: Kafka has written such, and every reader of a log goes by it; which record has it is not known."""
    data = batch([1, 5, 3])
    header = read_header(data)._replace(max_timestamp=50)
    assert looked_up(header, data)[1:4] == (1, 50, record_times.NONE)
