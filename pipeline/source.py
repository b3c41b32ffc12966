"""`spark.read.format("tidelog")`: the log as a table.

Owns what Spark asks of a source: a schema, tasks, and the rows of a task as batches of Arrow's. What is in the log, and
where, `segments` knows. Only the columns of the schema that was asked for are made, so `.schema("offset long, key
binary")` costs what two columns do.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import options, quarantine, segments, tables
from tidelog.pipeline.decode import Decoder, Window
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import APPEND, Options
from tidelog.pipeline.pushdown import LEAST, MOST, Bounds, Wanted, wanted
from tidelog.pipeline.segments import Piece
from tidelog.protocol.records.errors import RecordError, RecordsError

NAME: Final = "tidelog"


class Task(InputPartition):
    """Pieces that one task reads, one after another."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
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
        return Reader(chosen, tables.checked(schema, tables.TABLES[chosen.table]))


class Reader(DataSourceReader):
    """One scan."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        self._options = chosen
        self._names = names
        self._wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  (Spark's name)
        """Narrow what is read; Spark looks at each row again."""
        self._wanted = wanted(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        pieces = [piece for log_pieces in self._plan() for piece in log_pieces]
        if self._options.max_records is not None:
            return [Task(tuple(pieces))]  # One after another: nobody else can tell how many rows there are.
        return [Task((piece,)) for piece in pieces] or [Task(())]

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(task, Task)
        left = self._options.max_records
        for piece in task.pieces:
            for rows in read(piece, self._names, self._options):
                if left is not None and rows.num_rows >= left:
                    yield rows.slice(0, left)
                    return
                yield rows
                left = None if left is None else left - rows.num_rows

    def _plan(self) -> Iterator[Iterator[Piece]]:
        chosen, data_dir = self._options, Path(self._options.place)
        there = segments.topics(data_dir)
        if chosen.topic not in there:
            raise PipelineError(
                f"{data_dir}: no topic {chosen.topic} is in it; there are: {', '.join(there) or 'none'}"
            )
        window = _window(chosen, self._wanted)
        for log in segments.logs(
            data_dir, chosen.topic, self._chosen_partitions(there[chosen.topic]), now_ms()
        ):
            yield segments.plan(log, window, chosen.task_bytes)

    def _chosen_partitions(self, there: list[int]) -> list[int]:
        named = self._options.partitions
        if named is not None and not named <= set(there):
            raise PipelineError(
                f"option partitions: {self._options.topic} has no partition {min(named - set(there))}; it has {there}"
            )
        pushed = self._wanted.partitions
        return [
            each for each in there if (named is None or each in named) and (pushed is None or each in pushed)
        ]


def _window(chosen: Options, found: Wanted) -> Window:
    """Return what options and predicates leave together."""
    first = LEAST if chosen.from_ms is None else chosen.from_ms
    end = MOST if chosen.to_ms is None else chosen.to_ms
    create, append = found.create_time, found.append_time
    if chosen.clock == APPEND:
        append = append.narrowed(first, end)
    else:
        create = create.narrowed(first, end)
    return Window(max(found.offset.first, 0), found.offset.end, _times(create), _times(append))


def _times(bounds: Bounds) -> tuple[int, int] | None:
    return None if bounds == Bounds() else (bounds.first, bounds.end)


def read(piece: Piece, names: tuple[str, ...], chosen: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
    bad = quarantine.handler(chosen.bad, chosen.quarantine, piece.topic, piece.partition)
    decoder = Decoder(piece.topic, piece.partition, names, piece.window)
    for found in segments.batches(piece, bad):
        try:
            decoder.add(found.data, found.at, found.header, found.append_ms)
        except (RecordsError, RecordError) as error:
            bad(
                piece.path,
                found.position,
                bytes(found.data[found.at :][: found.header.size_bytes]),
                str(error),
            )
        if decoder.is_full:
            yield from decoder.take()
    yield from decoder.take()
