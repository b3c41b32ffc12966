"""Which batches a producer may send, and which code it sees for the others."""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import (
    NOW_MS,
    batch_of,
    changed,
    plain_record,
    record_bytes,
    resign,
    some_records,
    varint,
)
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.validate import Rules, validate

MIB = 1 << 20
RULES = Rules(
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=3_600_000,
    max_batch_bytes=MIB,
    max_decompressed_bytes=64 * MIB,
)
APPEND_TIME = replace(RULES, log_append_time=True)


def refusal(data: bytes | bytearray, rules: Rules = RULES) -> tuple[ErrorCode, str]:
    """The code and words for a batch that must be refused, and left as it came."""
    mine = bytearray(data)
    with pytest.raises(RecordsError) as caught:
        validate(mine, rules, NOW_MS)
    assert mine == data
    return caught.value.code, str(caught.value)


def code_of(data: bytes | bytearray, rules: Rules = RULES) -> ErrorCode:
    return refusal(data, rules)[0]


def good(count: int = 3, **options: Any) -> bytes:
    return build_batch(some_records(count), **options)


GOOD = good()
REFUSED = {
    ErrorCode.CORRUPT_MESSAGE: [
        *(GOOD[:keep] for keep in (1, 11, 12, 16, 17, 60, 61, -1)),
        *(changed(GOOD, batch_length=length) for length in (-(2**31), -1, 0, 48, 2**31 - 1)),
        *(changed(GOOD, magic=magic) for magic in (3, 127, -1)),
    ],
    ErrorCode.INVALID_RECORD: [
        b"",
        *(changed(GOOD, magic=magic)[:keep] for magic in (0, 1) for keep in (40, None)),
        *(
            changed(GOOD, record_count=count, last_offset_delta=last)
            for count, last in ((0, -1), (-1, -2), (2, 2), (4, 2), (3, 3), (2**31 - 1, 2**31 - 2))
        ),
        good(1, control=True, producer_id=1, base_sequence=0),
        changed(GOOD, attributes=batch.DELETE_HORIZON),
    ],
    ErrorCode.INVALID_TXN_STATE: [good(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)],
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: [changed(GOOD, attributes=codec) for codec in (5, 6, 7)],
}


@pytest.mark.parametrize(
    ("code", "data"), [(code, data) for code, refused in REFUSED.items() for data in refused]
)
def test_what_is_no_batch_of_a_producer_is_refused(code: ErrorCode, data: bytes) -> None:
    assert code_of(data) == code


def test_a_good_batch_is_left_as_it_came() -> None:
    records = [
        Record(0, NOW_MS, b"k", b"v"),
        Record(1, NOW_MS + 9, None, None, (("h", None),)),
        Record(2, NOW_MS - 5, None, b"", (("h", b"1"), ("h", b"2"))),
        Record(3, NOW_MS + 9, None, b"x"),
    ]
    data = build_batch(records)
    mine = bytearray(data)
    valid = validate(mine, RULES, NOW_MS)
    assert mine == data
    assert valid.header == batch.read_header(data)
    assert (valid.min_timestamp, valid.max_timestamp) == (NOW_MS - 5, NOW_MS + 9)
    assert valid.max_timestamp_offset_delta == 1
    assert valid.size_bytes == len(data)


def test_a_view_of_a_request_is_validated_in_place() -> None:
    request = bytearray(b"before") + changed(good(), max_timestamp=5) + bytearray(b"after")
    view = memoryview(request)[6:-5]
    valid = validate(view, RULES, NOW_MS)
    assert request.startswith(b"before")
    assert request.endswith(b"after")
    assert batch.read_header(request, 6) == valid.header


# Truncated or damaged: CORRUPT_MESSAGE


def test_a_wrong_checksum_is_2() -> None:
    data = bytearray(good())
    data[-1] ^= 1
    code, words = refusal(data)
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert "checksum" in words


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("payload", [b"", b"\5", b"garbage", b"\x82SNAPPY\0", b"\xff" * 1000], ids=repr)
def test_a_garbage_payload_is_2(codec: int, payload: bytes) -> None:
    code, words = refusal(batch_of(payload, attributes=codec))
    assert code == ErrorCode.CORRUPT_MESSAGE or "more than" in words  # 0xFF... promises 4 GiB of snappy


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_payload_cut_short_or_too_long_is_2(codec: int) -> None:
    payload = compression.compress(codec, b"".join(plain_record(index) for index in range(50)))
    for wrong in (payload[:-1], payload[: len(payload) // 2], payload + b"\0", payload + payload):
        data = batch_of(wrong, count=50, attributes=codec)
        if codec == compression.SNAPPY and wrong == payload + payload:
            continue  # the second stream's magic reads as a length that leads past the end
        assert code_of(data) == ErrorCode.CORRUPT_MESSAGE


# Whole, but not what a producer may send: INVALID_RECORD


def test_two_batches_in_one_partition_are_87() -> None:
    code, words = refusal(good() + good())
    assert code == ErrorCode.INVALID_RECORD
    assert "one for each partition" in words


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [2, 4])
def test_a_count_other_than_the_records_is_87_with_every_codec(codec: int, count: int) -> None:
    data = changed(good(3, codec=codec), record_count=count, last_offset_delta=count - 1)
    assert code_of(data) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("deltas", [(1, 2), (0, 0), (0, 2), (-1, 0), (1, 0)])
def test_S49_a_wrong_offset_delta_is_87(codec: int, deltas: tuple[int, int]) -> None:
    payload = b"".join(plain_record(delta) for delta in deltas)
    data = batch_of(compression.compress(codec, payload), count=2, attributes=codec)
    code, words = refusal(data)
    assert code == ErrorCode.INVALID_RECORD
    assert "offset delta" in words


def test_a_record_that_is_wrong_is_87_and_named() -> None:
    payload = plain_record(0) + record_bytes(varint(0), varint(1), varint(99), varint(-1), varint(0))
    code, words = refusal(batch_of(payload, count=2))
    assert code == ErrorCode.INVALID_RECORD
    assert "record 1 at position 69" in words


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("offset", [1, -1, 2**63 - 1, -(2**63)])
def test_C16_a_base_offset_from_a_producer_is_taken_whatever_it_is(offset: int, codec: int) -> None:
    data = changed(good(codec=codec), base_offset=offset)
    mine = bytearray(data)
    valid = validate(mine, RULES, NOW_MS)
    assert mine == data  # the log overwrites it
    assert (valid.header.base_offset, valid.header.last_offset_delta) == (offset, 2)


def test_a_producer_id_without_a_sequence_is_87() -> None:
    assert code_of(good(producer_id=7, producer_epoch=0)) == ErrorCode.INVALID_RECORD
    validate(bytearray(good(producer_id=7, producer_epoch=0, base_sequence=0)), RULES, NOW_MS)


# The rest of the codes


def test_attribute_bits_without_a_meaning_are_let_by() -> None:
    data = changed(good(), attributes=0x0F80)
    assert validate(bytearray(data), RULES, NOW_MS).header.attributes == 0x0F80


def test_a_batch_above_the_size_limit_is_10() -> None:
    data = good()
    validate(bytearray(data), replace(RULES, max_batch_bytes=len(data)), NOW_MS)
    assert code_of(data, replace(RULES, max_batch_bytes=len(data) - 1)) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_P26_a_payload_above_the_decompressed_limit_is_10(codec: int) -> None:
    data = build_batch(some_records(1000), codec=codec)
    size = len(build_batch(some_records(1000))) - batch.HEADER_BYTES
    validate(bytearray(data), replace(RULES, max_decompressed_bytes=size), NOW_MS)
    assert code_of(data, replace(RULES, max_decompressed_bytes=size - 1)) == ErrorCode.MESSAGE_TOO_LARGE


def bomb(codec: int, size_bytes: int) -> bytes:
    """A payload that gives size_bytes of zeros; the promise of a size left out where the codec can."""
    if codec == compression.ZSTD:
        import zstandard

        stream = zstandard.ZstdCompressor().compressobj()
        chunk = bytes(MIB)
        return b"".join(stream.compress(chunk) for _ in range(size_bytes // MIB)) + stream.flush()
    return compression.compress(codec, bytes(size_bytes))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_P26_a_bomb_is_10_and_takes_no_more_memory_than_the_limit(codec: int) -> None:
    limit = 4 * MIB
    data = batch_of(bomb(codec, 64 * MIB), attributes=codec)
    rules = replace(RULES, max_batch_bytes=64 * MIB, max_decompressed_bytes=limit)
    peak, code = _peak_bytes(lambda: code_of(data, rules))
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    # The batch twice (refusal's copy and the library's), the output, and a chunk that a decoder works in.
    assert peak < 2 * len(data) + 3 * limit


def _peak_bytes(call: Callable[[], ErrorCode]) -> tuple[int, ErrorCode]:
    call()  # imports the library
    tracemalloc.start()
    try:
        code = call()
        return tracemalloc.get_traced_memory()[1], code
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        # A promise of 1 TiB in the frame's header, and nothing to keep it with.
        (compression.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0"),
        (compression.SNAPPY, b"\xff\xff\xff\xff\x0f\0"),
        (compression.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\6\xff\xff\xff\xff\x0f\0"),
    ],
    ids=["zstd", "snappy", "xerial"],
)
def test_P26_a_promise_is_looked_at_before_it_is_allocated(codec: int, payload: bytes) -> None:
    data = batch_of(payload, attributes=codec)
    peak, code = _peak_bytes(lambda: code_of(data))
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < MIB


def test_P26_a_zstd_window_beyond_what_clients_use_is_2_and_not_allocated() -> None:
    # Window_Descriptor 0xA0: exponent 20, 2**30 bytes; one last raw block of one byte.
    data = batch_of(b"\x28\xb5\x2f\xfd\x00\xa0" + b"\x09\0\0x", attributes=compression.ZSTD)
    peak, code = _peak_bytes(lambda: code_of(data))
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert peak < MIB


@pytest.mark.parametrize(
    "payload",
    [
        b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 300_000 + b"\x01\0\0",  # empty zstd blocks
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"\0\0\0\1\0" * 180_000,  # empty snappy blocks
    ],
    ids=["zstd", "snappy"],
)
def test_a_megabyte_of_nothing_is_refused_in_bounded_time(payload: bytes) -> None:
    data = batch_of(payload, attributes=compression.ZSTD if payload[0] == 0x28 else compression.SNAPPY)
    start = time.process_time()
    assert code_of(data, replace(RULES, max_batch_bytes=4 * MIB)) in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )
    assert time.process_time() - start < 3


# Time


def test_S47_a_timestamp_too_far_ahead_is_32() -> None:
    limit = NOW_MS + RULES.timestamp_after_max_ms
    validate(bytearray(build_batch([Record(0, limit, None, b"v")])), RULES, NOW_MS)
    data = build_batch([Record(0, NOW_MS, None, b"v"), Record(1, limit + 1, None, b"v")])
    code, words = refusal(data)
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert "record 1" in words
    assert "message.timestamp.after.max.ms" in words


def test_S47_a_header_that_hides_a_late_record_does_not_help() -> None:
    data = changed(build_batch([Record(0, NOW_MS + 10**9, None, b"v")]), max_timestamp=NOW_MS)
    assert code_of(data) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [0, 4])
def test_S47_a_timestamp_too_far_behind_is_32(codec: int) -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000)
    records = [Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS - 1000, None, b"v")]
    validate(bytearray(build_batch(records, codec=codec)), rules, NOW_MS)
    records[1] = Record(1, NOW_MS - 1001, None, b"v")
    code, words = refusal(build_batch(records, codec=codec), rules)
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert "message.timestamp.before.max.ms" in words


@pytest.mark.parametrize("codec", [0, 4])
def test_S47_a_record_without_a_timestamp_is_not_old(codec: int) -> None:
    rules = replace(RULES, timestamp_before_max_ms=1000)
    records = [Record(0, NOW_MS, None, b"v"), Record(1, -1, None, b"v")]
    assert validate(bytearray(build_batch(records, codec=codec)), rules, NOW_MS).min_timestamp == -1
    old = [*records, Record(2, NOW_MS - 1001, None, b"v")]
    assert code_of(build_batch(old, codec=codec), rules) == ErrorCode.INVALID_TIMESTAMP


def test_a_batch_without_timestamps_has_none() -> None:
    valid = validate(bytearray(build_batch(some_records(3, timestamp=-1))), RULES, NOW_MS)
    assert (valid.min_timestamp, valid.max_timestamp, valid.header.max_timestamp) == (-1, -1, -1)


@pytest.mark.parametrize("rules", [RULES, APPEND_TIME], ids=["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(
    ("base", "delta"),
    [(2**63 - 1, 1), (2**63 - 1, 2**63 - 1), (-(2**63), -1), (0, -(2**63)), (0, -2), (-2, 0)],
)
def test_a_timestamp_beyond_an_int64_or_below_none_is_32(rules: Rules, base: int, delta: int) -> None:
    data = batch_of(plain_record(0, delta), base_timestamp=base)
    assert code_of(data, rules) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("rules", [RULES, APPEND_TIME], ids=["CreateTime", "LogAppendTime"])
def test_S46_a_producer_that_sets_LogAppendTime_gets_32(rules: Rules) -> None:
    assert code_of(good(log_append_time=True), rules) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("claimed", [-1, 0, NOW_MS - 1, NOW_MS + 10**12])
def test_P22_S48_the_max_timestamp_is_recomputed_whatever_the_header_says(codec: int, claimed: int) -> None:
    records = [
        Record(0, NOW_MS - 9, None, b"v"),
        Record(1, NOW_MS, None, b"v"),
        Record(2, NOW_MS - 3, None, b"v"),
    ]
    truth = build_batch(records, codec=codec)
    mine = changed(truth, max_timestamp=claimed)
    valid = validate(mine, RULES, NOW_MS)
    assert mine == truth
    assert valid.header == batch.read_header(truth)
    assert (valid.max_timestamp, valid.max_timestamp_offset_delta) == (NOW_MS, 1)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_S46_LogAppendTime_changes_type_max_timestamp_and_checksum_alone(codec: int) -> None:
    records = [
        Record(0, NOW_MS - 50, b"k", b"v"),
        Record(1, -1, None, b"v"),
        Record(2, NOW_MS + 10**9, None, None),
    ]
    data = build_batch(records, codec=codec)
    mine = bytearray(data)
    valid = validate(mine, APPEND_TIME, NOW_MS)
    assert mine == resign(changed(data, attributes=codec | batch.LOG_APPEND_TIME, max_timestamp=NOW_MS))
    assert batch.check_crc(mine, 0, valid.header)
    assert batch.read_header(mine) == valid.header
    assert (valid.min_timestamp, valid.max_timestamp) == (NOW_MS, NOW_MS)
    assert valid.max_timestamp_offset_delta == 0
    assert {record.timestamp for record in read_records(mine)} == {NOW_MS}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_S64_the_payload_is_never_touched(codec: int) -> None:
    data = changed(good(100, codec=codec), max_timestamp=0)
    for rules in (RULES, APPEND_TIME):
        mine = bytearray(data)
        validate(mine, rules, NOW_MS)
        assert mine[61:] == data[61:]


def test_a_batch_with_offset_and_epoch_assigned_keeps_its_checksum() -> None:
    mine = bytearray(good())
    validate(mine, RULES, NOW_MS)
    batch.set_base(mine, 0, 1 << 40, 7)
    header = batch.read_header(mine)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1 << 40, (1 << 40) + 2, 7)
    assert batch.check_crc(mine, 0, header)
