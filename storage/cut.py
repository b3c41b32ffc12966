"""A consistent cut of the logs of a running broker: hard links to its files, as of one moment.

    DATA/.backup/PROCESS/cut.json             how many bytes of which files belong to the cut
    DATA/.backup/PROCESS/TOPIC-PARTITION/     the files of a log, under their own names

PROCESS is the program that copies the files (`pins.process_of`). It locks `cut.json` meanwhile, and removes its folder.
The folder of a process that has ended is swept, also if it ran in another container. Linked files outlive retention,
compaction and the deletion of their topic. Of files that appends go on writing, the cut holds a length or a copy. So
the folder is what a kill of the broker at that moment would have left, and a start recovers it.

`take` runs on the event loop. Everything else runs on the thread that maintains the logs, which does nothing else
between `summaries` and the last `link`: no segment is deleted or replaced meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.storage import files, pins
from tidelog.storage.layout import (
    APPEND_INDEX,
    CUTS,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SUFFIXES,
    SUMMARY,
)
from tidelog.storage.layout import TIME_INDEX as TIMES
from tidelog.storage.log import Log
from tidelog.storage.producer_snapshots import snapshot_path
from tidelog.storage.segment import Segment
from tidelog.storage.summary import Summary

PLAN: Final = "cut.json"

Summaries = Mapping[Path, bytes]


class Cut(NamedTuple):
    """A log as of a moment: its ends, its segments, and the sizes of the two files that appends write."""

    log: Log
    start: int
    end: int
    segments: tuple[Segment, ...]
    active_bytes: int
    append_index_bytes: int


def take(log: Log) -> Cut:
    """Return a log as of now. Event loop."""
    times = files.status(log.active.path(APPEND_INDEX))
    size = 0 if times is None else times.size
    return Cut(log, log.log_start_offset, log.log_end_offset, log.segments, log.active.size, size)


def summaries(logs: Iterable[Log]) -> Summaries:
    """Return the summaries of active segments, by path, for a cut that comes after: they describe no later batch."""
    paths = [log.active.path(SUMMARY) for log in logs]
    return {path: data for path in paths if (data := files.load(path)) is not None}


def link(cut: Cut, folder: Path, known: Summaries) -> int:
    """Link and copy the files of a log into a new folder. Return how many bytes of its last `.log` belong to the cut.

    Raise OSError.
    """
    *sealed, active = cut.segments
    files.make_folder(folder)
    for segment in sealed:
        for suffix in SUFFIXES:
            _link(segment.path(suffix), folder, is_needed=suffix == LOG)
    for suffix in (LOG, INDEX, TIMES):
        _link(active.path(suffix), folder, is_needed=suffix == LOG)
    times = files.load(active.path(APPEND_INDEX)) or b""
    files.write(folder / active.name(APPEND_INDEX), times[: cut.append_index_bytes])
    summary = known.get(active.path(SUMMARY)) or files.load(active.path(SUMMARY)) or b""
    described = Summary.decode(summary)
    if described is not None and described.log_bytes <= cut.active_bytes:
        files.write(folder / active.name(SUMMARY), summary)
    for offset in cut.log.snapshots.offsets:
        if offset <= cut.end:
            _link(snapshot_path(cut.log.directory, offset), folder)
    files.write(folder / LEADER_EPOCHS, cut.log.epochs.encoded())
    metadata = files.load(cut.log.directory / PARTITION_METADATA)
    if metadata is not None:
        files.write(folder / PARTITION_METADATA, metadata)
    return cut.active_bytes


def link_unopened(log: Log, folder: Path) -> None:
    """Link all files of a log that could not be opened. Raise OSError."""
    files.make_folder(folder)
    for entry, is_regular in files.list_typed(log.directory):
        if is_regular and not entry.is_folder:
            _link(log.directory / entry.name, folder)


def _link(path: Path, folder: Path, *, is_needed: bool = False) -> None:
    try:
        files.link(path, folder / path.name)
    except FileNotFoundError:
        if is_needed:
            raise


def folder_of(data: Path, process: str) -> Path:
    """Return the folder of the cut that a process copies."""
    return data / CUTS / process


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep a cut from being swept by a broker that cannot see this process. Raise OSError."""
    lock = files.FolderLock(folder / PLAN)
    try:
        yield
    finally:
        lock.release()


def sweep(data: Path, now_ms: int) -> None:
    """Remove the cuts of processes that have ended, as far as possible.

    A process of another container has ended if its cut is not locked. It has LEASE_MS to lock it.
    """
    with suppress(OSError):  # usually there is no such folder
        for process, _ in files.list_folder(data / CUTS):
            folder = data / CUTS / process
            status = files.status(folder)
            is_old = status is not None and now_ms - status.modified_ms > pins.LEASE_MS
            if pins.has_ended(process) or (is_old and not files.is_locked(folder / PLAN)):
                remove(folder)


def remove(folder: Path) -> None:
    """Remove a cut, as far as possible."""
    files.remove_folder(folder)
    files.remove_empty_folder(folder.parent)
