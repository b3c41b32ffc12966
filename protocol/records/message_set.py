"""Message sets of format v0 and v1: read their messages, and make them from messages.

It resolves wrappers: their payloads, offsets and timestamps. `read_records(build_message_set(records))` returns the
same records. Reading holds one payload at a time, at most limit_bytes. Gaps between offsets stay.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.protocol.records import legacy, legacy_codecs
from tidelog.protocol.records.batch import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP, PREFIX_BYTES, Buffer
from tidelog.protocol.records.build import READ_LIMIT_BYTES, Message, Record
from tidelog.protocol.records.compression import NAMES, NONE, gathered
from tidelog.protocol.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordsError
from tidelog.protocol.records.legacy import Entry
from tidelog.protocol.records.steps import STEP_BYTES, Steps, at_once

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
    yield from payload_messages(payload, entry, base_of(payload, entry))


def payload_messages(payload: bytes, wrapper: Entry, base_offset: int) -> Iterator[Message]:
    """Read what is in a wrapper's payload, or in whole messages of it; base_offset is added to their offsets."""
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None
    for inner in payload_entries(payload, wrapper):
        offset = base_offset + inner.offset
        if not 0 <= offset <= _OFFSET_MAX:
            raise CorruptBatch(f"message at position {wrapper.position}: offset {offset} of one in it")
        yield (
            offset,
            inner.timestamp if append_time is None else append_time,
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


def open_payload(data: Buffer, wrapper: Entry, limit_bytes: int, *, strict: bool = False) -> bytes:
    """Decompress the payload of a wrapper; RecordsError where it has none, or it is not of its codec.

    `strict` is that of `legacy_codecs.decompress`.
    """
    if wrapper.value_length < 0:
        raise InvalidRecord(f"message at position {wrapper.position}: compressed, and its value is null")
    packed = memoryview(data)[wrapper.value_position : wrapper.value_position + wrapper.value_length]
    try:
        payload = bytes(
            legacy_codecs.decompress(wrapper.codec, packed, wrapper.magic, limit_bytes, strict=strict)
        )
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
    """Return what is to be added to the offsets in a payload."""
    return base_by_last(_last_offset(payload), wrapper) if is_relative(wrapper) else 0


def is_relative(wrapper: Entry) -> bool:
    """Tell whether what is added to the offsets in a payload depends on the last of them: in v1 that is the wrapper's.

    Some versions of librdkafka leave the wrapper's at 0: then they are counted from there.
    """
    return wrapper.magic != 0 and wrapper.offset != 0


def base_by_last(last: int, wrapper: Entry) -> int:
    """Return what is to be added to offsets in a payload that are relative, of which this is the last."""
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
    return bytes(at_once(write(parts, magic, codec, log_append_time=log_append_time)))


class Content(NamedTuple):
    """Messages one after another, before they are compressed: their bytes, the last offset, the largest timestamp."""

    data: bytearray
    last_offset: int
    max_timestamp: int


def write(
    parts: Iterable[Message],
    magic: int,
    codec: int = NONE,
    level: int | None = None,
    *,
    log_append_time: bool,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
    held_bytes: int = 0,
) -> Steps[bytes | bytearray]:
    """Write messages in this order, in one wrapper where there is a codec; nothing where there are none.

    BatchTooLarge where the messages take more than limit_bytes. Their offsets are absolute, in v1 within a wrapper
    relative to the first. held_bytes are what they are read from.
    """
    attributes = LOG_APPEND_TIME if log_append_time and magic else 0
    written = yield from content(parts, magic, codec, attributes, limit_bytes, held_bytes)
    return pack(written, magic, codec | attributes, level)


def content(
    parts: Iterable[Message],
    magic: int,
    codec: int,
    attributes: int,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
    held_bytes: int = 0,
) -> Steps[Content]:
    """Write messages as `write` does, but for the wrapper of those that are to be compressed."""
    counts_from_first = magic == 1 and codec != NONE
    encode = legacy.encode
    out = bytearray()
    base = last = 0
    step_end = STEP_BYTES
    newest = NO_TIMESTAMP
    for offset, timestamp, key, value in parts:
        if counts_from_first and not out:
            base = offset
        out += encode(magic, attributes, offset - base, timestamp, key, value)
        last = offset
        if timestamp > newest:
            newest = timestamp
        size = len(out)
        if size > limit_bytes:
            raise BatchTooLarge(
                f"records that take more than {limit_bytes} bytes, max.decompressed.bytes, in format v{magic}; "
                "send fewer or smaller records in a batch"
            )
        if size >= step_end:
            step_end = size + STEP_BYTES
            yield held_bytes + size
    return Content(out, last, newest)


def pack(written: Content, magic: int, attributes: int, level: int | None = None) -> bytes | bytearray:
    """Put messages into a wrapper where the attributes name a codec, and there are any."""
    if not written.data or not attributes & CODEC_MASK:
        return written.data
    packed = legacy_codecs.compress(attributes & CODEC_MASK, written.data, magic, level)
    return legacy.encode(magic, attributes, written.last_offset, written.max_timestamp, None, packed)


def _last_offset(payload: bytes) -> int:
    """Step over messages to the last one and return its offset."""
    at, offset = _step(payload)
    if at < len(payload):
        raise _cut_short(at, len(payload) - at)
    return offset


def whole_messages(
    pieces: Iterable[Buffer], wrapper: Entry, room_bytes: int, room: int
) -> Iterator[tuple[bytes, int]]:
    """Cut a payload that comes in pieces into whole messages; yield some at a time, and the offset of the last of them.

    They are `room` at most, and room_bytes or one larger message.
    """
    held = bytearray()
    try:
        for piece in gathered(pieces, room_bytes):
            held += piece
            at, offset = _step(held, room)
            while at:
                yield bytes(held[:at]), offset
                del held[:at]
                at, offset = _step(held, room)
        if held:
            raise _cut_short(0, len(held))
    except RecordsError as error:
        raise _within(wrapper, error) from error


def whole_bytes(data: Buffer, limit_bytes: int) -> int:
    """Return how many of the first bytes of a message set, limit_bytes at most, are whole entries."""
    return _step(memoryview(data)[: max(limit_bytes, 0)])[0]


def _step(payload: Buffer, room: int = -1) -> tuple[int, int]:
    """Step over the whole messages at the beginning of a payload, `room` at most; return where they end, and the last's
    offset.
    """
    at, offset, end = 0, 0, len(payload)
    while end - at >= PREFIX_BYTES and room:
        found, length = _unpack_prefix(payload, at)
        if length < legacy.LENGTH_MIN:
            raise CorruptBatch(f"message at position {at} of a payload: its length is {length}")
        if length > end - at - PREFIX_BYTES:
            break
        at += PREFIX_BYTES + length
        offset = found
        room -= 1
    return at, offset


def _cut_short(position: int, left: int) -> CorruptBatch:
    return CorruptBatch(f"message at position {position} of a payload is cut short: {left} bytes are left")


def _within(wrapper: Entry, error: RecordsError) -> RecordsError:
    name = NAMES[wrapper.codec] if wrapper.codec < len(NAMES) else f"codec {wrapper.codec}"
    return type(error)(f"in the {name} payload of the message at position {wrapper.position}: {error}")
