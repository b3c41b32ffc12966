"""latency: the delay from the creation of records to their append, by window of append time."""

from typing import Final

from tidelog.pipeline.jobs.audit import shown
from tidelog.pipeline.jobs.parts import report
from tidelog.pipeline.jobs.parts.charts import Bars, Chart, Timeline
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import JobFlags, duration_ms
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.tables import IS_BOUND

COLUMNS: Final = ("window", "n", "unknown", "min_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
READ: Final = f"create_time timestamp, append_time timestamp, timestamp_type string, {IS_BOUND} boolean"


def run(flags: JobFlags, window: str, html: str) -> int:
    """Print the delays; return the exit code."""
    window_ms = duration_ms("--window", window)
    report.demand_place(html)
    found = scan(flags.chosen())
    if flags.dry_run:
        flags.print_scan(found)
        return OK
    from tidelog.pipeline.transforms.windows import STEPS_MS, delays

    progress = Progress("latency")
    progress.say(found.words)
    table = delays(flags.read(flags.session(), READ), window_ms)
    found_rows = [row.asDict() for row in table.collect()]
    rows = [row | {"window": shown(row["window"])} for row in found_rows]
    progress.say(f"{sum(row['n'] for row in rows):,} records in {len(rows):,} window{'s' * (len(rows) != 1)}")
    unknown = sum(row["unknown"] for row in rows)
    if unknown:
        is_broker = flags.source.startswith("broker:")
        hint = "; the broker's files have more times: --source segments:FOLDER" if is_broker else ""
        progress.say(f"{unknown:,} records have only one of the two times{hint}")
    # JSON has the histogram, so that windows can be added up.
    steps = [*(f"{step}" for step in STEPS_MS), "more"]
    shown_rows = [row | {"histogram": dict(zip(steps, row["histogram"], strict=True))} for row in rows]
    columns = (*COLUMNS, "histogram") if flags.as_json else COLUMNS
    flags.print_rows(columns, shown_rows)
    if html:
        added = [sum(row["histogram"][number] for row in rows) for number in range(len(steps))]
        p99 = [
            (row["window"], row["p99_ms"])
            for row in found_rows
            if row["window"] is not None and row["p99_ms"]
        ]
        drawn: list[Chart] = [
            Bars("Records by delay", "records, by at most so many ms", list(zip(steps, added, strict=True))),
            Timeline("p99 of the delay", "ms", p99, window_ms),
        ]
        report.write(html, f"Delay of {flags.topic} by window of {window}", COLUMNS, rows, drawn)
    return OK
