"""ingest: a topic into a table, as it grows, each record once.

Owns what makes a batch that is done again leave nothing double: in Delta, the number of the batch is committed with its
rows; in Parquet, the files of a batch have names by which a second attempt takes the place of the first. Which records
a batch has is the stream's: the same ones, whenever it is done again. Ctrl-C ends behind a batch.
"""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs import backfill
from tidelog.pipeline.jobs.parts import delta, landing, output, table_files, table_out
from tidelog.pipeline.jobs.parts.exit_codes import INTERRUPTED, OK
from tidelog.pipeline.jobs.parts.flags import Asked
from tidelog.pipeline.jobs.parts.following import Stop, follow
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, Form
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.pushdown import Wanted
from tidelog.pipeline.stream import RECORDS_A_BATCH
from tidelog.pipeline.transforms.dates import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# So often is looked for what is new; and of so much is a batch at most: what is read is committed within seconds.
TRIGGER: Final = "1 second"
BATCH_BYTES: Final = 128 << 20
_NAME: Final = "tidelog-ingest"


def run(asked: Asked, out: str, form: Form, is_available_now: bool, group: str, max_records: int) -> int:
    """Write the topic until Ctrl-C, or until all is read that is there; return the exit code."""
    begun = monotonic()
    if "://" in out and not asked.checkpoint:
        raise WrongOption(
            "--checkpoint is missing; name a folder: Spark itself does not write to an object store here"
        )
    chosen = asked.chosen(now_ms(), group=group)
    if form.time == "append_time" and chosen.kind == "broker":
        from_broker.demand_append_time(chosen)
    if asked.dry_run:
        output.print_scan(scan(chosen), as_json=asked.as_json)
        return OK
    target = place("--out", out)
    checkpoint = asked.checkpoint or target.under("_checkpoint")
    table_out.demand_form(target, form)
    _demand_no_backfill(target, chosen, form)
    most = max_records or _records_a_batch(chosen)
    spark = asked.session()
    frame = form.shaped(asked.stream(spark, group=group, maxRecordsPerTrigger=str(most)))
    stop = Stop()
    written = Written(
        target,
        form,
        lambda: _stream_id(spark),
        lambda stream: table_out.claim(target, chosen.topic, stream, checkpoint),
    )
    writer = frame.writeStream.queryName(_NAME).option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(stop.guarded(written.batch))
    writer = writer.trigger(availableNow=True) if is_available_now else writer.trigger(processingTime=TRIGGER)
    with stop.by_ctrl_c():
        is_whole = follow(writer.start(), Progress("ingest"), stop, written.age_s)
    account = {
        "job": "ingest",
        "rows": written.rows,
        "batches": written.batches,
        "seconds": round(monotonic() - begun, 1),
        "out": out,
    }
    if form.decode:
        account["undecoded"] = written.undecoded
    output.print_account(account, as_json=asked.as_json)
    return OK if is_whole else INTERRUPTED


class Written:
    """What has been written to a table by this run."""

    def __init__(
        self,
        target: Place,
        form: Form,
        stream_id: Callable[[], str],
        claim: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Count from zero; the stream has an id that outlives a restart, and claims the table by it."""
        self._stream_id = stream_id
        self._claim = claim
        self._target = target
        self._form = form
        self._newest_ms: int | None = None
        self._is_first = True
        self.rows = 0
        self.undecoded = 0
        self.batches = 0

    def batch(self, frame: "DataFrame", number: int) -> None:
        """Write a batch of a stream, unless it is there."""
        # Only the first batch of a run can have been begun before.
        may_be_there, self._is_first = self._is_first, False
        writer, target, is_delta = self._stream_id(), self._target, self._form.format_name == DELTA
        if may_be_there:
            self._claim(writer)
            if is_delta and delta.last_batch(target, writer) >= number:
                return
        by = [DATE] if self._form.is_by_date else []
        folder = f"_staged-{writer}"
        landing.discard(target, folder)  # of an attempt that was killed
        landed = landing.stage(frame, target, folder, "" if is_delta else "".join(by))
        if not is_delta:
            landing.put(target, folder, landed, f"{writer}-{number:010d}", is_new=not may_be_there)
        elif landed:
            delta.append_once(target, folder, landed, writer, number, by)
        landing.discard(target, folder)
        self.rows += sum(each.rows for each in landed)
        self.undecoded += sum(each.undecoded for each in landed)
        self.batches += 1
        self._newest_ms = max((each.newest_ms for each in landed if each.newest_ms is not None), default=None)

    def age_s(self) -> float | None:
        """Return how long ago the newest record of the last batch was made; None where that is not known."""
        return None if self._newest_ms is None else max(0, now_ms() - self._newest_ms) / 1000


def _demand_no_backfill(target: Place, chosen: Options, form: Form) -> None:
    """Raise PipelineError where backfill has written records of a topic: they would be there twice."""
    if form.format_name != DELTA:
        if backfill.has_written(target, chosen.topic):
            raise PipelineError(
                f"{target.uri} has records of topic {chosen.topic} by backfill, which would be there twice: name "
                "another --out"
            )
        return
    wanted = table_files.predicate(chosen.topic, chosen.clock, chosen.from_ms, chosen.to_ms)
    if not table_out.is_claimed(target, chosen.topic) and delta.has_rows(target, wanted):
        raise PipelineError(
            f"{target.uri} has records of topic {chosen.topic} already, by no stream, which would be there twice: "
            "begin behind them with --from, or name another --out"
        )


def _records_a_batch(chosen: Options) -> int:
    """Return how many records a batch may have so that it is done in seconds, by what those that are there take."""
    if chosen.kind == "broker":
        found = [piece.record_bytes for piece in from_broker.plan(chosen, Wanted(), now_ms())]
        a_record = max(found, default=0)
    else:
        whole = scan(chosen)
        a_record = (whole.bytes or 0) // (whole.records_at_most or 1)
    return min(RECORDS_A_BATCH, max(1, BATCH_BYTES // max(a_record, 1)))


def _stream_id(spark: "SparkSession") -> str:
    """Return the id that the checkpoint gives the stream."""
    found = [each for each in spark.streams.active if each.name == _NAME]
    return str(found[0].id)
