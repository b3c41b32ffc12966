"""The date that a record is of, in UTC, whatever the time zone of a session."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from tidelog.pipeline.transforms.windows import window_of

DATE: Final = "date"
_DAY_MS: Final = 24 * 3600 * 1000
# A date has four digits for the year, or few can read it: what a clock that counts in other units says has none.
_END_MS: Final = 253_402_300_800_000


def with_date(records: DataFrame, time: str) -> DataFrame:
    """Return the records with a column `date`: that of a column of times; null where it has none, or one past 9999."""
    days = (window_of(time, _DAY_MS) / _DAY_MS).cast("int")
    return records.withColumn(DATE, F.when(F.unix_millis(time) < _END_MS, F.date_from_unix_date(days)))
