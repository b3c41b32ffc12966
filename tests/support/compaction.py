"""Passes of compaction over a log of a test, and what a reader finds in it afterwards.

Owns: keyed batches, a pass in one thread, a reader that goes from batch to batch. Refuses to know: what a pass may take
away; the tests say.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.support.logs import NOW, read_records
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import PREFIX_BYTES
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.steps import at_once
from tidelog.storage.compaction import passes, plan
from tidelog.storage.compaction.one_pass import Cleaned
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.log import Log
from tidelog.storage.search.by_offset import segment_number
from tidelog.storage.sources import PATIENT

COMPACTED = {
    "cleanup_policy": ("compact",),
    "min_cleanable_dirty_ratio": 0.0,
    "segment_bytes": 600,
    "file_delete_delay_ms": 0,
}
# Enough for every test that does not want it to be too small.
BUFFER_BYTES = 1 << 16

Pair = tuple[bytes | None, bytes | None]


class KeyedRow(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def keyed(*pairs: Pair, at: int = NOW, **options: Any) -> bytearray:
    """Make a batch as a producer sends it, of keys and values."""
    records = [Record(n, at + n, key, value) for n, (key, value) in enumerate(pairs)]
    return bytearray(build_batch(records, **options))


def steps_of(
    log: Log,
    due: Plan,
    *,
    buffer_bytes: int = BUFFER_BYTES,
    load_factor: float = 0.9,
    structural: Callable[[Callable[[], Any]], Any] = lambda step: step(),
    worker_bytes: int = passes.WORKER_BYTES,
) -> Generator[int, None, Cleaned]:
    """Begin a pass; nothing is done before the first step."""
    return passes.clean(
        log,
        due,
        buffer_bytes=buffer_bytes,
        load_factor=load_factor,
        structural=structural,
        worker_bytes=worker_bytes,
    )


def finished(steps: Generator[int, None, Cleaned]) -> Cleaned:
    """Take all steps of a pass."""
    return at_once(steps)


def clean(log: Log, now_ms: int = NOW, by_yield: bool = False, **options: Any) -> Cleaned | None:
    """Make the pass that is due; None where there is none."""
    due = plan.due(log, now_ms, by_yield=by_yield)
    return None if due is None else finished(steps_of(log, due, **options))


def clean_all(log: Log, now_ms: int = NOW, most: int = 10_000, **options: Any) -> int:
    """Make passes until none is due; return how many there were."""
    for count in range(most):
        if clean(log, now_ms, **options) is None:
            return count
    raise AssertionError(f"after {most} passes another is due still")


def rows_of(log: Log, max_bytes: int = 1 << 20, start: int | None = None) -> list[KeyedRow]:
    """Read all records as a consumer does, from batch to batch, those without a record too."""
    rows: list[KeyedRow] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        data = memoryview(log.read(offset, max_bytes, True, PATIENT).read())
        at, after = 0, offset
        while at + PREFIX_BYTES <= len(data):
            size = PREFIX_BYTES + int.from_bytes(data[at + 8 : at + PREFIX_BYTES], "big")
            piece = data[at : at + size]
            if len(piece) < size:
                break  # the slice is cut
            read = read_records(piece)
            rows += [KeyedRow(r.offset, r.timestamp, r.key, r.value) for r in read if r.offset >= offset]
            after = max(after, entries.peek(piece).last_offset + 1)
            at += len(piece)
        assert after > offset, f"a fetch from {offset} does not go on"
        offset = after
    return rows


def spoil(log: Log, number: int, offset: int, byte: int = 65) -> None:
    """Change a byte of the batch with an offset, in a segment, on disk; by default one in the record's value."""
    segment = log.segments[number]
    data = bytearray(segment.path(".log").read_bytes())
    at = 0
    while entries.peek(data, at).last_offset < offset:
        at += entries.peek(data, at).size_bytes
    data[at + byte] ^= 0xFF
    segment.path(".log").write_bytes(data)


def append_ms_of(log: Log, offset: int) -> tuple[int, bool]:
    """Return when the log says that a record was appended, and whether that is a bound."""
    segment = log.segments[segment_number(log.segments, offset)]
    time = segment.append_index.time_at(offset - segment.base_offset)
    return time.time_ms, time.is_bound


def latest_of(rows: list[KeyedRow], end: int) -> dict[bytes, KeyedRow]:
    """Return the last row of each key before an offset."""
    return {row.key: row for row in rows if row.offset < end and row.key is not None}
