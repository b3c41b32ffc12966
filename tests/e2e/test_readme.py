"""What a person copies from the documents and pastes must do what it says."""

import codeop
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import COMMAND, Broker, Running, environment
from tests.support.java import needs_java
from tests.support.paths import ROOT

pytestmark = pytest.mark.e2e

README = ROOT / "README.md"
ADDRESS = "127.0.0.1:9092"


KAFKA, SPARK, PYTEST = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def keeps_its_promises(snippet: str, folder: Path | None = None) -> None:
    promised = re.findall(r"^\s*print\(.*\)\s*# (.+)$", snippet, re.MULTILINE)
    assert promised
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised


def test_snippet_prints_what_its_comments_promise(shared_broker: Running) -> None:
    assert ADDRESS in KAFKA
    keeps_its_promises(KAFKA.replace(ADDRESS, shared_broker.address))


def test_a_test_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.all
@needs_java
@pytest.mark.timeout(200)
def test_the_log_of_the_snippet_is_a_table(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.start()
        keeps_its_promises(KAFKA.replace(ADDRESS, broker.address))
        produce = [sys.executable, "-m", "tidelog", "produce", "tides", "--key-separator", ":"]
        command = [*produce, "--bootstrap", broker.address]
        subprocess.run(
            command, input="harbour:3.2 m\n", text=True, check=True, capture_output=True, timeout=60
        )
        keeps_its_promises(SPARK, tmp_path)


@pytest.mark.parametrize("snippet", [KAFKA, SPARK], ids=["kafka", "spark"])
def test_snippet_can_be_pasted_at_the_prompt_of_python(snippet: str) -> None:
    """There an empty line ends a block, and nothing else does."""
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


def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "first-steps.md").read_text()
    commands = page[page.index("## Write records") :]
    shown = re.findall(r"^ {4}(.*)$", commands, re.MULTILINE)
    script = "".join(
        f"printf '%s\\n' {shlex.quote(line)}\n{line[2:]}\n" for line in shown if line.startswith("$ ")
    )
    with Broker(tmp_path / "data") as broker:
        broker.start()
        variables = {
            **environment(),
            "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
            "TIDELOG_BOOTSTRAP": broker.address,
            "TZ": "UTC",
        }
        done = subprocess.run(
            ["bash", "-c", script], env=variables, capture_output=True, text=True, timeout=150
        )
    assert done.stderr == ""

    def without_present_times(text: str) -> str:
        return re.sub(r"(?!2026-03-01)\d{4}-\d\d-\d\dT[\d:.]+", "now", text)

    assert without_present_times(done.stdout) == without_present_times("\n".join(shown) + "\n")
