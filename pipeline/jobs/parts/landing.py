"""Writes rows to Parquet files: tasks stage the files, then all are put in place together.

A job that was killed, or runs again, replaces what it wrote before. With a column `by`, each file has one value of that
column: it lies in a folder `by=VALUE`, as in Hive, and leaves the column out.

Tasks write through Arrow to any `Place` and report their files. Only reported files are put in place, so a task that
runs twice leaves no duplicates. Readers skip staged files: the name of the folder starts with `_`, which Spark,
Hive and pyarrow ignore, and the names of the files do not end in `.parquet`, so globs do not match them.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.transforms.columns import DECODED
from tidelog.storage import pins

# Rows of a row group: some MB, so that readers can skip row groups.
GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
_STAGED: Final = "_staged-"
_ABANDONED_MS: Final = 24 * 3600 * 1000
_PARTED: Final = re.compile(r"[A-Za-z]\w*=.*")
# The value in the folder name of rows with null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# An empty file for each row group that was written, with the number of its rows in the name: progress counts them.
_DONE: Final = re.compile(r".*-(\d+)\.rows")


class Landed(NamedTuple):
    """A staged file."""

    name: str
    task: int
    rows: int
    bytes: int
    newest_ms: int | None  # the largest create time
    undecoded: int = 0  # values that could not be decoded


def own_folder() -> str:
    """Return the name of this process's staging folder; no other process uses it."""
    return f"{_STAGED}{pins.process_of(os.getpid())}"


def clear_left(place: Place, now_ms: int) -> list[str]:
    """Remove the staging folders of processes that have ended, and return their names.

    It is unknown whether a process on another machine has ended, so its folder goes after a day without a change.
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
    """Return for how long nothing in a folder has changed; 0 if unknown, as in an object store."""
    inside = place.files.get_file_info(fs.FileSelector(folder.path, allow_not_found=True, recursive=True))
    changed_ns = [each.mtime_ns for each in (folder, *inside) if each.mtime_ns is not None]
    return now_ms - max(changed_ns, default=now_ms * 1_000_000) // 1_000_000


def rows_staged(place: Place, folder: str) -> int:
    """Return how many rows are staged so far, including those of failed tasks."""
    found = map(_DONE.fullmatch, Place(place.uri, place.under(folder)).names(""))
    return sum(int(each[1]) for each in found if each is not None)


class _File:
    """A file that a task is writing."""

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
        """Close the file and return its description."""
        self._writer.close()
        size = self._place.files.get_file_info(self._place.under(self._name)).size
        return Landed(self._name, task, self._rows, size, self._newest_ms, self._undecoded)


def written(batches: Iterable[pa.RecordBatch], staged: Place, name: str, task: int, by: str) -> list[Landed]:
    """Write the file of a task, or with a column `by` a file for each of its values, in a folder."""
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
    """Yield the rows of each value of a column, with their folder."""
    if not by:
        yield "", group
        return
    rest = group.drop_columns([by])
    for value in pc.unique(group[by]):
        is_one = pc.equal(group[by], value) if value.is_valid else pc.is_null(group[by])
        yield f"{by}={value.as_py() if value.is_valid else _NULL}/", rest.filter(is_one)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in row groups."""
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
    """Return the files of a table whose names start with a prefix, as relative paths, including folders `by=VALUE`."""
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
    """Put staged files in place under names that start with a prefix; remove the old files with that prefix.

    New files come first, under unused numbers. A run that is stopped in between leaves rows twice until it runs again,
    but never loses any. If `is_new`, there are no old files.
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
    """Remove a staging folder, if it exists."""
    if place.files.get_file_info(place.under(folder)).type.name == "Directory":
        place.files.delete_dir(place.under(folder))
