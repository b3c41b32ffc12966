"""The digest of a log's bytes, block by block, and which blocks have been verified against it.

Owns the size of a block, its CRC-32C as a log grows, and the verdict whether what is on the disk now is what was once
written. It covers every byte, those too that no batch's checksum does: offsets, lengths, leader epochs. Knows nothing
of batches, or of what is done about a block that is not what it was.
"""

import sys
from array import array
from struct import Struct
from typing import Final

from crc32c import crc32c

from tidelog.protocol.records.batch import Buffer
from tidelog.storage.errors import NotInMemory
from tidelog.storage.files import File
from tidelog.storage.sources import PATIENT, Source

BLOCK_BYTES: Final = 1 << 16
# What the event loop verifies by itself, where it is in memory: some ten microseconds a block.
INLINE_BLOCKS: Final = 4
_READ_BLOCKS: Final = 16
_HOLD_LOCK: Final = 0  # the third argument of crc32c: to give Python's lock away would cost more than it wins
DIGEST_BYTES: Final = 4
_digest_at = Struct(">I").unpack_from


def count_of(size: int) -> int:
    """Return how many blocks a log of a size in bytes has; the last may be partial."""
    return -(-size // BLOCK_BYTES)


def are_right(digests: bytes, position: int, data: Buffer) -> bool:
    """Tell whether bytes from the beginning of a block on, to the end of one or of the log, are what they were."""
    first = position // BLOCK_BYTES
    parts = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    return all(
        crc32c(part) == int(_digest_at(digests, DIGEST_BYTES * number)[0])
        for number, part in enumerate(parts, first)
    )


class Digests:
    """The digests of a log that grows: whole blocks, and the one that is begun.

    Whoever appends adds `crc32c(data, running)` by itself where the data fit before `block_end`, or calls `add`.
    """

    __slots__ = ("_whole", "block_end", "running")

    def __init__(self, encoded: bytes = b"") -> None:
        """Go on from what `encode` returned."""
        self._whole = array("I", encoded)
        if sys.byteorder == "little":
            self._whole.byteswap()
        self.block_end = max(1, len(self._whole)) * BLOCK_BYTES
        self.running = self._whole.pop() if self._whole else 0

    def encode(self, size: int) -> bytes:
        """Return the digests of a log of that size, a uint32 each, big-endian."""
        digests = array("I", self._whole)
        if size:
            digests.append(self.running)
        if sys.byteorder == "little":
            digests.byteswap()
        return digests.tobytes()

    def add(self, data: Buffer, position: int) -> None:
        """Go on with what was written at a position, the end of what was added before."""
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
        """Go on with what a file holds from a position on."""
        while position < end:
            data = file.pread(min(_READ_BLOCKS * BLOCK_BYTES, end - position), position)
            if not data:
                return  # The file was cut; the next read of it will find out.
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
    """The blocks of a log that were there when it was loaded, and which of them have been verified since.

    For any thread: two that verify a block at once find the same.
    """

    __slots__ = ("_digests", "_seen", "end", "next_offset")

    def __init__(self, digests: bytes, end: int, next_offset: int) -> None:
        """Expect blocks up to a position, the last one partial; the offset after it is for a check of the segment."""
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
        """Tell whether the blocks of a range are what they were; those that were once verified are not looked at again.

        Without digests nobody can tell, and the answer is no.
        Raise NotInMemory if that would wait for the disk, or take long, and the source does not.
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
        """Return the numbers of all blocks that are not what they were; none without digests."""
        if not self._digests:
            return set()
        return {number for number in range(len(self._seen)) if not self._is_right(file, number, PATIENT)}

    def _is_right(self, file: File, number: int, source: Source) -> bool:
        position = number * BLOCK_BYTES
        count = min(BLOCK_BYTES, self.end - position)
        # Not `source.read`: what the event loop has read before has to stay good.
        data = file.pread(count, position) if source.waiting else file.read_nowait(count, position)
        if data is None:
            raise NotInMemory(f"{file.path}@{position}")
        return crc32c(data) == int(_digest_at(self._digests, DIGEST_BYTES * number)[0])
