"""What a task of Spark's is handed, and where the records it reads come from."""

from types import ModuleType
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.files import from_segments

# Each has `plan(options, wanted, now_ms)`, which returns pieces, and `rows(piece, names, options)`; and for streams
# `heads(options, now_ms)`, `first_offsets(options, heads, now_ms)` and `between(options, ranges, now_ms)`.
KINDS: Final[dict[str, ModuleType]] = {"segments": from_segments, "broker": from_broker}


class Task(InputPartition):
    """Pieces that one task reads, one after another."""

    def __init__(self, pieces: tuple[Any, ...]) -> None:
        self.pieces = pieces
