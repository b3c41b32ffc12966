"""What holds in each room: no module needs itself.

Imports inside functions and for type checkers count: a type that one must know is a dependency.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

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
