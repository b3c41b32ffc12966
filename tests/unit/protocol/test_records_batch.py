"""Batch headers, building batches, and reading what Apache Kafka wrote."""

import json
from pathlib import Path

import pytest

from tests.support.batches import NOW_MS, changed, some_records
from tests.support.paths import KAFKA_WRITTEN
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.errors import CorruptBatch, InvalidRecord, UnsupportedCodec


def expected(folder: Path) -> list[Record]:
    records = []
    for line in (folder / "expected.jsonl").read_text().splitlines():
        it = json.loads(line)
        headers = tuple(
            (name, None if value is None else bytes.fromhex(value)) for name, value in it["headers"]
        )
        key, value = (None if it[part] is None else bytes.fromhex(it[part]) for part in ("key", "value"))
        records.append(Record(it["offset"], it["ts"], key, value, headers))
    return records


@pytest.mark.parametrize("name", ["m2-none-ct-0", "m2-gzip-lat-0", "m2-lz4-ct-0"])
def test_S79_every_record_that_kafka_wrote_is_read_as_it_was_meant(name: str) -> None:
    folder = KAFKA_WRITTEN / name
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    records: list[Record] = []
    position = 0
    while position < len(data):
        header = batch.read_header(data, position)
        assert batch.check_crc(data, position, header)
        assert header.is_log_append_time == ("lat" in name)
        records += read_records(data, position)
        position += header.size_bytes
    assert position == len(data)
    assert len(records) > 50
    assert records == expected(folder)


def test_header_layout_is_the_documented_one() -> None:
    data = build_batch(
        some_records(3), base_offset=-5, leader_epoch=4, producer_id=2**40, producer_epoch=6, base_sequence=9
    )
    assert data[:8] == (-5).to_bytes(8, "big", signed=True)
    assert int.from_bytes(data[8:12], "big") == len(data) - 12
    assert data[12:17] == b"\0\0\0\4\2"
    header = batch.read_header(data)
    assert header == batch.BatchHeader(
        -5, len(data) - 12, 4, 2, header.crc, 0, 7, NOW_MS, NOW_MS, 2**40, 6, 9, 3
    )  # fmt: skip
    assert header.size_bytes == len(data)
    assert header.last_offset == 2


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x00, ""),
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
        (0x7B, "is_log_append_time is_transactional is_control has_delete_horizon"),
    ],
)
def test_S61_attribute_bits(bits: int, names: str) -> None:
    header = batch.read_header(changed(build_batch(some_records(1)), attributes=bits))
    said = {
        name
        for name in ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
        if getattr(header, name)
    }
    assert said == set(names.split())
    assert header.codec == bits & 7


def test_a_header_cut_short_is_corrupt() -> None:
    data = build_batch(some_records(1))
    for position in (len(data) - 60, len(data), len(data) + 5):
        with pytest.raises(CorruptBatch, match=str(position)):
            batch.read_header(data, position)


def test_check_crc_tells_a_batch_that_is_not_whole() -> None:
    data = build_batch(some_records(2))
    header = batch.read_header(data)
    assert batch.check_crc(data, 0, header)
    assert batch.check_crc(b"ab" + data + b"c", 2, header)
    assert not batch.check_crc(data[:-1], 0, header)
    assert not batch.check_crc(data + b"c", 1, header)
    assert not batch.check_crc(data, 0, header._replace(batch_length=3))
    assert not batch.check_crc(data, 0, header._replace(batch_length=-1))


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_building_with_a_codec_that_does_not_exist() -> None:
    with pytest.raises(UnsupportedCodec, match="5"):
        build_batch(some_records(1), codec=5)
    with pytest.raises(UnsupportedCodec, match="zstd"):
        compression.decompress(7, b"", 1)


def test_reading_a_batch_whose_records_are_wrong_says_where() -> None:
    data = bytes(8) + changed(build_batch(some_records(2)), record_count=3)
    with pytest.raises(InvalidRecord, match=r"batch at position 8: record 2"):
        list(read_records(data, 8))


def test_reading_a_batch_cut_short_is_an_error_and_not_fewer_records() -> None:
    data = build_batch(some_records(5))
    with pytest.raises(InvalidRecord):
        list(read_records(data[:-1]))


@pytest.mark.parametrize("codec", range(5))
def test_the_largest_and_smallest_numbers_come_back(codec: int) -> None:
    records = [
        Record(2**62, 0, b"", b"", (("", b""),)),
        Record(2**62 + 2**31 - 1, 2**63 - 1, b"k" * 70_000, None, (("n" * 300, None),) * 200),
    ]
    assert list(read_records(build_batch(records, codec=codec))) == records
