"""Names of its own for the files that a read has planned, so that retention cannot pull them away.

Owns the folders `.snapshot/` in the folders of partitions, where neither Tidelog nor Kafka looks: in each a folder a
piece, with hard links of the files of its segment. No byte is copied; the space of what retention deletes meanwhile is
free once the last link goes. Whoever has read a piece removes its folder. What a killed reader leaves is removed by the
next read of the same partition, once the process that it was planned for is gone, or after a day.

Where no link can be made (another file system's permissions, a folder that is read-only, an object store) files are
read as they are, and that is said in the log: if retention deletes one, the read fails, and says so.

Invariant: the folder of a partition is never made here. One that is deleted meanwhile is an error: its topic could not
be made anew where a folder of that name is left.
"""

import errno
import logging
import os
import uuid
from pathlib import Path
from typing import Final

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files.pieces import Piece, demand_same
from tidelog.storage import files
from tidelog.storage.log_names import bases_in
from tidelog.storage.segment import LOG, SUFFIXES

FOLDER: Final = ".snapshot"
_KEPT_MS: Final = 24 * 3600 * 1000
_TRIES: Final = 100  # each is over within microseconds
_log = logging.getLogger(__name__)


class Replaced(PipelineError):
    """Compaction has put another segment in the place of one that was planned: plan anew."""


def taken(pieces: list[Piece], now_ms: int) -> list[Piece]:
    """Return pieces whose files stay until they are read; without those that retention has deleted meanwhile.

    PipelineError if a topic was deleted meanwhile; Replaced.
    """
    kept: list[Piece] = []
    try:
        _take(pieces, kept, now_ms)
        for piece in {piece.folder: piece for piece in pieces}.values():
            demand_same(piece)
    except BaseException:
        for piece in kept:
            let_go(piece)
        raise
    return kept


def _take(pieces: list[Piece], kept: list[Piece], now_ms: int) -> None:
    for folder in {piece.folder for piece in pieces if not piece.root}:
        _remove_left(Path(folder) / FOLDER, now_ms)
    owner = _owner()
    can_link = True
    for piece in pieces:
        snapshot = Path(piece.folder) / FOLDER / f"{owner}-{uuid.uuid4().hex}"
        if piece.root or not can_link:
            kept.append(piece)
            continue
        try:
            if not _link(piece, snapshot):
                _forget(kept, piece.folder)
                continue
        except OSError as error:
            can_link = False
            files.remove_folder(snapshot)
            files.remove_empty_folder(snapshot.parent)
            _log.warning(
                "no hard links can be made in=%s reason=%s; read as it is: if retention deletes a segment before it "
                "is read, the read fails", snapshot.parent, error.strerror,
            )  # fmt: skip
            kept.append(piece)
        else:
            kept.append(piece._replace(snapshot=str(snapshot)))


def _forget(kept: list[Piece], folder: str) -> None:
    """Leave out what lies before a segment that is gone, as retention deletes it too: no gap is in what is read."""
    for piece in [each for each in kept if each.folder == folder]:
        kept.remove(piece)
        let_go(piece)


def let_go(piece: Piece) -> None:
    """Remove the names that were made for a piece."""
    if piece.snapshot:
        files.remove_folder(Path(piece.snapshot))
        files.remove_empty_folder(Path(piece.snapshot).parent)


def _link(piece: Piece, snapshot: Path) -> bool:
    """Make the names of a piece; tell whether its log is there. OSError where they cannot be made."""
    for _ in range(_TRIES):
        try:
            files.make_folder_in(snapshot.parent)
            files.make_folder_in(snapshot)
            _link_files(piece, snapshot)
        except FileNotFoundError:
            # The log is gone, or another reader has just removed the folder of all of them, which was empty.
            files.remove_folder(snapshot)
            files.remove_empty_folder(snapshot.parent)
            if files.status(piece.path) is None:
                # Retention takes older ones first: where one is left, it has the records of this one now.
                if any(base < piece.base_offset for base in bases_in(Path(piece.folder))):
                    raise _replaced(piece) from None
                return False
        else:
            linked = files.status(snapshot / piece.path.name)
            if linked is None or linked.size < piece.end:
                raise _replaced(piece)
            return True
    raise OSError(errno.EBUSY, "other readers remove the folder again and again")


def _replaced(piece: Piece) -> Replaced:
    return Replaced(f"{piece.path}: compaction has put another in its place; load it anew")


def _link_files(piece: Piece, snapshot: Path) -> None:
    name = f"{piece.base_offset:020d}"
    for suffix in SUFFIXES:
        try:
            files.link(Path(piece.folder) / (name + suffix), snapshot / (name + suffix))
        except FileNotFoundError:
            if suffix == LOG:
                raise


def _owner() -> str:
    """Name the process that lives as long as the reads that it plans: of a worker of Spark's that is who started it."""
    parent = os.getppid()
    pid = parent if parent > 1 else os.getpid()
    return f"{os.uname().nodename}-{pid}-{_started(pid)}"


def _started(pid: int) -> str:
    """Return when a process was started, in ticks of the system; nothing if it is gone."""
    try:
        stat = files.SystemTable(Path(f"/proc/{pid}/stat")).read()
    except OSError:
        return ""
    return stat.rsplit(b")", 1)[1].split()[19].decode()


def _remove_left(folder: Path, now_ms: int) -> None:
    try:
        names = [name for name, is_folder in files.list_folder(folder) if is_folder]
    except OSError:
        return  # There is none.
    for name in names:
        host, pid, started, _ = ["", "", "", *name.rsplit("-", 3)][-4:]
        status = files.status(folder / name)
        is_old = status is not None and now_ms - status.modified_ms > _KEPT_MS
        is_gone = host == os.uname().nodename and pid.isdecimal() and _started(int(pid)) != started
        if is_old or is_gone:
            files.remove_folder(folder / name)
