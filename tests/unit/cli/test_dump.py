"""`tidelog dump`: every part of a file and its verdict, sound, half-written or damaged."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crc32c import crc32c

from tests.support.paths import KAFKA_WRITTEN
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.append_index import AppendTime, Header, encoded
from tidelog.storage.producer_state import ProducerState, encode
from tidelog.storage.summary import Damage, Origin, Summary

BASE = 100
AT = 1_709_283_600_000


def batch(offset: int, count: int, **settings: Any) -> bytes:
    records = [
        Record(offset + n, AT + n, None if n else b"key", b"value %d" % n, (("name", b"x"),))
        for n in range(count)
    ]
    return build_batch(records, **settings)


FIRST = batch(100, 3, codec=1)
SECOND = batch(103, 2, producer_id=7, producer_epoch=1, base_sequence=40, log_append_time=True)
THIRD = batch(105, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def dump(path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(app, ["dump", str(path), "--json", *options])
    assert not result.stderr, result.stderr
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def write(folder: Path, data: bytes, ending: str = ".log") -> Path:
    path = folder / f"{BASE:020d}{ending}"
    path.write_bytes(data)
    return path


def test_batches(folder: Path) -> None:
    code, parts = dump(write(folder, FIRST + SECOND))
    assert code == OK
    assert parts == [
        {
            "kind": "batch",
            "position": 0,
            "base_offset": 100,
            "last_offset": 102,
            "records": 3,
            "bytes": len(FIRST),
            "codec": "gzip",
            "timestamp_type": "CreateTime",
            "base_timestamp": AT,
            "max_timestamp": AT + 2,
            "leader_epoch": -1,
            "crc_ok": True,
            "ok": True,
        },
        {
            "kind": "batch",
            "position": len(FIRST),
            "base_offset": 103,
            "last_offset": 104,
            "records": 2,
            "bytes": len(SECOND),
            "codec": "none",
            "timestamp_type": "LogAppendTime",
            "base_timestamp": AT,
            "max_timestamp": AT + 1,
            "leader_epoch": -1,
            "producer_id": 7,
            "producer_epoch": 1,
            "base_sequence": 40,
            "crc_ok": True,
            "ok": True,
        },
    ]


@pytest.mark.parametrize("option", ["--records", "--deep"])
def test_records(folder: Path, option: str) -> None:
    code, parts = dump(write(folder, FIRST), option)
    assert code == OK
    assert [(part["offset"], part["timestamp"], part["key"], part["value"]) for part in parts[1:]] == [
        (100, AT, "key", "value 0"),
        (101, AT + 1, None, "value 1"),
        (102, AT + 2, None, "value 2"),
    ]
    assert parts[1]["headers"] == [{"name": "name", "value": "x"}]


def test_text_is_for_eyes(folder: Path) -> None:
    result = CliRunner().invoke(app, ["dump", str(write(folder, THIRD)), "--records"])
    first, second = result.stdout.splitlines()
    assert first.startswith("batch position=0 base_offset=105 last_offset=105 records=1 bytes=")
    assert first.endswith("leader_epoch=-1 crc_ok=true")
    assert second.startswith("  record offset=105 timestamp=2024-03-01T")
    assert second.endswith("key=key value=value 0 headers: name=x")


def test_an_empty_file(folder: Path) -> None:
    assert dump(write(folder, b"")) == (OK, [])


@pytest.mark.parametrize("kept", [1, 16, 17, 60, 61, len(THIRD) - 1])
def test_a_half_written_last_batch_is_said_and_no_error(folder: Path, kept: int) -> None:
    code, parts = dump(write(folder, FIRST + THIRD[:kept]))
    assert code == OK
    assert parts[1] == {"kind": "torn", "position": len(FIRST), "bytes": kept, "ok": True}


def test_a_wrong_checksum_is_damage_and_the_rest_is_read(folder: Path) -> None:
    broken = bytearray(SECOND)
    broken[-1] ^= 1
    code, parts = dump(write(folder, FIRST + broken + THIRD))
    assert code == FAILED
    assert [(part["crc_ok"], part["ok"]) for part in parts] == [(True, True), (False, False), (True, True)]


@pytest.mark.parametrize("length", [0, 5, 48, 100_000, 2**31 - 1, -1])
def test_a_wrong_length_in_the_middle_is_damage_up_to_the_next_batch(folder: Path, length: int) -> None:
    broken = SECOND[:8] + struct.pack(">i", length) + SECOND[12:]
    code, parts = dump(write(folder, FIRST + broken + THIRD))
    assert code == FAILED
    assert [part["kind"] for part in parts] == ["batch", "unreadable", "batch"]
    assert parts[1] == {"kind": "unreadable", "position": len(FIRST), "bytes": len(SECOND), "ok": False}
    assert parts[2]["base_offset"] == 105


def test_zeros_at_the_end_are_no_batch(folder: Path) -> None:
    code, parts = dump(write(folder, FIRST + bytes(4096)))
    assert (code, parts[1]) == (
        FAILED,
        {"kind": "unreadable", "position": len(FIRST), "bytes": 4096, "ok": False},
    )


def test_records_that_cannot_be_read_are_damage(folder: Path) -> None:
    wrong_codec = bytearray(THIRD)
    wrong_codec[22] |= 7
    code, parts = dump(write(folder, bytes(wrong_codec) + FIRST), "--records")
    assert code == FAILED
    assert "codec 7 does not exist" in parts[1]["error"]
    assert [part["kind"] for part in parts[2:]] == ["batch", "record", "record", "record"]


def test_entries_of_older_formats_have_a_verdict(folder: Path) -> None:
    body = struct.pack(">bb", 1, 0) + struct.pack(">q", AT) + struct.pack(">ii", -1, 1) + b"v"
    entry = struct.pack(">qiI", 100, 4 + len(body), zlib.crc32(body)) + body
    code, parts = dump(write(folder, entry + entry[:-1] + b"w" + FIRST))
    assert code == FAILED
    assert [(part["kind"], part.get("magic"), part["crc_ok"]) for part in parts] == [
        ("legacy", 1, True),
        ("legacy", 1, False),
        ("batch", None, True),
    ]


def test_offset_index(folder: Path) -> None:
    data = struct.pack(">iiii", 10, 4096, 20, 9000)
    code, parts = dump(write(folder, data, ".index"))
    assert code == OK
    assert [(part["offset"], part["position"]) for part in parts] == [(110, 4096), (120, 9000)]


def test_time_index(folder: Path) -> None:
    data = struct.pack(">qiqi", AT, 10, AT + 5, 20)
    code, parts = dump(write(folder, data, ".timeindex"))
    assert code == OK
    assert [(part["timestamp"], part["offset"]) for part in parts] == [(AT, 110), (AT + 5, 120)]


def test_append_index(folder: Path) -> None:
    header = Header(Origin.APPENDED, bytes(15) + b"\1", 7, 100).encode()
    data = header + encoded([AppendTime(AT, 0, False), AppendTime(AT + 5, 3, True)])
    code, (first, *parts) = dump(write(folder, data, ".appendindex"))
    assert code == OK
    assert {name: first[name] for name in ("kind", "origin", "topic_id", "partition", "base_offset")} == {
        "kind": "header",
        "origin": "APPENDED",
        "topic_id": "00000000-0000-0000-0000-000000000001",
        "partition": 7,
        "base_offset": 100,
    }
    assert [(part["append_ms"], part["offset"], part.get("bound", False)) for part in parts] == [
        (AT, 100, False), (AT + 5, 103, True),
    ]  # fmt: skip
    code, parts = dump(write(folder, data[:60] + b"x" + data[61:] + b"torn", ".appendindex"))
    assert code == FAILED
    assert [(part["kind"], part["ok"]) for part in parts] == [
        ("header", True),
        ("entry", True),
        ("entry", False),
        ("torn", True),
    ]


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        (".index", struct.pack(">iiii", 10, 4096, 10, 9000)),
        (".index", struct.pack(">iiii", 10, 4096, 20, 4096)),
        (".timeindex", struct.pack(">qiqi", AT, 10, AT, 20)),
        (".timeindex", struct.pack(">qiqi", AT, 10, AT + 1, 9)),
    ],
)
def test_index_entries_out_of_order_are_damage(folder: Path, ending: str, data: bytes) -> None:
    code, parts = dump(write(folder, data, ending))
    assert code == FAILED
    assert [part["ok"] for part in parts] == [True, False]


def test_what_is_left_over_in_an_index_is_said(folder: Path) -> None:
    entry = struct.pack(">ii", 10, 4096)
    code, parts = dump(write(folder, entry + entry[:3], ".index"))
    assert (code, parts[1]["kind"], parts[1]["bytes"]) == (OK, "torn", 3)
    code, parts = dump(write(folder, entry + bytes(800), ".index"))
    assert (code, parts[1]["kind"], parts[1]["bytes"]) == (OK, "unused", 800)


def test_snapshot(folder: Path) -> None:
    state = ProducerState()
    from tidelog.protocol.records.batch import read_header

    state.note(read_header(SECOND), 103, AT)
    code, (part,) = dump(write(folder, encode(state.producers), ".snapshot"))
    assert code == OK
    assert (part["producer_id"], part["producer_epoch"]) == (7, 1)
    assert (part["base_sequence"], part["last_sequence"], part["last_offset"]) == (40, 41, 104)
    code, (part,) = dump(write(folder, encode(state.producers)[:-1], ".snapshot"))
    assert (code, part["kind"]) == (FAILED, "unreadable")


def test_summary(folder: Path) -> None:
    digests = bytes(4)
    summary = Summary(0, 4096, 130, AT, 4096, record_count=30, damage=(Damage(10, 20, 105),), digests=digests)
    code, parts = dump(write(folder, summary.encode(), ".summary"))
    assert code == FAILED
    assert (parts[0]["record_count"], parts[0]["next_offset"]) == (30, 130)
    assert parts[1] == {"kind": "damage", "start": 10, "end": 20, "next_offset": 105, "ok": False}


def test_what_is_wrong_with_a_summary_is_told(folder: Path) -> None:
    data = Summary(0, 4096, 130, AT, 4096, digests=bytes(4)).encode()

    def signed(body: bytes) -> bytes:
        return body + crc32c(body).to_bytes(4, "big")

    flipped = bytearray(data)
    flipped[20] ^= 1
    for content, words in (
        (b"nothing", "not a summary"),
        (data[:6], "not a summary"),
        (flipped, "its checksum is wrong"),
        (data[:-1], "its checksum is wrong"),
        (signed(data[:4] + b"\0\x63" + data[6:-4]), "of version 99, not 7: a start"),
        (signed(data[:-8]), "its checksum is right, and its parts do not fit together"),
    ):
        code, (part,) = dump(write(folder, bytes(content), ".summary"))
        assert (code, part["kind"]) == (FAILED, "unreadable")
        assert part["error"].startswith(words)


def test_files_that_were_put_aside_keep_their_kind(folder: Path) -> None:
    code, parts = dump(write(folder, FIRST, ".log.deleted"))
    assert (code, parts[0]["base_offset"]) == (OK, 100)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "x.log", "00000000000000000100.txt", "log"])
def test_other_names_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(FIRST)
    result = CliRunner().invoke(app, ["dump", str(folder / name)])
    assert result.exit_code == USAGE
    assert "dump reads files named <20 digits> followed by one of .log, .index" in result.stderr


def test_a_missing_file_and_a_folder(folder: Path) -> None:
    path = folder / f"{BASE:020d}.log"
    result = CliRunner().invoke(app, ["dump", str(path)])
    assert (result.exit_code, result.stderr) == (FAILED, f"tidelog: {path}: No such file or directory\n")
    path.mkdir()
    assert CliRunner().invoke(app, ["dump", str(path)]).exit_code == FAILED
    for place, why in ((folder / "any", "No such file or directory"), (folder, "not a file")):
        result = CliRunner().invoke(app, ["dump", str(place)])
        assert (result.exit_code, result.stderr) == (FAILED, f"tidelog: {place}: {why}\n")


@pytest.mark.parametrize("written", sorted(KAFKA_WRITTEN.glob("m[01]-*")), ids=lambda path: path.name)
def test_records_of_older_formats(written: Path) -> None:
    code, parts = dump(written / f"{5000:020d}.log", "--records")
    expected = [json.loads(line) for line in (written / "expected.jsonl").read_text().splitlines()]
    records = [part for part in parts if part["kind"] == "record"]
    assert code == OK
    assert [(part["offset"], part["timestamp"]) for part in records] == [
        (row["offset"], row["ts"]) for row in expected
    ]
    heads = [part for part in parts if part["kind"] == "legacy"]
    assert {head["codec"] for head in heads} == {written.name.split("-")[1]}
    kinds = {head.get("timestamp_type", "NoTimestampType") for head in heads}
    assert kinds == {row["tt"] for row in expected}
