"""upsert: keep a Delta table with the latest value of each key of a topic; a tombstone deletes its key.

A row has the offset of its record, and only a later record replaces it. Each batch is one MERGE, committed under its
number, so a batch that is written again changes nothing. The same key in two partitions is two keys.
"""

from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import dataset

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs.parts import delta, following, staging, table_out
from tidelog.pipeline.jobs.parts.exit_codes import INTERRUPTED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, Form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("key", "value", "offset", "partition", "create_time")
READ: Final = "key binary, value binary, offset bigint, partition int, create_time timestamp"
_SAME: Final = "t.partition = s.partition AND t.key = s.key"
_LATER: Final = "s.offset > t.offset"


def run(flags: JobFlags, out: str, is_available_now: bool, group: str, max_records: int) -> int:
    """Update the table until Ctrl-C, or until the end of the log; return the exit code."""
    flags.demand_no_times("the latest value of a key may lie outside the range")
    table_out.demand_checkpoint(out, flags.checkpoint)
    chosen = flags.chosen(group=group)
    if flags.dry_run:
        flags.print_scan(scan(chosen))
        return OK
    target = place("--out", out)
    checkpoint = flags.checkpoint or target.under("_checkpoint")
    table_out.demand_form(target, Form(DELTA))
    if delta.is_table(target) and not table_out.is_claimed(target, chosen.topic):
        raise PipelineError(
            f"{target.uri} has a table that upsert has not made of topic {chosen.topic}; name another --out"
        )
    frame = flags.stream(flags.session(), READ, group=group, maxRecordsPerTrigger=str(max_records))
    kept = Kept(target)
    is_whole = following.write("upsert", frame, kept, target, chosen.topic, checkpoint, is_available_now)
    counts = {"keys": kept.keys, "tombstones": kept.tombstones, "batches": kept.batches}
    flags.print_account("upsert", counts, out=out)
    return OK if is_whole else INTERRUPTED


class Kept:
    """Merges batches into a table, and counts what this run has merged."""

    def __init__(self, target: Place) -> None:
        self._target = target
        self.keys = self.tombstones = self.batches = 0

    def batch(self, frame: "DataFrame", number: int, stream: str, may_be_there: bool) -> None:
        """Merge a batch of a stream into the table, unless the table has it."""
        from tidelog.pipeline.transforms import keys

        target = self._target
        self.batches += 1
        if may_be_there and delta.last_batch(target, stream) >= number:
            return
        latest = keys.latest(frame).select(*COLUMNS)
        with staging.staged(latest, target, f"_staged-{stream}", Form(DELTA)) as (folder, landed):
            if not landed:
                return
            rows = delta.staged(target, folder, landed)
            self.keys += rows.count_rows()
            self.tombstones += rows.count_rows(filter=dataset.field("value").is_null())
            once = CommitProperties(app_transactions=[Transaction(stream, number)])
            if not delta.is_table(target):
                valued = rows.scanner(filter=dataset.field("value").is_valid()).to_reader()
                write_deltalake(target.uri, valued, mode="append", commit_properties=once)
                return
            merge = DeltaTable(target.uri).merge(
                rows.scanner().to_reader(), _SAME, source_alias="s", target_alias="t", commit_properties=once
            )
            every = {name: f"s.{name}" for name in COLUMNS}
            merge = merge.when_matched_delete(f"s.value IS NULL AND {_LATER}")
            merge = merge.when_matched_update(every, _LATER)
            merge.when_not_matched_insert(every, "s.value IS NOT NULL").execute()

    def age_s(self) -> None:
        """Return None: merged batches do not tell the age of their records."""
