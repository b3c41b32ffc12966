"""`tidelog offsets`: where the partitions of a topic start and end, or their first records at or after a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.arguments import TIME_HELP, bootstrap_option, json_option, topic_argument
from tidelog.cli.connect import connected, find_offsets, note_unread, partitions_of
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import Column, known, or_dash, print_rows, short_time, time_column
from tidelog.cli.text import examples
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition

NONE: Final = "none at or after"

Row = dict[str, int | None]

_PARTITION = Column("partition", "partition", is_number=True)
RANGE: Final = (
    _PARTITION,
    Column("start", "start", or_dash, is_number=True),
    Column("end", "end", or_dash, is_number=True),
    time_column("max_timestamp", "largest timestamp"),
    Column("max_timestamp_offset", "at offset", or_dash, is_number=True),
)
AT: Final = (
    _PARTITION,
    Column("offset", "offset", or_dash, is_number=True),
    Column(
        "timestamp",
        "timestamp",
        lambda time_ms: NONE if time_ms is None else times.show(time_ms),
        short=lambda time_ms: NONE if time_ms is None else short_time(time_ms),
    ),
)


@click.command(
    "offsets", epilog=examples("tidelog offsets orders", "tidelog offsets orders --at 'yesterday 09:00'")
)
@topic_argument
@click.option("--at", metavar="TIME", help=f"{TIME_HELP}.")
@json_option
@bootstrap_option
def offsets(topic: str, at: str | None, as_json: bool, bootstrap: str) -> int:
    """Show where each partition starts and ends. With --at, show its first record at or after a time."""
    at_ms = None if at is None else time_ms("--at", at, now_ms())
    with connected(bootstrap) as cluster:
        chosen = partitions_of(cluster, topic)
        if at_ms is None:
            rows, unread = ranges(cluster, chosen)
            print_rows(RANGE, rows, as_json=as_json)
        else:
            found, unread = find_offsets(cluster, dict.fromkeys(chosen, at_ms))
            rows = [
                {
                    "partition": key.partition,
                    "offset": known(each.offset),
                    "timestamp": known(each.timestamp),
                }
                for key, each in sorted(found.items())
            ]
            caption = f"{topic}: the first record at or after {times.show(at_ms)}"
            print_rows(AT, rows, as_json=as_json, caption=caption)
        note_unread(unread)
    return FAILED if unread else OK


def bounds(
    cluster: "Cluster", chosen: "Sequence[Partition]"
) -> "tuple[dict[Partition, int], dict[Partition, int], list[Partition]]":
    """Return the starts and ends of partitions, and the partitions that cannot be read."""
    from tidelog.client.offsets import EARLIEST, LATEST

    starts, _ = find_offsets(cluster, dict.fromkeys(chosen, EARLIEST))
    ends, _ = find_offsets(cluster, dict.fromkeys(starts, LATEST))
    return (
        {key: starts[key].offset for key in ends},
        {key: each.offset for key, each in ends.items()},
        sorted(set(chosen) - set(ends)),
    )


def ranges(cluster: "Cluster", chosen: "Sequence[Partition]") -> "tuple[list[Row], list[Partition]]":
    """Return a row of `RANGE` for each partition, and the partitions that cannot be read."""
    from tidelog.client.offsets import MAX_TIMESTAMP, list_offsets
    from tidelog.protocol.error_codes import ErrorCode

    starts, ends, unread = bounds(cluster, chosen)
    # A topic of format 0 has no timestamps.
    kept = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    largest = list_offsets(cluster, dict.fromkeys(ends, MAX_TIMESTAMP), kept)
    rows: list[Row] = [
        {
            "partition": key.partition,
            "start": starts.get(key),
            "end": ends.get(key),
            "max_timestamp": known(largest[key].timestamp) if key in largest else None,
            "max_timestamp_offset": known(largest[key].offset) if key in largest else None,
        }
        for key in chosen
    ]
    return rows, unread
