"""`tidelog delete-records`: have the partitions of a topic begin later.

Owns the question, and which offset a time stands for: that of the first record at or after it, by the broker's answer.
Refuses to know when the files are removed.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, offsets, time_options
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import confirm, counted
from tidelog.config import times

STARTS: Final = (Column("partition", "partition", is_number=True), Column("start", "start", is_number=True))
HIGH_WATERMARK: Final = -1


def run(
    topic: str,
    partitions: Sequence[int],
    offset: int | None,
    before: str | None,
    everything: bool,
    is_sure: bool,
    as_json: bool,
    bootstrap: str,
    clock: Clock,
) -> int:
    """Delete what lies before an offset or a time, or all of it; return the exit code."""
    if (offset is not None) + (before is not None) + everything != 1:
        raise CommandError("give one of --offset N, --before TIME and --all", USAGE)
    if offset is not None and len(partitions) != 1:
        raise CommandError("--offset N goes with one --partition", USAGE)
    at_ms = None if before is None else time_options.time_ms("--before", before, clock.now_ms())
    with client.admin(bootstrap) as session:
        described = client.describe(session, topic)
        if described["is_internal"]:
            raise CommandError(f"topic {topic} is the broker's own, and its records are not deleted by hand")
        chosen = client.choose(
            topic, [each["partition_index"] for each in described["partitions"]], partitions
        )
        if offset is not None:
            _check_offset(session, chosen[0], offset)
        wanted = dict.fromkeys(chosen, HIGH_WATERMARK if offset is None else offset)
        if at_ms is not None:
            # Where there is none, -1: all that is there is earlier.
            wanted |= offsets.first_at(session, chosen, at_ms)
        what = _in_words(topic, chosen, offset, at_ms)
        if not is_sure and not confirm(f"Delete {what}?"):
            if not as_json:
                print(f"topic {topic} kept")
            return FAILED
        found = client.delete_records(session, wanted)
    rows = [{"partition": key.partition, "start": found[key]} for key in chosen]
    print_rows(STARTS, rows, as_json=as_json, caption=f"{topic}: where it begins now")
    return OK


def _check_offset(session: client.Client, key: Any, offset: int) -> None:
    starts, ends = offsets.bounds(session, [key])
    if offset > ends[key]:
        raise CommandError(
            f"--offset {offset}: partition {key.partition} of {key.topic} starts at {starts[key]} and ends before "
            f"{ends[key]}"
        )


def _in_words(topic: str, chosen: Sequence[Any], offset: int | None, at_ms: int | None) -> str:
    if offset is not None:
        return f"the records of {topic}-{chosen[0].partition} before offset {offset}"
    which = (
        "all records" if at_ms is None else f"the records before the first at or after {times.show(at_ms)}"
    )
    return f"{which} of {counted(len(chosen), 'partition')} of topic {topic}"
