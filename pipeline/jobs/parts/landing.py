"""Rows into files of Parquet: written aside by tasks, then put in place together.

A job that was killed, or is run again, replaces what it wrote before. With a column `by`, each file has one value of
it: it lies in a folder `by=VALUE`, as in Hive, and leaves the column out.

Tasks write through Arrow to any `Place`, and report what they wrote: only that is put in place, so a task that Spark
runs twice leaves nothing double. Readers skip staged files: the folder begins with `_`, for readers of folders (Spark,
Hive, pyarrow), and the files do not end in `.parquet`, for globs.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.transforms.decoding import DECODED
from tidelog.storage import pins

# Rows of a row group: some MB, so that readers can leave out what they do not need.
GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
_FORMAT: Final = "tidelog-landing"
_STAGED: Final = "_staged-"
_ABANDONED_MS: Final = 24 * 3600 * 1000
# Beside the files, once all of them are there: which they are.
_LIST: Final = "landed.json"
_PARTED: Final = re.compile(r"[A-Za-z]\w*=.*")
# Where rows are that have no value.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# The name of an empty file says how many rows are in a group that was just written: what progress counts.
_DONE: Final = re.compile(r".*-(\d+)\.rows")


class Landed(NamedTuple):
    """A file that a task wrote."""

    name: str
    task: int
    rows: int
    bytes: int
    newest_ms: int | None  # the largest create time
    undecoded: int = 0  # values of which column `decoded` has nothing


class _Message(WriterCommitMessage):
    def __init__(self, landed: list[Landed]) -> None:
        self.landed = landed


class _Landing(DataSource):
    """This way to write, as a data source of Spark; rows keep their columns."""

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
        self._by = options.get("by", "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId():05d}-{context.taskAttemptId()}.staged"
        staged = Place(self._place.uri, self._place.under(self._folder))
        return _Message(_written(iterator, staged, name, context.partitionId(), self._by))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note which files count."""
        landed = [each for message in messages if isinstance(message, _Message) for each in message.landed]
        self._place.write(f"{self._folder}/{_LIST}", [json.dumps(landed).encode()])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what is there to `discard`."""


def own_folder() -> str:
    """Return the name of a folder for what this process stages; no other process has it."""
    return f"{_STAGED}{pins.process_of(os.getpid())}"


def clear_left(place: Place, now_ms: int) -> list[str]:
    """Remove what processes have staged that were killed, and return their folders' names.

    Of a process on another machine nobody knows: what it staged goes when it has not changed for a day.
    """
    found = place.files.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    left = [
        each.base_name
        for each in found
        if each.type == fs.FileType.Directory
        and each.base_name.startswith(_STAGED)
        and (
            pins.has_ended(each.base_name.removeprefix(_STAGED))
            or _unchanged_ms(place, each, now_ms) > _ABANDONED_MS
        )
    ]
    for name in left:
        discard(place, name)
    return left


def _unchanged_ms(place: Place, folder: fs.FileInfo, now_ms: int) -> int:
    """Return for how long nothing in a folder has changed; 0 where nothing tells, as in an object store."""
    inside = place.files.get_file_info(fs.FileSelector(folder.path, allow_not_found=True, recursive=True))
    changed_ns = [each.mtime_ns for each in (folder, *inside) if each.mtime_ns is not None]
    return now_ms - max(changed_ns, default=now_ms * 1_000_000) // 1_000_000


def stage(frame: DataFrame, place: Place, folder: str, by: Sequence[str] = ()) -> list[Landed]:
    """Write the rows to a folder in a place: a file for each task that has any, and for each value of a column `by`."""
    place.files.create_dir(place.under(folder), recursive=True)
    frame.sparkSession.dataSource.register(_Landing)
    options = {"uri": place.uri, "path": place.path, "folder": folder, "by": "".join(by)}
    frame.write.format(_FORMAT).options(**options).mode("append").save()
    with place.files.open_input_stream(place.under(f"{folder}/{_LIST}")) as listing:
        return [Landed(*each) for each in json.loads(listing.read())]


@contextmanager
def staged(
    frame: DataFrame, place: Place, folder: str, by: Sequence[str] = ()
) -> Iterator[tuple[str, list[Landed]]]:
    """Yield a folder of rows and its files; it is removed at the end, and so is what a killed attempt left in it."""
    discard(place, folder)
    try:
        yield folder, stage(frame, place, folder, by)
    finally:
        discard(place, folder)


def rows_staged(place: Place, folder: str) -> int:
    """Return how many rows are written so far, those of tasks that failed too."""
    found = map(_DONE.fullmatch, Place(place.uri, place.under(folder)).names(""))
    return sum(int(each[1]) for each in found if each is not None)


class _File:
    """A file that a task is at."""

    def __init__(self, place: Place, name: str, schema: pa.Schema) -> None:
        folder = name.rpartition("/")[0]
        if folder:
            place.files.create_dir(place.under(folder), recursive=True)
        self._place, self._name = place, name
        self._rows = self._undecoded = 0
        self._newest_ms: int | None = None
        self._writer = pq.ParquetWriter(place.under(name), schema, filesystem=place.files, compression="zstd")

    def add(self, group: pa.Table) -> None:
        """Write rows."""
        self._writer.write_table(group)
        self._rows += group.num_rows
        if {"value", DECODED} <= set(group.column_names):
            has_none = pc.and_(pc.is_valid(group["value"]), pc.is_null(group[DECODED]))
            self._undecoded += pc.sum(has_none).as_py()
        if "create_time" in group.column_names:
            latest_us = pc.max(group["create_time"].cast("int64")).as_py()
            known = [each for each in (self._newest_ms, latest_us and latest_us // 1000) if each is not None]
            self._newest_ms = max(known, default=None)

    def landed(self, task: int) -> Landed:
        """Return what was written; nothing is added any more."""
        self._writer.close()
        size = self._place.files.get_file_info(self._place.under(self._name)).size
        return Landed(self._name, task, self._rows, size, self._newest_ms, self._undecoded)


def _written(batches: Iterator[pa.RecordBatch], staged: Place, name: str, task: int, by: str) -> list[Landed]:
    """Write the files of a task, and return them."""
    found: dict[str, _File] = {}
    rows = 0
    for group in _groups(batches):
        for folder, part in _parts(group, by):
            if folder not in found:
                found[folder] = _File(staged, f"{folder}{name}", part.schema)
            found[folder].add(part)
        staged.files.open_output_stream(staged.under(f"{name}-{rows}-{group.num_rows}.rows")).close()
        rows += group.num_rows
    return [each.landed(task) for each in found.values()]


def _parts(group: pa.Table, by: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each value of a column, and the folder that they belong into."""
    if not by:
        yield "", group
        return
    rest = group.drop_columns([by])
    for value in pc.unique(group[by]):
        is_one = pc.equal(group[by], value) if value.is_valid else pc.is_null(group[by])
        yield f"{by}={value.as_py() if value.is_valid else _NULL}/", rest.filter(is_one)


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


def files_of(place: Place, prefix: str) -> set[str]:
    """Return the files of a table whose names begin with a prefix: as paths in the table, of folders by value too."""
    folders = [
        each.base_name
        for each in place.files.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
        if each.type == fs.FileType.Directory and _PARTED.fullmatch(each.base_name)
    ]
    found = {name for name in place.names(prefix) if name.endswith(".parquet")}
    for folder in folders:
        inside = Place(place.uri, place.under(folder)).names(prefix)
        found |= {f"{folder}/{name}" for name in inside if name.endswith(".parquet")}
    return found


def put(
    place: Place, folder: str, landed: Sequence[Landed], prefix: str, *, is_new: bool = False
) -> list[str]:
    """Put staged files in place under names that begin with a prefix; others with that prefix go.

    The new come first, under unused numbers: a run that is stopped in between leaves rows twice until it is run again,
    and loses none. If the prefix `is_new`, there are no others to look for.
    """
    named = re.compile(rf"(?:[^/]+/)?{re.escape(prefix)}-(\d+)\.parquet")
    there = () if is_new else map(named.fullmatch, files_of(place, prefix))
    old = {found[0]: int(found[1]) for found in there if found is not None}
    first = 0 if min(old.values(), default=len(landed)) >= len(landed) else max(old.values()) + 1
    names = []
    for number, each in enumerate(sorted(landed, key=lambda each: (each.task, each.name)), first):
        parted = each.name.rpartition("/")[0]
        if parted:
            place.files.create_dir(place.under(parted), recursive=True)
        name = f"{parted}/{prefix}-{number:05d}.parquet".removeprefix("/")
        place.files.move(place.under(f"{folder}/{each.name}"), place.under(name))
        names.append(name)
    for name in old:
        place.files.delete_file(place.under(name))
    return names


def discard(place: Place, folder: str) -> None:
    """Remove what is staged, if there is something."""
    if place.files.get_file_info(place.under(folder)).type.name == "Directory":
        place.files.delete_dir(place.under(folder))
