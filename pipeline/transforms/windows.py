"""Windows of time, and the delays of the records in each.

Windows are aligned to the epoch. A window is named by its start in ms since the epoch, null for records without a time.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from tidelog.pipeline.tables import IS_BOUND

# The upper bounds of a histogram's buckets, in ms; one more bucket has the rest.
STEPS_MS: Final = (
    0,
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    60_000,
    600_000,
    3_600_000,
)


def window_of(time: str, window_ms: int) -> Column:
    """Return the start of the window of each time in a column."""
    at_ms = F.unix_millis(time)
    return at_ms - F.pmod(at_ms, F.lit(window_ms))


def delay_ms() -> Column:
    """Return the delay from create time to append time; null if one of the two is unknown."""
    is_known = F.col("timestamp_type") == "CreateTime"
    return F.when(is_known, F.unix_millis("append_time") - F.unix_millis("create_time"))


def without_bounds(records: DataFrame) -> DataFrame:
    """Set append times to null that are only bounds, if the records have column `is_append_bound`; drop that column."""
    if IS_BOUND not in records.columns:
        return records
    return records.withColumn("append_time", F.when(~F.col(IS_BOUND), F.col("append_time"))).drop(IS_BOUND)


def with_bytes(records: DataFrame) -> DataFrame:
    """Replace key and value by `bytes`, the sum of their sizes."""
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value")]
    return records.withColumn("bytes", sizes[0] + sizes[1]).drop("key", "value")


def delays(records: DataFrame, window_ms: int) -> DataFrame:
    """Return the delays from create time to append time, by window of append time.

    Columns are `window, n, unknown, min_ms, p50_ms, p99_ms, p999_ms, max_ms, histogram`. The histogram counts the
    delays in each bucket of `STEPS_MS` and in one more; histograms can be added up. A delay is negative if a producer's
    clock was ahead. `unknown` counts records with only one of the two times. With LogAppendTime a record has no create
    time. A bound is no append time: the window is null.
    """
    known = without_bounds(records).select(
        window_of("append_time", window_ms).alias("window"), delay_ms().alias("delay")
    )
    lower = (None, *STEPS_MS)
    steps = [_between(low, high) for low, high in zip(lower, (*STEPS_MS, None), strict=True)]
    quantiles = F.percentile_approx("delay", [0.5, 0.99, 0.999], 10_000)
    found = known.groupBy("window").agg(
        F.count("delay").alias("n"),
        F.count_if(F.col("delay").isNull()).alias("unknown"),
        F.min("delay").alias("min_ms"),
        quantiles.alias("quantiles"),
        F.max("delay").alias("max_ms"),
        F.array(*steps).alias("histogram"),
    )
    named = [
        F.col("quantiles")[number].alias(name) for number, name in enumerate(("p50_ms", "p99_ms", "p999_ms"))
    ]
    return found.select("window", "n", "unknown", "min_ms", *named, "max_ms", "histogram").orderBy("window")


def largest_delays(records: DataFrame) -> DataFrame:
    """Return `partition, n, unknown, max_ms`: the largest append time minus create time in each partition.

    It is negative if all producers' clocks were ahead. An append time that is an upper bound counts as exact, because
    it cannot make the result too small. `unknown` counts records with only one of the two times.
    """
    delays = records.select("partition", delay_ms().alias("delay")).groupBy("partition")
    found = delays.agg(
        F.count("delay").alias("n"),
        F.count_if(F.col("delay").isNull()).alias("unknown"),
        F.max("delay").alias("max_ms"),
    )
    return found.orderBy("partition")


def _between(low: int | None, high: int | None) -> Column:
    delay = F.col("delay")
    is_over = F.lit(True) if low is None else delay > low
    return F.count_if(is_over if high is None else is_over & (delay <= high))
