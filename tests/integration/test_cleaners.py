"""The cleaners: whose turn it is, the pace, and what becomes of a pass that fails; what a pass does is made up here."""

import asyncio
import errno
import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import open_log
from tests.support.served import until
from tidelog.broker import cleaners
from tidelog.broker.cleaners import DONE, FAILED, GIVEN_UP, LONGEST_RETRY_MS, REST_S, Cleaners, Passes
from tidelog.broker.clock import Clock
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.partition import Partition
from tidelog.broker.threads import cpu_clock
from tidelog.broker.work import Stopping
from tidelog.config.options import BrokerConfig
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log

MIB = 1 << 20
BACKOFF_MS = 15_000


class Passing(StorageError):
    """As when a log has changed meanwhile."""


@dataclass
class Plan:
    urgency: float


@dataclass
class Came:
    read_bytes: int = 10
    written_bytes: int = 4
    records_dropped: int = 0
    tombstones_dropped: int = 0


Steps = Callable[[Log, Callable[..., Any]], Generator[int, None, Came]]


def at_once(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
    yield 1
    return Came()


def raising(error: BaseException) -> Steps:
    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        yield 1
        raise error

    return steps


@dataclass
class Work:
    """What is due, and what passes do; and what was asked for."""

    urgency: dict[Log, float] = field(default_factory=dict)
    steps: dict[Log, Steps] = field(default_factory=dict)
    next_due: dict[Log, int] = field(default_factory=dict)
    looks: int = 0
    made: list[Log] = field(default_factory=list)
    given: list[dict[str, Any]] = field(default_factory=list)
    closed: list[Log] = field(default_factory=list)
    fault: Exception | None = None

    def due(self, log: Log, now_ms: int) -> Plan | None:
        self.looks += 1
        if self.fault is not None:
            raise self.fault
        urgency = self.urgency.get(log)
        return None if urgency is None else Plan(urgency)

    def next_due_ms(self, log: Log, now_ms: int) -> int | None:
        return self.next_due.get(log)

    def clean(self, log: Log, plan: Plan, **given: Any) -> Generator[int, None, Came]:
        self.made.append(log)
        self.given.append(given)
        try:
            came = yield from self.steps.get(log, at_once)(log, given["structural"])
            self.urgency.pop(log, None)
            return came
        finally:
            self.closed.append(log)


class Setup:
    """Cleaners of some logs, whose clock is held."""

    def __init__(self, folder: Path, count: int, **options: Any) -> None:
        self.clock, self.work, self.ended = Clock(), Work(), []
        self.clock.hold(1_700_000_000_000)
        self.config = BrokerConfig(**options)
        passes = Passes(self.work.due, self.work.next_due_ms, self.work.clean, (Passing,))
        self.loop_cpu_s = 0.0
        self.cleaners = Cleaners(
            self.config,
            self.clock,
            passes,
            lambda step: step(),
            self.ended.append,
            lambda: self.loop_cpu_s,
        )
        self.logs = [open_log(folder / str(n), cleanup_policy=("compact",)) for n in range(count)]
        for number, log in enumerate(self.logs):
            log.topic = f"t{number}"
            self.cleaners.serve(number, (Partition(0, log),), True)

    def passes(self, outcome: str) -> int:
        return self.cleaners.figures().passes[outcome]

    def rests(self) -> bool:
        """Tell whether all has been looked at, and nothing is under way."""
        cleaners = self.cleaners
        with cleaners._changed:
            is_idle = not cleaners._found and not cleaners._busy and not cleaners._is_looking
            return is_idle and cleaners._look_ms > self.clock.monotonic_ms()


Begin = Callable[..., Setup]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Make cleaners, started by whoever has said what is due."""
    made: list[Setup] = []

    def make(count: int = 1, **options: Any) -> Setup:
        made.append(Setup(tmp_path / str(len(made)), count, **options))
        return made[-1]

    yield make
    for setup in made:
        setup.cleaners.stop()
        assert setup.ended == []
        assert not any(thread.is_alive() for thread in setup.cleaners._threads.values())


def seen(condition: Callable[[], Any]) -> None:
    """Wait until another thread has seen to it."""
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends
        threading.Event().wait(0.001)


# -- whose turn it is --------------------------------------------------------------------------------------------


def test_S102_the_log_that_is_most_due_is_compacted_first(begin: Begin) -> None:
    setup = begin(4)
    a, b, c, _ = setup.logs
    setup.work.urgency = {a: 0.6, b: 0.9, c: 0.7}
    setup.cleaners.start()
    seen(setup.rests)
    assert setup.work.made == [b, c, a]
    figures = setup.cleaners.figures()
    assert (figures.passes, figures.read_bytes, figures.written_bytes) == (
        {DONE: 3, GIVEN_UP: 0, FAILED: 0},
        30,
        12,
    )
    assert figures.under_way == 0
    assert figures.seconds[DONE] > 0
    assert figures.began_ms == setup.clock.monotonic_ms()


def test_what_a_pass_is_given_is_what_the_options_say(begin: Begin) -> None:
    setup = begin(
        1,
        log_cleaner_threads=2,
        log_cleaner_dedupe_buffer_size=9 * MIB,
        log_cleaner_io_buffer_load_factor=0.7,
    )
    setup.work.urgency = {setup.logs[0]: 1}
    setup.cleaners.start()
    seen(setup.rests)
    (given,) = setup.work.given
    assert given.pop("structural")(lambda: 5) == 5
    assert given == {"buffer_bytes": 9 * MIB // 2, "load_factor": 0.7}


def test_when_nothing_is_due_cleaners_wait_by_the_clock(begin: Begin) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.cleaners.start()
    seen(setup.rests)
    setup.work.urgency = {log: 1}
    looks = setup.work.looks
    setup.clock.advance(milliseconds=BACKOFF_MS - 1)
    assert setup.work.looks == looks
    assert not setup.work.made
    setup.clock.advance(milliseconds=1)
    seen(lambda: setup.work.made == [log])


def test_a_log_that_comes_due_by_time_alone_is_compacted_then(begin: Begin) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.work.next_due = {log: setup.clock.now_ms() + 500}
    setup.cleaners.start()
    seen(setup.rests)
    setup.work.urgency, setup.work.next_due = {log: 1}, {}
    setup.clock.advance(milliseconds=499)
    assert setup.rests()
    setup.clock.advance(milliseconds=1)
    seen(lambda: setup.work.made == [log])


def test_cleaners_without_a_compacted_topic_never_look(begin: Begin) -> None:
    setup = begin(0, log_cleaner_threads=3)
    setup.cleaners.start()
    setup.clock.advance(days=1)
    assert setup.cleaners._wait_s() > 3000
    assert setup.work.looks == 0


def test_a_topic_that_is_made_or_altered_is_looked_at_at_once_and_one_that_left_no_more(begin: Begin) -> None:
    setup = begin(2)
    a, b = setup.logs
    setup.cleaners.leave(1)
    setup.cleaners.start()
    seen(setup.rests)
    setup.work.urgency = {a: 1, b: 1}
    setup.cleaners.serve(1, (Partition(0, b),), True)
    seen(lambda: len(setup.work.made) == 2 and setup.rests())
    setup.work.urgency = {a: 1, b: 1}
    setup.cleaners.serve(1, (Partition(0, b),), False)  # it has another policy now
    seen(lambda: setup.work.made[2:] == [a] and setup.rests())
    setup.cleaners.serve(7, (), False)
    setup.cleaners.leave(7)


def test_a_pass_that_drops_nothing_is_not_made_again_at_once_and_one_that_does_is(begin: Begin) -> None:
    setup = begin(2)
    a, _ = setup.logs
    dropped = [3, 2, 0, 0]

    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        yield 1
        setup.work.urgency[a] = 2  # still
        return Came(records_dropped=dropped.pop(0), tombstones_dropped=1)

    def is_due(log: Log, now_ms: int) -> Plan | None:
        return Plan(1) if log is a and dropped else None

    setup.cleaners._passes = setup.cleaners._passes._replace(due=is_due)
    setup.work.steps = {a: steps}
    setup.cleaners.start()
    seen(setup.rests)
    assert dropped == [0]
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: not dropped and setup.rests())
    figures = setup.cleaners.figures()
    assert (figures.records_dropped, figures.tombstones_dropped) == (5, 4)


def test_one_log_is_compacted_by_one_thread_at_a_time(begin: Begin) -> None:
    setup = begin(2, log_cleaner_threads=3)
    a, b = setup.logs
    gate, at_work = threading.Event(), threading.Semaphore(0)

    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        yield 1
        at_work.release()
        gate.wait(10)
        return Came()

    setup.work.steps, setup.work.urgency = {a: steps, b: steps}, {a: 1, b: 2}
    setup.cleaners.start()
    assert at_work.acquire(timeout=10)
    assert at_work.acquire(timeout=10)
    assert setup.cleaners.figures().under_way == 2
    setup.clock.advance(milliseconds=BACKOFF_MS)  # the third looks, and finds both due, and busy
    setup.cleaners.serve(0, (Partition(0, a),), True)
    gate.set()
    seen(setup.rests)
    assert sorted(map(str, setup.work.made)) == ["t0-0", "t1-0"]


# -- the pace ----------------------------------------------------------------------------------------------------


def long_steps(setup: Setup, taken: list[Log]) -> Steps:
    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        while log in setup.work.urgency:
            taken.append(log)
            yield MIB
        return Came()

    return steps


def test_S102_all_cleaners_together_keep_to_the_rate(begin: Begin) -> None:
    setup = begin(2, log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=float(MIB))
    taken: list[Log] = []
    setup.work.urgency = dict.fromkeys(setup.logs, 1.0)
    setup.work.steps = dict.fromkeys(setup.logs, long_steps(setup, taken))
    setup.cleaners.start()
    seen(lambda: len(taken) == 2 and len(setup.cleaners._busy) == 2)
    seen(lambda: setup.cleaners._excess_bytes == 2 * MIB)
    setup.clock.advance(milliseconds=1998)  # A step begins once less than 1 ms is left to wait.
    assert len(taken) == 2
    setup.clock.advance(milliseconds=2)
    seen(lambda: len(taken) > 2)  # one of them, or both

    def is_beyond_the_rate() -> bool:
        with setup.cleaners._changed:
            setup.cleaners._reduce_excess()
            return setup.cleaners._excess_bytes > 0

    for second in range(1, 20):
        seen(is_beyond_the_rate)
        setup.clock.advance(seconds=1)
        assert len(taken) <= 4 + second
    seen(lambda: len(taken) >= 20)
    # Another rate holds for those that wait, too.
    setup.cleaners.configure(replace(setup.config, log_cleaner_io_max_bytes_per_second=1e15))
    seen(lambda: len(taken) > 20)
    setup.work.urgency.clear()
    seen(setup.rests)
    assert setup.passes(DONE) == 2


# -- passes that fail --------------------------------------------------------------------------------------------


def test_P13_a_log_whose_pass_fails_is_tried_again_later_each_time_and_the_others_go_on(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    setup = begin(2)
    bad, good = setup.logs
    setup.work.urgency = {bad: 2, good: 1}
    setup.work.steps = {bad: raising(OSError(errno.ENOSPC, "No space left on device"))}
    setup.cleaners.start()
    seen(setup.rests)
    assert setup.work.made == [bad, good]
    assert setup.work.closed == [bad, good]
    assert setup.cleaners.failing() == [(bad, "OSError: [Errno 28] No space left on device")]
    wait_ms, tries = BACKOFF_MS, 1
    for _ in range(7):
        setup.clock.advance(milliseconds=wait_ms - 1)
        seen(setup.rests)
        assert setup.work.made.count(bad) == tries
        setup.clock.advance(milliseconds=1)
        tries += 1
        seen(lambda: setup.work.made.count(bad) == tries and setup.rests())  # noqa: B023
        wait_ms = min(2 * wait_ms, LONGEST_RETRY_MS)
    assert wait_ms == LONGEST_RETRY_MS
    assert (setup.passes(FAILED), setup.passes(DONE)) == (8, 1)
    setup.work.steps.clear()
    setup.clock.advance(milliseconds=wait_ms)
    seen(lambda: setup.work.made.count(bad) == tries + 1 and setup.rests())
    assert setup.cleaners.failing() == []
    assert [record.getMessage() for record in caplog.records] == [
        "compaction fails log=t0-0 error='[Errno 28] No space left on device': tried again in 15 s, the others go on",
        "compaction works again log=t0-0",
    ]
    # And the next time it is tried again as soon as the first time.
    setup.work.urgency, setup.work.steps = {bad: 1}, {bad: raising(StorageError("damaged"))}
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: setup.cleaners.failing() and setup.rests())
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: setup.work.made.count(bad) == tries + 3)


@pytest.mark.parametrize("backoff_ms", [0, 1, 10**6, (1 << 63) - 1])
def test_P13_a_failing_log_is_tried_again_whatever_the_backoff(begin: Begin, backoff_ms: int) -> None:
    setup = begin(1, log_cleaner_backoff_ms=backoff_ms)
    (log,) = setup.logs
    waits = []
    for _ in range(70):
        setup.cleaners._failed(log, OSError(5, "Input/output error"))
        waits.append(setup.cleaners._failures[log].retry_ms - setup.clock.monotonic_ms())
    assert waits[0] == max(backoff_ms, 100)
    assert waits == sorted(waits)
    assert waits[-1] == max(backoff_ms, LONGEST_RETRY_MS)


def test_P13_a_fault_of_a_pass_is_told_with_where_it_was_and_its_log_is_tried_again(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.work.urgency, setup.work.steps = {log: 1}, {log: raising(ZeroDivisionError("a fault"))}
    setup.cleaners.start()
    seen(setup.rests)
    (record,) = caplog.records
    assert "compaction fails log=t0-0" in record.getMessage()
    assert "in steps" in caplog.text
    setup.work.steps.clear()
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: setup.passes(DONE) == 1)


def test_P13_a_thread_that_is_ended_is_told_of_and_started_again(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    setup = begin(2)
    bad, good = setup.logs
    setup.work.urgency, setup.work.steps = {bad: 2, good: 1}, {bad: raising(SystemExit(3))}
    setup.cleaners.start()
    seen(lambda: setup.passes(DONE) == 1 and setup.rests())
    assert setup.work.made == [bad, good]
    (ended,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert ended.getMessage() == "cleaner ended by a fault, and started again number=0"
    assert "SystemExit: 3" in caplog.text
    assert [log for log, _ in setup.cleaners.failing()] == [bad]
    setup.work.steps.clear()
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: setup.passes(DONE) == 2)
    assert setup.cleaners.failing() == []


def test_P13_that_it_is_not_known_whether_a_log_is_due_is_a_failure_of_that_log(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    setup = begin()
    setup.work.fault = KeyError("no summary")
    setup.cleaners.start()
    seen(lambda: setup.cleaners.failing() and setup.rests())
    setup.work.fault = None
    setup.clock.advance(milliseconds=BACKOFF_MS)
    seen(lambda: not setup.cleaners.failing())
    assert "compaction fails log=t0-0" in caplog.text


def test_that_a_log_has_changed_meanwhile_is_a_failure_only_if_it_always_has(begin: Begin) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.work.urgency, setup.work.steps = {log: 1}, {log: raising(Passing("segments changed"))}
    setup.cleaners.start()
    seen(setup.rests)
    for times in (1, 2):
        assert (setup.passes(GIVEN_UP), setup.cleaners.failing()) == (times, [])
        setup.clock.advance(milliseconds=times * BACKOFF_MS)
        seen(lambda: len(setup.work.made) == times + 1 and setup.rests())  # noqa: B023
    assert setup.cleaners.failing() == [(log, "Passing: segments changed")]
    assert setup.passes(FAILED) == 1


def test_a_log_that_fails_is_told_of_until_it_works_whatever_comes_between(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    setup = begin()
    (log,) = setup.logs
    cleaners = setup.cleaners
    assert cleaners._failed(log, OSError(5, "Input/output error")) == FAILED
    assert cleaners._failed(log, Passing("segments changed")) == FAILED
    assert [log for log, _ in cleaners.failing()] == [log]
    log.health.fail("a flush failed", lambda: None)
    assert cleaners._ask(log, setup.clock.now_ms()) == (None, None)
    assert [log for log, _ in cleaners.failing()] == [log], "that it is not due says nothing"
    log.mend()
    cleaners._ask(log, setup.clock.now_ms())
    assert cleaners.failing() == []
    assert caplog.messages[-1] == "compaction works again log=t0-0"


@pytest.mark.parametrize("how", ["deleted", "altered"])
def test_a_pass_over_a_log_that_goes_is_given_up_and_no_failure(begin: Begin, how: str) -> None:
    setup = begin(1, log_cleaner_io_max_bytes_per_second=1.0)
    (log,) = setup.logs
    setup.work.urgency, setup.work.steps = {log: 1}, {log: long_steps(setup, [])}
    setup.cleaners.start()
    seen(lambda: setup.cleaners.figures().under_way and setup.cleaners._excess_bytes)
    if how == "deleted":
        log.delete()
    else:
        log.update_config(replace(log.config, cleanup_policy=("delete",)))
    setup.cleaners.serve(0, (Partition(0, log),), False)
    seen(lambda: setup.work.closed == [log])
    seen(lambda: setup.passes(GIVEN_UP) == 1)
    assert setup.cleaners._failed(log, OSError(2, "No such file or directory")) == GIVEN_UP
    assert setup.cleaners.failing() == []


def test_what_is_known_of_a_failing_log_goes_with_its_topic(begin: Begin) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.cleaners._failed(log, OSError(5, "Input/output error"))
    assert setup.cleaners.failing()
    setup.cleaners.leave(0)
    assert setup.cleaners.failing() == []
    assert not setup.cleaners._troubles.any


# -- while running -----------------------------------------------------------------------------------------------


def test_more_threads_or_fewer_while_running(begin: Begin) -> None:
    setup = begin(4)
    gate, at_work = threading.Event(), threading.Semaphore(0)

    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        yield 1
        at_work.release()
        gate.wait(10)
        return Came()

    setup.work.steps = dict.fromkeys(setup.logs, steps)
    setup.work.urgency = dict.fromkeys(setup.logs, 1.0)
    setup.cleaners.start()
    assert at_work.acquire(timeout=10)
    setup.cleaners.configure(replace(setup.config, log_cleaner_threads=3))
    assert at_work.acquire(timeout=10)
    assert at_work.acquire(timeout=10)
    assert setup.cleaners.figures().under_way == 3
    setup.cleaners.configure(replace(setup.config, log_cleaner_threads=0))
    gate.set()
    seen(lambda: not setup.cleaners._threads)
    assert setup.passes(DONE) == 3, "they bring their passes to an end"
    setup.cleaners.configure(replace(setup.config, log_cleaner_threads=1))
    seen(lambda: setup.passes(DONE) == 4)


@pytest.mark.parametrize("options", [{"log_cleaner_enable": False}, {"log_cleaner_threads": 0}])
def test_no_thread_is_started_where_none_is_wanted(begin: Begin, options: dict[str, Any]) -> None:
    setup = begin(1, **options)
    setup.work.urgency = {setup.logs[0]: 1}
    setup.cleaners.start()
    assert setup.cleaners._threads == {}


def test_other_options_are_seen_at_once(begin: Begin) -> None:
    setup = begin()
    (log,) = setup.logs
    setup.cleaners.start()
    seen(setup.rests)
    setup.work.urgency = {log: 1}
    setup.cleaners.configure(
        replace(setup.config, log_cleaner_backoff_ms=500, log_cleaner_io_buffer_load_factor=0.5)
    )
    seen(lambda: setup.work.made == [log] and setup.rests())
    assert setup.work.given[0]["load_factor"] == 0.5
    setup.work.urgency = {log: 1}
    setup.clock.advance(milliseconds=500)
    seen(lambda: len(setup.work.made) == 2)


def test_a_thread_that_cannot_be_started_is_told_of_and_wanted_still(
    begin: Begin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = begin()
    setup.work.urgency = {setup.logs[0]: 1}
    with monkeypatch.context() as patched:

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        setup.cleaners.start()
    assert "cleaner cannot be started" in caplog.text
    setup.cleaners.configure(setup.config)
    seen(lambda: setup.passes(DONE) == 1)


def test_of_many_threads_that_cannot_be_started_one_line_tells(
    begin: Begin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = begin(log_cleaner_threads=16)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    setup.cleaners.start()
    assert len(caplog.messages) == 1


def test_a_stop_ends_a_pass_at_its_next_step(begin: Begin) -> None:
    setup = begin(2, log_cleaner_io_max_bytes_per_second=1.0)
    a, b = setup.logs
    setup.work.urgency = {a: 2, b: 1}
    setup.work.steps = {a: long_steps(setup, [])}
    setup.cleaners.start()
    seen(lambda: setup.cleaners._excess_bytes)
    setup.cleaners.stop()
    assert (setup.work.made, setup.work.closed) == ([a], [a])
    assert setup.passes(GIVEN_UP) == 1
    setup.cleaners.configure(replace(setup.config, log_cleaner_threads=9))
    assert len(setup.cleaners._threads) == 1


@pytest.mark.parametrize(("worked", "rested"), [([], 0), ([2], 3), (range(6), 18), ([0, 4], 6)])
def test_after_a_step_while_the_loop_works_its_processor_is_free_for_others(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, worked: Sequence[int], rested: int
) -> None:
    """After each of these steps it is seen to work three times."""
    rests: list[float] = []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        setup.loop_cpu_s += 0.001 * (len(rests) % 3 != 0)

    def steps(log: Log, structural: Callable[..., Any]) -> Generator[int, None, Came]:
        for number in range(6):
            setup.loop_cpu_s += 0.001 * (number in worked)
            yield 1
        return Came()

    monkeypatch.setattr(cleaners, "_sleep", sleep)
    setup = begin()
    setup.loop_cpu_s = 7.0
    setup.work.urgency, setup.work.steps = {setup.logs[0]: 1}, {setup.logs[0]: steps}
    setup.cleaners.start()
    seen(lambda: setup.passes(DONE))
    assert rests == [REST_S] * rested


def test_a_loop_that_always_works_keeps_a_pass_waiting_for_a_moment_only(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(cleaners, "_sleep", rests.append)
    setup = begin()
    setup.cleaners._loop_cpu_s = itertools.count().__next__
    setup.work.urgency = {setup.logs[0]: 1}
    setup.cleaners.start()
    seen(lambda: setup.passes(DONE))
    assert 0 < sum(rests) < 0.002


def test_cpu_of_a_thread_is_told_to_another() -> None:
    cpu_s = cpu_clock()
    began_s = cpu_s()
    with ThreadPoolExecutor() as other:
        while other.submit(cpu_s).result() < began_s + 0.01:
            sum(range(1000))


# -- what is done on the maintenance thread ----------------------------------------------------------------------


def new_maintenance(ended: Callable[[str], None] = lambda _: None) -> Maintenance:
    return Maintenance(asyncio.get_running_loop(), Clock(), [never_due()], ended)


def never_due() -> Any:
    from tidelog.broker.maintenance import Periodic

    async def run() -> None:
        pass

    return Periodic("never", 3600, run, Clock())


async def test_a_call_is_made_on_the_maintenance_thread_and_waited_for() -> None:
    maintenance = new_maintenance()
    maintenance.start()
    assert await asyncio.to_thread(maintenance.call, lambda: threading.current_thread().name) == "maintenance"
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(maintenance.call, lambda: 1 // 0)
    maintenance.stop()


async def test_a_call_that_has_not_begun_is_given_up_at_a_stop_though_the_loop_stands_still() -> None:
    maintenance = new_maintenance()
    made: list[int] = []
    outcomes: list[BaseException] = []

    def call() -> None:
        try:
            maintenance.call(lambda: made.append(1))
        except Stopping as error:
            outcomes.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    seen(lambda: len(maintenance._called))
    maintenance.drop()
    maintenance.start()
    thread.join(10)  # which holds the loop
    assert len(outcomes) == 1
    maintenance.stop()
    assert not made


async def test_a_call_that_has_begun_is_waited_for_at_a_stop() -> None:
    maintenance = new_maintenance()
    maintenance.start()
    gate, begun = threading.Event(), threading.Event()
    running = asyncio.create_task(
        asyncio.to_thread(maintenance.call, lambda: begun.set() or (gate.wait(10) and "made"))
    )
    await until(begun.is_set)
    maintenance.drop()
    assert not running.done()
    gate.set()
    assert await running == "made"
    maintenance.stop()


async def test_a_call_whose_thread_has_ended_is_not_waited_for() -> None:
    ended: list[str] = []
    maintenance = new_maintenance(ended.append)
    maintenance.start()

    def fault() -> None:
        raise SystemExit

    with pytest.raises(StorageError):
        await asyncio.to_thread(maintenance.call, fault)
    await until(lambda: bool(ended))
    with pytest.raises(Stopping):
        await asyncio.to_thread(maintenance.call, lambda: 1)
