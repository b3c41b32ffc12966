"""Makes a batch from records, and reads the records of a batch: for clients, tools, tests and the broker's own topics.

Produce and fetch never take a batch apart, except to convert older formats. `read_records(build_batch(records))`
returns the same records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.protocol.records import batch, compression, encode, kernel, lines
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import BatchTooLarge, InvalidRecord, RecordError
from tidelog.protocol.records.steps import STEP_BYTES, Steps

# Offset, timestamp, key and value of a record, where there are very many of them and none has headers.
Message = tuple[int, int, bytes | None, bytes | None]
Header = tuple[str, bytes | None]
# The fields of a `Record`.
Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]

# Enough for any batch that a broker with default options has stored.
READ_LIMIT_BYTES: Final = 64 << 20
# The varints of one byte, which are most: a table costs a third of the arithmetic.
_SHORT: Final = {value: bytes([value << 1 if value >= 0 else (-value << 1) - 1]) for value in range(-64, 64)}
# Of such small records as are a message of an older format each, a fourth of the bytes.
_STEP_BYTES: Final = STEP_BYTES // 4


@dataclass(frozen=True, slots=True)
class Record:
    """One record; timestamp in ms since the epoch, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: int = 0,
    log_append_time: bool = False,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build one batch (format v2); offsets are absolute, base_offset is the first record's unless given."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    payload = b"".join(
        [
            _encode(
                record.timestamp - base_timestamp,
                record.offset - base,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        ]
    )
    attributes = codec | (batch.LOG_APPEND_TIME if log_append_time else 0)
    attributes |= (batch.TRANSACTIONAL if transactional else 0) | (batch.CONTROL if control else 0)
    header = BatchHeader(
        base_offset=base,
        batch_length=0,  # `signed` sets it
        leader_epoch=leader_epoch,
        magic=batch.MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return bytes(signed(header, compression.compress(codec, payload)))


def build_rows(
    rows: Sequence[encode.Row], codec: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytearray:
    """Build one batch of a producer, with offsets from 0 on; there must be a row."""
    base_time = rows[0][0]
    header = BatchHeader(
        base_offset=0,
        batch_length=0,  # `signed` sets it
        leader_epoch=-1,
        magic=batch.MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=len(rows) - 1,
        base_timestamp=base_time,
        max_timestamp=max(row[0] for row in rows),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    return signed(header, compression.compress(codec, encode.encode(rows, base_time)))


def write_batch(
    parts: Iterable[Message], codec: int, level: int | None, limit_bytes: int, held_bytes: int
) -> Steps[bytearray]:
    """Write messages as one batch without a producer; BatchTooLarge where the records take more than limit_bytes.

    Offsets begin at 0, and are those of the records in this order; there must be one. held_bytes are what they are read
    from.
    """
    payload = bytearray()
    base_time = newest = count = 0
    step_end = _STEP_BYTES
    for _, timestamp, key, value in parts:
        if count == 0:
            base_time = newest = timestamp
        payload += _encode(timestamp - base_time, count, key, value)
        if timestamp > newest:
            newest = timestamp
        size = len(payload)
        if size > limit_bytes:
            raise BatchTooLarge(
                f"records that take more than {limit_bytes} bytes, max.decompressed.bytes, in format v2; "
                "send fewer or smaller records in a batch"
            )
        count += 1
        if size >= step_end:
            step_end = size + _STEP_BYTES
            yield held_bytes + size
    header = BatchHeader(0, 0, -1, batch.MAGIC, 0, codec, count - 1, base_time, newest, -1, -1, -1, count)
    return signed(header, compression.compress(codec, payload, level))


def signed(header: BatchHeader, payload: batch.Buffer) -> bytearray:
    """Put the header, its length and checksum made right, before the payload."""
    length = batch.HEADER_BYTES - batch.PREFIX_BYTES + len(payload)
    base, _, *rest = header
    made = bytearray(batch.HEADER.pack(base, length, *rest))
    crc = crc32c(payload, crc32c(memoryview(made)[batch.ATTRIBUTES_POSITION :]))
    made[batch.CRC_POSITION : batch.ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    made += payload
    return made


def read_records(
    batch_bytes: batch.Buffer, position: int = 0, limit_bytes: int = READ_LIMIT_BYTES
) -> Iterator[Record]:
    """Read the records of the batch at position, limit_bytes at most; RecordsError where it is damaged.

    The checksum is not looked at. In a batch with LogAppendTime every record has the batch's max timestamp.
    """
    return (Record(*row) for row in read_rows(batch_bytes, position, limit_bytes))


def read_rows(
    batch_bytes: batch.Buffer, position: int = 0, limit_bytes: int = READ_LIMIT_BYTES
) -> Iterator[Row]:
    """Read what `read_records` does, as tuples of the same fields, which are made in a third of the time."""
    yield from _rows(*_scanned(batch_bytes, position, limit_bytes))


def read_lines(
    batch_bytes: batch.Buffer,
    position: int,
    limit_bytes: int,
    first_offset: int,
    shape: lines.Shape,
    other: Callable[[Row], bytes],
) -> list[lines.Line]:
    """Return a line for each record at or after an offset; `other` makes those that `lines` cannot. As `read_rows`."""
    header, data, columns = _scanned(batch_bytes, position, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    made, others = lines.write(
        data, columns, shape, header.base_offset, header.base_timestamp, append_time, first_offset
    )
    rows = list(_rows(header, data, columns)) if others else []
    for line, record in others:
        line.text = other(rows[record])
    return made


def _scanned(
    batch_bytes: batch.Buffer, position: int, limit_bytes: int
) -> tuple[BatchHeader, bytes, Columns]:
    """Return the header of a batch, its uncompressed records and where they are."""
    header = batch.read_header(batch_bytes, position)
    payload = memoryview(batch_bytes)[position + batch.HEADER_BYTES : position + header.size_bytes]
    data = bytes(compression.decompress(header.codec, payload, limit_bytes))
    columns = Columns()
    try:
        kernel.scan(data, 0, len(data), header.record_count, columns, False)
    except RecordError as error:
        raise InvalidRecord(f"batch at position {position}: {error}") from error
    return header, data, columns


def _rows(header: BatchHeader, data: bytes, columns: Columns) -> Iterator[Row]:
    count, base_offset, base_time = header.record_count, header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for offset, time, key_at, key_size, value_at, value_size, headers_at, headers in zip(
        columns.offset_delta[:count],
        columns.timestamp_delta[:count],
        columns.key_position[:count],
        columns.key_length[:count],
        columns.value_position[:count],
        columns.value_length[:count],
        columns.headers_position[:count],
        columns.headers_count[:count],
        strict=True,
    ):
        yield (
            base_offset + offset,
            base_time + time if append_time is None else append_time,
            None if key_size < 0 else data[key_at : key_at + key_size],
            None if value_size < 0 else data[value_at : value_at + value_size],
            tuple(_read_headers(data, headers_at, headers)) if headers else (),
        )


def _encode(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...] = (),
) -> bytes:
    parts = [b"\0", _varint(timestamp_delta), _varint(offset_delta), *_sized(key), *_sized(value)]
    parts.append(encode_headers(headers))
    body = b"".join(parts)
    return _varint(len(body)) + body


def encode_headers(headers: tuple[Header, ...]) -> bytes:
    """Return the headers of a record, after their number, as a row has them."""
    if not headers:
        return b"\0"
    parts = [_varint(len(headers))]
    for name, content in headers:
        parts += (*_sized(name.encode()), *_sized(content))
    return b"".join(parts)


def _sized(value: bytes | None) -> tuple[bytes, bytes]:
    return (_varint(-1), b"") if value is None else (_varint(len(value)), value)


def _varint(value: int) -> bytes:
    """Encode a signed integer of at most 64 bits in zigzag."""
    short = _SHORT.get(value)
    if short is not None:
        return short
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _cut(data: batch.Buffer, position: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(data[position : position + length])


def _read_headers(data: batch.Buffer, position: int, count: int) -> Iterator[Header]:
    """Read count headers after their own count at position; the scan has checked every length."""
    _, position = _read_varint(data, position)
    for _ in range(count):
        length, position = _read_varint(data, position)
        name = bytes(data[position : position + length]).decode("utf-8", "replace")
        length, position = _read_varint(data, position + length)
        yield name, _cut(data, position, length)
        position += max(length, 0)


def _read_varint(data: batch.Buffer, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
