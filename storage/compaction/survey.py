"""How much of each segment later records have replaced, told from a sample of its keys.

Owns the sample and the estimate. Of all keys those are looked at whose hash is small: the same ones in every segment,
so that a key of the sample that is in a later segment's tells of a record that goes, and counts for as many as there
are keys for one in the sample. No value is read, and no segment again but after a restart. The hash has a secret of the
process, so that nobody can choose keys that are never looked at. ADR 10 compares this with other ways.
"""

from array import array
from collections.abc import Generator, Sequence
from contextlib import suppress

from tidelog.protocol.records import keys
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.columns import Columns
from tidelog.storage.compaction.reading import UNREADABLE, Entry, chunks, messages, scanned, size_of
from tidelog.storage.key_sample import HASH_BITS, KeySample
from tidelog.storage.segment import Segment


def sampled(segment: Segment, secret: bytes) -> Generator[int, None, KeySample]:
    """Read the keys of a segment that nobody has looked at; yield how many bytes were read. Mismatch as by `chunks`."""
    sample, columns = KeySample(), Columns()
    keyed = 0
    for found in chunks(segment):
        keyed += _look(found, secret, columns, sample)
        yield size_of(found)
    sample.keyed = keyed / max(segment.summary.record_count, 1)
    sample.latest = min(1.0, (len(sample.hashes) << sample.bits) / max(keyed, 1))
    return sample


def _look(found: Sequence[Entry], secret: bytes, columns: Columns, sample: KeySample) -> int:
    """Take the keys of some entries into a sample; return how many records have one."""
    room = 2 * sum(max(entry.header.record_count, 1) for entry in found)
    table = bytearray(room * keys.ENTRY_BYTES)
    keyed = 0
    for entry in found:
        header = entry.header
        if header.magic != MAGIC:
            with suppress(*UNREADABLE):
                for _, _, key, _ in list(messages(entry)):
                    if key is not None:
                        keys.put(table, secret, key, 0, room)
                        keyed += 1
        elif header.record_count and not header.is_control:
            with suppress(*UNREADABLE):  # Nobody can read it: it tells nothing.
                data, _ = scanned(entry, columns)
                keys.note(table, secret, data, columns, 0, room)
                keyed += columns.count - columns.key_length[: columns.count].tolist().count(-1)
    # Of each entry of the map the first half of a hash; 0 where there is none.
    halves = array("Q", table)[:: keys.ENTRY_BYTES // 8]
    shift = HASH_BITS - sample.bits
    sample.add({each for each in halves if each and not each >> shift})
    return keyed


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
