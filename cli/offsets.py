"""`tidelog offsets`: where the partitions of a topic start and end, or where they were at a time.

Owns the questions to ListOffsets. Refuses to know records: the answer is the broker's, from its time index.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, time_options
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, print_rows
from tidelog.config import times

LATEST: Final = -1
EARLIEST: Final = -2
NONE: Final = "none at or after"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else times.show(timestamp_ms)


_PARTITION = Column("partition", "partition", is_number=True)
RANGE: Final = (
    _PARTITION,
    Column("start", "start", is_number=True),
    Column("end", "end", is_number=True),
    Column("max_timestamp", "largest timestamp", _time),
    Column("max_timestamp_offset", "at offset", _or_dash, is_number=True),
)
AT: Final = (
    _PARTITION,
    Column("offset", "offset", _or_dash, is_number=True),
    Column("timestamp", "timestamp", lambda time_ms: NONE if time_ms is None else times.show(time_ms)),
)


def run(topic: str, at: str | None, as_json: bool, bootstrap: str, clock: Clock) -> int:
    """Print a row for each partition; return the exit code."""
    at_ms = None if at is None else time_options.time_ms("--at", at, clock.now_ms())
    with client.admin(bootstrap) as session:
        numbers = [
            partition["partition_index"] for partition in client.describe(session, topic)["partitions"]
        ]
        chosen = client.choose(topic, numbers, ())
        rows = ranges(session, chosen) if at_ms is None else _at(session, chosen, at_ms)
    if at_ms is None:
        print_rows(RANGE, rows, as_json=as_json)
    else:
        caption = f"{topic}: the first record at or after {times.show(at_ms)}"
        print_rows(AT, rows, as_json=as_json, caption=caption)
    return OK


def ranges(session: client.Client, chosen: list[Any]) -> list[dict[str, int | None]]:
    """Return start, end (the next offset) and the largest timestamp of each partition of a topic."""
    starts, ends = bounds(session, chosen)
    largest = client.largest_times(session, chosen)
    return [
        {
            "partition": key.partition,
            "start": starts[key],
            "end": ends[key],
            "max_timestamp": _found(largest[key].timestamp) if key in largest else None,
            "max_timestamp_offset": _found(largest[key].offset) if key in largest else None,
        }
        for key in chosen
    ]


def _at(session: client.Client, chosen: list[Any], at_ms: int) -> list[dict[str, int | None]]:
    found = client.at_time(session, dict.fromkeys(chosen, at_ms))
    return [
        {
            "partition": key.partition,
            "offset": _found(found[key].offset),
            "timestamp": _found(found[key].timestamp),
        }
        for key in chosen
    ]


def bounds(session: client.Client, chosen: Sequence[Any]) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return where each partition starts and where it ends: the next offset."""
    starts, ends = (
        session.list_partition_offsets(dict.fromkeys(chosen, which)) for which in (EARLIEST, LATEST)
    )
    return {key: starts[key].offset for key in chosen}, {key: ends[key].offset for key in chosen}


def first_at(session: client.Client, chosen: list[Any], at_ms: int) -> dict[Any, int]:
    """Return the offset of each partition's first record at or after a time; -1 where there is none."""
    found = client.at_time(session, dict.fromkeys(chosen, at_ms))
    return {key: found[key].offset for key in chosen}


def _found(number: int) -> int | None:
    """Return a number of a ListOffsets answer; -1 says that there is none."""
    return None if number < 0 else number
