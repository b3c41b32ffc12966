"""Finds one record inside an entry of the older formats: a message, or a compressed wrapper of messages.

Called by `in_batch`. Caches nothing. For a prompt source, a wrapper raises TakesLong: its messages are unpacked in
Python.
"""

from tidelog.protocol.records import compression, legacy, message_set
from tidelog.protocol.records.batch import NO_TIMESTAMP, Buffer
from tidelog.storage.errors import TakesLong
from tidelog.storage.layout import LOG
from tidelog.storage.search.times_cache import Found
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source


def first_message(
    segment: Segment,
    position: int,
    data: Buffer,
    timestamp: int,
    offset_min: int,
    limit_bytes: int,
    source: Source,
) -> Found | None:
    """Return the first record of the entry in `data` at or after both a timestamp and an offset, or None."""
    found = messages(segment, position, data, limit_bytes, source)
    return next((each for each in found if each.offset >= offset_min and each.timestamp >= timestamp), None)


def largest_message(
    segment: Segment, position: int, data: Buffer, offset_min: int, limit_bytes: int, source: Source
) -> Found | None:
    """Return the first record with the largest timestamp, from an offset on, or None."""
    found = [
        each
        for each in messages(segment, position, data, limit_bytes, source)
        if each.offset >= offset_min and each.timestamp > NO_TIMESTAMP
    ]
    return max(found, key=lambda record: (record.timestamp, -record.offset), default=None)


def messages(segment: Segment, position: int, data: Buffer, limit_bytes: int, source: Source) -> list[Found]:
    """Return all records of the entry in `data`."""
    entry = legacy.read_entry(data, 0, len(data))
    if source.prompt and entry.codec != compression.NONE:
        raise TakesLong(f"{segment.path(LOG)}@{position}: compressed messages of format v{entry.magic}")
    return [
        Found(timestamp, offset, -1)
        for offset, timestamp, _, _ in message_set.messages(data, entry, limit_bytes)
    ]
