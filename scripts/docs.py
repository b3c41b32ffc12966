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

All options of the broker and of topics, with type, default and meaning. Names are Kafka's, so a `server.properties`
for Kafka works unchanged. "Not in Kafka" marks the other options.

Generated from the tables in `config/` by `make docs`.

## Recipes

Write options of the broker to a file, and start it with `tidelog serve --config-file server.properties`:

```properties
# Serve clients on other machines. There is no authentication, so use a firewall.
listeners=PLAINTEXT://:9092
advertised.listeners=PLAINTEXT://broker.example:9092
log.dir=/var/lib/tidelog
# Keep records for 7 days, and at most 10 GB of each partition.
log.retention.ms=7d
log.retention.bytes=10GB
# Do not create a topic because a client asks for it.
auto.create.topics.enable=false
# Serve /metrics and /health.
http.port=9464
```

Give options of a topic to `tidelog topics create TOPIC --config NAME=VALUE`, or later to `tidelog topics alter`:

| goal | options |
| --- | --- |
| keep records for 30 days | `retention.ms=30d` |
| keep records forever | `retention.ms=-1` |
| keep at most 10 GB of each partition | `retention.bytes=10GB` |
| keep the last record of each key | `cleanup.policy=compact` ([compaction.md](compaction.md)) |
| count the age of records from their arrival | `retention.clock=append` ([time.md](time.md#retention)) |
| let clients find records by their arrival | `lookup.clock=append` ([time.md](time.md#find-a-record-by-time)) |
| stamp records with the broker's clock | `message.timestamp.type=LogAppendTime` |
| accept batches of up to 10 MiB | `max.message.bytes=10MiB` |
| store records in one codec, however they are sent | `compression.type=zstd` |
| answer from memory, and flush every second | `flush.policy=interval`, `flush.ms=1s` ([durability.md](durability.md)) |

## Where options come from

The broker reads options from these sources. If several set the same option, the last one in this table wins:

| source | example |
| --- | --- |
| default | |
| properties file | `tidelog serve --config-file server.properties` |
| environment | `KAFKA_LOG_SEGMENT_BYTES=1048576` |
| command line | `--config log.segment.bytes=1048576` (may be repeated), `--port`, `--data-dir` |
| change while the broker runs | `tidelog configs alter --broker 1 --config max.connections=5000` |

Names in the environment follow the apache/kafka image: one underscore stands for a dot, two for an underscore,
three for a dash. Variables of the JVM and of the image, such as `KAFKA_HEAP_OPTS`, are ignored.

If one source sets a time in several units (`log.retention.hours` and `log.retention.ms`), the finest unit wins.

The broker does not start with an unknown option or an invalid value. The message names the option, the value and its
source, and for a misspelled option the nearest name:

    $ tidelog serve --config log.segment.byte=1
    tidelog: log.segment.byte=1 (command line): no such option; did you mean log.segment.bytes?
"""

OPTIONS_OF_TOPICS = """\
### Sizes and durations

In files, in the environment and on the command line, options that count bytes or a time take a unit. The broker
stores plain numbers, and clients send and get plain numbers, as with Kafka.

| options | units | example |
| --- | --- | --- |
| `*.ms`, `*.minutes`, `*.hours` | `ms`, `s`, `m`, `h`, `d`, `w` | `retention.ms=7d`, `log.roll.ms=1h30m` |
| `*.bytes`, `*.bytes.per.second`, `*.buffer.size` | `B`, `KiB`, `MiB`, `GiB`, `TiB` | `segment.bytes=64MiB` |

`KB`, `MB`, `GB` and `TB` are powers of 1000. The value must be a whole number of the option's own unit:
`log.retention.hours=90m` is an error.

## Options of topics

Set these when you create a topic (`tidelog topics create --config`), or change them at any time
(`tidelog topics alter`, `kafka-configs.sh`). For topics without a value of their own, the broker's option applies. Its
name follows `broker:` if it differs.
"""

OPTIONS_OF_BROKER = """\
## Options of the broker

You can change some options while the broker runs (`tidelog configs alter`, `kafka-configs.sh`): options marked "Can be
changed while the broker runs" and the broker's defaults for topics. The broker stores such a change in its data folder,
and it takes precedence over the file, the environment and the command line at the next start too. To change or delete
it while the broker is stopped, use `tidelog configs alter --data-dir DIR`.
"""

IGNORED = """\
## Options of Kafka that have no effect

The broker accepts these options, so a configuration for Kafka starts Tidelog unchanged. It logs each one once at
start-up, or when a topic is created with it.

DescribeConfigs lists the options that Kafka always lists, with the value that you set. Without one it shows the value
that is true for this broker (`num.io.threads` is 1), or Kafka's default. Options that Kafka can change while it runs
can be changed here too, and the broker stores the value.
"""

DENIED = """\
## Options of Kafka that are refused

The broker does not start with one of these security options, because it would run without the protection that they
promise.
"""

METRICS = f"""\
# Metrics and health

The broker exports metrics for Prometheus and reports its health over HTTP. This page lists all metrics, their limits
and their cost. [operations.md](operations.md#watch) says what to alert on.

Generated from the table in `broker/metrics/table.py` by `make docs`.

Set `http.port` to enable both: `tidelog serve --config http.port=9464`. The port listens at the address of the first
listener. It has no authentication: everyone who can connect can read the names of topics and groups. Without
`http.port` the broker counts no requests, and metrics cost nothing.

| path | response |
| --- | --- |
| `/metrics` | all metrics in Prometheus's text format; 503 while the broker stops |
| `/health` | JSON, with status 200, or 503 while the broker stops, a log refuses writes, or the disk is full |

```yaml
scrape_configs:
  - job_name: tidelog
    static_configs: [{{ targets: ["127.0.0.1:9464"] }}]
```

## Health

    $ curl http://127.0.0.1:9464/health
    {{
      "status": "ok",
      "version": "0.1.0",
      "cluster_id": "HMU-dR-_R2ahuXozaDwz5A",
      "node_id": 1,
      "topics": 1,
      "partitions": 1,
      "refusing_writes": 0,
      "refused": [],
      "damaged_ranges": 0,
      "damaged": [],
      "compaction_failing": 0,
      "not_compacted": []
    }}

| field | meaning |
| --- | --- |
| `status` | `ok`, `stopping` or `refusing writes` |
| `refusing_writes` | how many logs refuse writes |
| `refused` | up to 100 of these logs, each with `log`, `reason` and `is_read`; if the broker could not open the log \
at start-up, `is_read` is false, and reads of the log fail too |
| `damaged_ranges` | how many damaged ranges of logs are known; the status stays 200 |
| `damaged` | up to 100 of these ranges, each with `log`, `range` (file and bytes) and `next_offset`, the first offset \
after the range |
| `compaction_failing` | how many logs fail compaction; the status stays 200 |
| `not_compacted` | up to 100 of these logs, each with `log` and `reason` |

## Limits

Beyond these limits a response omits metrics. It has about 350 bytes for each partition.

| metrics | limit | beyond the limit |
| --- | --- | --- |
| `tidelog_partition_*` | {MOST_PARTITIONS:,} partitions in the broker | omitted; the metrics of topics remain |
| `tidelog_partition_compaction_failing` | {MOST_PARTITIONS:,} failing partitions, however many the broker has | the \
others are omitted |
| `tidelog_topic_*` | {MOST_TOPICS:,} topics | omitted; the totals remain |
| `tidelog_group_*` | {MOST_LAGS:,} committed offsets; group names of up to {MOST_GROUP_NAME} characters | the \
others are omitted; `tidelog_group_lags_left_out` counts them |
| `tidelog_partition_append_delay_seconds`, `tidelog_group_lag_seconds` | {LOOKS_S} s of reading for each of the two \
in a scrape | the other partitions keep their last value, or have none yet; the next scrape continues with them |

For the two metrics in the last row the broker reads records, but only of logs that have changed since the last scrape.

The HTTP port serves 16 connections at once, each for at most 30 s. It closes a connection that sends no complete
request within 5 s, or is idle for 5 s after a response. A 17th connection replaces one from the address that has the
most, so a slow or hostile scraper cannot block a probe of `/health`.

## Cost

**Scrapes.** With 3,500 partitions a scrape takes 50 ms, or 140 ms if all of them have changed, and returns 1 MB. A
reader thread does the work and alternates with requests. The event loop spends 0.1 ms at the start and sends the
response in pieces. Concurrent scrapes share one response.

**Counting.** For each request the broker counts the API, the bytes, the errors in the response, and the duration in a
histogram with {len(BOUNDS_S)} bounds from {BOUNDS_S[0] * 1e6:.0f} us to {BOUNDS_S[-1]:.0f} s. \
This takes 0.5 us, or 0.8 us if the response has to wait.
In thousands of user instructions, without the work of the sockets:

| request | without `http.port` | with `http.port` |
| --- | --: | --: |
| produce of one record | 74 | 81 |
| the same with acks=all | 84 | 95 |
| fetch of one batch | 66 | 72 |

The HTTP port itself takes 9 MB of memory.
"""

METRICS_OF_PROCESS = """\
## The process

`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_cpu_seconds_total`,
`process_start_time_seconds`, `process_open_fds` and `process_max_fds` are the standard metrics of Prometheus's clients.
They cover the broker, but not [the process of a compaction pass](compaction.md#the-process-of-a-pass).
"""


MODULES = """\
# Modules

Look up here which module does what, and which modules it may import. [architecture.md](architecture.md) explains how
they work together.

Generated from the import contracts in `pyproject.toml` and the first line of each module by `make docs`.

In a table with layers, a module may import modules of later layers only.
"""
EACH_AN_API = ("protocol/messages", "broker/handlers")
ROOMS = ("protocol", "storage", "broker", "client", "pipeline", "cli", "config", "testing")


def options_page() -> str:
    """Return the text of docs/config.md."""
    inert = {**INERT, **{name: row.why_inert for name, row in TOPIC_INERT.items()}}
    parts = [
        OPTIONS,
        OPTIONS_OF_TOPICS + "\n" + _table(_topic_row(row) for row in _sorted(TopicConfig)),
        OPTIONS_OF_BROKER + "\n" + _table(_broker_row(row) for row in _sorted(BrokerConfig)),
        DENIED + "\n" + _reasons(REFUSED),
        IGNORED + "\n" + _folded("The options, each with the reason", _reasons(inert)),
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


def _folded(summary: str, text: str) -> str:
    """Return text that readers unfold. The site needs the attribute to read Markdown in it."""
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{text}\n</details>\n'


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
