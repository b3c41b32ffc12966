"""What a task of Spark's is handed, and where the records it reads come from."""

from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.options import Options

# Each has `plan(options, wanted, now_ms)`, which returns pieces, `rows(piece, names, options)`, and `let_go(pieces)` of
# those that are not read; and for streams `heads(options, now_ms)`, `first_offsets(options, heads, now_ms)` and
# `between(options, ranges, now_ms)`.
KINDS: Final[dict[str, ModuleType]] = {"segments": from_segments, "broker": from_broker}


class Task(InputPartition):
    """Pieces that one task reads, one after another."""

    def __init__(self, pieces: tuple[Any, ...]) -> None:
        self.pieces = pieces

    def rows(self, names: Sequence[str], chosen: Options) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of its pieces, and let go of all of them, though it is stopped early."""
        kind = KINDS[chosen.kind]
        try:
            for piece in self.pieces:
                yield from kind.rows(piece, names, chosen)
        finally:
            kind.let_go(self.pieces)
