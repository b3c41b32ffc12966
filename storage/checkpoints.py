"""The small text files: a version line, a count, one entry a line, as Kafka writes them.

Owns their format and their replacement. All of them are hints: one that is missing or broken reads as nothing, with a
warning, and what it held is found again from the logs. A broken one never keeps a broker from starting. A folder of
that name does, because the file could not be replaced.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tidelog.storage import files

T = TypeVar("T")

VERSION = "0"
FIRST_LINE: Final = 3  # the number of the one that has the first entry
OffsetsByPartition = dict[tuple[str, int], int]
# What a message shows of a line that may be anything.
_SHOWN: Final = 40

_log = logging.getLogger(__name__)


def load(path: Path, read: Callable[[bytes], T]) -> T | None:
    """Return what a reader makes of a file's bytes; None if it is missing, no regular file or broken (ValueError).

    OSError for a folder: no file can be put in its place.
    """
    try:
        data = files.load(path)
        return None if data is None else read(data)
    except (ValueError, files.Irregular) as error:
        _log.warning(
            "checkpoint ignored file=%s reason=broken error=%r; it is written again", path, str(error)
        )
        return None


def lines_in(data: bytes) -> list[list[str]]:
    """Return the words of each entry; an empty file has none. ValueError says what is wrong."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    entries = [line.split(" ") for line in lines[2:]]
    if lines[0] != VERSION:
        raise ValueError(f"its version is {lines[0][:_SHOWN]!r}, not {VERSION}")
    if len(lines) < 2 or lines[1] != str(len(entries)):
        said = lines[1][:_SHOWN] if len(lines) > 1 else ""
        raise ValueError(f"has {len(entries)} entries, and says {said!r}")
    return entries


def offsets_in(data: bytes) -> OffsetsByPartition:
    """Return the offset of each partition, of `topic partition offset` lines. ValueError says what is wrong."""
    offsets = {}
    for number, words in enumerate(lines_in(data), FIRST_LINE):
        try:
            topic, partition, offset = words
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise ValueError(f"line {number} is no topic, partition and offset") from None
    return offsets


def encoded(entries: list[str]) -> bytes:
    """Return the bytes of a file with these lines."""
    return "".join(f"{line}\n" for line in [VERSION, str(len(entries)), *entries]).encode()


def load_offsets(path: Path) -> OffsetsByPartition:
    """Return what `offsets_in` does of a file; empty if it is of no use."""
    return load(path, offsets_in) or {}


def save_offsets(path: Path, offsets: OffsetsByPartition) -> None:
    """Replace a file of `topic partition offset` lines, durably."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    files.write_atomically(path, encoded(lines))
