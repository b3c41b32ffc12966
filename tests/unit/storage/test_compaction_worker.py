"""A pass whose work another process does: the same result as in a thread, and nothing of it is left when it ends."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.compaction import (
    COMPACTED,
    clean_all,
    finished,
    keyed,
    latest_of,
    rows_of,
    spoil,
    steps_of,
)
from tests.support.logs import NOW, open_log
from tests.unit.storage.test_compaction_transactions import ABORT, COMMIT, data, kafka_log, marker, sent
from tidelog.protocol.records.compression import NONE, ZSTD
from tidelog.storage.compaction import plan
from tidelog.storage.compaction.one_pass import Cleaned
from tidelog.storage.compaction.swap import Outdated
from tidelog.storage.compaction.worker import WorkerEnded
from tidelog.storage.errors import Mismatch
from tidelog.storage.log import Log
from tidelog.storage.upkeep import enforce_retention

ALWAYS, NEVER = 0, 1 << 60


def made_pass(log: Log, by_yield: bool, worker_bytes: int, now_ms: int = NOW + 10) -> Cleaned:
    due = plan.due(log, now_ms, by_yield=by_yield)
    assert due is not None
    return finished(steps_of(log, due, worker_bytes=worker_bytes))


def keys_and_tombstones(folder: Path) -> Log:
    """Return a log whose first segments are merged, and whose last ones stay as they are."""
    log = open_log(folder, **COMPACTED)
    for n in range(40):
        pairs = [
            (b"k%d" % (n % 3), b"%d" % n * 20),
            (b"once %d" % n, b"x"),
            (b"gone", None),
        ]
        log.append(keyed(*pairs, codec=ZSTD if n % 2 else NONE), NOW + n)
    for n in range(10):
        log.append(keyed((b"new %d" % n, b"x" * 500)), NOW + 40 + n)
    log.flush()
    return log


def of_idempotent_producers(folder: Path) -> Log:
    log = open_log(folder, **COMPACTED)
    for n in range(30):
        options = {"producer_id": n % 4, "producer_epoch": 0, "base_sequence": n // 4}
        log.append(keyed((b"same", b"%d" % n * 30), **options), NOW + n)
    log.flush()
    return log


def of_transactions(folder: Path) -> Log:
    return kafka_log(
        folder,
        [data(0, b"a", b"1"), sent(1, b"a", b"aborted"), sent(2, b"b", None)],
        [marker(3, ABORT), data(4, b"z", b"1"), sent(5, b"a", b"2")],
        [marker(6, COMMIT), data(7, b"z", b"2")],
        [data(8, b"q", b"1")],
    )


def files_of(log: Log) -> dict[str, bytes]:
    """Return the content of a log's files; those of the active segment are in memory still."""
    return {path.name: path.read_bytes() for path in log.directory.iterdir()}


@pytest.mark.parametrize("by_yield", [False, True])
@pytest.mark.parametrize("make", [keys_and_tombstones, of_idempotent_producers, of_transactions])
def test_S87_S96_a_pass_in_a_process_leaves_what_one_in_a_thread_leaves(
    tmp_path: Path, make: Callable[[Path], Log], by_yield: bool
) -> None:
    logs = [make(tmp_path / name / "topic-0") for name in ("thread", "process")]
    for log in logs:
        log.shared.sampling_secret = bytes(16)
    thread, process = logs
    for number in range(3):
        # The second pass finds what the first one has noted, the third one removes the tombstones.
        now_ms = NOW + (10, 20, 100_000_000)[number]
        if plan.due(thread, now_ms, by_yield=by_yield) is None:
            assert plan.due(process, now_ms, by_yield=by_yield) is None
            continue
        assert made_pass(process, by_yield, ALWAYS, now_ms) == made_pass(thread, by_yield, NEVER, now_ms)
        assert files_of(process) == files_of(thread)
        assert [each.summary for each in process.segments] == [each.summary for each in thread.segments]
        for one, other in zip(process.segments, thread.segments, strict=True):
            assert (one.sample is None) == (other.sample is None)
            if one.sample is not None and other.sample is not None:
                assert one.sample.at(0) == other.sample.at(0)
                assert one.sample.garbage_bytes == other.sample.garbage_bytes
        assert rows_of(process) == rows_of(thread)


def test_S96_a_reader_that_holds_no_file_finds_the_copy(tmp_path: Path) -> None:
    """While the names of its files change, too."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = latest_of(rows_of(log), log.active.base_offset)
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    read: list[int] = []

    def structural(step: Callable[[], object]) -> object:
        made = step()
        log.release()
        read.append(len(rows_of(log)))
        return made

    finished(steps_of(log, due, structural=structural, worker_bytes=ALWAYS))
    assert read
    after = latest_of(rows_of(log), log.active.base_offset)
    assert {key: row for key, row in before.items() if row.value is not None}.items() <= after.items()


def long_log(folder: Path) -> Log:
    """Return a log over which a pass takes more than one turn."""
    log = open_log(folder, **{**COMPACTED, "segment_bytes": 2 << 20})
    for n in range(12):
        log.append(keyed((b"k", bytes([n]) * 1_000_000), (b"%d" % n, b"x")), NOW + n)
    log.flush()
    return log


def children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def marked(log: Log) -> list[str]:
    return [path.name for path in log.directory.iterdir() if path.suffix in {".cleaned", ".swap"}]


def test_a_pass_that_is_given_up_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    before = rows_of(log)
    for steps_before in range(1, 4):
        due = plan.due(log, NOW + 10, by_yield=False)
        assert due is not None
        steps = steps_of(log, due, worker_bytes=ALWAYS)
        for _ in range(steps_before):
            next(steps)
        assert len(children() - others) == 1
        steps.close()
        assert children() == others
        assert marked(log) == []
    assert rows_of(log)[-1] == before[-1]
    made_pass(log, False, ALWAYS)
    assert latest_of(rows_of(log), 24) == latest_of(before, 24)


def test_P13_the_end_of_the_process_is_an_error_and_the_next_pass_is_made(tmp_path: Path) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    before = rows_of(log)
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    steps = steps_of(log, due, worker_bytes=ALWAYS)
    for _ in range(2):
        next(steps)
    (pid,) = children() - others
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(
        WorkerEnded, match=r"topic-0: the process .* status -9; -9 may mean that memory ran out"
    ):
        finished(steps)
    assert children() == others
    assert rows_of(log) == before
    made_pass(log, False, ALWAYS)
    assert latest_of(rows_of(log), 24) == latest_of(before, 24)


def test_signals_for_the_broker_do_not_end_its_pass(tmp_path: Path) -> None:
    """A service manager sends them to every process, and then the broker ends its pass by itself."""
    log, others = long_log(tmp_path / "topic-0"), children()
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    steps = steps_of(log, due, worker_bytes=ALWAYS)
    before = rows_of(log)
    next(steps)
    (pid,) = children() - others
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, each)
    finished(steps)
    assert len(rows_of(log)) < len(before)
    assert latest_of(rows_of(log), 24) == latest_of(before, 24)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_P13_a_write_that_the_process_is_refused_is_an_error_of_the_pass(tmp_path: Path) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = rows_of(log)
    with files_of_at_most(100), pytest.raises(OSError, match="too large") as raised:
        made_pass(log, False, ALWAYS)
    assert raised.value.errno == errno.EFBIG
    assert marked(log) == []
    assert rows_of(log) == before
    made_pass(log, False, ALWAYS)
    clean_all(log, NOW + 11)
    assert len(rows_of(log)) < len(before)


def amid(log: Log, change: Callable[[], object]) -> None:
    """Make a pass in which another change of the log comes before its first own."""
    due = plan.due(log, NOW + 10, by_yield=False)
    assert due is not None
    changes = [change]

    def structural(step: Callable[[], object]) -> object:
        if changes:
            changes.pop()()
        return step()

    finished(steps_of(log, due, structural=structural, worker_bytes=ALWAYS))


def test_S97_a_copy_of_a_segment_that_retention_has_deleted_is_dropped_and_the_others_are_used(
    tmp_path: Path,
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    start = log.segments[1].base_offset
    there = [row for row in rows_of(log) if row.offset >= start]
    before = latest_of(there, log.active.base_offset)

    def expire() -> None:
        log.advance_start(start)
        enforce_retention(log, NOW + 10)

    amid(log, expire)
    assert marked(log) == []
    assert log.segments[0].base_offset == start
    assert len(rows_of(log)) < len(there)
    after = latest_of(rows_of(log), log.active.base_offset)
    assert {key: row for key, row in before.items() if row.value is not None}.items() <= after.items()


def test_P15_a_log_that_was_cut_takes_no_copy_from_before(tmp_path: Path) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = [row for row in rows_of(log) if row.offset < 60]
    with pytest.raises(Outdated, match="has changed since it was copied"):
        amid(log, lambda: log.truncate(60))
    assert marked(log) == []
    assert rows_of(log) == before


def test_P13_bytes_that_have_changed_are_found_by_the_process_and_not_served(tmp_path: Path) -> None:
    """The broker has verified them before."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    rows_of(log)
    spoil(log, 1, log.segments[1].base_offset)
    with pytest.raises(Mismatch, match=r"log@0: the bytes have changed since they were written"):
        made_pass(log, False, ALWAYS)
    assert [bool(each.summary.damage) for each in log.segments[:3]] == [False, True, False]
    made_pass(log, False, ALWAYS)
    assert log.segments[1].summary.damage


def test_a_pass_is_made_in_a_thread_if_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = len(rows_of(log))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    made_pass(log, False, ALWAYS)
    assert "compaction runs in a thread: no process can be started error=" in caplog.text
    assert len(rows_of(log)) < before
