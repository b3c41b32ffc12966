"""The one module that calls the system for file work."""

import contextlib
import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.logs import held_open
from tidelog.storage import files
from tidelog.storage.errors import NotInMemory, ReadFailed
from tidelog.storage.sources import PATIENT, SCRATCH_BYTES, WARM


@pytest.fixture
def file(tmp_path: Path) -> files.File:
    file = files.File(tmp_path / "file", create=True)
    file.append(b"0123456789")
    return file


def test_it_appends_and_reads_at_positions(file: files.File) -> None:
    file.append(memoryview(b"ab"))
    assert (file.size, file.pread(4, 8), file.pread(9, 10), file.pread(1, 99)) == (12, b"89ab", b"ab", b"")
    file.truncate(5)
    file.append(b"x")
    assert (file.size, file.pread(99, 0)) == (6, b"01234x")


def test_what_a_thread_reads_from_memory_is_its_own_until_it_reads_again(file: files.File) -> None:
    here, there = WARM.read(file, 4, 0), []
    thread = threading.Thread(target=lambda: there.append(bytes(WARM.read(file, 4, 6))))
    thread.start()
    thread.join()
    assert (bytes(here), there) == (b"0123", [b"6789"])


def test_a_read_that_stops_short_goes_on(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    monkeypatch.setattr(files.os, "pread", lambda fd, count, at: pread(fd, min(count, 3), at))
    assert file.pread(9, 1) == b"123456789"
    assert file.pread(50, 4) == b"456789"


def test_a_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = files.File(tmp_path / "file", create=True)
    piece = files.FileSlice(file, 0, 0)
    del file
    assert held_open(tmp_path) == 1
    del piece
    assert held_open(tmp_path) == 0


def test_a_read_that_would_wait_is_told_apart(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    def cold(*_: object) -> int:
        raise BlockingIOError

    piece = files.FileSlice(file, 2, 3)
    monkeypatch.setattr(files.os, "preadv", cold)
    assert piece.read_nowait() is None
    assert piece.read() == b"234"


def test_half_in_memory_is_not_in_memory(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "preadv", lambda *_: 2)
    assert file.read_nowait(3, 0) is None


def test_a_file_system_that_cannot_tell_is_read_plainly_and_not_asked_again(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def cannot(fd: int, buffers: Any, position: int, flags: int, preadv: Any = os.preadv) -> Any:
        if not flags:
            return preadv(fd, buffers, position)
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(files.os, "preadv", cannot)
    assert [file.read_nowait(3, 1), file.read_nowait(3, 1)] == [b"123", b"123"]
    assert len(asked) == 1


def test_an_error_of_the_disk_is_no_cold_read(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> int:
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(files.os, "preadv", bad)
    with pytest.raises(OSError, match="bad disk"):
        file.read_nowait(3, 1)


def test_a_replaced_file_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, b"old")
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            files.os, name, lambda *args, real=real, name=name: (calls.append(name), real(*args))[1]
        )
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    # The content before the name, the name before it is told.
    assert calls == ["fsync", "replace", "fsync"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_is_missing_is_no_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert files.load(missing) is None
    assert files.status(missing) is None
    assert files.map_readonly(missing) == b""
    files.remove(missing)
    files.rename(missing, tmp_path / "other")
    files.remove_folder(missing)
    files.sync(missing)


def test_what_one_call_does_not_write_the_next_ones_do(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(files.os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    file.append(b"abcdefgh")
    file.write_at(b"ABCDEFG", 1)
    assert (file.size, file.pread(99, 0)) == (18, b"0ABCDEFG89abcdefgh")


def test_a_write_that_gets_nowhere_is_a_full_disk(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="No space left on device") as refused:
        file.append(b"abc")
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(file.path))
    assert file.size == 10


def test_a_read_behind_the_end_asks_the_system_no_more_than_it_must(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    pread = os.pread
    monkeypatch.setattr(
        files.os, "pread", lambda fd, count, at: (asked.append((count, at)), pread(fd, count, at))[1]
    )
    assert (file.pread(4, 2), file.pread(4, 10), file.pread(4, 8)) == (b"2345", b"", b"89")
    assert asked == [(4, 2), (4, 10), (4, 8), (2, 10)]


@pytest.mark.parametrize("count", [1, SCRATCH_BYTES - 1, SCRATCH_BYTES, SCRATCH_BYTES + 1])
def test_without_waiting_any_amount_is_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    file = files.File(tmp_path / "file", create=True)
    file.append(bytes(n % 251 for n in range(1000)) * (1 + count // 1000) + b"more")
    assert WARM.read(file, count, 3) == PATIENT.read(file, count, 3) == file.pread(count, 3)
    monkeypatch.setattr(files.os, "preadv", lambda _fd, buffers, *_: len(buffers[0]) - 1)
    with pytest.raises(NotInMemory, match=r"file@3"):
        WARM.read(file, count, 3)


def test_a_slice_whose_bytes_are_known_is_not_read(file: files.File, monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown = files.FileSlice(file, 2, 3, b"xyz"), files.FileSlice(file, 2, 3)
    assert (len(known), len(unknown)) == (3, 3)
    assert (unknown.read(), unknown.read_nowait()) == (b"234", b"234")
    for name in ("pread", "preadv"):
        monkeypatch.setattr(files.os, name, None)
    assert (known.read(), known.read_nowait()) == (b"xyz", b"xyz")


def test_an_error_of_the_disk_in_a_slice_is_named_with_its_place(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: object) -> int:
        raise OSError(errno.EIO, "bad disk")

    for name in ("pread", "preadv"):
        monkeypatch.setattr(files.os, name, bad)
    piece = files.FileSlice(file, 2, 3)
    for read in (piece.read, piece.read_nowait):
        with pytest.raises(ReadFailed, match=r"/file@2: .*bad disk"):
            read()


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3 * 65536, 200_000])
def test_a_file_is_loaded_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    data = bytes(n % 251 for n in range(size))
    (tmp_path / "file").write_bytes(data)
    assert files.load(tmp_path / "file") == data
    assert bytes(files.map_readonly(tmp_path / "file")) == data


def test_a_file_that_is_written_over_holds_the_new_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(files.os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    for content in (b"first one", b"longer than that", b"short", b"", b"x"):
        files.write(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
        files.write_atomically(tmp_path / "other", content)
        assert (tmp_path / "other").read_bytes() == content
    files.create(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x"
    files.create(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b""


def test_what_is_made_may_be_read_by_all_and_written_by_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files.make_folder(tmp_path / "a" / "b")
        files.make_folder(tmp_path / "a" / "b")
        files.File(tmp_path / "file", create=True)
        files.create(tmp_path / "created")
        files.write(tmp_path / "written", b"")
        files.FolderLock(tmp_path / "lock").release()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.iterdir() if path.is_file()}
    assert modes == dict.fromkeys(("file", "created", "written", "lock"), 0o644)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o7777 == 0o755


def test_a_file_that_is_missing_is_made_only_if_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.File(tmp_path / "file")
    assert not list(tmp_path.iterdir())
    files.File(tmp_path / "file", create=True).append(b"x")
    assert files.File(tmp_path / "file").size == 1


def test_a_folder_is_listed_by_name_and_a_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "also").symlink_to(tmp_path / "folder")
    assert files.list_folder(tmp_path) == [("also", False), ("file", False), ("folder", True)]


def test_a_status_has_the_size_and_the_time_of_the_last_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    os.utime(tmp_path / "file", ns=(0, 1_700_000_000_123_999_999))
    assert files.status(tmp_path / "file") == (3, 1_700_000_000_123)
    assert files.device_of(tmp_path / "file") == (tmp_path / "file").stat().st_dev


def test_syncs_reach_the_file_or_folder_that_they_are_asked_for(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            files.os,
            name,
            lambda fd, name=name: synced.append((name, Path(f"/proc/self/fd/{fd}").readlink())),
        )
    file.sync()
    files.sync(file.path)
    files.sync_folder(file.path.parent)
    assert synced == [("fdatasync", file.path), ("fdatasync", file.path), ("fsync", file.path.parent)]


class Ahead:
    """The system's `sync_file_range` and `fdatasync`, which note their calls."""

    def __init__(self, patch: pytest.MonkeyPatch, then: Callable[[], object] = int, error: int = 0) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.synced_after: list[int] = []  # how many pieces came before each sync
        self.then, self.error = then, error
        self.is_refused = False
        patch.setattr(ctypes, "CDLL", lambda *_args, **_options: SimpleNamespace(sync_file_range=self.ahead))
        patch.setattr(files.os, "fdatasync", lambda _: self.synced_after.append(len(self.pieces)))

    def ahead(self, _fd: int, position: ctypes.c_int64, count: ctypes.c_int64, flags: int) -> int:
        if not flags:  # asks for nothing
            ctypes.set_errno(self.error)
            return -1 if self.is_refused else 0
        assert flags == 7  # write, and wait before and after
        self.pieces.append((position.value, count.value))
        self.then()
        ctypes.set_errno(self.error)
        return -1 if self.error else 0


def test_a_sync_of_much_writes_all_but_the_end_ahead_in_pieces(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    file.append(bytes((8 << 20) - file.size))
    file.sync()
    assert (ahead.pieces, ahead.synced_after) == ([], [0])
    start = file.size
    file.append(bytes((21 << 20) + 5))
    file.sync()
    ends = [start, *(position + count for position, count in ahead.pieces)]
    assert [position for position, _ in ahead.pieces] == ends[:-1]
    assert all(1 << 20 <= count <= 4 << 20 for _, count in ahead.pieces)
    assert 1 << 20 <= file.size - ends[-1] <= 2 << 20  # the last page is not among them
    assert ahead.synced_after == [0, len(ahead.pieces)]
    file.append(bytes(8 << 20))
    file.sync()
    assert ahead.synced_after == [0, len(ahead.pieces), len(ahead.pieces)]


def test_a_sync_ends_though_more_comes_than_it_writes(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch, then=lambda: file.append(bytes(6 << 20)))
    file.append(bytes(9 << 20))
    file.sync()
    written = sum(count for _, count in ahead.pieces)
    assert 17 << 20 <= written <= 18 << 20  # as much of what comes meanwhile, but no more
    assert ahead.synced_after == [len(ahead.pieces)]


def test_only_what_came_since_a_file_was_opened_is_written_ahead_however_large_it_is(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    file.truncate(5 << 30)
    again = files.File(file.path)
    again.append(bytes(9 << 20))
    again.sync()
    assert ahead.pieces == [(5 << 30, 4 << 20), ((5 << 30) + (4 << 20), 4 << 20)]


def test_what_comes_during_a_sync_counts_as_not_written(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    monkeypatch.setattr(files.os, "fdatasync", lambda _: file.append(bytes(5 << 20)))
    file.sync()
    assert ahead.pieces == []
    start = file.size - (5 << 20)
    file.append(bytes(4 << 20))
    file.sync()
    assert ahead.pieces[0][0] == start


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EPERM, errno.ENOSYS])
def test_a_sync_fails_if_a_piece_of_it_does(
    file: files.File, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A server behind FUSE or NFS may give the errors with which a sandbox refuses the call."""
    ahead = Ahead(monkeypatch, error=error)
    file.append(bytes(9 << 20))
    with pytest.raises(OSError, match=os.strerror(error)):
        file.sync()
    assert ahead.synced_after == []  # it would succeed without the lost bytes


def test_a_system_call_has_the_error_of_the_system(tmp_path: Path) -> None:
    system = files.FileSystem(tmp_path)
    os.close(system._fd)
    system._fd = -1
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        system.sync()


def test_a_piece_that_a_signal_interrupts_is_written_again(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch, error=errno.EINTR)
    ahead.then = lambda: setattr(ahead, "error", 0 if len(ahead.pieces) > 1 else errno.EINTR)
    file.append(bytes(9 << 20))
    file.sync()
    assert ahead.pieces[0] == ahead.pieces[1] != ahead.pieces[2]
    assert ahead.synced_after == [3]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM, errno.EACCES])
def test_where_the_system_refuses_pieces_a_sync_writes_all(
    file: files.File, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    ahead = Ahead(monkeypatch, error=error)
    ahead.is_refused = True
    file.append(bytes(9 << 20))
    file.sync()
    assert ahead.synced_after == [1]


def test_a_sync_of_much_works_with_the_system_and_without_ctypes(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(data := os.urandom(9 << 20))
    file.sync()
    monkeypatch.setitem(sys.modules, "ctypes", None)
    file.append(data)
    file.sync()
    assert file.path.read_bytes() == b"0123456789" + 2 * data


def test_a_file_system_that_cannot_be_synced_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = files.FileSystem(tmp_path)
    assert system.device == tmp_path.stat().st_dev
    system.sync()
    asked = []

    def refuse(fd: int) -> int:
        asked.append(Path(f"/proc/self/fd/{fd}").readlink())
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: SimpleNamespace(syncfs=refuse))
    system = files.FileSystem(tmp_path)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            system.sync()
    assert asked == [tmp_path] * 2


@pytest.mark.parametrize(
    ("kind", "release", "expected"),
    [
        (0xEF53, "6.1.0-13-amd64", True),
        (0x58465342, "5.8", True),
        (0xEF53, "5.7.19", False),
        (0xEF53, "unknown", False),
        (0x794C7630, "6.1.0", False),  # overlayfs
        (0x65735546, "6.1.0", False),  # FUSE
    ],
)
def test_a_sync_of_everything_proves_something_where_lost_writes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, release: str, expected: bool
) -> None:
    def fstatfs(fd: int, told: "ctypes.Array[ctypes.c_char]") -> int:
        assert Path(f"/proc/self/fd/{fd}").readlink() == tmp_path
        told[:8] = kind.to_bytes(8, sys.byteorder)
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: SimpleNamespace(fstatfs=fstatfs))
    monkeypatch.setattr(files.os, "uname", lambda: SimpleNamespace(release=release))
    assert files.FileSystem(tmp_path).reports_errors() is expected


def test_the_kind_of_a_file_system_is_asked_of_the_system() -> None:
    assert not files.FileSystem(Path("/proc")).reports_errors()


@pytest.mark.parametrize(("told_ms", "latest_ms"), [(1234, 1244), (0, 1000), (5000, 6000)])
def test_a_file_may_have_been_changed_a_tick_after_it_says_or_a_second(told_ms: int, latest_ms: int) -> None:
    assert files.latest_ms(told_ms) == latest_ms


def test_free_bytes_are_those_that_anybody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(f_bavail=3, f_frsize=7, f_bfree=100, f_bsize=11)
    monkeypatch.setattr(files.os, "statvfs", lambda _: told)
    assert files.free_bytes(tmp_path) == 21


def descriptors_of(folder: Path) -> list[str]:
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that the listing itself had
            names.append(str(descriptor.readlink()))
    return sorted(name for name in names if name.startswith(str(folder)))


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, b"x")
    files.write(path, b"xy")
    files.create(path)
    files.load(path)
    files.sync(path)
    files.sync_folder(tmp_path)
    files.FileSystem(tmp_path)
    lock = files.FolderLock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        files.FolderLock(tmp_path / "lock")
    assert descriptors_of(tmp_path) == [str(tmp_path / "lock")]
    lock.release()
    assert descriptors_of(tmp_path) == []
    other = path.open("rb")  # has the number that the lock's file had
    lock.release()
    assert other.read() == b"xy"
    other.close()


def test_a_lock_is_given_back_where_what_follows_fails(tmp_path: Path) -> None:
    lock = files.FolderLock(tmp_path / "lock")
    with files.holding(lock):
        pass
    with pytest.raises(BlockingIOError):
        files.FolderLock(tmp_path / "lock")
    with pytest.raises(KeyboardInterrupt), files.holding(lock):
        raise KeyboardInterrupt
    files.FolderLock(tmp_path / "lock").release()


def test_renaming_and_removing(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x")
    files.rename(tmp_path / "old", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    files.remove(tmp_path / "new")
    files.make_folder(tmp_path / "folder" / "inner")
    (tmp_path / "folder" / "inner" / "file").touch()
    files.remove_folder(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_disk_does_not_make_the_next_read_wait(
    file: files.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def bad(_fd: int, _buffers: object, _position: int, flags: int) -> int:
        asked.append(flags)
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(files.os, "preadv", bad)
    for _ in range(2):
        with pytest.raises(OSError, match="bad disk"):
            file.read_nowait(3, 1)
    assert asked == [os.RWF_NOWAIT] * 2


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_that_cannot_be_read_at_all_is_tried_plainly_once(
    file: files.File, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    asked: list[int] = []

    def cannot(_fd: int, _buffers: object, _position: int, flags: int) -> int:
        asked.append(flags)
        raise OSError(error, "not here")

    monkeypatch.setattr(files.os, "preadv", cannot)
    with pytest.raises(OSError, match="not here"):
        file.read_nowait(3, 1)
    assert asked == [os.RWF_NOWAIT, 0]
