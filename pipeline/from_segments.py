"""What is read of a topic from the files of its log: the pieces, and the rows of each.

Owns the way from options and predicates to a window, and from a piece to batches of Arrow's. Where in the files that
is, `segments` knows.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from tidelog.pipeline import quarantine, segments
from tidelog.pipeline.decode import Decoder
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.heads import Heads
from tidelog.pipeline.options import Options
from tidelog.pipeline.pushdown import Wanted
from tidelog.pipeline.segments import Piece
from tidelog.pipeline.wanted import chosen_partitions, window_of
from tidelog.protocol.records.errors import RecordError, RecordsError
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.sources import PATIENT


def plan(chosen: Options, found: Wanted, now_ms: int) -> list[Piece]:
    """Return pieces that have every record that is wanted, in the order of partitions and offsets."""
    partitions = chosen_partitions(chosen, found, _partitions(chosen))
    window = window_of(chosen, found)
    logs = segments.logs(Path(chosen.place), chosen.topic, partitions, now_ms)
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


def between(chosen: Options, ranges: Mapping[int, tuple[int, int]], now_ms: int) -> list[Piece]:
    """Return pieces that have every record of ranges of offsets, by partition, that the options leave."""
    window = window_of(chosen, Wanted())
    pieces: list[Piece] = []
    for log in segments.logs(Path(chosen.place), chosen.topic, ranges, now_ms):
        start, end = ranges[log.partition]
        pieces += segments.plan(log, window._replace(start=start, end=end), chosen.task_bytes)
    return pieces


def heads(chosen: Options, now_ms: int) -> Heads:
    """Return where the partitions that are read begin and end now."""
    found = list(_logs(chosen, now_ms))
    topic_id = found[0].topic_id if found else None
    return Heads(
        topic_id.hex() if topic_id else "",
        {log.partition: (log.log_start_offset, log.log_end_offset) for log in found},
    )


def first_offsets(chosen: Options, found: Heads, now_ms: int) -> dict[int, int]:
    """Return where to begin in each partition, so that no record from the time of option `from` on is left out."""
    window = window_of(chosen, Wanted())
    firsts: dict[int, int] = {}
    for log in segments.logs(Path(chosen.place), chosen.topic, found.spans, now_ms):
        firsts[log.partition], end = found.spans[log.partition]
        for times, timeline in ((window.create, RECORD_TIME), (window.append, APPEND_TIME)):
            if times is not None:
                first = by_time.first_at_or_after(log, times[0], timeline, PATIENT)
                offset = end if first is None else min(first.offset, end)
                firsts[log.partition] = max(firsts[log.partition], offset)
    return firsts


def _logs(chosen: Options, now_ms: int) -> Iterator[Log]:
    """Yield the logs that are read."""
    partitions = chosen_partitions(chosen, Wanted(), _partitions(chosen))
    return segments.logs(Path(chosen.place), chosen.topic, partitions, now_ms)


def _partitions(chosen: Options) -> list[int]:
    there = segments.topics(Path(chosen.place))
    if chosen.topic not in there:
        raise PipelineError(
            f"{chosen.place}: no topic {chosen.topic} is in it; there are: {', '.join(there) or 'none'}"
        )
    return there[chosen.topic]
