"""What of a batch stays, in the formats and by the clocks that there are; and when tombstones go."""

from pathlib import Path

import pytest

from tests.support.compaction import COMPACTED, append_ms_of, clean, keyed, rows_of
from tests.support.logs import NOW, first_at, new_shared, open_log
from tidelog.protocol.records.compression import GZIP
from tidelog.protocol.records.steps import at_once
from tidelog.storage.compaction.plan import due, next_due_ms
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.sources import PATIENT


def test_the_largest_time_by_the_brokers_clock_is_that_of_the_first_record_that_is_left(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, **COMPACTED, message_timestamp_type="LogAppendTime")
    log.append(keyed((b"a", b"1"), (b"b", b"1"), (b"c", b"1")), NOW + 5)
    log.append(keyed((b"a", b"2"), at=NOW), NOW + 5)
    log.roll(NOW + 5)
    for _ in range(2):  # the second pass finds the batch as the first has left it
        clean(log, NOW + 6)
        assert by_time.largest_timestamp(log, PATIENT) == (NOW + 5, 1, 0)
        log.append(keyed((b"z", b"1")), NOW + 1)
        log.truncate(log.log_end_offset - 1)
        log.roll(NOW + 5)


def convert_and_append(log: Log, data: bytearray, now_ms: int) -> None:
    checked = at_once(log.check(data, now_ms))
    log.append(bytearray(checked[0]), now_ms, checked)


@pytest.mark.parametrize("version", ["0", "1"])
def test_S90_a_wrapper_of_the_older_formats_that_loses_its_last_message_leaves_no_gap(
    tmp_path: Path, version: str
) -> None:
    log = open_log(tmp_path, **COMPACTED, message_format_version=version)
    convert_and_append(log, keyed((b"k", b"1"), (b"a", b"1"), codec=GZIP), NOW)
    log.roll(NOW)
    convert_and_append(log, keyed((b"a", b"2"), (b"b", b"1"), codec=GZIP), NOW)
    log.roll(NOW)
    convert_and_append(log, keyed((b"b", b"2"), codec=GZIP), NOW)
    clean(log, NOW + 1)
    assert [(row.offset, row.key) for row in rows_of(log)] == [(0, b"k"), (2, b"a"), (3, b"b"), (4, b"b")]
    convert_and_append(log, keyed((b"a", b"3")), NOW)
    log.roll(NOW)
    clean(log, NOW + 1)
    assert [(row.offset, row.key) for row in rows_of(log)] == [(0, b"k"), (4, b"b"), (5, b"a")]
    assert [(each.base_offset, each.next_offset) for each in log.segments] == [(0, 6), (6, 6)]


def test_V6_a_batch_that_lost_all_its_records_hides_no_later_one_from_a_search_by_time(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED, index_interval_bytes=0)
    log.append(keyed((b"k", b"1"), at=NOW + 100), NOW)
    log.append(keyed((b"k", b"1"), at=NOW + 500), NOW + 1)
    log.roll(NOW + 1)
    log.append(keyed((b"k", b"2"), at=NOW + 600), NOW + 2)
    log.roll(NOW + 2)
    log.append(keyed((b"z", b"2"), at=NOW + 300), NOW + 3)
    small = {**COMPACTED, "segment_bytes": 80}
    log.update_config(type(log.config)(**small))
    clean(log, NOW + 4)
    again = open_log(tmp_path / "topic-0", shared=new_shared(tmp_path), **small)
    for each in (log, again):
        assert [(segment.base_offset, segment.summary.record_count) for segment in each.segments] == [
            (0, 0),
            (2, 1),
            (3, 1),
        ]
        assert first_at(each, NOW + 400, PATIENT) == (NOW + 600, 2, 0)
        assert first_at(each, NOW, PATIENT) == (NOW + 600, 2, 0)
        assert append_ms_of(each, 2) == (NOW + 2, False)


RETENTION_MS = 100


def pass_often(log: Log, times: range) -> dict[int, bool]:
    """Make a pass at each time, something new in each; return whether the tombstone of `gone` was there after it."""
    found = {}
    for now_ms in times:
        convert_and_append(log, keyed((b"n%d" % now_ms, b"x"), at=now_ms), now_ms)
        log.roll(now_ms)
        clean(log, now_ms)
        found[now_ms - times[0]] = any(row.key == b"gone" for row in rows_of(log))
    return found


@pytest.mark.parametrize("version", ["0", "1", "3.0-IV1"])
def test_P16_a_tombstone_stays_for_so_long_after_it_was_first_seen_and_goes_though_passes_are_many(
    tmp_path: Path, version: str
) -> None:
    options = {**COMPACTED, "segment_bytes": 1 << 16, "delete_retention_ms": RETENTION_MS}
    log = open_log(tmp_path, **options, message_format_version=version)
    convert_and_append(log, keyed((b"gone", b"1")), NOW)
    convert_and_append(log, keyed((b"gone", None)), NOW)
    found = pass_often(log, range(NOW, NOW + 3 * RETENTION_MS, 10))
    assert all(is_there for ms, is_there in found.items() if ms < RETENTION_MS), "it died early"
    assert not any(is_there for ms, is_there in found.items() if ms > 2 * RETENTION_MS), "it lives forever"
    if version == "3.0-IV1":
        assert not any(is_there for ms, is_there in found.items() if ms > RETENTION_MS)


@pytest.mark.parametrize("by_yield", [True, False])
@pytest.mark.parametrize("stays", [(), ((b"stays", b"1"),)], ids=["alone", "beside a record"])
def test_P16_each_tombstone_of_a_segment_makes_a_pass_due_when_its_time_has_come(
    tmp_path: Path, by_yield: bool, stays: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Also beside batches whose horizon is over, and after a start: nothing is appended any more."""
    options = {**COMPACTED, "segment_bytes": 1 << 16, "delete_retention_ms": RETENTION_MS}
    log = open_log(tmp_path / "topic-0", **options)
    for number, at_ms in enumerate((NOW, NOW + 30, NOW + 60)):
        log.append(keyed((b"k%d" % number, b"1"), (b"k%d" % number, None), *stays[: 1 - number]), at_ms)
        log.append(keyed((b"n%d" % number, b"x")), at_ms)
        log.roll(at_ms)
        clean(log, at_ms, by_yield)
    clean(log, NOW + 61)
    assert len(log.segments) == 2
    for number, horizon_ms in enumerate((NOW + 100, NOW + 130, NOW + 160)):
        assert due(log, horizon_ms - 1, by_yield=by_yield) is None
        assert next_due_ms(log, horizon_ms - 1) == horizon_ms
        done = clean(log, horizon_ms, by_yield)
        assert done is not None
        assert done.tombstones_dropped == 1
        log.close()
        log = open_log(tmp_path / "topic-0", shared=new_shared(tmp_path), **options)
        assert [row.key for row in rows_of(log) if row.value is None and row.key] == [
            b"k%d" % n for n in range(number + 1, 3)
        ]
    assert (due(log, NOW + 10_000, by_yield=by_yield), next_due_ms(log, NOW + 200)) == (None, None)


def test_the_last_batch_of_a_producer_is_known_when_it_is_sent_again_though_its_records_are_gone(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED)
    sent = keyed((b"k", b"1"), (b"k", b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(bytearray(sent), NOW)
    log.append(keyed((b"k", b"3")), NOW)
    log.roll(NOW)
    clean(log, NOW)
    assert [row.offset for row in rows_of(log)] == [2]
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    again = open_log(log.directory, shared=new_shared(tmp_path), recovery_point=3, **COMPACTED)
    appended = again.append(bytearray(sent), NOW)
    assert appended.duplicate
    assert (appended.base_offset, appended.last_offset) == (0, 1)


def test_what_stays_was_appended_when_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **{**COMPACTED, "segment_bytes": 1 << 16})
    for n in range(6):
        log.append(keyed((b"k%d" % (n % 4), b"x")), NOW + 10 * n)
        if n % 2:
            log.roll(NOW)
    log.append(keyed((b"z", b"x")), NOW + 60)
    clean(log, NOW + 70)
    again = open_log(tmp_path / "topic-0", shared=new_shared(tmp_path), **COMPACTED)
    for each in (log, again):
        assert len(each.segments) == 2
        assert [append_ms_of(each, row.offset) for row in rows_of(each)] == [
            (NOW + 10 * n, False) for n in (2, 3, 4, 5, 6)
        ]


def test_a_record_without_a_key_and_a_value_is_not_counted_as_a_tombstone(tmp_path: Path) -> None:
    options = {**COMPACTED, "delete_retention_ms": RETENTION_MS}
    log = open_log(tmp_path, **{**options, "cleanup_policy": ("delete",)})
    log.append(keyed((b"gone", None), (None, None)), NOW)
    log.update_config(type(log.config)(**options))
    log.roll(NOW)
    for now_ms, dropped in ((NOW, 0), (NOW + RETENTION_MS, 1)):
        done = clean(log, now_ms)
        assert done is not None
        assert done.tombstones_dropped == dropped
    assert [(row.offset, row.key, row.value) for row in rows_of(log)] == [(1, None, None)]
