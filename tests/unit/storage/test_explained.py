"""How a time led to an offset, and what retention makes of each segment."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs import NOW, fill, open_log
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import retention
from tidelog.storage.log import Log
from tidelog.storage.retention import verdicts
from tidelog.storage.search import by_time, explained
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.sources import PATIENT


def log_of(folder: Path, *segments: list[int], **options: Any) -> Log:
    log = open_log(folder, index_interval_bytes=0, **options)
    for number, stamps in enumerate(segments):
        if number:
            log.roll(NOW)
        fill(log, [[at] for at in stamps], NOW + 10 * number)
    return log


def told(log: Log, wanted: int, timeline: by_time.Timeline) -> list[tuple[Any, ...]]:
    answer, steps = explained.first_at_or_after(log, wanted, timeline)
    assert answer == by_time.first_at_or_after(log, wanted, timeline, PATIENT)
    assert answer == next((step.found for step in steps if step.found), None)
    assert [step.segment for step in steps] == list(log.segments)
    return [(step.what, step.why) for step in steps]


def test_P4_each_segment_is_accounted_for(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW], [-1], [NOW + 50, NOW + 1, NOW + 60], [NOW + 9], [NOW + 70])
    log.advance_start(1)
    assert told(log, NOW + 55, RECORD_TIME) == [
        ("skipped", "it ends before the log's start, 1"),
        ("skipped", "it has no times"),
        ("searched", "the first such record is in it"),
        ("not reached", "offset 4 comes before it"),
        ("not reached", "offset 4 comes before it"),
    ]
    assert told(log, NOW + 65, RECORD_TIME)[2:4] == [("skipped", "its largest time is earlier")] * 2
    log.advance_start(5)
    assert told(log, NOW + 60, RECORD_TIME)[2] == ("skipped", "it ends before the log's start, 5")
    assert told(log, NOW + 80, RECORD_TIME)[-1] == ("skipped", "its largest time is earlier")
    log = log_of(tmp_path / "2", [NOW + 50, NOW], [NOW + 60])
    log.advance_start(1)
    assert told(log, NOW + 40, RECORD_TIME)[:2] == [
        ("searched", "no such record is left in it"),
        ("searched", "the first such record is in it"),
    ]


def test_no_time_before_that_of_no_record_is_looked_for(tmp_path: Path) -> None:
    log = log_of(tmp_path, [-1], [5])
    for wanted in (-7, 0):
        assert told(log, wanted, RECORD_TIME) == [
            ("skipped", "it has no times"),
            ("searched", "the first such record is in it"),
        ]


def test_V10_what_is_told_of_a_segment_is_what_the_search_has_made_of_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW + n for n in range(20)], [NOW + 50])
    log.close()
    path = log.segments[0].path(".log")
    size = path.stat().st_size // 20
    data = bytearray(path.read_bytes())
    data[10 * size + 65] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, clean=True, recovery_point=21, index_interval_bytes=0)
    assert told(log, NOW + 10, RECORD_TIME)[0] == ("searched", "the first such record is in it")
    assert log.damaged


def test_the_entries_and_the_bytes_are_those_of_the_search(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW + n for n in range(200)])
    log.roll(NOW)
    _, (step, _) = explained.first_at_or_after(log, NOW + 100, RECORD_TIME)
    assert step.time_entry == (NOW + 100, 100)
    size = log.segments[0].size // 200
    assert step.position == 99 * size
    assert step.reads
    assert size <= step.bytes_read <= 8192
    assert step.largest_ms == NOW + 199
    _, (step, _) = explained.first_at_or_after(log, NOW, APPEND_TIME)
    assert step.time_entry == (NOW, 0)
    assert step.position == 0
    log.advance_start(150)
    _, (step, _) = explained.first_at_or_after(log, NOW + 100, RECORD_TIME)
    assert (step.time_entry, step.position) == ((NOW + 100, 100), 150 * size)
    _, (step, _) = explained.first_at_or_after(log, NOW, APPEND_TIME)
    assert (step.time_entry, step.position) == ((NOW, 0), 150 * size)
    assert step.found is not None
    assert step.found.offset == 150


def test_where_the_last_entry_is_before_the_time_the_walk_begins_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1 << 20)
    fill(log, [[NOW], [NOW + 5]])
    _, (step,) = explained.first_at_or_after(log, NOW + 5, RECORD_TIME)
    assert (step.time_entry, step.position) == (None, 0)
    assert step.found == (NOW + 5, 1, 0)


def test_P9_damage_that_may_hold_an_earlier_answer_is_told_and_no_other(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for n in range(60):
        fill(log, [[NOW + n]], NOW + n)
    log.close()
    path = log.active.path(".log")
    data = bytearray(path.read_bytes())
    size = len(data) // 60
    for number in (10, 30, 31, 50):
        data[number * size + 65] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, clean=True, recovery_point=60, index_interval_bytes=0)

    def before(wanted: int, timeline: by_time.Timeline) -> list[int]:
        answer, _ = explained.first_at_or_after(log, wanted, timeline)
        return [each.next_offset for each in explained.unread_before(log, answer, wanted, timeline)]

    def beside(first: int, last: int, timeline: by_time.Timeline) -> list[int]:
        offsets, _, _ = explained.between(log, NOW + first, NOW + last, timeline)
        unread = explained.unread_beside(log, offsets, NOW + first, NOW + last, timeline)
        return [each.next_offset for each in unread]

    by_time.first_at_or_after(log, NOW, RECORD_TIME, PATIENT)
    explained.first_at_or_after(log, NOW + 59, RECORD_TIME)
    assert len(log.damaged) == 3
    assert before(NOW + 5, RECORD_TIME) == []
    assert before(NOW + 40, RECORD_TIME) == [11, 32]
    assert before(NOW + 99, RECORD_TIME) == [11, 32, 51]
    # When damaged batches were appended is known.
    assert before(NOW + 40, APPEND_TIME) == []
    assert before(NOW + 30, APPEND_TIME) == before(NOW + 31, APPEND_TIME) == [32]
    assert before(NOW + 99, APPEND_TIME) == []
    assert beside(20, 40, RECORD_TIME) == [11, 51]
    assert beside(20, 40, APPEND_TIME) == beside(12, 20, APPEND_TIME) == []
    assert beside(30, 31, APPEND_TIME) == beside(31, 40, APPEND_TIME) == beside(30, 32, APPEND_TIME) == [32]
    assert beside(20, 31, APPEND_TIME) == beside(20, 51, APPEND_TIME) == []
    assert beside(31, 31, APPEND_TIME) == []
    log.advance_start(11)
    assert before(NOW + 40, RECORD_TIME) == [32]
    log.active.append_index.keep(0)
    everything = explained.unread_before(log, None, NOW + 40, APPEND_TIME)
    assert [each.next_offset for each in everything] == [32, 51]


def config(**options: Any) -> TopicConfig:
    return TopicConfig(**options)


def test_S24_S25_P1_each_segment_has_its_rule_and_its_time(tmp_path: Path) -> None:
    log = log_of(tmp_path, [NOW - 500], [NOW - 300], [NOW + 900], [NOW - 200], [])
    log.roll(NOW)
    now_ms = NOW + 30
    ages = [verdict.stamp for verdict in verdicts(log.segments, 0, config(retention_ms=100), now_ms)]
    assert ages[:4] == [
        (NOW - 500, "record"),
        (NOW - 300, "record"),
        (NOW + 20, "append"),
        (NOW - 200, "record"),
    ]
    found = [each[2:] for each in verdicts(log.segments, 0, config(retention_ms=100), now_ms)]
    assert found[:2] == [("retention.ms", now_ms, None)] * 2
    assert found[2:4] == [(None, NOW + 121, None), (None, NOW + 121, 2)]
    assert found[4:] == [(None, None, None)]  # it is empty, and takes the appends
    strict = verdicts(log.segments, 1, config(retention_ms=100, retention_clock="record"), now_ms)
    assert [each.rule for each in strict] == ["log start", "retention.ms", None, None, None]
    assert strict[2][3:] == (NOW + 1001, None)
    assert strict[3][3:] == (NOW + 1001, 2)
    kept = verdicts(log.segments, 0, config(retention_ms=-1, retention_bytes=1), now_ms)
    assert [each.rule for each in kept] == ["retention.bytes"] * 3 + [None] * 2
    assert [each.due_ms for each in kept[3:]] == [None, None]


@given(
    stamps=st.lists(st.integers(-1, 40), min_size=1, max_size=6),
    start=st.integers(0, 6),
    retention_ms=st.sampled_from([-1, 5, 20]),
    retention_bytes=st.sampled_from([-1, 0, 100, 200]),
    clock=st.sampled_from(["bounded", "record", "append"]),
)
def test_I8_what_is_said_to_go_goes_and_when_it_is_due_it_does(
    tmp_path_factory: pytest.TempPathFactory,
    stamps: list[int],
    start: int,
    retention_ms: int,
    retention_bytes: int,
    clock: str,
) -> None:
    times = [[NOW + at if at >= 0 else -1] for at in stamps]
    log = log_of(tmp_path_factory.mktemp("log"), *times)
    options = config(retention_ms=retention_ms, retention_bytes=retention_bytes, retention_clock=clock)
    now_ms = NOW + 30
    found = verdicts(log.segments, start, options, now_ms)
    count = retention.expired(log.segments, start, options, now_ms)
    assert [each.rule is not None for each in found] == [n < count for n in range(len(found))]
    for number, verdict in enumerate(found):
        if verdict.rule is None and verdict.due_ms is not None:
            assert retention.expired(log.segments, start, options, verdict.due_ms) > number
            assert retention.expired(log.segments, start, options, verdict.due_ms - 1) <= number
            held = {each.segment.base_offset for each in found[count:number]}
            assert verdict.held_by is None or verdict.held_by in held
            aged_ms = verdict.stamp.time_ms + retention_ms + 1
            own_ms = max(aged_ms, verdict.segment.summary.last_append_ms)
            assert (verdict.held_by is None) == (verdict.due_ms == own_ms)
