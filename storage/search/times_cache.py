"""A cache of the times of batches: a search in a cached batch needs neither its bytes nor a walk over its records.

Owns the packed form of the times, and the memory that they take. Knows nothing of files and segments.
"""

import mmap
import threading
from collections import deque
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from tidelog.protocol.records import kernel, search
from tidelog.protocol.records.batch import BatchHeader, Buffer

# Base offset, base timestamp, leader epoch, size of a time, size of an entry, size of the batch; then the entries that
# kernel.times makes.
_HEAD: Final = Struct(">qqiBBi")
_HEAD_BYTES: Final = _HEAD.size
_unpack_head: Final = _HEAD.unpack_from
_unpack_place: Final = Struct(">q14xi").unpack_from
_INT64_MIN: Final = -(1 << 63)
_POSITION_BITS: Final = 40

# Multiplicative hashing (Knuth, The Art of Computer Programming, 6.4: the golden ratio times 2 ** 64).
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1

_new: Final = tuple.__new__


class Found(NamedTuple):
    """A record: its timestamp, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def key_of(identity: int, position: int) -> int:
    """Return the key of the batch at a position of a segment: an integer takes half the memory of a pair."""
    return identity << _POSITION_BITS | position


def pack(header: BatchHeader, records: Buffer, start: int) -> bytes:
    """Pack what a search needs of a batch whose uncompressed records begin at `start`. Raise RecordError."""
    count, time = header.record_count, header.base_timestamp
    if header.is_log_append_time:
        # All records have the time of the batch, so a search finds only the first.
        time, time_bytes, offset_bytes = header.max_timestamp, 1, 4
        first = kernel.find_record(
            records, 0, len(records), count, _INT64_MIN, _INT64_MIN, kernel.Cut(0, start, 0)
        )
        entries = b"" if first is None else b"\0" + first[1].to_bytes(offset_bytes, "big")
    else:
        # A guess, as the header may be wrong: the kernel uses wider fields if it must.
        time_bytes, offset_bytes = _widths(header)
        entries, time_bytes, offset_bytes = kernel.times(
            records, start, len(records), count, time_bytes, offset_bytes
        )
    head = _HEAD.pack(
        header.base_offset,
        time,
        header.leader_epoch,
        time_bytes,
        time_bytes + offset_bytes,
        header.size_bytes,
    )
    return head + entries


def _widths(header: BatchHeader) -> tuple[int, int]:
    """Return how many bytes the time and the offset of a record take, by the header."""
    time_bytes = min(8, (header.max_timestamp - header.base_timestamp).bit_length() // 8 + 1)
    return time_bytes, 0 if header.last_offset_delta == header.record_count - 1 else 4


def packed_bytes(header: BatchHeader) -> int:
    """Return about how many bytes the packed times of a batch take."""
    return _HEAD_BYTES + (0 if header.is_log_append_time else header.record_count * sum(_widths(header)))


def find(packed: bytes, timestamp: int) -> Found | None:
    """Return the first record of a batch at or after a time, or None."""
    base_offset, base_timestamp, leader_epoch, time_bytes, entry_bytes, _ = _unpack_head(packed)
    # Entries have the largest timestamp so far. The first that reaches the wanted one is its record's own.
    row, delta, offset = search.find_entry(
        packed, entry_bytes, time_bytes, timestamp - base_timestamp, _HEAD_BYTES
    )
    found = base_timestamp + delta
    # Too early if there is none, or if the delta from the base overflows an int64.
    if offset < 0 or found < timestamp:
        return None
    if entry_bytes > time_bytes:
        row = offset
    return _new(Found, (found, base_offset + row, leader_epoch))


def place_of(packed: bytes) -> tuple[int, int]:
    """Return the base offset of a batch, and its size in bytes."""
    place: tuple[int, int] = _unpack_place(packed)
    return place


class TimesCache:
    """Packed times by key; at a bound in bytes, the oldest entry goes. For any thread."""

    BYTES_MAX: ClassVar[int] = 32 << 20
    # What an entry takes besides its packed times: the object's header, its key, its slots in the dict (105 bytes after
    # the dict has grown) and the deque.
    ENTRY_BYTES: ClassVar[int] = 33 + 32 + 105 + 8
    # A byte for each large batch that was searched once. Batches that share a slot forget each other: no harm.
    SEEN_BITS: ClassVar[int] = 18

    def __init__(self) -> None:
        self._packed: dict[int, bytes] = {}
        self._keys: deque[int] = deque()
        # The system gives its memory page by page, when it is written to.
        self._seen = mmap.mmap(-1, 1 << self.SEEN_BITS, mmap.MAP_PRIVATE)
        self._bytes = 0
        self._lock = threading.Lock()
        self.get = self._packed.get

    def is_first_search(self, key: int) -> bool:
        """Tell whether a batch has not been searched lately, and mark it as searched."""
        mixed = key * _MULTIPLIER & _MASK
        slot, mark = mixed >> (64 - self.SEEN_BITS), mixed >> 32 & 0xFF or 1
        is_first = self._seen[slot] != mark
        self._seen[slot] = mark
        return is_first

    def keep(self, key: int, packed: bytes) -> None:
        """Keep the times of a batch; drop the oldest entries beyond the bound."""
        with self._lock:
            if key in self._packed:
                return
            self._packed[key] = packed
            self._keys.append(key)
            self._bytes += len(packed) + self.ENTRY_BYTES
            while self._bytes > self.BYTES_MAX:
                oldest = self._packed.pop(self._keys.popleft())
                self._bytes -= len(oldest) + self.ENTRY_BYTES

    def keep_appended(
        self,
        identity: int,
        position: int,
        header: BatchHeader,
        times: bytes,
        base_offset: int,
        leader_epoch: int,
    ) -> None:
        """Keep the times in `ValidBatch.times` of a batch that was just appended at a position of a segment."""
        time_bytes = len(times) // header.record_count
        head = _HEAD.pack(
            base_offset, header.base_timestamp, leader_epoch, time_bytes, time_bytes, header.size_bytes
        )
        self.keep(key_of(identity, position), head + times)
