"""F15: Partition folders written by Apache Kafka's own log classes: opened, searched, their indexes made again."""

import json
import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.support.logs import NOW, batch, fetch_all, first_at, index_bytes, log_bytes, open_log
from tidelog.protocol.records.build import read_records
from tidelog.storage.errors import ForeignDataDir
from tidelog.storage.sources import PATIENT

WRITTEN = Path(__file__).parents[1] / "data" / "kafka-written"
INTERVAL = {"index_interval_bytes": 200}


@pytest.fixture(params=sorted(path.name for path in WRITTEN.glob("m2-*")))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN / request.param, tmp_path / request.param))


def expected(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("clean", [True, False])
def test_V2_I5_the_indexes_are_rebuilt_byte_for_byte(folder: Path, clean: bool) -> None:
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
    ours = open_log(tmp_path / "ours", log_start_offset=5000, message_timestamp_type=kind, **INTERVAL)
    ours.leader_epoch = 3
    for segment, position, header in theirs.headers(5000):
        data = bytearray(segment.file.pread(header.size_bytes, position))
        if lat:
            records = [r.timestamp for r in read_records(data)]
            assert len(set(records)) == 1
            data[21:23] = (header.attributes & ~8).to_bytes(2, "big")
            data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
        data[:8] = bytes(8)
        ours.append(data, header.max_timestamp)
    ours.close()
    assert log_bytes(tmp_path / "ours") == log_bytes(folder)
    assert index_bytes(tmp_path / "ours") == index_bytes(folder)


def test_every_record_is_read_back(folder: Path) -> None:
    log = open_log(folder, clean=True, **INTERVAL)
    assert (log.log_start_offset, log.leader_epoch) == (5000, 3)
    rows = [
        {
            "offset": r.offset,
            "ts": r.timestamp,
            "tt": "LogAppendTime" if header.is_log_append_time else "CreateTime",
            "key": None if r.key is None else r.key.hex(),
            "value": None if r.value is None else r.value.hex(),
            "headers": [[name, None if value is None else value.hex()] for name, value in r.headers],
        }
        for segment, position, header in log.headers(5000)
        for r in read_records(segment.file.pread(header.size_bytes, position))
    ]
    assert rows == expected(folder)
    assert [row.offset for row in fetch_all(log, 500)] == [row["offset"] for row in rows]


def test_I6_every_time_is_found_as_by_a_scan(folder: Path) -> None:
    log = open_log(folder, clean=True, **INTERVAL)
    rows = [(row["ts"], row["offset"]) for row in expected(folder)]
    for start in (5000, 5003, 5077):
        log.advance_start(start)
        live = [row for row in rows if row[1] >= start]
        for wanted in sorted({at + step for at, _ in rows for step in (-1, 0, 1)}):
            found = first_at(log, wanted, PATIENT)
            first = next((row for row in live if row[0] >= wanted), None)
            assert (found and found[:2]) == first


def test_it_is_appended_to(folder: Path) -> None:
    log = open_log(folder, clean=True, **INTERVAL)
    end = log.log_end_offset
    assert log.append(batch([NOW]), NOW).base_offset == end == 5000 + len(expected(folder))


@pytest.mark.parametrize("name", sorted(path.name for path in WRITTEN.glob("m[01]-*")))
def test_S11_an_older_message_format_is_refused_and_its_files_stay_as_they_are(
    tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(WRITTEN / name, tmp_path / name))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ForeignDataDir, match=f"message format v{name[1]} cannot be read"):
        open_log(folder, **INTERVAL)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
