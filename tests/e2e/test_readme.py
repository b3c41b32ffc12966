"""What a person copies from the documents and pastes must do what it says."""

import codeop
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import COMMAND, Broker, Running, environment
from tests.support.example_stage import ADDRESS, Stage
from tests.support.examples import EXAMPLES
from tests.support.java import needs_java

pytestmark = pytest.mark.e2e

README = [example for example in EXAMPLES if example.page == "README.md"]
KAFKA, SPARK, PYTEST = (example.text for example in README if example.language == "python")


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


def test_the_commands_do_what_they_say(tmp_path: Path) -> None:
    """After the snippet, as the page has them."""
    with Stage(tmp_path) as stage:
        stage.begin()
        keeps_its_promises(KAFKA.replace(ADDRESS, stage.broker.address))
        for example in README:
            if example.language == "shell" and not example.text.startswith("make "):
                ran = stage.run(example)
                assert [status for _, _, status, _ in ran] == [0] * len(ran), ran
        assert list((stage.folder / "tides.parquet").iterdir())


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
    page = [example for example in EXAMPLES if example.page == "docs/serving.md"]
    (script,) = [example.text for example in page if example.language == "bash"]
    greeting, line = [example.text for example in page if example.language == "plain"]
    variables = {**environment(), "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stdout) == (0, "1 record acknowledged\n"), done.stderr
    lines = (tmp_path / "broker.log").read_text().splitlines()
    assert lines
    event = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) tidelog(\.\w+)+ \S.*"
    assert all(re.fullmatch(event, line) for line in [*lines, line.strip()]), lines
    assert without_places((tmp_path / "greeting").read_text()) == without_places(greeting)


def without_places(greeting: str) -> str:
    """Return a greeting without its port, its folder and what is compiled."""
    return re.sub(r":\d+|data in \S+;|(?<=loops over bytes ).*", "", greeting).strip()
