"""Finds the commit that this Tidelog was made from, which tells two builds of one version apart.

A wheel and an sdist contain it in a file, which `setup.py` writes. In a checkout, git says it.
"""

import subprocess
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("commit.txt")
ROOT: Final = Path(__file__).resolve().parents[2]


def commit() -> str:
    """Return the commit's abbreviated hash, with `-dirty` if files of a checkout differ from it; "" if unknown."""
    if FILE.exists():
        return FILE.read_text().strip()
    if not (ROOT / ".git").exists():  # an installation's folder may lie in a checkout of something else
        return ""
    where = f"--git-dir={ROOT / '.git'}", f"--work-tree={ROOT}"
    describe = "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *where, *describe], capture_output=True, text=True, check=False
        )
    except OSError:  # no git
        return ""
    return done.stdout.strip()
