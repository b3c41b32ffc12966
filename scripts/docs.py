"""Generates the pages of docs/ that are made from declarations: `python scripts/docs.py [--check]`."""

import ast
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tidelog.broker import describe as compatibility
from tidelog.broker.metrics import table as metrics
from tidelog.broker.metrics.collect import LOOKS_S, MOST_GROUP_NAME, MOST_LAGS, MOST_PARTITIONS, MOST_TOPICS
from tidelog.broker.tallies import BOUNDS_S
from tidelog.config.inert import INERT, REFUSED, TOPIC_INERT
from tidelog.config.options import BrokerConfig
from tidelog.config.table import Option, options_of
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol import describe as protocol

OPTIONS = """\
# Options

Generated from the table in `config/options.py` by `make docs`.

## Where options come from

1. A file of Java properties, `tidelog serve --config server.properties`.
2. The environment: `KAFKA_LOG_SEGMENT_BYTES` is `log.segment.bytes`. One underscore stands for a dot, two for
   an underscore, three for a dash, as in the apache/kafka image.
3. The command line: `--override log.segment.bytes=1048576`, any number of times; `--port` and `--data-dir`.

What comes later wins. Where one source names a span in several units (`log.retention.hours` and
`log.retention.ms`), the finest wins. An option that does not exist, or a value that does not fit, keeps the
broker from starting; the message names the option, the value, where it stands and the nearest name.
"""

OPTIONS_OF_TOPICS = """\
## Options of topics

Set with CreateTopics for one topic, and changed at any time (`tidelog topics alter`, `kafka-configs.sh`); the
broker's option is the default for all others.
"""

OPTIONS_OF_BROKER = """\
## Options of the broker

Those that are marked, and the defaults of topics by their broker's names, can be changed while the broker runs
(`tidelog configs`, `kafka-configs.sh`): what is set so is kept in the data folder, and goes before what the broker is
started with. `tidelog configs alter --data-dir DIR` changes or deletes it while the broker is stopped.
"""

IGNORED = """\
## Options of Kafka that are accepted and do nothing

So that a configuration written for Kafka starts Tidelog unchanged. Each is named once in the log at start-up, and
those of a topic when it is created with them. DescribeConfigs tells those that Kafka always lists: with the value that
they were given, else with what is so here (`num.io.threads` is 1) or, where it says nothing about this broker, Kafka's
default. What of them Kafka lets be changed while a broker runs is taken and kept here as well.
"""

DENIED = """\
## Options of Kafka that are refused

The broker does not start with one of these, lest it seem to be guarded.
"""

METRICS = f"""\
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

METRICS_OF_PROCESS = """\
## The process

`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_cpu_seconds_total`,
`process_start_time_seconds`, `process_open_fds` and `process_max_fds` are those of prometheus_client.
"""


MODULES = """\
# Modules

Generated from the import contracts in `pyproject.toml` and the first line of each module by `make docs`.

In a table with layers a module may import those of later layers, and none of its own or of an earlier one.
"""
EACH_AN_API = ("protocol/messages", "broker/handlers")
ROOMS = ("protocol", "storage", "broker", "client", "pipeline", "cli", "config", "testing")


def options_page() -> str:
    """Return the text of docs/config.md."""
    parts = [
        OPTIONS,
        OPTIONS_OF_TOPICS + "\n" + _table(_topic_row(row) for row in _sorted(TopicConfig)),
        OPTIONS_OF_BROKER + "\n" + _table(_broker_row(row) for row in _sorted(BrokerConfig)),
        IGNORED + "\n" + _reasons({**INERT, **{name: row.why_inert for name, row in TOPIC_INERT.items()}}),
        DENIED + "\n" + _reasons(REFUSED),
    ]
    return "\n".join(parts)


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    return "\n".join([METRICS, *_groups_of_metrics(), METRICS_OF_PROCESS])


def modules_page() -> str:
    """Return the text of docs/modules.md."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = {row["containers"][0]: row["layers"] for row in contracts if "containers" in row}
    parts = [MODULES]
    for room in ROOMS:
        for folder in sorted(
            {path.parent for path in Path(room).rglob("*.py") if "_" not in path.parent.name}
        ):
            name = "tidelog." + ".".join(folder.parts)
            if folder.as_posix() in EACH_AN_API:
                inside = "One module for each API: [compatibility.md](compatibility.md) lists them.\n"
            else:
                inside = _layer_rows(folder, layers[name]) if name in layers else _module_rows(folder)
            parts.append(f"## {folder.as_posix()}\n\n{_first_line(folder / '__init__.py')}\n\n{inside}")
    return "\n".join(parts)


def _layer_rows(folder: Path, layers: list[str]) -> str:
    rows = "".join(
        f"| {number} | `{module.strip()}` | {_first_line(_file_of(folder, module.strip()))} |\n"
        for number, layer in enumerate(layers, 1)
        for module in layer.split("|")
    )
    return f"| Layer | Module | What it does |\n|---|---|---|\n{rows}"


def _module_rows(folder: Path) -> str:
    files = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
    rows = "".join(f"| `{path.stem}` | {_first_line(path)} |\n" for path in files)
    return f"| Module | What it does |\n|---|---|\n{rows}"


def _file_of(folder: Path, module: str) -> Path:
    path = folder.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).replace("|", "\\|")


PAGES: Mapping[str, Callable[[], str]] = {
    "config.md": options_page,
    "protocol.md": protocol.describe,
    "compatibility.md": compatibility.page,
    "metrics.md": metrics_page,
    "modules.md": modules_page,
}


def main(arguments: list[str], folder: Path = Path(__file__).parents[1] / "docs") -> int:
    """Write the pages, or with --check say which of those that are written are not up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python scripts/docs.py [--check]", file=sys.stderr)
        return 2
    status = 0
    for name, page in PAGES.items():
        path = folder / name
        if not arguments:
            path.write_text(page(), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page():
            print(f"{path} is out of date: make docs", file=sys.stderr)
            status = 1
    return status


def _sorted(table: type[TopicConfig | BrokerConfig]) -> list[Option]:
    return sorted(options_of(table), key=lambda row: row.name)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    heading = ("Option", "Type", "Default", "What it does")
    lines = [heading, ("---",) * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _topic_row(row: Option) -> tuple[str, ...]:
    brokers = [f"`{name}`" for name in (row.broker, *row.aliases) if name not in ("", row.name)]
    origin = f"<br>broker: {', '.join(brokers)}" if brokers else ""
    return f"`{row.name}`{origin}", _kind(row), _default(row), _doc(row)


def _broker_row(row: Option) -> tuple[str, ...]:
    also = "".join(f"<br>also `{alias}`" for alias in row.aliases)
    return f"`{row.name}`{also}", _kind(row), _default(row), _doc(row)


def _kind(row: Option) -> str:
    allowed = row.range()
    return f"{row.kind.name}: {allowed}" if allowed else row.kind.name


def _default(row: Option) -> str:
    text = row.text(row.default)
    return f"`{text}`" if text else "none"


def _doc(row: Option) -> str:
    other = "No other value" if row.choices else "No more"
    why = f" {other}, because {row.because}." if row.because else ""
    live = " Can be changed while the broker runs." if row.live else ""
    return f"{'Not in Kafka. ' if row.ours else ''}{row.doc}{why}{live}"


def _reasons(table: Mapping[str, str]) -> str:
    return "".join(f"- {line}\n" for line in sorted(_reason_lines(table)))


def _reason_lines(table: Mapping[str, str]) -> Iterator[str]:
    for name, why in table.items():
        yield f"`{name}{'*' if name.endswith('.') else ''}`: {why}"


def _groups_of_metrics() -> Iterator[str]:
    for title, group in metrics.GROUPS:
        rows = "".join(map(_metric_row, group))
        yield f"## {title}\n\n| Metric | Kind | Labels | What it says |\n| --- | --- | --- | --- |\n{rows}"


def _metric_row(metric: metrics.Metric) -> str:
    names = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {names} | {metric.doc} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
