"""The latest record of each key. The same key in two partitions is two keys: their offsets cannot be compared."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

KEY = ("partition", "key")
VALUES = ("value", "create_time")


def latest(records: DataFrame) -> DataFrame:
    """Return the last record of each key: partition, key, offset, value, create_time. Drops records without a key."""
    newest = f.max_by(f.struct(*VALUES), "offset").alias("newest")
    found = records.where("key IS NOT NULL").groupBy(*KEY).agg(f.max("offset").alias("offset"), newest)
    return found.select(*KEY, "offset", *(f.col(f"newest.{name}").alias(name) for name in VALUES))
