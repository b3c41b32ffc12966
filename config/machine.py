"""What the machine has that an option may take a share of.

Reads what the system says of it, once. Knows no option.
"""

import os
from functools import cache
from pathlib import Path

# The limit of a container, in the file system that it sees: of cgroups v2, and of v1.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@cache
def memory_bytes() -> int:
    """Return the memory of this machine, or of the container if that has less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    sizes += [size for path in _LIMITS if (size := _limit(path)) > 0]
    return min(sizes)


def _limit(path: Path) -> int:
    """Return the number in a file; 0 where it has none, which stands for no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
