"""Converts records from a producer to the format of their topic (`message.format.version`).

The result has each record that was sent, in the same order, with its key, its value and, if the format has them, its
timestamp and headers. A payload in the topic's format and codec with the offsets 0, 1, ... stays byte for byte, except
in v0, where payloads contain absolute offsets.

A valid message set of an older format is described by a `BatchHeader` too. Its base offset is the first one in a
payload of v0; its producer is that of the batch it was made from, if any.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.protocol.records import (
    batch,
    build,
    compression,
    convert,
    legacy,
    legacy_codecs,
    message_set,
    search,
    validate,
)
from tidelog.protocol.records.batch import NO_TIMESTAMP, BatchHeader, Buffer
from tidelog.protocol.records.build import Message
from tidelog.protocol.records.compression import NONE
from tidelog.protocol.records.errors import BatchTooLarge, UnsupportedFormat
from tidelog.protocol.records.legacy_validate import MESSAGES_MAX, Checked, check_message_set, too_many
from tidelog.protocol.records.recompress import Target, level_for, recompress
from tidelog.protocol.records.steps import STEP_BYTES, Steps
from tidelog.protocol.records.validate import Rules, ValidBatch

# What is stored as it is, whatever codec its topic and its producer would have.
PLAIN: Final = Target(NONE, None)

# Versions before these wrote format v0, and v1 (KIP-31 and KIP-32, KIP-98).
_FIRST_OF_V1: Final = (0, 10)
_FIRST_OF_V2: Final = (0, 11)


def magic_of(version: str) -> int:
    """Return the format of a value of `message.format.version`: a release, such as "3.0-IV1", or the format itself.

    ValueError for any other value.
    """
    if version in ("0", "1", "2"):
        return int(version)
    numbers = tuple(int(part) for part in version.partition("-")[0].split("."))
    if len(numbers) < 2:
        raise ValueError(f"{version!r} must be a release, such as 0.10.2, or a format, 0 to 2")
    return 0 if numbers < _FIRST_OF_V1 else 1 if numbers < _FIRST_OF_V2 else 2


def validate_as(
    magic: int,
    data: bytearray | memoryview,
    rules: Rules,
    now_ms: int,
    wanted: Target | None = None,
    base_offset: int = 0,
) -> Steps[tuple[bytearray | memoryview, ValidBatch]]:
    """Validate records in any format, and return them in the topic's format, `magic`, with their description.

    `wanted` is the codec of the topic, None for that of the producer. If nothing has to be converted, data itself is
    returned, with corrected timestamps. base_offset is the expected first offset; see `fits`. RecordsError has the code
    for the producer; data is unchanged then.
    """
    if len(data) <= batch.MAGIC_POSITION or data[batch.MAGIC_POSITION] not in legacy.MAGICS:
        if magic != batch.MAGIC:
            return (yield from _from_batch(magic, data, rules, now_ms, wanted, base_offset))
        valid = validate.validate(data, rules, now_ms)
        return (data, valid) if wanted is None else recompress(data, valid, wanted, rules)
    checked = yield from check_message_set(data, rules, now_ms)
    first = checked.first
    codec = first.codec if wanted is None else wanted.codec
    may_stay = first.codec == NONE or (magic == 1 and checked.is_contiguous)
    if (magic, codec) == (first.magic, first.codec) and may_stay:
        return data, _stamped_in_place(data, checked, rules, now_ms)
    level = _level(wanted, max(len(data), len(checked.payload)))
    if magic == batch.MAGIC:
        parts = _messages(data, checked, 0, None)
        held_bytes = len(checked.payload)
        made = yield from build.write_batch(parts, codec, level, rules.max_decompressed_bytes, held_bytes)
        return made, _valid_batch(made, checked, rules, now_ms)
    parts = _messages(data, checked, base_offset, now_ms if rules.log_append_time else None)
    made = yield from _write(parts, magic, codec, level, rules, len(data), len(checked.payload))
    header = _header_of(checked, magic, codec, base_offset)
    return made, _valid_set(header, checked[3:6], len(made), rules, now_ms)


def fits(valid: ValidBatch, base_offset: int) -> bool:
    """Return whether a valid set can get the offsets from base_offset on.

    A payload of v0 contains the offsets that were expected; at another place it must be made again.
    """
    header = valid.header
    return header.magic != 0 or header.codec == NONE or header.base_offset == base_offset


def assign_offsets(data: bytearray | memoryview, valid: ValidBatch, base_offset: int) -> None:
    """Set the offsets of a valid message set that `fits`, from base_offset on, in place; no checksum changes."""
    header = valid.header
    if header.codec == NONE:
        search.number_messages(data, base_offset)
    else:
        legacy.set_offset(data, 0, base_offset + header.last_offset_delta)


def stamped(data: bytearray | memoryview, valid: ValidBatch, now_ms: int) -> ValidBatch:
    """Set the append time of a valid set in any format, in place; v0 has none."""
    magic = valid.header.magic
    if magic == batch.MAGIC:
        return validate.stamped(data, valid, now_ms)
    if magic == 0:
        return valid
    search.stamp_messages(data, now_ms)
    header = valid.header._replace(max_timestamp=now_ms)
    return ValidBatch(header, now_ms, now_ms, 0, valid.size_bytes)


def _from_batch(
    magic: int,
    data: bytearray | memoryview,
    rules: Rules,
    now_ms: int,
    wanted: Target | None,
    base_offset: int,
) -> Steps[tuple[bytearray, ValidBatch]]:
    """Write the records of a batch as messages, which have no headers and no producer id."""
    if len(data) >= batch.HEADER_BYTES:
        header = batch.read_header(data)
        if header.is_transactional and not header.is_control and batch.check_crc(data, 0, header):
            raise UnsupportedFormat(
                f"a transactional batch; the topic's format, v{magic}, has no transactions"
            )
    codec = None
    if wanted is not None:
        codec = wanted.codec
        legacy_codecs.check_codec(codec, magic)
    # A copy, as times are corrected in place, and a later step may still fail.
    data = bytearray(data)
    valid = validate.validate(data, rules, now_ms)
    header = valid.header._replace(base_offset=base_offset)
    if header.record_count > MESSAGES_MAX:
        raise too_many(magic)
    if codec is None:
        codec = header.codec
        legacy_codecs.check_codec(codec, magic)
    packed = memoryview(data)[batch.HEADER_BYTES :]
    payload = compression.decompress(header.codec, packed, rules.max_decompressed_bytes)
    parts, level = convert.batch_messages(header, payload), _level(wanted, len(data))
    made = yield from _write(parts, magic, codec, level, rules, len(data), len(payload))
    return made, _valid_set(
        header._replace(magic=magic, attributes=codec), valid[1:4], len(made), rules, now_ms
    )


def _messages(data: Buffer, checked: Checked, base_offset: int, append_time: int | None) -> Iterator[Message]:
    """Yield the records of a checked set, with offsets from base_offset on."""
    if checked.payload:
        data, entries = checked.payload, message_set.payload_entries(checked.payload, checked.first)
    else:
        entries = message_set.entries(data)
    for offset, entry in enumerate(entries, base_offset):
        time = entry.timestamp if append_time is None else append_time
        yield offset, time, legacy.key_of(data, entry), legacy.value_of(data, entry)


def _write(
    parts: Iterator[Message],
    magic: int,
    codec: int,
    level: int | None,
    rules: Rules,
    sent_bytes: int,
    held_bytes: int,
) -> Steps[bytearray]:
    """Write messages for the log, each entry within the topic's limit; held_bytes is the size of their source."""
    # Readers accept no larger payload. Uncompressed messages may be as large as a request, and are larger in v1.
    limit = rules.max_decompressed_bytes
    if codec == NONE:
        limit = max(limit, 2 * sent_bytes)
    made = yield from message_set.write(
        parts,
        magic,
        codec,
        level,
        log_append_time=rules.log_append_time,
        limit_bytes=limit,
        held_bytes=held_bytes,
    )
    if len(made) > rules.max_batch_bytes:
        step_end = STEP_BYTES
        for entry in message_set.entries(made):
            _check_size(entry.size_bytes, magic, rules)
            if entry.position >= step_end:
                step_end = entry.position + STEP_BYTES
                yield held_bytes + len(made)
    return bytearray(made)


def _check_size(size: int, magic: int, rules: Rules) -> None:
    if size > rules.max_batch_bytes:
        raise BatchTooLarge(
            f"{size} bytes in format v{magic}, the topic's message.format.version; "
            f"max.message.bytes is {rules.max_batch_bytes}"
        )


def _stamped_in_place(
    data: bytearray | memoryview, checked: Checked, rules: Rules, now_ms: int
) -> ValidBatch:
    """Correct the timestamps of a set in place: a wrapper's is the largest in it, or all are now."""
    first = checked.first
    valid = ValidBatch(_header_of(checked, first.magic, first.codec, 0), *checked[3:6], len(data))
    if first.magic and rules.log_append_time:
        return stamped(data, valid, now_ms)
    if first.magic and first.codec != NONE:
        legacy.set_timestamp(data, first, checked.max_timestamp, append_time=False)
    return valid


def _header_of(checked: Checked, magic: int, codec: int, base_offset: int) -> BatchHeader:
    """Return the header that describes a checked set."""
    count, oldest, newest = checked[2:5]
    return BatchHeader(base_offset, 0, -1, magic, 0, codec, count - 1, oldest, newest, -1, -1, -1, count)


def _valid_set(
    header: BatchHeader, times: tuple[int, int, int], size_bytes: int, rules: Rules, now_ms: int
) -> ValidBatch:
    """Return the description of a set that was written here, from the times of its records."""
    if header.magic == 0:
        times = (NO_TIMESTAMP, NO_TIMESTAMP, 0)
    elif rules.log_append_time:
        times = (now_ms, now_ms, 0)
    return ValidBatch(header._replace(max_timestamp=times[1]), *times, size_bytes)


def _valid_batch(made: bytearray, checked: Checked, rules: Rules, now_ms: int) -> ValidBatch:
    _check_size(len(made), batch.MAGIC, rules)
    header = batch.read_header(made)
    if rules.log_append_time:
        attributes = header.attributes | batch.LOG_APPEND_TIME
        header = batch.set_timestamps(made, 0, header, attributes, now_ms)
        return ValidBatch(header, now_ms, now_ms, 0, len(made))
    return ValidBatch(header, *checked[3:6], len(made))


def _level(wanted: Target | None, size_bytes: int) -> int | None:
    return None if wanted is None else level_for(wanted, size_bytes)
