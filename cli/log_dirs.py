"""`tidelog log-dirs`: the size of partitions on the broker's disk."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from tidelog.cli.arguments import bootstrap_option, json_option, topic_option
from tidelog.cli.connect import connected, partitions_of
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, known, print_rows, to_json
from tidelog.cli.text import counted, examples, shown

SIZES: Final = (
    Column("broker", "broker", is_number=True),
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("bytes", "bytes", lambda size: "unknown" if size is None else str(size), is_number=True),
)


@click.command(
    "log-dirs", epilog=examples("tidelog log-dirs", "tidelog log-dirs --topic orders --topic prices --json")
)
@topic_option("Default: all; may be repeated.", "topics", multiple=True)
@json_option
@bootstrap_option
def log_dirs(topics: Sequence[str], as_json: bool, bootstrap: str) -> int:
    """Show the size of each partition, and how full the disk is."""
    with connected(bootstrap) as cluster:
        from tidelog.client import admin
        from tidelog.client.errors import BrokerError

        wanted = {name: [each.partition for each in partitions_of(cluster, name)] for name in topics}
        found = admin.log_dirs(cluster, wanted or None)
        for broker, results in found.items():
            for each in results:
                if each.error_code:
                    raise BrokerError(f"broker {broker}, {each.log_dir}", each.error_code)
    rows: list[dict[str, Any]] = []
    folders: list[dict[str, Any]] = []
    for broker, results in found.items():
        for each in results:
            sizes = list(_sizes(broker, each))
            rows += sizes
            folders.append(_folder(broker, each, sum(row["bytes"] or 0 for row in sizes)))
    print_rows(SIZES, rows, as_json=as_json)
    for folder in folders:
        print(to_json(folder) if as_json else _in_words(folder, len(rows)))
    return OK


def _sizes(broker: int, folder: Any) -> Iterator[dict[str, Any]]:
    for topic in sorted(folder.topics, key=lambda topic: str(topic.name)):
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
            yield {
                "kind": "partition",
                "broker": broker,
                "topic": topic.name,
                "partition": each.partition_index,
                "bytes": known(each.partition_size),
            }


def _folder(broker: int, folder: Any, size_bytes: int) -> dict[str, Any]:
    return {
        "kind": "log_dir",
        "broker": broker,
        "log_dir": folder.log_dir,
        "bytes": size_bytes,
        "total_bytes": known(folder.total_bytes),
        "usable_bytes": known(folder.usable_bytes),
    }


def _in_words(folder: dict[str, Any], partitions: int) -> str:
    space = ""
    if folder["usable_bytes"] is not None:
        space = f"; {folder['usable_bytes']} of {folder['total_bytes']} bytes on its disk are free"
    of = f"broker {folder['broker']}, {shown(folder['log_dir'])}"
    return f"{of}: {folder['bytes']} bytes in {counted(partitions, 'partition')}{space}"
