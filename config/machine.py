"""The memory of the machine, which bounds some options. The system is asked once."""

import os
from functools import cache
from pathlib import Path

# The memory limit of a container, in cgroups v2 and v1.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@cache
def memory_bytes() -> int:
    """Return the memory of this machine, or the limit of the container if that is less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    sizes += [size for path in _LIMITS if (size := _limit(path)) > 0]
    return min(sizes)


def _limit(path: Path) -> int:
    """Return the number in a file; 0, for no limit, if there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
