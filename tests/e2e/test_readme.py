"""What a person copies from the documents and pastes must do what it says."""

import codeop
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import COMMAND, Running, environment

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ADDRESS = "127.0.0.1:9092"


def test_snippet_prints_what_its_comments_promise(shared_broker: Running) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert ADDRESS in snippet
    promised = re.findall(r"^\s*print\(.*\)\s*# (.+)$", snippet, re.MULTILINE)
    assert promised
    done = subprocess.run(
        [sys.executable, "-c", snippet.replace(ADDRESS, shared_broker.address)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised


def test_snippet_can_be_pasted_at_the_prompt_of_python() -> None:
    """There an empty line ends a block, and nothing else does."""
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    pasted: list[str] = []
    for line in snippet.splitlines():
        pasted.append(line)
        if codeop.compile_command("\n".join(pasted)) is not None:
            pasted = []
    assert pasted == []


def test_the_script_that_serves_does_what_its_page_promises(tmp_path: Path) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.DOTALL)
    variables = {**environment(), "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout) == (0, "1 record acknowledged\n"), done.stderr
    lines = (tmp_path / "broker.log").read_text().splitlines()
    assert lines
    event = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) tidelog(\.\w+)+ \S.*"
    assert all(re.fullmatch(event, line) for line in lines), lines
