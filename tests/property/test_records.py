"""Batches: what is built is read back, and whatever bytes come, validate answers with a batch or with an error code."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.batches import NOW_MS, batch_of, plain_record, records, resign
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.validate import Rules, validate

RULES = Rules(
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
    max_batch_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
)
CODES = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.MESSAGE_TOO_LARGE,
}
codecs = st.integers(0, 4)
# (where in the batch, 0 to 1; the byte that is put there)
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


@given(records(gaps=True), codecs, st.integers(0, 2**40))
def test_what_is_built_is_read_back(given_records: list[Record], codec: int, base: int) -> None:
    moved = [replace(record, offset=base + record.offset) for record in given_records]
    data = build_batch(moved, codec=codec)
    assert batch.check_crc(data, 0, batch.read_header(data))
    assert list(read_records(b"before" + data + b"after", 6)) == moved


@given(records(), codecs, st.booleans(), st.integers(-1, 2**63 - 1))
def test_P22_a_good_batch_is_valid_and_its_times_are_the_records_own(
    given_records: list[Record], codec: int, append_time: bool, claimed: int
) -> None:
    data = bytearray(build_batch(given_records, codec=codec))
    header = batch.read_header(data)
    batch.set_timestamps(data, 0, header, header.attributes, claimed)
    valid = validate(data, replace(RULES, log_append_time=append_time), NOW_MS)
    times = [record.timestamp for record in given_records]
    if append_time:
        assert (valid.min_timestamp, valid.max_timestamp, valid.max_timestamp_offset_delta) == (
            NOW_MS,
            NOW_MS,
            0,
        )
        assert {record.timestamp for record in read_records(data)} == {NOW_MS}
    else:
        assert (valid.min_timestamp, valid.max_timestamp) == (min(times), max(times))
        assert valid.max_timestamp_offset_delta == times.index(max(times))
        assert list(read_records(data)) == given_records
    assert valid.header == batch.read_header(data)
    assert batch.check_crc(data, 0, valid.header)


def code_of(call: Callable[[], object]) -> ErrorCode | None:
    """Make the call: the code of the RecordsError that it ended in, None where it did not."""
    try:
        call()
    except RecordsError as error:
        return error.code
    return None


def judge(data: bytearray) -> None:
    """Validate under both timestamp types: an error with a code that producers know, or a batch that can be read."""
    for append_time in (False, True):
        mine = bytearray(data)
        code = code_of(partial(validate, mine, replace(RULES, log_append_time=append_time), NOW_MS))
        if code is not None:
            assert code in CODES
            assert mine == data
            continue
        header = batch.read_header(mine)
        assert batch.check_crc(mine, 0, header)
        read = list(read_records(mine))
        offsets = [record.offset - header.base_offset for record in read]
        assert offsets == list(range(header.record_count))
        assert max(record.timestamp for record in read) == header.max_timestamp


@given(records(), codecs, edits, st.booleans())
@settings(max_examples=300)
def test_a_mutated_batch_is_refused_with_a_code_or_still_valid(
    given_records: list[Record], codec: int, changes: list[tuple[float, int]], signed: bool
) -> None:
    data = bytearray(build_batch(given_records, codec=codec))
    for place, value in changes:
        data[int(place * len(data))] = value
    judge(resign(data) if signed else data)


@given(records(), codecs, edits, st.integers(-2, 2))
@settings(max_examples=300)
def test_a_batch_whose_records_are_mutated_before_compression(
    given_records: list[Record], codec: int, changes: list[tuple[float, int]], miscount: int
) -> None:
    payload = bytearray(build_batch(given_records)[batch.HEADER_BYTES :])
    for place, value in changes:
        payload[int(place * len(payload))] = value
    packed = compression.compress(codec, bytes(payload))
    judge(batch_of(packed, count=len(given_records) + miscount // 2, attributes=codec))


@given(st.binary(max_size=200), st.integers(0, 7), st.integers(-1, 3))
@example(b"", 4, 1)
@example(plain_record(), 0, 1)
def test_any_payload_under_a_right_checksum(payload: bytes, codec: int, count: int) -> None:
    judge(batch_of(payload, count=count, attributes=codec))


@given(st.binary(max_size=200))
def test_any_bytes_at_all(data: bytes) -> None:
    judge(bytearray(data))


@given(codecs.filter(bool), st.binary(max_size=300), st.integers(0, 1000))
def test_decompress_gives_bytes_within_the_limit_or_an_error(codec: int, data: bytes, limit: int) -> None:
    given_out: list[int] = []
    code = code_of(lambda: given_out.append(len(compression.decompress(codec, data, limit))))
    assert code in CODES if code else given_out[0] <= limit


@given(codecs, st.binary(max_size=5000), st.integers(1, 400))
def test_every_codec_round_trips_and_keeps_its_limit(codec: int, data: bytes, times: int) -> None:
    packed = compression.compress(codec, data * times)
    size = len(data) * times
    assert compression.decompress(codec, packed, size) == data * times
    if codec and data:
        assert code_of(lambda: compression.decompress(codec, packed, size - 1)) == ErrorCode.MESSAGE_TOO_LARGE
