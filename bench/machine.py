"""The machine that measures: what it is, what it has spent, and how it is brought into the same state before every run.

Invariant: nothing here changes the machine but by using its memory and dropping its page cache, which a run could
not be compared without; where dropping is not allowed, it is left out, and the results say so.
"""

import mmap
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

MIB = 1 << 20
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def cpu_s(pid: int) -> float:
    """Return user and system time of all threads of a process: /proc/PID/stat, but in nanoseconds, not ticks."""
    return time.clock_gettime((~pid << 3) | 2)


def children(pid: int) -> set[int]:
    """Return the processes that a process has started and that have not been waited for."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # The thread has just ended.
            found.update(map(int, (task / "children").read_text().split()))
    return found


def ended_children_cpu_s(pid: int) -> float:
    """Return user and system time of the processes that a process has started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def status(pid: int) -> dict[str, int]:
    """Return `rss_bytes`, the most that it was, and `threads` of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    kib = {name: int(fields[name].split()[0]) for name in ("VmRSS", "VmHWM")}
    return {
        "rss_bytes": kib["VmRSS"] * 1024,
        "most_rss_bytes": kib["VmHWM"] * 1024,
        "threads": int(fields["Threads"]),
    }


def describe(folder: Path) -> dict[str, str]:
    """Name what the figures depend on."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = [line.split(":")[1].strip() for line in cpu_lines if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    p50, p99 = fdatasync_us(folder)
    data = bytes(64 * MIB)
    return {
        "cpu": f"{os.cpu_count()} x {cpu[0] if cpu else platform.machine()}",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"Linux {platform.release()}, {file_system(folder)}",
        "fdatasync of 4 KiB": f"p50 {p50:.0f} us, p99 {p99:.0f} us",
        "crc32c": f"{len(data) / 1e9 / took_s(lambda: crc32c(data)):.1f} GB/s",
        "write into the page cache": f"{write_cpu_s(folder, data) / len(data) * 1e9:.2f} CPU s a GB",
        "page cache": "dropped before runs that write or read cold"
        if may_drop_caches()
        else "never dropped: not allowed",
    }


def file_system(folder: Path) -> str:
    """Return the kind of the file system that holds a folder; fsync on a tmpfs would measure nothing."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    here = str(folder.resolve())
    under = [
        (point, kind) for point, kind in mounts if here.startswith(point.rstrip("/") + "/") or point == "/"
    ]
    return max(under, key=lambda mount: len(mount[0]))[1] if under else "unknown"


def fdatasync_us(folder: Path, times: int = 300) -> tuple[float, float]:
    """Return p50 and p99 of appending 4 KiB and syncing it."""
    path = folder / "fdatasync"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - started) * 1e6)
    path.unlink()
    return statistics.median(took), sorted(took)[times * 99 // 100]


def took_s(action: Callable[[], object]) -> float:
    """Return the shortest of some times."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def write_cpu_s(folder: Path, data: bytes) -> float:
    """Return the CPU time of writing to a new file."""
    path = folder / "write"
    with path.open("wb", buffering=0) as file:
        before = time.process_time()
        file.write(data)
        spent = time.process_time() - before
    path.unlink()
    return spent


def may_drop_caches() -> bool:
    """Return whether this process may ask the kernel to forget the page cache."""
    return os.access(DROP_CACHES, os.W_OK)


def settle() -> None:
    """Write out what is dirty and drop the page cache, so that no run pays for the one before it."""
    os.sync()
    if may_drop_caches():
        with suppress(OSError):
            DROP_CACHES.write_text("1\n")


def take_memory(left_bytes: int) -> mmap.mmap:
    """Take all available memory but `left_bytes`, until the result is closed; the page cache must reuse its pages.

    A virtual machine may return free pages to its host. That stops it for up to a tenth of a second at a time, and a
    page that it gets back costs ten times the copy of its bytes.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    return mmap.mmap(-1, max(available - left_bytes, mmap.PAGESIZE), flags=flags)


def touch_page_cache(folder: Path, most_bytes: int) -> None:
    """Make the kernel touch memory that a fresh virtual machine never had: who comes first would pay for it."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(folder)
    size = min(most_bytes, int(free * 0.8), disk.f_bavail * disk.f_frsize // 2)
    path, chunk = folder / "touch", bytes(4 * MIB)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(chunk)):
                file.write(chunk)
    finally:
        path.unlink(missing_ok=True)
