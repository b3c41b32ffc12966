"""The data pipeline over the log's own files or a broker: a source and a sink of Spark, and jobs."""

import os
import sys
from typing import TYPE_CHECKING

from tidelog.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OLDEST = (4, 2)  # the first PySpark in which a Python source can limit the batches of a stream


def demand_spark() -> None:
    """Raise PipelineError if PySpark is missing or too old."""
    version = _spark_version()
    if version is None or tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        why = "PySpark is not installed" if version is None else f"PySpark {version} is too old"
        raise PipelineError(f"{why}: this needs {oldest} or newer; pip install 'pyspark>={oldest}'")


def _spark_version() -> str | None:
    """Return the version of PySpark. Importing it is slow, so its metadata is tried first."""
    from importlib import metadata

    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        pass
    try:  # an unpacked Spark on PYTHONPATH has no metadata
        from pyspark import __version__
    except ImportError:
        return None
    return str(__version__)


def demand_classic(spark: "SparkSession") -> None:
    """Raise PipelineError for a session of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise PipelineError(
            "this is a session of Spark Connect, which the pipeline does not support; run the program on the driver, "
            "with a classic session: SparkSession.builder.master(...), no remote(...), and SPARK_REMOTE not set"
        )


def register(spark: "SparkSession") -> None:
    """Register the source and the sink with a session: `spark.read.format("tidelog")` and `df.write.format("tidelog")`.

    If a process has several sessions, Spark keeps the registration of one of them only. PipelineError if PySpark is
    too old or the session is one of Spark Connect.
    """
    demand_spark()
    demand_classic(spark)
    from tidelog.pipeline.source import TidelogSource

    context = spark.sparkContext
    before = context.pythonExec
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        # Only for the source: the default interpreter may not have this package.
        context.pythonExec = sys.executable
    try:
        spark.dataSource.register(TidelogSource)
    finally:
        context.pythonExec = before
