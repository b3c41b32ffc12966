"""What one segment has open: its log file, its indexes, the digests of its blocks.

Knows nothing of how they are opened: the segment does that. Not to be compiled by mypyc: `open_segments` refers to
these objects weakly.
"""

from tidelog.storage.append_index import AppendIndex
from tidelog.storage.blocks import Digests
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.open_segments import OpenFile
from tidelog.storage.time_index import TimeIndex


class OpenFiles(OpenFile):
    """What a segment has open; None stands for what is closed."""

    __slots__ = ("append_index", "digests", "offset_index", "stays_open", "time_index")

    def __init__(self, *, stays_open: bool) -> None:
        """Begin with nothing open; while `stays_open` is true, `let_go` does nothing."""
        super().__init__()
        self.stays_open = stays_open
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.append_index: AppendIndex | None = None
        self.digests: Digests | None = None

    def let_go(self) -> None:
        """Close everything, unless it stays open."""
        if not self.stays_open:
            self.file = None
            self.forget_indexes()

    def forget_indexes(self) -> None:
        """Release the indexes and the digests; their next use loads them again."""
        self.offset_index = self.time_index = self.append_index = self.digests = None
