"""The data pipeline on Spark, over the log's own files or a broker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Have a session know the source: `spark.read.format("tidelog")`."""
    from tidelog.pipeline.source import TidelogSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # without it Spark refuses the source
    spark.dataSource.register(TidelogSource)
