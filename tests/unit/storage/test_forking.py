"""Forks: a log as another was before an offset, which share files on disk and nothing else."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.compaction import clean_all, keyed
from tests.support.logs import KEEP_ALL, NOW, batch, retain, scan
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.steps import at_once
from tidelog.storage import files, forking, layout
from tidelog.storage.cut import link, take
from tidelog.storage.errors import StorageError
from tidelog.storage.fsck import Fsck
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.sources import PATIENT

SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100, **KEEP_ALL)
SOURCE_ID, FORK_ID = bytes(range(16)), bytes(range(16, 32))


def _open(folder: Path) -> LogManager:
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.open(lambda _: SMALL)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    manager = _open(tmp_path / "data")
    yield manager
    manager.close()


def _source(manager: LogManager, batches: int = 20, config: TopicConfig = SMALL) -> Log:
    log = manager.create("source", 0, SOURCE_ID, config)
    for number in range(batches):
        log.append(batch([NOW - number] * 3, producer_id=7, base_sequence=number * 3), NOW + number * 10)
    return log


def _fork(manager: LogManager, source: Log, cut: int, name: str = "fork") -> Log:
    target = manager.directory / f"{name}-0"
    made = at_once(forking.fork(source, cut, target, FORK_ID, source.config, manager.first_epoch, NOW))
    log = manager.adopt(made.folder, name, 0, source.config, made.start_offset, made.end_offset)
    manager.checkpoint()
    return log


def _contents(log: Log) -> dict[str, str]:
    """Return a digest of each file of a log."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(log.directory.iterdir())
        if path.is_file()
    }


def _faults(manager: LogManager) -> list[str]:
    return [
        str(each) for each in Fsck(manager.directory, deep=True, repair=False).problems() if not each.is_note
    ]


def test_a_fork_has_the_records_before_each_batch(manager: LogManager) -> None:
    source = _source(manager)
    rows = scan(source)
    assert len(source.segments) > 3
    for cut in range(0, source.log_end_offset + 1, 3):
        fork = _fork(manager, source, cut, f"fork{cut}")
        assert scan(fork) == rows[:cut]
        assert (fork.log_start_offset, fork.log_end_offset) == (0, cut)
        assert fork.append(batch([NOW]), NOW + 10_000).base_offset == cut
        assert scan(fork)[:-1] == rows[:cut]
    assert scan(source) == rows


def test_what_was_appended_before_a_time_is_before_the_cut(manager: LogManager) -> None:
    source = _source(manager)
    assert [forking.cut_at(source, NOW + at, APPEND_TIME) for at in (-1, 0, 1, 10, 11, 190, 191)] == [
        0, 0, 3, 3, 6, 57, 60,
    ]  # fmt: skip
    assert forking.cut_at(source, NOW + 1, RECORD_TIME) == 60


def test_append_times_are_those_of_the_source(manager: LogManager) -> None:
    source = _source(manager)
    fork = _fork(manager, source, 30)
    for at_ms in range(NOW - 5, NOW + 100, 5):
        assert forking.cut_at(fork, at_ms, APPEND_TIME) == min(forking.cut_at(source, at_ms, APPEND_TIME), 30)
    assert fork.last_append_ms == NOW + 90


def test_a_fork_begins_without_producers_and_stays_so_after_a_start(tmp_path: Path) -> None:
    manager = _open(tmp_path / "data")
    source = _source(manager)
    fork = _fork(manager, source, 30)
    assert source.producers.producers
    assert not fork.producers.producers
    shutil.copytree(manager.directory, tmp_path / "killed")
    manager.close()
    for folder in (manager.directory, tmp_path / "killed"):
        again = _open(folder)
        assert not again.logs["fork", 0].producers.producers
        fork = again.logs["fork", 0]
        assert scan(fork) == scan(again.logs["source", 0])[:30]
        assert fork.append(batch([NOW], producer_id=7, base_sequence=0), NOW + 10_000).base_offset == 30
        again.close()


def test_the_start_of_the_log_is_kept(tmp_path: Path) -> None:
    manager = _open(tmp_path / "data")
    source = _source(manager)
    source.advance_start(16)
    fork = _fork(manager, source, 30)
    assert fork.log_start_offset == 16
    assert scan(fork) == scan(source)[:14]
    empty = _fork(manager, source, 16, "empty")
    assert (empty.log_start_offset, empty.log_end_offset) == (16, 16)
    assert empty.append(batch([NOW]), NOW + 10_000).base_offset == 16
    manager.abandon()
    again = _open(manager.directory)
    assert again.logs["fork", 0].log_start_offset == 16
    assert again.logs["empty", 0].log_start_offset == 16
    again.close()


def test_a_fork_from_before_a_batch_that_delete_records_has_cut_is_empty(manager: LogManager) -> None:
    source = _source(manager)
    source.advance_start(1)
    fork = _fork(manager, source, forking.cut_at(source, NOW, APPEND_TIME))
    assert (fork.log_start_offset, fork.log_end_offset) == (1, 1)
    assert not _faults(manager)
    assert fork.append(batch([NOW]), NOW + 10_000).base_offset == 1


def test_a_fork_follows_a_log_that_changes_meanwhile(manager: LogManager) -> None:
    source = _source(manager, config=TopicConfig(segment_bytes=400, file_delete_delay_ms=0, **KEEP_ALL))
    rows = scan(source)
    for name, start, cut in (("first", 30, 45), ("second", 57, 45)):
        steps = forking.fork(source, cut, manager.directory / f"{name}-0", FORK_ID, SMALL, 0, NOW)
        next(steps)
        source.advance_start(start)
        retain(manager)
        made = at_once(steps)
        assert (made.start_offset, made.end_offset) == (start, max(start, cut))
        fork = manager.adopt(made.folder, name, 0, SMALL, made.start_offset, made.end_offset)
        assert scan(fork) == rows[start:cut]
    assert not _faults(manager)


def test_only_sealed_segments_share_files_and_only_the_last_one_is_copied(manager: LogManager) -> None:
    source = _source(manager)
    cut = source.segments[3].base_offset + 3
    fork = _fork(manager, source, cut)
    shared = [each.path(".log").stat().st_nlink == 2 for each in fork.segments]
    assert shared == [True] * 3 + [False]
    assert all(each.path(".appendindex").stat().st_nlink == 1 for each in fork.segments)
    fork = _fork(manager, source, source.segments[3].base_offset, "even")
    assert fork.active.size == 0
    assert fork.active.path(".log").stat().st_nlink == 1


def _delete(manager: LogManager, log: Log) -> None:
    at_once(manager.delete_topic(log.topic))


def _truncate(manager: LogManager, log: Log) -> None:
    manager.truncate(log.topic, 0, log.segments[1].base_offset + 3)
    _append(manager, log)


def _append(_manager: LogManager, log: Log) -> None:
    for number in range(20):
        log.append(keyed((b"k", b"new"), (b"m", b"%d" % number)), NOW + 100_000 + number)
    log.flush()


def _delete_records(manager: LogManager, log: Log) -> None:
    log.advance_start(log.segments[2].base_offset)
    retain(manager)


def _expire(manager: LogManager, log: Log) -> None:
    log.update_config(TopicConfig(segment_bytes=400, retention_bytes=1))
    retain(manager)


def _check_again(_manager: LogManager, log: Log) -> None:
    for segment in log.segments:
        log.recheck(segment, PATIENT)


def _damage(_manager: LogManager, log: Log) -> None:
    """Lose the files beside the log, and find them again."""
    for suffix in (".index", ".timeindex", ".summary"):
        log.segments[1].path(suffix).unlink()
    _check_again(_manager, log)


def _compact(manager: LogManager, log: Log) -> None:
    log.update_config(
        TopicConfig(segment_bytes=400, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    )
    _append(manager, log)
    assert clean_all(log, NOW + 10**9)


CHANGES: list[Callable[[LogManager, Log], None]] = [
    _delete, _truncate, _append, _delete_records, _expire, _check_again, _damage, _compact,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
@pytest.mark.parametrize("changed", ["source", "fork"])
def test_a_change_of_one_topic_leaves_every_byte_of_the_other(
    tmp_path: Path, change: Callable[[LogManager, Log], None], changed: str
) -> None:
    manager = _open(tmp_path / "data")
    source = manager.create("source", 0, SOURCE_ID, SMALL)
    for number in range(20):
        source.append(keyed((b"k", b"%d" % number), (b"l", b"v" * 20)), NOW + number * 10)
    fork = _fork(manager, source, 30)
    other = source if changed == "fork" else fork
    rows, before = scan(other), _contents(other)
    change(manager, fork if changed == "fork" else source)
    assert scan(other) == rows
    assert _contents(other) == before
    assert not _faults(manager)
    manager.close()
    again = _open(manager.directory)
    assert scan(again.logs[other.topic, 0]) == rows
    again.close()


def test_a_start_that_appends_to_a_shared_file_copies_it_first(tmp_path: Path) -> None:
    """A power cut may take the newest segment of the source: then the one before it takes the appends."""
    manager = _open(tmp_path / "data")
    source = _source(manager)
    fork = _fork(manager, source, source.segments[3].base_offset)
    rows, before = scan(fork), _contents(fork)
    last = source.segments[2]
    manager.abandon()
    for path in source.directory.iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) > last.base_offset:
            path.unlink()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (manager.directory / name).unlink()
    assert last.path(".log").stat().st_nlink == 2
    again = _open(manager.directory)
    source = again.logs["source", 0]
    _append(again, source)
    assert again.logs["fork", 0].segments[2].path(".log").stat().st_nlink == 1
    assert scan(again.logs["fork", 0]) == rows
    assert {name: before[name] for name in before if name.endswith(".log")} == {
        name: each for name, each in _contents(again.logs["fork", 0]).items() if name.endswith(".log")
    }
    again.close()


def test_what_compaction_may_have_removed_is_refused(manager: LogManager) -> None:
    config = TopicConfig(
        segment_bytes=400, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **KEEP_ALL
    )
    source = manager.create("source", 0, SOURCE_ID, config)
    for number in range(20):
        source.append(keyed((b"k%d" % (number % 3), b"%d" % number)), NOW + number * 10)
    assert clean_all(source, NOW + 10**9)
    cleaned_to = max(segment.summary.cleaned_to for segment in source.segments)
    with pytest.raises(StorageError, match="compaction has compared its records"):
        _fork(manager, source, cleaned_to - 1)
    assert not list(manager.directory.glob("*-delete"))
    fork = _fork(manager, source, source.log_end_offset)
    assert scan(fork) == scan(source)


def test_a_fork_that_fails_leaves_nothing(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(manager)
    names = sorted(path.name for path in manager.directory.iterdir())

    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "link", refused)
    with pytest.raises(StorageError, match="No space left"):
        _fork(manager, source, 30)
    assert sorted(path.name for path in manager.directory.iterdir()) == names


def test_what_happens_to_a_log_leaves_every_byte_of_a_cut(manager: LogManager, tmp_path: Path) -> None:
    source = _source(manager)
    folder = tmp_path / "cut"
    link(take(source), folder, {})
    last = source.segments[-1].name(".log")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != last}
    manager.truncate("source", 0, source.segments[2].base_offset + 6)
    _append(manager, source)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_fork_has_its_own_topic_id_and_an_epoch_that_begins_at_the_cut(manager: LogManager) -> None:
    source = _source(manager)
    source.epochs.begin(2, 12)
    source.epochs.begin(3, 30)
    for cut, first_epoch, epochs in (
        (0, 0, ((0, 0),)),
        (12, 1, ((0, 0), (1, 12))),
        (15, 1, ((0, 0), (2, 12))),
        (15, 2, ((0, 0), (2, 12))),
        (15, 5, ((0, 0), (2, 12), (5, 15))),
        (60, 3, ((0, 0), (2, 12), (3, 30))),
    ):
        target = manager.directory / f"fork{cut}-{first_epoch}-0"
        made = at_once(forking.fork(source, cut, target, FORK_ID, SMALL, first_epoch, NOW))
        assert layout.load_topic_id(made.folder) == FORK_ID
        found = LeaderEpochs.load(made.folder)
        assert found is not None
        assert found.entries == epochs
    assert source.epochs.entries == ((0, 0), (2, 12), (3, 30))
