"""`tidelog delete-records`: have the partitions of a topic begin later."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.arguments import LOCAL, TIME_HELP, Bootstrap, Json, Topic, Yes
from tidelog.cli.connect import choose, connected, describe_topic, find_all_offsets
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import confirm, counted
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times
from tidelog.config.kinds import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition

STARTS: Final = (Column("partition", "partition", is_number=True), Column("start", "start", is_number=True))


app = typer.Typer()


@app.command("delete-records")
def delete_records(
    topic: Topic,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, max=INT_MAX, help="Default: all; may be repeated."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset",
            metavar="N",
            min=0,
            max=LONG_MAX,
            help="Delete what lies before this offset of one --partition.",
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"Delete what lies before the first record at or after this time: {TIME_HELP}.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Delete the oldest records of a topic, and show where each partition begins now."""
    if (offset is not None) + (before is not None) + everything != 1:
        raise CommandError("give one of --offset N, --before TIME and --all", USAGE)
    if offset is not None and len(partition or ()) != 1:
        raise CommandError("--offset N goes with one --partition", USAGE)
    at_ms = None if before is None else time_ms("--before", before, now_ms())
    with connected(bootstrap) as cluster:
        from tidelog.client import admin

        described = describe_topic(cluster, topic)
        if described.is_internal:
            raise CommandError(f"topic {topic} is the broker's own, and its records are not deleted by hand")
        chosen = choose(topic, [each.partition_index for each in described.partitions], partition or ())
        if offset is not None:
            _check_offset(cluster, chosen[0], offset)
        wanted = dict.fromkeys(chosen, admin.HIGH_WATERMARK if offset is None else offset)
        if at_ms is not None:
            # Where no record is as late, -1 is the high watermark: all that is there is earlier.
            found = find_all_offsets(cluster, dict.fromkeys(chosen, at_ms))
            wanted = {key: each.offset for key, each in found.items()}
        if not yes and not confirm(f"Delete {_in_words(topic, chosen, offset, at_ms)}?"):
            if not as_json:
                print(f"topic {topic} kept")
            return FAILED
        starts = admin.delete_records(cluster, wanted)
    rows = [{"partition": key.partition, "start": starts[key]} for key in chosen]
    print_rows(STARTS, rows, as_json=as_json, caption=f"{topic}: where it begins now")
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
