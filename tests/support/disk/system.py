"""The calls that `storage/files.py` makes, answered by a disk in memory, which records what they do to it.

Owns: paths, descriptors, and failures on demand. Refuses to know: what of it survives a crash (`image`), and who calls.
`installed` puts one behind `files`, which itself stays as it is. A call that is not known here is an error.
"""

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from tests.support.disk.image import ROOT, FileNode, FolderNode, Image, Op
from tidelog.storage import files

# Nothing can be made in /proc: what goes round the disk fails, instead of using a real one.
FOLDER = Path("/proc/tidelog-disk/data")
_PREFIX = str(FOLDER)
_PREFIX_BYTES = len(_PREFIX) + 1
# Far above any descriptor of the process.
_FIRST_FD = 1 << 40
# No two disks share one: a file of the last disk may be closed when the next is in use.
_fds = itertools.count(_FIRST_FD)
_OF_THE_SYSTEM = {"/proc/meminfo": -1, "/proc/sys/kernel/random/boot_id": -2}
_MEMINFO = b"MemTotal: 1 kB\nDirty:  0 kB\nWriteback:  0 kB\n"
_DEVICE = 7

# What a call may fail with, by kind of call; "short" stops half way, and what follows finds the disk full.
FAILURES = {
    "open": ("EMFILE", "ENOSPC", "EIO"),
    "write": ("ENOSPC", "EIO", "short"),
    "sync": ("EIO", "ENOSPC"),
    "truncate": ("EIO",),
    "rename": ("EIO", "ENOSPC"),
    "unlink": ("EIO",),
    "mkdir": ("ENOSPC",),
    "list": ("EMFILE",),
    "read": ("EIO",),
}


class Fault(NamedTuple):
    """Call number `nth` (from 1) of a kind fails, and `calls` - 1 more of that kind."""

    kind: str
    nth: int
    error: str
    calls: int = 1


def stamped(time_ms: int) -> int:
    """Return what a file says that was changed at a time: it is stamped by the system's tick, behind the clock."""
    return time_ms // 4 * 4


class Disk:
    """A disk in use: `journal` is what was done to it since it was as `start`."""

    def __init__(self, start: Image, clock: Callable[[], int], fault: Fault | None = None) -> None:
        self.start = start
        self.image = start.clone()
        self.journal: list[Op] = []
        self.clock = lambda: stamped(clock())
        self.fault = fault
        self.calls: Counter[str] = Counter()
        self.failed = 0  # calls that were made to fail
        self._fds: dict[int, list[int]] = {}
        self._untold: set[int] = set()  # files that a failed sync of everything has not told of
        self._locks: dict[int, int] = {}  # of each file that is locked the descriptor that holds its lock

    def do(self, op: Op) -> None:
        """Change the disk."""
        self.image.apply(op)
        self.journal.append(op)

    def heal(self) -> None:
        """Let nothing fail from now on."""
        self.fault = None
        self._untold.clear()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let nothing fail in here, and report no earlier failure."""
        fault, untold = self.fault, self._untold
        self.fault, self._untold = None, set()
        try:
            yield
        finally:
            self.fault, self._untold = fault, untold

    def check(self, kind: str) -> str:
        """Count a call, and fail if it is to; return "short" for a write that is to stop half way."""
        self.calls[kind] += 1
        fault = self.fault
        if fault is None or fault.kind != kind or not 0 <= self.calls[kind] - fault.nth < fault.calls:
            return ""
        self.failed += 1
        if fault.error == "short":
            if self.failed == 1:
                return "short"
            _fail(errno.ENOSPC)
        _fail(getattr(errno, fault.error))
        return ""

    def find(self, path: Any) -> int:
        """Return the number of what is at a path."""
        text = os.fspath(path)
        if not text.startswith(_PREFIX):
            if _PREFIX.startswith(text):
                return ROOT
            raise AssertionError(f"{text} is not on this disk")
        number = ROOT
        if len(text) > _PREFIX_BYTES:
            for name in text[_PREFIX_BYTES:].split("/"):
                node = self.image.nodes[number]
                if not isinstance(node, FolderNode):
                    _fail(errno.ENOTDIR, text)
                number = node.names.get(name, -1)
                if number < 0:
                    _fail(errno.ENOENT, text)
        return number

    def place(self, path: Any) -> tuple[int, str]:
        """Return the number of the folder that a path is in, and the name there."""
        above, _, name = os.fspath(path).rpartition("/")
        return self.find(above), name

    def link(self, path: Any, data: bytes | None) -> int:
        """Make an empty file, or with None a folder."""
        above, name = self.place(path)
        number = len(self.image.nodes)
        self.do(Op("link", above, name, number, data, self.clock()))
        return number

    def opened(self, number: int) -> int:
        """Return a descriptor for a node."""
        fd = next(_fds)
        self._fds[fd] = [number, 0]
        return fd

    def node(self, fd: int) -> tuple[int, FileNode]:
        """Return the file behind a descriptor, and its number."""
        number = self._fds[fd][0]
        return number, self.image.file(number)

    def write(self, fd: int, data: Any, position: int) -> int:
        """Write at a position, or at the descriptor's own with -1; return how much was written."""
        how = self.check("write")
        number, node = self.node(fd)
        piece = bytes(data)
        if how:
            piece = piece[: len(piece) // 2]
        if position < 0:
            position = self._fds[fd][1]
            self._fds[fd][1] += len(piece)
        old = node.versions[-1].data
        end = position + len(piece)
        self._put(number, old[:position].ljust(position, b"\0") + piece + old[end:], position, end)
        return len(piece)

    def cut(self, number: int, size: int) -> None:
        """Give a file a size."""
        old = self.image.file(number).versions[-1].data
        if len(old) != size:
            self._put(number, old[:size].ljust(size, b"\0"), min(size, len(old)), max(size, len(old)))

    def _put(self, number: int, data: bytes, start: int, end: int) -> None:
        self.do(Op("write", number, "", (start, end), data, self.clock()))

    def read(self, fd: int, count: int, position: int) -> bytes:
        """Read at a position, or at the descriptor's own with -1."""
        self.check("read")
        entry = self._fds[fd]
        if entry[0] < 0:
            data = _MEMINFO if entry[0] == -1 else b"%d\n" % _system.boot
        else:
            data = self.image.file(entry[0]).versions[-1].data
        start = entry[1] if position < 0 else position
        piece = data[start:] if count < 0 else data[start : start + count]
        if position < 0:
            entry[1] += len(piece)
        return piece

    def sync(self, fd: int | None) -> None:
        """Make what is behind a descriptor certain, with None everything."""
        number = ROOT if fd is None else self._fds[fd][0]
        try:
            self.check("sync")
            if number in self._untold:
                # Each file tells of a failure that a sync of everything met, too (errseq_t, since Linux 4.13).
                _fail(errno.EIO)
        except OSError:
            self.do(Op("fail-sync", number, other="all" if fd is None else None))
            if fd is None:
                self._untold = {
                    each
                    for each, node in self.image.nodes.items()
                    if isinstance(node, FileNode) and node.dropped
                }
            self._untold.discard(number)
            raise
        self.do(Op("sync-all") if fd is None else Op("sync", number))

    def lock(self, fd: int) -> None:
        """Lock a file until its descriptor is closed. BlockingIOError where another one holds the lock."""
        number = self._fds[fd][0]
        if self._locks.setdefault(number, fd) != fd:
            _fail(errno.EWOULDBLOCK)

    def close(self, fd: int) -> None:
        """Forget a descriptor; one of a disk that is no longer in use is not known."""
        number, _ = self._fds.pop(fd, (ROOT, 0))
        if self._locks.get(number) == fd:
            del self._locks[number]


def _fail(number: int, path: Any = None) -> None:
    raise OSError(number, os.strerror(number), path)


class System:
    """What `files` takes for the module os. Only what is written here exists."""

    def __init__(self) -> None:
        self.disk: Disk
        self.boot = 0  # how often the power was cut
        self.numbers: Iterator[int]  # for whoever makes names up
        self.path = SimpleNamespace(realpath=os.fspath)  # there are no symbolic links
        for name in dir(os):
            if name.startswith(("O_", "RWF_", "POSIX_FADV_")) or name in ("strerror", "devnull", "fspath"):
                setattr(self, name, getattr(os, name))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the disk in memory has no os.{name}: add it to tests/support/disk")

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        disk = self.disk
        disk.check("open")
        if os.fspath(path) in _OF_THE_SYSTEM:
            return disk.opened(_OF_THE_SYSTEM[os.fspath(path)])
        try:
            number = disk.find(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            return disk.opened(disk.link(path, b""))
        if flags & os.O_EXCL:
            _fail(errno.EEXIST, path)
        if isinstance(disk.image.nodes[number], FolderNode):
            if flags & (os.O_WRONLY | os.O_RDWR):
                _fail(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            _fail(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC:
            disk.cut(number, 0)
        return disk.opened(number)

    def close(self, fd: int) -> None:
        _close(fd)

    def statvfs(self, path: Any) -> Any:
        """There is always room; a full disk is a failure of a write."""
        self.disk.find(path)
        return SimpleNamespace(f_bavail=1 << 20, f_frsize=4096)

    def fstat(self, fd: int) -> Any:
        return self._stat(self.disk._fds[fd][0])

    def stat(self, path: Any) -> Any:
        if os.fspath(path) in _OF_THE_SYSTEM:
            return SimpleNamespace(st_mode=stat.S_IFREG, st_nlink=1)
        return self._stat(self.disk.find(path))

    def _stat(self, number: int) -> Any:
        node = self.disk.image.nodes[number]
        if isinstance(node, FolderNode):
            return SimpleNamespace(st_size=0, st_mtime_ns=0, st_dev=_DEVICE, st_mode=stat.S_IFDIR, st_nlink=2)
        data, modified_ms = node.versions[-1]
        return SimpleNamespace(
            st_size=len(data),
            st_mtime_ns=modified_ms * 1_000_000,
            st_dev=_DEVICE,
            st_mode=stat.S_IFREG,
            st_nlink=1,
        )

    def utime(self, path: Any, ns: tuple[int, int]) -> None:
        number = self.disk.find(path)
        data = self.disk.image.nodes[number].versions[-1].data
        self.disk.do(Op("write", number, other=(0, 0), data=data, modified_ms=ns[1] // 1_000_000))

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        return self.disk.write(fd, data, position)

    def write(self, fd: int, data: Any) -> int:
        return self.disk.write(fd, data, -1)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        if fd < _FIRST_FD and not count:
            return b""  # `files.NOTHING` was there before the disk.
        return self.disk.read(fd, count, position)

    def preadv(self, fd: int, buffers: list[Any], position: int, flags: int = 0) -> int:
        (buffer,) = buffers
        data = self.disk.read(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def read(self, fd: int, count: int) -> bytes:
        return self.disk.read(fd, count, -1)

    def fsync(self, fd: int) -> None:
        self.disk.sync(fd)

    def fdatasync(self, fd: int) -> None:
        self.disk.sync(fd)

    def posix_fadvise(self, fd: int, position: int, length: int, advice: int) -> None:
        assert (advice, length) == (os.POSIX_FADV_DONTNEED, 0)
        number, node = self.disk.node(fd)
        if node.dropped:
            self.disk.do(Op("forget", number, other=position))

    def ftruncate(self, fd: int, size: int) -> None:
        self.disk.check("truncate")
        self.disk.cut(self.disk.node(fd)[0], size)

    def rename(self, old: Any, new: Any) -> None:
        disk = self.disk
        disk.check("rename")
        disk.find(old)
        (above, name), (other, new_name) = disk.place(old), disk.place(new)
        assert above == other, "a rename is within a folder"
        disk.do(Op("rename", above, name, new_name))

    replace = rename

    def unlink(self, path: Any) -> None:
        self.disk.check("unlink")
        self.disk.find(path)
        self.disk.do(Op("unlink", *self.disk.place(path)))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        self.disk.check("mkdir")
        with contextlib.suppress(FileNotFoundError):
            self.disk.find(path)
            _fail(errno.EEXIST, path)
        self.disk.link(path, None)

    def makedirs(self, path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self, path: Any) -> None:
        self.disk.check("unlink")
        if self.disk.image.folder(self.disk.find(path)).names:
            _fail(errno.ENOTEMPTY, path)
        self.disk.do(Op("unlink", *self.disk.place(path)))

    @contextlib.contextmanager
    def scandir(self, path: Any) -> Iterator[list[Any]]:
        disk = self.disk
        disk.check("list")
        nodes = disk.image.nodes
        yield [
            SimpleNamespace(
                name=name,
                is_dir=lambda number=number, **_: isinstance(nodes[number], FolderNode),
                is_file=lambda number=number, **_: isinstance(nodes[number], FileNode),
            )
            for name, number in disk.image.folder(disk.find(path)).names.items()
        ]

    def listdir(self, path: Any) -> list[str]:
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]


class _Opened:
    """What the built-in open returns, unbuffered."""

    def __init__(self, system: System, fd: int) -> None:
        self._system, self._fd = system, fd

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._fd)

    close = __exit__

    def fileno(self) -> int:
        return self._fd

    def read(self, count: int = -1) -> bytes:
        return self._system.read(self._fd, count)

    def write(self, data: Any) -> int:
        return self._system.write(self._fd, data)


_system = System()


def _open(path: Any, mode: str = "r", buffering: int = -1) -> _Opened:
    flags = {"rb": os.O_RDONLY, "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC}
    assert mode in flags, f"the disk in memory opens no file in mode {mode!r}"
    assert buffering == 0, "a buffer hides when a write happens"
    return _Opened(_system, _system.open(path, flags[mode]))


def _close(
    fd: int, close: Callable[[int], None] = os.close, first: int = _FIRST_FD, system: System = _system
) -> None:
    """Close a descriptor of the system, or one of the disk. All names are defaults: the module may be gone by then."""
    if fd < first:
        close(fd)
    else:
        system.disk.close(fd)


def _map(fd: int, length: int, access: int = mmap.ACCESS_READ) -> bytes:
    assert access == mmap.ACCESS_READ
    return _system.disk.read(fd, length, 0)


def _rmtree(path: Any, ignore_errors: bool = False) -> None:
    try:
        with _system.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                child = f"{os.fspath(path)}/{entry.name}"
                if entry.is_dir():
                    _rmtree(child, ignore_errors)
                else:
                    with contextlib.suppress(OSError) if ignore_errors else contextlib.nullcontext():
                        _system.unlink(child)
        _system.rmdir(path)
    except OSError:
        if not ignore_errors:
            raise


class _Errno:
    """What is left of ctypes: the call that Python lacks."""

    last = 0

    @classmethod
    def syncfs(cls, fd: int) -> int:
        try:
            _system.disk.sync(None)
        except OSError as error:
            cls.last = error.errno or 0
            return -1
        return 0


_STAND_INS = {
    "os": _system,
    "fcntl": SimpleNamespace(
        flock=lambda fd, how: _system.disk.lock(fd),
        lockf=lambda fd, how: None,
        LOCK_EX=fcntl.LOCK_EX,
        LOCK_NB=fcntl.LOCK_NB,
        LOCK_SH=fcntl.LOCK_SH,
    ),
    "mmap": SimpleNamespace(mmap=_map, ACCESS_READ=mmap.ACCESS_READ),
}
_HARMLESS = {"contextlib", "errno", "stat_module"}
# `files` imports these where it uses them.
_IMPORTED_LATE = {
    "ctypes": SimpleNamespace(
        CDLL=lambda *_, **__: SimpleNamespace(syncfs=_Errno.syncfs), get_errno=lambda: _Errno.last
    ),
    "shutil": SimpleNamespace(rmtree=_rmtree),
}


@contextlib.contextmanager
def installed() -> Iterator[System]:
    """Put a disk in memory behind `files`; its user sets `disk`. Not for several threads."""
    # What begins with @ is pytest's, which rewrites the assertions of a distribution that has a plugin.
    modules = {
        name for name, value in vars(files).items() if isinstance(value, ModuleType) and name[0] != "@"
    }
    unknown = modules - set(_STAND_INS) - _HARMLESS
    assert not unknown, f"files uses {sorted(unknown)}, which tests/support/disk does not stand in for"
    # A file may outlive the disk that it was on, and closes itself: this stays.
    for owner in vars(files).values():
        closes = getattr(owner, "__del__", None)
        if closes is not None and closes.__defaults__ == (os.close,):
            closes.__defaults__ = (_close,)
    with contextlib.ExitStack() as stack:
        for name, stand_in in _STAND_INS.items():
            if name in modules:
                stack.enter_context(mock.patch.object(files, name, stand_in))
        stack.enter_context(mock.patch.object(files, "open", _open, create=True))
        stack.enter_context(mock.patch.dict(sys.modules, _IMPORTED_LATE))
        stack.enter_context(mock.patch.object(files.FileSystem, "reports_errors", return_value=True))
        yield _system
