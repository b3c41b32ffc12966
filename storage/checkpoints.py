"""The small text files: a version line, a count, one entry a line, as Kafka writes them.

Owns their format and their replacement. All of them are hints: one that is missing or broken reads as nothing, with a
warning, and what it held is found again from the logs. A broken one never keeps a broker from starting.
"""

import logging
from pathlib import Path

from tidelog.storage import files

VERSION = "0"
OffsetsByPartition = dict[tuple[str, int], int]

_log = logging.getLogger(__name__)


def load_lines(path: Path) -> list[list[str]] | None:
    """Return the words of each entry; None if the file is missing or broken."""
    data = files.load(path)
    if data is None:
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    entries = [line.split(" ") for line in lines[2:]]
    if lines[0] != VERSION or len(lines) < 2 or lines[1] != str(len(entries)):
        _log.warning("checkpoint ignored file=%s reason=broken; it is written anew", path)
        return None
    return entries


def encoded(entries: list[str]) -> bytes:
    """Return the bytes of a file with these lines."""
    return "".join(f"{line}\n" for line in [VERSION, str(len(entries)), *entries]).encode()


def load_offsets(path: Path) -> OffsetsByPartition:
    """Return the offset of each partition in a file of `topic partition offset` lines; empty if it is of no use."""
    offsets = {}
    try:
        for topic, partition, offset in load_lines(path) or []:
            offsets[topic, int(partition)] = int(offset)
    except ValueError:
        _log.warning("checkpoint ignored file=%s reason=broken; it is written anew", path)
        return {}
    return offsets


def save_offsets(path: Path, offsets: OffsetsByPartition) -> None:
    """Replace a file of `topic partition offset` lines, durably."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    files.write_atomically(path, encoded(lines))
