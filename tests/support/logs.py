"""A log in a folder of its own, batches for it, and what a scan of all its records says.

Owns: how the storage tests make, crash and read a log. Refuses to know: which answer is right; the tests compare the
scan with what the log answers.
"""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import build, message_set
from tidelog.protocol.records.batch import MAGIC, MAGIC_POSITION
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.storage import recovery
from tidelog.storage.errors import CorruptLog
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import RECORD_TIME, Found
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT, Source

NOW = 1_700_000_000_000
KEEP_ALL = {"retention_ms": -1}


class Row(NamedTuple):
    """A record as a scan sees it."""

    offset: int
    timestamp: int
    value: bytes | None


def batch(timestamps: Sequence[int], value: bytes = b"v", **options: Any) -> bytearray:
    """Make a batch as a producer sends it, one record for each timestamp, its value numbered."""
    records = [Record(n, at, None, value + b"%d" % n) for n, at in enumerate(timestamps)]
    return bytearray(build_batch(records, **options))


def open_log(
    folder: Path,
    *,
    clean: bool = False,
    was_cut_off: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW,
    shared: Shared | None = None,
    **options: Any,
) -> Log:
    """Open the log in a folder, made if it is missing; not clean, as nothing else is said, and sharing nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    is_new = not any(folder.iterdir())
    known = recovery.Known(clean or is_new, recovery_point, log_start_offset, True, was_cut_off)
    config = TopicConfig(**{**KEEP_ALL, **options})
    return recovery.load(folder, "topic", 0, config, shared or new_shared(folder), known, now_ms)


def new_shared(folder: Path, producer_bytes_max: int = 64 << 20) -> Shared:
    """Make what the logs in a folder share."""
    return Shared(folder, producer_bytes_max)


def first_at(log: Log, timestamp_ms: int, source: Source) -> Found | None:
    """Search a log by the time that its records carry."""
    return by_time.first_at_or_after(log, timestamp_ms, RECORD_TIME, source)


def fill(log: Log, timestamps: Iterable[Sequence[int]], now_ms: int = NOW, **options: Any) -> None:
    """Append a batch for each sequence of timestamps."""
    for each in timestamps:
        log.append(batch(each, **options), now_ms)


def retain(manager: LogManager) -> int | None:
    """Have retention look at every log now; return when one is due next."""
    manager.retain_soon(manager.logs.values())
    return at_once(manager.enforce_retention())


def crash(log: Log, folder: Path) -> Path:
    """Copy the files of a log as they are, as if the process had been killed."""
    shutil.copytree(log.directory, folder)
    return folder


def read_records(data: bytes | bytearray | memoryview) -> list[Record]:
    """Return the records of an entry of any format."""
    read = build.read_records if data[MAGIC_POSITION] == MAGIC else message_set.read_records
    return list(read(data))


def scan(log: Log) -> list[Row]:
    """Read all records from the log's start on, batch by batch, leaving out what is damaged."""
    rows = []
    for segment, position, header in log.headers(log.log_start_offset):
        data = segment.file.pread(header.size_bytes, position)
        rows += [Row(r.offset, r.timestamp, r.value) for r in read_records(data)]
    return [row for row in rows if row.offset >= log.log_start_offset]


def fetch_all(log: Log, max_bytes: int = 1 << 20) -> list[Row]:
    """Read all records as a consumer does: fetch from the next offset until the end."""
    rows: list[Row] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, True, PATIENT).read()
        got = [row for row in whole_rows(data) if row.offset >= offset]
        assert got, f"nothing at offset {offset}"
        rows += got
        offset = got[-1].offset + 1
    return rows


def whole_rows(data: bytes | bytearray) -> list[Row]:
    """Return the records of the whole batches at the beginning of a slice."""
    rows = []
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data):
            break
        rows += [Row(r.offset, r.timestamp, r.value) for r in read_records(data[position:end])]
        position = end
    return rows


def is_damaged(log: Log, offset: int) -> bool:
    """Whether reading at an offset is answered as corrupt."""
    try:
        log.read(offset, 1 << 20, True, PATIENT)
    except CorruptLog:
        return True
    return False


def index_bytes(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder that are a function of its logs, by name."""
    names = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    return {path.name: path.read_bytes() for path in names}


def log_bytes(folder: Path) -> dict[str, bytes]:
    """Return the log files of a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def open_files(folder: Path) -> list[Path]:
    """Return this process's open files below a folder, one for each descriptor."""
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The descriptor of the listing itself is gone by now.
            opened.append(descriptor.readlink())
    return [path for path in opened if folder in path.parents]


def held_open(folder: Path) -> int:
    """Count this process's open files below a folder."""
    return len(open_files(folder))
