# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Validates a batch from a producer: every rule, and every record.

The cheapest rules come first, so that a hostile batch costs bounded time and memory. A valid batch is one whole batch
of format v2. Its records have the offset deltas 0, 1, ..., and its max timestamp is correct (P22) or, with
LogAppendTime, now. Its base offset may be anything (C16): the log overwrites it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.protocol.records import compression
from tidelog.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    set_timestamps,
)
from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    RecordError,
    RecordFault,
)
from tidelog.protocol.records.kernel import Cut, scan, scan_part, scan_times

_INT64_MAX: Final = (1 << 63) - 1
_REFUSED: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON
# To list and keep the times of fewer would add more than a few hundredths to what it takes to produce them.
_TIMED_RECORDS: Final = 2000
_TIMED_COMPRESSED_RECORDS: Final = 64
# A megabyte for their times, whatever the header says: a few bytes can decompress to very many records.
_TIMED_RECORDS_MAX: Final = 1 << 17
# Records that are to blame are looked for in a batch of so many at most: a few milliseconds.
_BLAMED_RECORDS_MAX: Final = 10_000
# Records whose keys are looked at at once; and the length of a key that is not there, an int64: that of one that is
# there has zeros in its upper half, so these bytes stand nowhere else.
_KEYS_AT_ONCE: Final = 4096
_NO_KEY: Final = b"\xff" * 8
KEY_NEEDED: Final = "no key, and cleanup.policy has compact, which keeps the last record of each key"

_unpack_header = HEADER.unpack_from
_new = tuple.__new__


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a topic: its timestamp type and its limits."""

    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    max_batch_bytes: int
    max_decompressed_bytes: int
    needs_keys: bool = False  # records must have keys, since compaction needs them


class ValidBatch(NamedTuple):
    """The description of a valid batch: its header, and the times of its records.

    max_timestamp_offset_delta is that of the first record with max_timestamp. With LogAppendTime every record has
    the time of the append. times, for searches, lists the largest timestamp delta up to each record as kernel.times
    does, the bytes of one being len(times) / record_count; empty where it is not worth its memory.
    """

    header: BatchHeader
    min_timestamp: int
    max_timestamp: int
    max_timestamp_offset_delta: int
    size_bytes: int
    times: bytes = b""


def validate(data: bytearray | memoryview, rules: Rules, now_ms: int) -> ValidBatch:
    """Validate a batch, which must be all of data; correct its max timestamp, or set it to now_ms, in place.

    RecordsError has the code for the producer. No offset is set. Every produce calls this, mostly with one record, so
    calls are inlined by hand, which saves a third of the time.
    """
    view = data if isinstance(data, memoryview) else memoryview(data)
    size = len(view)
    if size < HEADER_BYTES:
        _refuse_short(view)
    fields = _unpack_header(view)
    _, length, _, magic, crc, attributes, last, base_time, max_time, producer, _, sequence, count = fields
    header: BatchHeader = _new(BatchHeader, fields)
    if magic != MAGIC or length != size - PREFIX_BYTES:
        _refuse_framing(header, size)
    if size > rules.max_batch_bytes:
        raise BatchTooLarge(f"a batch of {size} bytes; max.message.bytes is {rules.max_batch_bytes}")
    if crc32c(view[ATTRIBUTES_POSITION:]) != crc:
        raise CorruptBatch(f"the batch does not match its checksum, {crc:#010x}; send it again")
    if attributes & _REFUSED or count < 1 or last != count - 1:
        _refuse_header(header)
    if producer >= 0 and sequence < 0:
        raise InvalidRecord(f"producer {producer} sent base sequence {sequence}")

    records: Buffer = view
    position, timed_records = HEADER_BYTES, _TIMED_RECORDS
    if attributes & CODEC_MASK:
        records = compression.decompress(header.codec, view[position:], rules.max_decompressed_bytes)
        position, timed_records = 0, _TIMED_COMPRESSED_RECORDS
    times: bytes | None = None
    try:
        if not timed_records <= count <= _TIMED_RECORDS_MAX:
            largest, first, smallest = scan(records, position, len(records), count)
        else:
            time_bytes = min(8, (max_time - base_time).bit_length() // 8 + 1)
            largest, first, smallest, times = scan_times(records, position, len(records), count, time_bytes)
    except RecordError as error:
        faults = [RecordFault(error.record, str(error))] if error.record >= 0 else []
        raise InvalidRecord(str(error), faults) from error

    newest = base_time + largest
    oldest = base_time + smallest
    if newest > _INT64_MAX or oldest < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"record timestamps from {oldest} to {newest} are out of range",
            _time_faults(records, position, header, rules, now_ms),
        )
    if newest - now_ms > rules.timestamp_after_max_ms or now_ms - oldest > rules.timestamp_before_max_ms:
        _check_times(records, position, header, rules, now_ms, first, newest)
    if rules.needs_keys:
        _check_keys(records, position, count)
    if rules.log_append_time:
        header = set_timestamps(view, 0, header, attributes | LOG_APPEND_TIME, now_ms)
        return ValidBatch(header, now_ms, now_ms, 0, size)
    if newest != max_time:
        header = set_timestamps(view, 0, header, attributes, newest)
    return _new(ValidBatch, (header, oldest, newest, first, size, times or b""))


def stamped(data: bytearray | memoryview, valid: ValidBatch, now_ms: int) -> ValidBatch:
    """Set the append time of a valid batch, in place, whether it had another or the times of its producer."""
    header = set_timestamps(data, 0, valid.header, valid.header.attributes | LOG_APPEND_TIME, now_ms)
    return ValidBatch(header, now_ms, now_ms, 0, valid.size_bytes)


def _check_keys(records: Buffer, position: int, count: int) -> None:
    """Check that each record has a key, a few thousand at a time, which bounds the memory."""
    columns = Columns(min(count, _KEYS_AT_ONCE))
    cut = Cut(0, position, 0)
    faults: list[RecordFault] = []
    while cut.record < count and len(faults) < InvalidRecord.FAULTS_MAX:
        scanned = cut.record
        cut, _, _ = scan_part(records, 0, len(records), count, columns, cut)
        lengths = columns.key_length[: columns.count].tobytes()
        at = lengths.find(_NO_KEY)
        while at >= 0 and len(faults) < InvalidRecord.FAULTS_MAX:
            faults.append(RecordFault(scanned + at // len(_NO_KEY), KEY_NEEDED))
            at = lengths.find(_NO_KEY, at + len(_NO_KEY))
    if faults:
        raise no_key(faults)


def no_key(faults: list[RecordFault]) -> InvalidRecord:
    """Return the error for records without keys; faults has the first of them."""
    return InvalidRecord(f"record {faults[0].record} has {KEY_NEEDED}", faults)


def _check_times(
    records: Buffer,
    position: int,
    header: BatchHeader,
    rules: Rules,
    now_ms: int,
    first: int,
    newest: int,
) -> None:
    """Check the largest timestamp, that of record first, then the oldest; neither if they will be overwritten.

    A record without a timestamp is not old.
    """
    if rules.log_append_time:
        return
    if newest - now_ms > rules.timestamp_after_max_ms:
        problem = _too_new(newest, rules, now_ms)
        faults = _time_faults(records, position, header, rules, now_ms)
        raise InvalidTimestamp(f"record {first} has {problem}", faults or [RecordFault(first, problem)])
    base = header.base_timestamp
    deltas = _columns(records, position, header).timestamp_delta[: header.record_count]
    times = (base + delta for delta in deltas)
    oldest = min((time for time in times if time != NO_TIMESTAMP), default=now_ms)
    if now_ms - oldest > rules.timestamp_before_max_ms:
        faults = _time_faults(records, position, header, rules, now_ms)
        raise InvalidTimestamp(f"a record has {_too_old(oldest, rules, now_ms)}", faults)


def _columns(records: Buffer, position: int, header: BatchHeader) -> Columns:
    columns = Columns(header.record_count)
    scan(records, position, len(records), header.record_count, columns)
    return columns


def _time_faults(
    records: Buffer, position: int, header: BatchHeader, rules: Rules, now_ms: int
) -> list[RecordFault]:
    """Return the records with invalid timestamps; none for a batch with very many records."""
    if header.record_count > _BLAMED_RECORDS_MAX:
        return []
    deltas = _columns(records, position, header).timestamp_delta[: header.record_count]
    problems = (time_problem(header.base_timestamp + delta, rules, now_ms) for delta in deltas)
    return [RecordFault(record, problem) for record, problem in enumerate(problems) if problem]


def time_problem(time: int, rules: Rules, now_ms: int) -> str | None:
    """Return what is wrong with the timestamp of a record, or None."""
    if not NO_TIMESTAMP <= time <= _INT64_MAX:
        return f"timestamp {time} is out of range"
    if rules.log_append_time or time == NO_TIMESTAMP:
        return None
    if time - now_ms > rules.timestamp_after_max_ms:
        return _too_new(time, rules, now_ms)
    if now_ms - time > rules.timestamp_before_max_ms:
        return _too_old(time, rules, now_ms)
    return None


def _too_new(time: int, rules: Rules, now_ms: int) -> str:
    return (
        f"timestamp {time}, {time - now_ms} ms ahead of the broker's clock; "
        f"message.timestamp.after.max.ms is {rules.timestamp_after_max_ms}"
    )


def _too_old(time: int, rules: Rules, now_ms: int) -> str:
    return (
        f"timestamp {time}, {now_ms - time} ms behind the broker's clock; "
        f"message.timestamp.before.max.ms is {rules.timestamp_before_max_ms}"
    )


def _refuse_short(data: memoryview) -> None:
    size = len(data)
    if size == 0:
        raise InvalidRecord("no batch; a produce request carries one for each partition")
    if size > MAGIC_POSITION:
        refuse_magic(data[MAGIC_POSITION])
    raise CorruptBatch(f"{size} bytes; the header of a batch alone takes {HEADER_BYTES}")


def refuse_magic(magic: int) -> None:
    """Raise the error for a format other than v2, which Produce v3 and later require."""
    if magic in (0, 1):
        raise InvalidRecord(f"message format v{magic}; from Produce v3 on only batches of v2 are taken")
    if magic != MAGIC:
        raise CorruptBatch(f"magic byte {magic} is no message format")


def _refuse_framing(header: BatchHeader, size: int) -> None:
    refuse_magic(header.magic)
    if header.batch_length < HEADER_BYTES - PREFIX_BYTES:
        raise CorruptBatch(f"batch length {header.batch_length} is too short for a header")
    if header.size_bytes > size:
        raise CorruptBatch(f"the batch is cut short: {size} of {header.size_bytes} bytes")
    raise InvalidRecord(
        f"{size - header.size_bytes} bytes after the batch; a produce request carries one for each partition"
    )


def _refuse_header(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("a control batch; only the broker writes those")
    if header.has_delete_horizon:
        raise InvalidRecord("a batch with a delete horizon; only compaction writes those")
    if header.is_log_append_time:
        raise InvalidTimestamp("timestamp type LogAppendTime; only the broker sets it")
    if header.is_transactional:
        raise InvalidTxnState("a transactional batch, and no transaction is open")
    raise InvalidRecord(
        f"{header.record_count} records and last offset delta {header.last_offset_delta}: "
        "a producer's batch has at least one record and no gaps"
    )
