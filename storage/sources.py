"""Where a reader of a log takes its bytes from, and what that may cost.

There are three sources and no default: each caller names one. It is passed down to where bytes are read, so that no
step of a search forgets that it runs on the event loop.
"""

import threading
from mmap import mmap
from typing import Final, NamedTuple, Protocol

from tidelog.storage.errors import NotInMemory
from tidelog.storage.files import File

SCRATCH_BYTES: Final = 2 << 20


class _Read(Protocol):
    def __call__(self, file: File, count: int, position: int, /) -> memoryview: ...


class Source(NamedTuple):
    """A way to read `count` bytes of a file from a position, fewer only at the end of the file.

    Unless `waiting`, a read that would wait for the disk raises NotInMemory. If `prompt`, work of more than some
    milliseconds raises TakesLong.
    """

    read: _Read
    waiting: bool
    prompt: bool


class _Scratch(threading.local):
    """A read buffer of each thread: fresh memory would cost more than the read. What is never used takes no memory."""

    def __init__(self) -> None:
        self.view = memoryview(mmap(-1, SCRATCH_BYTES))


_scratch: Final = _Scratch()


def _read_warm(file: File, count: int, position: int) -> memoryview:
    view = _scratch.view[:count] if count <= SCRATCH_BYTES else memoryview(bytearray(count))
    if not file.fill_nowait(view, position):
        raise NotInMemory(f"{file.path}@{position}")
    return view


def _read_waiting(file: File, count: int, position: int) -> memoryview:
    return memoryview(file.pread(count, position))


# For the event loop: memory only, and short work. The bytes are valid until the thread's next WARM read.
WARM: Final = Source(_read_warm, waiting=False, prompt=True)
# For short work on a reader thread: memory and disk.
WAITING: Final = Source(_read_waiting, waiting=True, prompt=True)
# For long work on a thread that has the time.
PATIENT: Final = Source(_read_waiting, waiting=True, prompt=False)
