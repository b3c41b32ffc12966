"""A pass over a log: what stays, what goes, and that all that is known of the log is true afterwards."""

from pathlib import Path
from typing import Any

from tests.support.logs import NOW, new_shared, open_log, read_records
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.compaction import passes, plan
from tidelog.storage.compaction.passes import Cleaned
from tidelog.storage.log import Log

COMPACTED = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 600}


def keyed(*pairs: tuple[bytes | None, bytes | None], at: int = NOW, **options: Any) -> bytearray:
    records = [Record(n, at + n, key, value) for n, (key, value) in enumerate(pairs)]
    return bytearray(build_batch(records, **options))


def clean(log: Log, now_ms: int = NOW, buffer_bytes: int = 1 << 20) -> Cleaned | None:
    due = plan.due(log, now_ms)
    if due is None:
        return None
    steps = passes.clean(
        log, due, buffer_bytes=buffer_bytes, load_factor=0.9, now_ms=now_ms, structural=lambda step: step()
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def records(log: Log) -> list[Record]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, True, passes.PATIENT).read()
        read = [record for record in read_records(data) if record.offset >= offset]
        found += read
        offset = ends(data)
    return found


def ends(data: bytes) -> int:
    from tidelog.protocol.records import batch

    at, end = 0, 0
    while len(data) - at >= batch.HEADER_BYTES:
        header = batch.read_header(data, at)
        if at + header.size_bytes > len(data):
            break
        end = header.last_offset + 1
        at += header.size_bytes
    return end


def test_latest(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", **COMPACTED)
    for n in range(60):
        log.append(keyed((b"k%d" % (n % 7), b"v%d" % n), (b"x%d" % n, b"w")), NOW + n)
    before = records(log)
    sealed_end = log.active.base_offset
    done = clean(log, NOW + 1000)
    print(done, [(s.base_offset, s.size, s.next_offset, s.summary.cleaned_to) for s in log.segments])
    after = records(log)
    latest = {r.key: r.offset for r in before if r.offset < sealed_end}
    assert after == [r for r in before if r.offset >= sealed_end or latest[r.key] == r.offset]
    names = sorted(p.name for p in log.directory.iterdir())
    print(names)
    again = open_log(tmp_path / "topic-0", shared=new_shared(tmp_path), **COMPACTED)
    assert records(again) == after
