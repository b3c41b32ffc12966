"""A piece is a range of whole batches in a segment, which a task reads without opening the log.

Bytes are verified as they are read, by the rules of storage: a wrong checksum, offsets out of order, or a block that
differs from the summary is damage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np

from tidelog.config import times
from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline.decode import Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files import remote
from tidelog.pipeline.quarantine import Bad, Damaged, held
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.storage import append_index, files, pins, read_only, verification
from tidelog.storage.blocks import BLOCK_BYTES, DIGEST_BYTES, count_of
from tidelog.storage.layout import APPEND_INDEX, LOG, load_topic_id
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.read_only import ReadOnlyShared
from tidelog.storage.segment import Segment
from tidelog.storage.summary import Damage

READ_BYTES: Final = 8 << 20
_RENEW_S: Final = pins.LEASE_MS / 1000 / 10


class Lost(NamedTuple):
    """Records without any bytes left: the position where they would be, and a description."""

    position: int
    what: str


class Undated(NamedTuple):
    """Batches that may or may not be in a range of append times: their offsets, and the bound of their append time.

    `position` is the position of their entry in the repaired append index.
    """

    start: int
    end: int
    bound_ms: int
    position: int

    @property
    def what(self) -> str:
        """What is unknown, for messages."""
        return (
            f"the append time of the batches at offsets {self.start} to {self.end - 1} is not known, except that it is "
            f"{times.show(self.bound_ms, UTC)} or earlier"
        )


class Piece(NamedTuple):
    """A range of a segment to read, and what the plan knows about it."""

    root: str  # the URI of the object store, empty for a local folder
    folder: str  # of the partition; relative to the root, if there is one
    topic: str
    partition: int
    base_offset: int
    start: int
    end: int
    window: Window
    known_bytes: int = 0  # the size of the segment when the digests were made
    digests: bytes = b""  # of the blocks from `start` to `end`; empty if unknown
    append_times: bytes = b""  # the entries of the append index for the batches of the piece
    damage: tuple[Damage, ...] = ()
    lost: tuple[Lost, ...] = ()
    undated: tuple[Undated, ...] = ()  # left out
    snapshot: str = ""  # the folder with links to the segment's files
    topic_id: bytes | None = None  # as the folder records it
    lease: str = ""  # the file that keeps these links
    number: int = 0  # of the piece in the lease

    @property
    def path(self) -> Path:
        """The `.log` file; errors name it."""
        return Path(self.folder) / f"{self.base_offset:020d}{LOG}"

    @property
    def index_path(self) -> Path:
        """The append index; errors name it."""
        return self.path.with_suffix(APPEND_INDEX)

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return self.end - self.start


class Found(NamedTuple):
    """A batch: a buffer, its position in that, its header, its append time, and its position in the file.

    If `is_bound`, the append time is an upper bound.
    """

    data: memoryview
    at: int
    header: BatchHeader
    append_ms: int
    position: int
    is_bound: bool = False


def batches(piece: Piece, bad: Bad) -> Iterator[Found]:
    """Yield each batch of a piece.

    Damaged bytes go to `bad`, and are left out if it returns. So do, without bytes, the batches that may or may not be
    in the range of append times. PipelineError if the file is gone.
    """
    for position, what in piece.lost:
        bad(piece.path, position, held(b""), what)
    if piece.start >= piece.end:
        return
    append_times, undated = _AppendTimes(piece.append_times), _Undated(piece, bad)
    file = _open(piece)
    renewed_s = -_RENEW_S
    position, count, next_offset = piece.start, READ_BYTES, 0
    while position < piece.end:
        if piece.lease and monotonic() - renewed_s >= _RENEW_S:
            renewed_s = monotonic()
            pins.renew(Path(piece.lease))
        damage = next((each for each in piece.damage if each.end > position), None)
        if damage is not None and damage.start <= position:
            what = f"no offset before {damage.next_offset} can be read from them"
            bad(piece.path, damage.start, _damaged(file, damage), what)
            position, next_offset = damage.end, damage.next_offset
            continue
        stop = piece.end if damage is None else min(piece.end, damage.start)
        stop = min(stop, position + count)
        read = _read(file, piece, position, stop)
        is_right, taken = len(read) == stop - position, 0
        for at, header in _whole(read):
            if header.base_offset < next_offset or not entries.check_crc(read, at, header):
                is_right = False
                break
            append_ms, is_bound = append_times.at(header.base_offset - piece.base_offset)
            if not (is_bound and undated.has(header.base_offset)):
                yield Found(read, at, header, append_ms, position + at, is_bound)
            taken, next_offset = at + header.size_bytes, header.last_offset + 1
        # A batch may be larger than one read, but not larger than the rest of the range.
        is_right = is_right and (bool(taken) or stop - position == count)
        position += taken
        if not is_right:
            piece = _verified_again(piece, position)
        count = READ_BYTES if taken or not is_right else max(READ_BYTES, entries.peek(read).size_bytes)


def _open(piece: Piece) -> files.File:
    if piece.root:
        return remote.open_file(piece.root, piece.path)
    for path in (Path(piece.snapshot, piece.path.name) if piece.snapshot else piece.path, piece.path):
        try:
            file = files.File(path, read_only=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise PipelineError(f"{piece.path}: it cannot be opened: {error.strerror}") from error
        demand_same(piece)  # After the open: the topic may have been replaced just before it.
        return file
    demand_same(piece)
    raise PipelineError(
        f"{piece.path} is not there any more: retention has deleted it since the read was planned; read it again"
    )


def demand_same(piece: Piece) -> None:
    """Raise PipelineError unless the folder of a piece exists and still belongs to the same topic."""
    folder = Path(piece.folder)
    if piece.root:
        return
    if files.status(folder) is None:
        raise PipelineError(
            f"{folder} is not there any more: the topic was deleted since the read was planned"
        )
    if piece.topic_id is not None and load_topic_id(folder) != piece.topic_id:
        raise PipelineError(
            f"{folder}: the topic was deleted and created again since the read was planned; read it again"
        )


def _bytes(file: files.File, count: int, position: int) -> bytes:
    try:
        return file.pread(count, position)
    except OSError as error:
        raise PipelineError(f"{file.path}@{position}: it cannot be read: {error}; check the disk") from error


def _damaged(file: files.File, damage: Damage) -> Damaged:
    """Return damaged bytes of a file; they are read only when the result is."""

    def parts() -> Iterator[bytes]:
        for position in range(damage.start, damage.end, READ_BYTES):
            yield _bytes(file, min(READ_BYTES, damage.end - position), position)

    return Damaged(damage.end - damage.start, parts)


def _whole(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch in bytes that begin with a batch."""
    at = 0
    while len(data) - at >= entries.BYTES_MIN:
        header = entries.peek(data, at) if len(data) - at >= entries.HEAD_BYTES else _short(data, at)
        if header is None or header.size_bytes > len(data) - at:
            return
        yield at, header
        at += header.size_bytes


def _short(data: memoryview, at: int) -> BatchHeader | None:
    """Return the header of a short message of an older format; None if it is the beginning of a batch."""
    try:
        return entries.peek(data, at)
    except CorruptBatch:
        return None


@contextmanager
def _openable(piece: Piece) -> Iterator[tuple[Path, read_only.Opener]]:
    """Yield a local folder with the files of a segment, and a function that opens its `.log`."""
    if piece.root:
        with remote.mirrored(piece.root, Path(piece.folder), [piece.base_offset]) as folder:
            yield folder, lambda _: remote.open_file(piece.root, piece.path)
    elif piece.snapshot and files.status(Path(piece.snapshot, piece.path.name)) is not None:
        yield Path(piece.snapshot), read_only.opened
    else:
        yield Path(piece.folder), read_only.opened


def _verified_again(piece: Piece, position: int) -> Piece:
    """Return a piece with the damage that storage finds in it now, after a position did not verify."""
    now_ms = 0  # It would bound append times, but the piece has them.
    with _openable(piece) as (folder, opener):
        shared = ReadOnlyShared(folder, opener)
        segment: Segment | None = read_only.open_segment(
            folder, piece.base_offset, TopicConfig(), shared, now_ms
        )
        if segment is not None and segment.unverified is not None:
            epochs = LeaderEpochs.load(Path(piece.folder)) or LeaderEpochs(folder)
            segment = verification.recheck(segment, epochs.at)
        found = () if segment is None else segment.summary.damage
    damage = tuple(each for each in found if each.start < piece.end and each.end > position)
    if not damage and not piece.digests:
        raise PipelineError(f"{piece.path}@{position}: the file has changed while it was read; read it again")
    # Storage takes a torn tail for an unfinished write. The plan may know better, so its findings stay.
    known = [each for each in piece.damage if all(each.start >= new.end for new in damage)]
    return piece._replace(damage=(*damage, *known), digests=b"")


def _read(file: files.File, piece: Piece, position: int, stop: int) -> memoryview:
    """Return the bytes of a range; none if a digest differs."""
    if not piece.digests:
        return memoryview(_bytes(file, stop - position, position))
    number, last = position // BLOCK_BYTES, count_of(stop)
    begin, end = number * BLOCK_BYTES, min(last * BLOCK_BYTES, piece.known_bytes)
    data = memoryview(_bytes(file, end - begin, begin))
    skipped = piece.start // BLOCK_BYTES
    for block in range(number, last):
        at, place = block * BLOCK_BYTES - begin, (block - skipped) * DIGEST_BYTES
        if crc32c(data[at : at + BLOCK_BYTES]) != int.from_bytes(
            piece.digests[place : place + DIGEST_BYTES], "big"
        ):
            return memoryview(b"")
    return data[position - begin : stop - begin]


# An entry of an append index.
APPEND_TIMES: Final = np.dtype([("time_ms", ">i8"), ("offset", ">i4"), ("crc", ">u4")])
assert APPEND_TIMES.itemsize == append_index.ENTRY_BYTES


def append_times(data: Any) -> tuple[Any, Any, Any]:
    """Decode an append index into arrays: times in ms, relative offsets, and whether each time is a bound."""
    found = np.frombuffer(data, APPEND_TIMES)
    offsets = found["offset"].astype(np.int64)
    is_bound = offsets < 0  # stored as -1 - offset
    return found["time_ms"].astype(np.int64), np.where(is_bound, -1 - offsets, offsets), is_bound


class _AppendTimes:
    """Looks up the append times of batches with increasing offsets."""

    def __init__(self, data: bytes) -> None:
        times_ms, offsets, is_bound = append_times(data)
        self._times: list[int] = times_ms.tolist()
        self._offsets: list[int] = offsets.tolist()
        self._is_bound: list[bool] = is_bound.tolist()
        self._number = 0

    def at(self, relative_offset: int) -> tuple[int, bool]:
        """Return the append time in ms of the batch at an offset, and whether it is a bound. Offsets must increase."""
        offsets, number = self._offsets, self._number
        if not offsets:
            return NO_TIMESTAMP, False
        while number + 1 < len(offsets) and offsets[number + 1] <= relative_offset:
            number += 1
        self._number = number
        return self._times[number], self._is_bound[number]


class _Undated:
    """The batches of a piece that are left out for their unknown append time. Each range is reported once."""

    def __init__(self, piece: Piece, bad: Bad) -> None:
        self._piece, self._bad = piece, bad
        self._reported: set[Undated] = set()

    def has(self, offset: int) -> bool:
        """Return whether the batch that begins with an offset is one of them."""
        for each in self._piece.undated:
            if each.start <= offset < each.end:
                if each not in self._reported:
                    self._reported.add(each)
                    self._bad(self._piece.index_path, each.position, held(b""), each.what)
                return True
        return False
