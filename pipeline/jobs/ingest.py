"""ingest: a topic into a table, as it grows, each record once.

Owns what makes a batch that is done again leave nothing double: in Delta, the number of the batch is committed with its
rows; in Parquet, the files of a batch have names by which a second attempt takes the place of the first. Which records
a batch has is the stream's: the same ones, whenever it is done again. Ctrl-C ends behind a batch.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidelog.pipeline import delta, landing, output
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.exit_codes import INTERRUPTED, OK
from tidelog.pipeline.flags import Asked, one_of
from tidelog.pipeline.jobs.backfill import FORMATS
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.place import Place, place
from tidelog.pipeline.progress import Progress, records_left
from tidelog.pipeline.scan import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 1
# At least so often is committed what was read.
TRIGGER = "1 second"
_NAME = "tidelog-ingest"


def run(
    asked: Asked, out: str, format_name: str, is_available_now: bool, group: str, max_records: int
) -> int:
    """Write the topic until Ctrl-C, or until all is read that is there; return the exit code."""
    one_of("--format", format_name, FORMATS)
    chosen = asked.chosen(now_ms())
    if asked.dry_run:
        output.print_scan(scan(chosen), as_json=asked.as_json)
        return OK
    target, begun = place("--out", out), monotonic()
    checkpoint = asked.checkpoint or _default_checkpoint(target)
    more = {"group": group, "maxRecordsPerTrigger": str(max_records or "")}
    spark = asked.session()
    frame = asked.stream(spark, **{name: text for name, text in more.items() if text})
    written = Written(target, format_name, lambda: _stream_id(spark))
    writer = frame.writeStream.queryName(_NAME).option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(written.batch)
    writer = writer.trigger(availableNow=True) if is_available_now else writer.trigger(processingTime=TRIGGER)
    with _interrupts() as interrupted:
        is_whole = follow(writer.start(), Progress("ingest"), interrupted.is_set, written.age_s)
    account = {
        "job": "ingest",
        "rows": written.rows,
        "batches": written.batches,
        "seconds": round(monotonic() - begun, 1),
        "out": out,
    }
    output.print_account(account, as_json=asked.as_json)
    # Who follows a topic ends by Ctrl-C; who wanted all that was there has less.
    return OK if is_whole or not is_available_now else INTERRUPTED


class Written:
    """What has been written to a table by this run."""

    def __init__(self, target: Place, format_name: str, stream_id: Callable[[], str]) -> None:
        """Count from zero; the stream has an id that outlives a restart."""
        self._stream_id = stream_id
        self._target = target
        self._format = format_name
        self._newest_ms: int | None = None
        self.rows = 0
        self.batches = 0

    def batch(self, frame: "DataFrame", number: int) -> None:
        """Write a batch of a stream, unless it is there."""
        writer, target = self._stream_id(), self._target
        if self._format == "delta" and delta.last_batch(target, writer) >= number:
            return
        folder = f"_staged-{writer}"
        landing.discard(target, folder)  # of an attempt that was killed
        landed = landing.stage(frame, target, folder)
        if self._format == "delta":
            delta.append_once(target, folder, landed, writer, number)
        else:
            landing.put(target, folder, landed, f"{writer}-{number:010d}")
        landing.discard(target, folder)
        self.rows += sum(each.rows for each in landed)
        self.batches += 1
        self._newest_ms = max((each.newest_ms for each in landed if each.newest_ms is not None), default=None)

    def age_s(self) -> float | None:
        """Return how long ago the newest record of the last batch was made; None where that is not known."""
        return None if self._newest_ms is None else max(0, now_ms() - self._newest_ms) / 1000


def follow(
    query: "StreamingQuery",
    progress: Progress,
    is_over: Callable[[], bool],
    age_s: Callable[[], float | None] = lambda: None,
) -> bool:
    """Tell how a stream gets on, a line a batch, until it ends or, behind a batch, is to; return if it ended itself."""
    told = -1
    at: int | None = None  # the last batch when it was to end
    while query.isActive:
        query.awaitTermination(POLL_S)
        told = _tell(query, progress, told, age_s)
        if not is_over() or not query.isActive:
            continue
        at = told if at is None else at
        if told > at or not query.status["isTriggerActive"]:
            query.stop()
            progress.say(f"stopped behind batch {told}; the same command goes on from there")
            return False
    query.awaitTermination()  # raises what it ended by
    _tell(query, progress, told, age_s)
    return True


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


def _stream_id(spark: "SparkSession") -> str:
    """Return the id that the checkpoint gives the stream."""
    found = [each for each in spark.streams.active if each.name == _NAME]
    return str(found[0].id)


def _default_checkpoint(target: Place) -> str:
    if "://" in target.uri:
        raise WrongOption(
            "--checkpoint is missing; name a folder: Spark itself does not write to an object store here"
        )
    return target.under("_checkpoint")


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Note Ctrl-C instead of ending at once, as Spark would; a second one ends at once."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def note(*_: Any) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
