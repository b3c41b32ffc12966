"""How a job follows a stream to a table: a line for each batch, and an end between two batches by Ctrl-C.

A batch that has begun is written, and noted in the checkpoint; the next one is declined before it writes anything.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.errors import StreamingQueryException

from tidelog.pipeline.jobs.parts import table_out
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.jobs.parts.progress import Progress, records_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1
_TRIGGER: Final = "1 second"
Batch = Callable[["DataFrame", int], None]


class _Declined(Exception):
    """A batch is not begun, as the stream is to end: raised in the stream to end it, and seen by nobody else."""


class Written(Protocol):
    """A table that a stream writes."""

    def batch(self, frame: "DataFrame", number: int, stream: str, may_be_there: bool, /) -> None:
        """Write a batch of a stream with this id; the first one of a run may have been written before."""

    def age_s(self) -> float | None:
        """Return how old the newest record of the last batch is; None if that is not known."""


def write(
    job: str,
    frame: "DataFrame",
    written: Written,
    target: Place,
    topic: str,
    checkpoint: str,
    is_available_now: bool,
) -> bool:
    """Write a stream of a topic until Ctrl-C, or until all that is there is read; tell whether it ended by itself.

    PipelineError if another stream writes the topic to the table.
    """
    name, spark, stop, is_first = f"tidelog-{job}", frame.sparkSession, Stop(), True

    def batch(rows: "DataFrame", number: int) -> None:
        nonlocal is_first
        # The checkpoint gives the stream its id.
        stream = str(next(each.id for each in spark.streams.active if each.name == name))
        if is_first:
            table_out.claim(target, topic, stream, checkpoint)
        may_be_there, is_first = is_first, False
        written.batch(rows, number, stream, may_be_there)

    writer = frame.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(stop.guarded(batch))
    writer = (
        writer.trigger(availableNow=True) if is_available_now else writer.trigger(processingTime=_TRIGGER)
    )
    with stop.by_ctrl_c():
        return follow(writer.start(), Progress(job), stop, written.age_s)


class Stop:
    """Whether a stream is to end, and whether a batch was declined for that."""

    def __init__(self) -> None:
        self.is_asked = False
        self.has_declined = False

    def guarded(self, batch: Batch) -> Batch:
        """Return a function that does a batch, unless the stream is to end."""

        def guarded(frame: "DataFrame", number: int) -> None:
            if self.is_asked:
                self.has_declined = True
                raise _Declined
            batch(frame, number)

        return guarded

    @contextmanager
    def by_ctrl_c(self) -> Iterator[None]:
        """Note Ctrl-C instead of ending at once, as Spark would; a second one ends at once."""

        def note(*_: Any) -> None:
            if self.is_asked:
                raise KeyboardInterrupt
            self.is_asked = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def follow(
    query: "StreamingQuery",
    progress: Progress,
    stop: Stop,
    age_s: Callable[[], float | None] = lambda: None,
) -> bool:
    """Write a line for each batch until the stream ends or is to; tell whether it ended by itself."""
    last, is_announced = -1, False
    try:
        while query.isActive:
            query.awaitTermination(POLL_S)
            last = _report(query, progress, last, age_s)
            if not stop.is_asked or not query.isActive:
                continue
            # Between batches nothing is under way; while one is, the next will be declined.
            if not query.status["isTriggerActive"]:
                query.stop()
                stop.has_declined = True
            elif not is_announced:
                progress.say("ends behind the batch that is under way; Ctrl-C once more ends at once")
                is_announced = True
        query.awaitTermination()  # raises what it ended by
    except StreamingQueryException:
        if not stop.has_declined:
            raise
    last = _report(query, progress, last, age_s)
    if stop.has_declined:
        behind = f"behind batch {last}" if last >= 0 else "before a batch was begun"
        progress.say(f"stopped {behind}; the same command goes on from there")
    return not stop.has_declined


def _report(query: "StreamingQuery", progress: Progress, last: int, age_s: Callable[[], float | None]) -> int:
    """Write a line for each batch that was done since a number; return the last number."""
    for each in query.recentProgress:
        number, rows = int(each["batchId"]), int(each["numInputRows"])
        if number <= last or not rows:
            continue
        seconds = each["durationMs"].get("triggerExecution", 0) / 1000
        left = records_left(each["sources"][0]) if each["sources"] else None
        behind_s = 0.0 if left == 0 else age_s()
        progress.batch(rows, seconds, left, behind_s, name=f"batch {number}: ")
        last = number
    return last
