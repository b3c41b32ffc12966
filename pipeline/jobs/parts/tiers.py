"""Tiers: places that should have the same records, such as a log, a copy of it, or a table that was written from it.

A tier is named `KIND:WHERE`. Parquet and Delta tables are read through Arrow from any `Place`, with a task for each
file. Files whose names start with `_` or `.` are not part of a table.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import dataset, fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline import tables
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import delta
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.scan import Scan, scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, FORMATS
from tidelog.pipeline.options import QUARANTINE
from tidelog.pipeline.tables import IS_BOUND
from tidelog.pipeline.transforms.windows import without_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGS: Final = ("segments", "broker")
FLAG: Final = "--against"
# These columns identify the record of a row. Other columns may be missing: they are null then.
_NEEDED: Final = ("topic", "partition", "offset", "create_time")
_FORMAT: Final = "tidelog-table-files"
_HIDDEN: Final = re.compile(r"/[_.]")


class Tier(NamedTuple):
    """A place, its kind, and the flags that a job reads it with."""

    kind: str
    where: str
    flags: JobFlags

    @property
    def name(self) -> str:
        """The name in a report, without credentials."""
        return f"{self.kind}:{remote.shown(self.where)}"

    def scan(self) -> Scan:
        """Return the size of a scan of it; PipelineError if it does not exist."""
        if self.kind in LOGS:
            return scan(self.flags.chosen())
        found = table_files(place(FLAG, self.where), self.kind)
        return Scan(None, None, sum(each.size for each in found), len(found), None)

    def read(self, spark: "SparkSession", columns: str) -> "DataFrame":
        """Return its records of the topic and range. An append time that is only a bound becomes null."""
        if self.kind in LOGS:
            return without_bounds(self.flags.read(spark, f"{columns}, {IS_BOUND} boolean"))
        chosen, table = self.flags.chosen(), place(FLAG, self.where)
        wanted = json.dumps([chosen.topic, chosen.clock, chosen.from_ms, chosen.to_ms])
        options = {"uri": table.uri, "place": table.path, "kind": self.kind, "wanted": wanted}
        spark.dataSource.register(_Tables)
        return spark.read.format(_FORMAT).options(**options).schema(columns).load()


def source(flags: JobFlags) -> Tier:
    """Return the tier that `--source` names."""
    kind, _, where = flags.source.partition(":")
    return Tier(kind, where, flags)


def named(flags: JobFlags, words: Sequence[str]) -> list[Tier]:
    """Parse the values of `--against`; WrongOption for an invalid one, or one that is named twice."""
    found: list[Tier] = []
    for number, word in enumerate(words, 1):
        kind, _, where = word.partition(":")
        if kind not in LOGS + FORMATS or not where:
            raise WrongOption(
                f"{FLAG}: {word!r} is not valid; write segments:FOLDER, broker:HOST:PORT, parquet:PATH or delta:PATH"
            )
        tier = Tier(kind, where, flags)
        if kind in LOGS:
            # Files in two places may have the same names, so each place gets its own quarantine.
            bad = f"{flags.bad}/against-{number}" if flags.bad.startswith(QUARANTINE) else flags.bad
            tier = tier._replace(flags=dataclasses.replace(flags, source=word, bad=bad))
        if tier.name in (each.name for each in (source(flags), *found)):
            raise WrongOption(f"{FLAG}: {word!r} is named twice; compare with another place")
        found.append(tier)
    return found


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
