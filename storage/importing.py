"""Makes a copy of a partition's folder from elsewhere that can be renamed into a data folder.

Owns which of its files belong to a log, their copy, and what a recovery of the copy adds: indexes, summaries, bounds in
place of append times. Knows nothing of catalogues. It only reads the source. A copy that a kill has left has the name
of a deleted partition, and a start removes it.
"""

import uuid
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, layout, recovery
from tidelog.storage.errors import CorruptLog, StorageError
from tidelog.storage.layout import DELETE_SUFFIX, LOG, NAME_BYTES_MAX, SUFFIXES, bases_in, of_segment
from tidelog.storage.log import Log
from tidelog.storage.producer_snapshots import SUFFIX as SNAPSHOT
from tidelog.storage.segment import log_bytes
from tidelog.storage.shared import Shared

# Files in a partition's folder that are rebuilt from the log, or that mean nothing elsewhere.
_OF_A_LOG: Final = (*SUFFIXES, SNAPSHOT, ".txnindex")
_OF_A_PARTITION: Final = (layout.PARTITION_METADATA, layout.LEADER_EPOCHS)


class Staged(NamedTuple):
    """A complete copy on disk: its folder, and what a recovery found in it."""

    folder: Path
    first_offset: int
    end_offset: int
    segments: int
    log_bytes: int
    cut_bytes: int  # at the end of the source: a batch that was never whole
    damaged: tuple[str, ...]


def foreign_in(folder: Path) -> list[str]:
    """Return the names in a partition's folder that do not belong to a log."""
    return [name for name, is_folder in files.list_folder(folder) if is_folder or not _is_of_log(name)]


def _is_of_log(name: str) -> bool:
    found = of_segment(name)
    return name in _OF_A_PARTITION or (found is not None and found[1] in _OF_A_LOG)


def has_records(folder: Path) -> bool:
    """Tell whether a partition has or had records: then its offsets do not begin at 0."""
    return any(base or (files.status(_log(folder, base)) or (0,))[0] for base in bases_in(folder))


def aside(folder: Path) -> Path:
    """Return a path beside a partition's folder that the next start removes."""
    suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
    return folder.with_name(folder.name[: NAME_BYTES_MAX - len(suffix)] + suffix)


def stage(
    source: Path, target: Path, key: tuple[str, int], topic_id: bytes, config: TopicConfig, now_ms: int
) -> Staged:
    """Copy the log in `source` to a folder beside `target`, recover the copy, and put all of it on disk.

    CorruptLog names the source; StorageError and OSError for the copy name the target. The copy is removed then.
    """
    bases = bases_in(source)
    if not bases:
        raise StorageError(f"{source}: holds no log; name the folder of a partition, with its .log files")
    folder = aside(target)
    files.make_folder(folder)
    try:
        for base in bases:
            files.copy(_log(source, base), _log(folder, base))
        layout.save_topic_id(folder, topic_id)
        copied_bytes = log_bytes(folder)
        known = recovery.Known(clean=True)
        log = recovery.load(folder, *key, config, Shared(folder, 0), known, now_ms)
        staged = _staged(folder, log, copied_bytes)
        if not log.close():
            raise StorageError(f"{folder}: the copy could not be put on disk: {log.health.failure}")
        for name, _ in files.list_folder(folder):
            files.sync(folder / name)
        files.sync_folder(folder)
    except StorageError as error:
        files.remove_folder(folder)
        named = source if isinstance(error, CorruptLog) else target
        raise type(error)(str(error).replace(str(folder), str(named))) from error
    except OSError as error:
        files.remove_folder(folder)
        # The error of a failed sync has no file name.
        if Path(error.filename or folder).is_relative_to(folder):
            error.filename = str(target)
        raise
    return staged


def _staged(folder: Path, log: Log, copied_bytes: int) -> Staged:
    return Staged(
        folder,
        log.log_start_offset,
        log.log_end_offset,
        len(log.segments),
        log.size_bytes,
        copied_bytes - log.size_bytes,
        log.damaged,
    )


def put(staged: Staged, target: Path) -> None:
    """Rename a copy to its place, instead of a partition without records; durable on return."""
    files.rename(target, aside(target))
    files.rename(staged.folder, target)
    files.sync_folder(target.parent)


def _log(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}{LOG}"
