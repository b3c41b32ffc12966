"""Restores a backup into a data folder that is empty or missing, and that no broker has open.

Each file is verified while it is copied to `.restore` in the data folder. That copy is opened and closed as a broker
would do it, which recovers it. Then its content is moved up, `meta.properties` last. Without that file no broker starts
on a folder that holds anything, so a kill leaves all of it or nothing that could be started.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.broker.catalog import CATALOG_FILE, Catalog
from tidelog.broker.clock import Clock
from tidelog.broker.topics import Topics
from tidelog.config.options import BrokerConfig
from tidelog.storage import backup, files, layout
from tidelog.storage.backup import Manifest
from tidelog.storage.errors import StorageError
from tidelog.storage.log_manager import LogManager

STAGE: Final = ".restore"


class Restored(NamedTuple):
    """What the restored folder holds, and the partitions that are damaged or cannot be opened, with the reason."""

    topics: int
    partitions: int
    problems: dict[str, str]


def restore(
    source: Path,
    manifest: Manifest,
    target: Path,
    configure: Callable[[Path], BrokerConfig],
    clock: Clock,
    pace: backup.Progress,
) -> Restored:
    """Restore a backup. `configure` returns the options of a broker on a folder.

    StorageError, CatalogError or OSError mean that nothing was restored.
    """
    is_new = files.status(target) is None
    if layout.contents(target):
        why = "is not empty; use another folder"
        if files.status(target / STAGE) is not None and files.status(target / layout.META) is None:
            why = "holds a restore that did not finish; delete the folder"
        raise StorageError(f"{target}: {why}")
    lock = layout.lock(target, manifest.about["node_id"])
    try:
        _copy(source, manifest, target / STAGE, pace)
        restored = _recovered(configure(target / STAGE), clock)
        _sync(target / STAGE)
        _move_up(target / STAGE, target)
    except BaseException:
        _clear(target)
        if is_new:
            files.remove_folder(target)
        raise
    finally:
        lock.release()
    return restored


def _copy(source: Path, manifest: Manifest, stage: Path, pace: backup.Progress) -> None:
    for name, copied in manifest.files.items():
        files.make_folder((stage / name).parent)
        backup.copy_back(source / backup.FILES / name, stage / name, copied, pace)


def _recovered(config: BrokerConfig, clock: Clock) -> Restored:
    """Open a copy as after a kill, not as after a power cut: all that was written is there. Close it in order."""
    layout.save_boot(config.log_dir)
    logs = LogManager(config.log_dir, config, clock.now_ms)
    logs.lock()
    try:
        catalog = Catalog(logs.directory / CATALOG_FILE)
        try:
            topics = _opened(catalog, logs, config)
            problems = {str(log): "; ".join(log.damaged) for log in logs.logs.values() if log.damaged}
            unopened = {str(log): log.unopened for log in logs.logs.values() if log.unopened is not None}
            restored = Restored(len(topics.by_name), len(logs.logs), problems | unopened)
            if not logs.close() and not unopened:
                raise StorageError(f"{config.log_dir}: not everything could be written to disk")
        finally:
            catalog.close()
    finally:
        logs.abandon()
    return restored


def _opened(catalog: Catalog, logs: LogManager, config: BrokerConfig) -> Topics:
    loop = asyncio.new_event_loop()
    try:
        topics = Topics(catalog, logs, catalog.changed(config), loop)
        topics.open()
    finally:
        loop.close()
    return topics


def _sync(folder: Path) -> None:
    """Put the files that the recovery has written on disk, and all names."""
    for name in backup.names_in(folder):
        files.sync(folder / name)
    backup.sync_folders(folder)


def _move_up(stage: Path, target: Path) -> None:
    files.remove(stage / layout.LOCK)
    for name, _ in files.list_folder(stage):
        if name != layout.META:
            files.rename(stage / name, target / name)
    files.sync_folder(target)
    files.rename(stage / layout.META, target / layout.META)
    files.sync_folder(target)
    files.remove_empty_folder(stage)


def _clear(target: Path) -> None:
    """Remove what a restore has made, unless it is complete."""
    if files.status(target / layout.META) is None:
        for name, is_folder in layout.contents(target):
            if is_folder:
                files.remove_folder(target / name)
            else:
                files.remove(target / name)
