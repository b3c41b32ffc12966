"""How a copy takes the place of the segments it was made of, so that a crash at any moment leaves one or the other.

Owns the steps, which are Kafka's but for one: what is replaced is removed at once, as readers hold its files open.

1. All files of the copy are on disk under names that end in `.cleaned`, the names too.
2. Its sidecars are renamed to end in `.swap`, on disk; then its log, on disk: that decides. Before it a start removes
   the copy, after it a start goes on with the steps.
3. The copy is published, and the files of all other segments of the group are removed; its sidecars get their names.
   On disk, so that nothing that was removed can come back beside the copy.
4. Its log gets its name, and so takes the place of that of the first segment.

The copy ends where the group did, with an empty batch if need be, so that its log alone tells what it replaces.
"""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.storage import files, walk
from tidelog.storage.compaction.copying import CLEANED, SWAP, Copy
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.segment import LOG, SUFFIXES, Segment
from tidelog.storage.summary import NONE

_DIGITS: Final = 20
SIDECARS: Final = tuple(suffix for suffix in SUFFIXES if suffix != LOG)

_log = logging.getLogger(__name__)


class Outdated(StorageError):
    """The segments that were copied are not those of the log any more: nothing was done."""


def swap(log: Log, copy: Copy) -> None:
    """Put a copy, which is on disk, in the place of its group. Maintenance thread.

    Outdated, or OSError before anything is decided: then the copy is to be dropped.
    """
    group, segment = copy.group, copy.segment
    with log.judging:
        if not _is_in(group, log.segments) or log.health.failure is not None:
            raise Outdated(f"{log}: {group[0].path(LOG)} and what follows it changed meanwhile")
        files.sync_folder(log.directory)
        _rename(segment, SIDECARS, CLEANED, SWAP)
        files.sync_folder(log.directory)
        _rename(segment, (LOG,), CLEANED, SWAP)
        segment.mark = SWAP
        replaced = [each.path(suffix) for each in group[1:] for suffix in reversed(SUFFIXES)]
        for each in group:
            each.is_replaced = True
        with log.lock:
            first = log.segments.index(group[0])
            log.publish((*log.segments[:first], segment, *log.segments[first + len(group) :]))
        finish = partial(_finish, log, segment, replaced)
        try:
            finish()
        except OSError as error:
            log.shared.disk.refused(error)
            with log.lock:
                log.health.fail(f"compacted segments could not be put in place ({error})", finish)


def _is_in(group: list[Segment], segments: tuple[Segment, ...]) -> bool:
    if group[0] not in segments:
        return False
    first = segments.index(group[0])
    return list(segments[first : first + len(group)]) == group


def _rename(segment: Segment, suffixes: Iterable[str], old: str, new: str) -> None:
    for suffix in suffixes:
        path = segment.folder / f"{segment.base_offset:020d}{suffix}"
        files.rename(path.with_name(path.name + old), path.with_name(path.name + new))


def _finish(log: Log, segment: Segment, replaced: list[Path]) -> None:
    files.sync_folder(log.directory)
    for path in replaced:
        files.remove(path)
    _rename(segment, SIDECARS, SWAP, "")
    files.sync_folder(log.directory)
    _rename(segment, (LOG,), SWAP, "")
    files.sync_folder(log.directory)
    segment.mark = ""
    segment.release()


# At a start.


def settle(folder: Path) -> None:
    """Finish what a crash came upon in a folder, and remove copies that were not decided for; twice is as good as once.

    OSError.
    """
    names = [name for name, _ in files.list_folder(folder)]
    cleaned = [_base(name) for name in names if name.endswith(LOG + CLEANED)]
    # Kafka may make several of one group, and renames the first of them last: only then are they decided for.
    first = min(cleaned, default=None)
    swaps = [
        base
        for name in names
        if name.endswith(LOG + SWAP) and (first is None or (base := _base(name)) < first)
    ]
    for name in names:
        if name.endswith(CLEANED) or (name.endswith(SWAP) and _base(name) not in swaps):
            files.remove(folder / name)
    for base in sorted(swaps):
        end = _end_of(folder, base)
        for name in names:
            if name[_DIGITS:] in SUFFIXES and base < _base(name) < end:
                files.remove(folder / name)
        for suffix in SIDECARS:
            _put(folder / f"{base:020d}{suffix}")
        files.sync_folder(folder)
        _put(folder / f"{base:020d}{LOG}")
        files.sync_folder(folder)
        _log.info("compaction finished file=%s", folder / f"{base:020d}{LOG}")


def _base(name: str) -> int:
    return int(name[:_DIGITS]) if name[:_DIGITS].isdecimal() else NONE


def _put(path: Path) -> None:
    files.rename(path.with_name(path.name + SWAP), path)


def _end_of(folder: Path, base: int) -> int:
    """Return the offset after the last batch of a copy, which is whole."""
    file = files.File(folder / f"{base:020d}{LOG}{SWAP}", read_only=True)
    return max((header.last_offset + 1 for _, header in walk.headers(file, 0, file.size)), default=base)
