"""What readers of older versions get of what is stored: converted entry by entry, or as it is."""

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.support.batches import NOW_MS, batch_of, changed, plain_record
from tests.support.messages import LIMIT, as_in, by_kafka_python, convert, message, shifted, some, wrapper
from tests.support.paths import KAFKA_WRITTEN
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records import convert as convert_module
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordsError,
    UnsupportedCodec,
)
from tidelog.protocol.records.message_set import build_message_set, entries, read_records

BOTH = pytest.mark.parametrize("magic", [0, 1])
EVERY_CODEC = pytest.mark.parametrize("codec", [0, 1, 2, 3])
MANY = shifted([replace(record, headers=(("h", b"1"), ("g", None))) for record in some(20)], 500)


def converted(data: bytes, magic: int, offset_min: int = 0, limit_bytes: int = LIMIT) -> list[bytes]:
    return [
        bytes(piece.data)
        for piece in convert(data, 0, len(data), magic, offset_min, limit_bytes)
        if piece.data
    ]


def read(parts: Iterable[bytes]) -> list[Record]:
    return list(read_records(b"".join(parts)))


def refusal(data: bytes, magic: int = 1) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        converted(data, magic)
    return caught.value


@BOTH
@EVERY_CODEC
def test_a_batch_becomes_messages(magic: int, codec: int) -> None:
    """S70, S76: keys, values, offsets, in v1 times; headers and producers are left out, the codec stays."""
    data = build_batch(MANY, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, leader_epoch=3)
    (part,) = converted(data, magic)
    assert read([part]) == as_in(magic, MANY)
    found = list(entries(part))
    assert {(entry.magic, entry.codec, entry.is_log_append_time) for entry in found} == {
        (magic, codec, False)
    }
    assert len(found) == (1 if codec else len(MANY))
    if codec:
        assert found[0].offset == MANY[-1].offset
        assert found[0].timestamp == (max(record.timestamp for record in MANY) if magic else -1)
    if (magic, codec) != (0, 3):
        assert list(by_kafka_python(part)) == as_in(magic, MANY)


def test_S76_the_attributes_of_v0_name_a_codec_and_no_clock() -> None:
    (part,) = converted(build_batch(MANY[:1], log_append_time=True), 0)
    assert part[17] == 0


@EVERY_CODEC
def test_log_append_time_is_kept(codec: int) -> None:
    """S48, S70: of a batch, and of messages, all have the time of the append."""
    data = build_batch(MANY, codec=codec, log_append_time=True)
    header = batch.read_header(data)
    parts = converted(data, 1)
    assert {record.timestamp for record in read(parts)} == {header.max_timestamp}
    assert all(entry.is_log_append_time for entry in entries(parts[0]))
    assert {record.timestamp for record in read(converted(data, 0))} == {-1}


@EVERY_CODEC
def test_messages_of_v1_become_v0(codec: int) -> None:
    """S70, S77: absolute offsets, no times."""
    data = build_message_set(MANY, magic=1, codec=codec)
    parts = converted(data, 0)
    assert read(parts) == as_in(0, MANY)
    assert {entry.magic for part in parts for entry in entries(part)} == {0}
    assert len(parts) == (1 if codec else len(MANY))


@BOTH
def test_entries_of_all_formats_are_converted_one_by_one(magic: int) -> None:
    """S77, S78: a log that was written under each format."""
    old, newer, newest = MANY[:5], MANY[5:9], MANY[9:]
    data = build_message_set(old, magic=0) + build_message_set(newer, magic=1, codec=1) + build_batch(newest)
    assert read(converted(data, magic)) == [
        *as_in(0, old),
        *as_in(magic, newer),
        *as_in(magic, newest),
    ]


@BOTH
@pytest.mark.parametrize("offset_min", [499, 500, 510, 519, 520])
def test_records_before_the_offset_asked_for_are_left_out(magic: int, offset_min: int) -> None:
    """S70: of what is not compressed, which some librdkafkas rely on; else they come along with what is asked for."""
    left = [record for record in as_in(magic, MANY) if record.offset >= offset_min]
    parts = converted(build_batch(MANY), magic, offset_min)
    assert read(parts) == left
    assert len(parts) == (1 if left else 0)
    whole = MANY if left else []
    assert read(converted(build_batch(MANY, codec=1), magic, offset_min)) == as_in(magic, whole)
    if magic == 0:
        assert read(converted(build_message_set(MANY, magic=1), 0, offset_min)) == left
        assert read(converted(build_message_set(MANY, magic=1, codec=2), 0, offset_min)) == as_in(0, whole)


@BOTH
@EVERY_CODEC
def test_holes_stay(magic: int, codec: int) -> None:
    """S66, S70: after compaction, at both ends too."""
    given = [Record(n, NOW_MS, b"k", None) for n in (103, 104, 110)]
    data = changed(build_batch(given, base_offset=100, codec=codec), last_offset_delta=20)
    assert read(converted(bytes(data), magic)) == as_in(magic, given)


@BOTH
def test_control_batches_and_empty_ones_leave_nothing(magic: int) -> None:
    """S70."""
    marker = build_batch([Record(4, NOW_MS, bytes(4), bytes(6))], control=True, transactional=True)
    empty = bytes(batch_of(b"", count=0, base_offset=5, last_offset_delta=9))
    data = marker + empty + build_batch(shifted(MANY, 100), transactional=True) + marker
    (part,) = converted(data, magic)
    assert read([part]) == as_in(magic, shifted(MANY, 100))
    assert converted(marker + empty, magic) == []
    assert converted(marker, 2) == [marker]


@BOTH
def test_a_delete_horizon_changes_no_time(magic: int) -> None:
    """S70: the base timestamp is then another one, and records count from it all the same."""
    data = changed(build_batch(MANY), attributes=batch.DELETE_HORIZON)
    assert read(converted(bytes(data), magic)) == as_in(magic, MANY)


@BOTH
def test_zstd_cannot_be_converted(magic: int) -> None:
    """As Kafka answers it: KIP-110."""
    error = refusal(build_batch(MANY, codec=4), magic)
    assert isinstance(error, UnsupportedCodec)
    assert "zstd" in str(error)


@pytest.mark.parametrize("name", [path.name for path in sorted(KAFKA_WRITTEN.glob("m2-*"))])
@BOTH
def test_what_kafka_wrote_as_batches_is_read_by_old_clients(name: str, magic: int) -> None:
    """S70, S76."""
    from tidelog.protocol.records.build import read_records as read_batch

    data = next((KAFKA_WRITTEN / name).glob("*.log")).read_bytes()
    meant: list[Record] = []
    position = 0
    while position < len(data):
        meant += read_batch(data, position)
        position += batch.read_header(data, position).size_bytes
    parts = converted(data, magic)
    assert read(parts) == as_in(magic, meant)
    if (magic, "lz4" in name) != (0, True):
        assert list(by_kafka_python(b"".join(parts))) == as_in(magic, meant)


def test_records_that_are_damaged_are_named() -> None:
    data = batch_of(plain_record(0) + plain_record(0), count=2)
    error = refusal(bytes(data))
    assert isinstance(error, InvalidRecord)
    assert "batch at offset 0: record 1" in str(error)


@pytest.mark.parametrize("base", [-1, 2**63 - 1])
def test_offsets_that_no_message_has_are_corrupt(base: int) -> None:
    assert isinstance(refusal(bytes(changed(build_batch(MANY), base_offset=base))), CorruptBatch)


def test_the_last_offset_that_a_message_can_have_is_kept() -> None:
    data = build_batch([Record(0, 0, None, b"x"), Record(1, 0, None, b"y")])
    found = read(converted(bytes(changed(data, base_offset=2**63 - 2)), 1))
    assert [record.offset for record in found] == [2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("base_time", [-2, -(2**63), 2**63 - 1])
def test_times_that_no_message_has_are_refused(base_time: int) -> None:
    data = batch_of(plain_record(0) + plain_record(1, 1), count=2, base_timestamp=base_time)
    assert isinstance(refusal(bytes(data)), InvalidTimestamp)


def test_times_and_offsets_of_a_single_record_are_looked_at_too() -> None:
    assert isinstance(refusal(bytes(batch_of(plain_record(), base_timestamp=-2))), InvalidTimestamp)
    assert isinstance(refusal(bytes(batch_of(plain_record(), base_offset=-1))), CorruptBatch)


@BOTH
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_P26_what_gives_more_than_the_limit_is_refused(magic: int, codec: int) -> None:
    data = build_batch([Record(0, 0, None, bytes(2 * LIMIT))], codec=codec)
    assert isinstance(refusal(data, magic), BatchTooLarge)
    if magic == 0:
        assert isinstance(refusal(wrapper(1, codec, message(1, value=bytes(2 * LIMIT))), 0), BatchTooLarge)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "PIECE_BYTES", 200)
    monkeypatch.setattr(convert_module, "PIECE_RECORDS", 7)


# Records of all sizes, some larger than what is converted at once.
MIXED = [replace(record, value=bytes(record.offset * 13 % 700)) for record in shifted(some(120), 1000)]


@BOTH
@EVERY_CODEC
@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.usefixtures("small_pieces")
def test_a_large_entry_becomes_several_smaller_ones(magic: int, codec: int, stored: int) -> None:
    """S67, S70, S77: each with the right offsets and times, and of a few records."""
    if stored <= magic:
        return
    data = build_batch(MIXED, codec=codec) if stored == 2 else build_message_set(MIXED, magic=1, codec=codec)
    parts = converted(data, magic)
    assert len(parts) > len(MIXED) // 7
    for part in parts:
        rows = read([part])
        assert len(rows) <= 7
        assert sum(len(row.value or b"") for row in rows) < 200 + 2 * 700
        if codec:
            (entry,) = entries(part)
            assert (entry.codec, entry.offset) == (codec, rows[-1].offset)
            assert entry.timestamp == (max(row.timestamp for row in rows) if magic else -1)
    assert read(parts) == as_in(magic, MIXED)
    if (magic, codec) != (0, 3):
        assert list(by_kafka_python(b"".join(parts))) == as_in(magic, MIXED)


@BOTH
@EVERY_CODEC
@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.usefixtures("small_pieces")
def test_the_first_piece_is_the_one_that_holds_the_offset(magic: int, codec: int, stored: int) -> None:
    if stored <= magic:
        return
    data = build_batch(MIXED, codec=codec) if stored == 2 else build_message_set(MIXED, magic=1, codec=codec)
    whole = converted(data, magic)
    for offset in range(990, 1121):
        parts = converted(data, magic, offset)
        if codec:
            assert parts == [part for part in whole if read([part])[-1].offset >= offset]
        else:
            assert read(parts) == [row for row in as_in(magic, MIXED) if row.offset >= offset]


@pytest.mark.parametrize("codec", [0, 1, 3])
@pytest.mark.usefixtures("small_pieces")
def test_what_comes_before_damage_is_given(codec: int) -> None:
    """Of a large batch as of a log; from the damage on there is nothing but the error."""
    payload = b"".join(plain_record(n, value=b"v" * 20) for n in range(100))
    data = bytes(
        batch_of(bytes(compression.compress(codec, payload + b"\x20\0")), count=101, attributes=codec)
    )
    pieces = convert(data, 0, len(data), 1, 0, LIMIT)
    found: list[bytes] = []
    with pytest.raises(InvalidRecord, match="record 100 "):
        found.extend(bytes(piece.data) for piece in pieces)
    assert [row.offset for row in read(part for part in found if part)] == list(range(100))
    with pytest.raises(InvalidRecord, match="record 100 "):
        list(convert(data, 0, len(data), 1, 99, LIMIT))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_piece_of_an_entry_is_in_memory(codec: int) -> None:
    """However large it is; and what lies before the offset costs no more than to step over it."""
    count = 30_000
    records = b"".join(plain_record(n, value=bytes(300)) for n in range(count))
    packed = bytes(compression.compress(codec, records))
    data = bytes(batch_of(packed, count=count, attributes=codec, last_offset_delta=count - 1))
    del records
    tracemalloc.start()
    try:
        for offset in (0, 29_900):
            steps = [len(piece.data) for piece in convert(data, 0, len(data), 1, offset, 16 << 20)]
            assert len(steps) >= 15, "it gives way while it looks for the offset, too"
            assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def test_one_batch_at_a_time_is_in_memory() -> None:
    data = build_batch([Record(0, 0, None, bytes(LIMIT // 2))], codec=compression.GZIP) * 40
    converted(data[: len(data) // 40], 1)
    tracemalloc.start()
    try:
        assert sum(1 for piece in convert(data, 0, len(data), 1, 0, LIMIT) if piece.data) == 40
        assert tracemalloc.get_traced_memory()[1] < 5 * LIMIT
    finally:
        tracemalloc.stop()
