"""What a producer sends, in any format, and what is stored of it under each format of a topic."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import pytest
import xxhash
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.support.batches import NOW_MS, batch_of, changed, plain_record
from tests.support.messages import (
    APPEND_TIME,
    LIMIT,
    RULES,
    as_in,
    message,
    plain,
    resigned,
    shifted,
    some,
    validated_as,
    wrapper,
)
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import batch, build, legacy
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.legacy import read_entry
from tidelog.protocol.records.message_set import build_message_set, entries, read_records
from tidelog.protocol.records.recompress import Target
from tidelog.protocol.records.steps import STEP_BYTES
from tidelog.protocol.records.topic_format import (
    assign_offsets,
    fits,
    magic_of,
    stamped,
    validate_as,
)
from tidelog.protocol.records.validate import Rules

BOTH = pytest.mark.parametrize("magic", [0, 1])
TOPIC = pytest.mark.parametrize("topic", [0, 1, 2])
EVERY_CODEC = pytest.mark.parametrize("codec", [0, 1, 2, 3])
COMPRESSED = pytest.mark.parametrize("codec", [1, 2, 3])
MANY = some(20)
BASE = 7_000_000_000
STRICT = replace(RULES, timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)


def sent(magic: int, codec: int = 0, given: list[Record] = MANY) -> bytes:
    """What a producer sends in a format."""
    return (
        build_batch(given, codec=codec) if magic == 2 else build_message_set(given, magic=magic, codec=codec)
    )


def stored(
    topic: int, data: bytes, rules: Rules = RULES, wanted: Target | None = None, base: int = BASE
) -> bytes:
    """What a log stores of it from offset base on; what is known of it must be true of that."""
    out, known = validated_as(topic, bytearray(data), rules, NOW_MS, wanted, base)
    if known.header.magic == batch.MAGIC:
        batch.set_base(out, 0, base, 5)
        assert batch.check_crc(out, 0, batch.read_header(out))
        assert known.header._replace(base_offset=base, leader_epoch=5) == batch.read_header(out)
        assert known.header.last_offset_delta == known.header.record_count - 1
        assert known.header.max_timestamp == known.max_timestamp
        count, codec = known.header.record_count, known.header.codec
    else:
        assert fits(known, base)
        assign_offsets(out, known, base)
        assert {(entry.magic, entry.codec) for entry in entries(out)} == {(topic, known.header.codec)}
        assert all(legacy.check_crc(out, entry.position, entry) for entry in entries(out))
        count, codec = known.header.record_count, known.header.codec
        assert known.header.last_offset_delta == count - 1
    assert wanted is None or codec == wanted.codec
    assert known.size_bytes == len(out) or topic == 0
    found = read(topic, out)
    times = [record.timestamp for record in found]
    assert [record.offset for record in found] == list(range(base, base + count))
    assert (known.min_timestamp, known.max_timestamp) == (min(times), max(times))
    assert known.max_timestamp_offset_delta == times.index(max(times))
    return bytes(out)


def read(magic: int, data: bytes | bytearray | memoryview) -> list[Record]:
    return list(build.read_records(data) if magic == 2 else read_records(data))


def refusal(topic: int, data: bytes, rules: Rules = RULES, **options: Any) -> tuple[ErrorCode, str]:
    mine = bytearray(data)
    with pytest.raises(RecordsError) as caught:
        validated_as(topic, mine, rules, NOW_MS, **options)
    assert mine == data
    return caught.value.code, str(caught.value)


@TOPIC
@pytest.mark.parametrize("magic", [0, 1, 2])
@EVERY_CODEC
def test_every_format_is_stored_in_that_of_the_topic(topic: int, magic: int, codec: int) -> None:
    """S68, S70 to S72, S74, S75: with the producer's codec; v0 leaves times out, going up they are -1."""
    out = stored(topic, sent(magic, codec))
    assert read(topic, out) == as_in(topic, as_in(magic, shifted(MANY, BASE)))


@TOPIC
@pytest.mark.parametrize("magic", [0, 1, 2])
@EVERY_CODEC
def test_log_append_time_through_every_format(topic: int, magic: int, codec: int) -> None:
    """S44, S46, S48: all records have the time of the append, but in v0."""
    out = stored(topic, sent(magic, codec), APPEND_TIME)
    now = [replace(record, timestamp=NOW_MS) for record in shifted(MANY, BASE)]
    assert read(topic, out) == as_in(topic, now)
    if topic == 1:
        assert all(entry.is_log_append_time for entry in entries(out))
    if topic == 2:
        assert batch.read_header(out).is_log_append_time


@TOPIC
@pytest.mark.parametrize("magic", [0, 1, 2])
@EVERY_CODEC
@pytest.mark.parametrize("target", [0, 1, 2, 3])
def test_every_codec_is_stored_in_that_of_the_topic(topic: int, magic: int, codec: int, target: int) -> None:
    """S68: `compression.type` holds for each format; messages that were not compressed go into one wrapper."""
    out = stored(topic, sent(magic, codec), wanted=Target(target, None))
    assert read(topic, out) == as_in(topic, as_in(magic, shifted(MANY, BASE)))


def test_S64_a_payload_of_the_format_and_codec_stays_as_it_came() -> None:
    for codec in (1, 2, 3):
        data = sent(1, codec)
        out = stored(1, data)
        before, after = read_entry(data, 0, len(data)), read_entry(out, 0, len(out))
        assert after == before._replace(offset=BASE + len(MANY) - 1)
        assert out[8:] == data[8:]


@COMPRESSED
@pytest.mark.parametrize("offset", [0, 19, 12345])
def test_S63_S64_whatever_the_wrappers_offset_is(codec: int, offset: int) -> None:
    data = bytearray(sent(1, codec))
    legacy.set_offset(data, 0, offset)
    assert stored(1, bytes(data))[8:] == data[8:]


@COMPRESSED
@pytest.mark.parametrize("rules", [RULES, APPEND_TIME])
def test_S48_S64_only_time_type_and_checksum_of_the_wrapper_change(codec: int, rules: Rules) -> None:
    payload = b"".join(message(1, n, timestamp=NOW_MS - abs(n - 4)) for n in range(9))
    data = wrapper(1, codec, payload, 8, timestamp=55)
    out = stored(1, data, rules)
    assert out[26:] == data[26:]
    (entry,) = entries(out)
    assert entry.timestamp == NOW_MS
    assert entry.attributes == codec | (8 if rules.log_append_time else 0)


@COMPRESSED
@pytest.mark.parametrize("offsets", [(0, 0, 0), (1, 2, 3), (0, 2, 3), (2, 1, 0), (-1, 0, 1)])
def test_S65_other_offsets_in_a_payload_are_assigned_anew(codec: int, offsets: tuple[int, ...]) -> None:
    payload = b"".join(message(1, offset, b"%d" % n) for n, offset in enumerate(offsets))
    out = stored(1, wrapper(1, codec, payload))
    assert [record.value for record in read(1, out)] == [b"0", b"1", b"2"]
    (entry,) = entries(out)
    assert [record.offset for record in read(1, resigned(b"\0" * 8 + out[8:]))] == [0, 1, 2]
    assert entry.timestamp == NOW_MS


@COMPRESSED
@pytest.mark.parametrize("offsets", [(0, 0, 0), (0, 1, 2), (9, 8, 7)])
def test_compressed_v0_gets_absolute_offsets(codec: int, offsets: tuple[int, ...]) -> None:
    """S71: in the payload, which is compressed anew; whatever offsets a producer put there."""
    payload = b"".join(message(0, offset, b"%d" % n) for n, offset in enumerate(offsets))
    out = stored(0, wrapper(0, codec, payload))
    assert [record.value for record in read(0, out)] == [b"0", b"1", b"2"]


@COMPRESSED
def test_compressed_v0_is_compressed_once_where_the_offset_is_known(codec: int) -> None:
    """S71."""
    out, known = validated_as(0, bytearray(sent(1, codec)), RULES, NOW_MS, base_offset=BASE)
    assert known.header.magic != 2
    before = bytes(out)
    assert fits(known, BASE)
    assign_offsets(out, known, BASE)
    assert out == before
    assert read(0, out) == as_in(0, shifted(MANY, BASE))
    assert not fits(known, BASE + 1)
    assert not fits(known, BASE - 1)


@BOTH
def test_what_is_not_compressed_is_given_its_offsets_in_place(magic: int) -> None:
    """S68, S78."""
    data = bytearray(sent(magic, given=shifted(MANY, 99)))
    out, known = validated_as(magic, data, RULES, NOW_MS)
    assert out is data
    assert known.header.magic != 2
    assert fits(known, BASE)
    assign_offsets(out, known, BASE)
    assert read(magic, data) == as_in(magic, shifted(MANY, BASE))


def test_a_view_of_a_request_is_changed_in_place() -> None:
    request = bytearray(b"before") + sent(1) + bytearray(b"after")
    out, known = validated_as(1, memoryview(request)[6:-5], APPEND_TIME, NOW_MS)
    assert known.header.magic != 2
    assign_offsets(out, known, BASE)
    assert request.startswith(b"before")
    assert request.endswith(b"after")
    assert {record.timestamp for record in read(1, request[6:-5])} == {NOW_MS}


@EVERY_CODEC
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_another_time_of_append(magic: int, codec: int) -> None:
    """S52: which a log takes that must not go back in time."""
    out, known = validated_as(1, bytearray(sent(magic, codec)), APPEND_TIME, NOW_MS)
    assert known.header.magic != 2
    later = stamped(bytearray(out), known, NOW_MS)
    assert later == known
    mine = bytearray(out)
    later = stamped(mine, known, NOW_MS + 5)
    assert (later.min_timestamp, later.max_timestamp) == (NOW_MS + 5, NOW_MS + 5)
    assert {record.timestamp for record in read(1, mine)} == {NOW_MS + 5}
    assert all(legacy.check_crc(mine, entry.position, entry) for entry in entries(mine))
    zero, known = validated_as(0, bytearray(sent(magic, codec)), APPEND_TIME, NOW_MS)
    assert known.header.magic != 2
    assert stamped(zero, known, NOW_MS) == known


@TOPIC
@EVERY_CODEC
def test_S63_what_kafka_python_sends_is_stored(topic: int, codec: int) -> None:
    for magic in (0, 1):
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
        for record in MANY:
            builder.append(record.offset, record.timestamp, record.key, record.value)
        out = stored(topic, bytes(builder.build()))
        assert read(topic, out) == as_in(topic, as_in(magic, shifted(MANY, BASE)))


@BOTH
@EVERY_CODEC
def test_headers_and_producers_are_dropped_going_down(magic: int, codec: int) -> None:
    """S72."""
    given = [replace(record, headers=(("h", b"1"), ("h", None))) for record in MANY]
    data = build_batch(given, codec=codec, producer_id=9, producer_epoch=2, base_sequence=5)
    assert read(magic, stored(magic, data)) == as_in(magic, shifted(plain(given), BASE))
    assert read(2, stored(2, data))[0].headers == given[0].headers


@BOTH
def test_S65_zstd_is_taken_where_the_topic_has_another_codec(magic: int) -> None:
    data = build_batch(plain(MANY), codec=4)
    assert read(magic, stored(magic, data, wanted=Target(1, None))) == as_in(
        magic, shifted(plain(MANY), BASE)
    )


@BOTH
def test_a_transaction_has_no_place_in_an_older_format(magic: int) -> None:
    """S72: as Kafka answers it, UNSUPPORTED_FOR_MESSAGE_FORMAT."""
    data = build_batch(MANY, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert refusal(magic, data)[0] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refusal(2, data)[0] == ErrorCode.INVALID_TXN_STATE
    marker = build_batch(MANY[:1], producer_id=1, producer_epoch=0, transactional=True, control=True)
    assert refusal(magic, marker)[0] == ErrorCode.INVALID_RECORD
    assert refusal(magic, changed(data, crc=1)[:-1] + b"~")[0] == ErrorCode.CORRUPT_MESSAGE


@BOTH
def test_zstd_has_no_place_in_an_older_format(magic: int) -> None:
    """S72: neither as it is sent nor as the topic's codec."""
    code, words = refusal(magic, build_batch(MANY, codec=4))
    assert (code, "zstd" in words) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, True)
    for data in (build_batch(MANY), sent(0), sent(1, 1)):
        assert refusal(magic, data, wanted=Target(4, None))[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert read(2, stored(2, sent(magic, 1), wanted=Target(4, None)))[0].offset == BASE


# What is refused, whatever the topic's format


@TOPIC
@pytest.mark.parametrize("magic", [0, 1, 2])
@EVERY_CODEC
def test_a_wrong_checksum_is_2(topic: int, magic: int, codec: int) -> None:
    data = bytearray(sent(magic, codec))
    data[-1] ^= 1
    assert refusal(topic, bytes(data))[0] == ErrorCode.CORRUPT_MESSAGE


@TOPIC
@BOTH
@COMPRESSED
def test_S64_a_wrong_checksum_within_a_payload_is_2(topic: int, magic: int, codec: int) -> None:
    inner = bytearray(message(magic, 1))
    inner[-1] ^= 1
    code, words = refusal(topic, wrapper(magic, codec, message(magic) + bytes(inner), 1))
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert "record 1" in words


@TOPIC
@pytest.mark.parametrize("sized", [False, True])
def test_S61_an_lz4_frame_of_v1_with_the_checksum_of_v0_is_2(topic: int, sized: bool) -> None:
    """It would be stored as it came, and no client reads it; in v0 all do (KAFKA-3160)."""

    def sent_in(magic: int) -> tuple[bytes, bytes]:
        """The same with either checksum: that of v1, that of v0."""
        frame = lz4.frame.compress(build_message_set(MANY, magic=magic), block_linked=False, store_size=sized)
        at = 14 if sized else 6
        early = bytes((xxhash.xxh32_intdigest(frame[:at]) >> 8 & 0xFF,))
        frames = frame, frame[:at] + early + frame[at + 1 :]
        good, slip = (message(magic, MANY[-1].offset, value, attributes=3) for value in frames)
        return good, slip

    good, slip = sent_in(1)
    code, words = refusal(topic, slip)
    assert (code, "lz4" in words) == (ErrorCode.CORRUPT_MESSAGE, True)
    assert read(topic, stored(topic, good)) == read(topic, stored(topic, sent(1, 3)))
    assert list(read_records(slip)) == MANY  # where it is in a log already
    for data in sent_in(0):
        assert read(topic, stored(topic, data)) == read(topic, stored(topic, sent(0, 3)))


@TOPIC
@BOTH
@pytest.mark.parametrize("keep", [1, 16, 17, 25, -1])
def test_a_set_cut_short_is_2(topic: int, magic: int, keep: int) -> None:
    assert refusal(topic, sent(magic)[:keep])[0] == ErrorCode.CORRUPT_MESSAGE


@TOPIC
def test_no_messages_are_87(topic: int) -> None:
    assert refusal(topic, b"")[0] == ErrorCode.INVALID_RECORD


@TOPIC
@BOTH
def test_sets_that_are_not_of_one_kind_are_87(topic: int, magic: int) -> None:
    packed, other = sent(magic, 1), sent(1 - magic)
    for data in (packed + packed, packed + sent(magic), sent(magic) + packed, sent(magic) + other):
        assert refusal(topic, data)[0] == ErrorCode.INVALID_RECORD
    assert refusal(topic, sent(magic) + sent(2))[0] == ErrorCode.INVALID_RECORD
    assert refusal(topic, sent(2) + sent(magic))[0] == ErrorCode.INVALID_RECORD


@TOPIC
@COMPRESSED
def test_S62_a_wrappers_offset_less_than_that_of_its_last_message_is_87(topic: int, codec: int) -> None:
    data = bytearray(sent(1, codec))
    legacy.set_offset(data, 0, 5)
    assert refusal(topic, bytes(data))[0] == ErrorCode.INVALID_RECORD


@TOPIC
@BOTH
def test_nesting_another_format_and_nothing_in_a_wrapper_are_87(topic: int, magic: int) -> None:
    for payload in (wrapper(magic, 1, message(magic)), message(1 - magic), b""):
        assert refusal(topic, wrapper(magic, 1, payload))[0] == ErrorCode.INVALID_RECORD
    assert refusal(topic, message(magic, attributes=1, value=None))[0] == ErrorCode.INVALID_RECORD


@TOPIC
@BOTH
@pytest.mark.parametrize("codec", [4, 5, 7])
def test_a_codec_that_the_format_has_not_is_76(topic: int, magic: int, codec: int) -> None:
    data = message(magic, attributes=codec)
    assert refusal(topic, data)[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@TOPIC
@EVERY_CODEC
def test_S46_log_append_time_from_a_producer_is_32(topic: int, codec: int) -> None:
    data = build_message_set(MANY, magic=1, codec=codec, log_append_time=True)
    assert refusal(topic, data)[0] == ErrorCode.INVALID_TIMESTAMP
    assert refusal(topic, data, APPEND_TIME)[0] == ErrorCode.INVALID_TIMESTAMP


@TOPIC
@EVERY_CODEC
@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("time", [NOW_MS - 1001, NOW_MS + 1001])
def test_S47_a_time_too_far_off_is_32_and_named(topic: int, codec: int, magic: int, time: int) -> None:
    given = [Record(0, NOW_MS, None, b"v"), Record(1, time, None, b"v"), Record(2, NOW_MS, None, b"v")]
    data = sent(magic, codec, given)
    with pytest.raises(RecordsError) as caught:
        validated_as(topic, bytearray(data), STRICT, NOW_MS)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [fault.record for fault in caught.value.faults] == [1]
    stored(topic, data, replace(STRICT, log_append_time=True))
    if time < NOW_MS:
        stored(topic, sent(magic, codec, [replace(record, timestamp=-1) for record in given]), STRICT)


def test_S47_very_many_times_too_far_off_are_not_all_named() -> None:
    with pytest.raises(RecordsError) as caught:
        validated_as(1, bytearray(sent(1, given=some(500, timestamp=5))), STRICT, NOW_MS)
    assert len(caught.value.faults) == RecordsError.FAULTS_MAX


@EVERY_CODEC
@pytest.mark.parametrize("time", [-2, -(2**63)])
def test_a_negative_time_is_32(codec: int, time: int) -> None:
    payload = message(1, 0) + message(1, 1, timestamp=time)
    data = wrapper(1, codec, payload) if codec else payload
    for topic in (0, 1, 2):
        assert refusal(topic, data)[0] == ErrorCode.INVALID_TIMESTAMP
        assert refusal(topic, data, APPEND_TIME)[0] == ErrorCode.INVALID_TIMESTAMP


def test_v0_has_no_time_to_be_refused() -> None:
    stored(1, sent(0), STRICT)
    stored(2, sent(0), STRICT)


@TOPIC
@BOTH
def test_a_message_above_the_size_limit_is_10(topic: int, magic: int) -> None:
    data = message(magic, value=bytes(1000))
    rules = replace(RULES, max_batch_bytes=len(data) - 1)
    assert refusal(topic, data, rules)[0] == ErrorCode.MESSAGE_TOO_LARGE
    # The limit is for a message, or a batch: not for all that are sent at once.
    stored(magic, data * 50, replace(RULES, max_batch_bytes=len(data)))
    assert refusal(2, data * 50, replace(RULES, max_batch_bytes=len(data)))[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_a_message_that_grows_above_the_size_limit_is_10() -> None:
    data = message(0, value=bytes(1000))
    code, words = refusal(1, data, replace(RULES, max_batch_bytes=len(data)))
    assert (code, f"{len(data) + 8} bytes" in words) == (ErrorCode.MESSAGE_TOO_LARGE, True)


@TOPIC
@BOTH
@COMPRESSED
def test_P26_a_payload_above_the_decompressed_limit_is_10(topic: int, magic: int, codec: int) -> None:
    data = wrapper(magic, codec, message(magic, value=bytes(4 * LIMIT)))
    assert refusal(topic, data)[0] == ErrorCode.MESSAGE_TOO_LARGE


@BOTH
@COMPRESSED
def test_P26_a_payload_that_grows_above_the_decompressed_limit_is_10(magic: int, codec: int) -> None:
    """Small records take several times as much in the older formats, and readers take no larger payload."""
    count = LIMIT // 16
    payload = b"".join(plain_record(n, value=b"") for n in range(count))
    data = build_batch([Record(n, 0, None, None) for n in range(count)], codec=codec)
    assert len(payload) < LIMIT
    assert refusal(magic, data)[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_other_magics_are_2() -> None:
    for topic in (0, 1, 2):
        assert refusal(topic, bytes(batch_of(plain_record(), magic=3)))[0] == ErrorCode.CORRUPT_MESSAGE


VERSIONS = {
    0: ("0", "0.8.0", "0.8.2", "0.9.0", "0.9.0.1"),
    1: ("1", "0.10.0", "0.10.0-IV0", "0.10.2-IV0", "0.10.2.1"),
    2: ("2", "0.11.0", "0.11.0-IV2", "1.0", "2.8-IV1", "3.0-IV1", "3.9"),
}


@TOPIC
def test_both_spellings_of_a_format(topic: int) -> None:
    """S68."""
    assert {magic_of(version) for version in VERSIONS[topic]} == {topic}


@pytest.mark.parametrize("version", ["", "3", "-1", "x", "0.x", "1.", "."])
def test_what_is_no_format(version: str) -> None:
    with pytest.raises(ValueError, match=r"must be a release|invalid literal"):
        magic_of(version)


@pytest.mark.parametrize(
    ("topic", "magic", "codec", "steps"),
    [
        (1, 1, 0, {"checked": 4}),
        (1, 1, 1, {"checked": 4}),
        (1, 0, 0, {"checked": 3, "written": 4, "measured": 4}),
        (0, 1, 2, {"checked": 4, "written": 3}),
        (2, 1, 0, {"checked": 4, "written": 9}),
        (1, 2, 0, {"written": 4}),
        (1, 2, 1, {"written": 4}),
    ],
)
def test_very_many_messages_are_validated_in_steps_that_say_what_they_hold(
    topic: int, magic: int, codec: int, steps: dict[str, int]
) -> None:
    given = some(4500 if magic else 5000)
    rules = replace(RULES, max_batch_bytes=1000) if "measured" in steps else RULES
    made, held = validate_as(topic, bytearray(sent(magic, codec, given)), rules, NOW_MS), []
    with suppress(StopIteration):
        while True:
            held.append(next(made))
    assert len(held) == sum(steps.values())
    if magic < 2:
        assert held[0] == (len(sent(magic, 0, given)) if codec else 0)
    else:
        assert held[0] >= len(sent(magic, 0, given)) - batch.HEADER_BYTES + STEP_BYTES
    if "written" in steps:
        assert held[-1] >= held[0] + 2 * STEP_BYTES
