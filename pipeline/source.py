"""`spark.read.format("tidelog")`: the log as a table.

Spark asks for a schema, tasks, and the rows of a task as Arrow batches; `from_segments` and `from_broker` read the log.
Only the columns of the requested schema are made, so `.schema("offset long, key binary")` costs what two columns do.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import options, tables
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.stream import StreamReader
from tidelog.pipeline.tasks import KINDS, Task, packed
from tidelog.pipeline.writing import write_options
from tidelog.pipeline.writing.sink import StreamWriter, Writer

NAME: Final = "tidelog"


class TidelogSource(DataSource):
    """The log of a topic as a table."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` calls it."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the table."""
        return tables.ddl(tables.SCHEMAS[options.parse(self.options, now_ms()).table])

    def reader(self, schema: StructType) -> "Reader":
        """Return what plans and reads a scan of some columns."""
        chosen = options.parse(self.options, now_ms())
        return Reader(chosen, tables.checked(schema, tables.COLUMNS[chosen.table]))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  (Spark's name)
        """Return what plans and reads the batches of a stream of some columns."""
        chosen = options.parse(self.options, now_ms())
        return StreamReader(chosen, tables.checked(schema, tables.COLUMNS[chosen.table]))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Return what appends a frame to a topic."""
        return Writer(schema, write_options.parse(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  (Spark's name)
        """Return what appends a micro-batch of a stream to a topic."""
        return StreamWriter(schema, write_options.parse(self.options), overwrite)


class Reader(DataSourceReader):
    """One scan."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        self._options = chosen
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        pieces = KINDS[self._options.kind].plan(self._options, now_ms())
        if self._options.max_records is not None:
            return [Task(tuple(pieces))]  # Only a single task can count the rows of all pieces.
        return [*packed(pieces, self._options.task_bytes)] or [Task(())]

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(task, Task)
        left = self._options.max_records
        with closing(task.rows(self._names, self._options)) as found:
            for rows in found:
                if left is None:
                    yield rows
                    continue
                yield rows.slice(0, left)
                left -= rows.num_rows
                if left <= 0:
                    return
