"""docs/requirements.md: every number is listed, and every test it names is there and shows what it is named for."""

import re
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT, TESTS

LIST = ROOT / "docs" / "requirements.md"
ALL_NUMBERS = {
    *(f"S{number}" for number in range(1, 103)),
    *(f"P{number}" for number in range(1, 28)),
    *(f"V{number}" for number in (2, 4, 5, 6, 7, 8, 9, 10)),
    *(f"I{number}" for number in range(1, 10)),
    *(f"C{number}" for number in range(1, 19)),
}
NUMBER = re.compile(r"(?<=_)[SPVIC]\d+(?=_|$)")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
SHOWN = re.compile(r"`([\w/]+\.py)::(test_\w+)`( \*)?")
NOT_SHOWN = re.compile(r"not (built|applicable)(: .+)?")


class Row(NamedTuple):
    number: str
    what: str
    shown_by: str


ROWS = [Row(*found) for found in ROW.findall(LIST.read_text())]
# The functions that are tests, by file; a test's numbers are those in its name.
FUNCTIONS = {
    path.relative_to(TESTS).as_posix(): set(
        re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    )
    for path in TESTS.rglob("test_*.py")
}


def test_every_number_is_listed_once() -> None:
    numbers = [row.number for row in ROWS]
    assert sorted(numbers) == sorted(ALL_NUMBERS)


@pytest.mark.parametrize("row", ROWS, ids=[row.number for row in ROWS])
def test_what_shows_a_requirement_exists(row: Row) -> None:
    if NOT_SHOWN.fullmatch(row.shown_by):
        return
    parts = row.shown_by.split(", ")
    shown = [SHOWN.fullmatch(part) for part in parts]
    assert all(shown), f"{row.number}: {row.shown_by!r} is neither tests nor `not built` nor `not applicable`"
    for file, test, star in (found.groups() for found in shown if found):
        assert test in FUNCTIONS.get(file, set()), f"{row.number}: there is no {file}::{test}"
        has_number = row.number in NUMBER.findall(test)
        assert has_number != bool(star), (
            f"{row.number}: a star is for a test whose name lacks the number: {test}"
        )


def test_every_number_in_the_name_of_a_test_can_be_looked_up() -> None:
    rows = {row.number: row for row in ROWS}
    for file, tests in FUNCTIONS.items():
        for test in tests:
            for number in NUMBER.findall(test):
                assert number in rows, f"{file}::{test}: docs/requirements.md has no {number}"
                words = rows[number].shown_by
                assert not NOT_SHOWN.fullmatch(words), (
                    f"{file}::{test} shows {number}, of which the list says {words}"
                )
