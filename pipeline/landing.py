"""Rows into files of Parquet: written aside by tasks, then put into their place together.

Owns the names of the files and the order of the steps: what is read again, since a job was killed or is run again,
takes the place of what it wrote before. Knows nothing of jobs, nor of Delta.

Tasks write through Arrow to any place that Arrow knows (`Place`), and say what they wrote: only that is put in place,
so a task that Spark runs twice leaves nothing double.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline.place import Place

# Rows of a row group: some MB, so that readers can leave out what they do not need.
GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
_FORMAT: Final = "tidelog-landing"
# Beside the files, once all of them are there: which they are.
_LIST: Final = "landed.json"
# The name of an empty file says how many rows are in a group that was just written: what progress counts.
_DONE: Final = re.compile(r".*-(\d+)\.rows")


class Landed(NamedTuple):
    """A file that a task wrote."""

    name: str
    task: int
    rows: int
    bytes: int
    newest_ms: int | None  # the largest create time


class _Message(WriterCommitMessage):
    def __init__(self, landed: Landed | None) -> None:
        self.landed = landed


class _Landing(DataSource):
    """What Spark is told of this way to write; rows have the columns that they come with."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "_Writer":  # noqa: ARG002  (Spark calls it)
        return _Writer(self.options)


class _Writer(DataSourceArrowWriter):
    """Writes a file a task, in workers; which of them count is noted behind the last."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._place = Place(options["uri"], options["path"])
        self._folder = options["folder"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        name = f"{task:05d}-{context.taskAttemptId()}.parquet"
        rows, size, newest_ms = _written(iterator, self._place, f"{self._folder}/{name}")
        return _Message(Landed(name, task, rows, size, newest_ms) if rows else None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note which files count."""
        landed = [each.landed for each in messages if isinstance(each, _Message) and each.landed is not None]
        with self._place.files.open_output_stream(self._place.under(f"{self._folder}/{_LIST}")) as out:
            out.write(json.dumps(landed).encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what is there to `discard`."""


def stage(frame: DataFrame, place: Place, folder: str) -> list[Landed]:
    """Write the rows to a folder in a place, a file for each task that has any."""
    place.files.create_dir(place.under(folder), recursive=True)
    frame.sparkSession.dataSource.register(_Landing)
    options = {"uri": place.uri, "path": place.path, "folder": folder}
    frame.write.format(_FORMAT).options(**options).mode("append").save()
    with place.files.open_input_stream(place.under(f"{folder}/{_LIST}")) as told:
        return [Landed(*each) for each in json.loads(told.read())]


def rows_staged(place: Place, folder: str) -> int:
    """Return how many rows are written so far, those of tasks that failed too."""
    found = map(_DONE.fullmatch, Place(place.uri, place.under(folder)).names(""))
    return sum(int(each[1]) for each in found if each is not None)


def _written(batches: Iterator[pa.RecordBatch], place: Place, name: str) -> tuple[int, int, int | None]:
    """Write one file, if there are rows; return how many, its size and the largest create time."""
    files, rows = place.files, 0
    newest: list[int] = []
    writer: Any = None
    for group in _groups(batches):
        if writer is None:
            writer = pq.ParquetWriter(place.under(name), group.schema, filesystem=files, compression="zstd")
        writer.write_table(group)
        files.open_output_stream(place.under(f"{name}-{rows}-{group.num_rows}.rows")).close()
        rows += group.num_rows
        latest_us = (
            pc.max(group["create_time"].cast("int64")).as_py()
            if "create_time" in group.column_names
            else None
        )
        newest += [] if latest_us is None else [latest_us // 1000]
    if writer is None:
        return 0, 0, None
    writer.close()
    return rows, files.get_file_info(place.under(name)).size, max(newest, default=None)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows in groups of a size that is good to read."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        if (
            sum(each.num_rows for each in held) >= GROUP_ROWS
            or sum(each.nbytes for each in held) >= _GROUP_BYTES
        ):
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def put(place: Place, folder: str, landed: Sequence[Landed], prefix: str) -> list[str]:
    """Put staged files in place under names that begin with a prefix; others with that prefix go.

    The new come first: whoever is stopped in between has rows twice until it is run again, and loses none.
    """
    old = {name for name in place.names(prefix) if re.fullmatch(rf"{re.escape(prefix)}-\d+\.parquet", name)}
    names = []
    for number, each in enumerate(sorted(landed, key=lambda each: each.task)):
        name = f"{prefix}-{number:05d}.parquet"
        place.files.move(place.under(f"{folder}/{each.name}"), place.under(name))
        names.append(name)
    for name in old.difference(names):
        place.files.delete_file(place.under(name))
    return names


def discard(place: Place, folder: str) -> None:
    """Remove what is staged, if there is something."""
    if place.files.get_file_info(place.under(folder)).type.name == "Directory":
        place.files.delete_dir(place.under(folder))
