"""Programs in Go and for Node, built once: each is kept under build/ by what it is made from.

Owns how they are built. Refuses to know: what they do.
Invariant: where Go or Node is present, what cannot be built is a failure, never a silent skip.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.java import BUILD, _digest, _exclusive, _run

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="needs Node and npm"
)


def go_built(name: str, folder: Path, how: Sequence[str] = ("build",)) -> Path:
    """Return what Go makes of the module in a folder: a program."""
    sources = sorted(folder.iterdir())
    path = BUILD.with_name("go") / f"{name}-{_digest(sources)}"
    with _exclusive():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            command, *options = how
            _run(["go", command, "-C", str(folder), *options, "-o", f"{path}.partial", "."])
            Path(f"{path}.partial").rename(path)
    return path


def npm_installed(name: str, folder: Path) -> Path:
    """Return a copy of a folder with what its package-lock.json names beside it."""
    sources = [path for path in sorted(folder.iterdir()) if path.is_file()]
    copy = BUILD.with_name("node") / f"{name}-{_digest(sources)}"
    with _exclusive():
        if not copy.exists():
            partial = copy.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for path in sources:
                shutil.copy(path, partial)
            # What fails is tried again in seconds: by default npm waits for more than a minute, for each package.
            quick = ["--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]
            how = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", *quick]
            _run(["npm", "ci", *how, "--prefix", str(partial)])
            partial.rename(copy)
    return copy
