"""The `tidelog` command."""

import shlex
import shutil
import sys


def called() -> str:
    """Return the command as it can be typed again: by its name where the shell finds it, else by its path."""
    path = sys.argv[0]
    found = shutil.which("tidelog")
    return "tidelog" if found == path or not path.endswith("tidelog") else shlex.quote(path)
