"""How a job follows a stream: what it tells of each batch, and how it ends by Ctrl-C, behind a batch.

Owns the line that a batch gets, and the order of the steps to the end: a batch that has begun is written, and so noted
in the checkpoint; the next one is declined before it writes anything. Knows nothing of what a batch does.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import StreamingQueryException

from tidelog.pipeline.jobs.parts.progress import Progress, records_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1
Batch = Callable[["DataFrame", int], None]


class _Declined(Exception):
    """A batch is not begun, as the stream is to end: raised in the stream to end it, and seen by nobody else."""


class Stop:
    """Whether a stream is to end, and whether a batch was declined for that."""

    def __init__(self) -> None:
        """Go on."""
        self.is_asked = False
        self.has_declined = False

    def guarded(self, batch: Batch) -> Batch:
        """Return what does a batch, unless the stream is to end."""

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
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, note)
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
    """Tell how a stream gets on, a line a batch, until it ends or is to; return whether it ended by itself."""
    told, is_told = -1, False
    try:
        while query.isActive:
            query.awaitTermination(POLL_S)
            told = _tell(query, progress, told, age_s)
            if not stop.is_asked or not query.isActive:
                continue
            # Between batches nothing is under way; while one is, the next will be declined.
            if not query.status["isTriggerActive"]:
                query.stop()
                stop.has_declined = True
            elif not is_told:
                progress.say("ends behind the batch that is under way; Ctrl-C once more ends at once")
                is_told = True
        query.awaitTermination()  # raises what it ended by
    except StreamingQueryException:
        if not stop.has_declined:
            raise
    told = _tell(query, progress, told, age_s)
    if stop.has_declined:
        behind = f"behind batch {told}" if told >= 0 else "before a batch was begun"
        progress.say(f"stopped {behind}; the same command goes on from there")
    return not stop.has_declined


def _tell(query: "StreamingQuery", progress: Progress, told: int, age_s: Callable[[], float | None]) -> int:
    """Say what batches were done since a number; return the last."""
    for each in query.recentProgress:
        number, rows = int(each["batchId"]), int(each["numInputRows"])
        if number <= told or not rows:
            continue
        seconds = each["durationMs"].get("triggerExecution", 0) / 1000
        sources: list[Any] = each["sources"]
        left = records_left(sources[0]) if sources else None
        behind_s = 0.0 if left == 0 else age_s()
        progress.batch(rows, seconds, left, behind_s, name=f"batch {number}: ")
        told = number
    return told
