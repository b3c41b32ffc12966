"""The tasks of a read, and the two kinds of source: files and a broker. Tasks keep the order of the planned pieces."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options

# Each module has `plan(options, now_ms)` and `between(options, ranges, now_ms)`, which return pieces,
# `rows(piece, names, options)`, `batches(piece, options)`, `release(pieces)`,
# `topic_offsets(options, now_ms)` and `first_offsets(options, topic_offsets, now_ms)`.
KINDS: Final[dict[str, ModuleType]] = {"segments": from_segments, "broker": from_broker}


# Do not split less than this: a task costs as much as decoding 30 MB.
_LEAST_BYTES: Final = 4 << 20


class Task:
    """Pieces that one task reads, one after another."""

    def __init__(self, pieces: tuple[Any, ...]) -> None:
        self.pieces = pieces

    @property
    def size_bytes(self) -> int:
        """How much it reads."""
        return sum(piece.size_bytes for piece in self.pieces)

    def rows(self, names: Sequence[str], chosen: Options) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of its pieces, and release all pieces, even if it is closed early."""
        kind = KINDS[chosen.kind]
        try:
            for piece in self.pieces:
                yield from kind.rows(piece, names, chosen)
        finally:
            kind.release(self.pieces)


@contextmanager
def planned(chosen: Options) -> Iterator[list[Task]]:
    """Plan a read, and yield its tasks; in the end, release what was not read."""
    tasks = plan(chosen)
    try:
        yield tasks
    finally:
        KINDS[chosen.kind].release([piece for task in tasks for piece in task.pieces])


def plan(chosen: Options) -> list[Task]:
    """Return the tasks of a read. Retention cannot delete their files until they are read."""
    pieces = KINDS[chosen.kind].plan(chosen, now_ms())
    if chosen.max_records is not None:
        return [Task(tuple(pieces))]  # Only a single task can count all rows.
    return packed(pieces, chosen.task_bytes)


def packed(pieces: Sequence[Any], task_bytes: int) -> list[Task]:
    """Pack pieces, in order, into tasks of at most `task_bytes`; a larger piece is a task alone.

    Tasks are smaller if there would otherwise be fewer than cores. The cores of the driver count.
    """
    left = sum(piece.size_bytes for piece in pieces)
    count = max(-(-left // task_bytes), min(os.cpu_count() or 1, left // _LEAST_BYTES), 1)
    packs: list[list[Any]] = []
    held = 0
    for piece in pieces:
        size = piece.size_bytes
        # Tasks get equal shares: the remaining bytes are divided among the remaining tasks.
        if not packs or held + size > task_bytes or held + size / 2 > left / count:
            count, left, held = max(count - bool(packs), 1), left - held, 0
            packs.append([])
        packs[-1].append(piece)
        held += size
    return [Task(tuple(pack)) for pack in packs]
