"""A pass in a separate process: it has the same result as one in a thread, and leaves no process and no file."""

import errno
import itertools
import os
import resource
import signal
import socket
import sys
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

from bench import machine
from tests.support.broker import wait_until
from tests.support.compaction import (
    COMPACTED,
    append_ms_of,
    clean_all,
    finished,
    keyed,
    latest_of,
    rows_of,
    spoil,
    steps_of,
)
from tests.support.logs import NOW, open_log
from tests.support.processes import command_line, is_running
from tests.unit.storage.test_compaction_transactions import ABORT, COMMIT, data, kafka_log, marker, sent
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.build import Record
from tidelog.protocol.records.compression import NONE, ZSTD
from tidelog.protocol.records.message_set import build_message_set
from tidelog.storage import files
from tidelog.storage.compaction import copying, plan, worker
from tidelog.storage.compaction.copying import CLEANED, SWAP
from tidelog.storage.compaction.one_pass import Cleaned
from tidelog.storage.compaction.swap import Outdated
from tidelog.storage.compaction.worker import WorkerEnded
from tidelog.storage.errors import Mismatch, ReadFailed
from tidelog.storage.key_sample import KeySample
from tidelog.storage.layout import INDEX, LOG, SUFFIXES, SUMMARY, TIME_INDEX
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.shared import Shared
from tidelog.storage.summary import Origin
from tidelog.storage.upkeep import enforce_retention

Steps = Generator[int, None, Cleaned]

ALWAYS, NEVER = 0, 1 << 60


def begun(
    log: Log, by_yield: bool = False, worker_bytes: int = ALWAYS, now_ms: int = NOW + 10, **options: Any
) -> Steps:
    """Begin a pass; nothing is done before the first step."""
    due = plan.due(log, now_ms, by_yield=by_yield)
    assert due is not None
    return steps_of(log, due, worker_bytes=worker_bytes, **options)


def made_pass(log: Log, by_yield: bool, worker_bytes: int, now_ms: int = NOW + 10, **options: Any) -> Cleaned:
    return finished(begun(log, by_yield, worker_bytes, now_ms, **options))


def turn(steps: Steps) -> int:
    """Take steps until the process has worked; return how many bytes it has read and written. It waits then."""
    while not (size_bytes := next(steps)):
        pass
    return size_bytes


def keys_and_tombstones(folder: Path) -> Log:
    """Return a log whose first segments get copies, and whose last ones stay as they are."""
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
    log.append(keyed((b"same", b"first"), producer_id=9, producer_epoch=0, base_sequence=0), NOW)
    for n in range(30):
        options = {"producer_id": n % 4, "producer_epoch": 0, "base_sequence": n // 4}
        log.append(keyed((b"same", b"%d" % n * 30), **options), NOW + n)
    log.flush()
    return log


def of_young_records(folder: Path) -> Log:
    """Return a log of which some sealed segments are too young to be compacted."""
    log = open_log(folder, **COMPACTED, min_compaction_lag_ms=1)
    for n in range(60):
        log.append(keyed((b"k%d" % (n % 5), b"%d" % n * 20), at=NOW + n), NOW + n)
    log.flush()
    return log


def of_an_older_format(folder: Path) -> Log:
    """Return a log of messages, the last ones of its segments among those that are replaced."""
    log = open_log(folder, **COMPACTED, message_format_version="1")
    for n in range(60):
        message = Record(0, NOW + n, b"k%d" % (n % 3), None if n % 7 == 3 else b"%d" % n * 20)
        log.append(bytearray(build_message_set([message], magic=1)), NOW + n, any_format=True)
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


def append_some(log: Log, now_ms: int) -> None:
    """Fill some segments."""
    for n in range(9):
        log.append(keyed((b"k%d" % (n % 3), b"%d" % n * 200), at=now_ms), now_ms)
    log.flush()


def files_of(log: Log) -> dict[str, bytes]:
    """Return the content of a log's files; those of the active segment are in memory still."""
    return {path.name: path.read_bytes() for path in log.directory.iterdir()}


@pytest.mark.parametrize("by_yield", [(False, False, True), (True, True, False)])
@pytest.mark.parametrize(
    "make",
    [keys_and_tombstones, of_idempotent_producers, of_young_records, of_an_older_format, of_transactions],
)
def test_S87_S96_a_pass_in_a_process_leaves_what_one_in_a_thread_leaves(
    tmp_path: Path, make: Callable[[Path], Log], by_yield: Sequence[bool]
) -> None:
    logs = [make(tmp_path / name / "topic-0") for name in ("thread", "process")]
    for log in logs:
        log.shared.sampling_secret = bytes(16)
    thread, process = logs
    for number, chooses in enumerate(by_yield):
        # The second pass finds what the first one has noted; the third one removes tombstones.
        now_ms = NOW + (10, 20, 100_000_000)[number]
        if number:
            for log in logs:
                append_some(log, now_ms)
        if plan.due(thread, now_ms, by_yield=chooses) is None:
            assert plan.due(process, now_ms, by_yield=chooses) is None
            continue
        assert made_pass(process, chooses, ALWAYS, now_ms) == made_pass(thread, chooses, NEVER, now_ms)
        assert_alike(process, thread)


@pytest.mark.parametrize("by_yield", [False, True])
@pytest.mark.parametrize(("buffer_bytes", "load_factor"), [(1000, 0.9), (1000, 0.4)])
def test_S94_S96_with_a_small_map_too(
    tmp_path: Path, buffer_bytes: int, load_factor: float, by_yield: bool
) -> None:
    thread, process = (keys_and_tombstones(tmp_path / name / "topic-0") for name in ("thread", "process"))
    process.shared.sampling_secret = thread.shared.sampling_secret
    options = {"buffer_bytes": buffer_bytes, "load_factor": load_factor}
    made = made_pass(process, by_yield, ALWAYS, **options)
    assert made == made_pass(thread, by_yield, NEVER, **options)
    assert made.cleaned_to < process.active.base_offset
    assert_alike(process, thread)


@pytest.mark.parametrize("worker_bytes", [NEVER, ALWAYS])
def test_S91_a_tombstone_goes_once_the_pass_has_found_that_older_segments_are_clean(
    tmp_path: Path, worker_bytes: int
) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED)
    for n in range(8):
        log.append(keyed((b"once %d" % n, b"x" * 100)), NOW)
    for n in range(12):
        log.append(keyed((b"again", b"x" * 100), *[(b"gone", None)] * (n == 4)), NOW)
    log.append(keyed((b"last", b"x" * 600)), NOW)
    log.flush()
    made_pass(log, True, worker_bytes)
    assert {each.summary.cleaned_ms for each in log.segments[:-1]} == {-1, NOW + 10}, "some are not worth it"
    assert made_pass(log, False, worker_bytes, NOW + 100_000_000).tombstones_dropped == 1


def assert_alike(process: Log, thread: Log) -> None:
    assert files_of(process) == files_of(thread)
    assert [each.summary for each in process.segments] == [each.summary for each in thread.segments]
    for one, other in zip(process.segments, thread.segments, strict=True):
        assert (one.sample is None) == (other.sample is None)
        if one.sample is not None and other.sample is not None:
            assert one.sample.at(0) == other.sample.at(0)
            assert one.sample.garbage_bytes == other.sample.garbage_bytes
    assert rows_of(process) == rows_of(thread)


def test_S96_a_reader_that_holds_no_file_finds_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the names of its files change, too."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = latest_of(rows_of(log), log.active.base_offset)
    rename, renames = files.rename, itertools.count()

    def read_all() -> None:
        log.release()
        rows_of(log)
        assert not any(is_bound for _, is_bound in (append_ms_of(log, n) for n in range(120)))

    def renamed(old: Path, new: Path) -> None:
        rename(old, new)
        # Once for each of the ten renames of a copy, each time another copy, as a reader opens what it reads.
        if next(renames) % 11 == 0:
            read_all()

    def structural(step: Callable[[], object]) -> object:
        made = step()
        read_all()
        return made

    monkeypatch.setattr(files, "rename", renamed)
    made_pass(log, False, ALWAYS, structural=structural)
    assert next(renames) >= 100
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
    return machine.children(os.getpid())


def marked(log: Log) -> list[str]:
    return [path.name for path in log.directory.iterdir() if path.suffix in {CLEANED, SWAP}]


def test_a_step_is_four_mebibytes_that_were_read_and_written(tmp_path: Path) -> None:
    sizes = []
    for name, worker_bytes in (("thread", NEVER), ("process", ALWAYS)):
        log = long_log(tmp_path / name / "topic-0")
        # A step of 0 bytes says that the process has not answered for a second.
        sizes.append([each for each in begun(log, worker_bytes=worker_bytes) if each])
    thread, process = sizes
    turns, size_bytes = [], 0
    for each in thread:
        size_bytes += each
        if size_bytes >= 4 << 20:
            turns.append(size_bytes)
            size_bytes = 0
    assert process == turns


def test_a_short_pass_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(worker, "started", started)
    assert clean_all(keys_and_tombstones(tmp_path / "topic-0"), NOW + 10)


def test_a_pass_that_is_given_up_leaves_no_process_and_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    before = rows_of(log)
    for turns in (1, 3):  # while it maps keys, and while it writes a copy
        steps = begun(log)
        for _ in range(turns):
            turn(steps)
        assert bool(marked(log)) == (turns == 3)
        assert len(children() - others) == 1
        steps.close()
        assert children() == others
        assert marked(log) == []
    assert rows_of(log)[-1] == before[-1]
    made_pass(log, False, NEVER)
    assert latest_of(rows_of(log), 24) == latest_of(before, 24)
    assert capfd.readouterr().err == ""


def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    steps = begun(log)
    turn(steps)
    (pid,) = children() - others
    os.kill(pid, signal.SIGSTOP)  # as if it waited for the disk
    monkeypatch.setattr(worker, "_END_S", 0.05)
    steps.close()
    assert children() == others
    made_pass(log, False, NEVER)
    assert marked(log) == []


def test_P13_the_end_of_the_process_is_an_error_and_the_next_pass_is_made(tmp_path: Path) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    before = rows_of(log)
    steps = begun(log)
    for _ in range(2):
        turn(steps)
    (pid,) = children() - others
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(
        WorkerEnded, match=r"topic-0: the process .* status -9: killed, perhaps because memory ran out"
    ):
        finished(steps)
    assert children() == others
    assert rows_of(log) == before
    made_pass(log, False, NEVER)
    assert latest_of(rows_of(log), 24) == latest_of(before, 24)


@pytest.mark.parametrize(
    "told", ["", r"\200", r"\200\004\225\020", r"\200\004\225\001\000\000\000\000\000\000\000N"]
)
def test_P13_the_process_may_end_in_the_middle_of_what_it_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    ours, theirs = socket.socketpair()
    with theirs:
        process = Popen(
            ["printf", told],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
        )
    monkeypatch.setattr(worker, "started", lambda _: worker.Worker(process, ours))
    with pytest.raises(WorkerEnded, match="ended early, with status 0"):
        made_pass(log, False, ALWAYS)
    assert children() == others


def test_P13_a_process_whose_connection_ends_leaves_a_copy_that_may_be_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections of a killed broker end before the system says that it has ended."""
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    process = worker.started(log.directory)
    assert process is not None
    monkeypatch.setattr(worker, "started", lambda _: process)

    def end(_: Callable[[], object]) -> None:
        process.connection.close()
        process.process.wait(20)
        raise EOFError

    with pytest.raises(WorkerEnded, match="with status 1"):
        made_pass(log, False, ALWAYS, structural=end)
    assert f"{0:020d}.log.cleaned" in marked(log)
    assert children() == others


def test_a_pass_whose_process_hangs_can_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_END_S", 0.1)
    monkeypatch.setattr(worker, "_LOOK_MS", 10)
    log, others = long_log(tmp_path / "topic-0"), children()
    steps = begun(log)
    turn(steps)
    (pid,) = children() - others
    os.kill(pid, signal.SIGSTOP)
    while next(steps):
        pass
    steps.close()
    assert children() == others
    made_pass(log, False, NEVER)


def test_a_task_may_be_larger_than_the_connection_takes_at_once(tmp_path: Path) -> None:
    """It takes a few hundred kilobytes, about as much as the samples of twenty segments."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    for each in log.segments[:-1]:
        each.sample = KeySample()
        each.sample.hashes, each.sample.sizes = array("Q", bytes(800_000)), array("I", bytes(400_000))
    assert made_pass(log, False, ALWAYS).records_dropped


def test_a_process_that_hangs_amid_a_message_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_END_S", 0.1)
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    before = rows_of(log)
    code = """
import os, signal
from tidelog.storage.compaction import plan
plan.groups = lambda *_: os.write(0, b"\\x80") and signal.pause()
"""
    at_start(monkeypatch, tmp_path / "first", code)
    with pytest.raises(WorkerEnded, match="status -9"):
        made_pass(log, False, ALWAYS)
    assert children() == others
    assert rows_of(log) == before


def test_a_process_warns_of_nothing_that_it_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    assert made_pass(keys_and_tombstones(tmp_path / "topic-0"), False, ALWAYS).records_dropped
    assert capfd.readouterr().err == ""


def test_a_pass_that_is_given_up_while_its_process_works_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process cannot send its next message, and then receives that the pass is given up."""
    monkeypatch.setattr(worker, "_LOOK_MS", 0)
    log = long_log(tmp_path / "topic-0")
    working = worker.started(log.directory)
    assert working is not None
    monkeypatch.setattr(worker, "started", lambda _: working)
    steps, close = begun(log), working.connection.close
    while not marked(log):
        turn(steps)

    def closed() -> None:
        close()
        working.process.send_signal(signal.SIGCONT)

    monkeypatch.setattr(working.connection, "close", closed)
    working.process.send_signal(signal.SIGSTOP)  # It works once the connection is closed.
    assert next(steps) == 0
    steps.close()
    assert working.process.returncode == 0
    assert marked(log) == []


def test_P13_a_process_whose_parent_has_ended_before_it_began_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = children()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1 << 30)
        assert worker.started(tmp_path) is None
    assert children() == others


def test_the_command_line_of_the_process_names_the_log_and_its_memory_goes_first(tmp_path: Path) -> None:
    log, others = long_log(tmp_path / "topic-0"), children()
    with closing(begun(log)) as steps:
        turn(steps)
        (pid,) = children() - others
        assert command_line(pid)[-1] == str(log.directory)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


def test_the_process_ignores_signals_that_stop_the_broker(tmp_path: Path) -> None:
    """A service manager sends them to every process; the broker then ends the pass."""
    log, others = long_log(tmp_path / "topic-0"), children()
    steps = begun(log)
    before = rows_of(log)
    turn(steps)
    (pid,) = children() - others
    assert os.getsid(pid) == pid, "it gets no signals from the terminal"
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


def test_P13_a_write_error_in_the_process_is_an_error_of_the_pass(tmp_path: Path) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = rows_of(log)
    with files_of_at_most(100), pytest.raises(OSError, match="too large") as raised:
        made_pass(log, False, ALWAYS)
    assert raised.value.errno == errno.EFBIG
    assert marked(log) == []
    assert rows_of(log) == before
    made_pass(log, False, NEVER)
    clean_all(log, NOW + 11)
    assert len(rows_of(log)) < len(before)


def test_a_pass_that_fails_keeps_the_samples_that_it_has_made(tmp_path: Path) -> None:
    """Without them, each try would read the whole log again."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    with files_of_at_most(100), pytest.raises(OSError, match="too large"):
        made_pass(log, True, ALWAYS)
    assert all(each.sample is not None for each in log.segments[:-1])


def test_S97_a_segment_that_retention_has_deleted_before_it_was_read_ends_the_pass(tmp_path: Path) -> None:
    log = long_log(tmp_path / "topic-0")
    steps = begun(log)
    turn(steps)
    log.advance_start(log.active.base_offset)
    enforce_retention(log, NOW + 10)
    assert finished(steps).segments == 0
    assert marked(log) == []


def at_start(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Have each new process that takes its modules from where this one does run some code."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.syspath_prepend(folder)


def test_the_process_has_the_modules_of_the_broker_and_none_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    (tmp_path / "pickle.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    at_start(monkeypatch, tmp_path / "first", f"open({str(tmp_path / 'was run')!r}, 'w').close()")
    made_pass(log, False, ALWAYS)
    assert (tmp_path / "was run").exists()


def test_P13_a_fault_in_the_process_is_told_with_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    code = "from tidelog.storage.compaction import plan\nplan.groups = lambda *_: 1 // 0"
    at_start(monkeypatch, tmp_path / "first", code)
    with pytest.raises(RuntimeError, match=r"(?s)one_pass\.py.*ZeroDivisionError"):
        made_pass(log, False, ALWAYS)
    assert children() == others


def test_a_process_is_started_whatever_the_start_of_python_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_start(monkeypatch, tmp_path / "first", "print('hello', flush=True)")
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    log = keys_and_tombstones(tmp_path / "topic-0")
    assert made_pass(log, False, ALWAYS).records_dropped


def test_a_process_is_started_without_standard_error(tmp_path: Path) -> None:
    log, saved = keys_and_tombstones(tmp_path / "topic-0"), os.dup(2)
    os.close(2)
    try:
        assert made_pass(log, False, ALWAYS).records_dropped
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@pytest.mark.parametrize(
    ("suffix", "size_bytes"), [(LOG, None), (LOG, 100), (INDEX, 4), (TIME_INDEX, None), (SUMMARY, None)]
)
def test_P13_a_copy_that_is_not_whole_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, size_bytes: int | None
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = rows_of(log)
    made = copying.made

    def spoilt(group: list[Segment], config: TopicConfig, shared: Shared) -> Segment:
        path = group[0].path(suffix + CLEANED)
        if size_bytes is None:
            path.unlink()
        else:
            os.truncate(path, size_bytes)
        return made(group, config, shared)

    monkeypatch.setattr(copying, "made", spoilt)
    with pytest.raises(ReadFailed, match=r"\.log\.cleaned: this copy of \d segments is not whole"):
        made_pass(log, False, ALWAYS)
    assert marked(log) == []
    assert rows_of(log) == before


def test_the_process_closes_each_copy_that_has_taken_its_place(tmp_path: Path) -> None:
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    copies: set[str] = set()

    def structural(step: Callable[[], object]) -> object:
        (pid,) = children() - others
        opened = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
        assert not copies & opened
        made = step()
        copies.update(str(each.path(LOG)) for each in log.segments if each.summary.origin is Origin.COMPACTED)
        return made

    made_pass(log, False, ALWAYS, structural=structural)
    assert len(copies) > 5


def test_S91_a_copy_has_its_sample_when_it_takes_its_place(tmp_path: Path) -> None:
    """A pass that is given up after that needs not be followed by one that reads the copy for its sample."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    sampled: list[bool] = []

    def structural(step: Callable[[], object]) -> object:
        made = step()
        sampled.extend(
            each.sample is not None for each in log.segments if each.summary.cleaned_ms == NOW + 10
        )
        return made

    made_pass(log, True, ALWAYS, structural=structural)
    assert sampled
    assert all(sampled)


def amid(
    log: Log, change: Callable[[], object], by_yield: bool = False, worker_bytes: int = ALWAYS
) -> Cleaned:
    """Make a pass, with another change of the log before its first one."""
    changes = [change]

    def structural(step: Callable[[], object]) -> object:
        if changes:
            changes.pop()()
        return step()

    return made_pass(log, by_yield, worker_bytes, structural=structural)


@pytest.mark.parametrize("by_yield", [False, True])
def test_S97_a_copy_of_a_segment_that_retention_has_deleted_is_removed_and_the_others_are_used(
    tmp_path: Path, by_yield: bool
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    start = log.segments[1].base_offset
    there = [row for row in rows_of(log) if row.offset >= start]
    before = latest_of(there, log.active.base_offset)

    def expire() -> None:
        log.advance_start(start)
        enforce_retention(log, NOW + 10)

    done = amid(log, expire, by_yield)
    assert done.segments == sum(each.summary.cleaned_ms == NOW + 10 for each in log.segments)
    assert marked(log) == []
    assert not by_yield or all(each.sample is not None for each in log.segments[:-1])
    assert log.segments[0].base_offset == start
    assert len(rows_of(log)) < len(there)
    after = latest_of(rows_of(log), log.active.base_offset)
    assert {key: row for key, row in before.items() if row.value is not None}.items() <= after.items()


def deleted(log: Log) -> Path:
    """Rename a log's folder as a deletion does; return a folder of the old name, in which a copy is put in place."""
    folder = log.directory
    renamed = folder.with_name("topic-0.deleted")
    log.retire(renamed)
    folder.rename(renamed)
    folder.mkdir()
    for suffix in SUFFIXES:
        for mark in (CLEANED, SWAP):
            (folder / f"{0:020d}{suffix}{mark}").write_bytes(b"new")
    return folder


def is_untouched(folder: Path) -> bool:
    found = [path.read_bytes() for path in folder.iterdir()]
    return found == [b"new"] * (2 * len(SUFFIXES))


@pytest.mark.parametrize("worker_bytes", [ALWAYS, NEVER])
def test_S97_a_pass_over_a_deleted_log_leaves_the_files_of_a_new_topic_of_its_name(
    tmp_path: Path, worker_bytes: int
) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    with pytest.raises(Outdated, match="has changed since it was copied"):
        amid(log, lambda: deleted(log), worker_bytes=worker_bytes)
    assert is_untouched(tmp_path / "topic-0")
    assert marked(log) == []


@pytest.mark.parametrize("turns", [1, 3])
def test_S97_a_pass_that_a_deletion_ends_leaves_the_files_of_a_new_topic(tmp_path: Path, turns: int) -> None:
    log = long_log(tmp_path / "topic-0")
    steps = begun(log)
    for _ in range(turns):
        turn(steps)
    folder = deleted(log)
    steps.close()
    assert is_untouched(folder)
    assert marked(log) == []


def test_S97_a_process_that_begins_after_a_deletion_leaves_the_files_of_a_new_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, others, started = keys_and_tombstones(tmp_path / "topic-0"), children(), worker.started

    def late(folder: Path) -> worker.Worker | None:
        deleted(log)
        return started(folder)

    monkeypatch.setattr(worker, "started", late)
    with pytest.raises(Outdated, match="may be that of a new topic"):
        made_pass(log, False, ALWAYS)
    assert children() == others
    assert is_untouched(tmp_path / "topic-0")


def test_P15_a_log_that_was_truncated_refuses_an_earlier_copy(tmp_path: Path) -> None:
    log = keys_and_tombstones(tmp_path / "topic-0")
    before = [row for row in rows_of(log) if row.offset < 60]
    with pytest.raises(Outdated, match="has changed since it was copied"):
        amid(log, lambda: log.truncate(60))
    assert marked(log) == []
    assert rows_of(log) == before


@pytest.mark.parametrize("byte", [65, 15])
def test_P13_the_process_finds_bytes_that_have_changed_since_the_broker_verified_them(
    tmp_path: Path, byte: int
) -> None:
    """One of them is in the epoch of a batch, which its checksum leaves out."""
    log = keys_and_tombstones(tmp_path / "topic-0")
    rows_of(log)
    spoil(log, 1, log.segments[1].base_offset, byte)
    with pytest.raises(Mismatch, match=r"log@0: the bytes have changed since they were written"):
        made_pass(log, False, ALWAYS)
    assert [bool(each.summary.damage) for each in log.segments[:3]] == [False, True, False]
    made_pass(log, False, NEVER)
    assert log.segments[1].summary.damage


BROKER = """
import os, pathlib, signal
from tests.unit.storage import test_compaction_worker as tests
log = tests.long_log(pathlib.Path({folder!r}))
steps = tests.begun(log)
while not tests.marked(log):
    tests.turn(steps)
print(*tests.children(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_P13_a_process_that_outlives_its_broker_leaves_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system does not end it; a new broker may use the folder already."""
    at_start(monkeypatch, tmp_path / "first", "import sys; sys.modules['ctypes'] = None")
    folder = tmp_path / "topic-0"
    command = [sys.executable, "-c", BROKER.format(folder=str(folder))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run(command, env=environment, stdout=PIPE, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: not is_running(int(ended.stdout)))
    assert [path for path in folder.iterdir() if path.suffix == CLEANED]


def no_program(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")


def no_descriptors(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    def socketpair() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", socketpair)


def no_start(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    at_start(monkeypatch, folder, "import os; os._exit(3)")


def no_end_of_the_start(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(worker, "_BEGIN_MS", 10)
    monkeypatch.setattr(worker, "_END_S", 0.1)
    at_start(monkeypatch, folder, "import signal; signal.pause()")


def an_upgrade(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    at_start(monkeypatch, folder, "import tidelog; tidelog.__version__ = '9.9.9'")


@pytest.mark.parametrize("refuse", [no_program, no_descriptors, no_start, no_end_of_the_start, an_upgrade])
def test_a_pass_runs_in_a_thread_if_no_process_can_be_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refuse: Callable[[pytest.MonkeyPatch, Path], None],
) -> None:
    log, others = keys_and_tombstones(tmp_path / "topic-0"), children()
    before = len(rows_of(log))
    refuse(monkeypatch, tmp_path / "first")
    made_pass(log, False, ALWAYS)
    assert children() == others
    assert "compaction runs in a thread: no process can be started log=topic-0 error=" in caplog.text
    assert len(rows_of(log)) < before
