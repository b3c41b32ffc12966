"""What is read of a topic from the files of its log: the pieces, and the rows of each.

Owns the way from options and predicates to a window, from a place to the logs in it, and from a piece to batches of
Arrow's. Where in the files that is, `segments` knows; how their bytes are read, `pieces`.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline import listings, pieces, quarantine, remote, segments, snapshot
from tidelog.pipeline.decode import Decoder, Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.listings import Listing
from tidelog.pipeline.lost import Known
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.pieces import Piece
from tidelog.pipeline.pushdown import LEAST, MOST, Bounds, Wanted
from tidelog.pipeline.quarantine import Bad
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.storage import files, read_only
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.log_manager import CLEAN_SHUTDOWN, LOG_STARTS, RECOVERY_POINTS
from tidelog.storage.log_names import partition_of


class Opened(NamedTuple):
    """A log as it is now, what its data folder tells of it, and the URI of the store that it lies in, or nothing."""

    log: Log
    known: Known
    root: str


def plan(chosen: Options, found: Wanted, now_ms: int, *, keep: bool = True) -> list[Piece] | list[Listing]:
    """Return pieces that have every record that is wanted, in the order of partitions and offsets.

    Their files are kept from retention until they are read, unless that is not to be: a dry run makes nothing.
    """
    window = window_of(chosen, found)
    if chosen.table == "segments":
        with opened(chosen, found, now_ms) as logs:
            return [listings.segments_of(log, root, window) for log, _, root in logs]
    made: list[Piece] = []
    with opened(chosen, found, now_ms) as logs:
        for log, known, root in logs:
            try:
                planned = list(segments.plan(log, window, chosen.task_bytes, known))
            except StorageError as error:
                raise PipelineError(f"{log}: {error}") from error
            made += [_placed(piece, root) for piece in planned]
        return snapshot.taken(made, now_ms) if keep else made


def _placed(piece: Piece, root: str) -> Piece:
    """Return a piece that names its folder in a store, where its log lies in one."""
    return piece._replace(root=root, folder=f"{piece.topic}-{piece.partition}") if root else piece


@contextmanager
def opened(chosen: Options, found: Wanted, now_ms: int) -> Iterator[Iterator[Opened]]:
    """Yield the logs that are to be read. PipelineError where there are none, or one cannot be opened."""
    place = chosen.place
    if remote.is_remote(place):
        names: Iterable[str] = remote.folders(place)
    else:
        try:
            names = [name for name, is_folder in files.list_folder(Path(place)) if is_folder]
        except OSError as error:
            raise PipelineError(
                f"{place}: {error.strerror}; name the data folder of a broker in segments:FOLDER"
            ) from None
    there = _topics(names)
    if chosen.topic not in there:
        raise PipelineError(
            f"{remote.shown(place) if remote.is_remote(place) else place}: no topic {chosen.topic} is in it; there "
            f"are: {', '.join(there) or 'none'}"
        )
    partitions = chosen_partitions(chosen, found, there[chosen.topic])
    if not remote.is_remote(place):
        yield _logs(Path(place), chosen.topic, partitions, now_ms, "")
        return
    with tempfile.TemporaryDirectory(prefix="tidelog-") as fetched:
        remote.fetch(place, "", Path(fetched))
        for partition in partitions:
            name = f"{chosen.topic}-{partition}"
            remote.fetch(place, name, Path(fetched, name))
        yield _logs(Path(fetched), chosen.topic, partitions, now_ms, place)


def _topics(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of every topic that has a folder."""
    found: dict[str, list[int]] = {}
    for name in names:
        named = partition_of(name)
        if named is not None:
            found.setdefault(named[0], []).append(named[1])
    return {topic: sorted(partitions) for topic, partitions in sorted(found.items())}


def _logs(data_dir: Path, topic: str, partitions: Iterable[int], now_ms: int, root: str) -> Iterator[Opened]:
    starts, points = load_offsets(data_dir / LOG_STARTS), load_offsets(data_dir / RECOVERY_POINTS)
    is_clean = files.status(data_dir / CLEAN_SHUTDOWN) is not None
    for partition in partitions:
        folder = data_dir / f"{topic}-{partition}"
        start = starts.get((topic, partition), 0)
        opener = partial(_open_remote, root) if root else read_only.opened
        try:
            log = read_only.load(folder, topic, partition, TopicConfig(), start, now_ms, opener)
        except (StorageError, OSError) as error:
            raise PipelineError(f"{folder}: the log cannot be opened: {error}") from error
        yield Opened(log, Known(points.get((topic, partition), 0), start if is_clean else 0), root)


def _open_remote(root: str, path: Path) -> files.File:
    return remote.open_file(root, Path(path.parent.name, path.name))


def rows(piece: Piece | Listing, names: Sequence[str], chosen: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece, and let go of its files."""
    if isinstance(piece, Listing):
        yield from listings.rows_of(piece, names)
        return
    bad = quarantine.handler(chosen.bad, chosen.quarantine, piece.topic, piece.partition)
    try:
        made = _records if chosen.table == "records" else listings.batches_of
        yield from made(piece, names, bad)
    finally:
        snapshot.let_go(piece)


def _records(piece: Piece, names: Sequence[str], bad: Bad) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(piece.topic, piece.partition, names, piece.window)
    for found in pieces.batches(piece, bad):
        if decoder.is_better_taken(found.data):
            yield from decoder.take()
        try:
            decoder.add(found.data, found.at, found.header, found.append_ms)
        except (RecordsError, RecordError) as error:
            data = bytes(found.data[found.at :][: found.header.size_bytes])
            bad(piece.path, found.position, data, str(error))
        if decoder.is_full:
            yield from decoder.take()
    yield from decoder.take()


def chosen_partitions(chosen: Options, found: Wanted, there: list[int]) -> list[int]:
    """Return the partitions that are read, of those that are there."""
    named = chosen.partitions
    if named is not None and not named <= set(there):
        missing = min(named - set(there))
        raise PipelineError(f"option partitions: {chosen.topic} has no partition {missing}; it has {there}")
    pushed = found.partitions
    return [each for each in there if (named is None or each in named) and (pushed is None or each in pushed)]


def window_of(chosen: Options, found: Wanted) -> Window:
    """Return what options and predicates leave together. A record without a time is in no range of times."""
    first = LEAST if chosen.from_ms is None else chosen.from_ms
    end = MOST if chosen.to_ms is None else chosen.to_ms
    create, append = found.create_time, found.append_time
    if chosen.clock == APPEND:
        append = append.narrowed(first, end)
    else:
        create = create.narrowed(first, end)
    return Window(max(found.offset.first, 0), found.offset.end, _times(create), _times(append))


def _times(bounds: Bounds) -> tuple[int, int] | None:
    return None if bounds == Bounds() else (max(bounds.first, 0), bounds.end)
