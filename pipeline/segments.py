"""Reading a log from its own files: which bytes a scan takes, and what is in them.

Owns the plan (segments and positions that may hold what is wanted, cut into tasks) and the walk over the bytes of one.
The broker need not run: a folder is read as it is (`storage.read_only`), up to the last whole batch of each partition.
Knows nothing of Spark.

What is damaged is what storage says is: a batch with a wrong checksum, offsets that do not follow, a block that is not
what its summary says.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline.decode import Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.quarantine import Bad
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from tidelog.storage import append_index, files, read_only, verification
from tidelog.storage.blocks import BLOCK_BYTES, count_of
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.errors import CorruptLog
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LOG_STARTS
from tidelog.storage.log_names import partition_of
from tidelog.storage.search import by_offset, time_range
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.segment import LOG, Segment
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import DIGEST_BYTES, Damage

READ_BYTES: Final = 8 << 20


class Piece(NamedTuple):
    """What of a segment is to be read, whole batches, and what is known of it: whoever reads it needs no other file."""

    folder: str
    topic: str
    partition: int
    base_offset: int
    start: int
    end: int
    window: Window
    known_bytes: int  # how much of the segment the digests are of
    digests: bytes  # of the blocks from that of `start` on to that of `end`
    append_times: bytes  # entries of the append index, for the batches of the piece
    damage: tuple[Damage, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder) / f"{self.base_offset:020d}{LOG}"

    @property
    def size_bytes(self) -> int:
        """How much is read."""
        return self.end - self.start


def topics(data_dir: Path) -> dict[str, list[int]]:
    """Return the partitions of every topic that has a folder."""
    found: dict[str, list[int]] = {}
    for name, is_folder in files.list_folder(data_dir):
        named = partition_of(name) if is_folder else None
        if named is not None:
            found.setdefault(named[0], []).append(named[1])
    return {topic: sorted(partitions) for topic, partitions in sorted(found.items())}


def logs(data_dir: Path, topic: str, partitions: Iterable[int], now_ms: int) -> Iterator[Log]:
    """Yield the logs of a topic, as they are now."""
    starts = load_offsets(data_dir / LOG_STARTS)
    for partition in partitions:
        folder = data_dir / f"{topic}-{partition}"
        start = starts.get((topic, partition), 0)
        yield read_only.load(folder, topic, partition, TopicConfig(), start, now_ms)


def plan(log: Log, window: Window, task_bytes: int) -> Iterator[Piece]:
    """Yield pieces of a log that have every record of a window, of about so many bytes at most."""
    first, last = max(window.start, log.log_start_offset), min(window.end, log.log_end_offset)
    for times, timeline in ((window.create, RECORD_TIME), (window.append, APPEND_TIME)):
        if times is not None:
            found = time_range.between(log, *times, timeline, PATIENT)
            first, last = max(first, found.start), min(last, found.stop)
    if first >= last:
        return
    inner = window._replace(start=first, end=last)
    for segment in log.segments:
        if (
            segment.size
            and segment.base_offset < last
            and segment.next_offset > first
            and _meets(segment, window)
        ):
            for start, end in _cuts(segment, first, last, task_bytes):
                yield _piece(log, segment, start, end, inner)


def _piece(log: Log, segment: Segment, start: int, end: int, window: Window) -> Piece:
    digests = segment.digests.encode(segment.size)
    blocks = slice(start // BLOCK_BYTES * DIGEST_BYTES, count_of(end) * DIGEST_BYTES)
    entries = segment.append_index
    return Piece(
        str(log.directory),
        log.topic,
        log.partition,
        segment.base_offset,
        start,
        end,
        window,
        segment.size,
        digests[blocks],
        bytes(entries.data),
        tuple(each for each in segment.summary.damage if each.start < end and each.end > start),
    )


def _meets(segment: Segment, window: Window) -> bool:
    """Tell whether a segment may have records of these times."""
    summary = segment.summary
    if window.create is not None and not (
        summary.min_timestamp < window.create[1] and summary.max_timestamp >= window.create[0]
    ):
        return False
    return window.append is None or not (
        summary.last_append_ms < window.append[0] or summary.first_append_ms >= window.append[1]
    )


def _cuts(segment: Segment, first: int, last: int, task_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of positions, each of whole batches, that have all records of a range of offsets."""
    start = 0 if first <= segment.base_offset else _place(segment, first)[0]
    end = segment.size if last >= segment.next_offset else sum(_place(segment, last - 1))
    while end - start > task_bytes + task_bytes // 4:
        cut = segment.offset_index.position_at(start + task_bytes)
        if cut <= start:
            break
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _place(segment: Segment, offset: int) -> tuple[int, int]:
    """Return the position and the size of the batch that holds an offset, or of the damage in its place."""
    try:
        position, size, _ = by_offset.locate(segment, offset, PATIENT)
    except CorruptLog:
        damage = next(each for each in segment.summary.damage if offset < each.next_offset)
        return damage.start, damage.end - damage.start
    return position, size


class Found(NamedTuple):
    """A batch: bytes that it lies in, where in them, its header, its append time in ms, its position in the file."""

    data: memoryview
    at: int
    header: BatchHeader
    append_ms: int
    position: int


def batches(piece: Piece, bad: Bad) -> Iterator[Found]:
    """Yield each batch of a piece.

    Bytes that are damaged are handed to `bad`, and left out if that returns. PipelineError if the file is gone.
    """
    append_times = _AppendTimes(piece.append_times)
    file = _open(piece)
    position, count = piece.start, READ_BYTES
    while position < piece.end:
        damage = next((each for each in piece.damage if each.end > position), None)
        if damage is not None and damage.start <= position:
            data = file.pread(damage.end - damage.start, damage.start)
            bad(piece.path, damage.start, data, f"offsets before {damage.next_offset}")
            position = damage.end
            continue
        stop = piece.end if damage is None else min(piece.end, damage.start)
        read = _read(file, piece, position, min(stop, position + count))
        is_right, taken = bool(read), 0
        for at, header in _whole(read):
            if not entries.check_crc(read, at, header):
                is_right = False
                break
            append_ms = append_times.at(header.base_offset - piece.base_offset)
            yield Found(read, at, header, append_ms, position + at)
            taken = at + header.size_bytes
        position += taken
        if not is_right:
            piece = _judged(piece)
        # One batch may be larger than what is read at once.
        count = READ_BYTES if taken or not is_right else entries.peek(read).size_bytes


def _open(piece: Piece) -> files.File:
    try:
        return files.File(piece.path, read_only=True)
    except FileNotFoundError:
        raise PipelineError(
            f"{piece.path} is not there any more: retention has deleted it since the read was planned; read again"
        ) from None


def _whole(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch that lies whole in bytes that begin with one."""
    at = 0
    while len(data) - at >= entries.BYTES_MIN:
        header = entries.peek(data, at)
        if header.size_bytes > len(data) - at:
            return
        yield at, header
        at += header.size_bytes


def _judged(piece: Piece) -> Piece:
    """Return a piece with what storage finds damaged in it, where something is not what it was."""
    now_ms = 0  # There are no append times to be bounded: they are in the piece.
    folder = Path(piece.folder)
    segment: Segment | None = read_only.open_segment(
        folder, piece.base_offset, TopicConfig(), Shared(folder, 0), now_ms
    )
    if segment is not None and segment.unverified is not None:
        epochs = LeaderEpochs.load(folder) or LeaderEpochs(folder)
        segment = verification.judge(segment, epochs.at)
    found = () if segment is None else segment.summary.damage
    damage = tuple(each for each in found if each.start < piece.end and each.end > piece.start)
    if not damage and not piece.digests:
        raise PipelineError(f"{piece.path} has changed while it was read; read again")
    return piece._replace(damage=damage, digests=b"")


def _read(file: files.File, piece: Piece, position: int, stop: int) -> memoryview:
    """Return bytes from a position on; none if they are not what was written."""
    if not piece.digests:
        return memoryview(file.pread(stop - position, position))
    number, last = position // BLOCK_BYTES, count_of(stop)
    begin, end = number * BLOCK_BYTES, min(last * BLOCK_BYTES, piece.known_bytes)
    data = memoryview(file.pread(end - begin, begin))
    skipped = piece.start // BLOCK_BYTES
    for block in range(number, last):
        at, place = block * BLOCK_BYTES - begin, (block - skipped) * DIGEST_BYTES
        if crc32c(data[at : at + BLOCK_BYTES]) != int.from_bytes(
            piece.digests[place : place + DIGEST_BYTES], "big"
        ):
            return memoryview(b"")
    return data[position - begin : stop - begin]


class _AppendTimes:
    """When batches were appended, by their relative offsets, which rise."""

    def __init__(self, data: bytes) -> None:
        entries = list(append_index.ENTRY.iter_unpack(data))
        self._offsets = [offset if offset >= 0 else -1 - offset for _, offset, _ in entries]
        self._times = [time_ms for time_ms, _, _ in entries]

    def at(self, relative_offset: int) -> int:
        """Return when the batch that begins with an offset was appended, in ms."""
        number = bisect_right(self._offsets, relative_offset) - 1
        return self._times[max(number, 0)] if self._times else NO_TIMESTAMP
