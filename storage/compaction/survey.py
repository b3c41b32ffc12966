"""How much of each segment later records have replaced, told from a sample of its keys.

Owns the sample and the estimate. Of all keys those are looked at whose hash is small: the same ones in every segment, so
that a key of the sample that is in no later segment's is a record that stays, and counts for as many as there are keys
for one in the sample. No value is read, and no segment again but after a restart. The hash has a secret of the process,
so that nobody can choose keys that are never looked at. ADR 10 compares this with other ways.
"""

from array import array
from collections.abc import Generator, Sequence
from typing import Final

from tidelog.protocol.records import kernel, keys
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.storage.compaction.batch_filter import messages, opened
from tidelog.storage.compaction.reading import Entry, chunks
from tidelog.storage.segment import Segment

# So many keys tell of a segment, some hundredths more or less; 8 bytes each.
KEYS_MAX: Final = 1024
_HASH_BITS: Final = 64


class KeySample:
    """The keys of a segment whose hash has `bits` zeros at its beginning, as their hashes; and what they tell."""

    __slots__ = ("bits", "garbage_bytes", "hashes")

    def __init__(self, bits: int = 0) -> None:
        """Know of no key."""
        self.bits = bits
        self.hashes: array[int] = array("Q")
        self.garbage_bytes = 0

    def add(self, hashes: set[int]) -> None:
        """Take keys in, fewer of those that there are where they become too many."""
        found = set(self.hashes) | hashes
        while len(found) > KEYS_MAX:
            self.bits += 1
            found = {each for each in found if not each >> (_HASH_BITS - self.bits)}
        self.hashes = array("Q", found)

    def at(self, bits: int) -> set[int]:
        """Return those of the hashes that have so many zeros at their beginning."""
        return {each for each in self.hashes if not each >> (_HASH_BITS - bits)} if bits else set(self.hashes)
