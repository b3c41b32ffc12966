"""Ctrl-C while a job runs: between calls to Spark, within one, and while a session is made."""

import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipeline.jobs import run
from tests.support.broker import wait_until
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.parts import ctrl_c
from tidelog.pipeline.jobs.parts.flags import JobFlags


def pressed() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def in_spark(does: Callable[[], Any]) -> Any:
    """Call something as the client of Spark's Java does."""
    made: dict[str, Any] = {"__name__": "py4j.clientserver"}
    exec("def call(does):\n    return does()", made)
    return made["call"](does)


class Context:
    """Has jobs to cancel; the first time it does not work."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.is_done = threading.Event()

    def cancelAllJobs(self) -> None:
        self.cancelled += 1
        if self.cancelled == 1:
            raise OSError("too early")
        self.is_done.set()


def installed() -> ctrl_c.CtrlC:
    found = ctrl_c.installed()
    assert found is not None
    return found


def job(*steps: Callable[[], Any]) -> None:
    with ctrl_c.handled():
        for step in steps:
            step()


def test_between_calls_to_spark_it_ends_at_once_and_others_hear_it_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        job(pressed)
    assert signal.getsignal(signal.SIGINT) is before
    assert ctrl_c.installed() is None


def test_a_call_to_spark_is_left_to_end_by_its_jobs_being_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctrl_c, "EVERY_S", 0.001)
    context = Context()

    def call() -> None:
        pressed()
        assert context.is_done.wait(30)
        raise OSError("the job was cancelled")

    spark: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(KeyboardInterrupt) as raised:
        job(lambda: installed().install(spark), lambda: in_spark(call))
    assert raised.value.__suppress_context__
    assert context.cancelled >= 2
    assert "ctrl-c" not in {thread.name for thread in threading.enumerate()}, "it could cancel later jobs"


def test_a_second_one_ends_at_once_and_an_error_is_one_where_nobody_asked() -> None:
    with pytest.raises(KeyboardInterrupt):
        job(lambda: in_spark(pressed), lambda: in_spark(pressed))
    with pytest.raises(OSError, match="by itself"), ctrl_c.handled():
        raise OSError("by itself")


def test_while_a_session_is_made_it_ends_behind_that() -> None:
    spark: Any = SimpleNamespace(sparkContext=Context())

    def session() -> None:
        mine = installed()
        in_spark(pressed)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark's context does
        mine.install(spark)

    with pytest.raises(KeyboardInterrupt):
        job(session)


def test_in_the_background_and_in_other_threads_nothing_is_handled() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ctrl_c.handled():
            assert ctrl_c.installed() is None
    finally:
        signal.signal(signal.SIGINT, before)
    found: list[Any] = []

    def other() -> None:
        with ctrl_c.handled():
            found.append(ctrl_c.installed())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [None]


def test_a_job_says_so_in_a_line(
    spark: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's own words of it, and those of the client of its Java, are not seen."""

    def job(asked: JobFlags, *_: Any) -> int:
        made = asked.session()
        tracker = made.sparkContext.statusTracker()

        def press() -> None:
            wait_until(lambda: bool(tracker.getActiveJobsIds()), 60)
            pressed()

        presses = threading.Thread(target=press)
        presses.start()
        try:
            made.range(1 << 50).selectExpr("sum(hash(id))").collect()
        finally:
            presses.join()
        return 0

    monkeypatch.setattr(audit, "run", job)
    ran = run(capsys, "audit")
    assert (ran.status, ran.out, ran.err) == (130, "", "audit: ended by Ctrl-C before it was done\n")
    assert not caplog.records
    assert spark.range(3).count() == 3
