"""The small text files, as Kafka writes them: a version line, a count, and one entry a line.

Owns their format and their replacement. All of them are hints: a missing or broken one reads as empty, with a warning,
and the logs tell what it held. A broken file never keeps a broker from starting. A folder with the file's name does,
because the file could not be replaced.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tidelog.storage import files

T = TypeVar("T")

VERSION: Final = "0"
FIRST_LINE: Final = 3  # the line number of the first entry
OffsetsByPartition = dict[tuple[str, int], int]
# How many characters of a broken line a message shows.
_SHOWN: Final = 40

_log = logging.getLogger(__name__)


def load(path: Path, read: Callable[[bytes], T]) -> T | None:
    """Return what `read` makes of a file; None if it is missing, not a regular file, or broken (ValueError).

    OSError for a folder: no file can take its place.
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
    """Return the words of each entry; none for an empty file. ValueError says what is wrong."""
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
    """Return the offset of each partition from `topic partition offset` lines. ValueError says what is wrong."""
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
    """Read a file of `topic partition offset` lines; empty if it is missing or broken."""
    return load(path, offsets_in) or {}


def save_offsets(path: Path, offsets: OffsetsByPartition) -> None:
    """Replace a file of `topic partition offset` lines, durably."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    files.write_atomically(path, encoded(lines))
