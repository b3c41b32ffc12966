"""A prepared data folder, from which brokers are started again and again.

Owns how a folder is doubled: the logs of sealed segments are never written again, so both folders share them; the rest
is copied. A file that is removed from one stays in the other.
"""

import os
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.storage import files
from tidelog.testing.own_folder import OwnFolder

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

# The lock, the socket and what waits to be deleted are of the broker that was there.
_LEFT = (".lock", ".control")
_LOG = ".log"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Snapshot:
    """A data folder as it was, what its broker was started with, and where that one's clock was held, in ms.

    It goes with the last reference to it, unless it was deleted before.
    """

    own: OwnFolder
    config: Mapping[str, str]
    held_ms: int | None

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self.own.path / "data"

    def delete(self) -> None:
        """Remove it; brokers that were started from it are not disturbed."""
        self.own.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()


def take(data_dir: Path, place: Path, config: Mapping[str, str], held_ms: int | None) -> Snapshot:
    """Take a snapshot, in a folder at a place, of a data folder that no broker has open."""
    snapshot = Snapshot(OwnFolder(place), dict(config), held_ms)
    weakref.finalize(snapshot, _remove, snapshot.own, os.getpid())
    double(data_dir, snapshot.folder)
    return snapshot


def double(source: Path, target: Path) -> None:
    """Have a folder hold what a data folder holds, which no broker has open."""
    target.mkdir(parents=True, exist_ok=True)
    found = files.list_folder(source)
    logs = [name for name, _ in found if name.endswith(_LOG)]
    for name, is_folder in found:
        if name in _LEFT or name.endswith("-delete"):
            continue
        if is_folder:
            double(source / name, target / name)
        elif name in logs[:-1]:  # the last one is the active segment's
            _share(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)


def _remove(own: OwnFolder, owner: int) -> None:
    if os.getpid() == owner:  # A fork of it has the same objects, and they end when it does.
        own.remove()


def _share(source: Path, target: Path) -> None:
    try:
        files.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
