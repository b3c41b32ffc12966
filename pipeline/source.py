"""`spark.read.format("tidelog")`: the log as a table.

Spark asks for a schema, for tasks, and for the rows of a task as Arrow batches; `from_segments` and `from_broker` read
the log. Only the columns of the requested schema are made, so `.schema("offset long, key binary")` costs two columns.
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
from tidelog.pipeline.tasks import Task, plan
from tidelog.pipeline.writing import write_options
from tidelog.pipeline.writing.sink import StreamWriter, Writer

NAME: Final = "tidelog"


class TidelogSource(DataSource):
    """The log of a topic as a table."""

    @classmethod
    def name(cls) -> str:
        """Return its name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the table."""
        return tables.ddl(tables.SCHEMAS[options.parse(self.options, now_ms()).table])

    def reader(self, schema: StructType) -> "Reader":
        """Return the reader of a scan."""
        chosen = options.parse(self.options, now_ms())
        return Reader(chosen, tables.checked(schema, tables.COLUMNS[chosen.table]))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of a stream."""
        chosen = options.parse(self.options, now_ms())
        return StreamReader(chosen, tables.checked(schema, tables.COLUMNS[chosen.table]))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Return the writer that appends a frame to a topic."""
        return Writer(schema, write_options.parse(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  (Spark's name)
        """Return the writer that appends the micro-batches of a stream to a topic."""
        return StreamWriter(schema, write_options.parse(self.options), overwrite)


class Reader(DataSourceReader):
    """One scan."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        self._options = chosen
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        return [InputPartition(task) for task in plan(self._options) or [Task(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        left = self._options.max_records
        with closing(partition.value.rows(self._names, self._options)) as found:
            for rows in found:
                if left is None:
                    yield rows
                    continue
                yield rows.slice(0, left)
                left -= rows.num_rows
                if left <= 0:
                    return
