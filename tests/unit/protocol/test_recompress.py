"""Topics whose `compression.type` is a codec: what is stored, and that nothing of a record is lost on the way."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import batch_of
from tests.support.batches import records as some
from tests.support.logs import NOW, batch, fetch_all, first_at, open_log, scan
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import compression, recompress
from tidelog.protocol.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.errors import BatchTooLarge
from tidelog.protocol.records.steps import at_once
from tidelog.protocol.records.validate import Rules, validate
from tidelog.storage.search import by_time, times_cache
from tidelog.storage.sources import PATIENT

TYPES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
RULES = Rules(
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
    max_batch_bytes=1 << 20,
    max_decompressed_bytes=64 << 20,
)


def recompressed(data: bytes, kind: str, rules: Rules = RULES, levels: dict[str, int] = LEVELS) -> bytes:
    """Validate a batch and store it in a codec; what is known of it must be true of what comes out."""
    mine = bytearray(data)
    valid = validate(mine, rules, NOW)
    wanted = recompress.target(kind, levels)
    assert wanted is not None
    out, known = recompress.recompress(mine, valid, wanted, rules)
    header = read_header(out)
    assert (header, len(out)) == (known.header, known.size_bytes)
    assert check_crc(out, 0, header)
    assert header.codec == TYPES[kind]
    assert known._replace(header=valid.header, size_bytes=valid.size_bytes) == valid
    return bytes(out)


def but_for_the_codec(header: BatchHeader) -> BatchHeader:
    return header._replace(attributes=header.attributes & ~7, batch_length=0, crc=0)


@given(some(), st.sampled_from(list(TYPES)), st.integers(0, 4), st.booleans(), st.integers(-1, 1 << 40))
def test_nothing_but_the_codec_changes(
    given_records: list[Record], kind: str, codec: int, append_time: bool, producer_id: int
) -> None:
    """P22, S64: the times and offsets of records stay theirs, whatever the codecs."""
    sent = build_batch(
        given_records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=7 if producer_id >= 0 else -1,
        base_sequence=1 << 30 if producer_id >= 0 else -1,
    )
    rules = dataclasses.replace(RULES, log_append_time=append_time)
    stamped = bytearray(sent)
    validate(stamped, rules, NOW)
    out = recompressed(sent, kind, rules)
    assert list(read_records(out)) == list(read_records(stamped))
    assert but_for_the_codec(read_header(out)) == but_for_the_codec(read_header(stamped))
    again = recompressed(out, kind, RULES) if not append_time else out
    assert again == out


@pytest.mark.parametrize("kind", TYPES)
def test_S64_a_batch_of_the_codec_is_stored_byte_for_byte(tmp_path: Path, kind: str) -> None:
    log = open_log(tmp_path, compression_type=kind)
    # Another level than the broker's own: it is the codec that counts, as in Kafka.
    plain = bytes(batch([NOW], b"v" * 5000)[HEADER_BYTES:])
    sent = batch_of(compression.compress(TYPES[kind], plain, 9), attributes=TYPES[kind])
    came = bytes(sent)
    log.append(sent, NOW)
    stored = log.read(0, 1 << 20, True, PATIENT).read()
    assert stored[17:] == came[17:]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("codec", range(5))
def test_a_log_holds_its_codec_alone(tmp_path: Path, kind: str, codec: int) -> None:
    log = open_log(tmp_path, compression_type=kind, index_interval_bytes=100)
    plain = open_log(tmp_path / "plain", index_interval_bytes=100)
    times = [[NOW + 5, NOW, NOW + 9], [NOW + n for n in range(200)], [NOW + 3]]
    for each in times:
        for one in (log, plain):
            one.append(
                batch(each, codec=codec, producer_id=5, producer_epoch=0, base_sequence=one.log_end_offset),
                NOW,
            )
    assert scan(log) == fetch_all(log) == scan(plain)
    for segment, position, header in log.headers(0):
        assert header.codec == TYPES[kind]
        assert check_crc(segment.file.pread(header.size_bytes, position), 0, header)
    for at in (NOW - 1, *(NOW + n for n in range(0, 210, 7))):
        assert first_at(log, at, PATIENT) == first_at(plain, at, PATIENT)
    assert by_time.largest_timestamp(log, PATIENT) == by_time.largest_timestamp(plain, PATIENT)
    again = open_log(tmp_path)
    assert scan(again) == scan(plain)
    assert again.size_bytes == log.size_bytes


def test_kept_times_are_those_of_the_stored_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type="gzip")
    log.append(batch([NOW]), NOW)
    times = [NOW + n * 3 for n in range(500)]
    log.append(batch(times, codec=compression.ZSTD), NOW)
    ((_, position),) = [(s, p) for s, p, header in log.headers(1)]
    packed = log.shared.times.get(times_cache.key_of(log.active.identity, position))
    assert packed is not None
    data = log.active.file.pread(1 << 20, position)
    for record in read_records(data):
        assert times_cache.find(packed, record.timestamp) == (record.timestamp, record.offset, 0)


def test_a_batch_that_outgrows_the_limit_is_10_and_leaves_nothing(tmp_path: Path) -> None:
    sent = batch([NOW], b"v" * 5000, codec=compression.ZSTD)
    size = len(batch([NOW], b"v" * 5000))
    log = open_log(tmp_path, compression_type="uncompressed", max_message_bytes=size - 1)
    came = bytes(sent)
    with pytest.raises(BatchTooLarge, match=f"{size} as none.*max.message.bytes is {size - 1}") as caught:
        log.append(sent, NOW)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert (log.log_end_offset, log.size_bytes, bytes(sent)) == (0, 0, came)
    open_log(tmp_path / "fits", compression_type="uncompressed", max_message_bytes=size).append(sent, NOW)


def test_a_batch_too_large_as_it_comes_is_10_though_it_would_fit_compressed(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type="zstd", max_message_bytes=1000)
    with pytest.raises(BatchTooLarge):
        log.append(batch([NOW], b"v" * 5000), NOW)


@pytest.mark.parametrize(
    ("kind", "option", "low", "high"),
    [("gzip", "gzip", 1, 6), ("lz4", "lz4", 9, 8), ("zstd", "zstd", -50, 12)],
)
def test_levels_are_honoured(tmp_path: Path, kind: str, option: str, low: int, high: int) -> None:
    value = b"".join(b"line %d of some text that repeats itself, %d\n" % (n, n * n % 97) for n in range(3000))
    sizes = []
    for level in (low, high):
        options: dict[str, Any] = {f"compression_{option}_level": level}
        log = open_log(tmp_path / str(level), compression_type=kind, **options)
        data = batch([NOW], value)
        log.append(data, NOW, at_once(log.check(data, NOW)))
        sizes.append(log.size_bytes)
        assert scan(log)[0].value == value + b"0"
    assert sizes[1] < sizes[0] < len(value)


@pytest.mark.parametrize(
    ("kind", "level", "small", "large"),
    [
        ("gzip", -1, 6, 4),
        ("gzip", 9, 6, 4),
        ("gzip", 2, 2, 2),
        ("lz4", 17, 8, 4),
        ("lz4", 9, 0, 0),
        ("zstd", 22, 12, 9),
        ("zstd", -5, -5, -5),
        ("snappy", 0, None, None),
    ],
)
def test_levels_that_others_would_wait_for_are_not_used(
    kind: str, level: int, small: int | None, large: int | None
) -> None:
    wanted = recompress.target(kind, {kind: level} if kind != "snappy" else {})
    assert wanted is not None
    assert recompress.level_for(wanted, 1 << 20) == small
    assert recompress.level_for(wanted, (1 << 20) + 1) == large


@pytest.mark.parametrize(("kind", "highest", "used"), [("gzip", 9, 4), ("lz4", 17, 4), ("zstd", 22, 9)])
def test_a_large_batch_is_stored_at_the_level_that_others_can_wait_for(
    kind: str, highest: int, used: int
) -> None:
    value = b"".join(
        b"line %d of some text that repeats itself, %d\n" % (n, n * n % 97) for n in range(30_000)
    )
    plain = build_batch([Record(0, NOW, None, value)])
    rules = dataclasses.replace(RULES, max_batch_bytes=4 << 20)
    stored = recompressed(plain, kind, rules, {kind: highest})
    assert stored[HEADER_BYTES:] == compression.compress(TYPES[kind], plain[HEADER_BYTES:], used)


def test_the_level_nine_of_lz4_is_its_fast_compressor() -> None:
    assert recompress.target("lz4", {"lz4": 9}) == (compression.LZ4, 0)
    assert recompress.target("lz4", {"lz4": 8}) == (compression.LZ4, 8)
    assert recompress.target("snappy", {}) == (compression.SNAPPY, None)
    assert recompress.target("producer", LEVELS) is None


def test_a_duplicate_is_told_by_what_was_sent(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type="lz4")
    sent = bytes(batch([NOW, NOW], producer_id=3, producer_epoch=0, base_sequence=0))
    first = log.append(bytearray(sent), NOW)
    again = log.append(bytearray(sent), NOW)
    assert again == first._replace(duplicate=True)
    assert (
        log.last_batch_bytes
        == log.size_bytes
        == read_header(log.read(0, 1 << 20, True, PATIENT).read()).size_bytes
    )


def test_an_append_time_is_kept_through_another_codec(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type="zstd", message_timestamp_type="LogAppendTime")
    log.append(batch([NOW - 9, NOW - 5]), NOW + 1)
    stored = log.read(0, 1 << 20, True, PATIENT).read()
    header = read_header(stored)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (
        True,
        NOW + 1,
        NOW - 9,
    )
    assert len(stored) > HEADER_BYTES
    assert [row.timestamp for row in scan(log)] == [NOW + 1] * 2
