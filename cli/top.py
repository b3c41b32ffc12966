"""`tidelog top`: the rates of topics and clients, and the lag of groups, again and again.

Clients come from the socket in the data folder, everything else from the Kafka protocol.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli.arguments import Integer, bootstrap_option, json_option
from tidelog.cli.connect import connected
from tidelog.cli.data_folder import data_folder
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, is_terminal, or_dash, print_rows, size, table, to_json
from tidelog.cli.text import examples, note
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
CLIENT_COLUMNS: Final = (
    Column("client", "client", wraps=True),
    Column("connections", "conns", is_number=True),
    Column("requests_per_s", "req/s", lambda rate: f"{rate:.0f}", is_number=True),
    Column("received_bytes_per_s", "in/s", lambda rate: size(round(rate)), is_number=True),
    Column("sent_bytes_per_s", "out/s", lambda rate: size(round(rate)), is_number=True),
    Column("bytes", "held", size, is_number=True),
)
# The counts of a connection since it began, which become the rates of its client.
_COUNTS: Final = ("requests", "received_bytes", "sent_bytes")
DAY_S: Final = 86_400


class Sample(NamedTuple):
    """What a cluster holds at a moment."""

    at_s: float
    ends: "dict[Partition, int]"
    bytes_of: dict[str, int]
    groups: "dict[str, dict[Partition, int]]"
    connections: dict[int, dict[str, Any]] | None  # by number; None if they cannot be seen from here


@click.command("top", epilog=examples("tidelog top", "tidelog top --interval 10 --count 6 --json"))
@click.option("--interval", type=Integer(1, DAY_S), default=2, help="Seconds between two updates.")
@click.option("--count", type=Integer(1), help="Stop after this many updates.")
@json_option
@bootstrap_option
def top(interval: int, count: int | None, as_json: bool, bootstrap: str) -> int:
    """Show topics, clients and groups by rate and lag, until Ctrl-C.

    Clients are shown on the broker's machine, to the user that the broker runs as.
    """
    with suppress(KeyboardInterrupt), connected(bootstrap) as cluster:
        is_live = is_terminal(sys.stdout) and not as_json
        with _screen() if is_live else nullcontext() as screen:
            before = _sample(cluster, note)
            looks = 0
            while count is None or looks < count:
                time.sleep(interval)
                now = _sample(cluster)
                rows, clients = list(_rows(before, now)), list(_clients(before, now))
                listed = [{**row, "client": f"{or_dash(row['name'])} {row['address']}"} for row in clients]
                if screen is not None:
                    screen.update(_drawn(rows, listed, *screen.console.size), refresh=True)
                elif as_json:
                    moment = now_ms()
                    for row in (*rows, *clients):
                        print(to_json({"time": moment, **row}), flush=True)
                else:
                    print_rows(COLUMNS, rows, as_json=False)
                    if clients:
                        print()
                        print_rows(CLIENT_COLUMNS, listed, as_json=False)
                    sys.stdout.flush()
                before = now
                looks += 1
    return OK


def _screen() -> Any:
    from rich.live import Live

    return Live(auto_refresh=False)


def _drawn(rows: list[dict[str, Any]], clients: list[dict[str, Any]], width: int, height: int) -> Any:
    """Return both tables for a terminal, with as many rows as fit; each may have half of them."""
    from rich.console import Group

    room = height - (8 if clients else 4)  # the others are titles and lines
    clients = clients[: max(1, room // 2, room - len(rows))]
    drawn = table(COLUMNS, rows[: max(1, room - len(clients))], width)
    return Group(drawn, "", table(CLIENT_COLUMNS, clients, width)) if clients else drawn


def _sample(cluster: "Cluster", missing: Callable[[str], None] = lambda _: None) -> Sample:
    """Look at a cluster; `missing` is called with the reason if the clients cannot be seen."""
    from tidelog.client import groups

    _, ends = bounds(cluster, led(cluster.topics()))
    held = sizes(cluster)
    bytes_of = {key.topic: held[key.topic] for key in ends}
    committed = {group: groups.committed(cluster, group) for group in groups.list_groups(cluster)}
    connections: dict[int, dict[str, Any]] = {}
    try:
        with data_folder(cluster) as folder:
            while page := folder.ask("clients", after=max(connections, default=0))["clients"]:
                connections |= {each["connection"]: each for each in page}
    except CommandError as error:
        missing(f"clients are not shown: {error}")
        return Sample(time.monotonic(), dict(ends), bytes_of, committed, None)
    return Sample(time.monotonic(), dict(ends), bytes_of, committed, connections)


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


def _clients(before: Sample, now: Sample) -> Iterator[dict[str, Any]]:
    """Yield a row for each client, the busiest first: what its present connections have done since the look before."""
    if before.connections is None or now.connections is None:
        return
    passed_s = max(now.at_s - before.at_s, 1e-3)
    clients: dict[tuple[str | None, str], dict[str, Any]] = {}
    for number, each in now.connections.items():
        row = clients.setdefault(
            (each["client_id"], each["address"]),
            {
                "kind": "client",
                "name": each["client_id"],
                "records_per_s": None,
                "bytes": 0,
                "lag": None,
                "address": each["address"],
                "connections": 0,
                **dict.fromkeys((f"{count}_per_s" for count in _COUNTS), 0.0),
            },
        )
        row["connections"] += 1
        row["bytes"] += each["held_bytes"]
        known = before.connections.get(number, {})
        for count in _COUNTS:
            row[f"{count}_per_s"] += max(0, each[count] - known.get(count, 0)) / passed_s
    yield from sorted(
        clients.values(),
        key=lambda row: (
            -row["received_bytes_per_s"] - row["sent_bytes_per_s"],
            -row["requests_per_s"],
            str(row["name"]),
        ),
    )


def _grown(before: "dict[Partition, int]", now: "dict[Partition, int]") -> int:
    """Return how far offsets have moved on; a partition that was not known before has not."""
    return sum(max(0, offset - before.get(key, offset)) for key, offset in now.items())
