"""The lines that a job writes as it gets on, and where a stream ends by Ctrl-C. No Spark is started."""

import io
import os
import signal
import threading
from typing import Any

import pytest

from tests.support.logs import NOW
from tidelog.pipeline.jobs import ingest
from tidelog.pipeline.landing import Landed
from tidelog.pipeline.place import place
from tidelog.pipeline.progress import Progress, records_left


def test_a_line_says_rate_and_what_is_left() -> None:
    out = io.StringIO()
    progress = Progress("ingest", out)
    progress.batch(1000, 2.0, 500, 1.25, name="batch 3: ")
    progress.batch(0, 0.0, 7)
    progress.batch(5, 1.0)
    progress.batch(5, 1.0, 0, 0.0)
    assert out.getvalue().splitlines() == [
        "ingest: batch 3: 1,000 rows, 500 rows/s, 500 records and 1.2 s behind, ETA 1s",
        "ingest: 0 rows, 0 rows/s, 7 records behind",
        "ingest: 5 rows, 5 rows/s",
        "ingest: 5 rows, 5 rows/s, 0 records and 0.0 s behind, ETA 0ms",
    ]


def test_a_long_job_tells_now_and_then_and_at_the_end() -> None:
    out, twice, counted = io.StringIO(), threading.Event(), [0]

    def count() -> int:
        counted[0] += 1
        if counted[0] == 2:
            twice.set()
        return counted[0]

    with Progress("job", out).watching(count, 10, every_s=0.001):
        assert twice.wait(10)
    lines = out.getvalue().splitlines()
    assert "9 records behind" in lines[0]
    assert "0 records behind, ETA 0ms" in lines[-1]
    assert len(lines) == counted[0]


def test_nothing_is_said_at_the_end_of_what_failed() -> None:
    out = io.StringIO()
    with pytest.raises(KeyError), Progress("job", out).watching(lambda: 1, 10):
        raise KeyError
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("end", "latest", "left"),
    [
        ('{"0": 5, "1": 7}', '{"0": 9, "1": 7}', 4),
        ('{"0": 5}', '{"0": 9, "1": 7}', 11),
        ({"0": 9}, '{"0": 5}', 0),
        (None, '{"0": 5}', None),
        ('{"0": 5}', None, None),
        ('"x"', '{"0": {"a": 1}}', None),
    ],
)
def test_records_left_by_what_spark_reports(end: Any, latest: Any, left: int | None) -> None:
    assert records_left({"endOffset": end, "latestOffset": latest}) == left


class Query:
    """A stream that does a batch each time that it is waited for, of which each takes two looks."""

    def __init__(
        self,
        batches: int,
        *,
        is_busy: bool = False,
        is_at_end: bool = False,
        error: Exception | None = None,
    ) -> None:
        self._is_at_end = is_at_end
        self.recentProgress: list[dict[str, Any]] = []
        self.isActive = True
        self.status = {"isTriggerActive": is_busy}
        self._left = batches
        self._error = error

    def awaitTermination(self, timeout: float | None = None) -> None:
        if self._left == 0:
            self.isActive = False
            if self._error is not None:
                raise self._error
            return
        self._left -= 1
        sources = [{"endOffset": f'{{"0": {3 if self._is_at_end else 1}}}', "latestOffset": '{"0": 3}'}]
        number = len(self.recentProgress)
        self.recentProgress.append(
            {
                "batchId": number,
                "numInputRows": 2,
                "durationMs": {"triggerExecution": 500},
                "sources": sources,
            }
        )

    def stop(self) -> None:
        self.isActive = False


def follow(query: Query, is_over: Any = lambda: False) -> tuple[bool, list[str]]:
    out = io.StringIO()
    found = ingest.follow(query, Progress("ingest", out), is_over, lambda: 2.5)  # type: ignore[arg-type]
    return found, out.getvalue().splitlines()


def test_a_stream_is_told_batch_by_batch_to_its_end() -> None:
    is_whole, lines = follow(Query(2))
    assert is_whole
    line = "2 rows, 4 rows/s, 2 records and 2.5 s behind, ETA 0ms"
    assert lines == [f"ingest: batch 0: {line}", f"ingest: batch 1: {line}"]


def test_who_is_at_the_end_is_not_behind_however_old_the_last_record_is() -> None:
    _, (line,) = follow(Query(1, is_at_end=True))
    assert "0 records and 0.0 s behind" in line


def test_a_stream_that_fails_raises_what_it_ended_by() -> None:
    with pytest.raises(ValueError, match="why"):
        follow(Query(1, error=ValueError("why")))


@pytest.mark.parametrize(("is_busy", "batches"), [(False, 1), (True, 2)])
def test_ctrl_c_ends_behind_a_batch(is_busy: bool, batches: int) -> None:
    query = Query(9, is_busy=is_busy)
    is_whole, lines = follow(query, lambda: True)
    assert not is_whole
    assert len(query.recentProgress) == batches  # a busy one does what it is at
    assert lines[-1] == f"ingest: stopped behind batch {batches - 1}; the same command goes on from there"


def test_ctrl_c_is_noted_once_and_the_second_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ingest._interrupts() as interrupted:
        assert not interrupted.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_age_of_what_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    landed = [Landed("a", 0, 3, 9, NOW - 1500), Landed("b", 1, 3, 9, NOW - 9000), Landed("c", 2, 1, 9, None)]
    monkeypatch.setattr(ingest.landing, "stage", lambda *_: landed)
    monkeypatch.setattr(ingest.landing, "put", lambda *_: [])
    monkeypatch.setattr(ingest, "now_ms", lambda: NOW)
    written = ingest.Written(place("--out", str(tmp_path)), "parquet", lambda: "s")
    assert written.age_s() is None
    written.batch(None, 0)  # type: ignore[arg-type]
    assert (written.rows, written.batches, written.age_s()) == (7, 1, 1.5)
