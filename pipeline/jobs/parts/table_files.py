"""The tables that `ingest` and `backfill` write, of Parquet or Delta, as rows for Spark to look at.

Owns which files a table has, and how the rows of a topic and a range of times are read from them: through Arrow, a task
a file, so from any `Place`. Knows nothing of who wrote them, but that files whose names begin with `_` or `.` are none
of the table's.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset, fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import tables
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs.parts import delta
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.jobs.parts.table_out import DELTA
from tidelog.pipeline.options import APPEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Without these nobody can tell which record a row is; others that are missing are null.
_NEEDED: Final = ("topic", "partition", "offset", "create_time")
_FORMAT: Final = "tidelog-table-files"
_DELTA_LOG: Final = "_delta_log"


def files(place: Place, kind: str) -> list[fs.FileInfo]:
    """Return the files that a table has now; PipelineError where none is there."""
    if kind == DELTA:
        return _delta_files(place)
    found: list[fs.FileInfo] = place.files.get_file_info(
        fs.FileSelector(place.path, allow_not_found=True, recursive=True)
    )
    parts = [(each, PurePosixPath(each.path).relative_to(place.path).parts) for each in found]
    if any(names[0] == _DELTA_LOG for _, names in parts):
        raise PipelineError(f"{place.shown}: it is a table of Delta; write {DELTA}:PATH")
    kept = [
        each
        for each, names in parts
        if each.is_file
        and each.base_name.endswith(".parquet")
        and not any(name.startswith(("_", ".")) for name in names)
    ]
    if not kept:
        raise PipelineError(
            f"{place.shown}: no file of Parquet is in it; name a folder that a job has written"
        )
    return sorted(kept, key=lambda each: each.path)


def _delta_files(place: Place) -> list[fs.FileInfo]:
    if not delta.is_table(place):
        raise PipelineError(f"{place.shown}: no table of Delta is in it; name the folder of one")
    # It refuses tables of which rows are deleted by what lies beside the files.
    found = DeltaTable(place.uri).to_pyarrow_dataset().get_fragments()
    infos: list[fs.FileInfo] = place.files.get_file_info([place.under(each.path) for each in found])
    return infos


def read(
    spark: "SparkSession", place: Place, kind: str, columns: str, wanted: Mapping[str, str]
) -> "DataFrame":
    """Return some columns of the rows of a topic and a range of times: `wanted` has options of the source."""
    spark.dataSource.register(_Tables)
    told = {name: wanted[name] for name in ("topic", "clock", "first_ms", "end_ms") if name in wanted}
    options = {**told, "uri": place.uri, "place": place.path, "kind": kind}
    return spark.read.format(_FORMAT).options(**options).schema(columns).load()


class _Tables(DataSource):
    """What Spark is told of this way to read."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return tables.ddl(tables.RECORDS)

    def reader(self, schema: StructType) -> "_Reader":
        return _Reader(dict(self.options), tables.checked(schema, tables.RECORDS))


class _File(InputPartition):
    """A file that a task reads."""

    def __init__(self, path: str) -> None:
        self.path = path


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._options = options
        self._names = list(names)
        self._place = Place(options["uri"], options["place"])

    def partitions(self) -> list[InputPartition]:
        """Return a task for each file."""
        # A table of Delta that was begun may have none: Spark then makes a task of its own.
        return [_File(each.path) for each in files(self._place, self._options["kind"])] or [_File("")]

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
                    f"{partition.path}: it has no column {missing[0]}; rows are told by {', '.join(_NEEDED)}"
                )
            yield from opened.replace_schema(tables.RECORDS).to_batches(
                columns=self._names, filter=self._predicate()
            )
        except (pa.ArrowException, OSError) as error:
            said = next(iter(str(error).splitlines()), "")
            raise PipelineError(f"{partition.path}: it cannot be read as Parquet: {said}") from error

    def _predicate(self) -> pc.Expression:
        first_ms, end_ms = (self._options.get(name) for name in ("first_ms", "end_ms"))
        return predicate(
            self._options["topic"],
            self._options["clock"],
            None if first_ms is None else int(first_ms),
            None if end_ms is None else int(end_ms),
        )


def predicate(topic: str, clock: str, first_ms: int | None, end_ms: int | None) -> pc.Expression:
    """Return what is true of the rows of a topic and range; a record without a time is in no range of times."""
    told = pc.field("topic") == topic
    time = pc.field("append_time" if clock == APPEND else "create_time")
    if first_ms is not None:
        told &= time >= _at(first_ms)
    if end_ms is not None:
        told &= time < _at(end_ms)
    return told


def _at(time_ms: int) -> pa.Scalar:
    return pa.scalar(time_ms * 1000, tables.RECORDS.field("create_time").type)
