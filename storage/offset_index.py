"""The offset index of a segment: the last offset of a batch -> the position of that batch.

An entry is `int32 offset - base, int32 position`, big-endian; both rise. The index is sparse: a batch has an entry if
it starts more than `index.interval.bytes` after the last batch with one. The density changes the time of a lookup,
never its answer.
"""

from bisect import bisect_right
from struct import Struct
from typing import Final

from tidelog.storage.index_file import IndexFile

ENTRY: Final = Struct(">ii")
_unpack: Final = ENTRY.unpack_from
ENTRY_BYTES: Final = ENTRY.size


class OffsetIndex(IndexFile):
    """Entries by offset."""

    __slots__ = ()
    entry_bytes = ENTRY_BYTES
    key_bytes = 4

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry after the last one."""
        self._append(ENTRY.pack(relative_offset, position))

    def entry(self, number: int) -> tuple[int, int]:
        """Return entry `number` as (relative offset, position)."""
        relative_offset, position = ENTRY.unpack_from(self.data, number * ENTRY.size)
        return relative_offset, position

    def position_at(self, position: int) -> int:
        """Return the position of the last indexed batch that begins at or before a position, or 0."""
        number = bisect_right(range(len(self)), position, key=lambda number: self.entry(number)[1])
        return self.entry(number - 1)[1] if number else 0

    def around(self, relative_offset: int) -> tuple[int, int, int]:
        """Return where to look for an offset, by the last entry at or before it and the next entry.

        That is the position of the first entry's batch, or 0; the position of the next entry's batch, or -1; and the
        relative offset after the first entry's batch, or 0.
        """
        after, _, following = self.find(relative_offset + 1)
        if not after:
            return 0, following, 0
        last_offset, position = _unpack(self.data, (after - 1) * ENTRY_BYTES)
        return position, following, last_offset + 1
