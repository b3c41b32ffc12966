"""Leader epochs: which one an offset has, and where one ends."""

import errno
from contextlib import suppress
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, batch, fill, new_shared, open_log, scan
from tidelog.config.kinds import INT_MAX
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import leader_epochs, recovery
from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogOffline
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
    assert list(epochs.entries) == [(1, 0), (3, 10), (4, 25), (6, 30)]


def test_cutting_at_either_end(epochs: LeaderEpochs) -> None:
    epochs.drop_before(12)
    assert list(epochs.entries) == [(3, 12), (4, 25)]
    epochs.keep(25)
    assert list(epochs.entries) == [(3, 12)]
    epochs.drop_before(90)
    assert list(epochs.entries) == [(3, 90)]


def test_they_are_saved_and_loaded(epochs: LeaderEpochs) -> None:
    epochs.save()
    assert epochs.path.read_text() == "0\n3\n1 0\n3 10\n4 25\n"
    loaded = LeaderEpochs.load(epochs.path.parent)
    assert loaded is not None
    assert loaded.entries == epochs.entries


ENTRIES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 300)), max_size=12).map(
    lambda steps: list(accumulate(steps, lambda last, step: (last[0] + step[0], last[1] + step[1])))
)


@given(entries=ENTRIES, more=ENTRIES, torn=st.lists(st.booleans(), min_size=1), is_longer=st.booleans())
def test_a_file_that_a_crash_tears_as_it_is_overwritten_is_broken_or_has_the_old_or_the_new_epochs(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, int]],
    more: list[tuple[int, int]],
    torn: list[bool],
    is_longer: bool,
) -> None:
    epoch, start = entries[-1] if entries else (0, 0)
    epochs = LeaderEpochs(tmp_path_factory.mktemp("log"), entries)
    epochs.save()
    old = epochs.path.read_bytes()
    file = epochs.path.stat().st_ino
    for step_epoch, step in more:
        epochs.begin(epoch + step_epoch, start + step)
    epochs.save()
    is_moved = len(str(len(epochs.entries))) > len(str(len(entries)))  # the count has more digits
    assert (epochs.path.stat().st_ino != file) == is_moved
    if is_moved:
        return
    new = epochs.path.read_bytes()
    choices = islice(cycle(torn), len(new))
    mixed = bytes(
        now if taken else before
        for before, now, taken in zip(old.ljust(len(new), b"\0"), new, choices, strict=True)
    )
    with suppress(ValueError):
        assert leader_epochs.epochs_in(mixed[: len(new) if is_longer else len(old)]) in (
            entries,
            list(epochs.entries),
        )


def test_lines_that_go_or_change_are_not_overwritten(epochs: LeaderEpochs) -> None:
    """A mixture of the old and the new ones could pass for epochs."""
    epochs.save()
    file = epochs.path.open()  # keeps the number of its inode in use
    epochs.drop_before(10)
    epochs.begin(5, 30)
    epochs.save()
    assert file.read() == "0\n3\n1 0\n3 10\n4 25\n"
    file.close()
    assert epochs.path.read_text() == "0\n3\n3 10\n4 25\n5 30\n"
    epochs.path.write_text("broken")
    other = LeaderEpochs(epochs.path.parent, epochs.entries)
    with epochs.path.open() as file:
        other.save()
        assert file.read() == "broken", "what is in the file is not known"


def test_they_are_replaced_durably_where_no_flush_covers_them(epochs: LeaderEpochs, disk: FaultyDisk) -> None:
    epochs.save(durably=True)
    assert disk.paths("sync") == [epochs.path, epochs.path.parent], "the content, and the name"
    epochs.save()
    assert len(disk.paths("sync")) == 2


@pytest.mark.parametrize(
    "text", ["0\n1\n", "0\n1\n1 x\n", "0\n2\n1 5\n1 6\n", "0\n2\n1 5\n2 5\n", "0\n1\n1\n", "9\n0\n"]
)
def test_a_broken_file_is_not_believed(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    assert LeaderEpochs.load(tmp_path) is None


def test_epochs_are_read_while_retention_drops_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop answers from them while the maintenance thread works on them: whichever it sees, it sees whole."""
    find = leader_epochs.bisect_right

    def find_and_drop(*arguments: Any, **options: Any) -> int:
        found = find(*arguments, **options)
        monkeypatch.setattr(leader_epochs, "bisect_right", find)
        epochs.drop_before(35)
        return found

    epochs = LeaderEpochs(tmp_path, [(0, 0), (1, 10), (2, 20), (3, 30)])
    monkeypatch.setattr(leader_epochs, "bisect_right", find_and_drop)
    assert epochs.end_of(2, 40) == (2, 30)
    assert list(epochs.entries) == [(3, 35)]
    epochs = LeaderEpochs(tmp_path, [(0, 0), (1, 10), (2, 20), (3, 30)])
    monkeypatch.setattr(leader_epochs, "bisect_right", find_and_drop)
    assert epochs.at(25) == 2


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_P12_a_log_takes_no_writes_under_an_epoch_that_could_not_be_saved_until_it_is(
    tmp_path: Path, disk: FaultyDisk, error: int
) -> None:
    fill(open_log(tmp_path), [[NOW]])
    with disk.failing("write", of="leader-epoch-checkpoint", error=error):
        log = open_log(tmp_path)
        for _ in range(2):
            with pytest.raises(LogOffline, match=r"leader epochs could not be saved .*; free space in"):
                log.append(batch([NOW]), NOW)
        assert [row.offset for row in scan(log)] == [0]
        assert not log.close()
    assert log.append(batch([NOW]), NOW).base_offset == 1
    saved = LeaderEpochs.load(tmp_path)
    assert (log.health.failure, saved and saved.entries, log.flush()) == (
        None,
        ((0, 0), (1, 1)),
        2,
    )
    assert log.close()


@pytest.mark.parametrize(
    ("clean", "has_file", "epoch"), [(True, False, 5), (False, False, 6), (False, True, 6)]
)
def test_a_log_whose_epochs_are_lost_goes_on_above_those_with_which_new_topics_begin(
    tmp_path: Path, clean: bool, has_file: bool, epoch: int
) -> None:
    """It may have begun with that one, and a client may know it."""
    log = open_log(tmp_path)
    log.close()
    if not has_file:
        log.epochs.path.unlink()
    known = recovery.Known(clean=clean, ours=True, first_epoch=5)
    again = recovery.load(tmp_path, "topic", 0, TopicConfig(), new_shared(tmp_path), known, NOW)
    assert again.leader_epoch == epoch


def test_no_epoch_is_larger_than_the_protocol_can_say(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    LeaderEpochs(tmp_path, [(INT_MAX, 0)]).save()
    assert open_log(tmp_path).leader_epoch == INT_MAX


def test_epochs_of_records_before_a_start_that_was_not_written_down_are_found_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW]])
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW]])
    log.advance_start(3)
    log.epochs.save()
    log = open_log(tmp_path, clean=True, recovery_point=4)
    assert (log.log_start_offset, log.epochs.entries, log.leader_epoch) == (0, ((0, 0), (1, 2)), 1)


def test_a_log_that_starts_where_an_epoch_does_keeps_it_and_none_before(epochs: LeaderEpochs) -> None:
    epochs.drop_before(0)
    assert list(epochs.entries) == [(1, 0), (3, 10), (4, 25)]
    epochs.drop_before(10)
    assert list(epochs.entries) == [(3, 10), (4, 25)]
    epochs.drop_before(25)
    assert list(epochs.entries) == [(4, 25)]


def test_an_epoch_that_began_is_not_begun_again(epochs: LeaderEpochs) -> None:
    for epoch in (4, 3, -1):
        epochs.begin(epoch, 30)
    assert list(epochs.entries) == [(1, 0), (3, 10), (4, 25)]
    assert epochs.latest == 4


def test_retention_leaves_the_epochs_of_what_is_left(tmp_path: Path) -> None:
    end = 0
    for _ in range(4):  # after a stop that was not clean an epoch begins
        log = open_log(tmp_path, recovery_point=end, index_interval_bytes=0)
        fill(log, [[NOW], [NOW]])
        log.flush()
        end = log.log_end_offset
        if log.leader_epoch == 1:
            log.roll(NOW)
    with log.lock:
        log.drop_segments(1, NOW)
    assert list(log.epochs.entries) == [(2, 4), (3, 6)]
    assert [log.epochs.at(offset) for offset in (3, 4, 6)] == [-1, 2, 3]
    assert [log.epochs.end_of(epoch, log.log_end_offset) for epoch in range(5)] == [
        (0, 4),
        (1, 4),
        (2, 6),
        (3, 8),
        (-1, -1),
    ]
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=8)
    assert list(again.epochs.entries) == [(2, 4), (3, 6)]


def test_a_flush_writes_what_was_never_saved_and_nothing_twice(
    epochs: LeaderEpochs, disk: FaultyDisk
) -> None:
    epochs.sync(DiskSpace(epochs.path.parent))
    assert epochs.path.read_text() == "0\n3\n1 0\n3 10\n4 25\n"
    loaded = LeaderEpochs.load(epochs.path.parent)
    assert loaded is not None
    written = len(disk.paths("write"))
    epochs.sync(DiskSpace(epochs.path.parent))
    loaded.sync(DiskSpace(epochs.path.parent))
    assert disk.paths("sync") == [epochs.path] * 3
    assert len(disk.paths("write")) == written


def test_epochs_that_could_not_be_saved_are_before_the_next_append_and_mend_nothing_else(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    fill(open_log(tmp_path), [[NOW]])
    with disk.failing("write", of="leader-epoch-checkpoint", error=errno.ENOSPC):
        log, other = open_log(tmp_path), open_log(tmp_path)
        with pytest.raises(LogOffline, match="epochs could not be saved"):
            fill(log, [[NOW]])
        other.health.distrust("a flush failed")
    fill(log, [[NOW]])
    assert (log.health.failure, log.log_end_offset) == (None, 2)
    with pytest.raises(LogOffline, match="a flush failed"):
        fill(other, [[NOW]])


def test_a_log_that_starts_before_all_epochs_keeps_them_as_they_are(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    epochs.drop_before(5)
    assert epochs.entries == ()
    epochs = LeaderEpochs(tmp_path, [(1, 10), (2, 20)])
    epochs.drop_before(5)
    assert epochs.entries == ((1, 10), (2, 20))
