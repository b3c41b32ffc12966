"""Formats v0 and v1: what is built is read back, conversion keeps what a format holds, hostile bytes end in errors."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import NOW_MS
from tests.support.messages import (
    APPEND_TIME,
    LIMIT,
    RULES,
    as_in,
    by_kafka_python,
    codecs,
    convert,
    magics,
    message,
    records,
    shifted,
    validated_as,
    wrapper,
)
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import batch, build, legacy_codecs
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.message_set import build_message_set, entries, read_records
from tidelog.protocol.records.topic_format import assign_offsets
from tidelog.protocol.records.validate import Rules

CODES = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
formats = st.integers(0, 2)
# (where in the bytes, 0 to 1; the byte that is put there)
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


def built(magic: int, given_records: list[Record], codec: int) -> bytes:
    if magic == 2:
        return build_batch(given_records, codec=codec)
    return build_message_set(given_records, magic=magic, codec=codec)


def read(magic: int, data: bytes | bytearray | memoryview) -> list[Record]:
    return list(build.read_records(data) if magic == 2 else read_records(data))


def ended(call: Callable[[], object]) -> ErrorCode | None:
    """Make the call: the code of the RecordsError that it ended in, None where it did not."""
    try:
        call()
    except RecordsError as error:
        return error.code
    return None


def converted(data: bytes, magic: int, offset_min: int = 0) -> bytes:
    return b"".join(piece.data for piece in convert(data, 0, len(data), magic, offset_min, LIMIT))


@given(records(gaps=True), magics, codecs, st.integers(0, 2**40))
def test_S60_S62_S67_what_is_built_is_read_back(
    given_records: list[Record], magic: int, codec: int, base: int
) -> None:
    moved = as_in(magic, shifted(given_records, base))
    data = build_message_set(moved, magic=magic, codec=codec)
    assert list(read_records(b"before" + data + b"after", 6, 6 + len(data))) == moved
    assert [entry.offset for entry in entries(data)] == [r.offset for r in (moved[-1:] if codec else moved)]
    assert list(by_kafka_python(data)) == moved


@given(records(), formats, formats, formats, codecs)
def test_what_is_converted_up_or_down_keeps_what_the_format_can_hold(
    given_records: list[Record], sent: int, topic: int, fetched: int, codec: int
) -> None:
    """S68, S70 to S76: from a producer's format to the topic's, and from that to a reader's."""
    data = bytearray(built(sent, given_records, codec))
    out, known = validated_as(topic, data, RULES, NOW_MS)
    if known.header.magic != 2:
        assign_offsets(out, known, 0)
    out = bytes(out)
    meant = as_in(topic, as_in(sent, given_records))
    assert read(topic, out) == meant
    given_out = converted(out, fetched)
    assert read(min(topic, fetched), given_out) == as_in(min(topic, fetched), meant)
    if topic <= fetched:
        assert given_out == out


@given(records(), magics, codecs, st.integers(0, 15))
def test_what_comes_before_the_offset_asked_for_is_left_out(
    given_records: list[Record], magic: int, codec: int, offset_min: int
) -> None:
    """S70: of what is not compressed."""
    given_out = converted(build_batch(given_records, codec=codec), magic, offset_min)
    left = [record for record in given_records if record.offset >= offset_min]
    if codec and left:
        left = given_records
    assert read(magic, given_out) == as_in(magic, left)


def judge(data: bytes) -> None:
    """Read, convert and store it: records, or an error with a code that clients know."""
    assert ended(lambda: list(read_records(data, limit_bytes=LIMIT))) in CODES | {None}
    for magic in (0, 1):
        assert ended(partial(converted, data, magic)) in CODES | {None}
    for topic in (0, 1, 2):
        assert ended(partial(store, topic, data, RULES)) in CODES | {None}
        assert ended(partial(store, topic, data, APPEND_TIME)) in CODES | {None}


def store(topic: int, data: bytes, rules: Rules) -> None:
    """Store what may be stored, from offset 100 on; what may not stays as it came."""
    mine = bytearray(data)
    try:
        out, known = validated_as(topic, mine, rules, NOW_MS, base_offset=100)
    except RecordsError:
        assert mine == data
        raise
    if known.header.magic != 2:
        assign_offsets(out, known, 100)
        assert [r.offset for r in read(topic, out)] == list(range(100, 100 + known.header.record_count))


@given(records(), magics, codecs, edits)
@settings(max_examples=300)
def test_mutated_bytes_give_records_or_an_error(
    given_records: list[Record], magic: int, codec: int, changes: list[tuple[float, int]]
) -> None:
    data = bytearray(build_message_set(given_records, magic=magic, codec=codec))
    for place, value in changes:
        data[int(place * len(data))] = value
    judge(bytes(data))
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    judge(bytes(data))


@given(records(), magics, st.integers(1, 3), edits, st.integers(0, 40))
@settings(max_examples=300)
def test_a_payload_that_is_mutated_before_compression(
    given_records: list[Record], magic: int, codec: int, changes: list[tuple[float, int]], offset: int
) -> None:
    payload = bytearray(build_message_set(given_records, magic=magic))
    for place, value in changes:
        payload[int(place * len(payload))] = value
    judge(wrapper(magic, codec, bytes(payload), offset))


@given(records(), formats, codecs, st.floats(0, 1))
def test_truncated_bytes_give_records_or_an_error(
    given_records: list[Record], magic: int, codec: int, keep: float
) -> None:
    data = built(magic, given_records, codec)
    judge(data[: int(keep * len(data))])
    judge(data + data[: int(keep * len(data))])


@given(records(), codecs, edits)
def test_a_stored_batch_that_is_mutated_is_converted_or_an_error(
    given_records: list[Record], codec: int, changes: list[tuple[float, int]]
) -> None:
    data = bytearray(build_batch(given_records, codec=codec))
    for place, value in changes:
        data[int(place * len(data))] = value
    judge(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_at_all(data: bytes) -> None:
    judge(data)


@given(st.binary(max_size=120), magics, st.integers(0, 7), st.integers(-1, 30))
def test_any_payload_under_a_right_checksum(data: bytes, magic: int, codec: int, offset: int) -> None:
    judge(message(magic, offset, data, attributes=codec))


@given(st.binary(max_size=3000), codecs, magics, magics)
def test_every_codec_round_trips_under_either_magic(data: bytes, codec: int, wrote: int, reads: int) -> None:
    packed = legacy_codecs.compress(codec, data, wrote)
    assert legacy_codecs.decompress(codec, packed, reads, len(data)) == data
    if codec and data:
        assert (
            ended(lambda: legacy_codecs.decompress(codec, packed, reads, len(data) - 1))
            == ErrorCode.MESSAGE_TOO_LARGE
        )


@given(records(), codecs)
def test_times_of_the_append_are_the_same_for_every_reader(given_records: list[Record], codec: int) -> None:
    """S48, S76."""
    stored, _ = validated_as(2, bytearray(build_batch(given_records, codec=codec)), APPEND_TIME, NOW_MS)
    assert batch.read_header(stored).is_log_append_time
    now = [replace(record, timestamp=NOW_MS, headers=()) for record in given_records]
    assert read(1, converted(bytes(stored), 1)) == now
