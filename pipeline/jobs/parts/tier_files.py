"""Reads the files of a Parquet or Delta table on Spark, through Arrow from any `Place`, with a task for each file.

Files whose names start with `_` or `.` are not part of a table.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import dataset, fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import tables
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs.parts import delta
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.jobs.parts.table_out import DELTA
from tidelog.pipeline.options import Options

# These columns identify the record of a row. Other columns may be missing: they are null then.
_NEEDED: Final = ("topic", "partition", "offset", "create_time")
_FORMAT: Final = "tidelog-table-files"
_HIDDEN: Final = re.compile(r"/[_.]")


def read(spark: SparkSession, table: Place, kind: str, chosen: Options, columns: str) -> DataFrame:
    """Return the records of a topic and range that a table has, with `columns` such as "offset long"."""
    wanted = json.dumps([chosen.topic, chosen.clock, chosen.from_ms, chosen.to_ms])
    options = {"uri": table.uri, "place": table.path, "kind": kind, "wanted": wanted}
    spark.dataSource.register(_Tables)
    return spark.read.format(_FORMAT).options(**options).schema(columns).load()


def table_files(table: Place, kind: str) -> list[fs.FileInfo]:
    """Return the files that a table has now; PipelineError if there is no such table."""
    is_delta = delta.is_table(table)
    found: list[fs.FileInfo]
    if kind == DELTA:
        if not is_delta:
            raise PipelineError(f"{table.shown}: it is no Delta table; name the folder of one")
        # This refuses tables with deletion vectors.
        parts = DeltaTable(table.uri).to_pyarrow_dataset().get_fragments()
        found = table.files.get_file_info([table.under(each.path) for each in parts])
        return found
    if is_delta:
        raise PipelineError(f"{table.shown}: it is a Delta table; write {DELTA}:PATH")
    found = table.files.get_file_info(fs.FileSelector(table.path, allow_not_found=True, recursive=True))
    kept = [
        each
        for each in found
        if each.is_file and each.path.endswith(".parquet") and not _HIDDEN.search(each.path, len(table.path))
    ]
    if not kept:
        raise PipelineError(f"{table.shown}: no Parquet file is in it; name a folder that a job has written")
    return sorted(kept, key=lambda each: each.path)


class _Tables(DataSource):
    """A data source of Spark that reads the files of a table."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def reader(self, schema: StructType) -> "_Reader":
        return _Reader(dict(self.options), tables.checked(schema, tables.RECORDS))


class _File(InputPartition):
    """A file that a task reads."""

    def __init__(self, path: str) -> None:
        self.path = path


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._kind = options["kind"]
        self._wanted = options["wanted"]
        self._names = list(names)
        self._place = Place(options["uri"], options["place"])

    def partitions(self) -> list[InputPartition]:
        """Return a task for each file."""
        # A new Delta table may have no file. Spark would make a task of its own, so make one that reads nothing.
        return [_File(each.path) for each in table_files(self._place, self._kind)] or [_File("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        assert isinstance(partition, _File)
        if not partition.path:
            return
        try:
            opened = dataset.dataset(partition.path, filesystem=self._place.files, format="parquet")
            missing = sorted(set(_NEEDED) - set(opened.schema.names))
            if missing:
                raise PipelineError(
                    f"{partition.path}: it has no column {missing[0]}; rows are identified by {', '.join(_NEEDED)}"
                )
            yield from opened.replace_schema(tables.RECORDS).to_batches(
                columns=self._names, filter=delta.predicate(*json.loads(self._wanted))
            )
        except (pa.ArrowException, OSError) as error:
            reason = next(iter(str(error).splitlines()), "")
            raise PipelineError(f"{partition.path}: it cannot be read as Parquet: {reason}") from error
