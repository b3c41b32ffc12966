"""scripts/release.py: what it refuses, what it writes, and that a failure leaves the checkout as it was; no builds."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

SCRIPT = ROOT / "scripts" / "release.py"
CHANGES = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A broker.\n\n## 0.1.0 - 2026-01-01\n\n- All.\n"
DATE = "2026-11-27"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@b")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return runpy.run_path(str(SCRIPT))


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, script: dict[str, Any]) -> Iterator[Path]:
    """Return a checkout of version 0.1.0, which must have no worktree left at the end."""
    root = tmp_path / "checkout"
    package = root / "src" / "tidelog"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A broker."""\n\n__version__ = "0.1.0"\n')
    (root / "CHANGELOG.md").write_text(CHANGES)
    (root / ".gitignore").write_text("/dist/\n")
    git(root, "init", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--message=x")
    yield root
    assert len(git(root, "worktree", "list").splitlines()) == 1


def state(root: Path) -> tuple[str, str, str, str]:
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "status", "--porcelain"),
        git(root, "tag", "--list"),
        (root / "CHANGELOG.md").read_text(),
    )


def make(tree: Path, dist: Path) -> None:
    """Stand for a build: its file has the version and the commit."""
    version = (tree / "src" / "tidelog" / "__init__.py").read_text().splitlines()[-1]
    (dist / "a.whl").write_text(version + git(tree, "rev-parse", "HEAD") + git(tree, "status", "--porcelain"))


def test_a_release_is_built_from_the_commit_that_is_tagged(checkout: Path, script: dict[str, Any]) -> None:
    (checkout / "dist").mkdir()
    (checkout / "dist" / "old.whl").touch()
    before = git(checkout, "rev-parse", "HEAD")
    assert script["release"](checkout, "0.2.0", DATE, make) == "main"
    head, changes, tags, changelog = state(checkout)
    assert (changes, tags) == ("", "v0.2.0\n")
    assert git(checkout, "rev-parse", "v0.2.0^{commit}", "HEAD~1") == head + before
    assert [path.name for path in (checkout / "dist").iterdir()] == ["a.whl"]
    assert (checkout / "dist" / "a.whl").read_text() == f'__version__ = "0.2.0"{head}'
    assert changelog == CHANGES.replace("Unreleased\n", f"Unreleased\n\n## 0.2.0 - {DATE}\n")
    with pytest.raises(script["ReleaseError"], match="nothing is unreleased"):
        script["release"](checkout, "0.3.0", DATE, make)
    assert git(checkout, "rev-parse", "HEAD") == head


def fails(tree: Path, dist: Path) -> None:
    raise RuntimeError("no compiler")


def stops(tree: Path, dist: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("build", "error"), [(fails, RuntimeError), (stops, KeyboardInterrupt)])
def test_a_build_that_fails_leaves_the_checkout_as_it_was(
    checkout: Path, script: dict[str, Any], build: Callable[[Path, Path], None], error: type[BaseException]
) -> None:
    before = state(checkout)
    with pytest.raises(error):
        script["release"](checkout, "0.2.0", DATE, build)
    assert state(checkout) == before


def test_a_branch_that_moves_during_the_build_is_not_released(checkout: Path, script: dict[str, Any]) -> None:
    def move(tree: Path, dist: Path) -> None:
        git(checkout, "commit", "--allow-empty", "--message=y")

    with pytest.raises(script["ReleaseError"], match=r"(?s)merge .*fast-forward"):
        script["release"](checkout, "0.2.0", DATE, move)
    assert git(checkout, "log", "-1", "--format=%s") == "y\n"
    assert state(checkout)[1:] == ("", "", CHANGES)


def refused(script: dict[str, Any], checkout: Path, version: str = "0.2.0") -> str:
    before = state(checkout)
    with pytest.raises(script["ReleaseError"]) as caught:
        script["release"](checkout, version, DATE, make)
    assert state(checkout) == before
    return str(caught.value)


def test_what_cannot_be_released_is_refused(checkout: Path, script: dict[str, Any]) -> None:
    (checkout / "new.py").touch()
    (checkout / "CHANGELOG.md").write_text(CHANGES + "- More.\n")
    assert "has changes (M CHANGELOG.md, ...); commit" in refused(script, checkout)
    (checkout / "new.py").unlink()
    git(checkout, "checkout", "CHANGELOG.md")
    git(checkout, "tag", "v0.2.0")
    assert "the tag v0.2.0 exists" in refused(script, checkout)
    git(checkout, "checkout", "--detach")
    assert "git switch BRANCH" in refused(script, checkout, "0.1.0")


@pytest.mark.parametrize("version", ["", "1", "v1.2.3", "1.2.3rc1", "01.2.3", "1.2.3\n", "*"])
def test_a_version_has_three_numbers(script: dict[str, Any], version: str) -> None:
    with pytest.raises(script["ReleaseError"], match=r"form X\.Y\.Z"):
        script["with_version"]('__version__ = "0.1.0"', version)


def test_a_version_is_not_lower_than_the_last_one(script: dict[str, Any]) -> None:
    source = 'a = 1\n__version__ = "0.10.0"\nb = 2\n'
    assert script["with_version"](source, "0.10.0") == source  # the first release
    assert script["with_version"](source, "0.11.0") == source.replace("0.10", "0.11")
    with pytest.raises(script["ReleaseError"], match=r"0\.9\.1 is lower than 0\.10\.0"):
        script["with_version"](source, "0.9.1")
    with pytest.raises(script["ReleaseError"], match="no line __version__"):
        script["with_version"]("", "0.9.1")


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("# Changelog\n", "no section '## Unreleased'"),
        ("## Unreleased\n", "nothing is unreleased"),
        ("## Unreleased\n\n### Added\n\n## 0.1.0\n\n- All.\n", "nothing is unreleased"),
    ],
)
def test_a_release_has_something_to_say(script: dict[str, Any], changelog: str, problem: str) -> None:
    with pytest.raises(script["ReleaseError"], match=problem):
        script["moved"](changelog, "0.2.0", DATE)


def test_the_script_knows_the_files_of_this_repository(script: dict[str, Any]) -> None:
    assert script["with_version"]((ROOT / script["SOURCE"]).read_text(), "99.0.0").count('"99.0.0"') == 1
    assert script["moved"]("\n" + (ROOT / script["CHANGELOG"]).read_text() + "\n- x\n", "99.0.0", DATE)
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(versions) <= set(script["VERSIONS"])


def test_an_interpreter_is_found_by_its_version(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", os.devnull)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert subprocess.check_output([script["interpreter"](here), "-V"], text=True).startswith(
        f"Python {here}."
    )
    assert script["interpreter"]("9.9") == ""


def test_make_release_names_a_missing_version() -> None:
    done = subprocess.run(["make", "-s", "release"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'' is no version; it has the form X.Y.Z" in done.stderr
