"""A Spark standalone cluster on loopback: a master, and workers whose executors are processes of their own.

Invariant: used as a context manager it leaves no process behind, nor one that its workers started.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
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
        }

    def run(self, *command: str) -> str:
        """Run a program that is the driver of a job, to its end; return what it prints."""
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

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

    def _has_processes(self) -> bool:
        """Tell whether a process runs that was started here, or by one that was."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended, or another's
                if f"{_MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                    return True
        return False

    def __enter__(self) -> Self:
        (self._folder / "tmp").mkdir(parents=True)
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
        wait_until(lambda: not self._has_processes())
