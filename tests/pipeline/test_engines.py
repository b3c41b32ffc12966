"""The engine of a job: which one is taken, what each gives back, and runs that are killed. No Spark is started."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.jobs import a_topic, run
from tests.support.broker import Broker
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs.parts import ctrl_c, engines
from tidelog.pipeline.jobs.parts.engines import LOCAL_BYTES, Threads, is_local
from tidelog.pipeline.jobs.parts.flags import JobFlags

Captured = pytest.CaptureFixture[str]


def test_results_are_in_the_order_of_the_items() -> None:
    assert Threads().each(lambda item: -item, range(100)) == [-item for item in range(100)]
    assert Threads().each(lambda item: item, []) == []
    assert 1 <= Threads().cores <= engines.THREADS


@pytest.mark.parametrize("error", [PipelineError, KeyboardInterrupt])
def test_after_an_error_no_task_begins(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    monkeypatch.setattr(engines, "THREADS", 1)
    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise error("at 2")

    with pytest.raises(error, match="at 2"):
        Threads().each(work, range(1000))
    assert begun == [0, 1, 2]
    assert not [each for each in threading.enumerate() if each.name.startswith("task")]


def test_ctrl_c_waits_for_the_tasks_under_way_alone() -> None:
    begun, ended, all_waiting = [], [], threading.Event()

    class Items(list[int]):
        def __iter__(self) -> Iterator[int]:
            yield from super().__iter__()
            all_waiting.set()

    def work(item: int) -> None:
        begun.append(item)
        if item >= 5:
            all_waiting.wait(60)
        if item == 5:
            os.kill(os.getpid(), signal.SIGINT)
        ended.append(item)

    with pytest.raises(KeyboardInterrupt), ctrl_c.handled():
        Threads().each(work, Items(range(100_000)))
    assert len(begun) == len(ended) < 100_000


def test_a_ctrl_c_whose_exception_was_lost_ends_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "THREADS", 1)
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            handler = ctrl_c.installed()
            assert handler is not None
            handler.is_asked = True

    with pytest.raises(KeyboardInterrupt), ctrl_c.handled():
        Threads().each(work, range(1000))
    assert begun == [0, 1, 2]


def test_small_reads_stay_here_and_large_ones_go_to_spark_where_it_has_more_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def local(engine: str = "auto", size: int = 1 << 50, **given: bool) -> bool:
        return is_local(engine, size, **{"has_settings": False, **given})

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/java")
    monkeypatch.setattr(engines.os, "cpu_count", lambda: 16)
    assert not local()
    assert local(size=LOCAL_BYTES)
    assert local("local")
    assert not local("spark", 0)
    assert not local(size=0, has_settings=True)
    monkeypatch.setattr(engines.os, "cpu_count", lambda: 4)
    assert local()
    monkeypatch.setattr(engines.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(engines.util, "find_spec", lambda name: None)
    assert local(), "PySpark is not installed"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not local(size=0), "spark-submit has started Spark"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit --engine jvm", "--engine: 'jvm' is none of auto, local, spark"),
        ("audit --engine local --conf spark.master=local[1]", "--conf: its settings are for Spark"),
        (
            "audit --engine local --against parquet:x",
            "--engine: --against needs Spark; leave out --engine local",
        ),
        ("backfill --engine local --decode json --schema a=int", "--engine: --decode json needs Spark"),
        ("latency --engine local", "--engine: this job needs Spark; leave out --engine local"),
    ],
)
def test_what_needs_spark_does_not_run_without(
    capsys: Captured, tmp_path: Path, line: str, said: str
) -> None:
    source = f"segments:{a_topic(tmp_path / 'data', partitions=1)}"
    ran = run(
        capsys, line, "--source", source, "--topic", "t", *["--out", str(tmp_path)] * ("backfill" in line)
    )
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err.splitlines()[-1]


def test_a_broker_is_read_in_threads_too(
    capsys: Captured, tmp_path: Path, broker: Broker, client: RawClient, topic: str
) -> None:
    client.create(topic, 3)
    for partition in range(3):
        client.produce(topic, batch([NOW] * (partition + 1)), partition)
    line = ("--source", f"broker:{broker.address}", "--topic", topic, "--engine", "local", "--json")
    ran = run(capsys, "audit", *line)
    assert [(row["partition"], row["n"]) for row in ran.rows] == [(0, 1), (1, 2), (2, 3)]
    ran = run(capsys, "backfill --out", str(tmp_path), *line)
    assert (ran.status, ran.rows[0]["rows"]) == (0, 6)


_WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from importlib import metadata
version = metadata.version
def missing(name):
    if name == "pyspark":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = missing
from tidelog.cli import pipeline
line = sys.argv[1:]
for job in (["audit"], ["archive", "--out", "a"], ["backfill", "--out", "b", "--decode", "string", "--by-date"]):
    assert pipeline.run_job([*job, *line]) == 0, job
sys.exit(pipeline.run_job(["latency", *line]))
"""


def test_without_pyspark_jobs_run_here_or_say_what_is_missing(tmp_path: Path) -> None:
    source = f"segments:{a_topic(tmp_path / 'data', partitions=1)}"
    command = [sys.executable, "-c", _WITHOUT_PYSPARK, "--source", source, "--topic", "t", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "tidelog: PySpark is not installed: this needs 4.2 or newer; pip install 'pyspark>=4.2'"
    )
    assert list((tmp_path / "b").glob("date=*/*.parquet"))


def test_a_session_is_not_made_for_the_local_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobFlags, "session", None)
    assert isinstance(JobFlags(engine="local").engine_for(1 << 50), Threads)
