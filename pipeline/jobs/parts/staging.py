"""Stages the rows of a Spark frame, as `landing` has it: a sink whose tasks write the files."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline.jobs.parts import landing
from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.jobs.parts.table_out import Form

_FORMAT: Final = "tidelog-landing"
# The list of staged files, written after all of them.
_LIST: Final = "landed.json"


class _Message(WriterCommitMessage):
    def __init__(self, landed: list[Landed]) -> None:
        self.landed = landed


class _Staging(DataSource):
    """A data source of Spark that stages rows."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "_Writer":  # noqa: ARG002  (Spark calls it)
        return _Writer(self.options)


class _Writer(DataSourceArrowWriter):
    """Stages the files of tasks, in workers; the driver then writes the list of them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._place = Place(options["uri"], options["path"])
        self._folder = options["folder"]
        self._form = Form(*json.loads(options["form"]))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        name = f"{task:05d}-{context.taskAttemptId()}.staged"
        staged = Place(self._place.uri, self._place.under(self._folder))
        rows = map(self._form.completed, iterator)
        return _Message(landing.written(rows, staged, name, task, self._form.folders))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the list of staged files."""
        landed = [each for message in messages if isinstance(message, _Message) for each in message.landed]
        self._place.write(f"{self._folder}/{_LIST}", [json.dumps(landed).encode()])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: `discard` removes the files."""


def stage(frame: DataFrame, place: Place, folder: str, form: Form) -> list[Landed]:
    """Write the rows of a table in this form to a folder in a place: the files of each task with rows."""
    place.files.create_dir(place.under(folder), recursive=True)
    frame.sparkSession.dataSource.register(_Staging)
    options = {"uri": place.uri, "path": place.path, "folder": folder, "form": json.dumps(form)}
    frame.write.format(_FORMAT).options(**options).mode("append").save()
    with place.files.open_input_stream(place.under(f"{folder}/{_LIST}")) as listing:
        return [Landed(*each) for each in json.loads(listing.read())]


@contextmanager
def staged(frame: DataFrame, place: Place, folder: str, form: Form) -> Iterator[tuple[str, list[Landed]]]:
    """Stage the rows in a folder, and yield it with its files; remove it before and after."""
    landing.discard(place, folder)
    try:
        yield folder, stage(frame, place, folder, form)
    finally:
        landing.discard(place, folder)
