"""Which segments hold files open that they can open again, so that those of all logs together stay within a bound.

Owns the order in which they opened them. At the bound the one that opened its files longest ago lets go of them: it
opens them again when it is read, and readers keep what they hold. Knows nothing of what is in a segment, and keeps none
alive: one that is deleted takes its files with it.
"""

import resource
import threading
from collections import OrderedDict
from typing import Protocol
from weakref import ref

# Of all descriptors a quarter, and so many at most: opening a file again costs some 20 us.
DESCRIPTORS_MAX = 4096
_SHARE = 4
# A log and three indexes, each of which is a map that has a descriptor of its own.
SEALED_DESCRIPTORS = 4


class Openable(Protocol):
    """What opens files on first use, and can let go of them."""

    def let_go(self) -> None:
        """Let go of the files that are open; called with the lock of `OpenSegments` held."""


class OpenSegments:
    """For any thread. `lock` is held while a segment takes or lets go of files, not while they are opened."""

    def __init__(self, descriptors: int) -> None:
        """Hold nothing; each may have so many descriptors."""
        self._descriptors = descriptors
        self.lock = threading.Lock()
        # Changed by whole operations only: a segment may go, and its entry with it, at any time and on any thread.
        self._opened: OrderedDict[ref[Openable], None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many have opened their files."""
        return len(self._opened)

    def note(self, segment: Openable) -> None:
        """Take note that one has opened a file. Call with `lock` held."""
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
        """Drop a segment that is gone. The thread that let it go may hold the lock."""
        self._opened.pop(entry, None)


def _descriptors_max() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX * _SHARE if most == resource.RLIM_INFINITY else most
