"""`tidelog log-dirs`: what the partitions take on the broker's disk.

Owns the columns. Refuses to know the folder: what is in it, the broker says.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from tidelog.cli import client
from tidelog.cli.exit_codes import OK
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import counted, shown

SIZES: Final = (
    Column("broker", "broker", is_number=True),
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("bytes", "bytes", lambda size: "unknown" if size is None else str(size), is_number=True),
)


def run(topics: Collection[str], as_json: bool, bootstrap: str) -> int:
    """Print the size of each partition, and the space on each disk; return the exit code."""
    with client.admin(bootstrap) as session:
        for topic in topics:
            client.describe(session, topic)
        found = session.describe_log_dirs(list(topics) or None)
    rows: list[dict[str, Any]] = []
    folders: list[dict[str, Any]] = []
    for broker in found:
        for folder in broker["log_dirs"]:
            client.check(f"broker {broker['broker']}, {folder['log_dir']}", folder)
            sizes = list(_sizes(broker["broker"], folder))
            rows += sizes
            folders.append(_folder(broker["broker"], folder, sum(row["bytes"] or 0 for row in sizes)))
    print_rows(SIZES, rows, as_json=as_json)
    for folder in folders:
        print(to_json(folder) if as_json else _in_words(folder, len(rows)))
    return OK


def _sizes(broker: int, folder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for topic in sorted(folder["topics"], key=lambda topic: str(topic["name"])):
        for each in sorted(topic["partitions"], key=lambda each: int(each["partition_index"])):
            yield {
                "kind": "partition",
                "broker": broker,
                "topic": topic["name"],
                "partition": each["partition_index"],
                "bytes": _known(each["partition_size"]),
            }


def _folder(broker: int, folder: dict[str, Any], size_bytes: int) -> dict[str, Any]:
    return {
        "kind": "log_dir",
        "broker": broker,
        "log_dir": folder["log_dir"],
        "bytes": size_bytes,
        "total_bytes": _known(folder.get("total_bytes", -1)),
        "usable_bytes": _known(folder.get("usable_bytes", -1)),
    }


def _known(number: int) -> int | None:
    """Return a number of an answer; -1 says that the broker does not tell."""
    return None if number < 0 else number


def _in_words(folder: dict[str, Any], partitions: int) -> str:
    space = ""
    if folder["usable_bytes"] is not None:
        space = f"; of {folder['total_bytes']} bytes on its disk {folder['usable_bytes']} are free"
    of = f"broker {folder['broker']}, {shown(folder['log_dir'])}"
    return f"{of}: {folder['bytes']} bytes in {counted(partitions, 'partition')}{space}"
