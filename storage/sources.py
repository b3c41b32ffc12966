"""Where a reader of a log takes its bytes from, and what that may cost: chosen once, by the thread that asks.

Owns the three ways there are. There is no fourth, and none by default: whoever reads says which. A `Source` is handed
down to where bytes are read, so that no step of a search can forget that it runs on the event loop.
"""

import threading
from typing import Final, NamedTuple, Protocol

from tidelog.storage.errors import NotInMemory
from tidelog.storage.files import File

SCRATCH_BYTES: Final = 2 << 20


class _Read(Protocol):
    def __call__(self, file: File, count: int, position: int, /) -> memoryview: ...


class Source(NamedTuple):
    """A way to read: the bytes of a file, up to `count` from a position; fewer only at the end of the file.

    What is not `waiting` raises NotInMemory where it would wait for the disk; what is `prompt` raises TakesLong where
    the work is more than some milliseconds.
    """

    read: _Read
    waiting: bool
    prompt: bool


class _Scratch(threading.local):
    """Where a thread reads what it only looks at: fresh memory for each look would cost more than the read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


_scratch = _Scratch()


def _read_warm(file: File, count: int, position: int) -> memoryview:
    view = _scratch.view[:count] if count <= SCRATCH_BYTES else memoryview(bytearray(count))
    if not file.fill_nowait(view, position):
        raise NotInMemory(f"{file.path}@{position}")
    return view


def _read_waiting(file: File, count: int, position: int) -> memoryview:
    return memoryview(file.pread(count, position))


# The event loop's: what is in memory, and little of it. What is read is good until the thread reads so again.
WARM: Final = Source(_read_warm, waiting=False, prompt=True)
# A reader thread's: from the disk too, but not long.
WAITING: Final = Source(_read_waiting, waiting=True, prompt=True)
# Whoever has the time for it: from the disk, and as long as it takes.
PATIENT: Final = Source(_read_waiting, waiting=True, prompt=False)
