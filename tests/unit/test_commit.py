"""Which commit is named: that in the file of a built package, or that of the checkout around the sources."""

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def commit(folder: Path) -> str:
    found = runpy.run_path(str(folder / "src" / "tidelog" / "commit.py"))["commit"]()
    assert isinstance(found, str)
    return found


def git(folder: Path, *words: str) -> str:
    who = "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"
    done = subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "tree" / "src" / "tidelog"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "tidelog" / "commit.py", package)
    return tmp_path / "tree"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_names_its_commit_and_whether_files_differ_from_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree.parent, "init")
    git(tree.parent, "commit", "--allow-empty", "--message=x")
    assert commit(tree) == ""  # a commit of something else
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "--message=x")
    git(tree, "tag", "v1")
    monkeypatch.setenv("GIT_DIR", str(tree.parent / ".git"))  # as a hook of another repository has it
    monkeypatch.chdir(tree.parent)
    head = commit(tree)
    source = tree / "src" / "tidelog" / "commit.py"
    source.write_text(source.read_text() + "# changed\n")
    changed = commit(tree)
    monkeypatch.delenv("GIT_DIR")
    assert (head, changed) == (git(tree, "rev-parse", "--short=12", "HEAD"), f"{head}-dirty")
    monkeypatch.setenv("PATH", "")
    assert commit(tree) == ""


def test_a_package_names_the_commit_that_it_was_built_from(tree: Path) -> None:
    assert commit(tree) == ""
    (tree / "src" / "tidelog" / "commit.txt").write_text("0123456789ab\n")
    assert commit(tree) == "0123456789ab"
