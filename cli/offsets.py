"""`tidelog offsets`: where the partitions of a topic start and end, or where they were at a time.

Owns the questions to ListOffsets. Refuses to know records: the answer is the broker's, from its time index.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, time_options
from tidelog.cli.errors import PartitionsRefused
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import note
from tidelog.config import times

LATEST: Final = -1
EARLIEST: Final = -2
NONE: Final = "none at or after"

Row = dict[str, int | None]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else times.show(timestamp_ms)


_PARTITION = Column("partition", "partition", is_number=True)
RANGE: Final = (
    _PARTITION,
    Column("start", "start", _or_dash, is_number=True),
    Column("end", "end", _or_dash, is_number=True),
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
        if at_ms is None:
            rows, refused = ranges(session, chosen)
            print_rows(RANGE, rows, as_json=as_json)
        else:
            found, refused = client.without_refused(partial(_at, session, at_ms), chosen)
            caption = f"{topic}: the first record at or after {times.show(at_ms)}"
            print_rows(AT, [found[key] for key in found], as_json=as_json, caption=caption)
    return OK if refused is None else unread(refused)


def ranges(session: client.Client, chosen: list[Any]) -> tuple[list[Row], PartitionsRefused | None]:
    """Return start, end (the next offset) and the largest timestamp of each partition of a topic.

    Nothing is known of the partitions that the error names.
    """
    found, refused = client.without_refused(partial(_ranges, session), chosen)
    unknown = dict.fromkeys(("start", "end", "max_timestamp", "max_timestamp_offset"))
    return [found.get(key, {"partition": key.partition, **unknown}) for key in chosen], refused


def unread(refused: PartitionsRefused) -> int:
    """Say on standard error which partitions are not known, and return the exit code."""
    note(str(refused))
    return FAILED


def _ranges(session: client.Client, chosen: Sequence[Any]) -> dict[Any, Row]:
    starts, ends = bounds(session, chosen)
    largest = client.largest_times(session, chosen)
    return {
        key: {
            "partition": key.partition,
            "start": starts[key],
            "end": ends[key],
            "max_timestamp": _found(largest[key].timestamp) if key in largest else None,
            "max_timestamp_offset": _found(largest[key].offset) if key in largest else None,
        }
        for key in chosen
    }


def _at(session: client.Client, at_ms: int, chosen: Sequence[Any]) -> dict[Any, Row]:
    found = client.at_time(session, dict.fromkeys(chosen, at_ms))
    return {
        key: {
            "partition": key.partition,
            "offset": _found(found[key].offset),
            "timestamp": _found(found[key].timestamp),
        }
        for key in chosen
    }


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
