"""Finding one record inside a batch by its timestamp.

Owns the step from a batch to a record: read, decompress within the topic's bound, walk, compare; and the times of the
batches that are searched again, so that the next search in one of them takes no walk. Knows nothing of indexes.
"""

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from itertools import islice
from struct import Struct
from typing import NamedTuple

from tidelog.protocol.records import compression, kernel
from tidelog.protocol.records.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import lookup
from tidelog.storage.errors import CorruptLog
from tidelog.storage.lookup import Place
from tidelog.storage.segment import Segment

_WALKED_SOON_RECORDS = 256
_INT64_MIN = -(1 << 63)
_base_offset = Struct(">q").unpack_from


class Found(NamedTuple):
    """A record: its timestamp, its offset, the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class _Times(NamedTuple):
    """The largest timestamp delta up to each record of a batch, and the offset deltas where they are not 0, 1, ..."""

    header: BatchHeader
    largest: "array[int]"
    offset_deltas: "array[int] | None"


class _Recent:
    """The times of the batches that were searched more than once lately, up to a number of records. For any thread."""

    # 8 bytes each, 16 where compaction left gaps.
    RECORDS_MAX = 1 << 20
    # So many batches are remembered to have been searched once.
    ONCE_MAX = 4096
    # What an entry takes besides, in records.
    ENTRY_RECORDS = 64

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[int, int], _Times] = OrderedDict()
        self._once: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._records = 0
        self._lock = threading.Lock()
        self.get = self._times.get

    def is_first_search(self, key: tuple[int, int]) -> bool:
        """Tell whether a batch has not been searched lately; it counts as searched from now on."""
        with self._lock:
            if key in self._once:
                return False
            self._once[key] = None
            if len(self._once) > self.ONCE_MAX:
                self._once.popitem(last=False)
            return True

    def keep(self, key: tuple[int, int], times: _Times) -> None:
        """Remember the times of a batch, and forget those that were remembered first."""
        with self._lock:
            if key in self._times:
                return
            self._times[key] = times
            self._records += len(times.largest) + self.ENTRY_RECORDS
            while self._records > self.RECORDS_MAX:
                _, oldest = self._times.popitem(last=False)
                self._records -= len(oldest.largest) + self.ENTRY_RECORDS


_recent = _Recent()


def first_record(
    segment: Segment, place: Place, timestamp: int, offset_min: int, limit_bytes: int, wait: bool
) -> Found | None:
    """Return the first record of a batch at or after both a timestamp and an offset, or None."""
    position, size, head = place
    key = segment.identity, position
    times = _recent.get(key)
    if times is not None and times.header.base_offset >= offset_min:
        return _first_by_times(times, timestamp)
    data = head if len(head) == size else segment.file.read(size, position, wait)
    try:
        header = read_header(data)
        # A walk ends with the record that is found: remembering all times pays if there is another search.
        if header.base_offset < offset_min or _is_walked_soon(header) or _recent.is_first_search(key):
            return _first_by_walk(header, data, timestamp, offset_min, limit_bytes)
        records, start = _records(header, data, limit_bytes)
        times = _Times(header, *kernel.times(records, start, len(records), header.record_count))
    except (RecordsError, kernel.RecordError) as error:
        raise _corrupt(segment, position, error) from error
    _recent.keep(key, times)
    return _first_by_times(times, timestamp)


def first_record_at(
    segment: Segment,
    position: int,
    likely_size: int,
    base_offset: int,
    timestamp: int,
    limit_bytes: int,
    wait: bool,
) -> Found | None:
    """Return what `first_record` does for the batch at a position; None as well if it does not begin with an offset."""
    times = _recent.get((segment.identity, position))
    if times is not None:
        return _first_by_times(times, timestamp) if times.header.base_offset == base_offset else None
    place = lookup.batch_at(segment, position, likely_size, wait)
    if _base_offset(place.head)[0] != base_offset:
        return None
    return first_record(segment, place, timestamp, base_offset, limit_bytes, wait)


def _is_walked_soon(header: BatchHeader) -> bool:
    """Tell whether a walk over the records is over before one could have remembered their times."""
    return not header.codec and header.record_count <= _WALKED_SOON_RECORDS


def _first_by_times(times: _Times, timestamp: int) -> Found | None:
    header, largest, offset_deltas = times
    if header.is_log_append_time:
        row = 0 if header.max_timestamp >= timestamp else len(largest)
    else:
        # Where the largest timestamp so far reaches the one that is looked for, it is that record's own.
        row = bisect_left(largest, timestamp - header.base_timestamp)
    if row >= len(largest):
        return None
    return _found(header, largest[row], offset_deltas[row] if offset_deltas else row)


def _first_by_walk(
    header: BatchHeader, data: Buffer, timestamp: int, offset_min: int, limit_bytes: int
) -> Found | None:
    if header.is_log_append_time:
        # All records have the time of the batch: only the offset is left to look for.
        if header.max_timestamp < timestamp:
            return None
        timestamp_delta = _INT64_MIN
    else:
        timestamp_delta = timestamp - header.base_timestamp
    records, start = _records(header, data, limit_bytes)
    found = kernel.find_record(
        records, start, len(records), header.record_count, timestamp_delta, offset_min - header.base_offset
    )
    return None if found is None else _found(header, *found)


def largest_record(
    segment: Segment, position: int, size: int, offset_min: int, limit_bytes: int
) -> Found | None:
    """Return the first record with the largest timestamp among those of a batch from an offset on, or None."""
    data = segment.file.pread(size, position)
    try:
        header = read_header(data)
        records, start = _records(header, data, limit_bytes)
        columns = kernel.Columns(header.record_count)
        kernel.scan(records, start, len(records), header.record_count, columns, False)
    except (RecordsError, kernel.RecordError) as error:
        raise _corrupt(segment, position, error) from error
    deltas = zip(columns.timestamp_delta, columns.offset_delta, strict=True)
    first = offset_min - header.base_offset
    found = [_found(header, *each) for each in islice(deltas, columns.count) if each[1] >= first]
    return max(found, key=lambda record: (record.timestamp, -record.offset), default=None)


def _records(header: BatchHeader, data: Buffer, limit_bytes: int) -> tuple[Buffer, int]:
    """Return the records of a batch, uncompressed, and where they begin."""
    if header.codec:
        return compression.decompress(header.codec, memoryview(data)[HEADER_BYTES:], limit_bytes), 0
    return data, HEADER_BYTES


def _found(header: BatchHeader, timestamp_delta: int, offset_delta: int) -> Found:
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return Found(timestamp, header.base_offset + offset_delta, header.leader_epoch)


def _corrupt(segment: Segment, position: int, error: Exception) -> CorruptLog:
    return CorruptLog(f"{segment.file.path}@{position}: {error}")
