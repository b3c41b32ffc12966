"""Freed memory: how much of it the C allocator keeps, and when it returns it to the system.

Uses malloc_trim(3) and mallinfo2(3), and knows nothing of what the memory was for. Without glibc 2.33 or later it does
nothing.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.storage import files

# Each thread keeps up to twice this much freed memory. glibc accepts at most 32 MiB here.
KEPT_BYTES: Final = 16 * 1024 * 1024
# Freed memory is returned once there is this much more of it than before.
MUCH_BYTES: Final = 32 * 1024 * 1024
# glibc's names for these numbers.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_libc: Final = ctypes.CDLL(None)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class _Mallinfo(ctypes.Structure):
    """The result of mallinfo2(3); `fordblks` is the free memory."""

    _fields_ = [("others", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


class Memory(NamedTuple):
    """The process's private resident memory, and the allocator's free memory."""

    resident_bytes: int
    free_bytes: int


def keep_some() -> None:
    """Let the allocator keep freed memory for the next answers, up to twice KEPT_BYTES a thread.

    Answers of a megabyte that wait for their clients come and go together. glibc returns their memory to the system
    each time, and asks for it again, page by page. The system fills each page with zeros, which takes longer than
    reading and sending. By default glibc adapts to what is freed, and lets each thread keep up to 64 MiB after a batch
    of 30 was freed.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


def meter() -> Callable[[], Memory | None]:
    """Return a function that asks the system and the allocator, in some 0.2 ms; it returns None if they cannot be
    asked.

    It opens no file: it must work after a crowd of clients has used all descriptors.
    """
    mallinfo = getattr(_libc, "mallinfo2", None)
    if mallinfo is None:
        return lambda: None
    mallinfo.restype = _Mallinfo
    try:
        statm = files.SystemTable(Path("/proc/self/statm"))
    except OSError:
        return lambda: None

    def measure() -> Memory:
        _, resident, shared, *_ = map(int, statm.read().split())
        return Memory((resident - shared) * _PAGE_BYTES, mallinfo().fordblks)

    return measure


def give_back() -> None:
    """Let the allocator return all freed memory to the system: some milliseconds for 100 MB.

    By itself it returns only what is free at the end of its heap, and one small object there keeps all before it.
    """
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class FreedMemory:
    """Detects that much memory was freed, and lets the allocator return it.

    Memory that was returned still counts as free. So there are two signs: more is free than before, or returned memory
    was taken again and is free again.
    """

    def __init__(self, measure: Callable[[], Memory | None]) -> None:
        """Begin with the present state; `measure` is a `meter`."""
        self._measure = measure
        self._least = measure()

    def look(self) -> None:
        """Return free memory to the system if it has become much."""
        least, now = self._least, self._measure()
        if least is None or now is None:
            return
        more_resident = now.resident_bytes - least.resident_bytes
        more_free = now.free_bytes - least.free_bytes
        if now.free_bytes >= MUCH_BYTES and max(more_resident, more_free) >= MUCH_BYTES:
            give_back()
            self._least = self._measure()
        else:
            self._least = Memory(*map(min, least, now))
