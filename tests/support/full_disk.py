"""A disk without room for some files, or for any, under the storage of this process.

Owns: which calls of `storage/files.py` fail, by the name of the file. Refuses to know: what becomes of that.
A file that is there may be overwritten and cut; nothing grows and nothing is made.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.storage import files


class FullDisk:
    """Room for everything, until `end` names files (by how their names end) that there is none for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ends: tuple[str, ...] = ()
        self.refused: set[str] = set()
        for name in ("pwrite", "write"):
            patch.setattr(files.os, name, self._refusing(getattr(os, name)))
        patch.setattr(files.os, "open", self._refusing_to_make(os.open))
        patch.setattr(files.os, "mkdir", self._refusing_folders(os.mkdir))

    def end(self, *ends: str) -> None:
        """Have no room for files whose names end so; for none at all if nothing is said."""
        self.ends = ends or ("",)

    def heal(self) -> None:
        self.ends = ()

    def _check(self, path: str) -> None:
        path = path.removesuffix(".tmp")
        if self.ends and path.endswith(self.ends) and not Path(path).is_char_device():
            self.refused.add(Path(path).name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _refusing(self, real: Callable[..., int]) -> Callable[..., int]:
        def write(fd: int, data: bytes, *position: int) -> int:
            target = os.readlink(f"/proc/self/fd/{fd}") if self.ends else ""
            start = position[0] if position else os.lseek(fd, 0, os.SEEK_CUR) if target.startswith("/") else 0
            if target.startswith("/") and start + len(data) > os.fstat(fd).st_size:
                self._check(target)
            return real(fd, data, *position)

        return write

    def _refusing_to_make(self, real: Callable[..., int]) -> Callable[..., int]:
        def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT and not os.path.exists(path):
                self._check(os.fspath(path))
            return real(path, flags, *args, **kwargs)

        return open_

    def _refusing_folders(self, real: Callable[..., None]) -> Callable[..., None]:
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            if not os.path.exists(path):
                self._check(os.fspath(path))
            real(path, *args, **kwargs)

        return mkdir


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FullDisk]:
    disk = FullDisk(monkeypatch)
    yield disk
    disk.heal()
