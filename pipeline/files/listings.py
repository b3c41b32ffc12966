"""The tables `batches` and `segments`: what a log is made of, without reading its records.

A batch is in a range of times if its largest time is; a segment, if a record of it may be. Damage of a segment is shown
as far as it is known before its bytes are read; `tidelog fsck` reads them all.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidelog.pipeline.decode import BATCH_BYTES_MAX, ROWS, Window, timestamps
from tidelog.pipeline.files import lost, pieces, remote
from tidelog.pipeline.files.pieces import Found, Piece
from tidelog.pipeline.files.segments import judging
from tidelog.pipeline.quarantine import Bad
from tidelog.pipeline.tables import BATCHES, SEGMENTS
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP
from tidelog.protocol.records.compression import NAMES
from tidelog.storage import files
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log
from tidelog.storage.minima import BEYOND, UNKNOWN


class Listing(NamedTuple):
    """Rows of the table `segments`."""

    rows: tuple[dict[str, Any], ...]
    size_bytes: int = 0  # of logs, which a task does not read for it


def segments_of(log: Log, root: str, window: Window) -> Listing:
    """Return a row for each segment of a log that may have records of a window's times; `root` is its store."""
    found: list[dict[str, Any]] = []
    for number in range(len(log.segments)):
        found += judging(log, lambda number=number: _segment(log, number, root, window))  # type: ignore[misc]
    return Listing(tuple(found))


def _segment(log: Log, number: int, root: str, window: Window) -> list[dict[str, Any]]:
    segment = log.segments[number]
    summary = segment.summary
    damage = lost.damage(log, number)
    if (segment.size and not lost.is_of(segment, summary, window)) and not damage:
        return []
    path = segment.path(LOG)
    status = files.status(path)
    is_counted = not segment.is_known_by_index
    return [
        {
            "topic": log.topic,
            "partition": log.partition,
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset,
            "file": f"{remote.shown(root)}/{path.parent.name}/{path.name}" if root else str(path),
            "bytes": segment.size if status is None else status.size,
            "min_timestamp": _known(summary.min_timestamp, UNKNOWN, BEYOND),
            "max_timestamp": _known(summary.max_timestamp),
            "first_append_time": _known(summary.first_append_ms),
            "last_append_time": _known(summary.last_append_ms) if summary.batch_count else None,
            "records": summary.record_count if is_counted else None,
            "batches": summary.batch_count if is_counted else None,
            "damage": [each._asdict() for each in damage],
            "is_active": number + 1 == len(log.segments),
        }
    ]


def _known(time_ms: int, *unknown: int) -> int | None:
    return None if time_ms in (NO_TIMESTAMP, *unknown) else time_ms


def rows_of(listing: Listing, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a listing."""
    columns = {name: [row[name] for row in listing.rows] for name in names}
    yield _batch(SEGMENTS, names, columns)


def _batch(table: pa.Schema, names: Sequence[str], columns: dict[str, list[Any]]) -> pa.RecordBatch:
    schema = pa.schema([table.field(name) for name in names])
    made = [
        timestamps(columns[field.name])
        if pa.types.is_timestamp(field.type)
        else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.record_batch(made, schema=schema)


# Columns of a batch that are not fields of its header.
_CELLS: Final[dict[str, Callable[[Piece, Found], Any]]] = {
    "topic": lambda piece, _: piece.topic,
    "partition": lambda piece, _: piece.partition,
    "position": lambda _, found: found.position,
    "file": lambda piece, _: f"{remote.shown(piece.root)}/{piece.path}" if piece.root else str(piece.path),
    "codec": lambda _, found: codec_name(found.header.codec),
    "first_timestamp": lambda _, found: _known(found.header.base_timestamp),
    "max_timestamp": lambda _, found: _known(found.header.max_timestamp),
    "append_time": lambda _, found: _known(found.append_ms),
}
_FIELDS: Final = {"bytes": "size_bytes", "records": "record_count"}


def _cell(name: str) -> Callable[[Piece, Found], Any]:
    field = _FIELDS.get(name, name)
    return _CELLS.get(name) or (lambda _, found: getattr(found.header, field))


def codec_name(codec: int) -> str:
    """Return what a codec is called; its number, if there is none of it."""
    return NAMES[codec] if codec < len(NAMES) else str(codec)


def batches_of(piece: Piece, names: Sequence[str], bad: Bad) -> Iterator[pa.RecordBatch]:
    """Yield a row for each batch of a piece that is of its window."""
    cells = [_cell(name) for name in names]
    columns: list[list[Any]] = [[] for _ in names]
    count = 0
    for each in pieces.batches(piece, bad):
        # What a wrapper of the older formats holds is known once it is opened.
        found = each._replace(header=entries.read(each.data, each.at, BATCH_BYTES_MAX))
        if not _is_of(found, piece.window):
            continue
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell(piece, found))
        count += 1
        if count == ROWS:
            yield _batch(BATCHES, names, dict(zip(names, columns, strict=True)))
            columns, count = [[] for _ in names], 0
    yield _batch(BATCHES, names, dict(zip(names, columns, strict=True)))


def _is_of(found: Found, window: Window) -> bool:
    header = found.header
    if header.last_offset < window.start or header.base_offset >= window.end:
        return False
    if window.create is not None and not window.create[0] <= header.max_timestamp < window.create[1]:
        return False
    return window.append is None or window.append[0] <= found.append_ms < window.append[1]
