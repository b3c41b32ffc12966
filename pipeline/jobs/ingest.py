"""ingest: write a topic to a table as it grows, each record once.

A batch that is written again leaves no duplicates. Its records are the same, because the stream fixes them. In Delta
the number of the batch is committed with its rows; in Parquet the files of a batch have fixed names, so a second
attempt replaces the first. Ctrl-C ends the job after a batch.
"""

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs import backfill
from tidelog.pipeline.jobs.parts import delta, following, landing, staging, table_out
from tidelog.pipeline.jobs.parts.exit_codes import INTERRUPTED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, Form
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.stream import RECORDS_A_BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The largest batch: small enough to be committed within seconds.
BATCH_BYTES: Final = 128 << 20


def run(flags: JobFlags, out: str, form: Form, is_available_now: bool, group: str, max_records: int) -> int:
    """Write the topic until Ctrl-C, or until the end of the log; return the exit code."""
    table_out.demand_checkpoint(out, flags.checkpoint)
    chosen = flags.chosen(group=group)
    form.demand_append_time(chosen)
    if flags.dry_run:
        flags.print_scan(scan(chosen))
        return OK
    target = place("--out", out)
    checkpoint = flags.checkpoint or target.under("_checkpoint")
    table_out.demand_form(target, form)
    demand_no_backfill(target, chosen, form)
    most = max_records or records_a_batch(chosen)
    frame = form.decoded(flags.stream(flags.session(), group=group, maxRecordsPerTrigger=str(most)))
    written = Written(target, form)
    is_whole = following.write("ingest", frame, written, target, chosen.topic, checkpoint, is_available_now)
    counts = {"rows": written.rows, "batches": written.batches}
    undecoded = {"undecoded": written.undecoded} if form.decode else {}
    flags.print_account("ingest", counts, out=out, **undecoded)
    return OK if is_whole else INTERRUPTED


class Written:
    """Writes batches to a table, and counts what this run has written."""

    def __init__(self, target: Place, form: Form) -> None:
        self._target = target
        self._form = form
        self._newest_ms: int | None = None
        self.rows = self.undecoded = self.batches = 0

    def batch(self, frame: "DataFrame", number: int, stream: str, may_be_there: bool) -> None:
        """Write a batch of a stream, unless the table has it."""
        target, is_delta, by = self._target, self._form.format_name == DELTA, self._form.by
        if is_delta and may_be_there and delta.last_batch(target, stream) >= number:
            return
        with staging.staged(frame, target, f"_staged-{stream}", self._form) as (folder, landed):
            if not is_delta:
                landing.put(target, folder, landed, f"{stream}-{number:010d}", is_new=not may_be_there)
            elif landed:
                delta.append_once(target, folder, landed, stream, number, by)
        self.rows += sum(each.rows for each in landed)
        self.undecoded += sum(each.undecoded for each in landed)
        self.batches += 1
        self._newest_ms = max((each.newest_ms for each in landed if each.newest_ms is not None), default=None)

    def age_s(self) -> float | None:
        """Return the age of the newest record of the last batch; None if unknown."""
        return None if self._newest_ms is None else max(0, now_ms() - self._newest_ms) / 1000


def demand_no_backfill(target: Place, chosen: Options, form: Form) -> None:
    """Raise PipelineError if backfill has written records of the topic, which would then be there twice."""
    if form.format_name != DELTA:
        if backfill.has_written(target, chosen.topic):
            raise PipelineError(
                f"{target.uri} has records of topic {chosen.topic} by backfill, which would be there twice: name "
                "another --out"
            )
        return
    wanted = delta.predicate(chosen.topic, chosen.clock, chosen.from_ms, chosen.to_ms)
    if not table_out.is_claimed(target, chosen.topic) and delta.has_rows(target, wanted):
        raise PipelineError(
            f"{target.uri} has records of topic {chosen.topic} that no stream wrote, which would be there twice: "
            "start after them with --from, or name another --out"
        )


def records_a_batch(chosen: Options) -> int:
    """Return how many records make a batch of `BATCH_BYTES`, by the size of the records in the log."""
    if chosen.kind == "broker":
        found = from_broker.plan(chosen, now_ms())
        record_bytes = max((piece.record_bytes for piece in found), default=0)
    else:
        whole = scan(chosen)
        record_bytes = (whole.bytes or 0) // (whole.records_at_most or 1)
    return min(RECORDS_A_BATCH, max(1, BATCH_BYTES // max(record_bytes, 1)))
