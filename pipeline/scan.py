"""What a scan would read: segments kept and pruned, bytes, tasks, and of how many records at most.

Owns the counting, which a dry run prints and progress is measured by. It plans as a read does, and makes nothing.
"""

from pathlib import Path
from typing import Any, NamedTuple

from tidelog.pipeline import segments
from tidelog.pipeline.options import Options
from tidelog.pipeline.segments import Piece
from tidelog.pipeline.source import Reader, Task
from tidelog.storage.log_names import bases_in


class Scan(NamedTuple):
    """How much a scan reads; None where the source cannot tell before it reads."""

    segments: int | None
    pruned: int | None
    bytes: int | None
    tasks: int
    records_at_most: int | None

    @property
    def words(self) -> str:
        """Say it in a line."""
        told = [f"{self.tasks:,} tasks"]
        if self.segments is not None:
            told = [
                f"{self.segments:,} segments kept",
                f"{self.pruned:,} pruned",
                f"{self.bytes:,} bytes",
                *told,
            ]
        if self.records_at_most is not None:
            told.append(f"{self.records_at_most:,} records at most")
        return ", ".join(told)


def scan(chosen: Options) -> Scan:
    """Return how much a scan would read; PipelineError as the read itself."""
    tasks = [task for task in Reader(chosen, ("offset",)).partitions() if isinstance(task, Task)]
    pieces: list[Any] = [piece for task in tasks for piece in task.pieces]
    count = sum(bool(task.pieces) for task in tasks)
    if chosen.kind != "segments":
        return Scan(None, None, None, count, None)
    kept = {(piece.folder, piece.base_offset) for piece in pieces}
    return Scan(
        len(kept),
        _segment_count(chosen) - len(kept),
        sum(piece.size_bytes for piece in pieces),
        count,
        _records_at_most(pieces),
    )


def _segment_count(chosen: Options) -> int:
    data_dir = Path(chosen.place)
    there = segments.topics(data_dir)[chosen.topic]
    wanted = [each for each in there if chosen.partitions is None or each in chosen.partitions]
    return sum(len(bases_in(data_dir / f"{chosen.topic}-{partition}")) for partition in wanted)


def _records_at_most(pieces: list[Piece]) -> int:
    """Return how many offsets lie between the first and the last that are wanted, of all partitions."""
    windows = {piece.partition: piece.window for piece in pieces}
    return sum(window.end - window.start for window in windows.values())
