"""Whether a batch that a producer sent may be stored: every rule, every record.

Owns the rules of a produced batch and their order, cheapest first, so that finding a hostile one out is bounded
in time and memory. Refuses to know logs, topics and clocks: limits and the time are handed in. Invariant: what
passes is one whole batch of format v2 whose max timestamp is true (P22) or, with LogAppendTime, now.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.protocol.records import batch, compression, kernel
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    UnsupportedCodec,
)

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_REFUSED: Final = batch.LOG_APPEND_TIME | batch.TRANSACTIONAL | batch.CONTROL | batch.DELETE_HORIZON


@dataclass(frozen=True, slots=True)
class Rules:
    """What a topic takes: its timestamp type and its limits."""

    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    max_batch_bytes: int
    max_decompressed_bytes: int


class ValidBatch:
    """What validate found out: the header as its bytes now stand, and the times of its records.

    max_timestamp_offset_delta is that of the first record with max_timestamp. With LogAppendTime every record has
    the time of the append.
    """

    __slots__ = ("header", "max_timestamp", "max_timestamp_offset_delta", "min_timestamp", "size_bytes")

    def __init__(
        self,
        header: BatchHeader,
        min_timestamp: int,
        max_timestamp: int,
        max_timestamp_offset_delta: int,
        size_bytes: int,
    ) -> None:
        """Hold the answers of validate."""
        self.header = header
        self.min_timestamp = min_timestamp
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset_delta = max_timestamp_offset_delta
        self.size_bytes = size_bytes


def validate(data: bytearray | memoryview, rules: Rules, now_ms: int) -> ValidBatch:
    """Check the one batch that data must be; correct its max timestamp, or stamp it with now_ms, in place.

    RecordsError with the code that the producer is to see. No offset is assigned.
    """
    header = _read_whole(data, rules)
    _check_header(header)
    largest, first, smallest = _scan(data, header, rules)
    base_timestamp = header.base_timestamp
    max_timestamp = base_timestamp + largest
    min_timestamp = base_timestamp + smallest
    if max_timestamp > _INT64_MAX or min_timestamp < batch.NO_TIMESTAMP:
        raise InvalidTimestamp(f"record timestamps from {min_timestamp} to {max_timestamp} are out of range")
    if rules.log_append_time:
        header = batch.set_timestamps(data, 0, header, header.attributes | batch.LOG_APPEND_TIME, now_ms)
        return ValidBatch(header, now_ms, now_ms, 0, len(data))
    if max_timestamp - now_ms > rules.timestamp_after_max_ms:
        ahead = max_timestamp - now_ms
        raise InvalidTimestamp(
            f"record {first} has timestamp {max_timestamp}, {ahead} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms is {rules.timestamp_after_max_ms}"
        )
    if now_ms - min_timestamp > rules.timestamp_before_max_ms:
        _check_oldest(data, header, rules, now_ms)
    if max_timestamp != header.max_timestamp:
        header = batch.set_timestamps(data, 0, header, header.attributes, max_timestamp)
    return ValidBatch(header, min_timestamp, max_timestamp, first, len(data))


def _read_whole(data: bytearray | memoryview, rules: Rules) -> BatchHeader:
    """Read the header of a batch that fills data, is not too large, and has the checksum that it says."""
    size = len(data)
    if size < batch.HEADER_BYTES:
        _refuse_short(data)
    header = batch.read_header(data)
    if header.magic != batch.MAGIC:
        _refuse_magic(header.magic)
    if header.size_bytes != size:
        _refuse_size(header, size)
    if size > rules.max_batch_bytes:
        raise BatchTooLarge(f"a batch of {size} bytes; max.message.bytes is {rules.max_batch_bytes}")
    crc = batch.checksum(data, 0, header)
    if crc != header.crc:
        raise CorruptBatch(f"the batch has checksum {crc:#010x} and says {header.crc:#010x}; send it again")
    return header


def _check_header(header: BatchHeader) -> None:
    """Check what a producer may say in a header."""
    attributes = header.attributes
    if attributes & batch.CODEC_MASK > compression.ZSTD:
        raise UnsupportedCodec(f"compression codec {header.codec} does not exist")
    if attributes & _REFUSED:
        _refuse_attributes(header)
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset {header.base_offset}: a producer's batch starts at offset 0")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"{header.record_count} records and last offset delta {header.last_offset_delta}: "
            "a producer's batch has at least one record and no gaps"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent base sequence {header.base_sequence}")


def _scan(data: bytearray | memoryview, header: BatchHeader, rules: Rules) -> tuple[int, int, int]:
    """Walk all records: the largest timestamp delta, the first record that has it, the smallest."""
    records: batch.Buffer = data
    position = batch.HEADER_BYTES
    if header.attributes & batch.CODEC_MASK:
        records = _decompress(data, header, rules)
        position = 0
    try:
        return kernel.scan(records, position, len(records), header.record_count)
    except kernel.RecordError as error:
        raise InvalidRecord(str(error)) from error


def _decompress(data: bytearray | memoryview, header: BatchHeader, rules: Rules) -> batch.Buffer:
    payload = memoryview(data)[batch.HEADER_BYTES :]
    return compression.decompress(header.codec, payload, rules.max_decompressed_bytes)


def _check_oldest(data: bytearray | memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> None:
    """Check the oldest timestamp but for records that have none: those are not old."""
    records = _decompress(data, header, rules)
    columns = kernel.Columns(header.record_count)
    kernel.scan(records, 0, len(records), header.record_count, columns)
    base = header.base_timestamp
    times = (base + delta for delta in columns.timestamp_delta[: header.record_count])
    oldest = min((time for time in times if time != batch.NO_TIMESTAMP), default=now_ms)
    if now_ms - oldest > rules.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"a record has timestamp {oldest}, {now_ms - oldest} ms behind the broker's clock; "
            f"message.timestamp.before.max.ms is {rules.timestamp_before_max_ms}"
        )


def _refuse_short(data: bytearray | memoryview) -> None:
    size = len(data)
    if size == 0:
        raise InvalidRecord("no batch; a produce request carries one for each partition")
    if size > batch.MAGIC_POSITION:
        _refuse_magic(data[batch.MAGIC_POSITION])
    raise CorruptBatch(f"{size} bytes; the header of a batch alone takes {batch.HEADER_BYTES}")


def _refuse_magic(magic: int) -> None:
    if magic in (0, 1):
        raise InvalidRecord(
            f"message format v{magic}; this broker takes v2, as every client since 2017 can send"
        )
    if magic != batch.MAGIC:
        raise CorruptBatch(f"magic byte {magic} is no message format")


def _refuse_size(header: BatchHeader, size: int) -> None:
    if header.batch_length < batch.HEADER_BYTES - batch.PREFIX_BYTES:
        raise CorruptBatch(f"batch length {header.batch_length} is too short for a header")
    if header.size_bytes > size:
        raise CorruptBatch(f"the batch is cut short: {size} of {header.size_bytes} bytes")
    raise InvalidRecord(
        f"{size - header.size_bytes} bytes after the batch; a produce request carries one for each partition"
    )


def _refuse_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("a control batch; only the broker writes those")
    if header.has_delete_horizon:
        raise InvalidRecord("a batch with a delete horizon; only compaction writes those")
    if header.is_log_append_time:
        raise InvalidTimestamp("timestamp type LogAppendTime; only the broker sets it")
    raise InvalidTxnState("a transactional batch, and no transaction is open")
