"""How a copy takes the place of the segments it was made of, so that a crash at any moment leaves one or the other.

Owns the steps, which are Kafka's but for one: what is replaced is removed at once, as readers hold its files open.

1. All files of the copy are on disk under names that end in `.cleaned`, the names too.
2. Its sidecars are renamed to end in `.swap`, on disk; then its log, on disk: that decides. Before it a start removes
   the copy, after it a start goes on with the steps.
3. The copy is published, and the files of all other segments of the group are removed; its sidecars get their names.
   On disk, so that nothing that was removed can come back beside the copy.
4. Its log gets its name, and so takes the place of that of the first segment.

The copy ends where the group did, with an empty batch if need be, so that its log alone tells what it replaces. Where
names cannot be put on disk the log takes no more writes: what else was to be put there may be gone as well. What only
lacks space, or a descriptor, is done before the next append.
"""

import logging
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.storage import files, walk
from tidelog.storage.compaction.copying import CLEANED, SWAP, Copy
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
    """The log was cut, or failed, since its segments were copied: nothing was done."""


def swap(log: Log, copy: Copy, cuts: int) -> bool:
    """Put a copy, which is on disk, in the place of its group; return whether the group was still there.

    Retention may have deleted segments of the group meanwhile. Outdated where the log was cut since it had been cut
    `cuts` times, or OSError before anything is decided. In all three cases the copy is to be dropped. Called on the
    maintenance thread.
    """
    group, segment = copy.group, copy.segment
    with log.replacing:
        if cuts != log.durability.cuts or log.health.failure is not None:
            raise Outdated(f"{log}: {group[0].path(LOG)} and what follows it changed meanwhile")
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
                _put_off(log, error)
                log.health.fail(
                    f"compacted segments could not be put in place ({error}); free space in {log.directory}",
                    partial(_again, log, finish),
                )
    return True


def _is_in(group: list[Segment], segments: tuple[Segment, ...]) -> bool:
    if group[0] not in segments:
        return False
    first = segments.index(group[0])
    return list(segments[first : first + len(group)]) == group


def _sync(log: Log) -> None:
    """Have the names in a log's folder on disk; where that fails others may be gone with them."""
    try:
        _sync_names(log.directory)
    except OSError as error:
        log.shared.disk.refused(error)
        with log.lock:
            _put_off(log, error)
        raise


def _sync_names(folder: Path) -> None:
    try:
        files.sync_folder(folder)
    except files.Shortage:
        raise
    except OSError as error:
        raise files.SyncFailed(error.errno, error.strerror, str(folder)) from error


def _put_off(log: Log, error: OSError) -> None:
    """Take no more writes where a second try would prove nothing. Call with the log's lock held."""
    if not is_passing(error):
        offline = log.health.distrust(f"compacted segments could not be put in place ({error})")
        _log.error("compaction failed log=%s error=%r", log, str(offline))


def _again(log: Log, finish: partial[None]) -> None:
    try:
        finish()
    except OSError as error:
        log.shared.disk.refused(error)
        _put_off(log, error)
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
    """Remove what is left of copies that came to nothing, before there is another one. OSError.

    A copy that was decided for would not be, beside an older one that was not.
    """
    for name, _ in files.list_folder(folder):
        if _MARKED.fullmatch(name):
            files.remove(folder / name)


def are_in(names: Iterable[str]) -> bool:
    """Tell whether any of the files of a folder is of a copy."""
    return any(_MARKED.fullmatch(name) for name in names)


def decided(names: Iterable[str]) -> list[int]:
    """Return the bases of the copies among the files of a folder that are decided for, in order."""
    marked = [name for name in names if _MARKED.fullmatch(name)]
    # Kafka may make several of one group, and renames the first of them last: only then are they decided for.
    first = min((_base(name) for name in marked if name.endswith(LOG + CLEANED)), default=None)
    found = (_base(name) for name in marked if name.endswith(LOG + SWAP))
    return sorted(base for base in found if first is None or base < first)


def settle(folder: Path) -> None:
    """Finish what a crash came upon in a folder, and remove copies that were not decided for; twice is as good as once.

    OSError.
    """
    names = [name for name, _ in files.list_folder(folder)]
    swaps = decided(names)
    for name in names:
        if _MARKED.fullmatch(name) and (name.endswith(CLEANED) or _base(name) not in swaps):
            files.remove(folder / name)
    if not swaps:
        return
    # A power cut must not take back what was decided once anything is removed.
    files.sync_folder(folder)
    ends = [_end_of(folder, base) for base in swaps]
    for name in replaced_by(swaps, max(ends), names):
        files.remove(folder / name)
    for base in swaps:
        _rename(folder, base, SIDECARS, SWAP, "")
    for base in swaps:
        # One after another: those that are not in their place yet have to be the last ones.
        files.sync_folder(folder)
        _rename(folder, base, (LOG,), SWAP, "")
        _log.info("compaction finished file=%s", folder / f"{base:020d}{LOG}")
    files.sync_folder(folder)


def present(folder: Path) -> list[tuple[int, str]]:
    """Return the base offset of each segment in a folder, in order, and the mark of its log's name; for any process.

    They are those that a start would find: where a copy was decided for it counts, and what it has replaced does not.
    """
    while True:
        names = [name for name, is_folder in files.list_folder(folder) if not is_folder]
        swaps = decided(names)
        try:
            gone = (
                set(replaced_by(swaps, max(_end_of(folder, base) for base in swaps), names)) if swaps else ()
            )
        except FileNotFoundError:
            continue  # It has got its name meanwhile.
        logs = (name for name in names if _LOG_NAME.fullmatch(name) and name not in gone)
        found = {_base(name): "" for name in logs} | dict.fromkeys(swaps, SWAP)
        return sorted(found.items())


def replaced_by(swaps: list[int], end: int, names: Iterable[str]) -> list[str]:
    """Return the files of the segments that copies have replaced, from the first of them up to an offset.

    Never those of the last segment, which is no copy, whatever a damaged copy says: it takes the appends.
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
    """Return the offset after the last batch of a copy, which is whole, by its summary; Kafka's has none."""
    file = files.File(folder / f"{base:020d}{LOG}{SWAP}", read_only=True)
    path = folder / f"{base:020d}{SUMMARY}"
    summary = Summary.load(path.with_name(path.name + SWAP)) or Summary.load(path)
    if summary is not None and summary.log_bytes == file.size:
        return summary.next_offset
    batches = walk.verified(file, 0, file.size, base, base)
    return max((batch.header.last_offset + 1 for batch in batches if batch.header is not None), default=base)
