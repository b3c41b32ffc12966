"""The one module that calls the system for file work."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import held_open
from tidelog.storage import files


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
