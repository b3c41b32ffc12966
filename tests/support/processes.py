"""Other processes, as /proc shows them."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that has ended may wait for a parent that never asks for its status."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in {"Z", "X"}


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process, and its name before them."""
    return Path(f"/proc/{pid}/cmdline").read_text().removesuffix("\0").split("\0")
