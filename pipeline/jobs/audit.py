"""audit: count records by partition and window of create time, and compare other places with the source.

Missing, duplicate and extra records of a tier (`--against`) are found by offset (`transforms.tiers`). Tiers are
compared over the offsets that the source had when the job began. Records appended to the source later are neither
missing nor extra; records that retention deletes from it later are extra.
"""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.config import times
from tidelog.pipeline.jobs.parts import output, report, tiers
from tidelog.pipeline.jobs.parts.charts import Chart, Timeline
from tidelog.pipeline.jobs.parts.exit_codes import FAILED, OK
from tidelog.pipeline.jobs.parts.flags import JobFlags, duration_ms
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.tiers import Tier
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.options import Options
from tidelog.pipeline.ranges import TopicOffsets
from tidelog.pipeline.tasks import KINDS, Task, planned
from tidelog.pipeline.transforms import counting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("partition", "window", "n")
COMPARED: Final = ("tier", "missing", "duplicate", "extra", "p50_ms", "p99_ms")
READ: Final = ("partition", "create_time")
BYTES: Final = ("key", "value")
READ_TO_COMPARE: Final = (
    "partition int, create_time timestamp, offset bigint, append_time timestamp, timestamp_type string"
)
BYTES_TO_COMPARE: Final = ", key binary, value binary"


def run(flags: JobFlags, window: str, against: Sequence[str], is_sized: bool, html: str) -> int:
    """Print the counts; return the exit code, 1 if a tier lacks a record or has one twice."""
    window_ms = duration_ms("--window", window)
    report.demand_place(html)
    chosen = flags.chosen()
    others = tiers.named(flags, against)
    if others:
        flags.demand_not_local("--against")
    found = [(tier, tier.scan()) for tier in (tiers.source(flags), *others)]
    if flags.dry_run:
        output.print_scans([(tier.name, scan) for tier, scan in found], as_json=flags.as_json)
        return OK
    progress = Progress("audit")
    for tier, scan in found:
        progress.say(f"{tier.name}: {scan.words}" if others else scan.words)
    columns = COLUMNS + COMPARED * bool(others) + ("bytes",) * is_sized
    if others:
        offsets = KINDS[chosen.kind].topic_offsets(chosen, now_ms())
        table = _compared(flags, [tier for tier, _ in found], offsets, window_ms, is_sized)
        found_rows = [row.asDict() for row in table.collect()]
    else:
        found_rows = _counts(flags, chosen, window_ms, is_sized)
    names = [tier.name for tier, _ in found]
    rows = [_row(row, names) for row in found_rows]
    status = _summarize(rows, names, progress)
    flags.print_rows(columns, rows)
    if html:
        title = f"Records of {flags.topic} by window of {window}"
        report.write(html, title, columns, rows, _charts(found_rows, names, window_ms))
    return status


def shown(at_ms: int | None) -> str | None:
    """Return the start of a window as text, in UTC; None for the window of records without a time."""
    return None if at_ms is None else times.show(at_ms, UTC).replace("+00:00", "Z")


def _counts(flags: JobFlags, chosen: Options, window_ms: int, is_sized: bool) -> list[dict[str, Any]]:
    with planned(chosen) as tasks:
        engine = flags.engine_for(sum(task.size_bytes for task in tasks))
        counts = engine.each(partial(_counted, chosen, window_ms, is_sized), tasks)
    return counting.total(table for each in counts for table in each)


def _counted(chosen: Options, window_ms: int, is_sized: bool, task: Task) -> list[pa.Table]:
    """Count the records of a task, where the engine runs it."""
    with closing(task.rows(READ + BYTES * is_sized, chosen)) as rows:
        return counting.counted(rows, window_ms)


def _compared(
    flags: JobFlags, found: list[Tier], offsets: TopicOffsets, window_ms: int, is_sized: bool
) -> "DataFrame":
    from tidelog.pipeline.transforms import windows
    from tidelog.pipeline.transforms.tiers import compared, within

    spark = flags.session()
    spans = [(partition, first, end) for partition, (first, end) in offsets.spans.items()]
    bounds = spark.createDataFrame(spans, "partition int, first bigint, end bigint")
    frames = [
        within(tier.read(spark, READ_TO_COMPARE + BYTES_TO_COMPARE * is_sized), bounds) for tier in found
    ]
    return compared([windows.with_bytes(frame) if is_sized else frame for frame in frames], window_ms)


def _row(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a row for output: the window as text, and the tier by its name."""
    tier = {"tier": names[row["tier"]]} if "tier" in row else {}
    return row | {"window": shown(row["window"])} | tier


def _summarize(rows: list[dict[str, Any]], names: list[str], progress: Progress) -> int:
    """Report sums; return the exit code."""
    ours = [row for row in rows if row.get("tier", names[0]) == names[0]]
    progress.say(f"{sum(row['n'] for row in ours):,} records in {len(ours):,} window{'s' * (len(ours) != 1)}")
    is_same = True
    for name in names[1:]:
        of = [row for row in rows if row["tier"] == name]
        sums = {column: sum(row[column] for row in of) for column in ("n", "missing", "duplicate", "extra")}
        progress.say(f"{name}: " + ", ".join(f"{count:,} {column}" for column, count in sums.items()))
        is_same = is_same and not sums["missing"] and not sums["duplicate"]
    return OK if is_same else FAILED


def _charts(rows: list[dict[str, Any]], names: list[str], window_ms: int) -> list[Chart]:
    """Return a chart of each partition, and one for each kind of difference that a tier has."""
    charts: list[Chart] = []
    for partition in sorted({row["partition"] for row in rows}):
        for tier, name in enumerate(names):
            of = [row for row in rows if (row["partition"], row.get("tier", tier)) == (partition, tier)]
            if not tier:
                charts.append(_chart(f"partition {partition}", of, "n", window_ms))
                continue
            charts += [
                _chart(f"partition {partition}, {name}: {column}", of, column, window_ms)
                for column in ("missing", "duplicate", "extra")
                if any(row[column] for row in of)
            ]
    return charts


def _chart(title: str, rows: list[dict[str, Any]], column: str, window_ms: int) -> Timeline:
    timeless = sum(row[column] for row in rows if row["window"] is None)
    if timeless:
        title += f" ({timeless:,} records without a time are not drawn)"
    bars = [(row["window"], row[column]) for row in rows if row["window"] is not None and row[column]]
    return Timeline(title, "records", bars, window_ms)
