"""A Spark standalone cluster on loopback: a master, and workers whose executors are processes of their own.

Owns: the processes, and which executors ran what of a job, as Spark's log of events has it. Refuses to know:
what the jobs are.
Invariant: used as a context manager it leaves no process behind, nor one that its workers started.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pyspark

from tests.support.broker import environment, wait_until
from tests.support.java import QUICK

SPARK_HOME = Path(pyspark.__file__).parent
_MARK = "TIDELOG_TEST_WORKERS"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


class Workers:
    """One master and some workers, each with a core, so that a job of that many cores has an executor on each."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self._folder, self._count = folder, count
        self._started: list[subprocess.Popen[bytes]] = []
        self._mark = uuid4().hex
        self._master = ""

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings of a job that runs here, once all its executors are there."""
        quick = " ".join(each for each in QUICK if "Xmx" not in each)
        return {
            "spark.master": self._master,
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": str(self._count),
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": quick,
            "spark.executor.extraJavaOptions": quick,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }

    def run(self, *command: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a program that is the driver of a job, to its end."""
        return subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def executors(self) -> dict[str, set[str]]:
        """Return which executors ran tasks, by what the jobs were for (their description, empty for none)."""
        found: dict[str, set[str]] = defaultdict(set)
        for log in self._events.iterdir():
            stages: dict[int, str] = {}
            for event in map(json.loads, log.read_text().splitlines()):
                if event["Event"] == "SparkListenerJobStart":
                    told = event["Properties"].get("spark.job.description", "")
                    stages |= dict.fromkeys(event["Stage IDs"], told)
                if event["Event"] == "SparkListenerTaskEnd":
                    found[stages[event["Stage ID"]]].add(event["Task Info"]["Executor ID"])
            log.unlink()
        return found

    def executor_pids(self) -> set[int]:
        """Return the processes that are executors now."""
        return {pid for pid, command in self._processes() if "CoarseGrainedExecutorBackend" in command}

    @property
    def _events(self) -> Path:
        return self._folder / "events"

    @property
    def _environment(self) -> dict[str, str]:
        ours = {"SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(self._folder / "tmp"), _MARK: self._mark}
        return environment() | ours

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        """Start a part of the cluster, of a process group of its own; return what it prints to."""
        home = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_DIRS": str(self._folder / "tmp")}
        home["SPARK_SCALA_VERSION"] = "2.13"  # which Spark's own scripts would set
        printed = self._folder / f"{name}.log"
        with printed.open("wb") as output:
            self._started.append(
                subprocess.Popen(
                    [
                        *("java", *QUICK, "-cp", f"{SPARK_HOME}/jars/*", f"org.apache.spark.deploy.{main}"),
                        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments),
                    ],
                    cwd=self._folder,
                    env=self._environment | home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return printed

    def _wait(self, printed: Path, words: str, count: int = 1) -> str:
        """Wait until a part has printed words so many times; return all that it has printed."""

        def is_there() -> bool:
            ended = [each.args for each in self._started if each.poll() is not None]
            assert not ended, f"{ended} ended:\n{printed.read_text()}"
            return printed.read_text().count(words) >= count

        wait_until(is_there, 60)
        return printed.read_text()

    def _processes(self) -> list[tuple[int, str]]:
        """Return all processes that were started here, or by what was, and their command lines."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended, or another's
                if f"{_MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append((int(folder.name), command))
        return found

    def __enter__(self) -> Self:
        for name in ("events", "tmp"):
            (self._folder / name).mkdir(parents=True)
        try:
            master = self._start("master", "master.Master")
            found = _MASTER.search(self._wait(master, "I have been elected leader"))
            assert found is not None
            self._master = found[1]
            for number in range(self._count):
                work = str(self._folder / f"work-{number}")
                self._start(
                    f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", work,
                    self._master,
                )  # fmt: skip
            self._wait(master, "Registering worker", self._count)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        # Executors are of their worker's process group; workers of Python's end once these are gone.
        for each in self._started:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        wait_until(lambda: not self._processes())


def as_flags(settings: Mapping[str, str]) -> Sequence[str]:
    """Return settings of Spark's as the commands take them."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def acts(workers: Workers, wanted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Have a driver do what `on_workers` does; return what it says of each act, by name."""
    program = Path(__file__).with_name("on_workers.py")
    done = workers.run(sys.executable, str(program), json.dumps(workers.settings), json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
