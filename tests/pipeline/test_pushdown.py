"""What predicates leave: never less than what they hold for."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as d

from tidelog.pipeline.pushdown import Bounds, Wanted, wanted

AT = datetime(2023, 11, 14, 22, 13, 20, 1500, tzinfo=UTC)
AT_MS = 1_700_000_000_001
COMPARED = {
    d.EqualTo: lambda a, b: a == b,
    d.EqualNullSafe: lambda a, b: a == b,
    d.GreaterThan: lambda a, b: a > b,
    d.GreaterThanOrEqual: lambda a, b: a >= b,
    d.LessThan: lambda a, b: a < b,
    d.LessThanOrEqual: lambda a, b: a <= b,
}
kinds = st.sampled_from(list(COMPARED))
numbers = st.integers(0, 20)


@given(st.lists(st.tuples(kinds, numbers), max_size=4), numbers)
def test_an_offset_that_all_predicates_hold_for_is_within_bounds(
    predicates: list[tuple[Any, int]], offset: int
) -> None:
    bounds = wanted(kind(("offset",), value) for kind, value in predicates).offset
    if all(COMPARED[kind](offset, value) for kind, value in predicates):
        assert bounds.first <= offset < bounds.end


@given(st.sampled_from(["create_time", "append_time"]), kinds, st.integers(-5000, 5000), st.integers(-5, 5))
def test_a_time_that_a_predicate_holds_for_is_within_bounds(
    name: str, kind: Any, micros: int, at_ms: int
) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    value, time = epoch + timedelta(microseconds=micros), epoch + timedelta(milliseconds=at_ms)
    bounds: Bounds = getattr(wanted([kind((name,), value)]), name)
    if COMPARED[kind](time, value):
        assert bounds.first <= at_ms < bounds.end


def test_bounds_are_as_narrow_as_whole_milliseconds_allow() -> None:
    assert wanted([d.EqualTo(("create_time",), AT)]).create_time == Bounds(AT_MS, AT_MS + 1)
    assert wanted([d.GreaterThan(("append_time",), AT)]).append_time == Bounds(first=AT_MS)
    assert wanted([d.LessThan(("offset",), 5)]).offset == Bounds(end=6)
    both = [
        d.GreaterThanOrEqual(("offset",), 3),
        d.LessThanOrEqual(("offset",), 5),
        d.LessThan(("offset",), 4),
    ]
    assert wanted(both).offset == Bounds(3, 5)


def test_times_without_a_zone_are_utc_and_with_one_the_same_moment() -> None:
    naive, east = AT.replace(tzinfo=None), AT.astimezone(timezone(timedelta(hours=2)))
    assert {wanted([d.EqualTo(("create_time",), at)]) for at in (AT, naive, east)} == {
        Wanted(create_time=Bounds(AT_MS, AT_MS + 1))
    }


def test_partitions_are_those_in_all_predicates() -> None:
    assert wanted([d.EqualTo(("partition",), 2)]).partitions == {2}
    assert wanted([d.In(("partition",), (1, 2)), d.In(("partition",), (2, 3))]).partitions == {2}
    assert wanted([]).partitions is None


@pytest.mark.parametrize(
    "predicate",
    [
        d.IsNull(("create_time",)),
        d.Not(d.EqualTo(("offset",), 5)),
        d.EqualNullSafe(("create_time",), None),
        d.EqualTo(("key",), b"k"),
        d.In(("offset",), (1, 2)),
        d.In(("offset",), [1, 2]),  # type: ignore[arg-type]  (which is what Spark hands over)
        d.In(("create_time",), [AT]),  # type: ignore[arg-type]
        d.GreaterThan(("partition",), 1),
        d.EqualTo(("headers", "offset"), 5),
        d.StringStartsWith(("topic",), "t"),
    ],
    ids=repr,
)
def test_what_is_not_understood_is_left_to_spark(predicate: Any) -> None:
    assert wanted([predicate]) == Wanted()
