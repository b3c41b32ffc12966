"""What is freed: how much of it the allocator keeps, and when it gives that back to the system.

Knows the C library's allocator (malloc.h, malloc_trim(3), mallinfo2(3)) and nothing of what the memory was for. Without
glibc, or with one that cannot be asked (before 2.33), nothing is won or lost.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidelog.storage import files

# Up to twice that much freed memory stays with a thread. glibc takes no more than 32 MiB.
KEPT_BYTES = 16 * 1024 * 1024
# What is freed is given back once there is so much more of it than before.
MUCH_BYTES = 32 * 1024 * 1024
# glibc's names for these numbers.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_libc = ctypes.CDLL(None)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _Mallinfo(ctypes.Structure):
    """What mallinfo2(3) returns; `fordblks` is free."""

    _fields_ = [("others", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


class Memory(NamedTuple):
    """What the process has of the system's memory for itself, and what of the allocator's is free."""

    resident_bytes: int
    free_bytes: int


def keep_some() -> None:
    """Have the allocator keep memory that is freed, up to twice KEPT_BYTES a thread, for the next answers.

    Answers of a megabyte that wait for their clients come and go together. glibc gives their memory back to the system
    each time, and asks for it again: page by page, each filled with zeros, which takes longer than reading and sending.
    By itself it learns from what is freed, and lets each thread keep up to 64 MiB once a batch of 30 was freed.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


def meter() -> Callable[[], Memory | None]:
    """Return what asks the system and the allocator, some 0.2 ms; it returns None where they cannot be asked.

    It takes no descriptor: what a crowd of clients left is looked at while there may be none.
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
    """Have the allocator give all that is freed back to the system, some milliseconds for 100 MB.

    It does so by itself with what lies at the end of its heap, and one small object there keeps all before it.
    """
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class FreedMemory:
    """Sees when much was freed, and has it given back.

    What was given back counts as free all the same. So it is seen in two ways: more is free than was, or what was given
    back has been taken again, and is free again.
    """

    def __init__(self, measure: Callable[[], Memory | None]) -> None:
        """Begin with what there is; `measure` is a `meter`."""
        self._measure = measure
        self._least = measure()

    def look(self) -> None:
        """Give back what is free if it has become much."""
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
