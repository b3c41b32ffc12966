"""Finds one record inside a batch by its timestamp.

Owns the step from a batch to a record: read, decompress within the topic's bound, walk, compare. It either stops at the
record, or caches the times of the whole batch for later searches. Knows nothing of indexes. For a prompt source, more
than `PROMPT_BYTES` of records raise TakesLong.
"""

from struct import Struct
from typing import Final

from tidelog.protocol.records import compression, kernel, legacy, message_set
from tidelog.protocol.records.batch import (
    HEADER_BYTES,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    read_header,
)
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import BatchTooLarge, RecordError, RecordsError
from tidelog.storage.errors import CorruptLog, TakesLong
from tidelog.storage.layout import LOG
from tidelog.storage.search import by_offset, times_cache
from tidelog.storage.search.by_offset import PART_BYTES, Place
from tidelog.storage.search.times_cache import Found, TimesCache
from tidelog.storage.segment import Segment
from tidelog.storage.sources import Source

# The smallest batch whose times are cached: smaller ones are read several at once, which is needed anyway.
_KEPT_RECORDS_MIN: Final = 32
# The most that the cached times of one batch may take. A batch of 64 MiB, decompressed, with close times takes less.
_KEPT_BYTES_MAX: Final = times_cache.TimesCache.BYTES_MAX // 4
# The most batches that are searched by cached times before their bytes are searched: there are few between two entries.
_CACHED_BATCHES: Final = 64
# Twice the usual index interval.
LARGE_BATCH_BYTES: Final = 8192
# How much of a batch a prompt source reads, decompresses and walks over: about 2 ms.
PROMPT_BYTES: Final = 1 << 20
_INT64_MIN: Final = -(1 << 63)
_FIRST_RECORD: Final = kernel.Cut(0, 0, 0)
_FIRST_PLAIN_RECORD: Final = kernel.Cut(0, HEADER_BYTES, 0)
_base_offset: Final = Struct(">q").unpack_from


def first_record(
    segment: Segment,
    place: Place,
    timestamp: int,
    offset_min: int,
    limit_bytes: int,
    source: Source,
) -> Found | None:
    """Return the first record of a batch at or after both a timestamp and an offset, or None."""
    position, size, head = place
    key = times_cache.key_of(segment.identity, position)
    cache = segment.shared.times
    packed = cache.get(key)
    if packed is not None and times_cache.place_of(packed)[0] >= offset_min:
        return times_cache.find(packed, timestamp)
    try:
        if len(head) < HEADER_BYTES:
            head = segment.read(min(size, PART_BYTES), position, source)
            place = position, size, head
        if head[MAGIC_POSITION] in legacy.MAGICS:
            data = _whole(segment, place, source)
            found = _messages(segment, position, data, limit_bytes, source)
            return next(
                (each for each in found if each.offset >= offset_min and each.timestamp >= timestamp), None
            )
        header = read_header(head)
        if header.base_offset < offset_min or _is_walk_best(header, key, cache):
            return _first_by_walk(segment, place, header, timestamp, offset_min, limit_bytes, source)
        packed = times_cache.pack(header, *_records(segment, place, header, limit_bytes, source))
    except (RecordsError, RecordError) as error:
        raise _corrupt(segment, position, error) from error
    if len(packed) <= _KEPT_BYTES_MAX:
        cache.keep(key, packed)
    return times_cache.find(packed, timestamp)


def first_record_at(
    segment: Segment,
    position: int,
    likely_size: int,
    base_offset: int,
    timestamp: int,
    limit_bytes: int,
    source: Source,
) -> Found | None:
    """Return what `first_record` does for the batch at a position; None if that has another base offset.

    A batch that seems to be small is searched only by cached times, and is not read.
    """
    packed = segment.shared.times.get(times_cache.key_of(segment.identity, position))
    if packed is not None:
        is_there = times_cache.place_of(packed)[0] == base_offset
        return times_cache.find(packed, timestamp) if is_there else None
    if likely_size < LARGE_BATCH_BYTES:
        return None
    place = by_offset.batch_at(segment, position, likely_size, source)
    if _base_offset(place[2])[0] != base_offset:
        return None
    return first_record(segment, place, timestamp, base_offset, limit_bytes, source)


def first_cached(
    segment: Segment, position: int, timestamp: int, offset_min: int
) -> tuple[Found | None, int]:
    """Search batches by their cached times, from a position on: return the first record at or after a time, or None.

    Also return the position of its batch, or where the batches end whose times are cached and that begin at or after
    `offset_min`.
    """
    for _ in range(_CACHED_BATCHES):
        packed = segment.shared.times.get(times_cache.key_of(segment.identity, position))
        if packed is None:
            break
        base_offset, size_bytes = times_cache.place_of(packed)
        if base_offset < offset_min:
            break
        found = times_cache.find(packed, timestamp)
        if found is not None:
            return found, position
        position += size_bytes
    return None, position


def first_from(
    segment: Segment, place: Place, header: BatchHeader, offset: int, limit_bytes: int, source: Source
) -> int | None:
    """Return the offset of the first record of a batch at or after an offset, whatever its timestamp; or None."""
    if header.record_count == header.last_offset_delta + 1:
        return max(offset, header.base_offset)
    # Compaction has removed some; the header does not say which.
    found = (
        first_record(segment, place, NO_TIMESTAMP, offset, limit_bytes, source)
        if header.record_count
        else None
    )
    return None if found is None else found.offset


def _is_walk_best(header: BatchHeader, key: int, cache: TimesCache) -> bool:
    """Tell whether to walk just to the record, instead of caching the times of the batch.

    A walk reads a large plain batch only up to the record, so its times are cached at the second search. Smaller
    batches are read whole anyway, and compressed ones are decompressed whole.
    """
    if not header.codec and (
        header.record_count < _KEPT_RECORDS_MIN
        or (header.size_bytes > PART_BYTES and cache.is_first_search(key))
    ):
        return True
    return times_cache.packed_bytes(header) > _KEPT_BYTES_MAX


def _first_by_walk(
    segment: Segment,
    place: Place,
    header: BatchHeader,
    timestamp: int,
    offset_min: int,
    limit_bytes: int,
    source: Source,
) -> Found | None:
    if header.is_log_append_time:
        # All records have the time of the batch: search by offset only.
        if header.max_timestamp < timestamp:
            return None
        timestamp_delta = _INT64_MIN
    else:
        timestamp_delta = timestamp - header.base_timestamp
    offset_delta = offset_min - header.base_offset
    _, size, head = place
    data: Buffer = head
    cut = _FIRST_PLAIN_RECORD
    if header.codec:
        data, _ = _records(segment, place, header, limit_bytes, source)
        size, cut = len(data), _FIRST_RECORD
    found = kernel.find_record(data, 0, size, header.record_count, timestamp_delta, offset_delta, cut)
    if isinstance(found, kernel.Cut):
        found = _find_further(
            segment, place, found, header.record_count, timestamp_delta, offset_delta, source
        )
    return None if found is None else _found(header, *found)


def _find_further(
    segment: Segment,
    place: Place,
    cut: kernel.Cut,
    count: int,
    timestamp_delta: int,
    offset_delta_min: int,
    source: Source,
) -> tuple[int, int] | None:
    """Continue a walk over plain records after the bytes that were read, and read more of the batch as needed."""
    position, end, _ = place
    part_bytes, first = PART_BYTES, cut.position
    while True:
        start = cut.position
        if source.prompt and start - first + part_bytes > PROMPT_BYTES:
            raise _takes_long(segment, position)
        wanted = min(part_bytes, end - start)
        part = segment.read(wanted, position + start, source)
        if len(part) < wanted:
            end = start + len(part)  # The file ends inside the batch.
        found = kernel.find_record(part, start, end, count, timestamp_delta, offset_delta_min, cut)
        if not isinstance(found, kernel.Cut):
            return found
        if found.position == start:
            part_bytes *= 2  # The record is larger than the part.
        cut = found


def largest_record(
    segment: Segment, position: int, header: BatchHeader, offset_min: int, limit_bytes: int, source: Source
) -> Found | None:
    """Return the first record of a batch with the largest timestamp, from an offset on, or None."""
    times, offsets = times_and_offsets(segment, position, header, limit_bytes, source)
    found = [
        Found(time, offset, header.leader_epoch)
        for time, offset in zip(times, offsets, strict=True)
        if offset >= offset_min
    ]
    return max(found, key=lambda record: (record.timestamp, -record.offset), default=None)


def times_and_offsets(
    segment: Segment, position: int, header: BatchHeader, limit_bytes: int, source: Source
) -> tuple[list[int], list[int]]:
    """Return the times and the offsets of the records of a batch, or of an entry of an older format."""
    try:
        if header.magic in legacy.MAGICS:
            data = segment.read(header.size_bytes, position, source)
            found = _messages(segment, position, data, limit_bytes, source)
            return [record.timestamp for record in found], [record.offset for record in found]
        place = position, header.size_bytes, memoryview(b"")
        records, start = _records(segment, place, header, limit_bytes, source)
        rows = Columns(header.record_count)
        kernel.scan(records, start, len(records), header.record_count, rows, False)
    except (RecordsError, RecordError) as error:
        raise _corrupt(segment, position, error) from error
    offsets = [header.base_offset + delta for delta in rows.offset_delta[: rows.count]]
    if header.is_log_append_time:
        return [header.max_timestamp] * rows.count, offsets
    return [header.base_timestamp + delta for delta in rows.timestamp_delta[: rows.count]], offsets


def _messages(segment: Segment, position: int, data: Buffer, limit_bytes: int, source: Source) -> list[Found]:
    """Return all records of an entry of an older format: a message, or a compressed wrapper of messages.

    A wrapper raises TakesLong for a prompt source: its messages are unpacked in Python.
    """
    entry = legacy.read_entry(data, 0, len(data))
    if source.prompt and entry.codec != compression.NONE:
        raise TakesLong(f"{segment.path(LOG)}@{position}: compressed messages of format v{entry.magic}")
    return [
        Found(timestamp, offset, -1)
        for offset, timestamp, _, _ in message_set.messages(data, entry, limit_bytes)
    ]


def _whole(segment: Segment, place: Place, source: Source) -> Buffer:
    """Return all bytes of a batch."""
    position, size, head = place
    return head if len(head) == size else segment.read(size, position, source)


def _records(
    segment: Segment, place: Place, header: BatchHeader, limit_bytes: int, source: Source
) -> tuple[Buffer, int]:
    """Return bytes with the uncompressed records of a batch, and the position where these begin."""
    position, size, _ = place
    if source.prompt and size > PROMPT_BYTES:
        raise _takes_long(segment, position)
    data = _whole(segment, place, source)
    if not source.prompt or limit_bytes <= PROMPT_BYTES:
        return _decompressed(header, data, limit_bytes)
    try:
        return _decompressed(header, data, PROMPT_BYTES)
    except BatchTooLarge:
        raise _takes_long(segment, position) from None


def _decompressed(header: BatchHeader, data: Buffer, limit_bytes: int) -> tuple[Buffer, int]:
    if header.codec:
        return compression.decompress(header.codec, memoryview(data)[HEADER_BYTES:], limit_bytes), 0
    return data, HEADER_BYTES


def _found(header: BatchHeader, timestamp_delta: int, offset_delta: int) -> Found:
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return Found(timestamp, header.base_offset + offset_delta, header.leader_epoch)


def _takes_long(segment: Segment, position: int) -> TakesLong:
    return TakesLong(f"{segment.path(LOG)}@{position}: a large batch")


def _corrupt(segment: Segment, position: int, error: Exception) -> CorruptLog:
    return CorruptLog(f"{segment.path(LOG)}@{position}: {error}")
