"""A full disk is noticed, said once, and noticed again when it is over."""

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import NOW, batch, open_log
from tidelog.storage import files, layout
from tidelog.storage.disk_space import PROBE_BYTES, DiskSpace

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (ValueError("not of a disk"), False),
    ],
)
def test_only_an_error_that_says_so_fills_the_disk(tmp_path: Path, error: Exception, is_full: bool) -> None:
    disk = DiskSpace(tmp_path)
    assert not disk.is_full
    disk.refused(error)
    assert disk.is_full == is_full


@pytest.mark.parametrize(
    ("error", "is_trusted"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (ValueError("not of a disk"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
    ],
)
def test_after_a_write_that_was_refused_for_more_than_space_the_next_start_takes_nothing_for_granted(
    tmp_path: Path, error: Exception, is_trusted: bool
) -> None:
    layout.save_boot(tmp_path)
    disk = DiskSpace(tmp_path)
    disk.refused(error)
    assert (disk.is_trusted, layout.is_same_boot(tmp_path)) == (is_trusted, is_trusted)


def test_it_is_said_once_that_the_next_start_could_not_be_warned_and_that_it_is_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    disk = DiskSpace(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "remove", refuse)
        for _ in range(2):
            disk.refused(OSError(errno.EROFS, "Read-only file system"))
    disk.look()
    disk.look()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    boot = tmp_path / "boot-id"
    assert caplog.messages[0].startswith(f"not removed file={boot} ")
    assert caplog.messages[1] == f"removed after all file={boot}"


def test_a_disk_that_fails_while_the_next_start_is_told_to_trust_it_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, save = DiskSpace(tmp_path), layout.save_boot
    fails = threading.Thread(target=disk.refused, args=[OSError(errno.EIO, "Input/output error")])

    def saved(folder: Path) -> None:
        fails.start()
        fails.join(0.05)
        save(folder)

    monkeypatch.setattr(layout, "save_boot", saved)
    disk.trust()
    fails.join(20)
    assert (disk.is_trusted, layout.is_same_boot(tmp_path), disk.trust()) == (False, False, False)


@pytest.mark.parametrize("again", ["refused", "look"])
def test_the_next_start_is_warned_as_soon_as_the_disk_takes_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    layout.save_boot(tmp_path)
    disk, error = DiskSpace(tmp_path), OSError(errno.EIO, "Input/output error")

    def refuse(_: Path) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove", refuse)
        disk.refused(error)
    assert layout.is_same_boot(tmp_path)
    disk.refused(error) if again == "refused" else disk.look()
    assert not layout.is_same_boot(tmp_path)


def test_it_is_said_once_when_it_begins_and_once_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = DiskSpace(tmp_path)
    monkeypatch.setattr(files, "free_bytes", lambda folder: 17 if folder == tmp_path else -2)
    for _ in range(2):
        disk.refused(FULL)
        disk.refused(FULL)
        disk.look()
        disk.look()
        assert not disk.is_full
    told = f"folder={tmp_path} free_bytes=17: writes are"
    begins, ends = f"disk full {told} refused", f"disk no longer full {told} taken again"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    for message, expected in zip(caplog.messages, [begins, ends] * 2, strict=True):
        assert message.startswith(expected)


def test_two_that_notice_it_at_once_say_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Late:
        """Lets another come between the look at the state and its change."""

        def __enter__(self) -> None:
            disk.is_full = True

        def __exit__(self, *_: object) -> None:
            pass

    disk = DiskSpace(tmp_path)
    disk._lock = Late()  # type: ignore[assignment]
    disk.refused(FULL)
    assert not caplog.records


def test_it_is_over_when_a_file_of_some_size_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskSpace(tmp_path)
    write, written = files.write, []

    def refuse(path: Path, data: bytes) -> None:
        write(path, data[:100])
        written.append(len(data))
        raise FULL

    disk.refused(FULL)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write", refuse)
        disk.look()
    assert disk.is_full
    assert written == [PROBE_BYTES]
    assert list(tmp_path.iterdir()) == [], "what was tried is taken away, or it would fill the disk"
    disk.look()
    assert not disk.is_full
    assert list(tmp_path.iterdir()) == []


def test_while_there_is_space_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "write", None)
    DiskSpace(tmp_path).look()


def test_a_disk_that_does_not_tell_what_is_free_is_full_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Path) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "free_bytes", refuse)
    disk = DiskSpace(tmp_path)
    disk.refused(FULL)
    assert disk.is_full
    assert "free_bytes=-1:" in caplog.text


@pytest.mark.parametrize("suffix", [".snapshot", ".summary", "leader-epoch-checkpoint"])
def test_P12_an_error_of_a_file_that_can_be_made_again_is_one_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every: Callable[[int], None], suffix: str
) -> None:
    save_every(1)
    log = open_log(tmp_path / "t-0")
    log.epochs.is_saved = False
    log.append(batch([NOW], producer_id=1, producer_epoch=0, base_sequence=0), NOW)
    write = files.write

    def failing(path: Path, data: Any) -> None:
        if path.name.endswith(suffix):
            raise OSError(errno.EIO, "no")
        write(path, data)

    monkeypatch.setattr(files, "write", failing)
    log.flush()
    log.snapshots.write()
    assert not log.shared.disk.is_trusted
