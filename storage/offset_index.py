"""The offset index of a segment: the last offset of a batch -> the position of that batch.

An entry is `int32 offset - base, int32 position`, big-endian, sorted by both. Sparse: an entry for a batch that starts
more than `index.interval.bytes` after the last indexed one. Density changes the time that a lookup takes, never its
answer.
"""

from bisect import bisect_right
from functools import partial
from struct import Struct

from tidelog.storage.index_file import IndexFile

INT32_MAX = (1 << 31) - 1
_ENTRY = Struct(">ii")


class OffsetIndex(IndexFile):
    """Entries by offset."""

    __slots__ = ()
    entry_bytes = _ENTRY.size

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry behind the last one."""
        self._append(_ENTRY.pack(relative_offset, position))

    def entry(self, number: int) -> tuple[int, int]:
        """Return entry `number` as (relative offset, position)."""
        relative_offset, position = _ENTRY.unpack_from(self.data, number * _ENTRY.size)
        return relative_offset, position

    def position_before(self, relative_offset: int) -> int:
        """Return where to start looking for an offset: the batch of the greatest entry at or before it, or 0."""
        data = self.data
        starts = range(0, len(data), _ENTRY.size)
        if starts and (last := _ENTRY.unpack_from(data, starts[-1]))[0] <= relative_offset:
            return int(last[1])  # Most readers are near the end.
        # An entry compares as a pair, so that no step of the search leaves C.
        after = bisect_right(starts, (relative_offset, INT32_MAX), key=partial(_ENTRY.unpack_from, data))
        return self.entry(after - 1)[1] if after else 0
