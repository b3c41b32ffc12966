"""The tables `batches` and `segments`: the structure of a log, without decoding its records.

A batch is in a range of times if its largest time is; a segment, if it may have a record in the range. The damage shown
for a segment is what is known without reading its bytes; `tidelog fsck` reads them all.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from tidelog.pipeline.decode import BATCH_BYTES_MAX, ROWS, Window, timestamps
from tidelog.pipeline.files import lost, pieces, remote
from tidelog.pipeline.files.pieces import Found, Piece
from tidelog.pipeline.files.segments import verifying
from tidelog.pipeline.quarantine import Bad
from tidelog.pipeline.tables import BATCHES, SEGMENTS
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP
from tidelog.protocol.records.compression import NAMES
from tidelog.storage import files
from tidelog.storage.layout import LOG
from tidelog.storage.log import Log
from tidelog.storage.minima import BEYOND, UNKNOWN

Row = dict[str, Any]


class Listing(NamedTuple):
    """Rows of the table `segments`. Planned like a piece, but a task reads no bytes for them."""

    rows: tuple[Row, ...]
    size_bytes: int = 0


def segments_of(log: Log, root: str = "", window: Window = Window()) -> Listing:  # noqa: B008  (immutable)
    """Return a row for each segment that may have records in a window's times; `root` is the store of the log."""
    found: list[Row] = []
    for number in range(len(log.segments)):
        found += verifying(log, partial(_segment, log, number, root, window))
    return Listing(tuple(found))


def _segment(log: Log, number: int, root: str, window: Window) -> list[Row]:
    segment = log.segments[number]
    summary = segment.summary
    damage = lost.damage(log, number)
    if segment.size and not damage and not lost.is_of(segment, summary, window):
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


def rows_of(listing: Listing, names: Sequence[str]) -> pa.RecordBatch:
    """Return the named columns of a listing."""
    return _columns(SEGMENTS, names, listing.rows)


def batches_of(piece: Piece, names: Sequence[str], bad: Bad) -> Iterator[pa.RecordBatch]:
    """Yield a row for each batch of a piece that is in its window."""
    rows: list[Row] = []
    for each in pieces.batches(piece, bad):
        # Only decompressing a wrapper of an older format tells how many messages it has.
        found = each._replace(header=entries.read(each.data, each.at, BATCH_BYTES_MAX))
        if _is_in(found, piece.window):
            rows.append(_batch(piece, found))
        if len(rows) == ROWS:
            yield _columns(BATCHES, names, rows)
            rows = []
    yield _columns(BATCHES, names, rows)


def _is_in(found: Found, window: Window) -> bool:
    header = found.header
    if header.last_offset < window.start or header.base_offset >= window.end:
        return False
    if window.create is not None and not window.create[0] <= header.max_timestamp < window.create[1]:
        return False
    return window.append is None or window.append[0] <= found.append_ms < window.append[1]


def _batch(piece: Piece, found: Found) -> Row:
    header = found.header
    return {
        "topic": piece.topic,
        "partition": piece.partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": found.position,
        "file": f"{remote.shown(piece.root)}/{piece.path}" if piece.root else str(piece.path),
        "bytes": header.size_bytes,
        "codec": NAMES[header.codec] if header.codec < len(NAMES) else str(header.codec),
        "magic": header.magic,
        "records": header.record_count,
        "first_timestamp": _known(header.base_timestamp),
        "max_timestamp": _known(header.max_timestamp),
        "append_time": _known(found.append_ms),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
    }


def _columns(table: pa.Schema, names: Sequence[str], rows: Sequence[Row]) -> pa.RecordBatch:
    schema = pa.schema([table.field(name) for name in names])
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        columns.append(
            timestamps(values) if pa.types.is_timestamp(field.type) else pa.array(values, field.type)
        )
    return pa.record_batch(columns, schema=schema)
