"""docs/performance.md and its plots, from the JSON of a run: `python -m bench.report bench/results/NAME.json`.

People write bench/notes/ROW.md, above all for a row that is not met: it appears under the row's table.
"""

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from bench import build, machine, plots, table
from bench.compare import CPU
from bench.metrics import METRICS
from bench.row import FLUSHED, OURS, THEIRS
from bench.suite import Result
from tidelog import native
from tidelog.commit import commit

DOCUMENT = build.ROOT / "docs" / "performance.md"
PLOTS = build.ROOT / "docs" / "performance"
NOTES = build.ROOT / "bench" / "notes"
HEADLINES = {
    "produce-100b": "produce 100 B in large batches",
    "produce-1kb": "produce 1 KB in large batches",
    "produce-100b-acks-all": "produce 100 B in large batches, `acks=all`",
    "consume-100b": "consume 100 B",
    "consume-1kb": "consume 1 KB",
    "crowd": "ten producers and ten consumers",
    "one-record-10x5": "one record a request, 10 connections",
    "on-disk-10x5": "one record a request, 10 connections, `acks=all`",
    "fetch-small": "fetch of one small batch",
    "lookups-in-order": "lookup by time, records in order",
    "lookups-late": "lookup by time, 1 % of the records late",
    "start-empty": "start to the first acknowledgement",
    "kill-9": "start after kill -9 with 5.2 GB",
    "memory-idle": "idle",
    "memory-loaded": "after load",
}
RATES = [name for name, metric in METRICS.items() if metric.is_rate]
HEADS = {
    "rate": RATES,
    "broker CPU": CPU,
    "p99": ["p99_us"],
    "time": ["start_s", "kill_s"],
    "memory": ["rss_mb"],
}


def header(folder: Path, scale: float, runs: int, only: str | None) -> dict[str, Any]:
    """Return what a reader of the figures must know: machine, versions, and how it was measured."""
    return {
        "version": importlib.metadata.version("tidelog"),
        "commit": commit(),
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(folder),
        "versions": {
            "Python": platform.python_version(),
            "modules of requests": native.state(),
            "uvloop": importlib.metadata.version("uvloop"),
            "Apache Kafka": _kafka_version(),
            "Java": _first_line(["java", "-version"]) if only != OURS else "not used",
            "librdkafka": confluent_kafka.libversion()[0],
        },
        "scale": scale,
        "runs": runs,
        "only": only,
    }


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "none"
    return (done.stdout + done.stderr).strip().split("\n")[0]


def _kafka_version() -> str:
    pom = (build.ROOT / "tests" / "e2e" / "java" / "pom.xml").read_text()
    found = re.search(r"<kafka.version>(.*?)<", pom)
    return found.group(1) if found else "?"


class Bars(NamedTuple):
    """One picture of bars: figures of some rows, side by side."""

    file: str
    title: str
    unit: str
    rows: Sequence[str]
    metrics: Mapping[str, str]  # metric -> what is written after the row's name
    is_log: bool = False
    leaves_out: str = ""


BARS = (
    Bars(
        "records",
        "Records a second",
        "records/s",
        ("produce-100b", "produce-100b-acks-all", "produce-1kb", "consume-100b", "consume-1kb", "crowd"),
        {"records_s": ""},
        leaves_out="floor",  # its clients speak another dialect: only its CPU compares
    ),
    Bars(
        "requests",
        "Requests a second",
        "requests/s",
        (
            "one-record-10x5",
            "on-disk-10x5",
            "on-disk-10x5-ten",
            "on-disk-slow",
            "fetch-small",
            "lookups-in-order",
        ),
        {"requests_s": ""},
        is_log=True,
    ),
    Bars(
        "latency",
        "Latency",
        "us",
        ("one-record-1x1", "one-record-10x5", "on-disk-1x1", "produce-to-consume", "produce-while-drained"),
        {"p50_us": " p50", "p99_us": " p99", "p999_us": " p99.9"},
        is_log=True,
    ),
    Bars(
        "cpu",
        "Broker CPU a request",
        "us",
        ("one-record-10x5", "one-record-1x1", "on-disk-10x5", "fetch-small", "fetch-64k", "lookups-in-order"),
        {"cpu_us": ""},
    ),
    Bars("memory", "Memory", "MB", ("memory-idle", "memory-loaded", "partitions-3500"), {"rss_mb": ""}),
)
CURVES = {
    "growth-partitions": ("cpu_us", "us broker CPU a request", "partitions"),
    "growth-connections": ("cpu_us", "us broker CPU a request", "connections"),
    "growth-log": ("cpu_us", "us broker CPU a lookup", "GB in the log"),
    "growth-batch": ("cpu_s_per_million", "s broker CPU a million records", "records in a batch"),
}


def write(path: Path) -> None:
    """Write the document and its plots from a JSON file."""
    run = json.loads(path.read_text())
    PLOTS.mkdir(parents=True, exist_ok=True)
    drawn = dict(drawings(run["rows"]))
    for name, drawing in drawn.items():
        (PLOTS / f"{name}.svg").write_text(drawing)
    DOCUMENT.write_text(document(run, path.name, list(drawn)))


def drawings(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Give the name and the SVG of every plot that there are figures for."""
    by_name = {result["name"]: result for result in results}
    for picture in BARS:
        groups = {
            f"{name}{label}": medians
            for name in picture.rows
            for metric, label in picture.metrics.items()
            if (medians := _medians(by_name.get(name), metric, picture.leaves_out))
        }
        if groups:
            yield picture.file, plots.bars(picture.title, picture.unit, groups, table.number, picture.is_log)
    drawn = {
        label: {head: ratio for head, ratio in ratios.items() if head in ("rate", "broker CPU")}
        for label, ratios in _headlines(results)
        if "rate" in ratios
    }
    yield "beside", plots.bars("Tidelog beside Kafka", "Kafka: 1", drawn, table.number, is_log=True)
    for name, (metric, unit, across) in CURVES.items():
        if curves := _curves(by_name.get(name), metric):
            yield name, plots.lines(by_name[name]["title"], unit, across, curves, table.number)


def _headlines(results: Sequence[Result]) -> Iterator[tuple[str, dict[str, float]]]:
    """Give a label for each headline row, and our figures as ratios to Kafka's."""
    by_name = {result["name"]: result for result in results}
    for name, label in HEADLINES.items():
        for beside in (THEIRS, FLUSHED):
            of = {
                metric: float(line.ratio)
                for metric, _, other, line in table.pair_lines(by_name[name])
                if other == beside and line.ratio
            }
            ratios = {
                head: of[found]
                for head, names in HEADS.items()
                if (found := next(filter(of.get, names), None))
            }
            if ratios:
                yield label if beside == THEIRS else f"{label}; Kafka with `flush.messages=1`", ratios


def _losses(results: Sequence[Result]) -> Iterator[table.Line]:
    """Give each line that compares with Kafka, and in which Kafka is better."""
    for result in results:
        for metric, _, other, line in table.pair_lines(result):
            is_worse = line.ratio not in ("", "1.00") and METRICS[metric].is_rate == (float(line.ratio) < 1)
            if other.startswith(THEIRS) and is_worse:
                yield line._replace(row=result["title"])


def _medians(result: Result | None, metric: str, but: str = "") -> dict[str, float]:
    figures = result["contenders"] if result else {}
    medians = {name: table.median(runs, metric) for name, runs in figures.items() if name != but}
    return {name: median for name, median in medians.items() if median is not None}


def _curves(result: Result | None, metric: str) -> dict[str, list[tuple[float, float]]]:
    """Take contenders named `tidelog, 1,000 records` apart into who and how much."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, median in _medians(result, metric).items():
        who, size = name.split(", ", 1)
        curves.setdefault(who, []).append((float(size.split()[0].replace(",", "")), median))
    return curves


INTRODUCTION = """# Performance

How fast Tidelog is beside Apache Kafka on the same machine, and where it loses. The tables and pictures show one run of
`make bench{compiled}` of {commit} on {measured}. The notes under the rows also have figures of other runs.

Each number of this table is Tidelog's figure divided by Kafka's. Tidelog answers `acks=all` when the records are on
disk; Kafka answers from the page cache unless it has `flush.messages=1`. A rate above 1 is better than Kafka's; for
CPU, p99, time and memory a number below 1 is.

{headlines}

![Rate and CPU beside Kafka](performance/beside.svg)

Kafka is better in these figures:

{losses}

`python -m bench.report bench/results/{name}` generates this page. People write the notes under the rows.

## How to read it

- **Only ratios count.** Another machine, or another day, gives other figures. A ratio is Tidelog's figure divided by
  the one beside it.
- **Names.** `10 x 5` is ten connections with five requests in flight on each. `us` is a microsecond. `k` and `M` are a
  thousand and a million.
- **Both brokers** used the same disk, topics, clients and client settings. They ran in turn, one stopped while the
  other was measured, {runs} runs a row unless the row is a long one. A figure is the median [smallest-largest].
- **Kafka is warm.** Eight million records and 300,000 small requests went through it before the first row, with the
  JVM options of its own start script. One row shows it cold.
- **Kafka has its defaults**, except for single-node replication factors and three settings that would disturb the
  measurement: deleted topics leave the disk after a second (for both brokers); a broker that is stopped while the other
  is measured keeps its session (`broker.session.timeout.ms`); thousands of clients may connect at once
  (`socket.listen.backlog.size`).
- **`acks=all` means different things**: in the page cache for Kafka on one node, on disk for Tidelog. Kafka with
  `flush.messages=1` promises what Tidelog does.
- **The floor** is a small Python program on uvloop. It frames a request, checks its CRC, writes it and answers, without
  a broker ([bench/floor.py](../bench/floor.py)). **The floor in C** does less
  ([bench/clients/echo.c](../bench/clients/echo.c)). They show what Python and C reach on this machine when they do
  almost nothing else.
- **Latency** at a given rate counts from when a request was due.
- **Compiled.** The modules of requests run interpreted unless they were compiled. `COMPILED=1` compiles them, also
  for a single row.
- **Broker CPU** is user and system time of all its threads during the measurement.

| | |
| --- | --- |
{facts}

Other programs measure what is not in this run, and print their figures:

| program | measures |
| --- | --- |
| `python -m bench.compaction` | a pass of compaction |
| `python -m bench.groups --kafka` | groups of many members, commits, a consumer of many partitions |
| `python -m bench.log` | the size of a log beside its records, lookups in it, old clients |
| `python -m bench.pipeline` | the pipeline on Spark |
| `python -m bench.testing` | a broker in tests |
"""


def document(run: dict[str, Any], name: str, drawn: Sequence[str]) -> str:
    """Return the text of docs/performance.md."""
    results = run["rows"]
    parts = [
        INTRODUCTION.format(
            name=name,
            commit=run["commit"],
            compiled=" COMPILED=1" if run["versions"].get("modules of requests") == native.COMPILED else "",
            measured=run["measured"],
            headlines=_summary(results),
            losses=table.grid(
                ("row", "figure", "ratio"),
                ((e.row, f"{e.figure}, {e.beside}", e.ratio) for e in _losses(results)),
            ),
            facts=_facts(run),
            runs=run["runs"],
        ),
        f"## All goals\n\n{table.summary(results)}.\n",
        _goals(results),
        *(
            f"![{name}](performance/{name}.svg)\n"
            for name in drawn
            if name not in CURVES and name != "beside"
        ),
        "## Row by row\n",
    ]
    for result in results:
        parts.append(
            f"### {result['title']}\n\n`make bench ROW={result['name']}`\n\n{table.markdown(result)}\n"
        )
        if result["name"] in drawn:
            parts.append(f"![{result['name']}](performance/{result['name']}.svg)\n")
        note = NOTES / f"{result['name']}.md"
        if note.exists():
            parts.append(note.read_text())
    return "\n".join(parts)


def _summary(results: Sequence[Result]) -> str:
    """Return the table of the headlines."""
    rows = (
        [label, *(f"{ratios[head]:.2f}" if head in ratios else "" for head in HEADS)]
        for label, ratios in _headlines(results)
    )
    return table.grid(["", *HEADS], rows)


def _facts(run: dict[str, Any]) -> str:
    facts = {
        "tidelog": f"{run['version']} ({run['commit']}), {run['measured']}",
        **run["versions"],
        **run["machine"],
    }
    return "\n".join(f"| {name} | {value} |" for name, value in facts.items())


def _goals(results: Sequence[Result]) -> str:
    rows = (
        [result["title"], *line[1:-1], line.verdict if line.verdict == "met" else f"**{line.verdict}**"]
        for result in results
        for line in table.lines_of(result)[: len(result["goals"])]
    )
    return table.grid((*table.HEAD[:-1], ""), rows) + "\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
