"""Make a release: `scripts/release.py X.Y.Z` builds and verifies an sdist and wheels, commits and tags. Never pushes.

All work is done in a worktree of its own: whatever fails, the checkout and its branch stay as they were. The commit is
made before the build, because a wheel contains the commit that it is built from. The branch moves to it at the end.
Needs git, a C compiler, and the standard library.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
SOURCE: Final = "src/tidelog/__init__.py"
CHANGELOG: Final = "CHANGELOG.md"
UNRELEASED: Final = "## Unreleased\n"
START_S: Final = 60
_VERSION: Final = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_SHOWN_LINES: Final = 20

# Builds the files of a release from a tree into a folder.
Build = Callable[[Path, Path], None]


class ReleaseError(Exception):
    """The release cannot be made; the message says why and what to do."""


def main() -> int:
    """Make a release, or print in a line why not."""
    parser = argparse.ArgumentParser(prog="make release VERSION=X.Y.Z", description=__doc__)
    parser.add_argument("version", metavar="X.Y.Z")
    version = parser.parse_args().version
    try:
        branch = release(ROOT, version, time.strftime("%Y-%m-%d", time.gmtime()), build)
    except (ReleaseError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    files = ", ".join(f"dist/{path.name}" for path in sorted((ROOT / "dist").iterdir()))
    print(f"release: built {files}")
    print(f"release: committed to {branch} and tagged v{version}, here only. To publish:")
    print(f"  git push origin {branch} v{version}")
    print("To undo:")
    print(f"  git tag -d v{version} && git reset --keep HEAD~1")
    return 0


def release(root: Path, version: str, date: str, build: Build) -> str:
    """Build a version of a checkout into its dist/, commit it and tag it; return the branch. ReleaseError."""
    branch = check(root, version)
    with tempfile.TemporaryDirectory(prefix="tidelog-release-") as folder:
        tree, made = Path(folder) / "tree", Path(folder) / "dist"
        made.mkdir()
        git(root, "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            source, changelog = tree / SOURCE, tree / CHANGELOG
            source.write_text(with_version(source.read_text(), version))
            changelog.write_text(moved(changelog.read_text(), version, date))
            git(tree, "commit", "--quiet", "--all", f"--message=Release {version}")
            commit = git(tree, "rev-parse", "HEAD")
            build(tree, made)
        finally:
            git(root, "worktree", "remove", "--force", str(tree))
        dist = root / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(made, dist)
        git(root, "tag", "--annotate", f"--message=Tidelog {version}", f"v{version}", commit)
        try:
            git(root, "merge", "--quiet", "--ff-only", commit)
        except BaseException:
            git(root, "tag", "--delete", f"v{version}")
            raise
    return branch


def check(root: Path, version: str) -> str:
    """Return the branch of a checkout that a version can be released from. ReleaseError."""
    with_version((root / SOURCE).read_text(), version)
    if changed := git(root, "status", "--porcelain").splitlines():
        more = ", ..." if changed[1:] else ""
        raise ReleaseError(f"the checkout has changes ({changed[0].strip()}{more}); commit or remove them")
    branch = git(root, "branch", "--show-current")
    if not branch:
        raise ReleaseError("no branch is checked out; git switch BRANCH")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists; choose a later version")
    moved((root / CHANGELOG).read_text(), version, "")
    return branch


def with_version(source: str, version: str) -> str:
    """Return the text of the module that names the version, with another, which must not be lower. ReleaseError."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseError(f"{version!r} is no version; it has the form X.Y.Z")
    found = _VERSION.search(source)
    if found is None:
        raise ReleaseError(f'{SOURCE}: no line __version__ = "X.Y.Z"')
    if _numbers(version) < _numbers(found[1]):
        raise ReleaseError(f"{version} is lower than {found[1]}, the version of {SOURCE}")
    return f"{source[: found.start(1)]}{version}{source[found.end(1) :]}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def moved(changelog: str, version: str, date: str) -> str:
    """Return the changelog with what is unreleased under a version and a date. ReleaseError if there is nothing."""
    before, heading, rest = changelog.partition(UNRELEASED)
    if not heading:
        raise ReleaseError(f"{CHANGELOG}: no section {UNRELEASED.strip()!r}")
    unreleased, *_ = re.split("^## ", rest, flags=re.MULTILINE)
    if not any(line and not line.startswith("#") for line in unreleased.splitlines()):
        raise ReleaseError(f"{CHANGELOG}: nothing is unreleased; write what changes for users")
    return f"{before}{heading}\n## {version} - {date}\n{rest}"


def build(tree: Path, dist: Path) -> None:
    """Build an sdist of a tree, and from it a wheel for each Python of this machine; install and start each wheel."""
    pythons = {version: found for version in VERSIONS if (found := interpreter(version))}
    for version in VERSIONS:
        if version not in pythons:
            say(f"no Python {version} here, so there will be no wheel for it")
    if not pythons:
        raise ReleaseError("no Python to build with: " + ", ".join(VERSIONS))
    commit = git(tree, "rev-parse", "--short=12", "HEAD")
    for version, python in pythons.items():
        say(f"Python {version}: building, which takes some minutes")
        with tempfile.TemporaryDirectory(prefix="tidelog-release-") as folder:
            tools, wheels = Path(folder) / "tools", Path(folder) / "wheels"
            run(python, "-m", "venv", tools)
            pip = tools / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"
            locks = [f"--requirement={tree / 'requirements' / name}" for name in ("build.txt", "native.txt")]
            run(*pip, "install", "--require-hashes", *locks)
            if not any(dist.iterdir()):
                run(tools / "bin" / "python", "setup.py", "--quiet", "sdist", "--dist-dir", dist, cwd=tree)
            (sdist,) = dist.glob("*.tar.gz")
            run(*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, sdist)
            say(f"Python {version}: verifying")
            verify(tree, python, wheels, commit)
            (wheel,) = wheels.iterdir()
            shutil.copy(wheel, dist)


def interpreter(version: str) -> str:
    """Return the path of a Python of this version that starts; "" if there is none."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in (name, *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")))):
        ask = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
        try:
            done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        except OSError:
            continue
        found, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == version:
            return path
    return ""


def verify(tree: Path, python: str, wheels: Path, commit: str) -> None:
    """Install the wheel in a folder, compare the commit and what is compiled, and start a broker. ReleaseError."""
    prefix = wheels.with_name("installed")
    install = tree / "docker" / "install.sh", prefix, tree / "requirements" / "run.txt", wheels
    said = run(*install, environment={"PYTHON": python})
    for line in (f"commit: {commit}", "loops over bytes: compiled", "requests: compiled"):
        if line not in said.splitlines():
            raise ReleaseError(f"the wheel does not say {line!r}: {said}")
    ready, log = wheels.with_name("ready"), wheels.with_name("log")
    serve = "serve", "--port", "0", "--data-dir", wheels.with_name("data"), "--ready-file", ready
    with log.open("w") as output:
        broker = subprocess.Popen([prefix / "bin" / "tidelog", *serve], stdout=output, stderr=output)
    try:
        until = time.monotonic() + START_S
        while not ready.exists() and broker.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if not ready.exists():
            raise ReleaseError(f"the broker of the wheel is not ready after {START_S} s: {log.read_text()}")
        broker.terminate()
        if status := broker.wait(START_S):
            raise ReleaseError(f"the broker of the wheel stopped with status {status}: {log.read_text()}")
    finally:
        broker.kill()
        broker.wait()


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, and return what it prints. ReleaseError."""
    return run("git", "-C", folder, *words).rstrip("\n")


def run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints. ReleaseError with the end of that if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise ReleaseError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])
        raise ReleaseError(f"{' '.join(map(str, command))} failed ({done.returncode})\n{said}")
    return done.stdout


def say(line: str) -> None:
    """Print what is being done, at once."""
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
