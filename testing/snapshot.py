"""A prepared data folder, from which many brokers can be started.

A copy shares the logs of sealed segments by hard links, since they are never written again; other files are copied.
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

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

# Not copied: the lock and the socket of the broker.
_LEFT = (".lock", ".control")
_LOG = ".log"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Snapshot:
    """A copy of a data folder, the options of its broker, and the time at which the clock was held, in ms.

    It is deleted with the last reference to it.
    """

    own: OwnFolder
    config: Mapping[str, str]
    held_ms: int | None

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self.own.path / "data"

    def delete(self) -> None:
        """Delete it; brokers that were started from it are not affected."""
        self.own.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()


def take(data_dir: Path, place: Path, config: Mapping[str, str], held_ms: int | None) -> Snapshot:
    """Take a snapshot of a data folder that no broker has open; make its folder in `place`."""
    snapshot = Snapshot(OwnFolder(place), dict(config), held_ms)
    weakref.finalize(snapshot, _remove, snapshot.own, os.getpid())
    double(data_dir, snapshot.folder)
    return snapshot


def double(source: Path, target: Path) -> None:
    """Copy a data folder that no broker has open, with hard links where possible."""
    target.mkdir(parents=True, exist_ok=True)
    found = files.list_folder(source)
    logs = [name for name, _ in found if name.endswith(_LOG)]
    for name, is_folder in found:
        if name in _LEFT or name.endswith("-delete"):
            continue
        if is_folder:
            double(source / name, target / name)
        elif name in logs[:-1]:  # the last is the active segment
            _share(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)


def _remove(own: OwnFolder, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork, which has the same objects
        own.remove()


def _share(source: Path, target: Path) -> None:
    try:
        files.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
