"""From records to their keys: the latest record of each, and how far each was delivered.

Knows nothing of where records come from. A key is one of its partition: offsets of two partitions cannot be compared.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

KEY = ("partition", "key")
VALUES = ("value", "create_time")


def latest(records: DataFrame) -> DataFrame:
    """Return the last record of each key: partition, key, offset, value, create_time; without a key there is none."""
    newest = f.max_by(f.struct(*VALUES), "offset").alias("newest")
    found = records.where("key IS NOT NULL").groupBy(*KEY).agg(f.max("offset").alias("offset"), newest)
    return found.select(*KEY, "offset", *(f.col(f"newest.{name}").alias(name) for name in VALUES))


def behind(records: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return the keys of which not all is delivered, of the columns partition, offset, key and create_time.

    `bounds` has of each partition the offset that is read `next` and the `end`. A row has the last offset `produced`,
    the last `delivered`, how many records are `behind`, and offset and time of the first of these.
    """
    found = records.join(f.broadcast(bounds), "partition").where("offset < end")
    is_left = f.col("offset") >= f.col("next")

    def left(column: str) -> Column:
        return f.when(is_left, f.col(column))

    counted = found.groupBy(*KEY).agg(
        f.max(left("offset")).alias("produced"),
        f.max(f.when(~is_left, f.col("offset"))).alias("delivered"),
        f.count(left("offset")).alias("behind"),
        f.min(left("offset")).alias("first"),
        f.unix_millis(f.min_by("create_time", left("offset"))).alias("first_ms"),
    )
    return counted.where("behind > 0")


def passed(records: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return how many records each partition has before the offset that is read next."""
    found = records.select("partition", "offset").join(f.broadcast(bounds), "partition")
    return found.where("offset < next").groupBy("partition").agg(f.count("offset").alias("n"))
