"""Runs a stream into a table: prints a line for each batch, and ends between two batches on Ctrl-C.

After Ctrl-C the running batch is written and noted in the checkpoint. The next one is declined before it writes.
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
    """Raised instead of starting a batch, to end the stream. `follow` catches it."""


class Written(Protocol):
    """A table that a stream writes."""

    def batch(self, frame: "DataFrame", number: int, stream: str, may_be_there: bool, /) -> None:
        """Write a batch of the stream with this id. The first batch of a run may have been written before."""

    def age_s(self) -> float | None:
        """Return the age of the newest record of the last batch; None if unknown."""


def write(
    job: str,
    frame: "DataFrame",
    written: Written,
    target: Place,
    topic: str,
    checkpoint: str,
    is_available_now: bool,
) -> bool:
    """Write a stream of a topic until Ctrl-C, or until the end of the log; return whether it ended by itself.

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
    """Whether Ctrl-C has asked a stream to end, and whether the stream has declined a batch."""

    def __init__(self) -> None:
        self.is_asked = False
        self.has_declined = False

    def guarded(self, batch: Batch) -> Batch:
        """Return a function that writes a batch, or declines it after Ctrl-C."""

        def guarded(frame: "DataFrame", number: int) -> None:
            if self.is_asked:
                self.has_declined = True
                raise _Declined
            batch(frame, number)

        return guarded

    @contextmanager
    def by_ctrl_c(self) -> Iterator[None]:
        """Note the first Ctrl-C instead of ending at once, as Spark would; a second one ends at once."""

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
    """Print a line for each batch until the stream has ended; return whether it ended by itself."""
    last, is_announced = -1, False
    try:
        while query.isActive:
            query.awaitTermination(POLL_S)
            last = _report(query, progress, last, age_s)
            if not stop.is_asked or not query.isActive:
                continue
            # No batch runs between triggers, so stop; while one runs, wait for the next to be declined.
            if not query.status["isTriggerActive"]:
                query.stop()
                stop.has_declined = True
            elif not is_announced:
                progress.say("ends after the current batch; another Ctrl-C ends it at once")
                is_announced = True
        query.awaitTermination()  # raises the error of the stream, if any
    except StreamingQueryException:
        if not stop.has_declined:
            raise
    last = _report(query, progress, last, age_s)
    if stop.has_declined:
        where = f"after batch {last}" if last >= 0 else "before the first batch"
        progress.say(f"stopped {where}; the same command continues from there")
    return not stop.has_declined


def _report(query: "StreamingQuery", progress: Progress, last: int, age_s: Callable[[], float | None]) -> int:
    """Print a line for each batch after a number; return the last number."""
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
