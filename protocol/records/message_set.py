"""Message sets, as logs and requests of format v0 and v1 hold them: read message by message, and made of messages.

Owns what a wrapper means: its payload, the offsets and the times of what is in it. Refuses to know what a producer may
send and what a reader wants. Invariant: `read_records(build_message_set(records))` gives the records back; reading
takes one payload at a time, limit_bytes at most, whatever the bytes say, and holes between offsets stay.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tidelog.protocol.records import legacy, legacy_codecs
from tidelog.protocol.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, PREFIX_BYTES, Buffer
from tidelog.protocol.records.build import READ_LIMIT_BYTES, Message, Record
from tidelog.protocol.records.compression import NAMES, NONE
from tidelog.protocol.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordsError
from tidelog.protocol.records.legacy import Entry

# No wrapper holds more: its length is an int32, and so are those in it.
PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1 - PREFIX_BYTES - legacy.LENGTHS_MIN[1]

_OFFSET_MAX: Final = (1 << 63) - 1
_unpack_prefix = struct.Struct(">qi").unpack_from


def entries(data: Buffer, position: int = 0, end: int | None = None) -> Iterator[Entry]:
    """Walk the entries that fill [position, end), wrappers unopened; CorruptBatch where one is cut or wrong."""
    stop = len(data) if end is None else min(end, len(data))
    while position < stop:
        entry = legacy.read_entry(data, position, stop)
        yield entry
        position += entry.size_bytes


def messages(data: Buffer, entry: Entry, limit_bytes: int) -> Iterator[Message]:
    """Read the record that an entry of data is, or those in its payload, with absolute offsets.

    RecordsError where the payload is not what a wrapper holds. No checksum is looked at.
    """
    if entry.codec == NONE:
        yield entry.offset, entry.timestamp, legacy.key_of(data, entry), legacy.value_of(data, entry)
        return
    payload = open_payload(data, entry, limit_bytes)
    base_offset = base_of(payload, entry)
    append_time = entry.is_log_append_time
    for inner in payload_entries(payload, entry):
        offset = base_offset + inner.offset
        if not 0 <= offset <= _OFFSET_MAX:
            raise CorruptBatch(f"message at position {entry.position}: offset {offset} of one in it")
        yield (
            offset,
            entry.timestamp if append_time else inner.timestamp,
            legacy.key_of(payload, inner),
            legacy.value_of(payload, inner),
        )


def read_records(
    data: Buffer, position: int = 0, end: int | None = None, limit_bytes: int = READ_LIMIT_BYTES
) -> Iterator[Record]:
    """Read the records of the entries that fill [position, end), limit_bytes of each payload at most."""
    for entry in entries(data, position, end):
        for message in messages(data, entry, limit_bytes):
            yield Record(*message)


def open_payload(data: Buffer, wrapper: Entry, limit_bytes: int) -> bytes:
    """Decompress the payload of a wrapper; RecordsError where it has none, or it is not of its codec."""
    if wrapper.value_length < 0:
        raise InvalidRecord(f"message at position {wrapper.position}: compressed, and its value is null")
    packed = memoryview(data)[wrapper.value_position : wrapper.value_position + wrapper.value_length]
    try:
        payload = bytes(legacy_codecs.decompress(wrapper.codec, packed, wrapper.magic, limit_bytes))
    except RecordsError as error:
        raise _within(wrapper, error) from error
    if not payload:
        raise InvalidRecord(f"message at position {wrapper.position}: compressed, and nothing is in it")
    return payload


def payload_entries(payload: bytes, wrapper: Entry) -> Iterator[Entry]:
    """Walk what is in a wrapper's payload: messages of its format, none of them a wrapper.

    Positions are those in the payload.
    """
    try:
        for inner in entries(payload):
            if inner.magic != wrapper.magic:
                raise InvalidRecord(f"message at position {inner.position}: format v{inner.magic}")
            if inner.codec != NONE:
                raise InvalidRecord(f"message at position {inner.position}: compressed a second time")
            yield inner
    except RecordsError as error:
        raise _within(wrapper, error) from error


def base_of(payload: bytes, wrapper: Entry) -> int:
    """Return what is to be added to the offsets in a payload: in v1 they are relative, the last is the wrapper's.

    Some versions of librdkafka leave the wrapper's at 0: then they are counted from there.
    """
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    last = _last_offset(payload)
    if last > wrapper.offset:
        raise InvalidRecord(
            f"message at position {wrapper.position}: its offset, {wrapper.offset}, is less than that of the last "
            f"message in it, {last}"
        )
    return wrapper.offset - last


def build_message_set(
    records: Sequence[Record], *, magic: int, codec: int = NONE, log_append_time: bool = False
) -> bytes:
    """Build a message set of format v0 or v1; offsets are absolute. Headers, and in v0 times, are left out.

    With a codec all are in one wrapper, and with LogAppendTime they then have the largest timestamp.
    """
    if not records:
        raise ValueError("a message set needs at least one record")
    if magic not in legacy.MAGICS:
        raise ValueError(f"magic {magic}; a message set is of 0 or 1")
    parts = ((record.offset, record.timestamp, record.key, record.value) for record in records)
    return bytes(write(parts, magic, codec, log_append_time=log_append_time))


def write(
    parts: Iterable[Message],
    magic: int,
    codec: int = NONE,
    level: int | None = None,
    *,
    log_append_time: bool,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> bytes | bytearray:
    """Write messages in this order, in one wrapper where there is a codec; nothing where there are none.

    BatchTooLarge where the messages take more than limit_bytes. Their offsets are absolute, in v1 within a wrapper
    relative to the first.
    """
    attributes = LOG_APPEND_TIME if log_append_time and magic else 0
    is_relative = magic == 1 and codec != NONE
    encode = legacy.encode
    out = bytearray()
    base = last = 0
    newest = NO_TIMESTAMP
    for offset, timestamp, key, value in parts:
        if is_relative and not out:
            base = offset
        out += encode(magic, attributes, offset - base, timestamp, key, value)
        last = offset
        if timestamp > newest:
            newest = timestamp
        if len(out) > limit_bytes:
            raise BatchTooLarge(
                f"records that take more than {limit_bytes} bytes, max.decompressed.bytes, in format v{magic}; "
                "send fewer or smaller records in a batch"
            )
    return wrap(out, magic, codec | attributes, last, newest, level) if codec and out else out


def wrap(
    payload: Buffer, magic: int, attributes: int, last_offset: int, timestamp: int, level: int | None = None
) -> bytes:
    """Compress messages with the codec of the attributes, and put them into a wrapper."""
    packed = legacy_codecs.compress(attributes & 0x07, payload, magic, level)
    return legacy.encode(magic, attributes, last_offset, timestamp, None, packed)


def _last_offset(payload: bytes) -> int:
    """Step over messages to the last one and return its offset."""
    at, offset = 0, 0
    while at < len(payload):
        if len(payload) - at < PREFIX_BYTES:
            raise CorruptBatch(f"message at position {at} of a payload: {len(payload) - at} bytes are left")
        offset, length = _unpack_prefix(payload, at)
        if length < legacy.LENGTH_MIN:
            raise CorruptBatch(f"message at position {at} of a payload: its length is {length}")
        at += PREFIX_BYTES + length
    return int(offset)


def _within(wrapper: Entry, error: RecordsError) -> RecordsError:
    name = NAMES[wrapper.codec] if wrapper.codec < len(NAMES) else f"codec {wrapper.codec}"
    return type(error)(f"in the {name} payload of the message at position {wrapper.position}: {error}")
