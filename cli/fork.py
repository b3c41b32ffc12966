"""`tidelog fork`: a new topic that is another one as it was at a time. `broker.forking` does the work."""

from collections.abc import Sequence
from typing import Any, Final

import click

from tidelog.cli.arguments import (
    TIME_HELP,
    bootstrap_option,
    json_option,
    parse_options,
    topic_argument,
    topic_options_option,
    utf8,
)
from tidelog.cli.connect import connected, describe_topic
from tidelog.cli.data_folder import data_folder
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import called, counted, examples, note
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times

PARTITIONS: Final = (
    Column("partition", "partition", is_number=True),
    Column("start_offset", "starts at", is_number=True),
    Column("end_offset", "ends before", is_number=True),
    Column("records", "records", is_number=True),
    Column("bytes", "bytes", is_number=True),
    Column("copied_bytes", "copied", is_number=True),
)


@click.command(
    "fork",
    epilog=examples(
        "tidelog fork orders --at 09:00 orders-at-nine",
        "tidelog fork orders --at 1h orders-before --config retention.ms=-1",
    ),
)
@topic_argument
@click.argument("new", metavar="NEW", callback=utf8, help="The name of the new topic.")
@click.option("--at", "at", metavar="TIME", required=True, callback=utf8, help=TIME_HELP)
@click.option(
    "--clock",
    type=click.Choice(["append", "record"]),
    default="append",
    help="What TIME means: when the broker appended the records, or their timestamps.",
)
@topic_options_option
@json_option
@bootstrap_option
def fork(
    topic: str, new: str, at: str, clock: str, options: Sequence[str], as_json: bool, bootstrap: str
) -> int:
    """Make the topic NEW with what TOPIC held at a time.

    Run this on the broker's machine, as the user that the broker runs as. The topics share files: at most one segment
    of each partition is copied. After that they are independent. NEW has the options of TOPIC.
    """
    at_ms, config = time_ms("--at", at, now_ms()), parse_options(options)
    with connected(bootstrap) as cluster:
        describe_topic(cluster, topic)
        with data_folder(cluster) as folder:
            made = folder.ask("fork", topic=topic, at_ms=at_ms, name=new, clock=clock, config=config)
    rows: list[dict[str, Any]] = made["partitions"]
    print_rows(PARTITIONS, rows, as_json=as_json, caption=f"{new}: {topic} as it was at {times.show(at_ms)}")
    for row in rows:
        if row["expires_to"] is not None:
            records = counted(row["expires_to"] - row["start_offset"], "record")
            note(
                f"{new}-{row['partition']}: retention soon deletes its first {records}; to keep them, run now: "
                f"{called()} topics alter {new} --config retention.ms=-1 --config retention.bytes=-1"
            )
    return OK
