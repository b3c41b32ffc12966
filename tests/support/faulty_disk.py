"""A disk under the storage of this process that fails, is full, or stops at a moment that a test chooses.

It stands in for the system calls of `storage/files.py` and passes them on. Tests name calls by what they do:

    open      open a file, or make it
    make      make a file or folder that is missing
    read      read from a file
    write     write to a file
    grow      write past the end of a file (also a write)
    truncate  cut a file
    sync      put a file or folder on disk
    syncfs    put the whole file system on disk
    rename    rename or replace a file
    remove    remove a file
    list      list a folder

A pattern names files by the end of their path, as `Path.match` does: `*.log`, `topic-0`, `topic-0/*`. A file that
is written aside (`.tmp`) has the name of the file that it replaces.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tidelog.storage import files

Patterns = str | tuple[str, ...]


@dataclass(eq=False)
class Rule:
    """What happens before some calls; `hits` counts how often it has."""

    kinds: frozenset[str]
    of: tuple[str, ...]
    after: int
    times: int | None
    do: Callable[[], object]
    matched: int = 0
    hits: int = 0

    def meets(self, kinds: tuple[str, ...], path: Path) -> bool:
        """Count a call; return whether it is the rule's turn."""
        if self.kinds.isdisjoint(kinds) or not _matches(path, self.of):
            return False
        self.matched += 1
        if self.matched <= self.after or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


class Died(BaseException):
    """The process ends here."""


def _fail(error: int) -> NoReturn:
    raise OSError(error, os.strerror(error))


def _die() -> NoReturn:
    raise Died


class Held:
    """Calls that wait until a test lets them go on, or fail."""

    def __init__(self) -> None:
        self._met, self._gate = threading.Event(), threading.Event()
        self._error: int | None = None

    def __call__(self) -> None:
        self._met.set()
        assert self._gate.wait(20)
        if self._error is not None:
            _fail(self._error)

    async def met(self) -> None:
        """Wait for the first call."""
        assert await asyncio.to_thread(self._met.wait, 20)

    def let_go(self) -> None:
        self._gate.set()

    def fail(self, error: int = errno.EIO) -> None:
        self._error = error
        self._gate.set()


class FaultyDisk:
    """A disk that works until it is told otherwise; `calls` holds every call with its file, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Path]] = []
        self.refused: set[str] = set()  # names of files that there was no room for
        self.dirty_bytes: int | None = None  # what the system still has to write; None: as it is
        self.write_max: int | None = None  # a call writes at most so many bytes
        self.is_cold = False  # nothing of a file is in memory
        self._rules: list[Rule] = []
        self._full: tuple[str, ...] = ()
        self._room = 0
        self._lock = threading.Lock()
        patch.setattr(files, "os", _System(self))
        sync_all, dirty_bytes = files.FileSystem.sync, files.DirtyMemory.bytes

        def syncfs(system: files.FileSystem) -> None:
            self.meet(_path_of(system._fd), "syncfs")
            sync_all(system)

        patch.setattr(files.FileSystem, "sync", syncfs)
        patch.setattr(
            files.DirtyMemory,
            "bytes",
            lambda memory: dirty_bytes(memory) if self.dirty_bytes is None else self.dirty_bytes,
        )

    def on(
        self,
        *kinds: str,
        do: Callable[[], object],
        of: Patterns = "*",
        after: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Do something before calls of these kinds: not before the first `after` of them, and so many times."""
        patterns = (of,) if isinstance(of, str) else of
        rule = Rule(frozenset(kinds), patterns, after, times, do)
        self._rules.append(rule)
        return rule

    def fail(
        self,
        *kinds: str,
        of: Patterns = "*",
        error: int = errno.EIO,
        after: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Have calls of these kinds fail: not the first `after` of them, and so many times, or until `heal`."""
        return self.on(*kinds, do=lambda: _fail(error), of=of, after=after, times=times)

    def die(self, *kinds: str, after: int = 0) -> Rule:
        """Have the process die (Died) where it makes a call of these kinds, after so many of them."""
        return self.on(*kinds, do=_die, after=after)

    def hold(self, *kinds: str, of: Patterns = "*") -> Held:
        """Have calls of these kinds wait."""
        held = Held()
        self.on(*kinds, do=held, of=of)
        return held

    @contextmanager
    def failing(self, *kinds: str, of: Patterns = "*", error: int = errno.EIO) -> Iterator[None]:
        """Have calls of these kinds fail within the block."""
        rule = self.fail(*kinds, of=of, error=error)
        try:
            yield
        finally:
            self._rules.remove(rule)

    def fill(self, *of: str, room: int = 0) -> None:
        """Have no room but `room` bytes for these files, or for any: nothing grows, and nothing new is made.

        A file that is there may be overwritten and cut.
        """
        self._full, self._room = of or ("*",), room

    def empty(self) -> None:
        """Have room again."""
        self._full = ()

    def heal(self) -> None:
        """Have room again, and have no call fail."""
        self.empty()
        self._rules.clear()

    def paths(self, *kinds: str) -> list[Path]:
        """Return the files of the calls of these kinds so far, in order."""
        return [path for kind, path in self.calls if kind in kinds]

    def meet(self, path: Path | None, *kinds: str, growth: int = 0) -> int:
        """Let a call happen, or fail it; return how many of the bytes by which it grows the file have room."""
        if path is None:
            return growth
        with self._lock:
            self.calls.extend((kind, path) for kind in kinds)
            due = [rule for rule in self._rules if rule.meets(kinds, path)]
            room = self._take_room(path, kinds, growth)
        for rule in due:
            rule.do()
        return room

    def _take_room(self, path: Path, kinds: tuple[str, ...], growth: int) -> int:
        needs_room = "make" in kinds or growth > 0
        if not needs_room or not _matches(path, self._full):
            return growth
        if self._room == 0:
            self.refused.add(path.name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        room = min(growth, self._room)
        self._room -= room
        return room


def _path_of(fd: int) -> Path | None:
    return _named(os.readlink(f"/proc/self/fd/{fd}"))


@lru_cache(10_000)
def _named(path: str) -> Path | None:
    """Return what a rule knows a file by; None for a table of the system, which is on no disk."""
    return None if path.startswith("/proc/") else Path(path.removesuffix(".tmp"))


@lru_cache(10_000)
def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(path.match(pattern) for pattern in patterns)


class _System:
    """Stands in for the module os in `files`."""

    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        self._meet = disk.meet

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        is_new = flags & os.O_CREAT and not os.path.exists(path)
        self._meet(_named(os.fspath(path)), "open", *(["make"] if is_new else []))
        return os.open(path, flags, *args, **kwargs)

    def mkdir(self, path: Any, *args: Any, **kwargs: Any) -> None:
        if not os.path.exists(path):
            self._meet(_named(os.fspath(path)), "make")
        os.mkdir(path, *args, **kwargs)

    def makedirs(self, path: Any, *args: Any, **kwargs: Any) -> None:
        if not os.path.exists(path):
            self._meet(_named(os.fspath(path)), "make")
        os.makedirs(path, *args, **kwargs)

    def pread(self, fd: int, *args: Any) -> bytes:
        self._meet(_path_of(fd), "read")
        return os.pread(fd, *args)

    def preadv(self, fd: int, buffers: Any, position: int, *flags: int) -> int:
        if flags and self._disk.is_cold:
            raise BlockingIOError
        self._meet(_path_of(fd), "read")
        return os.preadv(fd, buffers, position, *flags)

    def read(self, fd: int, count: int) -> bytes:
        self._meet(_path_of(fd), "read")
        return os.read(fd, count)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        return os.pwrite(fd, self._written(fd, data, position), position)

    def write(self, fd: int, data: Any) -> int:
        return os.write(fd, self._written(fd, data, os.lseek(fd, 0, os.SEEK_CUR)))

    def _written(self, fd: int, data: Any, position: int) -> memoryview:
        """Return what of the data is written."""
        data = memoryview(data)[: self._disk.write_max]
        growth = max(0, min(len(data), position + len(data) - os.fstat(fd).st_size))
        room = self._meet(_path_of(fd), *(("write", "grow") if growth else ("write",)), growth=growth)
        return data[: len(data) - growth + room]

    def ftruncate(self, fd: int, size: int) -> None:
        self._meet(_path_of(fd), "truncate")
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        self._meet(_path_of(fd), "sync")
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._meet(_path_of(fd), "sync")
        os.fsync(fd)

    def rename(self, old: Any, new: Any) -> None:
        self._meet(_named(os.fspath(old)), "rename")
        os.rename(old, new)

    def replace(self, old: Any, new: Any) -> None:
        self._meet(_named(os.fspath(old)), "rename")
        os.replace(old, new)

    def unlink(self, path: Any) -> None:
        self._meet(_named(os.fspath(path)), "remove")
        os.unlink(path)

    def scandir(self, path: Any) -> Any:
        self._meet(_named(os.fspath(path)), "list")
        return os.scandir(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyDisk]:
    disk = FaultyDisk(monkeypatch)
    yield disk
    disk.heal()  # before the broker of the test stops
