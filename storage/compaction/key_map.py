"""The map of a pass: for each key of the head the offset of its latest record, in memory of a fixed size.

Owns that memory, the secret that keys are hashed with, and how far the map reaches. Each map has a secret of its own:
two keys that would be taken for one in this pass are told apart in the next, and nobody can make such keys (S92, S93).
What is done with keys and records is `protocol/records/keys`'. A pass has one, in one thread.
"""

import mmap
import secrets
from typing import Final

from tidelog.protocol.records import kept, keys
from tidelog.protocol.records.batch import Buffer
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.kept import Written
from tidelog.protocol.records.keys import Chosen

ENTRY_BYTES: Final = keys.ENTRY_BYTES


class KeyMap:
    """A map of `buffer_bytes`, of whose entries a share may be taken; it knows of all records before `end`."""

    __slots__ = ("_keep", "_most", "_out", "_room", "_secret", "_size_bytes", "_table", "end")

    def __init__(self, buffer_bytes: int, load_factor: float, end: int) -> None:
        """Know of no key, as there is none before `end`. Memory that is never written to is never taken."""
        entries = max(buffer_bytes // ENTRY_BYTES, 2)
        self._size_bytes = entries * ENTRY_BYTES
        self._most = max(1, min(int(entries * load_factor), entries - 1))
        self._keep = bytearray()
        self._out = bytearray()
        self._begin(end)

    def _begin(self, end: int) -> None:
        self._table = mmap.mmap(-1, self._size_bytes)
        self._room = self._most
        self._secret = secrets.token_bytes(keys.SECRET_BYTES)
        self.end = end

    def restart(self, end: int) -> None:
        """Know of no key again."""
        self._table.close()
        self._begin(end)

    def note(self, data: Buffer, columns: Columns, base_offset: int, first_offset: int = 0) -> bool:
        """Take note of the records of a batch that begins with an offset; tell whether there was room for all.

        Those before `first_offset` take no room: else a batch with more keys than there is room for would be mapped no
        further by another pass than by the first.
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
        """Take note of one record; tell whether there was room."""
        noted = keys.put(self._table, self._secret, key, offset, self._room)
        self._room -= noted.entries
        if not noted.records:
            self.end = min(self.end, offset)
        return bool(noted.records)

    def has_later(self, key: bytes, offset: int) -> bool:
        """Tell whether a key has a later record, as far as the map reaches."""
        return offset < self.end and keys.latest(self._table, self._secret, key) > offset

    def choose(self, data: Buffer, columns: Columns, base_offset: int, drops_tombstones: bool) -> Chosen:
        """Find out which records of a batch stay, for `write`."""
        if len(self._keep) < columns.count:
            self._keep = bytearray(columns.count)
        return keys.choose(
            self._table, self._secret, data, columns, base_offset, self.end, drops_tombstones, self._keep
        )

    def write(
        self, data: Buffer, columns: Columns, count: int, timestamp_shift: int
    ) -> tuple[memoryview, Written]:
        """Return the records that were chosen, `count` of them, with timestamp deltas that are larger by a shift.

        They are good until the next call.
        """
        room = len(data) + count * kept.GROWTH_BYTES
        if len(self._out) < room:
            self._out = bytearray(room)
        written = kept.write(data, columns, self._keep, self._out, timestamp_shift)
        return memoryview(self._out)[: written.size_bytes], written

    def first_kept(self, columns: Columns) -> int:
        """Return the offset delta of the first record that was chosen; there is one."""
        delta: int = columns.offset_delta[self._keep.index(1)]
        return delta

    def close(self) -> None:
        """Give the memory back."""
        self._table.close()
