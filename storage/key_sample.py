"""A sample of the keys of a segment: those whose hash is small.

Owns how many there are, and how many keys one of them stands for. Of every segment the same keys are in it, as far as
it goes. Knows nothing of where keys come from, or of what they are used for (`compaction/survey`).
"""

from array import array
from typing import Final

# So many keys tell of a segment, some hundredths more or less; 12 bytes each.
KEYS_MAX: Final = 1024
HASH_BITS: Final = 64


class KeySample:
    """The keys of a segment whose hash has `bits` zeros at its beginning, as their hashes; and what they tell."""

    __slots__ = ("bits", "garbage_bytes", "hashes", "keyed", "latest", "sizes")

    def __init__(self, bits: int = 0) -> None:
        """Know of no key."""
        self.bits = bits
        self.hashes: array[int] = array("Q")
        # Bytes of the last record of each; 0 of a tombstone, which is to go too.
        self.sizes: array[int] = array("I")
        self.keyed = 1.0  # the share of bytes that records with a key have
        self.latest = 1.0  # the share of those that the last of each key have in the segment
        self.garbage_bytes = 0  # what later segments had replaced when that was last estimated

    def add(self, sizes: dict[int, int]) -> None:
        """Take keys in, later ones than those that there are; fewer of all where they become too many."""
        found = self.at(0) | sizes
        while len(found) > KEYS_MAX:
            self.bits += 1
            found = {each: size for each, size in found.items() if not each >> (HASH_BITS - self.bits)}
        self.hashes, self.sizes = array("Q", found), array("I", found.values())

    def at(self, bits: int) -> dict[int, int]:
        """Return those of the hashes that have so many zeros at their beginning, with their sizes."""
        found = zip(self.hashes, self.sizes, strict=True)
        return {each: size for each, size in found if not bits or not each >> (HASH_BITS - bits)}
