"""Generates docs/metrics.md from the table: `python -m tidelog.broker.metrics.describe [--check]`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tidelog.broker.metrics.collect import LOOKS_S, MOST_GROUP_NAME, MOST_LAGS, MOST_PARTITIONS, MOST_TOPICS
from tidelog.broker.metrics.table import GROUPS, Metric
from tidelog.broker.tallies import BOUNDS_S

PAGE = Path("docs/metrics.md")

OPENING = f"""\
# Metrics and health

Generated from the table in `broker/metrics/table.py` by `make docs`.

With `http.port` set, the broker answers HTTP on that port, at the address of its first listener. Nobody is asked for a
password, so whoever reaches it learns the names of topics and groups. Without it requests are not counted, and nothing
is slower.

- `/metrics`: figures for Prometheus, in its text format.
- `/health`: 200 where the broker serves, 503 where it is stopping, or a log takes no writes. The body is JSON: `status`
  (`ok`, `stopping` or `refusing writes`), what runs, and under `refused` the logs, the first hundred, each with the
  reason and `is_read`, which is false for a log that the start could not open. Logs whose compaction fails are named
  under `not_compacted`, and are no reason for 503.

```yaml
scrape_configs:
  - job_name: tidelog
    static_configs: [{{ targets: ["127.0.0.1:9095"] }}]
```

**What a scrape costs.** It is read on a reader thread, in turns with other work; the event loop gives it a tenth of a
millisecond to begin with, and sends it in pieces. With 3,500 partitions it takes 50 ms of that thread, 140 where all of
them have changed, and has a megabyte. Requests that come while one is being made get that one. An answer has some 350
bytes for a partition:

- up to {MOST_PARTITIONS:,} partitions each has lines of its own; where there are more, only topics have,
- up to {MOST_TOPICS:,} topics; where there are more, there are totals only.
- of groups up to {MOST_LAGS:,} committed offsets are told, and none of a group with a name of more than
  {MOST_GROUP_NAME} characters; `tidelog_group_lags_left_out` counts those that are not,
- for delays and lags in seconds records have to be looked into: for {LOOKS_S} s a scrape, those that changed. Where
  that is not enough, what was found before is told, or nothing yet, and the next scrape goes on from there.

16 connections at once, each for 30 s at most. One that sends no whole request for 5 s, or was answered and is silent
for 5 s, is closed. A 17th connection replaces one from the address that has the most, so a slow or
hostile scraper does not shut out a probe of `/health`.

**What counting costs.** Of each request are counted its API, its bytes, its time by {len(BOUNDS_S)} bounds from
{BOUNDS_S[0] * 1e6:.0f} us to {BOUNDS_S[-1]:.0f} s, and the errors in its answer: half a microsecond, or 0.8 where the
answer is waited for. In thousands of user instructions, of what the broker does between its sockets: a produce of one
record takes 74 without it and 81 with it, with acks=all 84 and 95, a fetch of one batch 66 and 72. The port itself
takes 9 MB of memory.
"""

CLOSING = """\
## The process

`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_cpu_seconds_total`,
`process_start_time_seconds`, `process_open_fds` and `process_max_fds` are those of prometheus_client.
"""


def page() -> str:
    """Return the text of docs/metrics.md."""
    return "\n".join([OPENING, *_groups(), CLOSING])


def _groups() -> Iterator[str]:
    for title, metrics in GROUPS:
        rows = "".join(map(_row, metrics))
        yield f"## {title}\n\n| Metric | Kind | Labels | What it says |\n| --- | --- | --- | --- |\n{rows}"


def _row(metric: Metric) -> str:
    names = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {names} | {metric.doc} |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether the written one is up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tidelog.broker.metrics.describe [--check]", file=sys.stderr)
        return 2
    if not arguments:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        print(f"{PAGE} is not what the table says: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
