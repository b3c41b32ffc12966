"""Option `bad`: on damaged bytes a read fails, skips them, or skips them and keeps a copy in a quarantine.

A quarantine has the raw bytes of each damaged range, and a note of their origin. The names of the files follow from the
range, so a task that runs again writes the same files.
"""

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.pipeline.options import FAIL, QUARANTINE
from tidelog.storage import files

_log = logging.getLogger(__name__)


class Damaged(NamedTuple):
    """Damaged bytes, up to a whole segment: their number, and a function that reads them in parts."""

    size_bytes: int
    parts: Callable[[], Iterable[bytes]]


def held(data: bytes) -> Damaged:
    """Return damaged bytes that are in memory."""
    return Damaged(len(data), lambda: (data,))


class Bad(Protocol):
    """Treats a damaged range of a file."""

    def __call__(self, path: Path, start: int, data: Damaged, reason: str, /) -> None:
        """Return if the read may go on after the range, else raise DamagedLog."""


def handler(how: str, folder: str, topic: str, partition: int) -> Bad:
    """Return the function that treats damaged bytes as option `bad` says."""

    def fail(path: Path, start: int, data: Damaged, reason: str) -> None:
        raise DamagedLog(
            f"{path}@{start}: {data.size_bytes} bytes are damaged, {reason}; look at them with "
            f"`tidelog fsck {path.parent}`, read the rest with bad=skip, or keep them with bad={QUARANTINE}:FOLDER"
        )

    def skip(path: Path, start: int, data: Damaged, reason: str) -> None:
        _log.warning("left out file=%s@%d bytes=%d reason=%s", path, start, data.size_bytes, reason)

    def keep(path: Path, start: int, data: Damaged, reason: str) -> None:
        place = Path(folder) / f"{topic}-{partition}"
        note = {
            "file": str(path),
            "position": start,
            "bytes": data.size_bytes,
            "topic": topic,
            "partition": partition,
            "reason": reason,
        }
        name = f"{path.name}@{start}"
        try:
            files.make_folder(place)
            _write(place / f"{name}.bin", data.parts())
            files.write_atomically(place / f"{name}.json", json.dumps(note, indent=1).encode())
        except OSError as error:
            raise PipelineError(
                f"option bad: {path}@{start} cannot be kept in {place}: {error.strerror}; name a folder that can be "
                f"written in {QUARANTINE}:FOLDER"
            ) from error

    return fail if how == FAIL else keep if how == QUARANTINE else skip


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file as `files.write_atomically` does, a part at a time."""
    aside = files.File(files.temporary_of(path), create=True)
    aside.truncate(0)
    for part in parts:
        aside.append(part)
    files.sync(aside.path)
    files.put_in_place(path)
    files.sync_folder(path.parent)
