"""docs/requirements.md lists every number once, and each requirement that applies has a test with its number."""

import re

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
ROWS = re.findall(r"^\| ([A-Z]\d+) \| (.+) \|$", LIST.read_text(), re.MULTILINE)
TESTED = {
    number
    for path in TESTS.rglob("test_*.py")
    for test in re.findall(r"^\s*(?:async )?def test(_\w+)", path.read_text(), re.MULTILINE)
    for number in re.findall(r"(?<=_)[SPVIC]\d+(?=_|$)", test)
}


def applies(what: str) -> bool:
    return "(not " not in what


def test_every_number_is_listed_once() -> None:
    assert sorted(number for number, _ in ROWS) == sorted(ALL_NUMBERS)


@pytest.mark.parametrize(("number", "what"), [row for row in ROWS if applies(row[1])])
def test_a_requirement_has_a_test_and_a_contradiction_may_name_one_that_has(number: str, what: str) -> None:
    named = re.findall(r"\b[SPVI]\d+\b", what) if number.startswith("C") else []
    assert TESTED & {number, *named}, f"no name of a test contains _{number}_"


def test_only_requirements_that_apply_have_tests() -> None:
    assert {number for number, what in ROWS if applies(what)} >= TESTED
