"""The size of a scan: segments kept and pruned, bytes, tasks, and an upper bound of records.

It plans as a read does, and creates nothing. Dry runs print it, and progress uses its bound of records.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.files.pieces import Piece
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.tasks import packed


class Scan(NamedTuple):
    """The size of a scan; None for what is unknown before the read."""

    segments: int | None
    pruned: int | None
    bytes: int | None
    tasks: int
    records_at_most: int | None
    undated_at_most: int | None = None  # records left out because their append time is only a bound

    @property
    def words(self) -> str:
        """The scan as a line of text."""
        counts = {
            "segment kept" if self.segments == 1 else "segments kept": self.segments,
            "pruned": self.pruned,
            "byte" if self.bytes == 1 else "bytes": self.bytes,
            "task" if self.tasks == 1 else "tasks": self.tasks,
            "records at most": self.records_at_most,
            "left out at most, as their append time is unknown": self.undated_at_most or None,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count is not None)


def scan(chosen: Options) -> Scan:
    """Return the size of a scan; PipelineError like the read itself."""
    if chosen.kind != "segments":
        return Scan(None, None, None, _tasks(chosen, from_broker.plan(chosen, now_ms())), None)
    pieces, segment_count = from_segments.look(chosen, now_ms())
    kept = {(piece.folder, piece.base_offset) for piece in pieces}
    return Scan(
        len(kept),
        segment_count - len(kept),
        sum(piece.size_bytes for piece in pieces),
        _tasks(chosen, pieces),
        _records_at_most(pieces),
        _undated_at_most(pieces),
    )


def _tasks(chosen: Options, pieces: Sequence[Any]) -> int:
    return len(packed(pieces, chosen.task_bytes))


def _undated_at_most(pieces: list[Piece]) -> int:
    """Return how many offsets are left out because they may or may not be in a range of append times."""
    found = {
        (piece.partition, each.start): (piece.window, each) for piece in pieces for each in piece.undated
    }
    return sum(min(window.end, each.end) - max(window.start, each.start) for window, each in found.values())


def _records_at_most(pieces: list[Piece]) -> int:
    """Return how many offsets lie between the first and the last requested one, over all partitions."""
    windows = {piece.partition: piece.window for piece in pieces}
    return sum(window.end - window.start for window in windows.values())
