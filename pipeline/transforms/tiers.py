"""Compares places that should have the same records: missing, duplicate and extra ones, by partition and window.

A record is identified by partition, offset and create time.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from tidelog.pipeline.transforms.windows import delay_ms, window_of


def within(records: DataFrame, spans: DataFrame) -> DataFrame:
    """Return the records whose offsets are in the span of their partition; `spans` has `partition, first, end`.

    Records of partitions without a span are left out.
    """
    found = records.join(F.broadcast(spans), "partition")
    is_in = (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("end"))
    return found.where(is_in).drop("first", "end")


def compared(tiers: Sequence[DataFrame], window_ms: int) -> DataFrame:
    """Compare tiers, each with `partition, offset, create_time, append_time, timestamp_type`, with the first tier.

    Return `partition, window, tier, n, missing, duplicate, extra, p50_ms, p99_ms`, and `bytes` if the tiers have it,
    with a row for each tier (by number) and window in which the tier has records or should have some. `missing` counts
    offsets that the first tier has and this one lacks, `extra` the reverse, `duplicate` the rows of an offset after its
    first; so `n` is that of the first tier - missing + extra + duplicate. An offset counts in the window of its record
    in the first tier, or else of its earliest row. Quantiles are of the delay from create time to append time.
    """
    numbers = range(len(tiers))
    by_offset = _by_offset(tiers)
    window = window_of("create_time", window_ms).alias("window")
    by_window = by_offset.groupBy("partition", window).agg(
        F.array(*(_summed(number) for number in numbers)).alias("tiers")
    )
    rows = by_window.select("partition", "window", F.posexplode("tiers").alias("tier", "of"))
    found = rows.select("partition", "window", "tier", "of.*").where(
        (F.col("n") > 0) | (F.col("missing") > 0)
    )
    found = found if "bytes" in tiers[0].columns else found.drop("bytes")
    return found.orderBy("partition", "window", "tier")


def _by_offset(tiers: Sequence[DataFrame]) -> DataFrame:
    """Return a row for each offset: `partition`, `create_time`, whether the first tier has it, and each tier's counts.

    One shuffle brings all rows of an offset to one task.
    """
    rows = reduce(DataFrame.unionAll, [_tagged(tier, number) for number, tier in enumerate(tiers)])
    numbers = range(len(tiers))

    def of_record(number: int) -> Column:
        is_of = F.col("tier") == number
        delay, size = (F.when(is_of, F.col(name)) for name in ("delay", "bytes"))
        n, delay, size = F.count_if(is_of).alias("n"), F.max(delay).alias("delay"), F.sum(size).alias("bytes")
        return F.struct(n, delay, size).alias(f"of_{number}")

    def of_offset(number: int) -> Column:
        n, delay, size = (F.col(f"of_{number}.{name}") for name in ("n", "delay", "bytes"))
        return F.struct(
            F.bool_or(is_first & (n > 0)).alias("is_there"),
            F.sum(n).alias("n"),
            F.max(delay).alias("delay"),
            F.sum(size).alias("bytes"),
        ).alias(f"of_{number}")

    by_record = rows.repartition("partition", "offset").groupBy("partition", "offset", "create_time")
    records = by_record.agg(*map(of_record, numbers))
    is_first = F.col("of_0.n") > 0
    at = F.struct("create_time")  # a struct, because it is not null even if the time is
    has_time = F.col("create_time").isNotNull()
    found = records.groupBy("partition", "offset").agg(
        F.coalesce(F.max(F.when(is_first, at)), F.min(F.when(has_time, at))).alias("at"),
        F.bool_or(is_first).alias("is_wanted"),
        *map(of_offset, numbers),
    )
    return found.withColumn("create_time", F.col("at.create_time"))


def _tagged(tier: DataFrame, number: int) -> DataFrame:
    size = F.col("bytes") if "bytes" in tier.columns else F.lit(0)
    return tier.select(
        "partition",
        "offset",
        "create_time",
        delay_ms().alias("delay"),
        size.cast("long").alias("bytes"),
        F.lit(number).alias("tier"),
    )


def _summed(number: int) -> Column:
    """Return the columns of a tier in a window."""
    n, is_there = F.col(f"of_{number}.n"), F.col(f"of_{number}.is_there")
    quantiles = F.percentile_approx(f"of_{number}.delay", [0.5, 0.99], 10_000)
    return F.struct(
        F.sum(n).alias("n"),
        F.count_if(F.col("is_wanted") & ~is_there).alias("missing"),
        F.sum(F.greatest(n - 1, F.lit(0))).alias("duplicate"),
        F.count_if((n > 0) & ~is_there).alias("extra"),
        quantiles[0].alias("p50_ms"),
        quantiles[1].alias("p99_ms"),
        F.coalesce(F.sum(f"of_{number}.bytes"), F.lit(0)).alias("bytes"),
    )
