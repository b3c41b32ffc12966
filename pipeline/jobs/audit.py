"""audit: how many records each partition has of each window of create time.

Owns the rows `partition, window, n`, and what is shown of them. What is missing from one store of a log shows beside
the rows of another.
"""

from datetime import UTC
from typing import Any, Final

from tidelog.config import times
from tidelog.pipeline import output, report
from tidelog.pipeline.exit_codes import OK
from tidelog.pipeline.flags import Asked, duration_ms
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.progress import Progress
from tidelog.pipeline.scan import scan

COLUMNS: Final = ("partition", "window", "n")


def run(asked: Asked, window: str, html: str) -> int:
    """Print the counts; return the exit code."""
    window_ms = duration_ms("--window", window)
    found = scan(asked.chosen(now_ms()))
    if asked.dry_run:
        output.print_scan(found, as_json=asked.as_json)
        return OK
    from tidelog.pipeline.transforms import windows

    progress = Progress("audit")
    progress.say(found.words)
    records = asked.read(asked.session(), "partition int, create_time timestamp")
    rows = [
        {"partition": row[0], "window": shown(row[1]), "n": row[2]}
        for row in windows.counts(records, window_ms).collect()
    ]
    progress.say(f"{sum(row['n'] for row in rows):,} records in {len(rows):,} windows")
    output.print_rows(COLUMNS, rows, as_json=asked.as_json)
    if html:
        report.write(html, f"Records of {asked.topic} by window of {window}", COLUMNS, rows, _charts(rows))
    return OK


def shown(at_ms: int | None) -> str | None:
    """Return the start of a window as text, in UTC; None of records without a time."""
    return None if at_ms is None else times.show(at_ms, UTC).replace("+00:00", "Z")


def _charts(rows: list[dict[str, Any]]) -> list[report.Chart]:
    return [
        report.Chart(
            f"partition {partition}",
            [(str(row["window"]), row["n"]) for row in rows if row["partition"] == partition],
        )
        for partition in sorted({row["partition"] for row in rows})
    ]
