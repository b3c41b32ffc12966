"""P9, P10, V10: what `fsck` finds in the files that a start can do without, and what a repair makes of them."""

import shutil
from pathlib import Path

import pytest

from tests.support.logs import NOW, batch
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.fsck import Fsck, Problem
from tidelog.storage.layout import CLEAN_SHUTDOWN
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

SNAPSHOT = f"{4:020d}.snapshot"
EPOCHS, METADATA = "leader-epoch-checkpoint", "partition.metadata"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


def manager_of(data: Path) -> LogManager:
    manager = LogManager(data, BrokerConfig(log_dir=data), lambda: NOW)
    manager.open()
    return manager


def append(log: Log) -> None:
    sequence = log.log_end_offset // 2
    for number in range(2):
        data = batch([NOW], producer_id=number, producer_epoch=0, base_sequence=sequence)
        log.append(data, NOW)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with a log of two epochs and two producers, closed in order."""
    data = tmp_path_factory.mktemp("sound") / "data"
    manager = manager_of(data)
    append(manager.create("topic", 0, bytes(15) + b"\7", manager.defaults.topic_defaults()))
    manager.abandon()
    manager = manager_of(data)
    append(manager.logs["topic", 0])
    assert manager.close()
    (data / CHECKPOINTS[2]).write_text("0\n1\ntopic 0 2\n")  # as Kafka leaves one
    return data


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


def problems(folder: Path, *, deep: bool = False, repair: bool = False) -> list[Problem]:
    return list(Fsck(folder, deep=deep, repair=repair, pause=lambda _: None).problems())


def found(folder: Path, **options: bool) -> list[tuple[str, str, bool]]:
    return [(each.path.name, each.what, each.is_repaired) for each in problems(folder, **options)]


def known(data: Path) -> tuple[object, ...]:
    """Return what a start knows of producers, of epochs and of the topic's id; it is stopped in order."""
    manager = manager_of(data)
    log = manager.logs["topic", 0]
    senders = {each.producer_id: each.last.last_sequence for each in log.producers.senders()}
    state = senders, log.epochs.entries, log.topic_id, log.log_end_offset
    assert manager.close()
    return state


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_what_was_closed_is_sound(data: Path) -> None:
    assert {SNAPSHOT, EPOCHS, METADATA} <= {path.name for path in (data / "topic-0").iterdir()}
    assert not problems(data)
    assert not problems(data, deep=True)
    (data / CLEAN_SHUTDOWN).unlink()
    assert not problems(data)


def test_P9_V10_a_changed_byte_anywhere_in_a_snapshot_is_found(data: Path) -> None:
    path = data / "topic-0" / SNAPSHOT
    for position in range(path.stat().st_size):
        flip(path, position)
        (problem,) = problems(data)
        assert (problem.path, problem.position, problem.is_repaired) == (path, 0, False), position
        flip(path, position)
    assert not problems(data)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("of_partition", [False, True])
def test_a_snapshot_is_repaired_as_a_start_does_it(data: Path, deep: bool, of_partition: bool) -> None:
    folder = data / "topic-0" if of_partition else data
    before = known(data)
    path = data / "topic-0" / SNAPSHOT
    flip(path, 80)
    wrong = SNAPSHOT, "does not match its checksum"
    assert found(folder, deep=deep) == [(*wrong, False)]
    assert path.exists()
    shutil.copytree(data, other := data.parent / "other")
    assert found(folder, deep=deep, repair=True) == [(*wrong, True)]
    assert not path.exists()
    assert not problems(folder)
    assert known(other) == known(data) == before


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data[:-1], "ends after {} bytes, before its last row"),
        (lambda data: data[:3], "ends after 3 bytes, before its last row"),
        (lambda data: b"", "ends after 0 bytes, before its last row"),
        (lambda data: b"\0\2" + data[2:], "its version is 2, not 1"),
        (lambda data: data + b"x", "does not match its checksum"),
    ],
)
def test_the_form_of_a_snapshot(data: Path, change: object, what: str) -> None:
    path = data / "topic-0" / SNAPSHOT
    path.write_bytes(changed := change(path.read_bytes()))  # type: ignore[operator]
    assert found(data) == [(SNAPSHOT, what.format(len(changed)), False)]
    (data / CLEAN_SHUTDOWN).unlink()
    # It was being written when its broker was killed, perhaps.
    assert [each[0] for each in found(data)] == ([] if what.startswith("ends") else [SNAPSHOT])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1\n0\n", "its version is '1', not 0"),
        ("0\n", "has 0 entries, and says ''"),
        ("0\n2\n0 0\n", "has 1 entries, and says '2'"),
        ("0\n1\n0\n", "line 3 is no epoch and offset"),
        ("0\n2\n0 0\n1 x\n", "line 4 is no epoch and offset"),
        ("0\n2\n1 0\n1 2\n", "line 4: epoch and offset do not both rise"),
        ("0\n2\n0 2\n1 2\n", "line 4: epoch and offset do not both rise"),
        ("0\n3\n0 0\n1 2\n0 3\n", "line 5: epoch and offset do not both rise"),
    ],
)
def test_P10_leader_epochs_that_are_wrong_are_found_and_made_again_from_the_log(
    data: Path, text: str, what: str
) -> None:
    before = known(data)
    path = data / "topic-0" / EPOCHS
    path.write_text(text)
    assert found(data) == [(EPOCHS, what, False)]
    assert found(data, repair=True) == [(EPOCHS, what, True)]
    assert not problems(data)
    assert known(data) == before
    assert path.exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "names no topic id"),
        ("version: 0\n", "names no topic id"),
        ("version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", "line 1 is neither version 0 nor a topic id"),
        ("version: 0\ntopic_ie: AAECAwQFBgcICQoLDA0ODw\n", "line 2 is neither version 0 nor a topic id"),
        ("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0O\n", "line 2 is no topic id"),
        ("version: 0\ntopic_id: A\n", "line 2 is no topic id"),
    ],
)
def test_P10_a_topic_id_that_is_wrong_is_found_and_left(data: Path, text: str, what: str) -> None:
    path = data / "topic-0" / METADATA
    path.write_text(text)
    assert found(data) == found(data, repair=True) == [(METADATA, what, False)]
    assert path.read_text() == text


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0\n2\ntopic 0 4\n", "has 1 entries, and says '2'"),
        ("0\n1\ntopic 0 4x\n", "line 3 is no topic, partition and offset"),
        ("0\n1\ntopic-0 4\n", "line 3 is no topic, partition and offset"),
        ("\0\0\0", "its version is '\\x00\\x00\\x00', not 0"),
    ],
)
def test_P10_a_checkpoint_of_offsets_that_is_wrong_is_found_and_left(
    data: Path, name: str, text: str, what: str
) -> None:
    (data / name).write_text(text)
    assert found(data) == found(data, repair=True) == [(name, what, False)]
    assert (data / name).read_text() == text
    assert not problems(data / "topic-0"), "it is the data folder's"


def test_files_that_are_empty_or_missing_are_none_that_are_wrong(data: Path) -> None:
    """Kafka makes its checkpoints empty."""
    for path in (*(data / name for name in CHECKPOINTS), data / "topic-0" / EPOCHS):
        path.write_bytes(b"")
        assert not problems(data)
        path.unlink()
        assert not problems(data)
    for name in (SNAPSHOT, METADATA):
        (data / "topic-0" / name).unlink()
    assert not problems(data)


def test_a_file_that_cannot_be_read_stops_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, broken = files.load, data / "topic-0" / SNAPSHOT

    def refuse(path: Path) -> bytes | None:
        if path == broken:
            raise PermissionError(13, "Permission denied", str(path))
        return load(path)

    monkeypatch.setattr(files, "load", refuse)
    (data / "topic-0" / METADATA).write_bytes(b"x")
    assert [(each.path.name, each.is_seen) for each in problems(data)] == [
        (SNAPSHOT, False),
        (METADATA, True),
    ]


@pytest.mark.parametrize(
    "name", [f"topic-0/{SNAPSHOT}", f"topic-0/{EPOCHS}", f"topic-0/{METADATA}", CHECKPOINTS[0]]
)
def test_beside_a_broker_what_is_being_replaced_is_no_damage(data: Path, name: str) -> None:
    manager = manager_of(data)
    path = data / name
    before = path.read_bytes()
    assert not problems(data)
    for heal in (lambda _: path.write_bytes(before), lambda _: path.unlink()):
        path.write_bytes(b"\xff half")
        assert not list(Fsck(data, deep=False, repair=False, pause=heal).problems())
    path.write_bytes(b"\xff half")
    assert [each[0] for each in found(data)] == [path.name]
    manager.abandon()


def test_a_file_that_changes_at_every_look_is_told_in_the_end(data: Path) -> None:
    manager = manager_of(data)
    path, looks = data / CHECKPOINTS[0], 0

    def change(_: float) -> None:
        nonlocal looks
        looks += 1
        path.write_text(f"x{looks}")

    path.write_text("x")
    (problem,) = Fsck(data, deep=False, repair=False, pause=change).problems()
    assert problem.what.startswith(f"its version is 'x{looks}'")
    manager.abandon()


def test_a_topic_that_is_deleted_meanwhile_is_no_damage(data: Path) -> None:
    manager = manager_of(data)
    fsck = Fsck(data, deep=False, repair=False)
    shutil.rmtree(data / "topic-0")
    assert not list(fsck.problems())
    assert fsck.tally.partitions == 0
    manager.abandon()
