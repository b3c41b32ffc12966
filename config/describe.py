"""Generates docs/config.md from the table: `python -m tidelog.config.describe [--check]`.

Knows the table's shape and Markdown; the sentences are the table's own.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tidelog.config.inert import INERT, REFUSED, TOPIC_INERT
from tidelog.config.options import BrokerConfig
from tidelog.config.table import Option, options_of
from tidelog.config.topic_options import TopicConfig

PAGE = Path("docs/config.md")

OPENING = """\
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

TOPIC = """\
## Options of topics

Set with CreateTopics for one topic, and changed at any time (`tidelog topics alter`, `kafka-configs.sh`); the
broker's option is the default for all others.
"""

BROKER = """\
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


def page() -> str:
    """Return the text of docs/config.md."""
    parts = [
        OPENING,
        TOPIC + "\n" + _table(_topic_row(row) for row in _sorted(TopicConfig)),
        BROKER + "\n" + _table(_broker_row(row) for row in _sorted(BrokerConfig)),
        IGNORED + "\n" + _reasons({**INERT, **{name: option.why for name, option in TOPIC_INERT.items()}}),
        DENIED + "\n" + _reasons(REFUSED),
    ]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether the written one is up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tidelog.config.describe [--check]", file=sys.stderr)
        return 2
    if not arguments:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        print(f"{PAGE} is not what the table says: make docs", file=sys.stderr)
        return 1
    return 0


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
