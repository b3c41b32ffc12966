"""Hard links to the files that a read has planned, so that retention and compaction cannot delete them.

Links and leases are `storage.pins`. No byte is copied; the space of what retention deletes meanwhile is free once the
last link goes. Links go when the plan has been read, when nothing has read for ten minutes, or when the driver has
ended: a broker, or the next read, removes them then.

Where no link can be made (permissions, a read-only folder, an object store), files are read as they are, and a warning
says so: if retention deletes one, the read fails.
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
    """Compaction has put another segment in the place of one that was planned: plan again."""


def taken(pieces: list[Piece], now_ms: int) -> list[Piece]:
    """Return pieces whose files stay until they are read; without those that retention has deleted meanwhile.

    PipelineError if a topic was deleted meanwhile; Replaced.
    """
    of_folders = {piece.folder: piece for piece in pieces if not piece.root}
    if not of_folders:
        return pieces  # Of an object store, where nothing can be pinned.
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
    """Return pieces with the folders that have their links, each segment linked once."""
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
            # Retention deletes what lies before it too: no gap is in what is read.
            kept = [each for each in kept if each.folder != piece.folder]
        else:
            kept.append(piece._replace(snapshot=link))
    for piece in kept:
        status = files.status(Path(piece.snapshot, piece.path.name))
        # Gone if another reader's sweep began before this plan had a lease.
        if status is None or status.size < piece.end:
            raise _replaced(piece)
    return kept


def _link(piece: Piece, process: str) -> str | None:
    """Return the folder with the links of a segment, None if retention has deleted it. OSError, Replaced."""
    link = pins.pin(Path(piece.folder), process, piece.base_offset)
    # Retention takes older ones first: where one is left, it has the records of this one now.
    if link is None and any(base < piece.base_offset for base in bases_in(Path(piece.folder))):
        raise _replaced(piece)
    return None if link is None else str(link)


def release(pieces: Iterable[Piece]) -> None:
    """Let go of the files of pieces, whether they were read or not."""
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
    return Replaced(f"{piece.path}: compaction has put another in its place; load it anew")


def _warn(folder: Path, error: OSError) -> None:
    _log.warning(
        "no hard links can be made in=%s reason=%s; read as it is: if retention deletes a segment before it "
        "is read, the read fails", folder / FOLDER, error.strerror,
    )  # fmt: skip


def _driver() -> int:
    """Return the process that lives as long as reads planned here: Spark plans in a worker, which may end before."""
    pid = os.getpid()
    while (parent := _parent_of_worker(pid)) > 1:
        pid = parent
    return pid


def _parent_of_worker(pid: int) -> int:
    """Return who has started a Python worker of Spark's, or its daemon; 0 for another process."""
    try:
        command = files.SystemTable(Path(f"/proc/{pid}/cmdline")).read()
        stat = files.SystemTable(Path(f"/proc/{pid}/stat")).read()
    except OSError:
        return 0
    return int(stat.rsplit(b")", 1)[1].split()[1]) if b"\0-m\0pyspark." in command else 0
