"""The offset index of a segment: the last offset of a batch -> the position of that batch.

An entry is `int32 offset - base, int32 position`, big-endian, sorted by both. Sparse: an entry for a batch that starts
more than `index.interval.bytes` after the last indexed one. Density changes the time that a lookup takes, never its
answer.
"""

from struct import Struct

from tidelog.storage.index_file import IndexFile

_ENTRY = Struct(">ii")
_unpack = _ENTRY.unpack_from
ENTRY_BYTES = _ENTRY.size


class OffsetIndex(IndexFile):
    """Entries by offset."""

    __slots__ = ()
    entry_bytes = ENTRY_BYTES
    key_bytes = 4

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry behind the last one."""
        self._append(_ENTRY.pack(relative_offset, position))

    def entry(self, number: int) -> tuple[int, int]:
        """Return entry `number` as (relative offset, position)."""
        relative_offset, position = _ENTRY.unpack_from(self.data, number * _ENTRY.size)
        return relative_offset, position

    def around(self, relative_offset: int) -> tuple[int, int]:
        """Return where to start looking for an offset, and a position behind it where more batches are known.

        The first is the batch of the greatest entry at or before the offset, or 0; the second that of the entry after
        it, or -1.
        """
        data = self.data
        entries = len(data) // ENTRY_BYTES
        if entries and (last := _unpack(data, (entries - 1) * ENTRY_BYTES))[0] <= relative_offset:
            return last[1], -1  # Most readers are near the end.
        number = self.find(relative_offset + 1)
        before = _unpack(data, (number - 1) * ENTRY_BYTES)[1] if number else 0
        return before, _unpack(data, number * ENTRY_BYTES)[1] if number < entries else -1

    def batch_ending(self, relative_offset: int) -> tuple[int, int, int] | None:
        """Return what is known of the batch that ends with an offset, or None if it or the one before has no entry.

        Its position, that of the next entry's batch or -1, and the offset behind the last entry before it.
        """
        data, number = self.data, self.find(relative_offset)
        if not 0 < number < len(data) // ENTRY_BYTES:
            return None
        last_offset, position = _unpack(data, number * ENTRY_BYTES)
        if last_offset != relative_offset:
            return None
        behind = _unpack(data, at)[1] if (at := (number + 1) * ENTRY_BYTES) < len(data) else -1
        return position, behind, _unpack(data, (number - 1) * ENTRY_BYTES)[0] + 1
