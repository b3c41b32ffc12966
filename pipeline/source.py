"""`spark.read.format("tidelog")`: the log as a table.

Owns what Spark asks of a source: a schema, tasks, and the rows of a task as batches of Arrow's. What is in the log, and
where, `from_segments` and `from_broker` know. Only the columns of the schema that was asked for are made, so
`.schema("offset long, key binary")` costs what two columns do.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import from_segments, options, snapshot, tables
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.pieces import Piece
from tidelog.pipeline.pushdown import Wanted, wanted

NAME: Final = "tidelog"

# Each has `plan(options, wanted, now_ms)`, which returns pieces, and `rows(piece, names, options)`.
_KINDS: Final[dict[str, Any]] = {"segments": from_segments}


class Task(InputPartition):
    """Pieces that one task reads, one after another."""

    def __init__(self, pieces: tuple[Any, ...]) -> None:
        self.pieces = pieces


class TidelogSource(DataSource):
    """The log of a topic as a table."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` calls it."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the table."""
        return tables.ddl(tables.TABLES[options.parse(self.options, now_ms()).table])

    def reader(self, schema: StructType) -> "Reader":
        """Return what plans and reads a scan of some columns."""
        chosen = options.parse(self.options, now_ms())
        made = PushingReader if chosen.pushdown else Reader
        return made(chosen, tables.checked(schema, tables.TABLES[chosen.table]))


class Reader(DataSourceReader):
    """One scan."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        self._options = chosen
        self._names = names
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        pieces = _KINDS[self._options.kind].plan(self._options, self._wanted, now_ms())
        if self._options.max_records is not None:
            return [Task(tuple(pieces))]  # One after another: nobody else can tell how many rows there are.
        return [Task((piece,)) for piece in pieces] or [Task(())]

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(task, Task)
        rows_of = _KINDS[self._options.kind].rows
        left = self._options.max_records
        try:
            for piece in task.pieces:
                for rows in rows_of(piece, self._names, self._options):
                    if left is not None and rows.num_rows >= left:
                        yield rows.slice(0, left)
                        return
                    yield rows
                    left = None if left is None else left - rows.num_rows
        finally:
            for piece in task.pieces:
                if isinstance(piece, Piece):
                    snapshot.let_go(piece)


class PushingReader(Reader):
    """One scan that is narrowed by Spark's predicates.

    Spark 4.3.0 keeps the tasks of the last scan with a frame, and takes them for the next one of the same frame, with
    other predicates or none: its rows would be those of the first. So this is for frames that are used once.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  (Spark's name)
        """Narrow what is read; Spark looks at each row again."""
        self._wanted = wanted(filters)
        return filters
