"""How late records came at most, by partition."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from tidelog.pipeline.transforms.windows import delay_ms


def largest(records: DataFrame) -> DataFrame:
    """Return `partition, n, unknown, max_ms`: the largest append time less create time of a partition's records.

    Negative where all producers' clocks were ahead. An append time that is a bound, then or earlier, makes it no
    smaller, so it is taken for one. Unknown counts records of which only one of the two times is told.
    """
    return (
        records.select("partition", delay_ms().alias("delay"))
        .groupBy("partition")
        .agg(
            F.count("delay").alias("n"),
            F.count_if(F.col("delay").isNull()).alias("unknown"),
            F.max("delay").alias("max_ms"),
        )
        .orderBy("partition")
    )
