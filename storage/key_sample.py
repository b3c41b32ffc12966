"""A sample of the keys of a segment: those whose hash is small.

Owns how many there are, and how many keys one of them stands for. Of every segment the same keys are in it, as far as
it goes. Knows nothing of where keys come from, or of what is told from them (`compaction/survey`).
"""

from array import array
from typing import Final

# So many keys tell of a segment, some hundredths more or less; 8 bytes each.
KEYS_MAX: Final = 1024
HASH_BITS: Final = 64


class KeySample:
    """The keys of a segment whose hash has `bits` zeros at its beginning, as their hashes; and what they tell."""

    __slots__ = ("bits", "garbage_bytes", "hashes", "keyed", "latest")

    def __init__(self, bits: int = 0) -> None:
        """Know of no key."""
        self.bits = bits
        self.hashes: array[int] = array("Q")
        self.keyed = 1.0  # the share of records that have a key
        self.latest = 1.0  # the share of those that are the last of their key in the segment
        self.garbage_bytes = 0  # what later segments had replaced when that was last estimated

    def add(self, hashes: set[int]) -> None:
        """Take keys in, fewer of those that there are where they become too many."""
        found = set(self.hashes) | hashes
        while len(found) > KEYS_MAX:
            self.bits += 1
            found = {each for each in found if not each >> (HASH_BITS - self.bits)}
        self.hashes = array("Q", found)

    def at(self, bits: int) -> set[int]:
        """Return those of the hashes that have so many zeros at their beginning."""
        return {each for each in self.hashes if not each >> (HASH_BITS - bits)} if bits else set(self.hashes)
