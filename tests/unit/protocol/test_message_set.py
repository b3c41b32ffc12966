"""Message sets of formats v0 and v1: what is in them, and what is written, judged by Kafka's bytes and kafka-python."""

import json
import struct
import tracemalloc
from pathlib import Path

import lz4.frame  # type: ignore[import-untyped]
import pytest
import xxhash
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.support.batches import NOW_MS
from tests.support.messages import LIMIT, as_in, message, resigned, shifted, some, wrapper
from tests.support.paths import KAFKA_WRITTEN
from tidelog.protocol.records import legacy, legacy_codecs
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    RecordsError,
    UnsupportedCodec,
)
from tidelog.protocol.records.message_set import (
    build_message_set,
    entries,
    open_payload,
    read_records,
)

BOTH = pytest.mark.parametrize("magic", [0, 1])
EVERY_CODEC = pytest.mark.parametrize("codec", [0, 1, 2, 3])
COMPRESSED = pytest.mark.parametrize("codec", [1, 2, 3])
MANY = some(50)


def refusal(data: bytes) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        list(read_records(data, limit_bytes=LIMIT))
    return caught.value


@pytest.mark.parametrize("folder", sorted(KAFKA_WRITTEN.glob("m[01]-*")), ids=lambda path: path.name)
def test_S60_S62_S67_what_kafka_wrote_is_read_as_it_was_meant(folder: Path) -> None:
    data = next(folder.glob("*.log")).read_bytes()
    rows = [json.loads(line) for line in (folder / "expected.jsonl").read_text().splitlines()]
    parts = [[row[name] and bytes.fromhex(row[name]) for name in ("key", "value")] for row in rows]
    empty = [
        [b"" if row[name] == "" else part for name, part in zip(("key", "value"), pair, strict=True)]
        for row, pair in zip(rows, parts, strict=True)
    ]
    meant = [Record(row["offset"], row["ts"], *pair) for row, pair in zip(rows, empty, strict=True)]
    assert list(read_records(data)) == meant
    assert all(legacy.check_crc(data, entry.position, entry) for entry in entries(data))
    assert {entry.is_log_append_time for entry in entries(data)} == {"lat" in folder.name}


@pytest.mark.parametrize("folder", sorted(KAFKA_WRITTEN.glob("m[01]-*")), ids=lambda path: path.name)
def test_S60_S62_what_is_built_is_kafkas_own_bytes(folder: Path) -> None:
    """Of the same records the same entries: gzip and snappy may pack them otherwise, and must say the same."""
    data = next(folder.glob("*.log")).read_bytes()
    for entry in entries(data):
        stored = data[entry.position : entry.position + entry.size_bytes]
        kept = list(read_records(stored))
        built = build_message_set(
            kept, magic=entry.magic, codec=entry.codec, log_append_time=entry.is_log_append_time
        )
        assert list(read_records(built)) == kept
        (mine,) = entries(built)
        assert mine[4:9:2] == entry[4:9:2]  # magic, timestamp, key
        assert (mine.offset, mine.attributes) == (entry.offset, entry.attributes)
        if entry.codec == 0:
            assert built == stored


@BOTH
def test_S60_the_bytes_of_a_message(magic: int) -> None:
    built = build_message_set([Record(7, 9, None, b"ab")], magic=magic)
    time = bytes(7) + b"\x09" if magic else b""
    body = bytes([magic, 0]) + time + b"\xff\xff\xff\xff" + b"\0\0\0\2ab"
    assert resigned(built) == built
    assert built == bytes(7) + b"\7" + struct.pack(">i", len(body) + 4) + built[12:16] + body
    assert list(read_records(built)) == [Record(7, 9 if magic else -1, None, b"ab")]


@BOTH
@EVERY_CODEC
def test_S62_S67_holes_between_offsets_stay(magic: int, codec: int) -> None:
    """S66."""
    given = as_in(magic, [Record(n, NOW_MS - n, b"k", b"v" * n) for n in (1000, 1001, 1007, 5000)])
    built = build_message_set(given, magic=magic, codec=codec)
    assert list(read_records(b"before" + built + b"after", 6, 6 + len(built))) == given
    if codec:
        (entry,) = entries(built)
        assert entry.offset == 5000
        assert entry.timestamp == (NOW_MS - 1000 if magic else -1)


@COMPRESSED
def test_S67_offsets_count_back_from_the_wrappers(codec: int) -> None:
    payload = message(1, 0) + message(1, 1) + message(1, 2)
    assert [record.offset for record in read_records(wrapper(1, codec, payload, 102))] == [100, 101, 102]
    # As some versions of librdkafka leave it.
    assert [record.offset for record in read_records(wrapper(1, codec, payload, 0))] == [0, 1, 2]
    error = refusal(wrapper(1, codec, payload, 1))
    assert isinstance(error, InvalidRecord)
    assert "less than that of the last message in it, 2" in str(error)


@COMPRESSED
def test_S67_offsets_in_a_payload_of_v0_are_absolute(codec: int) -> None:
    payload = message(0, 40) + message(0, 44)
    assert [record.offset for record in read_records(wrapper(0, codec, payload, 44))] == [40, 44]


@BOTH
@COMPRESSED
def test_S62_S67_what_is_written_within_a_wrapper(magic: int, codec: int) -> None:
    """In v1 offsets count from the first, in v0 from nothing."""
    built = build_message_set(shifted(MANY, 500), magic=magic, codec=codec)
    (entry,) = entries(built)
    inner = [inner.offset for inner in entries(open_payload(built, entry, LIMIT))]
    assert inner == list(range(50) if magic else range(500, 550))


@EVERY_CODEC
def test_v0_has_no_timestamp_type(codec: int) -> None:
    built = build_message_set(MANY, magic=0, codec=codec, log_append_time=True)
    assert {entry.attributes for entry in entries(built)} == {codec}
    assert built == build_message_set(MANY, magic=0, codec=codec)


@EVERY_CODEC
def test_S48_with_log_append_time_all_have_the_wrappers_time(codec: int) -> None:
    given = [Record(n, NOW_MS, None, b"v") for n in range(3)]
    built = build_message_set(given, magic=1, codec=codec, log_append_time=True)
    assert all(entry.is_log_append_time for entry in entries(built))
    assert list(read_records(built)) == given
    # A payload that stays as it came has the producer's times in it.
    kept = wrapper(1, 1, message(1, 0, timestamp=5) + message(1, 1), 1, attributes=8, timestamp=77)
    assert [record.timestamp for record in read_records(kept)] == [77, 77]


@BOTH
@EVERY_CODEC
def test_S60_S63_what_kafka_python_builds_is_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for record in MANY:
        builder.append(record.offset, record.timestamp, record.key, record.value)
    built = bytes(builder.build())
    assert list(read_records(built)) == as_in(magic, MANY)
    if not codec:
        assert build_message_set(MANY, magic=magic) == built


# lz4: the checksum of a frame's header


def test_S61_the_checksum_of_an_lz4_header_is_kafkas() -> None:
    """The two bytes that Kafka's own tests expect (MessageCompressionTest, KAFKA-3160)."""
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        frame = legacy_codecs.compress(3, b"some" * 99, magic)
        assert bytes(frame[:7]) == bytes((0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, checksum))


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("sized", [False, True])
def test_S61_either_checksum_is_read_in_either_format(written: int, read: int, sized: bool) -> None:
    for length in range(1, 20_000, 257):
        data = bytes(length)
        frame = bytes(legacy_codecs.compress(3, data, written))
        if sized:
            frame = lz4.frame.compress(data, block_linked=False, store_size=True)
            if written == 0:
                frame = frame[:14] + bytes((xxhash.xxh32_intdigest(frame[:14]) >> 8 & 0xFF,)) + frame[15:]
        assert legacy_codecs.decompress(3, frame, read, length) == data


def test_S61_another_checksum_is_read_in_v0_alone() -> None:
    """Kafka looks at none there."""
    frame = bytes(legacy_codecs.compress(3, b"some" * 99, 1))
    frame = frame[:6] + b"\x55" + frame[7:]
    assert legacy_codecs.decompress(3, frame, 0, 1000) == b"some" * 99
    with pytest.raises(CorruptBatch, match="lz4"):
        legacy_codecs.decompress(3, frame, 1, 1000)


@pytest.mark.parametrize("size", range(15))
@BOTH
def test_a_frame_that_ends_within_its_header_is_corrupt(magic: int, size: int) -> None:
    for flags in (0x60, 0x68):
        frame = bytes((0x04, 0x22, 0x4D, 0x18, flags, 0x40, *range(9)))[:size]
        with pytest.raises(CorruptBatch, match="lz4"):
            legacy_codecs.decompress(3, frame, magic, 1000)


# What is wrong


@BOTH
@EVERY_CODEC
@pytest.mark.parametrize("keep", [1, 11, 12, 17, 25, 30, -1])
def test_a_message_cut_short_is_corrupt(magic: int, codec: int, keep: int) -> None:
    data = build_message_set(MANY[:1], magic=magic, codec=codec)[:keep]
    assert isinstance(refusal(data), CorruptBatch)
    whole = build_message_set(MANY, magic=magic)
    assert f"position {len(whole)}" in str(refusal(whole + data))


@BOTH
@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 21, 2**31 - 1])
def test_a_wrong_length_is_corrupt(magic: int, length: int) -> None:
    data = bytearray(message(magic, value=bytes(5)))
    data[8:12] = struct.pack(">i", length)
    assert isinstance(refusal(bytes(data)), CorruptBatch)


@BOTH
@pytest.mark.parametrize("which", ["key", "value"])
@pytest.mark.parametrize("length", [-(2**31), -2, -1, 1, 3, 12, 2**31 - 1])
def test_a_wrong_length_of_a_key_or_value_is_corrupt(magic: int, which: str, length: int) -> None:
    data = bytearray(message(magic, value=b"ab", key=b"ab"))
    at = (26 if magic else 18) + (6 if which == "value" else 0)
    data[at : at + 4] = struct.pack(">i", length)
    error = refusal(resigned(data))
    assert isinstance(error, CorruptBatch)
    assert "position 0" in str(error)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(message(1))
    data[16] = magic
    assert isinstance(refusal(bytes(data)), CorruptBatch)


def test_a_batch_among_messages_is_invalid() -> None:
    error = refusal(message(1) + build_batch(MANY))
    assert isinstance(error, InvalidRecord)
    assert "format v2" in str(error)


@BOTH
@COMPRESSED
def test_a_wrapper_in_a_wrapper_is_invalid(magic: int, codec: int) -> None:
    inner = wrapper(magic, codec, message(magic))
    error = refusal(wrapper(magic, codec, message(magic) + inner))
    assert isinstance(error, InvalidRecord)
    assert "compressed a second time" in str(error)


@BOTH
@COMPRESSED
def test_another_format_within_a_wrapper_is_invalid(magic: int, codec: int) -> None:
    for offset in (0, 3):
        error = refusal(wrapper(magic, codec, message(1 - magic, value=None), offset))
        assert isinstance(error, InvalidRecord)
        assert f"format v{1 - magic}" in str(error)


@BOTH
@pytest.mark.parametrize("codec", [4, 5, 7])
def test_zstd_and_what_is_no_codec_are_unsupported(magic: int, codec: int) -> None:
    error = refusal(message(magic, value=b"x", attributes=codec))
    assert isinstance(error, UnsupportedCodec)
    assert "position 0" in str(error)


@BOTH
@COMPRESSED
def test_a_wrapper_without_messages_is_invalid(magic: int, codec: int) -> None:
    assert isinstance(refusal(message(magic, value=None, attributes=codec)), InvalidRecord)
    assert isinstance(refusal(message(magic, value=b"", attributes=codec)), RecordsError)
    assert isinstance(refusal(wrapper(magic, codec, b"")), InvalidRecord)


@BOTH
@COMPRESSED
@pytest.mark.parametrize("keep", [5, 12, 20, -1])
def test_a_payload_whose_last_message_is_cut_is_corrupt(magic: int, codec: int, keep: int) -> None:
    error = refusal(wrapper(magic, codec, message(magic) + message(magic, 1)[:keep], 9))
    assert isinstance(error, CorruptBatch)


@BOTH
@COMPRESSED
@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 13, 2**31 - 1])
def test_a_wrong_length_within_a_payload_is_corrupt(magic: int, codec: int, length: int) -> None:
    """Whether or not the last offset is looked for first; one of -12 leads back to itself."""
    inner = bytearray(message(magic))
    inner[8:12] = struct.pack(">i", length)
    for offset in (0, 9):
        error = refusal(wrapper(magic, codec, message(magic) + bytes(inner), offset))
        assert isinstance(error, CorruptBatch)


@BOTH
@COMPRESSED
def test_offsets_beyond_what_there_is_are_corrupt(magic: int, codec: int) -> None:
    payload = message(magic, 5 if magic else -1) + message(magic, -4)
    assert isinstance(refusal(wrapper(magic, codec, payload, 2**63 - 1)), CorruptBatch)


@BOTH
@COMPRESSED
def test_P26_a_payload_above_the_limit_is_refused_without_the_memory(magic: int, codec: int) -> None:
    data = wrapper(magic, codec, message(magic, value=bytes(64 * LIMIT)))
    refusal(data)  # imports the library
    tracemalloc.start()
    try:
        error = refusal(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(error, BatchTooLarge)
    assert peak < 2 * len(data) + 3 * LIMIT


def test_one_payload_at_a_time_is_in_memory() -> None:
    data = build_message_set([Record(0, 0, None, bytes(LIMIT // 2))], magic=1, codec=1) * 40
    list(read_records(data))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_records(data)) == 40
        assert tracemalloc.get_traced_memory()[1] < 5 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magic", [-1, 2])
def test_there_are_two_formats_to_build_in(magic: int) -> None:
    with pytest.raises(ValueError, match="magic"):
        build_message_set(MANY, magic=magic)
    with pytest.raises(ValueError, match="at least one"):
        build_message_set([], magic=1)
