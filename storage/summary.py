"""What is known of a segment's batches, and the `.summary` file that remembers it.

Owns counts, times, the smallest time in each stretch (`minima`), the digests of the log's blocks (`blocks`), the
checksums of the indexes, and where the batches come from (`Origin`). The file carries a checksum of its own. All that
it says can be found again in the log, except the origin and the wall times of creation and appends. Layout:
docs/formats.md.
"""

from dataclasses import dataclass, field, fields
from enum import IntEnum
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.checksum import crc32c
from tidelog.storage import files
from tidelog.storage.blocks import DIGEST_BYTES, count_of
from tidelog.storage.minima import UNKNOWN, Minima

MAGIC: Final = b"TLSM"
VERSION: Final = 7
NONE: Final = -1  # no timestamp, no offset
OFFSET_MAX: Final = (1 << 63) - 1

_HEAD: Final = Struct(">4sHH")
_DAMAGE: Final = Struct(">qqq")
_CRC: Final = Struct(">I")


class Origin(IntEnum):
    """Where the batches of a segment come from, and so which offsets it may lack."""

    # Appended here, one after another: none is missing.
    APPENDED = 0
    # Copied by compaction from segments that were appended here: some may be missing, but not at its ends.
    COMPACTED = 1
    # From elsewhere, or unknown: the segment before it may end, and the next one begin, anywhere.
    IMPORTED = 2


class Damage(NamedTuple):
    """A range of positions that cannot be read, and the first offset after it."""

    start: int
    end: int
    next_offset: int


@dataclass(slots=True)
class Summary:
    """The state of a segment after `log_bytes` of its log, in the order of the file."""

    flushed: int  # 1 once those bytes of the log are on disk
    log_bytes: int
    next_offset: int
    created_ms: int
    index_interval_bytes: int
    record_count: int = 0
    batch_count: int = 0
    first_timestamp: int = NONE  # the largest of the first batch: rolling by time counts from it
    min_timestamp: int = UNKNOWN  # UNKNOWN if records cannot be decoded
    max_timestamp: int = NONE
    max_timestamp_offset: int = NONE  # of the first record that has it; NONE if records cannot be decoded
    max_timestamp_last_offset: int = NONE  # the last offset of the batch of that record
    first_append_ms: int = NONE
    last_append_ms: int = NONE
    indexed_position: int = 0  # of the last batch with an entry in the offset index
    offset_entries: int = 0
    time_entries: int = 0
    offset_crc: int = 0
    time_crc: int = 0
    append_entries: int = 0
    append_crc: int = 0
    is_created_bound: int = 0  # 1 if `created_ms` is a bound: the segment was created then or earlier
    transactional: int = 0  # 1 if a batch is part of a transaction
    # The smallest delete horizon of its batches after the last pass: when one of them may first lose tombstones.
    horizon_ms: int = NONE
    # For compaction, and not in the log; NONE if unknown, and after a cut.
    cleaned_to: int = NONE  # no record is left that a record before this offset has replaced
    cleaned_ms: int = NONE  # when the pass that made it began
    source_bytes: int = NONE  # the size of its sources then
    # A pass at `seen_ms` or before has seen tombstones before `seen_to`: in older formats batches cannot say so.
    seen_to: int = NONE
    seen_ms: int = NONE
    origin: Origin = Origin.APPENDED
    # From this offset on, batches were appended here and none is missing; `origin` is about those before.
    appended_from: int = 0
    damage: tuple[Damage, ...] = ()
    minima: Minima = field(default_factory=Minima)  # of record times, one for each stretch
    digests: bytes = b""  # of each block, the last one up to `log_bytes`; as of the last save
    # Not in the file: the last append time in a file that describes no batch, NONE if there is no such file. Once the
    # batches are deleted, nothing else may tell when they were appended.
    file_append_ms: int = field(default=NONE, compare=False)

    @classmethod
    def unknown(
        cls, base_offset: int, size: int, modified_ms: int, index_interval_bytes: int, origin: Origin
    ) -> "Summary":
        """Return a summary that describes no batch, for a segment without one.

        Its log was last written at `modified_ms`. It was created by then: exactly then, if it is empty.
        """
        is_appended = not size or origin == Origin.APPENDED
        return cls(
            0,
            0,
            base_offset,
            modified_ms,
            index_interval_bytes,
            is_created_bound=int(size > 0),
            origin=Origin.APPENDED if is_appended else origin,
            appended_from=0 if is_appended else OFFSET_MAX,
        )

    def may_skip(self, expected: int, offset: int) -> bool:
        """Tell whether a batch may begin at `offset` where `expected` follows the batch before it."""
        return expected < self.appended_from and offset <= self.appended_from

    @property
    def fills_its_range(self) -> bool:
        """Whether the segment reached from its base offset to that of the next one when it was sealed."""
        return self.origin != Origin.IMPORTED

    def flushed_to(self, next_base: int | None) -> int:
        """Return the offset before which a flush has put every record on disk, or NONE.

        `next_base` is the base offset of the next segment: no flush of this one covers more.
        """
        if not self.flushed:
            return NONE
        return self.next_offset if next_base is None else min(self.next_offset, next_base)

    def forget_tail(self) -> int:
        """Take damage at the end for an unfinished write; return where the log ends without it."""
        self.damage, tail = self.damage[:-1], self.damage[-1]
        self.log_bytes = tail.start
        return tail.start

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        numbers = _NUMBERS.pack(*(getattr(self, name) for name in _NAMES))
        damage = b"".join(_DAMAGE.pack(*each) for each in self.damage)
        head = _HEAD.pack(MAGIC, VERSION, len(self.damage))
        body = b"".join([head, numbers, damage, self.minima.encode(), self.digests])
        return body + _CRC.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes) -> "Summary | None":
        """Read the bytes of a file; None if they are not a whole summary of this version."""
        if version_of(data) != VERSION:
            return None
        try:
            _, _, damages = _HEAD.unpack_from(data)
            numbers = dict(zip(_NAMES, _NUMBERS.unpack_from(data, _HEAD.size), strict=True))
            summary = cls(**numbers | {"origin": Origin(numbers["origin"])})
            at = _HEAD.size + _NUMBERS.size
            end = at + damages * _DAMAGE.size
            summary.damage = tuple(Damage(*each) for each in _DAMAGE.iter_unpack(data[at:end]))
            summary.minima, at = Minima.decode(data, end, summary.log_bytes)
        except (error, ValueError):
            return None
        summary.digests = data[at:-4]
        if len(summary.damage) != damages or len(summary.digests) != DIGEST_BYTES * count_of(
            summary.log_bytes
        ):
            return None
        if not summary.log_bytes:
            summary.file_append_ms = summary.last_append_ms
        return summary

    @staticmethod
    def fault(data: bytes) -> str:
        """Return what is wrong with bytes that `decode` refuses."""
        if data[: len(MAGIC)] != MAGIC or len(data) < _HEAD.size + _CRC.size:
            return f"not a summary: it does not begin with {MAGIC.decode()}, or is too short"
        version = version_of(data)
        if version is None:
            return "its checksum is wrong: bytes of it changed, or are missing"
        if version != VERSION:
            return f"of version {version}, not {VERSION}: a start rebuilds it from the log"
        return "its checksum is right, and its parts do not fit together"

    def note_least(self, position: int, time_ms: int) -> None:
        """Note the smallest time of the batch at the end of the log, before the batch is counted."""
        if time_ms < self.min_timestamp or not self.batch_count:
            self.min_timestamp = time_ms
        self.minima.note(position, time_ms)

    def note_rare(self, header: BatchHeader) -> None:
        """Note what few batches have: a delete horizon, a transaction."""
        if header.has_delete_horizon and header.base_timestamp > self.cleaned_ms:
            horizon_ms = header.base_timestamp
            self.horizon_ms = horizon_ms if self.horizon_ms == NONE else min(self.horizon_ms, horizon_ms)
        if header.is_transactional or header.is_control:
            self.transactional = 1

    def note_messages(self, position: int, count: int, largest: int, newest: int, smallest: int) -> None:
        """Note messages of an older format in one stretch, after the first batch and without index entries.

        `newest` is the number, from 0, of the first one with the largest time.
        """
        self.note_least(position, smallest)
        if largest > self.max_timestamp:
            self.max_timestamp = largest
            self.max_timestamp_offset = self.max_timestamp_last_offset = self.next_offset + newest
        self.record_count += count
        self.batch_count += count
        self.next_offset += count

    def only_times(self, base_offset: int) -> "Summary":
        """Return a summary that describes no batch, with what the log does not hold: origin, times, index interval."""
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
            origin=self.origin,
            appended_from=self.appended_from,
            file_append_ms=self.file_append_ms,
        )

    @property
    def is_file_to_stay(self) -> bool:
        """Whether the file must not be overwritten in place: a power cut may tear it, and nothing else has its times.

        That holds until batches are on disk.
        """
        if self.file_append_ms == NONE:
            return False
        return not self.flushed if self.log_bytes else self.file_append_ms == self.last_append_ms

    def replace_by_times(self, path: Path, base_offset: int) -> None:
        """Replace the file, durably, by one that describes no batch and vouches for no append time."""
        times = self.only_times(base_offset)
        times.append_entries, times.append_crc = 0, 0
        files.write_atomically(path, times.encode())
        self.file_append_ms = self.last_append_ms

    @classmethod
    def load(cls, path: Path) -> "Summary | None":
        """Read a file; None if it is missing or cannot be decoded."""
        return cls.decode(files.load(path) or b"")


_NOT_NUMBERS: Final = ("damage", "minima", "digests", "file_append_ms")
_NAMES: Final = tuple(each.name for each in fields(Summary) if each.name not in _NOT_NUMBERS)
_NUMBERS: Final = Struct(">17q2IqI10q")


def version_of(data: bytes) -> int | None:
    """Return the version of a summary whose checksum is right; None of other bytes."""
    if len(data) < _HEAD.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        return None
    magic, version, _ = _HEAD.unpack_from(data)
    return int(version) if magic == MAGIC else None
