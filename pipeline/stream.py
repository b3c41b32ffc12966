"""`spark.readStream.format("tidelog")`: the log as a table that grows.

Spark keeps offsets in its checkpoint: `{"topic": "t", "topic_id": "...", "partitions": {"0": 17}}`, for each partition
the next offset to read. A partition that is not in it begins at 0. `began` is where the stream began: Spark keeps only
the end of its first batch, and asks again where that batch begins if it was killed meanwhile. `from_ms` is a relative
time of option `from`, as of when the stream began. Between two offsets lie the same records whenever they are read, or
the read fails: each record is in one batch, so a sink that writes each batch once writes each record once.

Records that retention deletes before the stream reads them are an error, unless `failOnDataLoss=false`. A topic that
was deleted and created again is always an error.
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
from tidelog.pipeline.tasks import KINDS, Task, packed

Offsets = dict[int, int]

# Unless another number is asked for: a stream that has much to catch up with commits after each second or so.
RECORDS_A_BATCH: Final = 1_000_000
_BEGAN: Final = "began"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream."""

    def __init__(self, chosen: Options, names: tuple[str, ...]) -> None:
        """WrongOption where an option is for tables that do not grow."""
        if chosen.max_records is not None:
            raise WrongOption(
                "option maxRecords: a stream has no end; write maxRecordsPerTrigger for its batches"
            )
        if chosen.table != RECORDS_TABLE:
            raise WrongOption(f"option table: a stream is of records; {chosen.table} are read as a table")
        if "to_ms" in chosen.relative:
            raise WrongOption(
                "option to: a stream would pass over all that comes after it, for good; write the time itself, such as "
                f"{times.show(chosen.to_ms or 0, UTC)}"
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
        """Return option `maxRecordsPerTrigger`, or what takes no more than some seconds."""
        return ReadMaxRows(self._options.max_records_per_trigger or RECORDS_A_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Have the stream end where the log ends now."""
        self._targets = _ends(self._topic_offsets())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the log end of each partition."""
        found = self._topic_offsets()
        return self._written(found, _ends(found), self._time())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends, which begins at `start`: what lies before that has been written."""
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
        """Return the tasks of a batch; PipelineError if some of its records are not there any more."""
        chosen = self._options._replace(**self._time(end))
        first, last = _read(start), _read(end)
        if start.get(_BEGAN) != end.get(_BEGAN, start.get(_BEGAN)):
            # The first batch once more, after a kill: `start` is where a stream would begin now.
            first = _offsets(end[_BEGAN])
        ranges = {
            partition: (first.get(partition, 0), offset)
            for partition, offset in last.items()
            if offset > first.get(partition, 0)
        }
        pieces = self._kind.between(chosen, ranges, now_ms()) if ranges else []
        try:
            # Behind it: what had been deleted before was not planned, and is not there now.
            found = self._topic_offsets()
            self._demand_same(end, found)
            self._demand_kept(ranges, found)
        except BaseException:
            self._kind.release(pieces)
            raise
        return packed(pieces, chosen.task_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, Task)
        yield from partition.rows(self._names, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the consumer group of option `group`: what lies before `end` has been written."""
        self._commit(_read(end))

    def _commit(self, offsets: Offsets) -> None:
        """Commit offsets, unless they are the last ones that were committed."""
        if self._options.group and offsets and offsets != self._committed:
            from_broker.commit(self._options, offsets)
            self._committed = offsets

    def _topic_offsets(self) -> TopicOffsets:
        found: TopicOffsets = self._kind.topic_offsets(self._options, now_ms())
        return found

    def _time(self, offset: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return the time that is relative to when the stream began, if it is: as an offset says, or as it is now."""
        return {name: offset.get(name, self._options.from_ms) for name in self._options.relative}

    def _written(self, found: TopicOffsets, offsets: Offsets, more: dict[str, Any]) -> dict[str, Any]:
        """Return offsets as Spark keeps them, which takes two of them for one if they read alike."""
        topic = {"topic": self._options.topic, "topic_id": found.topic_id}
        return topic | {"partitions": _named(offsets)} | more

    def _demand_same(self, offset: Mapping[str, Any], found: TopicOffsets) -> None:
        """PipelineError if the offsets are of another topic, of the same name too."""
        topic = offset.get("topic", self._options.topic)
        if topic != self._options.topic:
            raise PipelineError(
                f"the checkpoint is of topic {topic}, not of {self._options.topic}: each needs one of its own"
            )
        was = offset.get("topic_id", "")
        if was != found.topic_id:
            raise PipelineError(
                f"topic {self._options.topic} was deleted and made anew (its id was {was or 'none'}, and is "
                f"{found.topic_id or 'none'}): the checkpoint is of the one before; start with a new checkpoint"
            )
        gone = sorted(set(_read(offset)) - set(found.spans))
        if gone:
            raise PipelineError(
                f"topic {self._options.topic}: the stream has read partition {gone[0]}, and there is none now among "
                f"those that are read, {sorted(found.spans)}; see option partitions, or start with a new checkpoint"
            )

    def _demand_kept(self, ranges: Mapping[int, tuple[int, int]], found: TopicOffsets) -> None:
        """PipelineError if records that are to be read, or were, are not there any more."""
        for partition, (start, end) in ranges.items():
            log_start, log_end = found.spans[partition]
            name = f"{self._options.topic}-{partition}@{start}"
            if start < log_start and self._options.fails_on_loss:
                raise PipelineError(
                    f"{name}: retention has deleted offsets {start} to {log_start - 1} before the stream has read "
                    "them; go on without them with failOnDataLoss=false, or start with a new checkpoint"
                )
            if end > log_end:
                raise PipelineError(
                    f"{name}: the stream is at offset {end}, and the log ends at {log_end}: records that were there "
                    "have been lost; start with a new checkpoint"
                )


def _next(
    at: Offsets, spans: Mapping[int, tuple[int, int]], targets: Offsets | None, most: int | None
) -> Offsets:
    """Return offsets behind `at`, so many at most: as many of each partition as of any other that has them."""
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
