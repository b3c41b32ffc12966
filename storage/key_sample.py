"""A sample of a segment's keys: those whose hash begins with zeros.

Owns the size of a sample, and how many keys one of them stands for. Samples of different segments choose the same keys,
so they can be compared. Knows nothing of where keys come from; `compaction/survey` uses it.
"""

from array import array
from typing import Final

# Enough for an estimate within some hundredths; 12 bytes each.
KEYS_MAX: Final = 1024
HASH_BITS: Final = 64


class KeySample:
    """The hashes that begin with `bits` zero bits, and the estimates that were made from them."""

    __slots__ = ("bits", "garbage_bytes", "hashes", "keyed", "latest", "sizes")

    def __init__(self, bits: int = 0) -> None:
        """Begin without keys."""
        self.bits = bits
        self.hashes: array[int] = array("Q")
        # The size of each key's last record; 0 for a tombstone, which compaction removes in the end.
        self.sizes: array[int] = array("I")
        self.keyed = 1.0  # the share of the segment's bytes in records with a key
        self.latest = 1.0  # the share of those bytes in the last record of each key
        self.garbage_bytes = 0  # bytes that later segments have replaced, by the last estimate

    def add(self, sizes: dict[int, int]) -> None:
        """Add the keys of later records; if there are too many, thin out the sample."""
        found = self.at(0) | sizes
        while len(found) > KEYS_MAX:
            self.bits += 1
            found = {each: size for each, size in found.items() if not each >> (HASH_BITS - self.bits)}
        self.hashes, self.sizes = array("Q", found), array("I", found.values())

    def at(self, bits: int) -> dict[int, int]:
        """Return the hashes that begin with `bits` zero bits, with their sizes."""
        found = zip(self.hashes, self.sizes, strict=True)
        return {each: size for each, size in found if not bits or not each >> (HASH_BITS - bits)}
