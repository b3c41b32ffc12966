"""Every call into the operating system's files, and nothing else.

Owns descriptors, names and durability. Knows nothing of what is written. Other modules reach files only through this
one (as `files.File(...)`, not by the bare name), so that a test can replace the disk.

A `File` is positional (`pread`, `pwrite`): its writer and any number of readers share it. It closes with its last
reference, so a reader reads a deleted file to its end.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat as stat_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.storage.errors import ReadFailed, StorageError

Readable = bytes | bytearray
Map = mmap.mmap
_PAGE_BYTES: Final = mmap.PAGESIZE


# A file with more than DIRTY_BYTES_MAX to write is synced in pieces, and the tail at last.
_DIRTY_BYTES_MAX: Final = 8 << 20
_PIECE_BYTES: Final = 4 << 20
_TAIL_BYTES: Final = 1 << 20
# Start to write a range, and wait until it is written: linux/fs.h.
_SYNC_FILE_RANGE: Final = 1 | 2 | 4
_TIMED_SYNCS: Final = 5
_NO_FILE: Final = Path(os.devnull)

# The longest tick of a Linux kernel (HZ=100).
_TICK_MS: Final = 10
# The disk is full, or the user's quota is used up.
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# Errors of opening a file that say nothing about the disk.
SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Shortage(OSError):
    """A file could not be opened as descriptors or memory ran out: nothing was done, and later it may work."""


class Irregular(OSError):
    """A pipe, a socket or a device lies where a file belongs; it was not opened."""


class SyncFailed(OSError):
    """A sync failed, for whatever reason: its data may be lost even if the next sync succeeds."""


def _refuse_irregular(path: Path) -> None:
    """Raise Irregular for a pipe, a socket or a device: to open or read one may block or have side effects."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if not stat_module.S_ISREG(mode) and not stat_module.S_ISDIR(mode):
            raise Irregular(errno.EINVAL, "not a regular file", str(path))


def _open(path: Path, flags: int) -> int:
    if path != _NO_FILE:
        _refuse_irregular(path)
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise Shortage(error.errno, error.strerror, str(path)) from error
        raise


class File:
    """An open file; `size` is where `append` writes next."""

    __slots__ = ("_fd", "_nowait_flags", "_written_bytes", "path", "size")

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        """Open for reading and writing, or for reading only; `create` creates a missing file."""
        self._fd = -1
        flags = os.O_RDONLY if read_only else os.O_RDWR
        self._fd = _open(path, flags | (os.O_CREAT if create else 0))
        self.path = path
        self.size = os.fstat(self._fd).st_size
        self._written_bytes = self.size  # up to here the disk has most of it
        self._nowait_flags = os.RWF_NOWAIT

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor with the last reference; `os` may be gone by then."""
        if self._fd >= 0:
            close(self._fd)

    def append(self, data: Readable | memoryview) -> None:
        """Write at the end. After an error the file may hold part of `data` beyond `size`: truncate it there."""
        written = os.pwrite(self._fd, data, self.size)
        if written != len(data):
            self.write_at(memoryview(data)[written:], self.size + written)
        self.size += len(data)

    def write_at(self, data: Readable | memoryview, position: int) -> None:
        """Write all of `data` at a position."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, position)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            position += written
            rest = rest[written:]

    def copy_to(self, other: "File", start: int, end: int) -> None:
        """Copy a range of bytes to the same place in another file, in the kernel, which may share the disk's blocks."""
        while start < end:
            copied = os.copy_file_range(self._fd, other._fd, end - start, start, start)
            if not copied:
                raise OSError(errno.EIO, f"ends before byte {end}", str(self.path))
            start += copied
            other.size = start

    def pread(self, count: int, position: int) -> bytes:
        """Read up to `count` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        while data and (missing := count - sum(map(len, parts))):
            data = os.pread(self._fd, missing, position + count - missing)
            parts.append(data)
        return b"".join(parts)

    def read_nowait(self, count: int, position: int) -> Readable | None:
        """Read bytes that exist, or return None if that would wait for the disk."""
        buffer = bytearray(count)
        return buffer if self.fill_nowait(buffer, position) else None

    def fill_nowait(self, buffer: bytearray | memoryview, position: int) -> bool:
        """Fill a buffer from the file; return False if that would wait for the disk."""
        try:
            return os.preadv(self._fd, [buffer], position, self._nowait_flags) == len(buffer)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._nowait_flags or error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # This file system cannot tell (tmpfs keeps everything in memory anyway).
            self._nowait_flags = 0
            return self.fill_nowait(buffer, position)

    def sync(self) -> None:
        """Put every byte written so far, and the size, on disk."""
        if self.size - self._written_bytes > _DIRTY_BYTES_MAX:
            self._write_ahead()
        size = self.size
        os.fdatasync(self._fd)
        self._written_bytes = size

    def _write_ahead(self) -> None:
        """Write to the disk, in pieces, all but the end of what a sync has to write.

        ext4 locks the pages of several megabytes while it waits for the disk to take them. An append waits for the
        last page of the file, if that is one of them: up to 60 ms while 230 MB are synced, and 2 ms with this.
        """
        # With as much of what comes in the meantime, but no more: others wait for the end of the sync.
        last = self._written_bytes + 2 * (self.size - self._written_bytes)
        try:
            libc = _libc()
        except (ImportError, OSError):
            return  # Python without ctypes, or one that is linked statically
        try:
            while (ahead := min(self.size, last) - self._written_bytes - _TAIL_BYTES) >= _TAIL_BYTES:
                piece = min(ahead, _PIECE_BYTES)
                _sync_range(libc, self._fd, self._written_bytes, piece)
                self._written_bytes += piece
        except OSError:
            # After the error of a write, the sync would succeed without the lost bytes. A sandbox may refuse the call,
            # and then it refuses one for nothing too; a file system behind a server may report the same error.
            if not _is_refused(libc, self._fd):
                raise

    def forget_clean(self, position: int) -> None:
        """Drop the clean cached pages from a position on, so that reads come from the disk.

        After a failed sync the system marks unwritten pages as clean, so a read would show data that the disk lacks.
        Only whole pages can be dropped; the page of the position is one of them.
        """
        os.posix_fadvise(self._fd, position - position % _PAGE_BYTES, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._fd, size)
        self.size = size


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_WRITES: Final = {(File, "append"): File.append, (File, "write_at"): File.write_at}


def refuse_writes(refused: bool) -> None:
    """Let all writes fail as on a full disk, or succeed again. For tests; costs other writes nothing."""
    for (owner, name), write in _WRITES.items():
        setattr(owner, name, _refuse if refused else write)
    globals()["_write_all"] = _refuse if refused else _write


class ColdFile(File):
    """A file that is read from the disk past the page cache.

    Without O_DIRECT, cached pages are read from memory, and pages that a read brought in are dropped again.
    """

    __slots__ = ("_is_direct", "_room")

    def __init__(self, path: Path, count_max: int) -> None:
        """Open for reads of at most `count_max` bytes, from positions that are multiples of a page."""
        super().__init__(path, read_only=True)
        self._room = mmap.mmap(-1, count_max)
        self._is_direct = True
        try:
            direct = _open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_direct = False
        else:
            self._fd, buffered = direct, self._fd
            os.close(buffered)

    def pread(self, count: int, position: int) -> bytes:
        """Read up to `count` bytes; fewer only at the end of the file."""
        if self._is_direct:
            whole = -(-count // _PAGE_BYTES) * _PAGE_BYTES
            with memoryview(self._room) as room:
                read = os.preadv(self._fd, [room[:whole]], position)
                return bytes(room[: min(read, count)])
        warm = self.read_nowait(min(count, self.size - position), position)
        if warm is not None:
            return bytes(warm)
        data = super().pread(count, position)
        os.posix_fadvise(self._fd, position, count, os.POSIX_FADV_DONTNEED)
        return data


class FileSlice:
    """A range of published bytes of a file, which do not change. Its length is known without reading."""

    __slots__ = ("data", "file", "length", "position")

    def __init__(self, file: File, position: int, length: int, data: bytes | None = None) -> None:
        """Name `length` bytes of `file` from `position`; `data` has these bytes if they were read already."""
        self.file = file
        self.position = position
        self.length = length
        self.data = data

    def __len__(self) -> int:
        """Return the length in bytes."""
        return self.length

    def first(self, count: int) -> "FileSlice":
        """Return the first `count` bytes, as a slice."""
        return FileSlice(self.file, self.position, count)

    def after(self, count: int) -> "FileSlice":
        """Return the slice without its first `count` bytes."""
        return FileSlice(self.file, self.position + count, self.length - count)

    def read(self) -> Readable:
        """Return the bytes, waiting for the disk where needed."""
        try:
            return self.data or self.file.pread(self.length, self.position)
        except OSError as error:
            raise ReadFailed(f"{self.file.path}@{self.position}: {error}") from error

    def read_nowait(self) -> Readable | None:
        """Return the bytes, or None if that would wait for the disk."""
        try:
            return self.data or self.file.read_nowait(self.length, self.position)
        except OSError as error:
            raise ReadFailed(f"{self.file.path}@{self.position}: {error}") from error


# What a read at the end of a log returns, without opening one of its files.
NOTHING: Final = FileSlice(File(_NO_FILE), 0, 0)


def real(path: Path) -> Path:
    """Return the absolute path of a file or folder, missing or not, without symbolic links."""
    return Path(os.path.realpath(path))


class Entry(NamedTuple):
    """A name in a folder."""

    name: str
    is_folder: bool


def list_folder(path: Path) -> list[Entry]:
    """Return the entries of a folder, by name."""
    with os.scandir(path) as entries:
        return sorted(Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)


def list_typed(path: Path) -> list[tuple[Entry, bool]]:
    """Return the entries of a folder, by name, each with True for a regular file, a folder, or a link to one."""
    with os.scandir(path) as entries:
        return sorted(
            (Entry(entry.name, entry.is_dir(follow_symlinks=False)), entry.is_file() or entry.is_dir())
            for entry in entries
        )


class Status(NamedTuple):
    """The size of a file in bytes and the wall time of its last change."""

    size: int
    modified_ms: int


def status(path: Path) -> Status | None:
    """Return a file's status, or None if it is missing."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return Status(stat.st_size, stat.st_mtime_ns // 1_000_000)


_PART_BYTES: Final = 65536
# More than the longest `SystemTable`.
_TABLE_BYTES: Final = 8192


def latest_ms(modified_ms: int) -> int:
    """Return the latest time at which a file with this modification time can have been changed.

    The system stamps files by its tick, which lags the clock by milliseconds; some file systems keep whole seconds.
    """
    return modified_ms + (_TICK_MS if modified_ms % 1000 else 1000)


def load(path: Path) -> bytes | None:
    """Return the content of a small file, or None if it is missing."""
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = part = os.read(fd, _PART_BYTES)
        while len(part) == _PART_BYTES:
            part = os.read(fd, _PART_BYTES)
            data += part
        return data
    except IsADirectoryError:
        raise IsADirectoryError(
            errno.EISDIR, "a folder where a file belongs; move it away", str(path)
        ) from None
    finally:
        os.close(fd)


def boot_id() -> bytes | None:
    """Return the id of the system's current boot, None if it has none."""
    return load(Path("/proc/sys/kernel/random/boot_id"))


def map_readonly(path: Path) -> bytes | mmap.mmap:
    """Return the content as a read-only map; an empty or missing file as empty bytes."""
    _refuse_irregular(path)
    with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
        if size := os.fstat(file.fileno()).st_size:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    return b""


def create(path: Path) -> None:
    """Make an empty file if it is missing."""
    os.close(_open(path, os.O_WRONLY | os.O_CREAT))


def create_all(paths: Sequence[Path]) -> None:
    """Make empty files in this order, or none of them."""
    try:
        for path in paths:
            create(path)
    except OSError:
        for path in reversed(paths):
            with contextlib.suppress(OSError):
                remove(path)
        raise


def write(path: Path, data: Readable) -> None:
    """Overwrite a file in place. A crash may tear it, so its content must show that, and be possible to rebuild.

    Hard links of the file keep the old content.
    """
    fd = _open(path, os.O_WRONLY | os.O_CREAT)
    try:
        status = os.fstat(fd)
        if status.st_nlink > 1:
            write_aside(path, data)
            put_in_place(path)
            return
        _write_all(fd, data)
        if status.st_size > len(data):
            os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def temporary_of(path: Path) -> Path:
    """Return the path under which a file's replacement is written."""
    return path.with_name(path.name + ".tmp")


def write_atomically(path: Path, data: Readable) -> None:
    """Replace a file; after a power cut it holds the old content or the new one."""
    write_aside(path, data, durably=True)
    put_in_place(path)
    sync_folder(path.parent)


def write_aside(path: Path, data: Readable, *, durably: bool = False) -> None:
    """Write a file's replacement beside it; once that is on disk, `put_in_place` may replace the file."""
    _refuse_irregular(temporary_of(path))
    with open(temporary_of(path), "wb", buffering=0) as file:
        _write_all(file.fileno(), data)
        if durably:
            os.fsync(file.fileno())


def put_in_place(path: Path) -> None:
    """Replace a file by what `write_aside` wrote."""
    os.replace(temporary_of(path), path)


def _write(fd: int, data: Readable) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


_write_all: Callable[[int, Readable], None] = _write


def sync(path: Path) -> None:
    """Put a file's content on disk; a missing file is no error."""
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Put the names in a folder on disk."""
    fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# The types (statfs(2)) of file systems whose `syncfs` reports lost writes: ext4, XFS, btrfs, F2FS, tmpfs. Others leave
# writes to a file system below, as overlayfs does, or never learn of the error, as some FUSE file systems.
_REPORTING: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
# The Linux version from which on `syncfs` reports them.
_REPORTING_SINCE: Final = (5, 8)


class FileSystem:
    """The file system of a folder; `device` is its number, as in `stat`."""

    __slots__ = ("_fd", "_libc", "device")

    def __init__(self, folder: Path) -> None:
        """Open the folder and keep it open: `sync` reports lost writes since then."""
        self._fd = -1
        self._libc: Any = None
        self._fd = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.device = os.fstat(self._fd).st_dev

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the folder."""
        if self._fd >= 0:
            close(self._fd)

    def reports_errors(self) -> bool:
        """Tell whether `sync` fails if writes were lost. Raise OSError or ImportError."""
        import ctypes

        release = os.uname().release.split(".")
        if tuple(int("".join(takewhile(str.isdigit, part)) or 0) for part in release[:2]) < _REPORTING_SINCE:
            return False
        status = ctypes.create_string_buffer(512)  # a `struct statfs`, which begins with the type
        self._call("fstatfs", status)
        return ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF in _REPORTING

    def sync(self) -> None:
        """Put everything on disk that any process has written to the file system. Raise OSError or ImportError."""
        self._call("syncfs")

    def _call(self, name: str, *arguments: Any) -> None:
        if self._libc is None:
            self._libc = _libc()
        _call(self._libc, name, self._fd, *arguments)


def _libc() -> Any:
    """Return the system's library. Raise ImportError."""
    # Imported here: the import takes a hundredth of the start of a command that does not need it.
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _sync_range(libc: Any, fd: int, position: int, count: int, what: int = _SYNC_FILE_RANGE) -> None:
    """Write a range of a file to the disk, and wait for it; neither the file's size nor the range is durable then."""
    import ctypes

    # ctypes would pass an int as 32 bits.
    _call(libc, "sync_file_range", fd, ctypes.c_int64(position), ctypes.c_int64(count), what)


def _is_refused(libc: Any, fd: int) -> bool:
    """Tell whether the system refuses `_sync_range` itself: a call that asks for nothing reports no lost write."""
    try:
        _sync_range(libc, fd, 0, 0, 0)
    except OSError:
        return True
    return False


def _call(libc: Any, name: str, *arguments: Any) -> None:
    """Make a system call that Python's os lacks. Raise OSError."""
    import ctypes

    while getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:  # A signal came; Python's os retries by itself.
            raise OSError(number, os.strerror(number))


class SystemTable:
    """A file in /proc that is kept open, so that reading it takes no descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        """Open it. Raise OSError."""
        self._fd = -1
        self._fd = _open(path, os.O_RDONLY)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close it."""
        if self._fd >= 0:
            close(self._fd)

    def read(self) -> bytes:
        """Return its current content."""
        return os.pread(self._fd, _TABLE_BYTES, 0)


class DirtyMemory:
    """How much memory the system still has to write to all disks together."""

    __slots__ = ("_meminfo",)

    def __init__(self) -> None:
        """Open the system's table. Raise OSError."""
        self._meminfo = SystemTable(Path("/proc/meminfo"))

    def bytes(self) -> int:
        """Return the current amount."""
        lines = self._meminfo.read().split(b"\n")
        return sum(
            int(line.split()[1]) << 10 for line in lines if line.startswith((b"Dirty:", b"Writeback:"))
        )


def free_bytes(folder: Path) -> int:
    """Return how much this process may still write to the file system of a folder."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def space_bytes(folder: Path) -> tuple[int, int]:
    """Return how large the file system of a folder is, and how much this process may still write to it."""
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def sync_time_s(folder: Path) -> float:
    """Return the median time of `fdatasync` after a write of one page to a temporary file in a folder."""
    # Not at the top: a broker needs none of them.
    import tempfile
    import time

    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_TIMED_SYNCS):
            began_s = time.monotonic()
            os.write(file.fileno(), bytes(_PAGE_BYTES))
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - began_s)
    return sorted(times)[_TIMED_SYNCS // 2]


def device_of(path: Path) -> int:
    """Return the number of the file system of a file or folder; of its parent's, if it is missing."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_dev
    return os.stat(path.parent).st_dev


def check_writable(folder: Path) -> None:
    """Raise OSError if files cannot be made in a folder, or if the folder is missing and cannot be made.

    Of a missing folder, makes the first part that is missing under another name, and removes it.
    """
    if os.path.lexists(folder):
        mode = os.stat(folder).st_mode
        if not stat_module.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    else:
        check_writable(folder.parent)
        if os.path.lexists(folder.parent):
            tried = folder.parent / f".tidelog-check-{os.getpid()}"
            try:
                os.mkdir(tried)
            except OSError as error:  # as in /proc, which grants all rights
                raise OSError(error.errno, error.strerror, str(folder)) from None
            os.rmdir(tried)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they are missing."""
    os.makedirs(path, mode=0o755, exist_ok=True)


def make_folder_with(path: Path, contents: Mapping[str, Readable]) -> None:
    """Make a new folder, and files in it in this order. After an OSError some of them may exist."""
    os.mkdir(path, mode=0o755)
    for name, data in contents.items():
        # Not `_open`: in a new folder nothing irregular can have that name.
        fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if data:
                _write_all(fd, data)
        finally:
            os.close(fd)


def make_folder_in(path: Path) -> None:
    """Make a folder if it is missing. Raise FileNotFoundError if its parent is."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode=0o755)


def rename(old: Path, new: Path) -> None:
    """Rename within a folder; a missing file is no error."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(old, new)


def link(source: Path, target: Path) -> None:
    """Give a file another name, on the same file system; it stays until the last name goes. Raise OSError."""
    os.link(source, target)


def own(path: Path, *, durably: bool = True) -> bool:
    """Give a file that has hard links a copy under this name; tell whether it had any. A missing one has none.

    Call it before a change in place, and then open the file again.
    """
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_nlink > 1:
            copy(path, temporary_of(path), durably=durably)
            put_in_place(path)
            if durably:
                sync_folder(path.parent)
            return True
    return False


def copy(source: Path, target: Path, *, durably: bool = True) -> None:
    """Copy a file's content and its modification time."""
    import shutil  # loads the modules of four compressors, which a start need not do

    _refuse_irregular(source)
    shutil.copyfile(source, target)
    keep_time(source, target)
    if durably:
        fd = _open(target, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def keep_time(source: Path, target: Path) -> None:
    """Give a copy the modification time of its source."""
    modified_ns = os.stat(source).st_mtime_ns
    os.utime(target, ns=(modified_ns, modified_ns))


def remove(path: Path) -> None:
    """Remove a file; a missing one is no error."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: Path) -> None:
    """Remove a folder and its content, as far as possible; errors are ignored."""
    import shutil  # as in `copy`

    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def whole(folder: Path, named: Path) -> Iterator[None]:
    """Remove a folder if the block that makes it fails. An OSError becomes a StorageError about `named`."""
    try:
        yield
    except OSError as error:
        remove_folder(folder)
        raise StorageError(f"{named}: cannot be made: {error}") from error
    except BaseException:
        remove_folder(folder)
        raise


def remove_empty_folder(path: Path) -> None:
    """Remove a folder if it is empty; errors are ignored."""
    with contextlib.suppress(OSError):
        os.rmdir(path)


class FolderLock:
    """A lock on a folder, which ends with its process.

    It takes two system locks: `flock`, which two threads of one process cannot both hold, and `lockf`, which Kafka
    (Java's FileLock) uses.
    """

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        """Take the lock in file `path`; raise BlockingIOError if it is taken."""
        _refuse_irregular(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock in a file. Creates nothing and keeps no lock."""
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def holding(lock: FolderLock) -> Iterator[None]:
    """Release the lock if the block fails; on success its owner keeps it."""
    try:
        yield
    except BaseException:
        lock.release()
        raise
