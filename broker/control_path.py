"""Where a broker is controlled by a test: the name of the socket in its data folder, and a way there from any folder.

Loads nothing else: a test that starts a broker has it in its hand at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = ".control"
# A command, or an answer to one.
LINE_BYTES_MAX = 1 << 20
# The longest path of a socket that the system takes.
_PATH_MAX = 107


@contextmanager
def reached(path: Path) -> Iterator[str]:
    """Give a name of a socket that is short enough, however long its path is."""
    if len(os.fsencode(path)) <= _PATH_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)  # noqa: TID251  (to name it, not to read it)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
