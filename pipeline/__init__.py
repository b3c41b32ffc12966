"""The data pipeline on Spark, over the log's own files or a broker."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Have a session know the source and the sink: `spark.read.format("tidelog")`, and `df.write`.

    Of several sessions in one process Spark takes it from one only.
    """
    from tidelog.pipeline.source import TidelogSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # without it Spark refuses the source
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
