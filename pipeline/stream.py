"""`spark.readStream.format("tidelog")`: the log as a table that grows.

Spark keeps offsets in its checkpoint: `{"topic": "t", "topic_id": "...", "partitions": {"0": 17}}`, with the next
offset to read of each partition. A partition that is missing there starts at 0. `began` has the first offsets of the
stream: Spark stores only the end of the first batch, and after a kill it asks again for the start. `from_ms` is a
relative time of option `from`, resolved when the stream began.

A read between two offsets always gives the same records, or fails. Each record is in one batch, so a sink that writes
each batch once writes each record once. If retention deletes records before the stream reads them, the stream fails,
unless `failOnDataLoss=false`. If the topic was deleted and created again, the stream always fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.config import times
from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import RECORDS_TABLE, Options
from tidelog.pipeline.ranges import TopicOffsets
from tidelog.pipeline.tasks import KINDS, packed

Offsets = dict[int, int]

# The default limit of a batch: a stream that catches up commits about every second.
RECORDS_A_BATCH: Final = 1_000_000
_BEGAN: Final = "began"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        """Raise WrongOption for an option that streams do not have."""
        if chosen.max_records is not None:
            raise WrongOption(
                "option maxRecords: a stream has no end; write maxRecordsPerTrigger for its batches"
            )
        if chosen.table != RECORDS_TABLE:
            raise WrongOption(f"option table: a stream is of records; {chosen.table} are read as a table")
        if "to_ms" in chosen.relative:
            raise WrongOption(
                "option to: a stream would skip all records after a relative time for good; write an absolute time, "
                f"such as {times.show(chosen.to_ms or 0, UTC)}"
            )
        self._options = chosen
        self._names = names
        self._kind = KINDS[chosen.kind]
        self._targets: Offsets | None = None  # of Trigger.AvailableNow
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's names, here and below)
        """Return the log start of each partition, or the first offset of the time of option `from`."""
        found = self._topic_offsets()
        firsts = self._kind.first_offsets(self._options, found, now_ms())
        return self._written(found, firsts, self._time() | {_BEGAN: _named(firsts)})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return option `maxRecordsPerTrigger`, or its default."""
        return ReadMaxRows(self._options.max_records_per_trigger or RECORDS_A_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make the stream stop at the current end of the log."""
        self._targets = _ends(self._topic_offsets())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the log end of each partition."""
        found = self._topic_offsets()
        return self._written(found, _ends(found), self._time())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at `start`. Everything before `start` has been written."""
        at = _read(start)
        found = self._topic_offsets()
        self._demand_same(start, found)
        self._commit(at)
        at = {partition: at.get(partition, 0) for partition in found.spans}
        self._demand_kept({partition: (offset, offset) for partition, offset in at.items()}, found)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        began = {_BEGAN: start[_BEGAN]} if _BEGAN in start else {}
        return self._written(found, _next(at, found.spans, self._targets, most), self._time(start) | began)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; PipelineError if some of its records are gone."""
        chosen = self._options._replace(**self._time(end))
        first, last = _read(start), _read(end)
        if start.get(_BEGAN) != end.get(_BEGAN, start.get(_BEGAN)):
            # The first batch again, after a kill: `start` is where a new stream would begin.
            first = _offsets(end[_BEGAN])
        ranges = {
            partition: (first.get(partition, 0), offset)
            for partition, offset in last.items()
            if offset > first.get(partition, 0)
        }
        pieces = self._kind.between(chosen, ranges, now_ms()) if ranges else []
        try:
            # After the plan: it leaves out records that were deleted before, and this check finds them missing.
            found = self._topic_offsets()
            self._demand_same(end, found)
            self._demand_kept(ranges, found)
        except BaseException:
            self._kind.release(pieces)
            raise
        return [InputPartition(task) for task in packed(pieces, chosen.task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        yield from partition.value.rows(self._names, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the consumer group of option `group`. Everything before `end` has been written."""
        self._commit(_read(end))

    def _commit(self, offsets: Offsets) -> None:
        """Commit offsets, unless they are the same as in the last commit."""
        if self._options.group and offsets and offsets != self._committed:
            from_broker.commit(self._options, offsets)
            self._committed = offsets

    def _topic_offsets(self) -> TopicOffsets:
        found: TopicOffsets = self._kind.topic_offsets(self._options, now_ms())
        return found

    def _time(self, offset: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return a relative `from_ms`: as an offset has it from when the stream began, else as of now."""
        return {name: offset.get(name, self._options.from_ms) for name in self._options.relative}

    def _written(self, found: TopicOffsets, offsets: Offsets, more: dict[str, Any]) -> dict[str, Any]:
        """Return offsets for Spark, in a fixed order: Spark compares their text."""
        topic = {"topic": self._options.topic, "topic_id": found.topic_id}
        return topic | {"partitions": _named(offsets)} | more

    def _demand_same(self, offset: Mapping[str, Any], found: TopicOffsets) -> None:
        """Raise PipelineError if the offsets are of another topic, or of an earlier one with the same name."""
        topic = offset.get("topic", self._options.topic)
        if topic != self._options.topic:
            raise PipelineError(
                f"the checkpoint is of topic {topic}, not of {self._options.topic}: each topic needs its own"
            )
        was = offset.get("topic_id", "")
        if was != found.topic_id:
            raise PipelineError(
                f"topic {self._options.topic} was deleted and created again (its id was {was or 'none'}, and is "
                f"{found.topic_id or 'none'}): the checkpoint is of the old topic; start with a new checkpoint"
            )
        gone = sorted(set(_read(offset)) - set(found.spans))
        if gone:
            raise PipelineError(
                f"topic {self._options.topic}: the stream has read partition {gone[0]}, which is not among the "
                f"partitions to read now, {sorted(found.spans)}; see option partitions, or start with a new checkpoint"
            )

    def _demand_kept(self, ranges: Mapping[int, tuple[int, int]], found: TopicOffsets) -> None:
        """Raise PipelineError if retention has deleted records to read, or if the log ends before them."""
        for partition, (start, end) in ranges.items():
            log_start, log_end = found.spans[partition]
            name = f"{self._options.topic}-{partition}@{start}"
            if start < log_start and self._options.fails_on_loss:
                raise PipelineError(
                    f"{name}: retention has deleted offsets {start} to {log_start - 1} before the stream has read "
                    "them; skip them with failOnDataLoss=false, or start with a new checkpoint"
                )
            if end > log_end:
                raise PipelineError(
                    f"{name}: the stream is at offset {end}, and the log ends at {log_end}: records have been lost; "
                    "start with a new checkpoint"
                )


def _next(
    at: Offsets, spans: Mapping[int, tuple[int, int]], targets: Offsets | None, most: int | None
) -> Offsets:
    """Advance offsets by at most `most` records, shared evenly among the partitions that have records."""
    firsts = {partition: max(at[partition], spans[partition][0]) for partition in at}
    ends = {partition: spans[partition][1] for partition in at}
    if targets is not None:
        ends = {partition: min(end, targets.get(partition, 0)) for partition, end in ends.items()}
    behind = {partition: max(ends[partition] - firsts[partition], 0) for partition in at}
    left = sum(behind.values()) if most is None else most
    found: Offsets = {}
    for number, partition in enumerate(sorted(behind, key=lambda each: behind[each])):
        taken = min(behind[partition], left // (len(behind) - number))
        found[partition] = firsts[partition] + taken
        left -= taken
    return found


def _ends(found: TopicOffsets) -> Offsets:
    return {partition: end for partition, (_, end) in found.spans.items()}


def _read(offset: Mapping[str, Any]) -> Offsets:
    return _offsets(offset["partitions"])


def _offsets(named: Mapping[str, int]) -> Offsets:
    return {int(partition): at for partition, at in named.items()}


def _named(offsets: Offsets) -> dict[str, int]:
    return {str(each): offsets[each] for each in sorted(offsets)}
