"""The time index of a segment: the largest timestamp so far -> the offset up to which it was the largest.

An entry is `int64 timestamp, int32 offset - base`, big-endian; the offset is the last one of the batch that first had
the timestamp. Timestamps strictly increase. An entry is added together with one of the offset index, and a final one
when the segment is sealed or closed: the last entry has the largest timestamp of the segment.

For an entry (T, o), every record of the segment with a timestamp above T has an offset above o.
"""

from struct import Struct
from typing import Final

from tidelog.storage import files
from tidelog.storage.index_file import IndexFile

BEYOND: Final = 1 << 31

ENTRY: Final = Struct(">qi")


def last_entry(data: bytes | files.Map) -> tuple[int, int]:
    """Return the last entry in the bytes of an index as (timestamp, relative offset); both are -1 if there is none."""
    if len(data) < ENTRY.size:
        return -1, -1
    timestamp, relative_offset = ENTRY.unpack_from(data, len(data) - ENTRY.size)
    return timestamp, relative_offset


class TimeIndex(IndexFile):
    """Entries by timestamp."""

    __slots__ = ()
    entry_bytes = ENTRY.size
    key_bytes = 8

    def entry(self, number: int) -> tuple[int, int]:
        """Return entry `number` as (timestamp, relative offset)."""
        timestamp, relative_offset = ENTRY.unpack_from(self.data, number * ENTRY.size)
        return timestamp, relative_offset

    def append_if_larger(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp is larger than that of the last one; -1 is no timestamp."""
        if entry := self.next_entry(timestamp, relative_offset):
            self._append(entry)

    def next_entry(self, timestamp: int, relative_offset: int) -> bytes:
        """Return the entry that `append_if_larger` would add, empty if none."""
        last = self.entry(len(self) - 1)[0] if self.data else -1
        return ENTRY.pack(timestamp, relative_offset) if timestamp > last else b""

    def offset_from(self, timestamp: int) -> int:
        """Return the relative offset of the first entry at or above a timestamp; without one, more than any offset.

        Each entry of the offset index comes with one here, unless the largest timestamp has not changed. So up to the
        last offset entry below the returned offset every record is older than `timestamp`.
        """
        _, _, relative_offset = self.find(timestamp)
        return relative_offset if relative_offset >= 0 else BEYOND

    def drop_final(self, relative_offset: int) -> None:
        """Drop the entry that closing added; only its offset can be beyond `relative_offset`, the last indexed one."""
        count = len(self)
        if count and self.entry(count - 1)[1] > relative_offset:
            self.keep(count - 1)
