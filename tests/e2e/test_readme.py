"""The README's sixty seconds with kafka-python: what a person copies and pastes must do what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import Running

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[2] / "README.md"
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
