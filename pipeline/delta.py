"""Staged files into a table of Delta, by delta-rs: in one commit, or not at all.

Owns the two commits that jobs make: rows are appended once for a number of a writer's, or take the place of those that
a predicate meets. Knows nothing of jobs.
"""

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import dataset

from tidelog.pipeline.landing import Landed
from tidelog.pipeline.place import Place
from tidelog.pipeline.tables import RECORDS


def last_batch(place: Place, writer: str) -> int:
    """Return the number of the last batch that a writer has committed; -1 if there is none."""
    if not DeltaTable.is_deltatable(place.uri):
        return -1
    found = DeltaTable(place.uri).transaction_version(writer)
    return -1 if found is None else found


def append_once(place: Place, folder: str, landed: Sequence[Landed], writer: str, batch: int) -> None:
    """Append staged rows as a writer's batch of that number."""
    properties = CommitProperties(app_transactions=[Transaction(writer, batch)])
    write_deltalake(place.uri, _rows(place, folder, landed), mode="append", commit_properties=properties)


def replace(place: Place, folder: str, landed: Sequence[Landed], predicate: str) -> None:
    """Have staged rows take the place of those that meet a predicate, which they meet too."""
    rows = _rows(place, folder, landed)
    if DeltaTable.is_deltatable(place.uri):
        write_deltalake(place.uri, rows, mode="overwrite", predicate=predicate)
    else:
        write_deltalake(place.uri, rows, mode="append")


def _rows(place: Place, folder: str, landed: Sequence[Landed]) -> pa.RecordBatchReader:
    paths = [place.under(f"{folder}/{each.name}") for each in sorted(landed, key=lambda each: each.task)]
    if not paths:
        return pa.RecordBatchReader.from_batches(RECORDS, [])
    return dataset.dataset(paths, filesystem=place.files, format="parquet").scanner().to_reader()
