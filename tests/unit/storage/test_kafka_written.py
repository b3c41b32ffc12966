"""F15: Partition folders written by Apache Kafka's own log classes: opened, searched, their indexes made again."""

import json
import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.support.logs import (
    NOW,
    batch,
    fetch_all,
    first_at,
    index_bytes,
    log_bytes,
    open_log,
    read_records,
)
from tests.support.messages import convert
from tests.support.paths import KAFKA_WRITTEN
from tidelog.protocol.records import batch as batches
from tidelog.protocol.records import legacy, message_set
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.build import Record
from tidelog.storage import converted
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

INTERVAL = {"index_interval_bytes": 200}


@pytest.fixture(params=sorted(path.name for path in KAFKA_WRITTEN.glob("m*")))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_WRITTEN / request.param, tmp_path / request.param))


def expected(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]


@pytest.fixture(params=["scanned", "by its index"])
def log(folder: Path, request: pytest.FixtureRequest) -> Log:
    """S15: the folder opened as one of which nothing is known, or as Kafka's own checkpoint has it."""
    end = 5000 + len(expected(folder)) if request.param == "by its index" else 0
    log = open_log(folder, clean=True, recovery_point=end, **INTERVAL)
    # Without a checkpoint of its epochs a log of batches is read for them.
    assert log.segments[0].is_known_by_index == (bool(end) and folder.name[1] != "2")
    return log


def time_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


@pytest.mark.parametrize("clean", [True, False])
def test_S11_V2_I5_the_indexes_are_rebuilt_byte_for_byte(folder: Path, clean: bool) -> None:
    before = index_bytes(folder)
    for name in before:
        (folder / name).unlink()
    log = open_log(folder, clean=clean, **INTERVAL)
    log.close()
    assert index_bytes(folder) == before


def test_V2_a_folder_with_its_indexes_opens_and_keeps_them(folder: Path) -> None:
    before = index_bytes(folder), log_bytes(folder)
    open_log(folder, clean=True, **INTERVAL).close()
    assert (index_bytes(folder), log_bytes(folder)) == before


def test_V2_appending_the_same_batches_writes_the_same_indexes(folder: Path, tmp_path: Path) -> None:
    theirs = open_log(folder, clean=True, **INTERVAL)
    lat = "lat" in folder.name
    kind = "LogAppendTime" if lat else "CreateTime"
    options = INTERVAL | {"message_timestamp_type": kind, "message_format_version": folder.name[1]}
    ours = open_log(tmp_path / "ours", log_start_offset=5000, **options)
    ours.leader_epoch = 3
    for segment, position, header in theirs.headers(5000):
        data = bytearray(segment.file.pread(header.size_bytes, position))
        if lat:
            records = [r.timestamp for r in read_records(data)]
            assert len(set(records)) == 1
            if header.magic == 2:
                data[21:23] = (header.attributes & ~8).to_bytes(2, "big")
                data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
            else:
                legacy.set_timestamp(data, legacy.read_entry(data, 0, len(data)), NOW, append_time=False)
        if header.magic == 2 or header.magic == 1:
            data[:8] = (header.last_offset_delta if header.magic == 1 else 0).to_bytes(8, "big")
        ours.append(data, header.max_timestamp if lat else NOW, any_format=True)
    ours.close()
    if folder.name != "m0-gzip-nots-0":  # whose payloads hold the offsets, and are compressed anew
        assert log_bytes(tmp_path / "ours") == log_bytes(folder)
    assert index_bytes(tmp_path / "ours") == index_bytes(folder)


def test_every_record_is_read_back(folder: Path, log: Log) -> None:
    assert log.log_start_offset == 5000
    assert log.leader_epoch == (3 if folder.name[1] == "2" else 0)
    rows = [
        {
            "offset": r.offset,
            "ts": r.timestamp,
            "tt": time_type(header),
            "key": None if r.key is None else r.key.hex(),
            "value": None if r.value is None else r.value.hex(),
            "headers": [[name, None if value is None else value.hex()] for name, value in r.headers],
        }
        for segment, position, header in log.headers(5000)
        for r in read_records(segment.file.pread(header.size_bytes, position))
    ]
    assert rows == expected(folder)
    assert [row.offset for row in fetch_all(log, 500)] == [row["offset"] for row in rows]


def test_I6_every_time_is_found_as_by_a_scan(folder: Path, log: Log) -> None:
    rows = [(row["ts"], row["offset"]) for row in expected(folder)]
    known = [row for row in rows if row[0] >= 0]  # S11, S20: messages of v0 are never an answer.
    for start in (5000, 5003, 5077):
        log.advance_start(start)
        live = [row for row in known if row[1] >= start]
        for wanted in sorted({at + step for at, _ in rows for step in (-1, 0, 1)}):
            found = first_at(log, wanted, PATIENT)
            first = next((row for row in live if row[0] >= wanted), None)
            assert (found and found[:2]) == first


def test_it_is_appended_to(folder: Path, log: Log) -> None:
    end = log.log_end_offset
    assert log.append(batch([NOW]), NOW).base_offset == end == 5000 + len(expected(folder))


@pytest.mark.parametrize("magic", [0, 1])
def test_S70_S77_readers_of_older_formats_get_every_record(folder: Path, log: Log, magic: int) -> None:
    """Converted where it is newer, untouched where it is not, in pieces of any size."""
    stored = folder.name[1]
    rows = expected(folder)
    for most_bytes in (1, 700, 1 << 20):
        offset, found, data = 5000, [], b""
        while offset < log.log_end_offset:
            steps = converted.steps(log, offset, magic, most_bytes, True)
            piece = b"".join(bytes(step) for step in steps)
            found += [record for record in message_set.read_records(piece) if record.offset >= offset]
            data += piece
            offset = found[-1].offset + 1
        assert [(r.offset, r.key, r.value) for r in found] == [
            (row["offset"], hexed(row["key"]), hexed(row["value"])) for row in rows
        ]
        times = [row["ts"] if magic else -1 for row in rows]
        assert [r.timestamp for r in found] == times
        if int(stored) <= magic and most_bytes > 1:
            assert data == (folder / f"{5000:020d}.log").read_bytes(), "S69: as it is stored"


def hexed(text: object) -> bytes | None:
    return None if text is None else bytes.fromhex(str(text))


def test_they_are_converted_up_as_a_producer_would_send_them(folder: Path, tmp_path: Path) -> None:
    """S70, S74: what is produced in v0 or v1 to a topic of v2 has its keys, values and, of v1, its times."""
    theirs = open_log(folder, clean=True, **INTERVAL)
    ours = open_log(tmp_path / "ours", log_start_offset=5000, **INTERVAL)
    down = 0 if folder.name[1] == "0" else 1
    for segment, position, header in theirs.headers(5000):
        data = segment.file.pread(header.size_bytes, position)
        for part, _ in convert(data, 0, len(data), down, 5000, 1 << 20):
            entry = legacy.read_entry(part, 0, len(part))
            sent = bytearray(part)
            if entry.is_log_append_time:
                legacy.set_timestamp(sent, entry, entry.timestamp, append_time=False)
            ours.append(sent, NOW + 10**9, any_format=True)
    rows = [(row["offset"], hexed(row["key"]), hexed(row["value"])) for row in expected(folder)]
    found = [
        record
        for segment, position, header in ours.headers(5000)
        for record in batches_records(segment.file.pread(header.size_bytes, position))
    ]
    assert [(r.offset, r.key, r.value) for r in found] == rows


def batches_records(data: bytes) -> list[Record]:
    assert data[batches.MAGIC_POSITION] == batches.MAGIC
    return read_records(data)
