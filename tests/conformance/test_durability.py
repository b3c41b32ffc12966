"""tests/fault/README.md: every test it names is there, and those of a fault test carry its number."""

import ast
import re

import pytest

from tests.support.paths import TESTS

DOC = (TESTS / "fault" / "README.md").read_text()
SHOWN = re.compile(r"`([\w/]+\.py)::(\w+)`")
FAULT = re.compile(r"^\| (F\d+) \| .+ \| (.+) \|$", re.MULTILINE)
FAULTS = dict(FAULT.findall(DOC))


Test = ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign


def found(file: str, name: str) -> tuple[ast.Module, Test]:
    """Return a test and its module; fail if there is no such test."""
    tree = ast.parse((TESTS / file).read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return tree, node
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return tree, node
    raise AssertionError(f"tests/fault/README.md names {file}::{name}, which is not there")


def words_of(file: str, name: str) -> str:
    """Return a test's name with its docstring and its module's."""
    tree, test = found(file, name)
    own = "" if isinstance(test, ast.Assign) else ast.get_docstring(test) or ""
    return " ".join((name, own, ast.get_docstring(tree) or ""))


@pytest.mark.parametrize(("file", "name"), sorted(set(SHOWN.findall(DOC))))
def test_what_shows_it_exists(file: str, name: str) -> None:
    assert words_of(file, name)


def test_every_row_of_a_fault_names_a_test() -> None:
    tables = DOC[DOC.index("## What happens at each fault") :]
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    bare = [line for line in rows if not SHOWN.search(line)]
    assert all(line.startswith(("| fault | what", "| no. | fault")) for line in bare), bare


def test_every_fault_test_of_the_list_is_there() -> None:
    assert list(FAULTS) == [f"F{number}" for number in range(1, 16)]


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_test_carries_its_number(number: str) -> None:
    for file, name in SHOWN.findall(FAULTS[number]):
        assert re.search(rf"(?<![A-Z\d]){number}(?!\d)", words_of(file, name)), f"{file}::{name}: no {number}"


def takes_long(file: str, name: str) -> bool:
    """Tell whether `make test` leaves a test out."""
    _, test = found(file, name)
    marks = [] if isinstance(test, ast.Assign) else test.decorator_list
    return any(ast.unparse(mark) == "pytest.mark.all" for mark in marks)


def test_what_runs_a_test_that_takes_long_is_said() -> None:
    rows = [row for row in FAULTS.values() if any(takes_long(*shown) for shown in SHOWN.findall(row))]
    assert rows
    assert all("`make test-all`" in row for row in rows), rows
