"""What is known of a segment's batches, and the `.summary` file that remembers it.

Owns counts, times, the smallest ones stretch by stretch (`minima`), the digests of the log's blocks (`blocks`), the
checksums of the indexes, and where the batches come from (`Origin`). The file carries a checksum and the digests of the
bytes that it describes. Whatever it says can be found again in the log, but for the origin and the wall times of
creation and appends. Layout: docs/formats.md.
"""

from dataclasses import dataclass, field, fields
from enum import IntEnum
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage import files
from tidelog.storage.blocks import DIGEST_BYTES, count_of
from tidelog.storage.minima import UNKNOWN, Minima

MAGIC = b"TLSM"
VERSION: Final = 7
NONE = -1  # no timestamp, no offset
OFFSET_MAX = (1 << 63) - 1

_HEAD = Struct(">4sHH")
_DAMAGE = Struct(">qqq")
_CRC = Struct(">I")


class Origin(IntEnum):
    """Where the batches of a segment come from, and so which offsets it may lack."""

    APPENDED = 0  # appended here, one after another: it lacks none
    COMPACTED = (
        1  # copied by compaction from segments that were appended here: it may lack some, but not at its ends
    )
    IMPORTED = (
        2  # from elsewhere, or nothing tells: the segment before it may end, and the next one begin, anywhere
    )


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
    append_entries: int = 0
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
    origin: Origin = Origin.APPENDED
    # From this offset on batches were appended here, and none is missing; those before came as `origin` says.
    appended_from: int = 0
    damage: tuple[Damage, ...] = ()
    minima: Minima = field(default_factory=Minima)  # of record times, stretch by stretch
    digests: bytes = b""  # of each block, the last one up to `log_bytes`; as of the last save
    # Not of the file: the last append that the file tells of where it describes no batch, NONE where there is no such
    # file. It may be all that tells, once the batches that were appended then are deleted.
    file_append_ms: int = field(default=NONE, compare=False)

    @classmethod
    def unknown(
        cls, base_offset: int, size: int, modified_ms: int, index_interval_bytes: int, origin: Origin
    ) -> "Summary":
        """Return one of an empty log, for a segment without a summary; its log was last written to at `modified_ms`.

        It was created by that time: exactly then, if nothing was written to it since.
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
        """Tell whether a batch may begin with a larger offset than the one that follows the batch before it."""
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
        """Take damage at the end for a write that was never finished; return where the log ends without it."""
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
            summary = cls(*_NUMBERS.unpack_from(data, _HEAD.size))
            summary.origin = Origin(summary.origin)
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
        """Say of bytes that `decode` does not take what is wrong with them."""
        if data[: len(MAGIC)] != MAGIC or len(data) < _HEAD.size + _CRC.size:
            return f"not a summary: it does not begin with {MAGIC.decode()}, or is too short"
        version = version_of(data)
        if version is None:
            return "its checksum is wrong: bytes of it changed, or are missing"
        if version != VERSION:
            return f"of version {version}, not {VERSION}: a start rebuilds it from the log"
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
            origin=self.origin,
            appended_from=self.appended_from,
            file_append_ms=self.file_append_ms,
        )

    @property
    def is_file_to_stay(self) -> bool:
        """Whether the file is not to be overwritten in place, as a power cut may tear it while nothing else tells.

        That is so until batches are on disk.
        """
        if self.file_append_ms == NONE:
            return False
        return not self.flushed if self.log_bytes else self.file_append_ms == self.last_append_ms

    def replace_by_times(self, path: Path, base_offset: int) -> None:
        """Replace the file by one that describes no batch, durably, and vouches for no entry."""
        times = self.only_times(base_offset)
        times.append_entries, times.append_crc = 0, 0
        files.write_atomically(path, times.encode())
        self.file_append_ms = self.last_append_ms

    @classmethod
    def load(cls, path: Path) -> "Summary | None":
        """Read a file; None if it is missing or of no use."""
        return cls.decode(files.load(path) or b"")


_NOT_NUMBERS: Final = ("damage", "minima", "digests", "file_append_ms")
_NAMES: Final = tuple(each.name for each in fields(Summary) if each.name not in _NOT_NUMBERS)
_NUMBERS: Final = Struct(">17q2IqI10q")


def version_of(data: bytes) -> int | None:
    """Return the version that the bytes of a whole summary are of; None of other bytes."""
    if len(data) < _HEAD.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        return None
    magic, version, _ = _HEAD.unpack_from(data)
    return int(version) if magic == MAGIC else None
