"""Writes staged files to a Delta table with delta-rs, in one commit.

Rows are appended once for each batch number of a writer, or replace the rows that a predicate matches.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import dataset

from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import Place
from tidelog.pipeline.options import APPEND
from tidelog.pipeline.tables import RECORDS


def last_batch(place: Place, writer: str) -> int:
    """Return the number of the last batch that a writer has committed; -1 if there is none."""
    if not is_table(place):
        return -1
    found = DeltaTable(place.uri).transaction_version(writer)
    return -1 if found is None else found


def is_table(place: Place) -> bool:
    """Return whether a place has a Delta table."""
    return DeltaTable.is_deltatable(place.uri)


def is_parted(place: Place) -> bool:
    """Return whether a table is partitioned by a column."""
    return bool(DeltaTable(place.uri).metadata().partition_columns)


def has_rows(place: Place, wanted: pc.Expression) -> bool:
    """Return whether a table has a row that matches an expression."""
    if not is_table(place):
        return False
    found = DeltaTable(place.uri).to_pyarrow_dataset()
    is_of_records = {"topic", "create_time", "append_time"} <= set(found.schema.names)
    return is_of_records and found.scanner(columns=["topic"], filter=wanted).head(1).num_rows > 0


def predicate(topic: str, clock: str, first_ms: int | None, end_ms: int | None) -> pc.Expression:
    """Return the condition for the rows of a topic and range. A record without a time is in no range of times."""
    column = "append_time" if clock == APPEND else "create_time"
    found = pc.field("topic") == topic
    if first_ms is not None:
        found &= pc.field(column) >= pa.scalar(first_ms * 1000, RECORDS.field(column).type)
    if end_ms is not None:
        found &= pc.field(column) < pa.scalar(end_ms * 1000, RECORDS.field(column).type)
    return found


def ends(place: Place, topic: str) -> dict[int, int]:
    """Return the offset after the last one that a table has of each partition of a topic."""
    return _ends(DeltaTable(place.uri).to_pyarrow_dataset(), topic) if is_table(place) else {}


def staged(place: Place, folder: str, landed: Sequence[Landed]) -> dataset.Dataset:
    """Return staged rows, in the order of the tasks that wrote them."""
    paths = [place.under(f"{folder}/{each.name}") for each in sorted(landed, key=lambda each: each.task)]
    if not paths:
        return dataset.dataset(RECORDS.empty_table())
    return dataset.dataset(paths, filesystem=place.files, format="parquet")


def staged_ends(place: Place, folder: str, landed: Sequence[Landed], topic: str) -> dict[int, int]:
    """Return the offset after the last one that staged rows have of each partition of a topic."""
    return _ends(staged(place, folder, landed), topic)


def _ends(rows: dataset.Dataset, topic: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for batch in rows.to_batches(columns=["partition", "offset"], filter=pc.field("topic") == topic):
        last = pa.table(batch).group_by("partition").aggregate([("offset", "max")])
        for partition, offset in zip(
            *(last[name].to_pylist() for name in ("partition", "offset_max")), strict=True
        ):
            found[partition] = max(found.get(partition, 0), offset + 1)
    return found


def append_once(
    place: Place, folder: str, landed: Sequence[Landed], writer: str, batch: int, by: Sequence[str] = ()
) -> None:
    """Append staged rows as a writer's batch; a new table is partitioned by the columns of `by`."""
    write_deltalake(
        place.uri,
        staged(place, folder, landed).scanner().to_reader(),
        mode="append",
        partition_by=list(by) or None,
        schema_mode="merge",  # a run may add a column: it is null in older rows
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
    )


def replace(
    place: Place, folder: str, landed: Sequence[Landed], predicate: str, by: Sequence[str] = ()
) -> None:
    """Replace the rows that match a predicate by staged rows, which must match it too."""
    rows, parted = staged(place, folder, landed).scanner().to_reader(), list(by) or None
    if is_table(place):
        write_deltalake(
            place.uri,
            rows,
            mode="overwrite",
            partition_by=parted,
            schema_mode="merge",
            predicate=predicate,
        )
    elif landed:
        write_deltalake(place.uri, rows, mode="append", partition_by=parted)
