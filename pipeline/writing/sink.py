"""`df.write.format("tidelog")` and `writeStream`: appends rows to topics of a broker.

A task's rows become records, and the task succeeds only if all are acknowledged; if not, the error names the row.
Writes are at-least-once: a task that runs again after a failure writes its rows again. With option `resume` a task
leaves out rows that the topic has already, by the column `source`, which becomes a header of the record (`target`).
The sink creates no topics. A task holds one Arrow batch and the records in flight in memory.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.writing import late, target
from tidelog.pipeline.writing.produce import Record, Sender
from tidelog.pipeline.writing.rate import Rate
from tidelog.pipeline.writing.target import LookedAt, Written
from tidelog.pipeline.writing.write_options import ORIGIN, WriteOptions, checked

_log = logging.getLogger(__name__)

# How much of an Arrow batch becomes Python objects at a time.
_SLICE_ROWS: Final = 1024
_SLICE_BYTES: Final = 1 << 20


def rewritten(records: DataFrame, keep_partition: bool = False, topic_id: str = "") -> DataFrame:
    """Return rows of the table `records` as the sink takes them: create time as `timestamp`, and `source`.

    The key chooses the partition, or with `keep_partition` a record keeps its own. The topic id in `source`
    distinguishes topics with the same name, in another cluster or created again.
    """
    of = f.lit(f"/{topic_id}@" if topic_id else "@")
    origin = f.concat(
        "topic", f.lit("-"), f.col("partition").cast("string"), of, f.col("offset").cast("string")
    )
    columns = [f.col("value"), f.col("key"), f.col("headers"), f.col("create_time").alias("timestamp")]
    partition = [f.col("partition")] if keep_partition else []
    return records.select(*columns, *partition, origin.alias(ORIGIN))


class Done(WriterCommitMessage):
    """The result of a task: rows written, rows left out because they were there, and the oldest time by topic."""

    def __init__(self, written: int, left_out: int, oldest_ms: Mapping[str, int]) -> None:
        self.written = written
        self.left_out = left_out
        self.oldest_ms = oldest_ms


class _Tasks:
    """The state that the tasks of one write share. Spark sends it to them."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        checked(schema, options)
        if overwrite:
            raise WrongOption('mode overwrite: a log is only appended to; write .mode("append")')
        self.options = options
        self.looked: LookedAt | None = None
        if ORIGIN in schema.fieldNames():
            assert options.topic is not None  # `checked` demands it
            self.looked = target.look(options.address, options.topic, options.job, read=options.resume)
        elif options.topic is not None:
            target.partitions(options.address, options.topic)
        self._rate_name = uuid4().hex

    def mark(self, offsets: dict[int, int]) -> None:
        """Set the offsets from which a write that resumes this one looks for its records."""
        assert self.options.topic is not None
        target.mark(self.options.address, self.options.topic, self.options.job, offsets)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Done:
        """Write the rows of a task; PipelineError names the row that failed."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        seen = self._seen(again=context is not None and context.attemptNumber() > 0)
        left_out = 0
        with self._pace() as wait:
            sender = Sender(self.options.address)
            try:
                for record, origin in _records(batches, self.options.topic, f"task {task}"):
                    if origin is not None and any(written.has(origin) for written in seen):
                        left_out += 1
                        continue
                    wait()
                    sender.send(record)
                sender.finish()
            except BaseException:
                sender.abandon()
                raise
        return Done(sender.sent, left_out, sender.oldest_ms)

    def report(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write option `report`, a file on the driver's machine with the counts of all tasks."""
        if self.options.report:
            done = _done(messages)
            counts = {
                "written": sum(one.written for one in done),
                "left_out": sum(one.left_out for one in done),
            }
            Path(self.options.report).write_text(json.dumps(counts))

    def warn(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log a warning for each topic that got records older than its retention."""
        oldest_ms: dict[str, int] = {}
        for topic, at_ms in (each for one in _done(messages) for each in one.oldest_ms.items()):
            oldest_ms[topic] = min(at_ms, oldest_ms.get(topic, at_ms))
        for line in late.warnings(self.options.address, oldest_ms):
            _log.warning("%s", line)

    @contextmanager
    def _pace(self) -> Iterator[Callable[[], None]]:
        """Yield a function that waits until the next record may be written."""
        limit = self.options.records_per_second
        if limit is None:
            yield lambda: None
            return
        with closing(Rate(self._rate_name, limit)) as rate:
            yield rate.wait

    def _seen(self, again: bool) -> tuple[Written, ...]:
        """Return the records that the topic had when the write began; if the task runs again, also those since then."""
        if self.looked is None or not self.options.resume:
            return ()
        if not again:
            return (self.looked.written,)
        assert self.options.topic is not None
        since = target.look_again(self.options.address, self.options.topic, self.looked.ends)
        return (self.looked.written, since)


class _Appends:
    """What both writers share: they write the rows of a task, and undo nothing if a write fails."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        self._tasks = _Tasks(schema, options, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        """Write a task's rows; all are acknowledged when it returns."""
        return self._tasks.write(iterator)

    def abort(self, messages: list[WriterCommitMessage | None], *_: int) -> None:
        """Do nothing: written records stay."""


class Writer(_Appends, DataSourceArrowWriter):
    """Appends a frame, once."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        if self._tasks.looked is not None:
            # A write that resumes another keeps that one's mark.
            self._tasks.mark(self._tasks.looked.starts)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report what was done; nothing has to become visible."""
        self._tasks.report(messages)
        self._tasks.warn(messages)


class StreamWriter(_Appends, DataSourceStreamArrowWriter):
    """Appends one micro-batch of a stream."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        if self._tasks.looked is not None and not options.resume:
            self._tasks.mark(self._tasks.looked.starts)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  (Spark's)
        """Mark where this batch began: Spark may run it again until the checkpoint has it."""
        self._tasks.warn(messages)
        looked, resume = self._tasks.looked, self._tasks.options.resume
        # If records of the batch were there already, it is unknown where it began in the topic: keep the old mark.
        if looked is not None and resume and not any(one.left_out for one in _done(messages)):
            self._tasks.mark(looked.ends)


def _done(messages: list[WriterCommitMessage | None]) -> list[Done]:
    return [one for one in messages if isinstance(one, Done)]


def _records(
    batches: Iterator[pa.RecordBatch], topic: str | None, task: str
) -> Iterator[tuple[Record, str | None]]:
    """Yield each row as a record, and its origin."""
    number = 0
    for batch in batches:
        step = _rows_at_once(batch)
        for start in range(0, batch.num_rows, step):
            for row in _rows(batch.slice(start, step)):
                place = f"row {number} of {task}"
                origin = row.get(ORIGIN)
                if origin is not None:
                    place += f" ({origin})"
                yield _record(row, origin, topic, place), origin
                number += 1


def _rows_at_once(batch: pa.RecordBatch) -> int:
    """Return how many rows become Python objects at a time: fewer if they are large."""
    fit: int = _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)
    return min(_SLICE_ROWS, max(1, fit))


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [
        column.cast(pa.int64()) if name == "timestamp" else column
        for name, column in zip(names, batch.columns, strict=True)
    ]
    for values in zip(*(column.to_pylist() for column in columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _record(row: dict[str, Any], origin: str | None, topic: str | None, place: str) -> Record:
    to = row.get("topic") or topic
    if to is None:
        raise PipelineError(f"{place}: column topic is null, and there is no option topic")
    time_us = row.get("timestamp")
    if time_us is not None and time_us < 0:
        raise PipelineError(
            f"{place}: column timestamp is {time_us} us, before 1970, which a log cannot store"
        )
    headers = []
    for header in row.get("headers") or ():
        if header is None or header["key"] is None or header["value"] is None:
            raise PipelineError(
                f"{place}: column headers has {header}; a header needs a key and a value, which may be empty"
            )
        headers.append((header["key"], bytes(header["value"])))
    if origin is not None:
        try:
            target.parsed(origin)
        except ValueError as error:
            raise PipelineError(f"{place}: column {ORIGIN}: {error}") from None
        headers.append((target.HEADER, origin.encode()))
    return Record(
        place,
        to,
        _bytes(row["value"]),
        _bytes(row.get("key")),
        tuple(headers),
        row.get("partition"),
        None if time_us is None else time_us // 1000,
    )


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None if value is None else bytes(value)
