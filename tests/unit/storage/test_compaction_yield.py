"""S100: what a segment yields as samples tell it, and that no log is compacted for ever, or never."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.compaction import COMPACTED, finished, keyed, rows_of, steps_of
from tests.support.logs import NOW, new_shared, open_log
from tests.unit.storage.test_compaction_transactions import ABORT, COMMIT, data, kafka_log, marker, sent
from tidelog.protocol.records.steps import at_once
from tidelog.storage import verification
from tidelog.storage.compaction import plan, survey
from tidelog.storage.key_sample import KEYS_MAX
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

WHOLE = {**COMPACTED, "segment_bytes": 1 << 20}
SECRET = bytes(16)


def sealed(log: Log, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> None:
    log.append(keyed(*pairs, **options), NOW)
    log.roll(NOW)


def told(log: Log, end: int | None = None) -> list[float]:
    """Return which share of each sealed segment is garbage, by fresh samples."""
    segments = log.segments[:-1]
    for segment in segments:
        segment.sample = at_once(survey.sampled(segment, SECRET))
    survey.estimate(segments, log.log_end_offset if end is None else end)
    return [each.sample.garbage_bytes / each.size for each in segments if each.sample is not None]


def passes_of(log: Log, most: int = 40, **options: Any) -> list[Any]:
    """Make passes by yield, a second apart, until none is due."""
    done = []
    for number in range(most):
        now_ms = NOW + 1000 * number
        due = plan.due(log, now_ms)
        if due is None:
            return done
        done.append(finished(steps_of(log, due, **options)))
    raise AssertionError(f"after {most} passes another is due: {done[-1]}")


def test_S100_garbage_is_told_in_bytes(tmp_path: Path) -> None:
    """A hot key of large records among small ones that stay is what there is to win."""
    log = open_log(tmp_path, **WHOLE)
    for n in range(3):
        sealed(log, (b"hot", b"H" * 5000), *((b"%d-%d" % (n, i), b"c" * 20) for i in range(3)))
    first, second, last = told(log)
    assert first == pytest.approx(second)
    assert first == pytest.approx(0.97, abs=0.02)
    assert last == 0.0


def test_S100_what_is_replaced_in_its_own_segment_is_garbage(tmp_path: Path) -> None:
    log = open_log(tmp_path, **WHOLE)
    sealed(log, *((b"a", b"v" * 100) for _ in range(4)))
    sealed(log, (b"b", b"v" * 100))
    assert told(log) == [pytest.approx(0.75, abs=0.05), 0.0]


def test_S100_many_keys_are_told_of_by_few(tmp_path: Path) -> None:
    log = open_log(tmp_path, **{**WHOLE, "segment_bytes": 10 << 20})
    keys = 20 * KEYS_MAX
    for part in (range(keys), range(keys // 2), range(keys // 2, keys * 3 // 4)):
        sealed(log, *((b"%d" % n, b"v" * 20) for n in part))
    first, second, last = told(log)
    samples = [segment.sample for segment in log.segments[:-1]]
    assert all(each is not None and 0 < len(each.hashes) <= KEYS_MAX for each in samples)
    assert first == pytest.approx(0.75, abs=0.1)
    assert second == pytest.approx(0.0, abs=0.1)
    assert last == pytest.approx(0.0, abs=0.1)


def test_S100_tombstones_that_no_pass_has_seen_are_garbage(tmp_path: Path) -> None:
    """Else segments of nothing but tombstones would stay for good: they get a horizon when they are copied."""
    log = open_log(tmp_path, **WHOLE, delete_retention_ms=100)
    for n in range(4):
        sealed(log, *((b"%d-%d" % (n, i), b"v" * 10) for i in range(20)))
        sealed(log, *((b"%d-%d" % (n, i), None) for i in range(20)))
    shares = told(log)
    assert min(shares[:2]) > 0.6
    for segment in log.segments:
        segment.sample = None
    passes_of(log)
    assert rows_of(log) == []


def test_S100_what_lies_behind_an_open_transaction_replaces_nothing_yet(tmp_path: Path) -> None:
    keys = [b"k%d" % n for n in range(12)]
    log = kafka_log(
        tmp_path / "t-0",
        [data(n, key, b"v" * 40) for n, key in enumerate(keys)],
        [sent(12, b"open", b"1")],
        [data(13 + n, key, b"w") for n, key in enumerate(keys)],
        [data(25, b"z", b"1")],
        segment_bytes=2000,
        min_cleanable_dirty_ratio=0.3,
    )
    assert len(passes_of(log)) <= 2
    assert len(rows_of(log)) == 26


def test_S100_what_was_aborted_is_garbage_and_replaces_nothing(tmp_path: Path) -> None:
    keys = [b"k%d" % n for n in range(12)]
    log = kafka_log(
        tmp_path / "t-0",
        [data(n, key, b"v" * 40) for n, key in enumerate(keys)],
        [*(sent(12 + n, key, b"aborted") for n, key in enumerate(keys)), marker(24, ABORT)],
        [data(25, b"z", b"1")],
        segment_bytes=2000,
        min_cleanable_dirty_ratio=0.3,
    )
    assert len(passes_of(log)) <= 2
    assert [row.offset for row in rows_of(log)] == [*range(12), 24, 25]


def test_S100_segments_with_few_keys_and_with_many_are_told_of_by_the_same_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path, **{**WHOLE, "segment_bytes": 10 << 20})
    sealed(log, *((b"%d" % n, b"v" * 20) for n in range(300)))
    sealed(log, *((b"%d" % n, b"v" * 20) for n in range(20 * KEYS_MAX)))
    assert told(log)[0] > 0.9


def test_S100_a_segment_that_was_found_clean_is_known_for_that(tmp_path: Path) -> None:
    """Its tombstones have expired, and their keys were written again: a sample from before would call it garbage."""
    log = open_log(tmp_path, **{**COMPACTED, "delete_retention_ms": 10, "min_cleanable_dirty_ratio": 0.1})
    sealed(log, *((b"%d" % n, None) for n in range(40)), *((b"x%d" % n, b"v") for n in range(4)))
    sealed(log, *((b"%d" % n, b"new") for n in range(40)))
    passes_of(log)
    sealed(log, (b"z", b"1"))
    assert len(passes_of(log)) <= 1
    assert len(rows_of(log)) == 45


def test_S91_a_segment_that_is_compared_in_part_is_looked_at_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, **WHOLE)
    sealed(log, *((b"%d" % (n % 60), b"v" * 20) for n in range(300)))
    passes_of(log, buffer_bytes=24 * 40)
    assert len(rows_of(log)) == 60


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5])
def test_S91_S100_a_map_that_is_too_small_leaves_no_more_garbage_than_others(
    tmp_path: Path, ratio: float
) -> None:
    log = open_log(tmp_path, **{**COMPACTED, "min_cleanable_dirty_ratio": ratio})
    for n in range(60):
        sealed(log, *((b"%d" % (key % 200), b"%d" % n) for key in range(n * 37, n * 37 + 37)))
    passes_of(log, 400, buffer_bytes=24 * 40)
    rows = rows_of(log)
    last = {row.key: row.offset for row in rows}
    size = sum(segment.size for segment in log.segments[:-1])
    assert len(rows) - len(last) <= (max(ratio, 0.08) + 0.05) * len(rows), size


@pytest.mark.parametrize("version", ["1", "2"])
def test_S91_a_batch_with_more_keys_than_the_map_holds_does_not_stop_the_next_passes(
    tmp_path: Path, version: str
) -> None:
    for by_yield in (False, True):
        log = open_log(tmp_path / str(by_yield), **COMPACTED, message_format_version=version)
        sealed(log, *((b"%d" % n, b"") for n in range(20)), codec=1)
        for _ in range(9):
            sealed(log, (b"k", b"w" * 300))
        for number in range(9):
            due = plan.due(log, NOW + number, by_yield=by_yield)
            if due is not None:
                finished(steps_of(log, due, buffer_bytes=24 * 12))
        assert [row.key for row in rows_of(log)] == [*(b"%d" % n for n in range(20)), b"k"]


# Damage.


def damaged(log: Log, base_offset: int) -> tuple[Log, Path, bytes]:
    """Break a segment, and have it found; return its file and what was in it."""
    folder = log.directory
    log.flush()
    end = log.log_end_offset
    log.close()
    path = folder / f"{base_offset:020d}.log"
    good = path.read_bytes()
    path.write_bytes(good[:62] + bytes([good[62] ^ 0xFF]) + good[63:])
    return again(log, end), path, good


def again(log: Log, end: int, clean: bool = True) -> Log:
    opened = open_log(
        log.directory,
        recovery_point=end,
        clean=clean,
        was_cut_off=False,
        shared=new_shared(log.directory.parent),
        **{**COMPACTED, "segment_bytes": 100, "delete_retention_ms": 10},
    )
    for segment in opened.segments[:-1]:
        if clean and segment.base_offset == 2:
            verification.verify_again(segment, 0)
            opened.recheck(segment, PATIENT)
    return opened


@pytest.mark.parametrize(("said", "behind"), [(ABORT, COMMIT), (COMMIT, ABORT)])
def test_a_transaction_whose_marker_is_damaged_is_neither_committed_nor_aborted(
    tmp_path: Path, said: int, behind: int
) -> None:
    """What comes behind the damage is the marker of another one."""
    log = kafka_log(
        tmp_path / "t-0",
        [data(0, b"a", b"old"), sent(1, b"a", b"new")],
        [marker(2, said), data(3, b"q", b"1")],
        [sent(4, b"y", b"1"), marker(5, behind)],
        [data(6, b"z", b"1")],
    )
    log, *_ = damaged(log, 2)
    assert [bool(each.summary.damage) for each in log.segments] == [False, True, False, False, False]
    due = plan.due(log, NOW, by_yield=False)
    assert due is not None
    finished(steps_of(log, due))
    assert log.segments[0].summary.record_count == 2
    # That its sample tells of garbage which does not go is known after one look.
    assert len(passes_of(log)) < 4


def test_a_tombstone_behind_damage_and_one_in_it_outlive_what_they_delete(tmp_path: Path) -> None:
    """Whoever was not compared with what is damaged may have to be, once that can be read again."""
    log = open_log(tmp_path / "t-0", **{**COMPACTED, "delete_retention_ms": 10})
    sealed(log, (b"a", b"1"), (b"b", b"1"))
    sealed(log, (b"a", None), (b"b", b"2"))
    sealed(log, (b"b", None), (b"c", b"1"))
    end = log.log_end_offset
    log, path, good = damaged(log, 2)
    for number in range(3):
        due = plan.everything(log, NOW + 100 * number)
        if due is not None:
            finished(steps_of(log, due))
    assert [(row.offset, row.value) for row in rows_of(log, start=4)] == [(4, None), (5, b"1")]
    assert log.segments[0].summary.cleaned_to <= 2
    log.close()
    path.write_bytes(good)
    log = again(log, end, clean=False)
    for number in range(3, 9):
        due = plan.everything(log, NOW + 100 * number)
        if due is not None:
            finished(steps_of(log, due))
    assert [(row.offset, row.key) for row in rows_of(log)] == [(5, b"c")]


def test_before_damage_a_segment_is_clean_as_far_as_the_map_reaches_and_no_further(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", **COMPACTED)
    sealed(log, (b"a", b"1"), (b"b", b"1"))
    sealed(log, (b"c", b"1"), (b"d", b"1"))
    log, *_ = damaged(log, 2)
    sealed(log, (b"a", b"2"))
    due = plan.everything(log, NOW)
    assert due is not None
    done = finished(steps_of(log, due, buffer_bytes=24 * 2))
    assert log.segments[0].summary.cleaned_to == done.cleaned_to == 1
