"""Regular expressions of clients: RE2's, the whole name, and no pattern that keeps the broker busy."""

import gc
import time
import tracemalloc

import pytest

from tidelog.broker.groups.topic_patterns import MATCHED_AT_ONCE, MOST_LETTERS, matches, problem
from tidelog.broker.work import Stopping
from tidelog.protocol.records.steps import at_once


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("a", {"a"}),
        ("a.*", {"a", "ab", "a.b"}),
        ("a[.]b|b", {"a.b", "b"}),
        ("^ab$", {"ab"}),
        ("(?i)A", {"a"}),
        ("", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: set[str]) -> None:
    assert at_once(matches([pattern], ["a", "ab", "a.b", "b"], 1000)) == {pattern: matching}


@pytest.mark.parametrize(
    "pattern", ["(", "a**", r"(a)\1", "(?=a)", "a{1001}", "((a{100}){100}){100}", r"\p{Nope}", r"\pL{30}"]
)
def test_what_is_not_re2_or_too_large_is_refused_and_matches_nothing(pattern: str) -> None:
    assert problem(pattern)
    assert at_once(matches([pattern], ["a"], 1000)) == {pattern: frozenset()}


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+$b", "(.*)*b", "(a?){200}a{200}c", "((a{0,20}){0,20}){0,2}b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Python's own `re` would be at the first of these for longer than the machine lasts."""
    assert problem(pattern) is None
    names = ["a" * 249] * MATCHED_AT_ONCE
    begun_s = time.thread_time()
    assert at_once(matches([pattern], names, 1000)) == {pattern: frozenset()}
    assert time.thread_time() - begun_s < 1


@pytest.mark.parametrize(
    "part",
    [r"\pL", r"[^\pL]", r"(?i)\pL", "(?i:[a-\uffff])", ".*", "x?", "(", "a|", r"\C*", "((a{9}){9}){9}"],
)
def test_what_a_pattern_takes_to_compile_is_bounded(part: str) -> None:
    """A bound on what is compiled bounds that alone: thirty kilobytes took a second and a half, and 386 MB."""
    longest = part * (MOST_LETTERS // len(part))
    begun_s = time.thread_time()
    problem(longest)
    assert time.thread_time() - begun_s < 0.2
    assert f"may have {MOST_LETTERS} letters" in (problem(part * (32_000 // len(part))) or "")
    assert time.thread_time() - begun_s < 0.3


def test_a_pattern_of_as_many_letters_as_it_may_have_is_taken() -> None:
    assert problem("a" * MOST_LETTERS) is None
    assert problem("a" * (MOST_LETTERS + 1))
    assert at_once(matches(["a*" + "|" * MOST_LETTERS], ["a"], 1000)).popitem()[1] == frozenset()


def test_all_names_are_looked_at_however_many() -> None:
    names = [f"a{number}" for number in range(5 * MATCHED_AT_ONCE)]
    assert at_once(matches(["a.*", "a1"], names, 1000)) == {"a.*": frozenset(names), "a1": frozenset(["a1"])}


def test_names_are_matched_in_steps_and_a_stop_ends_them() -> None:
    task = matches(["a"], ["a"] * (MATCHED_AT_ONCE * 3), 1000)
    assert len(list(task.__await__())) == 3
    stopped = matches(["a"], ["a"], 1000)
    stopped.send(None)
    with pytest.raises(Stopping):
        stopped.throw(Stopping())


def test_what_is_under_way_holds_little_of_what_it_has_found() -> None:
    """Each group has its turns, so any number of these may be under way at once."""
    names = [f"a{number}" for number in range(10_000)]
    task = matches(["a.*", "b"], names, 1 << 20)
    assert problem("b") is None  # re2 is there
    tracemalloc.start()
    try:
        for _ in range(len(names) // MATCHED_AT_ONCE):
            task.send(None)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000, "as a set they would take half a megabyte"
    finally:
        tracemalloc.stop()
    assert at_once(task) == {"a.*": frozenset(names), "b": frozenset()}


def test_no_more_topics_are_matched_than_there_is_room_for() -> None:
    names = [f"a{number}" for number in range(30)] + ["b", "bb"]
    found = at_once(matches(["b", "a.*", "b*", "b."], names, 3))
    assert found == {"b": {"b"}, "a.*": None, "b*": {"b", "bb"}, "b.": None}
    task = matches(["a.*"], ["a"] * 100 * MATCHED_AT_ONCE, 0)
    assert len(list(task.__await__())) < 5, "the others are not looked at"
