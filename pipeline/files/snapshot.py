"""Hard links to the files of a planned read, so that retention and compaction cannot delete them.

Links and leases are `storage.pins`. No bytes are copied. The space of a deleted segment is freed with its last link.
Links are removed after the last piece is read. If nothing has read for ten minutes, or the driver has ended, a broker
or the next read removes them.

If links cannot be made (permissions, a read-only folder, an object store), files are read without them, after a
warning: if retention deletes one, the read fails.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files.pieces import Piece, demand_same
from tidelog.storage import files, pins
from tidelog.storage.layout import bases_in

FOLDER = pins.FOLDER
_log = logging.getLogger(__name__)


class Replaced(PipelineError):
    """Compaction has replaced a planned segment: plan again."""


def taken(pieces: list[Piece], now_ms: int) -> list[Piece]:
    """Return pieces with links to their files, without the pieces that retention has deleted since the plan.

    PipelineError if a topic was deleted since the plan; Replaced.
    """
    of_folders = {piece.folder: piece for piece in pieces if not piece.root}
    if not of_folders:
        return pieces  # An object store has no links.
    process = pins.process_of(_driver())
    folders = [Path(folder) for folder in of_folders]
    for folder in folders:
        pins.sweep(folder, now_ms)
    try:
        lease = pins.begin(folders, process, len(pieces))
    except OSError as error:
        _demand_same(of_folders.values())
        _warn(folders[0], error)
        return pieces
    leases = {str(folder): str(folder / FOLDER / process / lease) for folder in folders}
    leased = [piece._replace(lease=leases[piece.folder], number=n) for n, piece in enumerate(pieces)]
    try:
        kept = _pinned(leased, process)
        _demand_same(of_folders.values())
    except BaseException:
        release(leased)
        raise
    pinned = {piece.number for piece in kept if piece.snapshot}
    release(piece for piece in leased if piece.number not in pinned)
    return kept


def _pinned(pieces: list[Piece], process: str) -> list[Piece]:
    """Return pieces with the folders of their links. Each segment is linked once."""
    kept: list[Piece] = []
    links: dict[tuple[str, int], str | None] = {}
    for number, piece in enumerate(pieces):
        segment = piece.folder, piece.base_offset
        if segment not in links:
            try:
                links[segment] = _link(piece, process)
            except OSError as error:
                _warn(Path(piece.folder), error)
                return [*kept, *pieces[number:]]
        link = links[segment]
        if link is None:
            # Retention deletes from the start, so the earlier segments are gone too: the read has no gap.
            kept = [each for each in kept if each.folder != piece.folder]
        else:
            kept.append(piece._replace(snapshot=link))
    for piece in kept:
        status = files.status(Path(piece.snapshot, piece.path.name))
        # The sweep of another reader may have removed it, if that began before this plan had its lease.
        if status is None or status.size < piece.end:
            raise _replaced(piece)
    return kept


def _link(piece: Piece, process: str) -> str | None:
    """Return the folder with the links of a segment; None if retention has deleted it. OSError, Replaced."""
    link = pins.pin(Path(piece.folder), process, piece.base_offset)
    # Retention deletes older segments first. If an older one is left, compaction has merged this one into it.
    if link is None and any(base < piece.base_offset for base in bases_in(Path(piece.folder))):
        raise _replaced(piece)
    return None if link is None else str(link)


def release(pieces: Iterable[Piece]) -> None:
    """Release the files of pieces, whether they were read or not."""
    leases: dict[str, list[int]] = {}
    for piece in pieces:
        if piece.lease:
            leases.setdefault(piece.lease, []).append(piece.number)
    for lease, numbers in leases.items():
        pins.finish(Path(lease), numbers)


def _demand_same(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        demand_same(piece)


def _replaced(piece: Piece) -> Replaced:
    return Replaced(f"{piece.path}: compaction has replaced it; read it again")


def _warn(folder: Path, error: OSError) -> None:
    _log.warning(
        "hard links cannot be made in=%s reason=%s; if retention deletes a segment before it is read, the read fails",
        folder / FOLDER, error.strerror,
    )  # fmt: skip


def _driver() -> int:
    """Return the process that outlives the reads planned here. Spark plans in a worker, which may end earlier."""
    pid = os.getpid()
    while (parent := _parent_of_worker(pid)) > 1:
        pid = parent
    return pid


def _parent_of_worker(pid: int) -> int:
    """Return the parent of a Python worker of Spark, or of its daemon; 0 for any other process."""
    try:
        command = files.SystemTable(Path(f"/proc/{pid}/cmdline")).read()
        stat = files.SystemTable(Path(f"/proc/{pid}/stat")).read()
    except OSError:
        return 0
    return int(stat.rsplit(b")", 1)[1].split()[1]) if b"\0-m\0pyspark." in command else 0
