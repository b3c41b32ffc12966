"""How much of each segment later records have replaced, told from a sample of its keys.

Owns the sample and the estimate. Of all keys those are looked at whose hash is small: the same ones in every segment,
so that a key of the sample that is in a later segment's tells of a record that goes, and counts for as many as there
are keys for one in the sample. No value is read, and no segment again but after a restart. The hash has a secret of the
process, so that nobody can choose keys that are never looked at. ADR 10 compares this with other ways.
"""

from array import array
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Final

from tidelog.protocol.records import key_hashes
from tidelog.protocol.records.batch import MAGIC, Buffer
from tidelog.protocol.records.columns import Columns
from tidelog.storage.compaction.reading import UNREADABLE, Entry, chunks, messages, scanned, size_of
from tidelog.storage.key_sample import KEYS_MAX, KeySample
from tidelog.storage.segment import Segment

# So many keys wait until they are taken into a sample.
_WAITING: Final = 4 * KEYS_MAX


class Sampler:
    """A segment's sample, taken while somebody reads its batches; a batch counts once its keys were looked at."""

    def __init__(self, secret: bytes) -> None:
        """Know of no key yet."""
        self._secret = secret
        self._sample = KeySample()
        self._waiting: set[int] = set()
        self._keyed = 0
        self._out = array("Q")
        self._one = Columns(1)
        self._one.count = 1

    def look(self, data: Buffer, columns: Columns) -> None:
        """Look at the keys of a batch's records."""
        out = self._out
        if len(out) < columns.count:
            out = self._out = array("Q", bytes(8 * columns.count))
        found = key_hashes.sample(self._secret, data, columns, self._sample.bits, out)
        self._keyed += found.keyed
        if found.hashes:
            self._waiting.update(out[: found.hashes])
            if len(self._waiting) > _WAITING:
                self._take_in()

    def look_at(self, key: bytes) -> None:
        """Look at the key of one record."""
        self._one.key_length[0] = len(key)
        self.look(key, self._one)

    def of(self, segment: Segment) -> KeySample:
        """Return the sample, once this has seen all of the segment."""
        self._take_in()
        sample = self._sample
        sample.keyed = self._keyed / max(segment.summary.record_count, 1)
        sample.latest = min(1.0, (len(sample.hashes) << sample.bits) / max(self._keyed, 1))
        return sample

    def _take_in(self) -> None:
        self._sample.add(self._waiting)
        self._waiting = set()


def sampled(segment: Segment, secret: bytes) -> Generator[int, None, KeySample]:
    """Read the keys of a segment that nobody has looked at; yield how many bytes were read. Mismatch as by `chunks`."""
    sampler, columns = Sampler(secret), Columns()
    for found in chunks(segment):
        for entry in found:
            with suppress(*UNREADABLE):  # Nobody can read it: it tells nothing.
                _look(entry, columns, sampler)
        yield size_of(found)
    return sampler.of(segment)


def _look(entry: Entry, columns: Columns, sampler: Sampler) -> None:
    header = entry.header
    if header.magic != MAGIC:
        for _, _, key, _ in list(messages(entry)):
            if key is not None:
                sampler.look_at(key)
    elif header.record_count and not header.is_control:
        data, _ = scanned(entry, columns)
        sampler.look(data, columns)


def estimate(segments: Sequence[Segment]) -> None:
    """Tell of each segment, oldest first, how many of its bytes later ones of these have replaced (S100).

    All must have a sample. What a sample says of keys it says of bytes, as if all records were of one size.
    """
    bits = max((each.sample.bits for each in segments if each.sample is not None), default=0)
    later: set[int] = set()
    for segment in reversed(segments):
        sample = segment.sample
        assert sample is not None
        own = sample.at(bits)
        stays = len(own - later) / len(own) if own else 1.0
        later |= own
        sample.garbage_bytes = int(sample.keyed * (1 - sample.latest * stays) * segment.size)


def merged(group: Sequence[Segment], later: Sequence[Segment]) -> KeySample | None:
    """Return the sample of what stays of a group, where later segments are these; None where one has no sample."""
    samples = [segment.sample for segment in group]
    if any(sample is None for sample in samples):
        return None
    merged = KeySample(max(sample.bits for sample in samples if sample is not None))
    gone: set[int] = set()
    for segment in later:
        if segment.sample is not None:
            gone |= segment.sample.at(merged.bits)
    for sample in samples:
        if sample is not None:
            merged.add(sample.at(merged.bits) - gone)
    before = sum(segment.summary.record_count for segment in group)
    merged.keyed = sum(
        segment.sample.keyed * segment.summary.record_count for segment in group if segment.sample is not None
    ) / max(before, 1)
    return merged
