"""The checksum of each block of a log, and which blocks have been verified.

Owns the size of a block, its CRC-32C as a log grows, and the check whether a file still has the bytes that were
written. The checksums cover every byte, also those that no batch's checksum covers: offsets, lengths and leader
epochs. Knows nothing of batches, or of what happens to a bad block.
"""

import sys
from array import array
from struct import Struct
from typing import Final

from tidelog.protocol.records.batch import Buffer
from tidelog.protocol.records.checksum import crc32c
from tidelog.storage.errors import NotInMemory
from tidelog.storage.files import File
from tidelog.storage.sources import PATIENT, Source

BLOCK_BYTES: Final = 1 << 16
# How many blocks in memory the event loop verifies at once: some ten microseconds each.
INLINE_BLOCKS: Final = 4
_READ_BLOCKS: Final = 16
_HOLD_LOCK: Final = 0  # the third argument of crc32c: releasing the GIL would cost more than it gains
DIGEST_BYTES: Final = 4
_digest_at: Final = Struct(">I").unpack_from


def count_of(size: int) -> int:
    """Return how many blocks a log of this size has; the last may be partial."""
    return -(-size // BLOCK_BYTES)


def are_right(digests: bytes, position: int, data: Buffer) -> bool:
    """Tell whether bytes match the digests. They begin with a block, and end with a block or the log."""
    first = position // BLOCK_BYTES
    parts = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    return all(
        crc32c(part) == int(_digest_at(digests, DIGEST_BYTES * number)[0])
        for number, part in enumerate(parts, first)
    )


class Digests:
    """The digests of a growing log: those of whole blocks, and `running`, that of the last one.

    For speed, an append whose data end before `block_end` sets `running` to `crc32c(data, running)`; others call `add`.
    """

    __slots__ = ("_whole", "block_end", "running")

    def __init__(self, encoded: bytes = b"") -> None:
        """Continue from what `encode` returned."""
        self._whole = array("I", encoded)
        if sys.byteorder == "little":
            self._whole.byteswap()
        self.block_end = max(1, len(self._whole)) * BLOCK_BYTES
        self.running = self._whole.pop() if self._whole else 0

    def encode(self, size: int) -> bytes:
        """Return the digests of a log of this size, a uint32 each, big-endian."""
        digests = array("I", self._whole)
        if size:
            digests.append(self.running)
        if sys.byteorder == "little":
            digests.byteswap()
        return digests.tobytes()

    def add(self, data: Buffer, position: int) -> None:
        """Add what was written at a position, the end of what was added before."""
        rest = memoryview(data)
        while rest:
            if position == self.block_end:
                self._whole.append(self.running)
                self.running = 0
                self.block_end += BLOCK_BYTES
            part = rest[: self.block_end - position]
            self.running = crc32c(part, self.running, _HOLD_LOCK)
            position += len(part)
            rest = rest[len(part) :]

    def add_from(self, file: File, position: int, end: int) -> None:
        """Add the bytes of a file from a position on."""
        while position < end:
            data = file.pread(min(_READ_BLOCKS * BLOCK_BYTES, end - position), position)
            if not data:
                return  # The file is too short; the next read of it will find that.
            self.add(data, position)
            position += len(data)

    def cut(self, file: File, size: int) -> None:
        """Go back to a smaller size."""
        begun = max(0, size - 1) // BLOCK_BYTES
        del self._whole[begun:]
        self.running = 0
        self.block_end = (begun + 1) * BLOCK_BYTES
        self.add_from(file, begun * BLOCK_BYTES, size)


class Unverified:
    """The blocks that a log had when it was loaded, and which of them have been verified since.

    For any thread: two threads that verify a block at once find the same.
    """

    __slots__ = ("_digests", "_seen", "end", "next_offset")

    def __init__(self, digests: bytes, end: int, next_offset: int) -> None:
        """Expect blocks up to position `end`, the last one partial; `next_offset` is the offset of that position."""
        self._digests = digests
        self._seen = bytearray(count_of(end))
        self.end = end
        self.next_offset = next_offset

    @property
    def has_digests(self) -> bool:
        """Whether there is anything to verify the blocks against."""
        return bool(self._digests)

    @property
    def is_done(self) -> bool:
        """Whether every block has been verified."""
        return self._seen.find(0) < 0

    def verify(self, file: File, start: int, end: int, source: Source) -> bool:
        """Tell whether the blocks of a range match their digests; each is verified once. Without digests, return False.

        Raise NotInMemory if that would wait for the disk or take long, and the source does not wait.
        """
        if not self._digests:
            return False
        seen, limit = self._seen, count_of(min(end, self.end))
        number = seen.find(0, start // BLOCK_BYTES, limit)
        if number < 0:
            return True
        if not source.waiting and seen.count(0, number, limit) > INLINE_BLOCKS:
            raise NotInMemory(f"{file.path}@{start}-{end}")
        while number >= 0:
            if not self._is_right(file, number, source):
                return False
            seen[number] = 1
            number = seen.find(0, number + 1, limit)
        return True

    def mismatches(self, file: File) -> set[int]:
        """Return the numbers of all blocks that do not match their digests; none without digests."""
        if not self._digests:
            return set()
        return {number for number in range(len(self._seen)) if not self._is_right(file, number, PATIENT)}

    def _is_right(self, file: File, number: int, source: Source) -> bool:
        position = number * BLOCK_BYTES
        count = min(BLOCK_BYTES, self.end - position)
        # Not `source.read`: it would overwrite the event loop's scratch buffer, which may be in use.
        data = file.pread(count, position) if source.waiting else file.read_nowait(count, position)
        if data is None:
            raise NotInMemory(f"{file.path}@{position}")
        return crc32c(data) == int(_digest_at(self._digests, DIGEST_BYTES * number)[0])
