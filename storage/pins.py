"""Hard links that keep the files of segments for readers outside the broker, after the segments are deleted.

    PARTITION/.snapshot/PROCESS/BASE-INODE/   the files of one segment, under their own names
    PARTITION/.snapshot/PROCESS/PLAN.lease    the lease of one plan: one file, with a name in each partition it reads

PROCESS is the program that plans reads. It links a segment once, however many of its plans read the segment. A lease
holds the time when it was made, and a byte for each piece of its plan, which is set when the piece has been read. It
ends when all bytes are set, when nobody has written to it or touched it for LEASE_MS, or when its process has ended.
Every plan touches the folders of its segments. So a segment that was last touched before the oldest lease was made
belongs to no plan that has a lease, and its links are removed. Both times come from the file system's clock.

Kafka and the broker's logs ignore these folders. Invariant: this module never creates the folder of a partition. The
folder of a deleted topic would keep the topic from being created again.
"""

import errno
import os
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.storage import files
from tidelog.storage.layout import LOG, SUFFIXES

FOLDER: Final = ".snapshot"
LEASE_MS: Final = 10 * 60_000
_SUFFIX: Final = ".lease"
_MADE_MS: Final = struct.Struct(">q")
_TRIES: Final = 100  # each takes microseconds
_BASE_DIGITS: Final = 20


def begin(partitions: Sequence[Path], process: str, pieces: int) -> str:
    """Write the lease of a plan with this many pieces; return its name. Raise OSError."""
    name = uuid.uuid4().hex
    try:
        _lease_in(partitions, process, name, pieces)
    except BaseException:
        for partition in partitions:
            for each in (name, f"{name}{_SUFFIX}"):
                with suppress(OSError):
                    files.remove(partition / FOLDER / process / each)
            _remove_empty(partition, process)
        raise
    return f"{name}{_SUFFIX}"


def pin(partition: Path, process: str, base_offset: int) -> Path | None:
    """Link the files of a segment; return the folder of the links, None if the log is gone. Raise OSError."""
    log = f"{base_offset:0{_BASE_DIGITS}d}{LOG}"
    for _ in range(_TRIES):
        inode = _inode(partition / log)
        if inode is None:
            return None
        try:
            folder = _made(partition, process) / f"{base_offset:0{_BASE_DIGITS}d}-{inode}"
            files.make_folder_in(folder)
            _link_files(partition, base_offset, folder)
            os.utime(folder)
        except FileNotFoundError:
            continue  # As in `_lease_in`, or the log has just been deleted.
        if _inode(folder / log) == inode:
            return folder
        files.remove_folder(folder)  # Compaction has just replaced the log.
    raise _busy(partition)


def renew(lease: Path) -> None:
    """Extend a lease to LEASE_MS from now; one that has ended stays ended."""
    with suppress(OSError):
        os.utime(lease)


def finish(lease: Path, pieces: Iterable[int]) -> None:
    """Mark pieces as read. The last one ends the lease and removes the links that no other plan needs."""
    try:
        file = files.File(lease)
        for piece in pieces:
            file.write_at(b"\1", _MADE_MS.size + piece)
        if _is_over(file.pread(file.size, 0)):
            _end(lease)
    except OSError:
        return  # It had ended already, or another user owns it: then the next sweep ends it.


def sweep(partition: Path, now_ms: int) -> None:
    """Remove the links of processes that have ended, and those that no lease keeps."""
    for process in _folders(partition / FOLDER):
        folder = partition / FOLDER / process
        if has_ended(process):
            files.remove_folder(folder)
            _remove_empty(partition, process)
            continue
        is_kept = _sweep_process(folder, now_ms)
        status = files.status(folder)
        if not is_kept and status is not None and now_ms - status.modified_ms > LEASE_MS:
            files.remove_folder(folder)  # With any other content.
        _remove_empty(partition, process)


def abandoned(partition: Path) -> list[Path]:
    """Return the folders of processes of this machine that have ended."""
    root = partition / FOLDER
    return [root / process for process in _folders(root) if has_ended(process)]


def held_bytes(partition: Path) -> int:
    """Return the size of the logs that only these links keep on the disk."""
    links: Counter[int] = Counter()
    logs: dict[int, os.stat_result] = {}
    for process in _folders(partition / FOLDER):
        for segment in _segments(partition / FOLDER / process):
            found = _stat(segment / f"{segment.name[:_BASE_DIGITS]}{LOG}")
            if found is not None:
                links[found.st_ino] += 1
                logs[found.st_ino] = found
    return sum(log.st_size for inode, log in logs.items() if log.st_nlink <= links[inode])


def process_of(pid: int) -> str:
    """Return a name for a process of this machine, which no other process ever has."""
    return f"{os.uname().nodename}-{_namespace()}-{pid}-{_started(pid)}"


def has_ended(process: str) -> bool:
    """Tell whether a process is known to have ended; False for other machines and containers."""
    host, namespace, pid, started = ["", "", "", *process.rsplit("-", 3)][-4:]
    is_here = (host, namespace) == (os.uname().nodename, str(_namespace()))
    return is_here and pid.isdecimal() and _started(int(pid)) != started


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _inode(path: Path) -> int | None:
    """Return a file's inode number, which tells it from a later file of the same name; None if it is missing."""
    found = _stat(path)
    return None if found is None else found.st_ino


def _namespace() -> int:
    """Return the id of the pid namespace, which differs between containers."""
    return _inode(Path("/proc/self/ns/pid")) or 0


def _started(pid: int) -> str:
    """Return when a process was started, in system ticks; "" if it has ended or is a zombie."""
    try:
        stat = files.SystemTable(Path(f"/proc/{pid}/stat")).read()
    except OSError:
        return ""
    state, *fields = stat.rsplit(b")", 1)[1].split()
    return "" if state == b"Z" else fields[18].decode()


def _lease_in(partitions: Sequence[Path], process: str, name: str, pieces: int) -> None:
    """Write a lease in the first partition, and link it in all of them."""
    made: Path | None = None
    for partition in partitions:
        for _ in range(_TRIES):
            try:
                folder = _made(partition, process)
                made = made or _new_lease(folder / name, pieces)
                files.link(made, folder / f"{name}{_SUFFIX}")
                break
            except FileNotFoundError:
                # Another reader has just removed the empty folder, or the topic was deleted.
                if files.status(partition) is None:
                    raise
        else:
            raise _busy(partition)
    if made is not None:
        files.remove(made)


def _remove_empty(partition: Path, process: str) -> None:
    files.remove_empty_folder(partition / FOLDER / process)
    files.remove_empty_folder(partition / FOLDER)


def _made(partition: Path, process: str) -> Path:
    root = partition / FOLDER
    files.make_folder_in(root)
    files.make_folder_in(root / process)
    return root / process


def _busy(partition: Path) -> OSError:
    return OSError(errno.EBUSY, "other readers keep removing the folder", str(partition / FOLDER))


def _new_lease(path: Path, pieces: int) -> Path:
    """Write a lease under a temporary name: a sweep would take a partly written one for ended."""
    files.write(path, bytes(_MADE_MS.size + pieces))
    path.chmod(0o666)  # Executors may run as another user.
    status = files.status(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    files.File(path).write_at(_MADE_MS.pack(status.modified_ms), 0)
    return path


def _link_files(partition: Path, base_offset: int, folder: Path) -> None:
    for suffix in SUFFIXES:
        name = f"{base_offset:0{_BASE_DIGITS}d}{suffix}"
        source, target = partition / name, folder / name
        try:
            files.link(source, target)
        except FileExistsError:
            if suffix != LOG and _inode(source) != _inode(target):
                files.remove(target)  # The other files are replaced when the log grows or is repaired.
                with suppress(FileNotFoundError):
                    files.link(source, target)
        except FileNotFoundError:
            if suffix == LOG:
                raise


def _is_over(lease: bytes) -> bool:
    return 0 not in lease[_MADE_MS.size :]


def _end(lease: Path) -> None:
    """Remove a lease from all partitions, with the links that only it kept."""
    process, partition = lease.parent.name, lease.parent.parent.parent
    for name, is_folder in files.list_folder(partition.parent):
        folder = partition.parent / name / FOLDER / process
        if is_folder and files.status(folder / lease.name) is not None:
            files.remove(folder / lease.name)
            _sweep_process(folder, 0)
            _remove_empty(folder.parent.parent, process)


def _sweep_process(folder: Path, now_ms: int) -> bool:
    """Remove leases that have ended, and links without a lease; return whether a lease is left."""
    oldest_ms = min(_leases(folder, now_ms), default=None)
    for segment in _segments(folder):
        status = files.status(segment)
        if status is not None and (oldest_ms is None or status.modified_ms < oldest_ms):
            files.remove_folder(segment)
    return oldest_ms is not None


def _leases(folder: Path, now_ms: int) -> Iterator[int]:
    """Yield when each lease was made; remove those that have ended."""
    for name in _names(folder, folders=False):
        if not name.endswith(_SUFFIX):
            continue
        status, data = files.status(folder / name), files.load(folder / name)
        if status is None or data is None:
            continue
        if _is_over(data) or now_ms - status.modified_ms > LEASE_MS:
            with suppress(OSError):
                files.remove(folder / name)
        else:
            yield _MADE_MS.unpack_from(data)[0]


def _segments(folder: Path) -> Iterator[Path]:
    for name in _folders(folder):
        base, dash, inode = name.partition("-")
        if len(base) == _BASE_DIGITS and base.isdecimal() and dash and inode.isdecimal():
            yield folder / name


def _folders(folder: Path) -> list[str]:
    return _names(folder, folders=True)


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        return [name for name, is_folder in files.list_folder(folder) if is_folder == folders]
    except OSError:
        return []  # Usually there is no such folder.
