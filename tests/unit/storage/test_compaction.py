"""A pass over a log: what stays, what goes, when it is made, and over which segments."""

from pathlib import Path

from tests.support.compaction import COMPACTED, clean, clean_all, keyed, rows_of
from tests.support.logs import NOW, new_shared, open_log
from tidelog.protocol.records import message_set
from tidelog.protocol.records.build import Record
from tidelog.storage.compaction import plan
from tidelog.storage.compaction.key_map import ENTRY_BYTES, KeyMap
from tidelog.storage.log import Log
from tidelog.storage.upkeep import enforce_retention


def filled(folder: Path, count: int = 60, **options: object) -> Log:
    log = open_log(folder / "topic-0", **{**COMPACTED, **options})
    for n in range(count):
        log.append(keyed((b"k%d" % (n % 7), b"v%d" % n), (b"x%d" % n, b"w"), at=NOW + n), NOW + n)
    log.flush()
    return log


def test_S87_S88_S89_S97_the_last_record_of_each_key_stays_and_what_it_replaced_goes(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before, end = rows_of(log), log.active.base_offset
    assert clean(log, NOW + 1000) is not None
    latest = {row.key: row.offset for row in before if row.offset < end}
    assert rows_of(log) == [row for row in before if row.offset >= end or latest[row.key] == row.offset]
    assert all(segment.summary.cleaned_to == end for segment in log.segments[:-1])


def test_S90_no_offset_and_no_order_changes_also_after_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = {row.offset: row for row in rows_of(log)}
    clean(log, NOW + 1000)
    after = rows_of(log)
    assert [row.offset for row in after] == sorted(row.offset for row in after)
    assert all(before[row.offset] == row for row in after)
    assert rows_of(open_log(log.directory, shared=new_shared(tmp_path), **COMPACTED)) == after


def test_S87_the_next_pass_maps_what_is_new_alone(tmp_path: Path) -> None:
    log = filled(tmp_path)
    clean(log, NOW + 1000)
    end = log.segments[-2].summary.cleaned_to
    for n in range(20):
        log.append(keyed((b"k%d" % n, b"new"), at=NOW + 2000), NOW + 2000)
    log.flush()
    due = plan.due(log, NOW + 3000, by_yield=False)
    assert due is not None
    assert min(map(plan.clean_to, due.candidates)) == end


def test_S91_the_map_has_a_fixed_size_and_S94_is_full_at_its_share_of_it() -> None:
    keys = KeyMap(100 * ENTRY_BYTES, 0.5, 1000)
    assert [keys.put(b"%d" % n, n) for n in range(51)] == [True] * 50 + [False]
    assert keys.end == 50
    assert keys.has_later(b"3", 2)
    assert not keys.has_later(b"50", 49)


def test_S93_each_map_hashes_by_a_key_of_its_own() -> None:
    one, other = KeyMap(1 << 10, 0.9, 9), KeyMap(1 << 10, 0.9, 9)
    assert one.put(b"key", 1)
    assert other.put(b"key", 1)
    assert one._secret != other._secret
    assert one._table[:] != other._table[:]


def test_S95_a_log_is_due_when_its_head_is_more_than_the_ratio(tmp_path: Path) -> None:
    log = filled(tmp_path)
    clean_all(log, NOW + 1000)
    sealed = sum(segment.size for segment in log.segments[:-1])
    while sum(s.size for s in log.segments[:-1]) < 2 * sealed - 600:
        log.append(keyed((b"k", b"v"), at=NOW + 2000), NOW + 2000)
    log.flush()
    ratio = plan.dirty_ratio(plan.compactable(log, NOW))
    log.update_config(_with_ratio(log, ratio))
    assert plan.due(log, NOW + 3000, by_yield=False) is None
    log.update_config(_with_ratio(log, ratio - 0.001))
    assert plan.due(log, NOW + 3000, by_yield=False) is not None


def _with_ratio(log: Log, ratio: float):  # type: ignore[no-untyped-def]
    return log.config.override({"min.cleanable.dirty.ratio": f"{ratio:.6f}"})


def test_S86_C12_a_log_may_be_compacted_and_expire(tmp_path: Path) -> None:
    log = filled(tmp_path, cleanup_policy=("compact", "delete"), retention_ms=10_000)
    clean(log, NOW + 1000)
    rows = rows_of(log)
    assert enforce_retention(log, NOW + 9_000) is not None
    assert rows_of(log) == rows
    enforce_retention(log, NOW + 11_000)
    assert rows_of(log) == []


def test_S50_a_batch_keeps_the_largest_time_of_what_it_retains(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED)
    log.append(keyed((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), at=NOW), NOW)
    log.append(keyed((b"c", b"2"), at=NOW), NOW)
    log.flush()
    log.roll(NOW)
    log.flush()
    clean(log, NOW + 1000)
    headers = [header for _, _, header in log.headers(0)]
    assert [(header.record_count, header.max_timestamp) for header in headers] == [(2, NOW + 1), (1, NOW)]
    assert log.segments[0].summary.max_timestamp == NOW + 1


def test_S66_a_wrapper_of_an_older_format_has_holes_and_moves_no_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", message_format_version="1", **COMPACTED)
    records = [Record(n, NOW + n, b"k%d" % (n % 3), b"v%d" % n) for n in range(6)]
    wrapper = message_set.build_message_set(records, magic=1, codec=1)
    log.append(bytearray(wrapper), NOW, any_format=True)
    log.append(keyed((b"k1", b"last"), at=NOW), NOW)
    log.flush()
    log.roll(NOW)
    log.flush()
    clean(log, NOW + 1000)
    assert [(row.offset, row.value) for row in rows_of(log)] == [(3, b"v3"), (5, b"v5"), (6, b"last")]


def test_S98_the_active_segment_stays_as_it_is(tmp_path: Path) -> None:
    log = filled(tmp_path)
    active = log.active
    data = active.file.pread(active.size, 0)
    clean(log, NOW + 1000)
    assert log.active is active
    assert active.file.pread(active.size, 0) == data


def test_S100_by_yield_segments_that_yield_little_rest(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **{**COMPACTED, "segment_bytes": 2000})
    for n in range(120):  # written once: nothing replaces these
        log.append(keyed((b"cold%d" % n, b"v"), at=NOW + n), NOW + n)
    cold = len(log.segments)
    for n in range(400):
        log.append(keyed((b"hot%d" % (n % 3), b"v"), at=NOW + n), NOW + n)
    log.flush()
    before = rows_of(log)
    resting = [segment.identity for segment in log.segments[: cold - 1]]
    done = clean(log, NOW + 1000, by_yield=True)
    assert done is not None
    assert [segment.identity for segment in log.segments[: cold - 1]] == resting
    assert done.written_bytes < log.size_bytes / 4
    assert {row.key: row for row in rows_of(log)} == {row.key: row for row in before}
    assert plan.garbage_ratio(plan.compactable(log, NOW + 1000)) <= plan.GARBAGE_MIN
    assert plan.due(log, NOW + 1000) is None
