"""What is in the log of a partition, read from its files: no client, no broker.

Owns the walk over the segments. Refuses to know which transactions were committed. What is not whole at the end of a
file is being written, or was torn: the log ends before it.
"""

from collections.abc import Iterator
from pathlib import Path

from tidelog.protocol.records import entries, message_set
from tidelog.protocol.records.batch import MAGIC
from tidelog.protocol.records.build import Record, read_records
from tidelog.storage import files
from tidelog.storage.checkpoints import load_offsets
from tidelog.storage.compaction import swap
from tidelog.storage.layout import LOG_STARTS

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True


def log_start(data_dir: Path, topic: str, partition: int) -> int:
    """Return where a log begins that no broker has open."""
    return load_offsets(data_dir / LOG_STARTS).get((topic, partition), 0)


def read_log(folder: Path, start: int, end: int | None) -> list[Record]:
    """Return the records in a partition's folder in [start, end), without control records; end None is all there is.

    FileNotFoundError if there is no such folder, RecordsError where an entry is damaged.
    """
    while True:
        segments = swap.present(folder)
        try:
            found = [
                record
                for base, mark in segments
                for record in _records(folder / f"{base:020d}.log{mark}", end)
                if record.offset >= start
            ]
        except FileNotFoundError:
            if segments == swap.present(folder):
                raise
            continue  # Retention or compaction was quicker.
        return found


def _records(path: Path, end: int | None) -> Iterator[Record]:
    file = files.File(path, read_only=True)
    position, size = 0, file.size
    while size - position >= entries.BYTES_MIN:
        header = entries.peek(file.pread(entries.HEAD_BYTES, position).ljust(entries.HEAD_BYTES))
        if end is not None and header.base_offset >= end:
            return
        entry_bytes = header.size_bytes
        data = file.pread(entry_bytes, position)
        if len(data) < entry_bytes:
            return
        if header.magic != MAGIC:
            yield from message_set.read_records(data)
        elif not header.is_control:
            yield from read_records(data)
        position += entry_bytes
