"""What is known of a segment's batches, and the `.summary` file that remembers it.

Owns counts, times, the smallest ones stretch by stretch (`minima`), the digests of the log's blocks (`blocks`) and the
checksums of the indexes. A hint: the file
carries a checksum and the digests of the bytes that it describes, and whatever it says can be found again in the log,
but for the wall time of creation and appends. Files of older versions are read by their own layouts: what they know is
kept, and what they did not know has its default. Of one without digests only the times are believed, as nothing vouches
for the rest. Layout: docs/formats.md.
"""

from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage import files
from tidelog.storage.blocks import DIGEST_BYTES, count_of
from tidelog.storage.minima import UNKNOWN, Minima

SUFFIX = ".summary"
MAGIC = b"TLSM"
NONE = -1  # no timestamp, no offset

_HEAD = Struct(">4sHH")
_DAMAGE = Struct(">qqq")
_CRC = Struct(">I")


class Damage(NamedTuple):
    """A range of positions that cannot be read, and the first offset after it."""

    start: int
    end: int
    next_offset: int


@dataclass(slots=True)
class Summary:
    """The state of a segment after `log_bytes` of its log, in the order of the file."""

    flushed: int  # 1 once the part of the log that is described is on disk
    log_bytes: int
    next_offset: int
    created_ms: int
    index_interval_bytes: int
    record_count: int = 0
    batch_count: int = 0
    first_timestamp: int = NONE  # the largest of the first batch: what rolling by time counts from
    min_timestamp: int = UNKNOWN  # where records cannot be decoded
    max_timestamp: int = NONE
    max_timestamp_offset: int = NONE  # of the first record that has it; NONE where records cannot be decoded
    max_timestamp_last_offset: int = NONE  # of the batch of that record
    first_append_ms: int = NONE
    last_append_ms: int = NONE
    indexed_position: int = 0  # of the batch that was last given an offset entry
    offset_entries: int = 0
    time_entries: int = 0
    offset_crc: int = 0
    time_crc: int = 0
    append_entries: int = NONE  # NONE where nobody noted append times
    append_crc: int = 0
    is_created_bound: int = 0  # 1 where nobody noted the creation: it was then or earlier
    transactional: int = 0  # 1 where a batch is part of a transaction
    # The least delete horizon of its batches after the last pass: when the next of them may lose tombstones.
    horizon_ms: int = NONE
    # Of compaction, which the log does not tell; NONE where nobody noted it, and after a cut.
    cleaned_to: int = NONE  # nothing is left in it that a record before this offset has replaced
    cleaned_ms: int = NONE  # when the pass began that made it
    source_bytes: int = NONE  # how large what it was made of was then
    # Tombstones before `seen_to` were met by a pass at `seen_ms` or before: those of older formats cannot say so.
    seen_to: int = NONE
    seen_ms: int = NONE
    damage: tuple[Damage, ...] = ()
    minima: Minima = field(default_factory=Minima)  # of record times, stretch by stretch
    digests: bytes = b""  # of each block, the last one up to `log_bytes`; as of the last save
    # Not of the file: the last append that the file tells of where it describes no batch, NONE where there is no such
    # file. It may be all that tells, once the batches that were appended then are deleted.
    told_ms: int = field(default=NONE, compare=False)

    @classmethod
    def unknown(cls, base_offset: int, size: int, modified_ms: int, index_interval_bytes: int) -> "Summary":
        """Return one of an empty log, for a segment of which only the file tells: it was created by that time.

        Then exactly, if nothing was written to it since.
        """
        return cls(0, 0, base_offset, modified_ms, index_interval_bytes, is_created_bound=int(size > 0))

    def forget_tail(self) -> int:
        """Take damage at the end for a write that was never finished; return where the log ends without it."""
        self.damage, tail = self.damage[:-1], self.damage[-1]
        self.log_bytes = tail.start
        return tail.start

    def encode(self) -> bytes:
        """Return the bytes of the file, in the latest version."""
        layout = LAYOUTS[VERSION]
        numbers = [getattr(self, name) for name in layout.names]
        parts = [_HEAD.pack(MAGIC, VERSION, len(self.damage)), layout.numbers.pack(*numbers)]
        parts += [_DAMAGE.pack(*damage) for damage in self.damage]
        if layout.has_minima:
            parts.append(self.minima.encode())
        body = b"".join([*parts, self.digests])
        return body + _CRC.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes) -> "Summary | None":
        """Read the bytes of a file; None if they are not a whole summary of a known version."""
        try:
            magic, version, damages = _HEAD.unpack_from(data)
            if magic != MAGIC or crc32c(data[:-4]) != _CRC.unpack(data[-4:])[0]:
                return None
            layout = LAYOUTS.get(version)
            if layout is None:
                return None
            numbers = layout.numbers.unpack_from(data, _HEAD.size)
            at = _HEAD.size + layout.numbers.size
            damage = tuple(Damage(*_DAMAGE.unpack_from(data, at + i * _DAMAGE.size)) for i in range(damages))
            at += damages * _DAMAGE.size
            summary = cls(**dict(zip(layout.names, numbers, strict=True)))
            if not layout.has_digests:
                return summary.only_times(summary.next_offset)
            summary.minima = Minima.unknown(summary.log_bytes)
            if layout.has_minima:
                summary.minima, at = Minima.decode(data, at, summary.log_bytes)
        except (error, ValueError):
            return None
        summary.damage = damage
        summary.digests = data[at:-4]
        if len(summary.digests) != DIGEST_BYTES * count_of(summary.log_bytes):
            return None
        return summary

    @staticmethod
    def fault(data: bytes) -> str:
        """Say of bytes that `decode` does not take what is wrong with them."""
        if data[: len(MAGIC)] != MAGIC or len(data) < _HEAD.size + _CRC.size:
            return f"not a summary: it does not begin with {MAGIC.decode()}, or is too short"
        if crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
            return "its checksum is wrong: bytes of it changed, or are missing"
        _, version, _ = _HEAD.unpack_from(data)
        if version not in LAYOUTS:
            return f"of version {version}, where 1 to {VERSION} are known: use the Tidelog that wrote it"
        return "its checksum is right, and its parts do not fit together"

    def note_least(self, position: int, time_ms: int) -> None:
        """Take note of the smallest time in a batch, the last one in the log; before that is counted."""
        if time_ms < self.min_timestamp or not self.batch_count:
            self.min_timestamp = time_ms
        self.minima.note(position, time_ms)

    def note_rare(self, header: BatchHeader) -> None:
        """Take note of what few batches have: a delete horizon, a transaction."""
        if header.has_delete_horizon and header.base_timestamp > self.cleaned_ms:
            horizon_ms = header.base_timestamp
            self.horizon_ms = horizon_ms if self.horizon_ms == NONE else min(self.horizon_ms, horizon_ms)
        if header.is_transactional or header.is_control:
            self.transactional = 1

    def note_messages(self, position: int, count: int, largest: int, newest: int, smallest: int) -> None:
        """Take note of messages of an older format, none the first, nor with an index entry, all of one stretch.

        `newest` is the number, from 0, of the first of them that has the largest time.
        """
        self.note_least(position, smallest)
        if largest > self.max_timestamp:
            self.max_timestamp = largest
            self.max_timestamp_offset = self.max_timestamp_last_offset = self.next_offset + newest
        self.record_count += count
        self.batch_count += count
        self.next_offset += count

    def only_times(self, base_offset: int) -> "Summary":
        """Return one of an empty log, with what a log does not hold: times and the index interval."""
        return Summary(
            0,
            0,
            base_offset,
            self.created_ms,
            self.index_interval_bytes,
            first_append_ms=self.first_append_ms,
            last_append_ms=self.last_append_ms,
            append_entries=self.append_entries,
            append_crc=self.append_crc,
            is_created_bound=self.is_created_bound,
            told_ms=self.told_ms,
        )

    @property
    def is_file_to_stay(self) -> bool:
        """Whether the file is not to be overwritten in place, as a power cut may tear it while nothing else tells.

        That is so until batches are on disk.
        """
        if self.told_ms == NONE:
            return False
        return not self.flushed if self.log_bytes else self.told_ms == self.last_append_ms

    def replace_by_times(self, path: Path, base_offset: int) -> None:
        """Replace the file by one that describes no batch, durably, and vouches for no entry."""
        times = self.only_times(base_offset)
        times.append_entries, times.append_crc = NONE, 0
        files.write_atomically(path, times.encode())
        self.told_ms = self.last_append_ms

    @classmethod
    def load(cls, path: Path) -> "Summary | None":
        """Read a file; None if it is missing or of no use."""
        data = files.load(path)
        summary = None if data is None else cls.decode(data)
        if summary is not None and not summary.log_bytes:
            summary.told_ms = summary.last_append_ms
        return summary


class Layout(NamedTuple):
    """What one version holds between the head and the damage: its numbers, and whether minima and digests follow."""

    numbers: Struct
    names: tuple[str, ...]
    has_digests: bool
    has_minima: bool


_NUMBERS = (
    "flushed",
    "log_bytes",
    "next_offset",
    "created_ms",
    "index_interval_bytes",
    "record_count",
    "batch_count",
    "first_timestamp",
    "min_timestamp",
    "max_timestamp",
    "max_timestamp_offset",
    "max_timestamp_last_offset",
    "first_append_ms",
    "last_append_ms",
    "indexed_position",
    "offset_entries",
    "time_entries",
    "offset_crc",
    "time_crc",
)
# By version. A new one is added, and an old one stays as it is: that is how its files are read, for as long as a log
# may have some.
_NUMBERS_3 = (*_NUMBERS, "append_entries", "append_crc")
_NUMBERS_5 = (*_NUMBERS_3, "is_created_bound")
_NUMBERS_6 = (
    *_NUMBERS_5,
    "transactional",
    "horizon_ms",
    "cleaned_to",
    "cleaned_ms",
    "source_bytes",
    "seen_to",
    "seen_ms",
)
LAYOUTS = {
    1: Layout(Struct(">17qII"), _NUMBERS, has_digests=False, has_minima=False),
    2: Layout(Struct(">17qII"), _NUMBERS, has_digests=True, has_minima=False),
    3: Layout(Struct(">17qIIqI"), _NUMBERS_3, has_digests=True, has_minima=False),
    4: Layout(Struct(">17qIIqI"), _NUMBERS_3, has_digests=True, has_minima=True),
    5: Layout(Struct(">17qIIqIq"), _NUMBERS_5, has_digests=True, has_minima=True),
    6: Layout(Struct(">17qIIqI8q"), _NUMBERS_6, has_digests=True, has_minima=True),
}
VERSION = max(LAYOUTS)
