"""Replaces segments by their copy, so that a crash at any moment leaves one or the other.

The steps are Kafka's, with one difference: replaced files are removed at once, as readers hold them open.

1. All files of the copy are on disk under names that end in `.cleaned`; the names are durable.
2. Its sidecars are renamed to end in `.swap`, durably, and then its log, durably. The rename of the log decides: before
   it, a start removes the copy; after it, a start completes the steps.
3. The copy is published, the files of the group's other segments are removed, and its sidecars get their final names.
   This is made durable, so that no removed file can come back beside the copy.
4. Its log gets its final name, and so replaces that of the first segment.

The copy ends where the group did, if necessary with an empty batch, so that its log alone tells what it replaces. If a
sync of the folder fails, the log takes no more writes, as other writes may be lost too. If only space or a descriptor
is missing, the steps are completed before the next append.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.storage import files, walk
from tidelog.storage.compaction.copying import CLEANED, SWAP
from tidelog.storage.disk_space import is_passing
from tidelog.storage.errors import StorageError
from tidelog.storage.layout import LOG, SUFFIXES, SUMMARY
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment, State
from tidelog.storage.summary import Summary

_DIGITS: Final = 20
_MARKED: Final = re.compile(r"\d{20}\.[a-z]+(\.cleaned|\.swap)")
_LOG_NAME: Final = re.compile(r"\d{20}\.log")
SIDECARS: Final = tuple(suffix for suffix in SUFFIXES if suffix != LOG)

_log = logging.getLogger(__name__)


class Outdated(StorageError):
    """The log was truncated, or failed, since its segments were copied: nothing was done."""


def swap(log: Log, group: Sequence[Segment], segment: Segment, cuts: int) -> bool:
    """Replace a group by a copy, whose content is on disk; return False if retention has deleted a segment of it.

    `cuts` is `Durability.cuts` from when the pass began. Raise Outdated if the log was truncated since, or OSError
    before the rename that decides. In all three cases the caller drops the copy. Maintenance thread.
    """
    with log.replacing:
        if cuts != log.durability.cuts or log.health.failure is not None:
            raise Outdated(f"{log}: {group[0].path(LOG)} or a later segment has changed since it was copied")
        if not _is_in(group, log.segments):
            return False
        _sync(log)
        _rename(log.directory, segment.base_offset, SIDECARS, CLEANED, SWAP)
        _sync(log)
        _rename(log.directory, segment.base_offset, (LOG,), CLEANED, SWAP)
        segment.mark = SWAP
        replaced = [each.path(suffix) for each in group[1:] for suffix in reversed(SUFFIXES)]
        for each in group:
            each.become(State.REPLACED)
        with log.lock:
            first = log.segments.index(group[0])
            log.publish((*log.segments[:first], segment, *log.segments[first + len(group) :]))
        finish = partial(_finish, log, segment.base_offset, replaced)
        try:
            finish()
        except OSError as error:
            log.shared.disk.refused(error)
            with log.lock:
                _distrust(log, error)
                log.health.fail(
                    f"compacted segments could not be put in place ({error}); free space in {log.directory}",
                    partial(_retry, log, finish),
                )
    return True


def _is_in(group: Sequence[Segment], segments: tuple[Segment, ...]) -> bool:
    if group[0] not in segments:
        return False
    first = segments.index(group[0])
    return segments[first : first + len(group)] == tuple(group)


def _sync(log: Log) -> None:
    """Put the names in a log's folder on disk."""
    try:
        _sync_names(log.directory)
    except OSError as error:
        log.shared.disk.refused(error)
        with log.lock:
            _distrust(log, error)
        raise


def _sync_names(folder: Path) -> None:
    try:
        files.sync_folder(folder)
    except files.Shortage:
        raise
    except OSError as error:
        raise files.SyncFailed(error.errno, error.strerror, str(folder)) from error


def _distrust(log: Log, error: OSError) -> None:
    """Refuse writes until a restart, unless a second try may succeed. Call with the log's lock held."""
    if not is_passing(error):
        offline = log.health.distrust(f"compacted segments could not be put in place ({error})")
        _log.error("compaction failed log=%s error=%r", log, str(offline))


def _retry(log: Log, finish: partial[None]) -> None:
    try:
        finish()
    except OSError as error:
        log.shared.disk.refused(error)
        _distrust(log, error)
        raise


def _rename(folder: Path, base: int, suffixes: Iterable[str], old: str, new: str) -> None:
    for suffix in suffixes:
        name = f"{base:020d}{suffix}"
        files.rename(folder / (name + old), folder / (name + new))


def _finish(log: Log, base_offset: int, replaced: list[Path]) -> None:
    _sync_names(log.directory)
    for path in replaced:
        files.remove(path)
    _rename(log.directory, base_offset, SIDECARS, SWAP, "")
    _sync_names(log.directory)
    _rename(log.directory, base_offset, (LOG,), SWAP, "")
    _sync_names(log.directory)
    for segment in log.segments:
        if segment.base_offset == base_offset:
            segment.mark = ""
            segment.become(State.SEALED)
            segment.release()


# Before a pass, and at a start.


def sweep(folder: Path) -> None:
    """Remove the files of abandoned copies before a new one is made. Raise OSError.

    Beside an older `.cleaned` log, a decided copy would not count as decided.
    """
    for name, _ in files.list_folder(folder):
        if _MARKED.fullmatch(name):
            files.remove(folder / name)


def has_copies(names: Iterable[str]) -> bool:
    """Tell whether any of these file names belongs to a copy."""
    return any(_MARKED.fullmatch(name) for name in names)


def decided(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the decided copies among the files of a folder, in order."""
    marked = [name for name in names if _MARKED.fullmatch(name)]
    # Kafka may make several copies of one group. It renames the first one last, and that decides for all of them.
    first = min((_base(name) for name in marked if name.endswith(LOG + CLEANED)), default=None)
    found = (_base(name) for name in marked if name.endswith(LOG + SWAP))
    return sorted(base for base in found if first is None or base < first)


def settle(folder: Path) -> None:
    """Complete the replacements that a crash has interrupted, and remove undecided copies. Raise OSError.

    Idempotent.
    """
    names = [name for name, _ in files.list_folder(folder)]
    swaps = decided(names)
    for name in names:
        if _MARKED.fullmatch(name) and (name.endswith(CLEANED) or _base(name) not in swaps):
            files.remove(folder / name)
    if not swaps:
        return
    # A power cut must not undo the decision after files were removed.
    files.sync_folder(folder)
    ends = [_end_of(folder, base) for base in swaps]
    for name in replaced_by(swaps, max(ends), names):
        files.remove(folder / name)
    for base in swaps:
        _rename(folder, base, SIDECARS, SWAP, "")
    for base in swaps:
        # In order, so that the copies without their final names are always the last ones.
        files.sync_folder(folder)
        _rename(folder, base, (LOG,), SWAP, "")
        _log.info("compaction finished file=%s", folder / f"{base:020d}{LOG}")
    files.sync_folder(folder)


def present(folder: Path) -> list[tuple[int, str]]:
    """Return the base offset of each segment in a folder, in order, with the mark of its log's name; for any process.

    These are the segments that a start would find: decided copies count, and the segments that they replace do not.
    """
    while True:
        names = [name for name, is_folder in files.list_folder(folder) if not is_folder]
        swaps = decided(names)
        try:
            gone = (
                set(replaced_by(swaps, max(_end_of(folder, base) for base in swaps), names)) if swaps else ()
            )
        except FileNotFoundError:
            continue  # The copy has just got its final name.
        logs = (name for name in names if _LOG_NAME.fullmatch(name) and name not in gone)
        found = {_base(name): "" for name in logs} | dict.fromkeys(swaps, SWAP)
        return sorted(found.items())


def replaced_by(swaps: list[int], end: int, names: Iterable[str]) -> list[str]:
    """Return the files of the segments that copies have replaced, from the first copy up to an offset.

    The last segment is never among them, whatever a damaged copy says: it takes the appends.
    """
    found = sorted((_base(name), name) for name in names if re.fullmatch(r"\d{20}", name[:_DIGITS]))
    last = max((base for base, name in found if name.endswith(LOG)), default=0)
    return [
        name
        for base, name in found
        if name[_DIGITS:] in SUFFIXES and swaps[0] < base < min(end, last) and base not in swaps
    ]


def _base(name: str) -> int:
    return int(name[:_DIGITS])


def _end_of(folder: Path, base: int) -> int:
    """Return the offset after the last batch of a copy: from its summary, or from its log if Kafka made it."""
    file = files.File(folder / f"{base:020d}{LOG}{SWAP}", read_only=True)
    path = folder / f"{base:020d}{SUMMARY}"
    summary = Summary.load(path.with_name(path.name + SWAP)) or Summary.load(path)
    if summary is not None and summary.log_bytes == file.size:
        return summary.next_offset
    batches = walk.verified(file, 0, file.size, base, base)
    return max((batch.header.last_offset + 1 for batch in batches if batch.header is not None), default=base)
