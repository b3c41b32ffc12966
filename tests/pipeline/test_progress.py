"""The lines that a job writes as it gets on, and where a stream ends by Ctrl-C. No Spark is started."""

import io
import json
import os
import re
import signal
import threading
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.logs import NOW
from tidelog.pipeline.jobs import ingest
from tidelog.pipeline.jobs.parts import following
from tidelog.pipeline.jobs.parts.following import Stop
from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import place
from tidelog.pipeline.jobs.parts.progress import Progress, records_left
from tidelog.pipeline.jobs.parts.table_out import Form


def test_a_line_says_rate_and_what_is_left() -> None:
    out = io.StringIO()
    progress = Progress("ingest", out)
    progress.batch(1000, 2.0, 500, 1.25, name="batch 3: ")
    progress.batch(0, 0.0, 7)
    progress.batch(5, 1.0)
    progress.batch(5, 1.0, 0, 0.0)
    progress.batch(5, 1.0, 0, 35_634_342.198)
    assert out.getvalue().splitlines() == [
        "ingest: batch 3: 1,000 rows, 500 rows/s, 500 records and 1.2 s behind, ETA 1s",
        "ingest: 0 rows, 0 rows/s, 7 records behind",
        "ingest: 5 rows, 5 rows/s",
        "ingest: 5 rows, 5 rows/s, 0 records and 0.0 s behind, ETA 0ms",
        "ingest: 5 rows, 5 rows/s, 0 records and 412d 10h behind, ETA 0ms",
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
    assert re.fullmatch(r"job: 1 rows, [\d,]+ rows/s, 9 left at most, ETA \w+", lines[0])
    assert re.fullmatch(r"job: [\d,]+ rows, [\d,]+ rows/s", lines[-1])
    assert len(lines) == counted[0]


def test_nothing_is_said_at_the_end_of_what_failed() -> None:
    out = io.StringIO()
    with pytest.raises(KeyError), Progress("job", out).watching(lambda: 1, 10):
        raise KeyError
    assert out.getvalue() == ""


def offsets(**offsets: int) -> str:
    """Offsets as Spark reports them of our source."""
    partitions = {name.removeprefix("p"): offset for name, offset in offsets.items()}
    return json.dumps({"topic": "t", "topic_id": "ab", "partitions": partitions})


@pytest.mark.parametrize(
    ("end", "latest", "left"),
    [
        (offsets(p0=5, p1=7), offsets(p0=9, p1=7), 4),
        (offsets(p0=5), offsets(p0=9, p1=7), 11),
        (offsets(p0=9), offsets(p0=5), 0),
        (None, offsets(p0=5), None),
        (offsets(p0=5), "null", None),
        (offsets(p0=5), "None", None),
        ('{"0": 5}', '{"0": 9}', None),
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
        if not self.isActive:
            return
        if self._left == 0:
            self.isActive = False
            if self._error is not None:
                raise self._error
            return
        self._left -= 1
        sources = [{"endOffset": offsets(p0=3 if self._is_at_end else 1), "latestOffset": offsets(p0=3)}]
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


def follow(query: Query, stop: Stop | None = None) -> tuple[bool, list[str]]:
    out = io.StringIO()
    found = following.follow(query, Progress("ingest", out), stop or Stop(), lambda: 2.5)  # type: ignore[arg-type]
    return found, out.getvalue().splitlines()


def asked() -> Stop:
    stop = Stop()
    stop.is_asked = True
    return stop


def test_a_stream_is_reported_batch_by_batch_to_its_end() -> None:
    is_whole, lines = follow(Query(2))
    assert is_whole
    line = "2 rows, 4 rows/s, 2 records and 2.5 s behind, ETA 0ms"
    assert lines == [f"ingest: batch 0: {line}", f"ingest: batch 1: {line}"]


def test_who_is_at_the_end_is_not_behind_however_old_the_last_record_is() -> None:
    _, (line,) = follow(Query(1, is_at_end=True))
    assert "0 records and 0.0 s behind" in line


@pytest.mark.parametrize("stop", [Stop(), asked()])
def test_a_stream_that_fails_raises_what_it_ended_by(stop: Stop) -> None:
    with pytest.raises(StreamingQueryException, match="why"):
        follow(Query(1, is_busy=True, error=StreamingQueryException("why")), stop)


def test_ctrl_c_between_batches_ends_at_once() -> None:
    query = Query(9)
    is_whole, lines = follow(query, asked())
    assert not is_whole
    assert len(query.recentProgress) == 1
    assert lines[-1] == "ingest: stopped after batch 0; the same command continues from there"


def test_ctrl_c_in_a_batch_ends_by_declining_the_next() -> None:
    stop, done = asked(), []
    stop.is_asked = False
    batch = stop.guarded(lambda frame, number: done.append(number))
    batch(None, 0)  # type: ignore[arg-type]
    stop.is_asked = True
    with pytest.raises(following._Declined):
        batch(None, 1)  # type: ignore[arg-type]
    assert done == [0]
    is_whole, lines = follow(Query(1, is_busy=True, error=StreamingQueryException("declined")), stop)
    assert not is_whole
    assert lines[0] == "ingest: batch 0: 2 rows, 4 rows/s, 2 records and 2.5 s behind, ETA 0ms"
    assert lines[1:] == [
        "ingest: ends after the current batch; another Ctrl-C ends it at once",
        "ingest: stopped after batch 0; the same command continues from there",
    ]


def test_ctrl_c_before_there_was_a_batch() -> None:
    stop = asked()
    stop.has_declined = True
    _, lines = follow(Query(0), stop)
    assert lines == ["ingest: stopped before the first batch; the same command continues from there"]


def test_ctrl_c_is_noted_once_and_the_second_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = Stop()
    with stop.by_ctrl_c():
        assert not stop.is_asked
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_age_of_what_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    landed = [Landed("a", 0, 3, 9, NOW - 1500), Landed("b", 1, 3, 9, NOW - 9000), Landed("c", 2, 1, 9, None)]
    monkeypatch.setattr(ingest.staging, "stage", lambda *_: landed)
    monkeypatch.setattr(ingest.landing, "put", lambda *_, **__: [])
    monkeypatch.setattr(ingest, "now_ms", lambda: NOW)
    written = ingest.Written(place("--out", str(tmp_path)), Form())
    assert written.age_s() is None
    written.batch(None, 0, "s", False)  # type: ignore[arg-type]
    assert (written.rows, written.batches, written.age_s()) == (7, 1, 1.5)
