"""Counts records by partition and window of create time. A window is named by its start in ms since the epoch."""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_BY: Final = ["partition", "window"]


def counted(batches: Iterable[pa.RecordBatch], window_ms: int) -> list[pa.Table]:
    """Count records: `partition, window, n`, and `bytes`, the size of keys and values, if the records have these.

    The window of records without a time is null. There is no table if there are no records.
    """
    return _summed([_of_batch(rows, window_ms) for rows in batches if len(rows)])


def total(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Add up counts, and return them as rows, by partition and window."""
    rows: list[dict[str, Any]] = [row for each in _summed([*tables]) for row in each.to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["window"] is not None, row["window"]))


def _of_batch(rows: pa.RecordBatch, window_ms: int) -> pa.Table:
    """Return the counts of a batch: each record is one."""
    at_us = rows["create_time"].cast(pa.int64())
    known_ms = at_us.fill_null(0).to_numpy() // 1000
    window = pc.if_else(at_us.is_valid(), pa.array(known_ms - known_ms % window_ms), None)
    columns = {"partition": rows["partition"], "window": window, "n": pa.repeat(1, len(rows))}
    if "value" in rows.schema.names:
        sizes = [pc.binary_length(rows[name]).cast(pa.int64()).fill_null(0) for name in ("key", "value")]
        columns["bytes"] = pc.add(*sizes)
    return pa.table(columns)


def _summed(tables: list[pa.Table]) -> list[pa.Table]:
    """Return one table with a row for each partition and window; none of none."""
    if not tables:
        return []
    whole = pa.concat_tables(tables)
    names = [name for name in whole.column_names if name not in _BY]
    found = whole.group_by(_BY).aggregate([(name, "sum") for name in names])
    return [found.select([*_BY, *(f"{name}_sum" for name in names)]).rename_columns([*_BY, *names])]
