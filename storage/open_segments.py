"""Bounds how many files the segments of all logs keep open.

Owns the order in which segments opened their files. At the bound, the one that opened its files longest ago closes
them, and opens them again when it is read; readers keep the files that they hold. Knows nothing of what is in a
segment. Keeps nothing open: a deleted segment closes its files.

Not to be compiled by mypyc: `OpenSegments` refers to each `OpenFile` weakly. It does not refer to a segment or an
index, so those can be compiled.
"""

import resource
import threading
from collections import OrderedDict
from typing import Final
from weakref import ref

from tidelog.storage import files

# A quarter of the process's descriptors, and at most this many: opening a file again costs some 20 us.
DESCRIPTORS_MAX: Final = 4096
_SHARE: Final = 4
# A log and three indexes, each a map with its own descriptor.
SEALED_DESCRIPTORS: Final = 4


class OpenFile:
    """A file that its owner opens on first use, and again after `let_go`; None while it is closed."""

    __slots__ = ("__weakref__", "file")

    def __init__(self) -> None:
        """Begin with a closed file."""
        self.file: files.File | None = None

    def let_go(self) -> None:
        """Close the file; `OpenSegments` calls it with its lock held."""
        self.file = None


class OpenSegments:
    """For any thread. `lock` is held while a segment stores or drops its open files, not while it opens them."""

    def __init__(self, descriptors: int) -> None:
        """Begin empty; each segment has at most `descriptors` open."""
        self._descriptors = descriptors
        self.lock = threading.Lock()
        # Changed by atomic operations only: `_forget` may run at any time, on any thread.
        self._opened: OrderedDict[ref[OpenFile], None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many segments have open files."""
        return len(self._opened)

    def note(self, file: OpenFile) -> None:
        """Note that a segment has opened a file. Call with `lock` held."""
        opened = self._opened
        entry = ref(file, self._forget)
        opened[entry] = None
        opened.move_to_end(entry)
        most = max(1, min(DESCRIPTORS_MAX, _descriptors_max() // _SHARE) // self._descriptors)
        while len(opened) > most:
            oldest, _ = opened.popitem(last=False)
            if (released := oldest()) is not None:
                released.let_go()

    def _forget(self, entry: ref[OpenFile]) -> None:
        """Drop a segment that was freed, by a thread that may hold the lock."""
        self._opened.pop(entry, None)


def _descriptors_max() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX * _SHARE if most == resource.RLIM_INFINITY else most
