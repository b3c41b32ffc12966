"""Columns that a table has besides those of its records: the value as text, and the date of a time."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

DECODED: Final = "decoded"
DATE: Final = "date"
# The year 10000: many readers accept only four digits. A producer's clock in a wrong unit gives such years.
_END_MS: Final = 253_402_300_800_000


def with_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the value as a string; null if it is not UTF-8."""
    values = rows["value"]
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array(map(_text, values.to_pylist()), pa.string())
    return rows.append_column(DECODED, texts)


def with_date(rows: pa.RecordBatch, time: str) -> pa.RecordBatch:
    """Add the UTC date of a column of times; null without a time, or after the year 9999."""
    at = rows[time].cast(pa.timestamp("us", "UTC"))  # a session of Spark may have another time zone
    has_date = pc.less(at, pa.scalar(_END_MS * 1000, at.type))
    return rows.append_column(DATE, pc.if_else(has_date, at.cast(pa.date32()), None))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
