"""Validates a message set of format v0 or v1 from a producer, by the rules of Kafka's LogValidator.

Nothing is changed. A valid set has whole messages of one format, each with a right checksum and, in v1, an allowed
timestamp. Either none of them is compressed, or all are in one wrapper.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.protocol.records import legacy, message_set
from tidelog.protocol.records.batch import NO_TIMESTAMP, Buffer
from tidelog.protocol.records.compression import NONE
from tidelog.protocol.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordFault,
)
from tidelog.protocol.records.legacy import Entry
from tidelog.protocol.records.steps import STEP_BYTES, Steps
from tidelog.protocol.records.validate import KEY_NEEDED, Rules, no_key, time_problem

# More take too long to unpack and store while others wait. Clients of that time send some thousands at most.
MESSAGES_MAX: Final = 50_000


class Checked(NamedTuple):
    """A valid message set: its first entry, the payload if that is a wrapper, and the times of its records.

    newest_record is the first record with max_timestamp. is_contiguous: the offsets in a wrapper are 0, 1, ...
    """

    first: Entry
    payload: bytes
    record_count: int
    min_timestamp: int
    max_timestamp: int
    newest_record: int
    is_contiguous: bool


def check_message_set(data: Buffer, rules: Rules, now_ms: int) -> Steps[Checked]:
    """Validate a message set, which must be all of data; RecordsError has the code for the producer."""
    first = legacy.read_entry(data, 0, len(data))
    if first.codec == NONE:
        return (yield from _tally(first, b"", _plain(data, first, rules), rules, now_ms))
    _check_outer(data, first, rules)
    if first.size_bytes != len(data):
        raise InvalidRecord(
            f"{len(data) - first.size_bytes} bytes after a compressed message; a produce request carries one "
            "for each partition"
        )
    # It may be stored as it is, and like Kafka, clients accept the wrong checksum of v0 only in v0 (KAFKA-3160).
    payload = message_set.open_payload(data, first, rules.max_decompressed_bytes, strict=True)
    return (yield from _tally(first, payload, _inner(payload, first), rules, now_ms))


def too_many(magic: int) -> BatchTooLarge:
    """Return the error for too many messages."""
    return BatchTooLarge(
        f"more than {MESSAGES_MAX} messages of format v{magic} for one partition: send fewer at once"
    )


def _plain(data: Buffer, first: Entry, rules: Rules) -> Iterator[Entry]:
    for entry in message_set.entries(data):
        _check_outer(data, entry, rules)
        if entry.magic != first.magic:
            raise InvalidRecord(
                f"message at position {entry.position}: format v{entry.magic}, and v{first.magic} before it"
            )
        if entry.codec != NONE:
            raise InvalidRecord(
                f"message at position {entry.position}: compressed, and others before it; such a one is sent alone"
            )
        yield entry


def _inner(payload: bytes, wrapper: Entry) -> Iterator[Entry]:
    for record, entry in enumerate(message_set.payload_entries(payload, wrapper)):
        if not legacy.check_crc(payload, entry.position, entry):
            raise CorruptBatch(f"record {record} in the compressed message does not match its checksum")
        yield entry
    if message_set.is_relative(wrapper):
        message_set.base_by_last(entry.offset, wrapper)  # raises if the offset is wrong


def _check_outer(data: Buffer, entry: Entry, rules: Rules) -> None:
    """Check the rules for a message that is not in a wrapper."""
    if entry.size_bytes > rules.max_batch_bytes:
        raise BatchTooLarge(
            f"a message of {entry.size_bytes} bytes; max.message.bytes is {rules.max_batch_bytes}"
        )
    if not legacy.check_crc(data, entry.position, entry):
        raise CorruptBatch(
            f"message at position {entry.position} does not match its checksum, {entry.crc:#010x}; send it again"
        )
    if entry.is_log_append_time:
        raise InvalidTimestamp("timestamp type LogAppendTime; only the broker sets it")


def _tally(
    first: Entry, payload: bytes, entries: Iterable[Entry], rules: Rules, now_ms: int
) -> Steps[Checked]:
    """Check the times of the records, and count them."""
    oldest = newest = NO_TIMESTAMP
    count = newest_record = 0
    step_end = STEP_BYTES
    is_contiguous = True
    faults: list[RecordFault] = []
    keyless: list[RecordFault] = []
    needs_keys = rules.needs_keys
    for entry in entries:
        time = entry.timestamp
        problem = time_problem(time, rules, now_ms) if entry.magic else None
        if problem and len(faults) < InvalidTimestamp.FAULTS_MAX:
            faults.append(RecordFault(count, problem))
        if needs_keys and entry.key_length < 0 and len(keyless) < InvalidRecord.FAULTS_MAX:
            keyless.append(RecordFault(count, KEY_NEEDED))
        if entry.offset != count:
            is_contiguous = False
        if time > newest:
            newest, newest_record = time, count
        oldest = time if count == 0 else min(oldest, time)
        count += 1
        if count > MESSAGES_MAX:
            raise too_many(first.magic)
        if entry.position >= step_end:
            step_end = entry.position + STEP_BYTES
            yield len(payload)
    if faults:
        raise InvalidTimestamp(f"record {faults[0].record} has {faults[0].message}", faults)
    if keyless:
        raise no_key(keyless)
    return Checked(first, payload, count, oldest, newest, newest_record, is_contiguous)
