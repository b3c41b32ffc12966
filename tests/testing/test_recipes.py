"""The recipes in docs/testing-recipes.md: what the page shows is what runs, each as its language runs tests.

Those in Python are tests of their own, in `recipes/python` and in tests/pipeline.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.broker import COMMAND
from tests.support.builds import go_built, needs_go, needs_node, npm_installed
from tests.support.java import java_command, needs_java
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e

RECIPES = Path(__file__).with_name("recipes")
PAGE = (ROOT / "docs" / "testing-recipes.md").read_text()
# Blocks of code, but what is to be replaced: that needs what we do not have here.
BLOCKS = re.findall(r"(?<!Before:\n\n)^```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
BEFORE = re.findall(r"^Before:\n\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def sources() -> list[Path]:
    kinds = {".py", ".java", ".go", ".js", ".json"}
    found = [path for path in RECIPES.rglob("*") if path.suffix in kinds]
    return [*found, ROOT / "tests" / "pipeline" / "test_recipe.py"]


def test_what_the_page_shows_is_what_runs() -> None:
    texts = [path.read_text() for path in sources()]
    assert BLOCKS
    assert [block for block in BLOCKS if not any(block in text for text in texts)] == []


def test_what_runs_is_on_the_page() -> None:
    """All of it, but docstrings, and what builds it."""
    tests = [path for path in sources() if path.suffix != ".json" and path.name != "conftest.py"]
    assert len(tests) > 10
    code = {path: re.sub(r'\A"""[^"]*"""\s*', "", path.read_text()) for path in tests}
    assert [path.name for path, text in code.items() if text not in BLOCKS] == []


@pytest.mark.parametrize("block", BEFORE)
def test_what_is_to_be_replaced_is_python(block: str) -> None:
    compile(block, "before", "exec")


def run(command: Sequence[str], temporary: Path, folder: Path | None = None) -> str:
    """Run a language's tests in a folder, with `tidelog` on the path; return what they said."""
    variables = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    done = subprocess.run(
        command,
        cwd=folder or temporary,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@needs_java
@pytest.mark.java
@pytest.mark.slow
def test_junit(tmp_path: Path) -> None:
    arguments = ["execute", "--select-class", "HourlyOrdersTest", "--details", "summary", "--disable-banner"]
    main = "org.junit.platform.console.ConsoleLauncher"
    said = run(java_command(main, *arguments, sources=RECIPES / "java"), tmp_path)
    assert re.search(r"\b1 tests successful", said), said


@needs_go
@pytest.mark.slow
def test_go(tmp_path: Path) -> None:
    program = go_built("recipe", RECIPES / "go", ("test", "-c"))
    assert "PASS: TestAnOrderSurvivesAMoveOfItsPartition" in run([str(program), "-test.v"], tmp_path)


@needs_node
@pytest.mark.slow
def test_jest(tmp_path: Path) -> None:
    folder = npm_installed("recipe", RECIPES / "node")
    jest = ["node", "node_modules/jest/bin/jest.js", "--cacheDirectory", ".jest"]
    said = run(jest, tmp_path, folder)
    assert "1 passed" in said, said
