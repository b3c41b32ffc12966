"""The map of a pass: for each key of the new records the offset of its latest record, in memory of a fixed size.

Owns that memory, the secret of the key hash, and how far the map reaches. Each map has another secret, so nobody can
construct keys that collide, and keys that collide by chance do not in the next pass (S92, S93). The work is done by
`protocol/records/keys`. For one thread.
"""

import mmap
import os
from typing import Final

from tidelog.protocol.records import kept, keys
from tidelog.protocol.records.batch import Buffer
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.kept import Written
from tidelog.protocol.records.keys import Chosen

ENTRY_BYTES: Final = keys.ENTRY_BYTES


class KeyMap:
    """A map of `buffer_bytes`, filled up to a load factor; it has all keys of the mapped records before `end`."""

    __slots__ = ("_keep", "_most", "_out", "_room", "_secret", "_size_bytes", "_table", "end")

    def __init__(self, buffer_bytes: int, load_factor: float, end: int) -> None:
        """Begin empty. The system allocates the memory page by page, when it is written to."""
        entries = max(buffer_bytes // ENTRY_BYTES, 2)
        self._size_bytes = entries * ENTRY_BYTES
        self._most = max(1, min(int(entries * load_factor), entries - 1))
        self._keep = bytearray()
        self._out = bytearray()
        self._begin(end)

    def _begin(self, end: int) -> None:
        self._table = mmap.mmap(-1, self._size_bytes)
        self._room = self._most
        self._secret = os.urandom(keys.SECRET_BYTES)
        self.end = end

    def restart(self, end: int) -> None:
        """Drop all keys, and begin again."""
        self._table.close()
        self._begin(end)

    def note(self, data: Buffer, columns: Columns, base_offset: int, first_offset: int = 0) -> bool:
        """Add the records of a batch; return False, and move `end` back, if there was no room for all.

        Records before `first_offset` are skipped: otherwise a batch with more keys than the map has room for would stop
        every pass at the same record.
        """
        noted = keys.note(
            self._table, self._secret, data, columns, base_offset, self._room, first_offset=first_offset
        )
        self._room -= noted.entries
        is_all = noted.records == columns.count
        if not is_all:
            self.end = base_offset + columns.offset_delta[noted.records]
        return is_all

    def put(self, key: bytes, offset: int) -> bool:
        """Add one record; return False, and move `end` back, if there was no room."""
        noted = keys.put(self._table, self._secret, key, offset, self._room)
        self._room -= noted.entries
        if not noted.records:
            self.end = min(self.end, offset)
        return bool(noted.records)

    def has_later(self, key: bytes, offset: int) -> bool:
        """Tell whether the map has a later record of a key."""
        return offset < self.end and keys.latest(self._table, self._secret, key) > offset

    def choose(self, data: Buffer, columns: Columns, base_offset: int, drops_tombstones: bool) -> Chosen:
        """Choose the records of a batch that stay, for `write`."""
        if len(self._keep) < columns.count:
            self._keep = bytearray(columns.count)
        return keys.choose(
            self._table, self._secret, data, columns, base_offset, self.end, drops_tombstones, self._keep
        )

    def write(
        self, data: Buffer, columns: Columns, count: int, timestamp_shift: int
    ) -> tuple[memoryview, Written]:
        """Return the `count` chosen records, with `timestamp_shift` added to their timestamp deltas.

        The bytes are valid until the next call.
        """
        room = len(data) + count * kept.GROWTH_BYTES
        if len(self._out) < room:
            self._out = bytearray(room)
        written = kept.write(data, columns, self._keep, self._out, timestamp_shift)
        return memoryview(self._out)[: written.size_bytes], written

    def first_kept(self, columns: Columns) -> int:
        """Return the offset delta of the first chosen record; there must be one."""
        delta: int = columns.offset_delta[self._keep.index(1)]
        return delta

    def close(self) -> None:
        """Free the memory."""
        self._table.close()
