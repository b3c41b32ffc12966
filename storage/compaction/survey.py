"""Estimates how much of each segment later records have replaced, from samples of the keys.

A sample has the keys with a small hash, the same ones in every segment. So a sampled key that is also in a later
segment's sample stands for a number of records that are garbage. No values are read, and a segment is read once until a
restart. The hash has a secret per process, so that nobody can construct keys that are never sampled. ADR 10 compares
this with alternatives.
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
from tidelog.storage.summary import OFFSET_MAX

# How many keys are gathered before they are added to a sample.
_WAITING: Final = 4 * KEYS_MAX


class Sampler:
    """Takes the sample of a segment whose batches are being read."""

    def __init__(self, secret: bytes) -> None:
        """Begin without keys; `secret` is that of the hash."""
        self._secret = secret
        self._sample = KeySample()
        self._waiting: dict[int, int] = {}
        self._bytes = self._keyed_bytes = 0
        self._out = array("Q")
        self._one = Columns(1)
        self._one.count = 1
        self._pair = array("Q", (0, 0))

    def add_batch(self, data: Buffer, columns: Columns, is_garbage: bool = False) -> None:
        """Sample the keys of a batch's records; if it is garbage, count its bytes only."""
        size = len(data) - columns.start[0]
        self._bytes += size
        if is_garbage:
            self._keyed_bytes += size
            return
        out = self._out
        if len(out) < 2 * columns.count:
            out = self._out = array("Q", bytes(16 * columns.count))
        found = key_hashes.sample(self._secret, data, columns, self._sample.bits, out)
        self._keyed_bytes += found.keyed_bytes
        if found.hashes:
            self._take(dict(zip(out[: 2 * found.hashes : 2], out[1 : 2 * found.hashes : 2], strict=True)))

    def add_record(self, key: bytes | None, value: bytes | None) -> None:
        """Sample the key of one record."""
        size = len(key or b"") + len(value or b"")
        self._bytes += size
        if key is not None:
            self._keyed_bytes += size
            self._one.key_length[0] = len(key)
            if key_hashes.sample(self._secret, key, self._one, self._sample.bits, self._pair).hashes:
                self._take({self._pair[0]: 0 if value is None else size})

    def _take(self, sizes: dict[int, int]) -> None:
        self._waiting |= sizes
        if len(self._waiting) > _WAITING:
            self._sample.add(self._waiting)
            self._waiting = {}

    def end(self) -> KeySample:
        """Return the sample."""
        self._sample.add(self._waiting)
        sample = self._sample
        sample.keyed = self._keyed_bytes / max(self._bytes, 1)
        sample.latest = min(1.0, (sum(sample.sizes) << sample.bits) / max(self._keyed_bytes, 1))
        return sample


def sampled(segment: Segment, secret: bytes) -> Generator[int, None, KeySample]:
    """Read a segment and return its sample; each step yields how many bytes it has read. Raise Mismatch."""
    sampler, columns = Sampler(secret), Columns()
    for found in chunks(segment):
        for entry in found:
            with suppress(*UNREADABLE):
                _sample(entry, columns, sampler)
        yield size_of(found)
    return sampler.end()


def _sample(entry: Entry, columns: Columns, sampler: Sampler) -> None:
    header = entry.header
    if header.magic != MAGIC:
        for _, _, key, value in list(messages(entry)):
            sampler.add_record(key, value)
    elif header.record_count and not header.is_control:
        data, _ = scanned(entry, columns)
        sampler.add_batch(data, columns)


def estimate(segments: Sequence[Segment], end: int = OFFSET_MAX) -> None:
    """Set the `garbage_bytes` of each segment with a sample; `segments` are in order, oldest first (S100).

    Segments that reach beyond `end` replace nothing, and have no garbage, yet.
    """
    known = [(each, each.sample) for each in segments if each.sample is not None]
    bits = max((sample.bits for _, sample in known), default=0)
    later: set[int] = set()
    for segment, sample in reversed(known):
        own = sample.at(bits)
        size = sum(own.values())
        stays = sum(size for each, size in own.items() if each not in later) / size if size else 1.0
        sample.garbage_bytes = 0
        if segment.next_offset <= end:
            later |= own.keys()
            sample.garbage_bytes = int(sample.keyed * (1 - sample.latest * stays) * segment.size)


def merged(group: Sequence[Segment], segments: Sequence[Segment], end: int) -> KeySample | None:
    """Return the sample of a copy of `group`, after a pass that has compared it with the keys before `end`.

    None if that is unknown: a segment has no sample, or `end` lies within the group. `segments` are those of the log.
    """
    samples = [segment.sample for segment in group]
    if any(sample is None for sample in samples) or group[-1].next_offset > end:
        return None
    merged = KeySample(max(sample.bits for sample in samples if sample is not None))
    gone: set[int] = set()
    for segment in segments:
        if (
            segment.sample is not None
            and group[-1].base_offset < segment.base_offset
            and segment.next_offset <= end
        ):
            gone |= segment.sample.at(merged.bits).keys()
    for sample in samples:
        if sample is not None:
            merged.add({each: size for each, size in sample.at(merged.bits).items() if each not in gone})
    before = sum(segment.size for segment in group)
    merged.keyed = sum(
        segment.sample.keyed * segment.size for segment in group if segment.sample is not None
    ) / max(before, 1)
    return merged
