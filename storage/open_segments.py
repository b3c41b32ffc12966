"""Bounds how many files the segments of all logs keep open.

Owns the order in which segments opened their files. At the bound, the one that opened its files longest ago closes
them, and opens them again when it is read; readers keep the files that they hold. Knows nothing of what is in a
segment. Keeps no segment alive: a deleted one closes its files.
"""

import resource
import threading
from collections import OrderedDict
from typing import Protocol
from weakref import ref

# A quarter of the process's descriptors, and at most this many: opening a file again costs some 20 us.
DESCRIPTORS_MAX = 4096
_SHARE = 4
# A log and three indexes, each a map with its own descriptor.
SEALED_DESCRIPTORS = 4


class Openable(Protocol):
    """What opens files on first use, and can close them again."""

    def let_go(self) -> None:
        """Close the open files; called with the lock of `OpenSegments` held."""


class OpenSegments:
    """For any thread. `lock` is held while a segment stores or drops its open files, not while it opens them."""

    def __init__(self, descriptors: int) -> None:
        """Begin empty; each segment has at most `descriptors` open."""
        self._descriptors = descriptors
        self.lock = threading.Lock()
        # Changed by atomic operations only: `_forget` may run at any time, on any thread.
        self._opened: OrderedDict[ref[Openable], None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many segments have open files."""
        return len(self._opened)

    def note(self, segment: Openable) -> None:
        """Note that a segment has opened a file. Call with `lock` held."""
        opened = self._opened
        entry = ref(segment, self._forget)
        opened[entry] = None
        opened.move_to_end(entry)
        most = max(1, min(DESCRIPTORS_MAX, _descriptors_max() // _SHARE) // self._descriptors)
        while len(opened) > most:
            oldest, _ = opened.popitem(last=False)
            if (released := oldest()) is not None:
                released.let_go()

    def _forget(self, entry: ref[Openable]) -> None:
        """Drop a segment that was freed, by a thread that may hold the lock."""
        self._opened.pop(entry, None)


def _descriptors_max() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX * _SHARE if most == resource.RLIM_INFINITY else most
