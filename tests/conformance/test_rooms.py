"""What holds in each room: no module needs itself, and each can be held in one's head.

Imports inside functions and for type checkers count: a type that one must know is a dependency.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION = 600, 60
ROOMS = ("bench", "broker", "cli", "config", "protocol", "storage")
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for room in ROOMS
    for file in (ROOT / room).rglob("*.py")
}


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update((f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)))
    return {name.removeprefix("tidelog.") for name in names} & FILES.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_needs_itself(room: str) -> None:
    graph = {name: imported(file) - {name} for name, file in FILES.items() if name.partition(".")[0] == room}
    assert any(graph.values())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


@pytest.mark.parametrize("room", ROOMS)
def test_modules_and_functions_can_be_seen_whole(room: str) -> None:
    for name, file in FILES.items():
        if name.partition(".")[0] == room:
            source = file.read_text()
            assert len(source.splitlines()) <= MOST_LINES_OF_A_MODULE, name
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    assert lines <= MOST_LINES_OF_A_FUNCTION, f"{name}.{node.name}"
