"""Leader epochs: which one an offset has, and where one ends."""

from pathlib import Path

import pytest

from tidelog.storage.leader_epochs import LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    return LeaderEpochs(tmp_path, [(1, 0), (3, 10), (4, 25)])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(4, (4, 40)), (3, (3, 25)), (2, (1, 10)), (1, (1, 10)), (0, (0, 0)), (5, (-1, -1)), (-1, (-1, -1))],
)
def test_KIP279_the_end_of_an_epoch(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_of(asked, 40) == answer


def test_without_epochs_nothing_is_known(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    assert [epochs.end_of(asked, 40) for asked in (-1, 0, 1)] == [(-1, -1)] * 3
    assert (epochs.latest, epochs.at(5)) == (-1, -1)


def test_the_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.at(offset) for offset in (-1, 0, 9, 10, 24, 25, 99)] == [-1, 1, 1, 3, 3, 4, 4]


def test_an_epoch_that_wrote_nothing_is_replaced(epochs: LeaderEpochs) -> None:
    epochs.begin(5, 30)
    epochs.begin(6, 30)
    epochs.begin(6, 35)
    assert epochs.entries == [(1, 0), (3, 10), (4, 25), (6, 30)]


def test_cutting_at_either_end(epochs: LeaderEpochs) -> None:
    epochs.drop_before(12)
    assert epochs.entries == [(3, 12), (4, 25)]
    epochs.keep(25)
    assert epochs.entries == [(3, 12)]
    epochs.drop_before(90)
    assert epochs.entries == [(3, 90)]


def test_they_are_saved_and_loaded(epochs: LeaderEpochs) -> None:
    epochs.save()
    assert epochs.path.read_text() == "0\n3\n1 0\n3 10\n4 25\n"
    loaded = LeaderEpochs.load(epochs.path.parent)
    assert loaded is not None
    assert loaded.entries == epochs.entries


@pytest.mark.parametrize(
    "text", ["0\n1\n", "0\n1\n1 x\n", "0\n2\n1 5\n1 6\n", "0\n2\n1 5\n2 5\n", "0\n1\n1\n", "9\n0\n"]
)
def test_a_broken_file_is_not_believed(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    assert LeaderEpochs.load(tmp_path) is None
