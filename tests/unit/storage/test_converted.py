"""A log read in an older format: in steps, in a bounded part of its bytes, from anywhere."""

import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.batches import NOW_MS, batch_of, plain_record
from tests.support.logs import open_log
from tests.support.messages import as_in, shifted, some
from tidelog.protocol.records import compression, convert
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set, read_records
from tidelog.protocol.records.steps import at_once
from tidelog.storage import converted, verification
from tidelog.storage.files import FileSlice
from tidelog.storage.log import Log

MANY = [replace(record, value=bytes(record.offset % 50)) for record in some(1500)]


def appended(log: Log, data: bytes) -> None:
    """Append what may be large."""
    log.append(
        bytearray(data), NOW_MS, at_once(log.check(bytearray(data), NOW_MS, any_format=True)), any_format=True
    )


Parts = list[bytearray | FileSlice]


def answer(log: Log, offset: int, magic: int, most_bytes: int, at_least_one: bool = True) -> Parts:
    return [step for step in converted.steps(log, offset, magic, most_bytes, at_least_one) if step]


def records_of(parts: Parts) -> list[Record]:
    data = b"".join(bytes(part.read() if isinstance(part, FileSlice) else part) for part in parts)
    return list(read_records(data))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize(("stored", "magic"), [(2, 0), (2, 1), (1, 0)])
def test_a_large_entry_is_read_answer_by_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int, magic: int, codec: int
) -> None:
    """S70, S77: what is read of the file, converted at once and given at once is each a part of it."""
    monkeypatch.setattr(converted, "READ_BYTES", 900)
    monkeypatch.setattr(convert, "PIECE_BYTES", 500)
    monkeypatch.setattr(converted, "STEP_BYTES", 500)
    monkeypatch.setattr(converted, "CONTENT_BYTES_MAX", 9000)
    log = open_log(tmp_path / "t-0", message_format_version=str(stored))
    build = (
        build_batch if stored == 2 else lambda given, codec: build_message_set(given, magic=1, codec=codec)
    )
    for base in (0, len(MANY)):
        appended(log, build(shifted(MANY, 0), codec=codec))
        assert log.log_end_offset == base + len(MANY)
    offset, found, answers = 0, list[Record](), 0
    while offset < log.log_end_offset:
        parts = answer(log, offset, magic, 8000)
        assert all(len(part) <= 2000 for part in parts)
        assert sum(map(len, parts)) <= 8000
        rows = records_of(parts)
        assert sum(len(row.value or b"") + 26 for row in rows) <= 9000 + 2000
        found += [row for row in rows if row.offset >= offset]
        offset = found[-1].offset + 1
        answers += 1
    assert answers > 10
    assert found == as_in(magic, [*MANY, *shifted(MANY, len(MANY))])


@pytest.mark.parametrize("length", [-12, 1])
def test_a_length_that_no_entry_has_ends_what_is_given(tmp_path: Path, length: int) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(2):
        appended(log, build_batch(MANY[:3]))
    path = log.active.path(".log")
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2 + 8)
        file.write(length.to_bytes(4, "big", signed=True))
    assert records_of(answer(log, 0, 1, 1 << 20)) == as_in(1, MANY[:3])


def test_a_large_batch_is_never_in_memory_whole(tmp_path: Path) -> None:
    count = 10_000
    payload = b"".join(plain_record(n, value=b"%0500d" % n) for n in range(count))
    log = open_log(tmp_path / "t-0", max_message_bytes=64 << 20)
    for codec in (compression.NONE, compression.GZIP):
        packed = bytes(compression.compress(codec, payload))
        appended(log, bytes(batch_of(packed, count=count, attributes=codec, last_offset_delta=count - 1)))
    del payload, packed
    tracemalloc.start()
    try:
        for offset in (0, count - 1, count, 2 * count - 1):
            tracemalloc.reset_peak()
            parts = answer(log, offset, 1, 1 << 20)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
            assert records_of(parts)[-1].offset >= offset
            del parts
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [0, 1])
def test_a_large_entry_that_passes_is_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    """S69, S73: given alone, byte for byte; what comes before it is given first."""
    monkeypatch.setattr(converted, "READ_BYTES", 900)
    log = open_log(tmp_path / "t-0", message_format_version="1")
    large = [Record(0, NOW_MS, None, NOW_MS.to_bytes(8, "big") * 500)]
    appended(log, build_message_set(some(3), magic=1))
    appended(
        log, build_message_set(large, magic=1) if not codec else build_message_set(MANY, magic=1, codec=1)
    )
    end = log.log_end_offset
    appended(log, build_message_set(some(3), magic=1))
    assert [row.offset for row in records_of(answer(log, 0, 1, 1 << 20))] == [0, 1, 2]
    (part,) = answer(log, 3, 1, 1)
    assert isinstance(part, FileSlice)
    assert records_of([part])[-1].offset == end - 1
    assert answer(log, 3, 1, 1, at_least_one=False) == []
    assert [row.offset for row in records_of(answer(log, end, 1, 1 << 20))] == [end, end + 1, end + 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_noted_of_many_messages_at_once_is_what_a_look_at_each_finds(
    tmp_path: Path, magic: int
) -> None:
    """Indexes and summary are a function of the log, however its messages came."""
    log = open_log(tmp_path / "t-0", message_format_version=str(magic), index_interval_bytes=9000)
    chance = random.Random(5)
    for rising in (True, False, True):
        given = [
            Record(n, NOW_MS + (n if rising else chance.randrange(5000)), None, bytes(chance.randrange(90)))
            for n in range(1500)
        ]
        appended(log, build_message_set(given, magic=magic))
    noted = log.active
    found = verification.recheck(noted, log.epochs.at)
    found.size = noted.size
    found.scan()
    for name in (
        "minima", "min_timestamp", "max_timestamp", "max_timestamp_offset", "max_timestamp_last_offset",
        "first_timestamp", "next_offset", "record_count", "batch_count", "indexed_position",
    ):  # fmt: skip
        assert getattr(noted.summary, name) == getattr(found.summary, name), name
    assert bytes(noted.offset_index.data) == bytes(found.offset_index.data)
    assert bytes(noted.time_index.data) == bytes(found.time_index.data)
