"""Reading a topic from the files of its logs: options become pieces, and a piece becomes Arrow batches.

This module opens the logs in a place. `segments` plans which bytes to read, and `pieces` reads them.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa

from tidelog.config.nearest import nearest
from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline import quarantine
from tidelog.pipeline.decode import Decoder, Window
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.pipeline.files import listings, pieces, remote, segments, snapshot
from tidelog.pipeline.files.listings import Listing
from tidelog.pipeline.files.lost import Known
from tidelog.pipeline.files.pieces import Piece
from tidelog.pipeline.options import BATCHES_TABLE, FAIL, SEGMENTS_TABLE, Options
from tidelog.pipeline.quarantine import Bad, held
from tidelog.pipeline.ranges import TopicOffsets, chosen_partitions, window_of
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.storage import files, read_only
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.errors import CorruptLog, OffsetOutOfRange, StorageError
from tidelog.storage.layout import (
    CLEAN_SHUTDOWN,
    LOG,
    LOG_STARTS,
    RECOVERY_POINTS,
    bases_in,
    partition_of,
)
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.sources import PATIENT

P = ParamSpec("P")
T = TypeVar("T")
_NAMED: Final = 10  # topics that an error lists
_TRIES: Final = 5  # retries of a plan while retention or compaction removes segments


class Opened(NamedTuple):
    """An open log, what its data folder records about it, and the URI of its object store (empty for a folder)."""

    log: Log
    known: Known
    root: str


class Looked(NamedTuple):
    """The pieces of a read, and the number of segments in the logs."""

    pieces: list[Piece]
    segment_count: int


class _Deleted(PipelineError):
    """Retention has deleted a segment of a log since it was opened."""


def _retried(function: Callable[P, T]) -> Callable[P, T]:
    """Retry a function that opens logs if retention or compaction removes a segment while it runs."""

    @wraps(function)
    def look(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES):
            with suppress(_Deleted, snapshot.Replaced, OffsetOutOfRange):
                return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except OffsetOutOfRange as error:
            raise PipelineError(f"{error}; read it again") from error

    return look


@_retried
def plan(chosen: Options, now_ms: int) -> list[Piece] | list[Listing]:
    """Return pieces that contain every requested row, by partition and offset.

    Retention cannot delete their files until they are read.
    """
    if chosen.table != SEGMENTS_TABLE:
        return snapshot.taken(look(chosen, now_ms).pieces, now_ms)
    with wanted_logs(chosen, now_ms) as logs:
        return [listings.segments_of(log, root, window_of(chosen)) for log, _, root in logs]


@_retried
def look(chosen: Options, now_ms: int) -> Looked:
    """Return what a read would cover. Creates nothing, so retention may delete the files."""
    window = window_of(chosen)
    made: list[Piece] = []
    segment_count = 0
    with wanted_logs(chosen, now_ms) as logs:
        for each in logs:
            made += planned(each, window, chosen.task_bytes)
            segment_count += len(each.log.segments)
    _demand_dated(made, chosen)
    return Looked(made, segment_count)


@_retried
def between(chosen: Options, ranges: Mapping[int, tuple[int, int]], now_ms: int) -> list[Piece]:
    """Return pieces that contain the requested records in a range of offsets for each partition."""
    window = window_of(chosen)
    made: list[Piece] = []
    with opened(chosen.place, chosen.topic, ranges, now_ms) as logs:
        for each in logs:
            start, end = ranges[each.log.partition]
            made += planned(each, window._replace(start=start, end=end), chosen.task_bytes)
        _demand_dated(made, chosen)
        return snapshot.taken(made, now_ms)


def topic_offsets(chosen: Options, now_ms: int) -> TopicOffsets:
    """Return the current start and end of each requested partition."""
    with wanted_logs(chosen, now_ms) as logs:
        found = [log for log, _, _ in logs]
        topic_id = found[0].topic_id if found else None
    return TopicOffsets(
        topic_id.hex() if topic_id else "",
        {log.partition: (log.log_start_offset, log.log_end_offset) for log in found},
    )


@_retried
def first_offsets(chosen: Options, found: TopicOffsets, now_ms: int) -> dict[int, int]:
    """Return the offset in each partition from which on all records of option `from` and later lie."""
    window = window_of(chosen)
    firsts: dict[int, int] = {}
    with opened(chosen.place, chosen.topic, found.spans, now_ms) as logs:
        for log, _, _ in logs:
            firsts[log.partition], end = found.spans[log.partition]
            for times, timeline in ((window.create, RECORD_TIME), (window.append, APPEND_TIME)):
                if times is not None:
                    try:
                        first = by_time.first_at_or_after(log, times[0], timeline, PATIENT)
                    except CorruptLog:
                        continue  # The undecodable records may be the first; the read treats them by option `bad`.
                    offset = end if first is None else min(first.offset, end)
                    firsts[log.partition] = max(firsts[log.partition], offset)
    return firsts


def planned(opened_log: Opened, window: Window, task_bytes: int) -> list[Piece]:
    """Return pieces of a log that contain every record of a window. Retention may delete their files."""
    log, known, root = opened_log
    try:
        return [
            _placed(piece, root)._replace(topic_id=log.topic_id)
            for piece in segments.plan(log, window, task_bytes, known)
        ]
    except OffsetOutOfRange as error:
        raise _Deleted(f"{log}: {error}; read it again") from error
    except StorageError as error:
        raise PipelineError(f"{log}: {error}") from error


def _demand_dated(made: Iterable[Piece], chosen: Options) -> None:
    """Raise PipelineError if batches may or may not be in the range of append times, unless `bad` leaves them out."""
    for piece in made:
        if piece.undated and chosen.bad == FAIL:
            first = piece.undated[0]
            where = f"{remote.shown(piece.root)}/{piece.index_path}" if piece.root else piece.index_path
            check = "" if piece.root else f" check it with `tidelog fsck --data-dir {chosen.place}`,"
            raise PipelineError(
                f"{where}@{first.position}: {first.what}, so they may or may not be in the range;{check} read by "
                "record time (clock=record), or leave such batches out with bad=skip"
            )


def _placed(piece: Piece, root: str) -> Piece:
    """Return a piece that names its folder in the object store, if the log is in one."""
    return piece._replace(root=root, folder=f"{piece.topic}-{piece.partition}") if root else piece


def topics(place: str) -> dict[str, list[int]]:
    """Return the partitions of each topic with a folder there; PipelineError if the place cannot be listed."""
    if remote.is_remote(place):
        return _topics(remote.folders(place))
    try:
        return _topics(name for name, is_folder in files.list_folder(Path(place)) if is_folder)
    except OSError as error:
        raise PipelineError(
            f"{place}: {error.strerror}; name the data folder of a broker in segments:FOLDER"
        ) from None


def partitions(place: str, topic: str) -> list[int]:
    """Return the partitions of a topic with a folder there; PipelineError if there is none."""
    there = topics(place)
    if topic not in there:
        names = ", ".join(list(there)[:_NAMED]) or "none"
        more = f" and {len(there) - _NAMED} more" * (len(there) > _NAMED)
        raise PipelineError(
            f"{remote.shown(place)}: no topic {topic} is in it; there are: {names}{more}{nearest(topic, there)}"
        )
    return there[topic]


def sizes(folders: Iterable[Path]) -> dict[str, int]:
    """Return the number of segments and of log bytes in partition folders, by the names that accounts use."""
    found = [files.status(folder / f"{base:020d}{LOG}") for folder in folders for base in bases_in(folder)]
    there = [each.size for each in found if each is not None]
    return {"segments": len(there), "bytes": sum(there)}


@contextmanager
def wanted_logs(chosen: Options, now_ms: int) -> Iterator[Iterator[Opened]]:
    """Yield the logs to read. DamagedLog if the folder of a partition is gone, unless `bad` goes on without it."""
    with _beside(chosen.place) as folder:
        flushed = _flushed(folder, chosen.topic)  # before the listing, which may have newer partitions
        there = partitions(chosen.place, chosen.topic)
        if chosen.bad == FAIL and chosen.partitions is None:
            for lost in sorted(flushed.keys() - set(there)):
                raise DamagedLog(
                    f"{remote.shown(chosen.place)}/{chosen.topic}-{lost}: the folder is gone, and offsets up to "
                    f"{flushed[lost] - 1} were on disk; check it with `tidelog fsck`, name the partitions that are "
                    f"left, {there}, in option partitions, or go on without it with bad=skip"
                )
        yield _logs(folder, chosen.place, chosen.topic, chosen_partitions(chosen, there), now_ms)


@contextmanager
def opened(place: str, topic: str, partitions: Iterable[int], now_ms: int) -> Iterator[Iterator[Opened]]:
    """Yield the logs of some partitions of a topic, all of which exist; PipelineError if one cannot be opened."""
    with _beside(place) as folder:
        yield _logs(folder, place, topic, partitions, now_ms)


def _flushed(folder: Path, topic: str) -> dict[int, int]:
    """Return the flushed offset that the data folder records for each partition of a topic, without zeros.

    Deleted partitions have no entry.
    """
    try:
        points = load_offsets(folder / RECOVERY_POINTS)
    except NotADirectoryError:
        return {}  # Listing the folders reports it.
    return {number: point for (name, number), point in points.items() if name == topic and point}


@contextmanager
def _beside(place: str) -> Iterator[Path]:
    """Yield a local folder with the files that lie beside the partitions' folders."""
    if not remote.is_remote(place):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="tidelog-") as fetched:
        remote.fetch(place, "", Path(fetched))
        yield Path(fetched)


def _topics(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of every topic that has a folder."""
    found: dict[str, list[int]] = {}
    for name in names:
        named = partition_of(name)
        if named is not None:
            found.setdefault(named[0], []).append(named[1])
    return {topic: sorted(partitions) for topic, partitions in sorted(found.items())}


def _logs(data_dir: Path, place: str, topic: str, partitions: Iterable[int], now_ms: int) -> Iterator[Opened]:
    """Yield logs, one after another. For an object store, the files beside each log are fetched first."""
    starts, points = load_offsets(data_dir / LOG_STARTS), load_offsets(data_dir / RECOVERY_POINTS)
    is_clean = files.status(data_dir / CLEAN_SHUTDOWN) is not None
    root = place if remote.is_remote(place) else ""
    opener = partial(_open_remote, root) if root else read_only.opened
    for partition in partitions:
        name = f"{topic}-{partition}"
        if root:
            remote.fetch(root, name, data_dir / name)
        start = starts.get((topic, partition), 0)
        where = f"{remote.shown(place)}/{name}"
        try:
            if not bases_in(data_dir / name):
                raise PipelineError(
                    f"{where}: holds no segment of a log; restore it, or name other partitions in option "
                    "partitions; if it belongs to an archive that was stopped before its first segment, run `tidelog "
                    "pipeline archive` again"
                )
            log = read_only.load(data_dir / name, topic, partition, TopicConfig(), start, now_ms, opener)
        except (StorageError, OSError) as error:
            raise PipelineError(f"{where}: the log cannot be opened: {error}") from error
        yield Opened(log, Known(points.get((topic, partition), 0), start if is_clean else 0), root)


def _open_remote(root: str, path: Path) -> files.File:
    return remote.open_file(root, Path(path.parent.name, path.name))


def rows(piece: Piece | Listing, names: Sequence[str], chosen: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece, and release its files."""
    if isinstance(piece, Listing):
        yield listings.rows_of(piece, names)
        return
    bad = quarantine.handler(chosen.bad, chosen.quarantine, piece.topic, piece.partition)
    try:
        if chosen.table == BATCHES_TABLE:
            yield from listings.batches_of(piece, names, bad)
        else:
            yield from _records(piece, names, bad)
    finally:
        release([piece])


def _records(piece: Piece, names: Sequence[str], bad: Bad) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(piece.topic, piece.partition, names, piece.window)
    for found in pieces.batches(piece, bad):
        if decoder.should_take_before(found.data):
            yield from decoder.take()
        try:
            decoder.add(found.data, found.at, found.header, found.append_ms, found.is_bound)
        except (RecordsError, RecordError) as error:
            data = bytes(found.data[found.at :][: found.header.size_bytes])
            bad(piece.path, found.position, held(data), str(error))
        if decoder.is_full:
            yield from decoder.take()
    yield from decoder.take()


def batches(piece: Piece, chosen: Options) -> Iterator[tuple[memoryview, int, BatchHeader]]:
    """Yield the batches of a piece: the bytes that hold each, its position in them, and its header."""
    bad = quarantine.handler(chosen.bad, chosen.quarantine, piece.topic, piece.partition)
    for found in pieces.batches(piece, bad):
        yield found.data, found.at, found.header


def release(planned: Iterable[Piece | Listing]) -> None:
    """Release the files of pieces, whether they were read or not."""
    snapshot.release(piece for piece in planned if isinstance(piece, Piece))
