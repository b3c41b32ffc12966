"""scripts/prose.py: what the linter of `make check` flags, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def check(*pages: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "prose.py"), *pages]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_word_to_avoid_is_named_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nThe tuple, the last\nof which is active.\n\nIt is very unique.\n")
    found = check(str(page))
    assert found.returncode == 1
    assert f"{page}:4: ours: " in found.stdout
    assert f"{page}:6: " in found.stdout


@pytest.mark.parametrize(
    "text", ["    anew", "```\nanew\n```", "`anew`", "[a](anew.md)", "It is read again."]
)
def test_code_and_plain_sentences_are_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}\n")
    found = check(str(page))
    assert (found.returncode, found.stdout) == (0, "")
