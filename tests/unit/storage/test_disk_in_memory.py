"""The disk in memory that stands behind `files`: it answers as a real one does, and loses no more than one may."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.disk.image import SECTOR_BYTES, Image, Op, PowerCut, Tree, loss_of, replay
from tests.support.disk.system import FOLDER, Disk, Fault, System, installed
from tidelog.storage import files
from tidelog.storage.sources import WARM


@pytest.fixture
def system() -> Iterator[System]:
    with installed() as system:
        system.disk = Disk(Image(Tree()), lambda: 1000)
        yield system


def work(folder: Path) -> list[object]:
    """Use every name of `files`, and return what it said."""
    files.make_folder(folder / "a")
    said: list[object] = [files.load(folder / "none"), files.status(folder / "none")]
    files.create(folder / "a" / "log")
    file = files.File(folder / "a" / "log")
    file.append(b"0123456789")
    file.append(memoryview(b"abc"))
    file.write_at(b"X", 20)
    file.truncate(18)
    said += [file.size, file.pread(99, 2), WARM.read(file, 3, 1) == b"123", file.read_nowait(2, 17)]
    file.sync()
    files.write(folder / "a" / "other", b"long content")
    files.write(folder / "a" / "other", b"short")
    files.write_atomically(folder / "a" / "third", b"3")
    files.rename(folder / "a" / "third", folder / "a" / "fourth")
    files.rename(folder / "a" / "none", folder / "a" / "fifth")
    files.sync(folder / "a" / "other")
    files.sync_folder(folder / "a")
    said += [files.list_folder(folder / "a"), bytes(files.map_readonly(folder / "a" / "other"))]
    said += [files.map_readonly(folder / "none"), files.load(folder / "a" / "fourth")]
    status = files.status(folder / "a" / "log")
    said += [status and status.size, files.device_of(folder) == files.device_of(folder / "a")]
    files.FileSystem(folder).sync()
    said.append(files.DirtyMemory().bytes() % 1024)
    with files.holding(files.FolderLock(folder / ".lock")) as lock:
        pass
    files.remove(folder / "a" / "other")
    files.remove(folder / "a" / "other")
    kept = files.File(folder / "a" / "fourth")
    files.remove_folder(folder / "a")
    files.remove_folder(folder / "a")
    said += [kept.pread(9, 0), files.list_folder(folder), lock]
    return said


def test_it_answers_as_a_real_disk_does(tmp_path: Path) -> None:
    real = work(tmp_path)
    with installed() as system:
        system.disk = Disk(Image(Tree()), lambda: 1000)
        assert work(FOLDER) == real


def test_what_it_does_not_know_is_an_error(system: System) -> None:
    with pytest.raises(AssertionError, match=r"no os\.link"):
        files.os.link("a", "b")  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="not on this disk"):
        files.load(Path("/etc/hostname"))


def states(act: Callable[[], None], system: System, choices: int = 300) -> set[tuple[tuple[str, bytes], ...]]:
    """Return what a power cut may leave after something was done."""
    act()
    *_, (_, image) = replay(system.disk.start, system.disk.journal)
    found = set()
    for choice in range(1, choices):
        files_left = image.tree(loss_of(choice, random.Random(choice))).files()
        found.add(tuple(sorted(files_left.items())))
    return found


def test_what_is_synced_is_there_and_nothing_else_is_certain(system: System) -> None:
    def act() -> None:
        files.write(FOLDER / "a", b"one")
        files.sync(FOLDER / "a")
        files.sync_folder(FOLDER)
        files.write(FOLDER / "a", b"two")
        files.write(FOLDER / "b", b"x")

    assert states(act, system) == {
        (("a", a), *b) for a in (b"one", b"two") for b in ((), (("b", b""),), (("b", b"\0"),), (("b", b"x"),))
    }


def test_a_file_without_its_name_is_gone_though_it_was_synced(system: System) -> None:
    def act() -> None:
        files.write(FOLDER / "a", b"one")
        files.sync(FOLDER / "a")

    assert states(act, system) == {(), (("a", b"one"),)}


def test_a_replacement_is_the_old_or_the_new(system: System) -> None:
    def act() -> None:
        files.write_atomically(FOLDER / "a", b"one")
        files.write_atomically(FOLDER / "a", b"two")
        del system.disk.journal[-1]  # the folder's sync

    assert {dict(state)["a"] for state in states(act, system)} == {b"one", b"two"}


def test_sectors_are_torn_and_each_is_as_it_was_at_one_moment(system: System) -> None:
    old, new = b"o" * 3 * SECTOR_BYTES, b"n" * 3 * SECTOR_BYTES

    def act() -> None:
        files.write(FOLDER / "a", old)
        files.FileSystem(FOLDER).sync()
        files.write(FOLDER / "a", new)

    parts = {
        tuple({data[n : n + SECTOR_BYTES] for n in range(0, len(data), SECTOR_BYTES)})
        for state in states(act, system)
        for _, data in state
    }
    assert all(set(part) <= {old[:SECTOR_BYTES], new[:SECTOR_BYTES]} for part in parts)
    assert any(len(part) == 2 for part in parts)


def test_what_a_failed_sync_gave_up_may_be_lost_though_the_next_one_says_that_it_is_there(
    system: System,
) -> None:
    def act() -> None:
        files.create(FOLDER / "a")
        files.sync_folder(FOLDER)
        file = files.File(FOLDER / "a")
        file.append(b"one")
        system.disk.fault = Fault("sync", system.disk.calls["sync"] + 1, "EIO")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()

    assert (("a", b"\0\0\0"),) in states(act, system)


def test_a_kill_loses_nothing_then_and_what_was_not_synced_later(system: System) -> None:
    files.write(FOLDER / "a", b"one")
    left = system.disk.image.clone()
    assert left.tree().files() == {"a": b"one"}
    assert left.tree(PowerCut(random.Random(0), "none", "none")).files() == {}


def test_a_full_disk_stops_a_write_half_way(system: System) -> None:
    file = files.File(FOLDER / "a", create=True)
    system.disk.fault = Fault("write", system.disk.calls["write"] + 1, "short", 1000)
    with pytest.raises(OSError, match="No space left"):
        file.append(b"0123456789")
    assert system.disk.image.tree().files() == {"a": b"01234"}
    system.disk.heal()
    file.append(b"ab")
    assert system.disk.image.tree().files() == {"a": b"ab234"}


def test_an_operation_that_is_not_known_is_an_error() -> None:
    with pytest.raises(AssertionError):
        Image(Tree()).apply(Op("wish"))
