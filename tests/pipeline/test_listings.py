"""The tables `batches` and `segments` against the files."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.jobs import rows_of
from tests.support.logs import NOW, batch, open_log
from tidelog.pipeline.errors import DamagedLog
from tidelog.protocol.records import entries
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set
from tidelog.storage.log import Log


def table(data: Path, name: str, names: tuple[str, ...] = (), **options: Any) -> list[dict[str, Any]]:
    return rows_of(data, names, table=name, **options)


def ms(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def a_log(data: Path, count: int = 30) -> Log:
    log = open_log(data / "t-0", index_interval_bytes=200, segment_bytes=700)
    for n in range(count):
        log.append(
            batch([NOW + n, NOW - n], codec=n % 5, producer_id=n, producer_epoch=1, base_sequence=0),
            NOW + 10 * n,
        )
    return log


def test_batches_are_those_of_the_files(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    rows = table(tmp_path, "batches", taskBytes=300)
    assert len(rows) == 30
    for n, (row, (segment, position, header)) in enumerate(zip(rows, log.headers(0), strict=True)):
        assert row | {"first_timestamp": 0, "max_timestamp": 0, "append_time": 0} == {
            "topic": "t",
            "partition": 0,
            "base_offset": 2 * n,
            "last_offset": 2 * n + 1,
            "position": position,
            "file": str(segment.path(".log")),
            "bytes": header.size_bytes,
            "codec": ("none", "gzip", "snappy", "lz4", "zstd")[n % 5],
            "magic": 2,
            "records": 2,
            "first_timestamp": 0,
            "max_timestamp": 0,
            "append_time": 0,
            "producer_id": n,
            "producer_epoch": 1,
            "base_sequence": 0,
            "is_transactional": False,
            "is_control": False,
            "leader_epoch": header.leader_epoch,
            "crc": header.crc,
        }
        times = [ms(row[name]) for name in ("first_timestamp", "max_timestamp", "append_time")]
        assert times == [NOW + n, NOW + n, NOW + 10 * n]


def test_batches_of_a_range_are_those_whose_largest_time_is_in_it(tmp_path: Path) -> None:
    a_log(tmp_path)
    ranged = {"from": NOW + 10, "to": NOW + 12}
    assert [row["base_offset"] for row in table(tmp_path, "batches", **ranged)] == [20, 22]
    ranged = {"from": NOW + 100, "to": NOW + 111, "clock": "append"}
    assert [row["base_offset"] for row in table(tmp_path, "batches", **ranged)] == [20, 22]


def test_messages_of_older_formats_and_markers_are_batches_too(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    three = [Record(n, NOW + n, None, b"v") for n in range(3)]
    marker = build_batch(
        [Record(4, NOW, b"\0\0\0\1", b"\0" * 6)], producer_id=7, transactional=True, control=True
    )
    unknown = bytearray(build_message_set([Record(3, NOW, None, b"v")], magic=0))
    (folder / f"{0:020d}.log").write_bytes(build_message_set(three, magic=1, codec=1) + unknown + marker)
    names = ("base_offset", "last_offset", "magic", "records", "codec", "is_control", "max_timestamp")
    rows = [tuple(row.values()) for row in table(tmp_path, "batches", names)]
    assert [row[:6] for row in rows] == [
        (0, 2, 1, 3, "gzip", False),
        (3, 3, 0, 1, "none", False),
        (4, 4, 2, 1, "none", True),
    ]
    assert [ms(row[6]) for row in rows] == [NOW + 2, None, NOW]


def test_damage_among_batches_is_reported(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.close()
    path = sorted(log.directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    first = entries.peek(data)
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match=f"{path.name}@0: "):
        table(tmp_path, "batches")
    kept = [row["base_offset"] for row in table(tmp_path, "batches", bad="skip")]
    assert kept == [2 * n for n in range(30) if 2 * n != first.base_offset]


def test_segments_are_all_that_there_are(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    rows = table(tmp_path, "segments")
    paths = sorted(log.directory.glob("*.log"))
    assert [row["file"] for row in rows] == [str(path) for path in paths]
    assert [row["bytes"] for row in rows] == [path.stat().st_size for path in paths]
    assert [row["is_active"] for row in rows] == [False] * (len(paths) - 1) + [True]
    for row, after in zip(rows, [*rows[1:], {"base_offset": 60}], strict=True):
        first, last = row["base_offset"] // 2, row["next_offset"] // 2 - 1
        assert row["next_offset"] == after["base_offset"]
        assert (row["records"], row["batches"], row["damage"]) == (
            2 * (last - first + 1),
            last - first + 1,
            [],
        )
        assert ms(row["max_timestamp"]) == NOW + last
        assert ms(row["min_timestamp"]) == NOW - last
        assert (ms(row["first_append_time"]), ms(row["last_append_time"])) == (
            NOW + 10 * first,
            NOW + 10 * last,
        )
    some = table(tmp_path, "segments", ("base_offset",), **{"from": NOW + 25})
    assert some == [
        {"base_offset": row["base_offset"]} for row in rows if ms(row["max_timestamp"]) >= NOW + 25
    ]


def test_an_empty_log_has_a_segment_and_damage_is_named(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.close()
    (row,) = table(tmp_path, "segments")
    assert (row["bytes"], row["records"], row["next_offset"], row["max_timestamp"]) == (0, 0, 0, None)
    log = a_log(tmp_path / "more")
    log.close()
    path = sorted(log.directory.glob("*.log"))[1]
    path.write_bytes(path.read_bytes()[:-9])
    path.with_suffix(".summary").unlink()
    row = table(tmp_path / "more", "segments")[1]
    (damage,) = row["damage"]
    assert (damage["end"], damage["next_offset"]) == (path.stat().st_size, row["next_offset"] + 2)
