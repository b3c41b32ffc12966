"""Windows of time: how many records each has, and how late they came.

Windows are aligned to the epoch. The start of one is in ms since then, null for records without a time.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from tidelog.pipeline.tables import IS_BOUND

DATE: Final = "date"
_DAY_MS: Final = 24 * 3600 * 1000
# A date has four digits for the year, or few can read it: a clock that counts in other units gives later years.
_END_MS: Final = 253_402_300_800_000
# Upper ends of the steps of a histogram of delays, in ms; what is more is in one more.
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
    """Return the start of the window that a column of times is in."""
    at_ms = F.unix_millis(time)
    return at_ms - F.pmod(at_ms, F.lit(window_ms))


def with_date(records: DataFrame, time: str) -> DataFrame:
    """Return the records with the date, in UTC, of a column of times; null without a time, or for one past 9999."""
    days = (window_of(time, _DAY_MS) / _DAY_MS).cast("int")
    return records.withColumn(DATE, F.when(F.unix_millis(time) < _END_MS, F.date_from_unix_date(days)))


def delay_ms() -> Column:
    """Return how long after its making a record was appended; null if one of the two times is not known."""
    is_known = F.col("timestamp_type") == "CreateTime"
    return F.when(is_known, F.unix_millis("append_time") - F.unix_millis("create_time"))


def without_bounds(records: DataFrame) -> DataFrame:
    """Return records whose append time is null where it is only a bound, if they have the column that says so."""
    if IS_BOUND not in records.columns:
        return records
    return records.withColumn("append_time", F.when(~F.col(IS_BOUND), F.col("append_time"))).drop(IS_BOUND)


def with_bytes(records: DataFrame) -> DataFrame:
    """Return records with `bytes`, those of key and value, in the place of the two."""
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value")]
    return records.withColumn("bytes", sizes[0] + sizes[1]).drop("key", "value")


def counts(records: DataFrame, window_ms: int) -> DataFrame:
    """Return `partition, window, n`: how many records of a partition were created in each window that has any.

    And `bytes`, their sum, if records have it.
    """
    window = window_of("create_time", window_ms).alias("window")
    columns = [
        F.count("*").alias("n"),
        *(F.sum(name).alias(name) for name in ("bytes",) if name in records.columns),
    ]
    return records.groupBy("partition", window).agg(*columns).orderBy("partition", "window")


def delays(records: DataFrame, window_ms: int) -> DataFrame:
    """Return how long after their making records were appended, by window of append time.

    `window, n, unknown, min_ms, p50_ms, p99_ms, p999_ms, max_ms, histogram`: the histogram has how many took as long
    as each of `STEPS_MS` or less, but longer than the one before, and those that took longer; it can be added up.
    Negative where a producer's clock was ahead. Unknown where one of the two times is not known: a record that is
    stamped when it is appended has only that one, and a bound is no append time: its window is null.
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
    """Return `partition, n, unknown, max_ms`: the largest append time less create time of a partition's records.

    Negative where all producers' clocks were ahead. An append time that is a bound, then or earlier, makes it no
    smaller, so it is taken for one. Unknown counts records of which only one of the two times is known.
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
