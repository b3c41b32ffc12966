"""`tidelog top`: the rates of topics and the lag of groups, again and again, from the Kafka protocol alone."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli.arguments import Integer, bootstrap_option, json_option
from tidelog.cli.connect import connected
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, is_terminal, or_dash, print_rows, size, table, to_json
from tidelog.cli.text import examples
from tidelog.cli.time_options import now_ms
from tidelog.cli.topic_contents import bounds, led, sizes

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition

COLUMNS: Final = (
    Column("kind", "kind"),
    Column("name", "name", wraps=True),
    Column("records_per_s", "records/s", lambda rate: f"{rate:.0f}", is_number=True),
    Column("bytes", "size", size, is_number=True),
    Column("lag", "lag", or_dash, is_number=True, bad=bool),
)
DAY_S: Final = 86_400


class Sample(NamedTuple):
    """What a cluster holds at a moment."""

    at_s: float
    ends: "dict[Partition, int]"
    bytes_of: dict[str, int]
    groups: "dict[str, dict[Partition, int]]"


@click.command("top", epilog=examples("tidelog top", "tidelog top --interval 10 --count 6 --json"))
@click.option("--interval", type=Integer(1, DAY_S), default=2, help="Seconds between two updates.")
@click.option("--count", type=Integer(1), help="Stop after this many updates.")
@json_option
@bootstrap_option
def top(interval: int, count: int | None, as_json: bool, bootstrap: str) -> int:
    """Show the rates of topics and the lag of groups, until Ctrl-C."""
    with suppress(KeyboardInterrupt), connected(bootstrap) as cluster:
        is_live = is_terminal(sys.stdout) and not as_json
        with _screen() if is_live else nullcontext() as screen:
            before = _sample(cluster)
            looks = 0
            while count is None or looks < count:
                time.sleep(interval)
                now = _sample(cluster)
                rows = list(_rows(before, now))
                if screen is not None:
                    console = screen.console
                    shown = rows[: max(1, console.height - 4)]
                    screen.update(table(COLUMNS, shown, console.width), refresh=True)
                elif as_json:
                    moment = now_ms()
                    for row in rows:
                        print(to_json({"time": moment, **row}), flush=True)
                else:
                    print_rows(COLUMNS, rows, as_json=False)
                    sys.stdout.flush()
                before = now
                looks += 1
    return OK


def _screen() -> Any:
    from rich.live import Live

    return Live(auto_refresh=False)


def _sample(cluster: "Cluster") -> Sample:
    from tidelog.client import groups

    _, ends = bounds(cluster, led(cluster.topics()))
    held = sizes(cluster)
    bytes_of = {key.topic: held[key.topic] for key in ends}
    committed = {group: groups.committed(cluster, group) for group in groups.list_groups(cluster)}
    return Sample(time.monotonic(), dict(ends), bytes_of, committed)


def _rows(before: Sample, now: Sample) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic, the busiest first, then for each group, the largest lag first."""
    passed_s = max(now.at_s - before.at_s, 1e-3)
    grown: Counter[str] = Counter()
    for key, end in now.ends.items():
        grown[key.topic] += max(0, end - before.ends.get(key, end))
    topics: list[dict[str, Any]] = [
        {
            "kind": "topic",
            "name": topic,
            "records_per_s": grown[topic] / passed_s,
            "bytes": held,
            "lag": None,
        }
        for topic, held in now.bytes_of.items()
    ]
    yield from sorted(topics, key=lambda row: (-row["records_per_s"], row["name"]))
    groups: list[dict[str, Any]] = [
        {
            "kind": "group",
            "name": group,
            "records_per_s": _grown(before.groups.get(group, {}), committed) / passed_s,
            "bytes": None,
            "lag": sum(max(0, now.ends[key] - at) for key, at in committed.items() if key in now.ends),
        }
        for group, committed in now.groups.items()
    ]
    yield from sorted(groups, key=lambda row: (-row["lag"], row["name"]))


def _grown(before: "dict[Partition, int]", now: "dict[Partition, int]") -> int:
    """Return how far offsets have moved on; a partition that was not known before has not."""
    return sum(max(0, offset - before.get(key, offset)) for key, offset in now.items())
