"""What is read of a topic from the files of its log: the pieces, and the rows of each.

Owns the way from options and predicates to a window, and from a piece to batches of Arrow's. Where in the files that
is, `segments` knows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from tidelog.pipeline import quarantine, segments
from tidelog.pipeline.decode import Decoder, Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.pushdown import LEAST, MOST, Bounds, Wanted
from tidelog.pipeline.segments import Piece
from tidelog.protocol.records.errors import RecordError, RecordsError


def plan(chosen: Options, found: Wanted, now_ms: int) -> list[Piece]:
    """Return pieces that have every record that is wanted, in the order of partitions and offsets."""
    data_dir = Path(chosen.place)
    there = segments.topics(data_dir)
    if chosen.topic not in there:
        raise PipelineError(
            f"{data_dir}: no topic {chosen.topic} is in it; there are: {', '.join(there) or 'none'}"
        )
    partitions = chosen_partitions(chosen, found, there[chosen.topic])
    window = window_of(chosen, found)
    logs = segments.logs(data_dir, chosen.topic, partitions, now_ms)
    return [piece for log in logs for piece in segments.plan(log, window, chosen.task_bytes)]


def rows(piece: Piece, names: Sequence[str], chosen: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
    bad = quarantine.handler(chosen.bad, chosen.quarantine, piece.topic, piece.partition)
    decoder = Decoder(piece.topic, piece.partition, names, piece.window)
    for found in segments.batches(piece, bad):
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
    """Return what options and predicates leave together."""
    first = LEAST if chosen.from_ms is None else chosen.from_ms
    end = MOST if chosen.to_ms is None else chosen.to_ms
    create, append = found.create_time, found.append_time
    if chosen.clock == APPEND:
        append = append.narrowed(first, end)
    else:
        create = create.narrowed(first, end)
    return Window(max(found.offset.first, 0), found.offset.end, _times(create), _times(append))


def _times(bounds: Bounds) -> tuple[int, int] | None:
    return None if bounds == Bounds() else (bounds.first, bounds.end)
