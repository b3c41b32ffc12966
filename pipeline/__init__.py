"""The data pipeline on Spark, over the log's own files or a broker."""

import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from tidelog.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OLDEST = (4, 2)  # PySpark: the first that has limits for streams of sources in Python


def demand_spark() -> None:
    """PipelineError where PySpark is missing, or its version is too old for the source."""
    version = _spark_version()
    if version is None or tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        why = "PySpark is not installed" if version is None else f"PySpark {version} is too old"
        raise PipelineError(f"{why}: the pipeline needs {oldest} or newer; pip install 'pyspark>={oldest}'")


def _spark_version() -> str | None:
    """Return the version of PySpark, if possible without loading it, which takes a while."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        pass
    try:  # PYTHONPATH may lead to the PySpark of an unpacked Spark
        from pyspark import __version__
    except ImportError:
        return None
    return str(__version__)


def demand_classic(spark: "SparkSession") -> None:
    """PipelineError where a session is one of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise PipelineError(
            "this is a session of Spark Connect, which the pipeline does not support; run the program on the driver, "
            "with a classic session: SparkSession.builder.master(...), no remote(...), and SPARK_REMOTE not set"
        )


def register(spark: "SparkSession") -> None:
    """Have a session know the source and the sink: `spark.read.format("tidelog")`, and `df.write`.

    Of several sessions in one process Spark takes it from one only. PipelineError where PySpark is too old, or the
    session is one of Spark Connect.
    """
    demand_spark()
    demand_classic(spark)
    from tidelog.pipeline.source import TidelogSource

    context = spark.sparkContext
    theirs = context.pythonExec
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = (
            sys.executable
        )  # for the source alone: another interpreter may not have this package
    try:
        spark.dataSource.register(TidelogSource)
    finally:
        context.pythonExec = theirs
