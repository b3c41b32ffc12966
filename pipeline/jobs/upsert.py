"""upsert: a topic as a table of the latest value of each key, as it grows; a tombstone takes its key out.

Owns what a batch makes of the table. A row has the offset of its record, and nothing earlier replaces it: so a batch
that is done again changes nothing. In Delta a batch is one MERGE, committed under its number; in Parquet each partition
is one file, which is written aside and renamed over the one before. A key is one of its partition.
"""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import dataset, fs

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import delta, landing, output, table_out
from tidelog.pipeline.jobs.parts.exit_codes import INTERRUPTED, OK
from tidelog.pipeline.jobs.parts.flags import Asked, one_of
from tidelog.pipeline.jobs.parts.following import Stop, follow
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.jobs.parts.table_out import DELTA, FORMATS, PARQUET
from tidelog.pipeline.now import now_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("key", "value", "offset", "partition", "create_time")
TRIGGER: Final = "1 second"
_NAME: Final = "tidelog-upsert"
_FILE: Final = "latest.parquet"
_SAME: Final = "t.partition = s.partition AND t.key = s.key"
_LATER: Final = "s.offset > t.offset"


def run(
    asked: Asked, out: str, format_name: str, is_available_now: bool, group: str, max_records: int
) -> int:
    """Keep the table until Ctrl-C, or until all is read that is there; return the exit code."""
    begun = monotonic()
    one_of("--format", format_name, FORMATS)
    if asked.from_time or asked.to_time:
        raise WrongOption("--from: the latest value of a key may lie outside of it; leave out the times")
    if remote.is_remote(out) and format_name == PARQUET:
        raise WrongOption(
            "--out: Parquet is replaced by renaming, in a folder; write --format delta to an object store"
        )
    if remote.is_remote(out) and not asked.checkpoint:
        raise WrongOption(
            "--checkpoint is missing; name a folder: Spark itself does not write to an object store here"
        )
    chosen = asked.chosen(now_ms(), group=group)
    if asked.dry_run:
        output.print_scan(scan(chosen), as_json=asked.as_json)
        return OK
    target = place("--out", out)
    checkpoint = asked.checkpoint or target.under("_checkpoint")
    _demand_table(target, format_name, chosen.topic)
    spark = asked.session()
    frame = asked.stream(spark, group=group, maxRecordsPerTrigger=str(max_records))
    stop = Stop()
    kept = Kept(
        target,
        format_name,
        lambda: _stream_id(spark),
        lambda stream: table_out.claim(target, chosen.topic, stream, checkpoint),
    )
    writer = frame.writeStream.queryName(_NAME).option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(stop.guarded(kept.batch))
    writer = writer.trigger(availableNow=True) if is_available_now else writer.trigger(processingTime=TRIGGER)
    with stop.by_ctrl_c():
        is_whole = follow(writer.start(), Progress("upsert"), stop)
    account = {
        "job": "upsert",
        "keys": kept.keys,
        "tombstones": kept.tombstones,
        "batches": kept.batches,
        "seconds": round(monotonic() - begun, 1),
        "out": out,
    }
    output.print_account(account, as_json=asked.as_json)
    return OK if is_whole else INTERRUPTED


def _demand_table(target: Place, format_name: str, topic: str) -> None:
    """Raise PipelineError where the place has a table that this job has not made, of this topic and in this form."""
    is_delta = delta.is_table(target)
    there = is_delta or bool(
        fs.FileSystem.get_file_info(target.files, target.path).type == fs.FileType.Directory
        and landing.files_of(target, "")
    )
    if there and is_delta != (format_name == DELTA):
        kind = DELTA if is_delta else PARQUET
        raise PipelineError(
            f"{target.uri} is a table of {kind}; write --format {kind}, or name another --out"
        )
    if there and not table_out.is_claimed(target, topic):
        raise PipelineError(
            f"{target.uri} has a table that is none of topic {topic} by upsert; name another --out"
        )


class Kept:
    """The table, and what this run has changed in it."""

    def __init__(
        self, target: Place, format_name: str, stream_id: Callable[[], str], claim: Callable[[str], None]
    ) -> None:
        """Count from zero; the stream has an id that outlives a restart, and claims the table by it."""
        self._target = target
        self._is_delta = format_name == DELTA
        self._stream_id = stream_id
        self._claim = claim
        self._is_first = True
        self.keys = self.tombstones = self.batches = 0

    def batch(self, frame: "DataFrame", number: int) -> None:
        """Have the table be as it is behind a batch."""
        from tidelog.pipeline.transforms import keys

        writer = self._stream_id()
        if self._is_first:
            self._claim(writer)
            self._is_first = False
        latest = keys.latest(frame).select(*COLUMNS)
        if self._is_delta:
            self._merge(latest, writer, number)
        else:
            self._replace(latest, writer)
        self.batches += 1

    # Delta.

    def _merge(self, latest: "DataFrame", writer: str, number: int) -> None:
        target, folder = self._target, f"_staged-{writer}"
        if delta.last_batch(target, writer) >= number:
            return
        landing.discard(target, folder)  # of an attempt that was killed
        landed = landing.stage(latest, target, folder)
        try:
            paths = [target.under(f"{folder}/{each.name}") for each in landed]
            if not paths:
                return
            rows = dataset.dataset(paths, filesystem=target.files, format="parquet")
            self._count(rows.count_rows(), rows.count_rows(filter=dataset.field("value").is_null()))
            once = CommitProperties(app_transactions=[Transaction(writer, number)])
            if not delta.is_table(target):
                kept = rows.scanner(filter=dataset.field("value").is_valid()).to_reader()
                write_deltalake(target.uri, kept, mode="append", commit_properties=once)
                return
            merge = DeltaTable(target.uri).merge(
                rows.scanner().to_reader(), _SAME, source_alias="s", target_alias="t", commit_properties=once
            )
            merge = merge.when_matched_delete(f"s.value IS NULL AND {_LATER}")
            merge = merge.when_matched_update({name: f"s.{name}" for name in COLUMNS}, _LATER)
            merge.when_not_matched_insert(
                {name: f"s.{name}" for name in COLUMNS}, "s.value IS NOT NULL"
            ).execute()
        finally:
            landing.discard(target, folder)

    # Parquet.

    def _replace(self, latest: "DataFrame", writer: str) -> None:
        from pyspark.sql import functions as f

        from tidelog.pipeline.transforms import keys

        target, folder = self._target, f"_staged-{writer}"
        latest = latest.persist()
        try:
            found = latest.groupBy("partition").agg(
                f.count("key").alias("n"), f.count(f.when(f.isnull("value"), 1)).alias("gone")
            )
            touched = {row["partition"]: row for row in found.collect()}
            self._count(*(sum(row[name] for row in touched.values()) for name in ("n", "gone")))
            there = [name for each in touched if self._has(name := _name(each))]
            rows = latest
            if there:
                before = latest.sparkSession.read.option("basePath", target.path).parquet(
                    *map(target.under, there)
                )
                rows = latest.unionByName(before.withColumn("partition", f.col("partition").cast("int")))
            rows = keys.latest(rows).where("value IS NOT NULL").select(*COLUMNS)
            landing.discard(target, folder)  # of an attempt that was killed
            if not touched:
                return
            landed = landing.stage(rows.repartition("partition"), target, folder, "partition")
            for each in landed:
                parted = each.name.rpartition("/")[0]
                target.files.create_dir(target.under(parted), recursive=True)
                target.files.move(target.under(f"{folder}/{each.name}"), target.under(f"{parted}/{_FILE}"))
            written = {each.name.rpartition("/")[0] for each in landed}
            for name in there:
                if name.rpartition("/")[0] not in written:
                    target.files.delete_file(target.under(name))  # not a key is left in it
        finally:
            latest.unpersist()
            landing.discard(target, folder)

    def _has(self, name: str) -> bool:
        return bool(self._target.files.get_file_info(self._target.under(name)).is_file)

    def _count(self, keys: int, tombstones: int) -> None:
        self.keys += keys
        self.tombstones += tombstones


def _name(partition: int) -> str:
    return f"partition={partition}/{_FILE}"


def _stream_id(spark: "SparkSession") -> str:
    """Return the id that the checkpoint gives the stream."""
    found = [each for each in spark.streams.active if each.name == _NAME]
    return str(found[0].id)
