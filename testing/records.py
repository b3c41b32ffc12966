"""The records of a partition, read from its files.

Records of transactions are returned whether they were committed or not. An incomplete batch at the end of a file is
being written, or is torn; the log ends before it.
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

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True


def log_start(data_dir: Path, topic: str, partition: int) -> int:
    """Return the start of a log that no broker has open."""
    return load_offsets(data_dir / LOG_STARTS).get((topic, partition), 0)


def read_log(folder: Path, start: int, end: int | None) -> list[Record]:
    """Return the records of a partition's folder in [start, end), without control records; end None for all.

    FileNotFoundError if there is no such folder, RecordsError if an entry is damaged.
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
            continue  # retention or compaction has removed a segment
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
