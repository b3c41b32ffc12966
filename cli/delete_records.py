"""`tidelog delete-records`: delete the oldest records of a topic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.arguments import (
    TIME_HELP,
    Integer,
    bootstrap_option,
    json_option,
    partitions_option,
    topic_argument,
    yes_option,
)
from tidelog.cli.connect import choose, connected, describe_topic, find_all_offsets
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import confirm, counted, examples
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times
from tidelog.config.kinds import LONG_MAX

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition

STARTS: Final = (Column("partition", "partition", is_number=True), Column("start", "start", is_number=True))


@click.command(
    "delete-records",
    epilog=examples(
        "tidelog delete-records orders --before 7d",
        "tidelog delete-records orders --partition 0 --offset 1000 --yes",
    ),
)
@topic_argument
@partitions_option
@click.option(
    "--offset",
    metavar="N",
    type=Integer(0, LONG_MAX),
    help="Delete the records before this offset of one --partition.",
)
@click.option(
    "--before",
    metavar="TIME",
    help=f"Delete the records before the first one at or after this time: {TIME_HELP}.",
)
@click.option("--all", "everything", is_flag=True, help="Delete all records.")
@yes_option
@json_option
@bootstrap_option
def delete_records(
    topic: str,
    partitions: Sequence[int],
    offset: int | None,
    before: str | None,
    everything: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> int:
    """Delete the oldest records of a topic. Show the new start of each partition."""
    if (offset is not None) + (before is not None) + everything != 1:
        raise CommandError("give one of --offset N, --before TIME and --all", USAGE)
    if offset is not None and len(partitions) != 1:
        raise CommandError("--offset N needs exactly one --partition", USAGE)
    at_ms = None if before is None else time_ms("--before", before, now_ms())
    with connected(bootstrap) as cluster:
        from tidelog.client import admin

        described = describe_topic(cluster, topic)
        if described.is_internal:
            raise CommandError(f"topic {topic} belongs to the broker, and its records cannot be deleted")
        chosen = choose(described, partitions)
        if offset is not None:
            _check_offset(cluster, chosen[0], offset)
        wanted = dict.fromkeys(chosen, admin.HIGH_WATERMARK if offset is None else offset)
        if at_ms is not None:
            # If all records are earlier, the offset is -1, which deletes up to the high watermark.
            found = find_all_offsets(cluster, dict.fromkeys(chosen, at_ms))
            wanted = {key: each.offset for key, each in found.items()}
        if not yes and not confirm(f"Delete {_in_words(topic, chosen, offset, at_ms)}?"):
            if not as_json:
                print(f"topic {topic} kept")
            return FAILED
        starts = admin.delete_records(cluster, wanted)
    rows = [{"partition": key.partition, "start": starts[key]} for key in chosen]
    print_rows(STARTS, rows, as_json=as_json, caption=f"{topic}: the new start of each partition")
    return OK


def _check_offset(cluster: "Cluster", key: "Partition", offset: int) -> None:
    from tidelog.client.offsets import EARLIEST, LATEST

    end = find_all_offsets(cluster, {key: LATEST})[key].offset
    if offset > end:
        start = find_all_offsets(cluster, {key: EARLIEST})[key].offset
        raise CommandError(
            f"--offset {offset}: partition {key.partition} of {key.topic} starts at {start} and ends before {end}"
        )


def _in_words(topic: str, chosen: "Sequence[Partition]", offset: int | None, at_ms: int | None) -> str:
    if offset is not None:
        return f"the records of {chosen[0]} before offset {offset}"
    which = (
        "all records" if at_ms is None else f"the records before the first at or after {times.show(at_ms)}"
    )
    return f"{which} of {counted(len(chosen), 'partition')} of topic {topic}"
