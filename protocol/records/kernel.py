# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""The walks over records and batches that are too hot for an interpreter; runs with or without a compiler.

Owns every loop that takes one step a record or one step a batch. Knows bytes only: no codec, no checksum, no
file. Invariant: whatever the bytes say, nothing outside [position, end) is read and every step moves on;
compiled or interpreted, answers and errors are the same.

Annotations are for the reader and the type checker; the C types stand in `cython.locals`. Those decorators hide
the annotations from the type checker, so the public functions have none. No sum here may leave an int64: those
that hostile bytes could push over it are left to the caller, in Python's integers.
"""

from array import array
from collections.abc import MutableSequence
from mmap import mmap
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

if cython.compiled:
    from cython.cimports.cpython.buffer import (  # type: ignore[import-untyped]
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )

COMPILED: Final[bool] = bool(cython.compiled)

Buffer = bytes | bytearray | memoryview
Rows = MutableSequence[int]

# Below this a walk is over before another thread could have used the lock.
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)
# The shortest record: length, attributes, two deltas, no key, no value, no headers, a byte each.
_SHORTEST_RECORD = cython.declare(cython.Py_ssize_t, 7)

# What _short_record reads before it looks at the end again: attributes and four varints of two bytes.
_SHORT_BYTES = cython.declare(cython.Py_ssize_t, 9)

# fault, record, its position, largest timestamp delta, the record that has it, smallest
_WALKED = cython.typedef(
    (cython.int, cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong, cython.Py_ssize_t, cython.longlong)
)
# fault, record, its position, its timestamp and its offset delta
_LOOKED = cython.typedef((cython.int, cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong, cython.longlong))
# fault, position after the record, timestamp and offset delta, key, value and headers with their lengths
_RECORD = cython.typedef(
    (
        cython.int,
        cython.Py_ssize_t,
        cython.longlong,
        cython.longlong,
        cython.Py_ssize_t,
        cython.longlong,
        cython.Py_ssize_t,
        cython.longlong,
        cython.Py_ssize_t,
        cython.longlong,
    )
)

_OK = cython.declare(cython.int, 0)
_LENGTH = cython.declare(cython.int, 1)
_TIMESTAMP = cython.declare(cython.int, 2)
_OFFSET = cython.declare(cython.int, 3)
_NOT_NEXT = cython.declare(cython.int, 4)
_KEY = cython.declare(cython.int, 5)
_VALUE = cython.declare(cython.int, 6)
_HEADERS = cython.declare(cython.int, 7)
_SIZE = cython.declare(cython.int, 8)
_LEFT_OVER = cython.declare(cython.int, 9)
_RANGE = cython.declare(cython.int, 10)
_RAN_OUT = cython.declare(cython.int, 11)
_ENTRY_SIZE = cython.declare(cython.int, 12)
_ENTRY_MAGIC = cython.declare(cython.int, 13)
_ENTRY_OFFSET = cython.declare(cython.int, 14)
_NOT_FOUND = cython.declare(cython.int, 15)
_DOES_NOT_FIT = cython.declare(cython.int, 16)

_REASONS: Final = {
    1: "its length is wrong or leads past the end",
    2: "its timestamp delta is not a varlong",
    3: "its offset delta is not a varint",
    4: "its offset delta does not follow the one before",
    5: "its key length is wrong",
    6: "its value length is wrong",
    7: "its headers are wrong",
    8: "its fields do not add up to its length",
    9: "bytes are left over after the last record",
    10: "the data ends here, before the range that was asked for",
    12: "its size is too small for its format",
    13: "its magic byte is none of 0, 1 and 2",
    14: "its offset or its last offset delta is negative",
}

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_NO_ROWS: Final[Rows] = array("q")
# What holds any timestamp delta and any offset delta.
_WIDEST: Final = (8, 4)


class RecordError(ValueError):
    """Bytes that are not the records or batches they should be; says which, where and why.

    `record` is the number of the record that is wrong, from 0; -1 where it is not one of them.
    """

    def __init__(self, message: str, record: int = -1) -> None:
        super().__init__(message)
        self.record = record


class Cut(NamedTuple):
    """Where a walk ran out of data: a record, its position, and the least offset delta that it may have."""

    record: int
    position: int
    offset_delta: int


class Columns:
    """Where the parts of each record lie, as columns of int64 that are reused from one batch to the next.

    Each column is a view of one block: slice it, or hand it to numpy, without a copy. A scan that needs more
    room calls `grow`, which replaces the views; `count` says how many rows the last scan filled.
    """

    __slots__ = (
        "_address",
        "_block",
        "capacity",
        "count",
        "headers_count",
        "headers_position",
        "key_length",
        "key_position",
        "offset_delta",
        "start",
        "timestamp_delta",
        "value_length",
        "value_position",
    )

    def __init__(self, capacity: int = 0) -> None:
        """Make room for capacity records."""
        self.count = 0
        self.capacity = 0
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        """Make room for at least capacity records; what the columns hold is lost."""
        capacity = max(capacity, 2 * self.capacity)
        self.capacity = capacity
        self.count = 0
        self._block = array("q", bytes(9 * 8 * capacity))
        # The address stays good: an array that exports a view cannot be resized.
        self._address = self._block.buffer_info()[0]
        view = memoryview(self._block)
        self.start = view[:capacity]
        self.offset_delta = view[capacity : 2 * capacity]
        self.timestamp_delta = view[2 * capacity : 3 * capacity]
        self.key_position = view[3 * capacity : 4 * capacity]
        self.key_length = view[4 * capacity : 5 * capacity]
        self.value_position = view[5 * capacity : 6 * capacity]
        self.value_length = view[6 * capacity : 7 * capacity]
        self.headers_position = view[7 * capacity : 8 * capacity]
        self.headers_count = view[8 * capacity :]


def scan(
    data: Buffer,
    position: int,
    end: int,
    count: int,
    columns: Columns | None = None,
    contiguous: bool = True,
) -> tuple[int, int, int]:
    """Walk the count uncompressed records that fill [position, end); check all that their format promises.

    Return the largest timestamp delta, the index of the first record that has it, and the smallest timestamp
    delta; (0, -1, 0) where count is 0. Positions in columns are positions in data. With contiguous, each offset
    delta must be the record's index, else larger than the one before. RecordError where anything is wrong: the
    columns are then void.
    """
    if position < 0 or end < position or count < 0 or count > (end - position) // _SHORTEST_RECORD:
        raise RecordError(f"{count} records cannot lie between positions {position} and {end}")
    if columns is None:
        fault, record, at, largest, first, smallest = _scan(
            data, position, end, count, _NO_ROWS, 0, 0, _NO_ROWS, 0, 0, contiguous
        )
    else:
        if columns.capacity < count:
            columns.grow(count)
        columns.count = count
        fault, record, at, largest, first, smallest = _scan(
            data,
            position,
            end,
            count,
            columns._block,
            columns._address,
            columns.capacity,
            _NO_ROWS,
            0,
            0,
            contiguous,
        )
    if fault != _OK:
        raise _record_error(fault, record, at, count)
    return largest, first, smallest


def scan_times(
    data: Buffer, position: int, end: int, count: int, time_bytes: int
) -> tuple[int, int, int, bytes | None]:
    """Scan records whose offset deltas are 0, 1, ...; list their times as well, as times does without offset deltas.

    Of the times None, where time_bytes is too few for one of them.
    """
    if position < 0 or end < position or count < 0 or count > (end - position) // _SHORTEST_RECORD:
        raise RecordError(f"{count} records cannot lie between positions {position} and {end}")
    if not 1 <= time_bytes <= _WIDEST[0]:
        raise ValueError(f"a time of {time_bytes} bytes")
    entries = array("B", (0,)) * (count * time_bytes)
    fault, record, at, largest, first, smallest = _scan(
        data, position, end, count, _NO_ROWS, 0, 0, entries, entries.buffer_info()[0], time_bytes, True
    )
    if fault != _OK:
        raise _record_error(fault, record, at, count)
    bound = 1 << (8 * time_bytes - 1)
    least = smallest
    if least < -bound:
        # The least that is listed is the first record's own; one that comes late may lie far below.
        _, _, _, least, _ = _look(data, position, end, 1, _INT64_MIN, _INT64_MIN, 0)
    return largest, first, smallest, entries.tobytes() if -bound <= least and largest < bound else None


def _record_error(fault: int, record: int, position: int, count: int) -> RecordError:
    message = f"record {record} at position {position}: {_REASONS[fault]}"
    return RecordError(message, record if record < count else -1)


def find_record(
    part: Buffer, start: int, end: int, count: int, timestamp_delta: int, offset_delta_min: int, cut: Cut
) -> tuple[int, int] | Cut | None:
    """Find the first record, of count that fill bytes up to end, whose deltas are at least these: its two deltas.

    Only what comes before it is walked, from a cut on: Cut(0, position, 0) is the first record. part is what of the
    bytes is at hand, from position start on; where it ends too soon return the next cut, at the same position if not
    one whole record is at hand. None if there is no such record, RecordError where what is walked is wrong.
    """
    # A time to look for and a base timestamp may lie further apart than an int64 reaches.
    if timestamp_delta > _INT64_MAX:
        return None
    record, at, next_offset = cut
    fault, index, at, timestamp, offset = _look(
        part,
        at - start,
        end - start,
        count - record,
        max(timestamp_delta, _INT64_MIN),
        max(_INT64_MIN, min(offset_delta_min, _INT64_MAX)),
        next_offset,
    )
    if fault == _OK:
        return timestamp, offset
    if fault == _NOT_FOUND:
        return None
    if fault == _RAN_OUT:
        return Cut(record + index, start + at, offset)
    raise RecordError(f"record {record + index} at position {start + at}: {_REASONS[fault]}")


def times(
    data: Buffer, position: int, end: int, count: int, time_bytes: int, offset_bytes: int
) -> tuple[bytes, int, int]:
    """Walk the count records that begin at position; list the largest timestamp delta up to each, and its offset delta.

    Return them as entries for find_entry, signed big-endian integers of time_bytes and, unless they are 0, 1, ...,
    offset_bytes, and the two sizes: larger than asked for where something did not fit. time_bytes is 1 to 8,
    offset_bytes 0 or 4. RecordError where the records are wrong.
    """
    if position < 0 or end < position or count < 0 or count > (end - position) // _SHORTEST_RECORD:
        raise RecordError(f"{count} records cannot lie between positions {position} and {end}")
    if not 1 <= time_bytes <= _WIDEST[0] or offset_bytes not in (0, _WIDEST[1]):
        raise ValueError(f"a time of {time_bytes} bytes and an offset of {offset_bytes}")
    entries = array("B", (0,)) * (count * (time_bytes + offset_bytes))
    largest = (1 << (8 * time_bytes - 1)) - 1
    fault, record, at = _list_times(
        data, position, end, count, time_bytes, largest, offset_bytes, entries, entries.buffer_info()[0]
    )
    if fault == _DOES_NOT_FIT:
        return times(data, position, end, count, *_WIDEST)
    if fault != _OK:
        raise RecordError(f"record {record} at position {at}: {_REASONS[fault]}")
    return entries.tobytes(), time_bytes, offset_bytes


def find_entry(data: Buffer | mmap, entry_bytes: int, key_bytes: int, wanted: int, start: int = 0) -> int:
    """Find the first entry whose key is at least wanted; the number of entries where none is.

    data holds, from start on, entries of entry_bytes each, which begin with their keys: signed big-endian integers
    of key_bytes, at most 8, that never decrease.
    """
    if not 1 <= key_bytes <= min(8, entry_bytes):
        raise ValueError(f"a key of {key_bytes} bytes in entries of {entry_bytes}")
    if start < 0:
        raise ValueError(f"entries from position {start} on")
    return _bisect(data, start, entry_bytes, key_bytes, max(_INT64_MIN, min(wanted, _INT64_MAX)))


def find_batch(data: Buffer, position: int, end: int, offset: int) -> int:
    """Find the first batch or legacy entry in [position, end) whose last offset is at least offset.

    Return its position, or -1 - resume where the data ends first: resume is the position, maybe beyond end,
    of the first entry whose header is not wholly there. position must be an entry's start, else RecordError.
    """
    return _search(data, position, end, max(offset, 0), False)


def find_timestamp(data: Buffer, position: int, end: int, timestamp: int) -> int:
    """Find the first batch in [position, end) whose max timestamp is at least timestamp; answer as find_batch.

    Entries of format v1 answer by their own timestamp, those of v0 have none.
    """
    return _search(data, position, end, timestamp, True)


@cython.cfunc
@cython.returns(_WALKED)
@cython.exceptval(check=True)
@cython.locals(
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    address=cython.size_t,
    stride=cython.Py_ssize_t,
    times_address=cython.size_t,
    time_bytes=cython.int,
    contiguous=cython.bint,
    octets=cython.p_const_uchar,
    rows=cython.p_longlong,
    entries=cython.p_uchar,
    walked=_WALKED,
)
def _scan(
    data: Buffer,
    position: int,
    end: int,
    count: int,
    block: Rows,
    address: int,
    stride: int,
    times_block: Rows,
    times_address: int,
    time_bytes: int,
    contiguous: bool,
) -> tuple[int, int, int, int, int, int]:
    """Run _walk over data within bounds; the blocks, at their addresses, keep rows and times alive meanwhile."""
    if cython.compiled:
        rows = cython.cast(cython.p_longlong, address)
        entries = cython.cast(cython.p_uchar, times_address)
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        octets = cython.cast(cython.p_const_uchar, view.buf)
        if end > view.len:
            walked = (_RANGE, 0, view.len, 0, 0, 0)
        elif end - position < _UNLOCK_BYTES:
            walked = _walk(octets, position, end, count, rows, stride, entries, time_bytes, contiguous)
        else:
            with cython.nogil:
                walked = _walk(octets, position, end, count, rows, stride, entries, time_bytes, contiguous)
        PyBuffer_Release(cython.address(view))
    else:
        octets = memoryview(data)
        if end > octets.nbytes:
            walked = (_RANGE, 0, octets.nbytes, 0, 0, 0)
        else:
            walked = _walk(octets, position, end, count, block, stride, times_block, time_bytes, contiguous)
    return walked


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(_WALKED)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    rows=cython.p_longlong,
    stride=cython.Py_ssize_t,
    entries=cython.p_uchar,
    entry=cython.Py_ssize_t,
    time_bytes=cython.int,
    contiguous=cython.bint,
    index=cython.Py_ssize_t,
    record=_RECORD,
    next_offset=cython.longlong,
    largest=cython.longlong,
    smallest=cython.longlong,
    first=cython.Py_ssize_t,
)
def _walk(
    octets: memoryview,
    at: int,
    end: int,
    count: int,
    rows: Rows,
    stride: int,
    entries: Rows,
    time_bytes: int,
    contiguous: bool,
) -> tuple[int, int, int, int, int, int]:
    """Do scan's work without Python: (fault, record, its position, largest, its index, smallest delta)."""
    largest = 0
    smallest = 0
    first = -1
    next_offset = 0
    entry = 0
    for index in range(count):
        record = _short_record(octets, at, end)
        if record[0] != _OK:
            record = _any_record(octets, at, end)
            if record[0] != _OK:
                return record[0], index, at, 0, 0, 0
        if record[3] != next_offset:
            if contiguous or record[3] < next_offset:
                return _NOT_NEXT, index, at, 0, 0, 0
            next_offset = record[3]
        next_offset += 1
        if index == 0:
            largest = smallest = record[2]
            first = 0
        elif record[2] > largest:
            largest = record[2]
            first = index
        elif record[2] < smallest:
            smallest = record[2]
        if time_bytes > 0:
            entry = _put(entries, entry, time_bytes, largest)
        if stride > 0:
            rows[index] = at
            rows[stride + index] = record[3]
            rows[2 * stride + index] = record[2]
            rows[3 * stride + index] = record[4]
            rows[4 * stride + index] = record[5]
            rows[5 * stride + index] = record[6]
            rows[6 * stride + index] = record[7]
            rows[7 * stride + index] = record[8]
            rows[8 * stride + index] = record[9]
        at = record[1]
    if at != end:
        return _LEFT_OVER, count, at, 0, 0, 0
    return _OK, 0, 0, largest, first, smallest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(_RECORD)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    length=cython.uint,
    timestamp=cython.uint,
    offset=cython.uint,
    key=cython.Py_ssize_t,
    key_length=cython.uint,
    value=cython.Py_ssize_t,
    value_length=cython.uint,
    headers=cython.Py_ssize_t,
    sign=cython.longlong,
)
def _short_record(
    octets: memoryview, at: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Read a record without headers whose varints take one byte or two; any other is _LENGTH, for _any_record.

    Three looks at the end of the data instead of one a byte make this thrice as fast. Varints stay in zigzag:
    an even one is twice its value, 1 is -1.
    """
    if end - at < _SHORT_BYTES:
        return _LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    length, stop = _short(octets, at)
    timestamp, key = _short(octets, stop + 1)
    offset, key = _short(octets, key)
    key_length, key = _short(octets, key)
    value = key + (key_length >> 1)
    if value > end - 3:
        return _LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    value_length, value = _short(octets, value)
    headers = value + (value_length >> 1)
    stop += length >> 1
    if (
        (length | timestamp | offset | key_length | value_length) > 0x3FFF
        or (length | offset) & 1
        or (key_length & 1 and key_length != 1)
        or (value_length & 1 and value_length != 1)
        or headers + 1 != stop
        or stop > end
        or octets[headers] != 0
    ):
        return _LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    sign = timestamp & 1
    return (
        _OK,
        stop,
        (timestamp >> 1) ^ -sign,
        offset >> 1,
        key,
        -1 if key_length == 1 else key_length >> 1,
        value,
        -1 if value_length == 1 else value_length >> 1,
        headers,
        0,
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.uint, cython.Py_ssize_t))
@cython.locals(octets=cython.p_const_uchar, at=cython.Py_ssize_t, raw=cython.uint)
def _short(octets: memoryview, at: int) -> tuple[int, int]:
    """Read a varint of one byte or two, in zigzag; above 0x3FFF it is a longer one. Two bytes must be there."""
    raw = octets[at]
    if raw < 0x80:
        return raw, at + 1
    return raw & 0x7F | octets[at + 1] << 7, at + 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(_RECORD)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    length=cython.longlong,
    timestamp=cython.longlong,
    offset=cython.longlong,
    key=cython.Py_ssize_t,
    key_length=cython.longlong,
    value=cython.Py_ssize_t,
    value_length=cython.longlong,
    headers=cython.Py_ssize_t,
    headers_count=cython.longlong,
)
def _any_record(
    octets: memoryview, at: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Read one record: (fault, position after it, its columns from the timestamp delta on)."""
    length, at = _varint(octets, at, end)
    if at < 0 or length < _SHORTEST_RECORD - 1 or length > end - at:
        return _LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    stop = at + length
    timestamp, at = _zigzag(octets, at + 1, stop, 63, 0x01)
    if at < 0:
        return _TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0, 0
    offset, at = _varint(octets, at, stop)
    if at < 0:
        return _OFFSET, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, key = _varint(octets, at, stop)
    if key < 0 or key_length < -1 or key_length > stop - key:
        return _KEY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    value_length, value = _varint(octets, key + key_length if key_length > 0 else key, stop)
    if value < 0 or value_length < -1 or value_length > stop - value:
        return _VALUE, 0, 0, 0, 0, 0, 0, 0, 0, 0
    headers = value + value_length if value_length > 0 else value
    headers_count, at = _varint(octets, headers, stop)
    if at < 0 or headers_count < 0 or headers_count > stop - at:
        return _HEADERS, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = _skip_headers(octets, at, stop, headers_count)
    if at < 0:
        return _HEADERS, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if at != stop:
        return _SIZE, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return _OK, stop, timestamp, offset, key, key_length, value, value_length, headers, headers_count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.longlong,
    length=cython.longlong,
)
def _skip_headers(octets: memoryview, at: int, end: int, count: int) -> int:
    """Step over count record headers; the position after them, -1 where one is wrong."""
    while count > 0:
        count -= 1
        length, at = _varint(octets, at, end)
        if at < 0 or length < 0 or length > end - at:
            return -1
        length, at = _varint(octets, at + length, end)
        if at < 0 or length < -1 or length > end - at:
            return -1
        if length > 0:
            at += length
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
@cython.locals(octets=cython.p_const_uchar, at=cython.Py_ssize_t, end=cython.Py_ssize_t)
def _varint(octets: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a zigzag int32; (value, position after it or -1 where there is none)."""
    return _zigzag(octets, at, end, 28, 0x0F)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    last_shift=cython.int,
    last_max=cython.ulonglong,
    byte=cython.ulonglong,
    raw=cython.ulonglong,
    shift=cython.int,
    half=cython.longlong,
    sign=cython.longlong,
)
def _zigzag(octets: memoryview, at: int, end: int, last_shift: int, last_max: int) -> tuple[int, int]:
    """Read a zigzag varint, its last byte shifted and bounded so; (value, position after it or -1)."""
    raw = 0
    shift = 0
    while at < end and shift <= last_shift:
        byte = octets[at]
        at += 1
        if shift == last_shift and byte > last_max:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            half = raw >> 1
            sign = raw & 1
            return half ^ -sign, at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.returns(_LOOKED)
@cython.exceptval(check=True)
@cython.locals(
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    timestamp_delta=cython.longlong,
    offset_delta_min=cython.longlong,
    next_offset=cython.longlong,
    octets=cython.p_const_uchar,
    stop=cython.Py_ssize_t,
    looked=_LOOKED,
)
def _look(
    data: Buffer,
    position: int,
    end: int,
    count: int,
    timestamp_delta: int,
    offset_delta_min: int,
    next_offset: int,
) -> tuple[int, int, int, int, int]:
    """Run _walk_to over what data holds of [position, end)."""
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        octets = cython.cast(cython.p_const_uchar, view.buf)
        stop = min(view.len, end)
        if position < 0 or position > stop:
            looked = (_RANGE, 0, position, 0, 0)
        elif stop - position < _UNLOCK_BYTES:
            looked = _walk_to(
                octets, position, stop, end, count, timestamp_delta, offset_delta_min, next_offset
            )
        else:
            with cython.nogil:
                looked = _walk_to(
                    octets, position, stop, end, count, timestamp_delta, offset_delta_min, next_offset
                )
        PyBuffer_Release(cython.address(view))
    else:
        octets = memoryview(data)
        stop = min(end, octets.nbytes)
        if position < 0 or position > stop:
            looked = (_RANGE, 0, position, 0, 0)
        else:
            looked = _walk_to(
                octets, position, stop, end, count, timestamp_delta, offset_delta_min, next_offset
            )
    return looked


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(_LOOKED)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    timestamp_delta=cython.longlong,
    offset_delta_min=cython.longlong,
    next_offset=cython.longlong,
    index=cython.Py_ssize_t,
    record=_RECORD,
)
def _walk_to(
    octets: memoryview,
    at: int,
    stop: int,
    end: int,
    count: int,
    timestamp_delta: int,
    offset_delta_min: int,
    next_offset: int,
) -> tuple[int, int, int, int, int]:
    """Walk to the first record with such deltas: (fault, record, its position, its timestamp and offset delta).

    The records reach to end, the data to stop. _NOT_FOUND is the end of all records, _RAN_OUT that of the data, with
    the least offset delta that the record there may have.
    """
    for index in range(count):
        record = _short_record(octets, at, stop)
        if record[0] != _OK:
            record = _any_record(octets, at, stop)
            if record[0] != _OK:
                # Its length says that more of it follows, or is nonsense: the next part, or the end, will tell.
                if record[0] == _LENGTH and stop < end:
                    return _RAN_OUT, index, at, 0, next_offset
                return record[0], index, at, 0, 0
        if record[3] < next_offset:
            return _NOT_NEXT, index, at, 0, 0
        next_offset = record[3] + 1
        if record[2] >= timestamp_delta and record[3] >= offset_delta_min:
            return _OK, index, at, record[2], record[3]
        at = record[1]
    if at != end:
        return _LEFT_OVER, count, at, 0, 0
    return _NOT_FOUND, count, at, 0, 0


@cython.cfunc
@cython.returns((cython.int, cython.Py_ssize_t, cython.Py_ssize_t))
@cython.exceptval(check=True)
@cython.locals(
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    time_bytes=cython.int,
    largest_max=cython.longlong,
    offset_bytes=cython.int,
    address=cython.size_t,
    octets=cython.p_const_uchar,
    entries=cython.p_uchar,
    listed=(cython.int, cython.Py_ssize_t, cython.Py_ssize_t),
)
def _list_times(
    data: Buffer,
    position: int,
    end: int,
    count: int,
    time_bytes: int,
    largest_max: int,
    offset_bytes: int,
    block: Rows,
    address: int,
) -> tuple[int, int, int]:
    """Run _walk_times over data within bounds; block, at address, keeps the entries alive meanwhile."""
    if cython.compiled:
        entries = cython.cast(cython.p_uchar, address)
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        octets = cython.cast(cython.p_const_uchar, view.buf)
        if end > view.len:
            listed = (_RANGE, 0, view.len)
        elif end - position < _UNLOCK_BYTES:
            listed = _walk_times(octets, position, end, count, time_bytes, largest_max, offset_bytes, entries)
        else:
            with cython.nogil:
                listed = _walk_times(
                    octets, position, end, count, time_bytes, largest_max, offset_bytes, entries
                )
        PyBuffer_Release(cython.address(view))
    else:
        octets = memoryview(data)
        if end > octets.nbytes:
            listed = (_RANGE, 0, octets.nbytes)
        else:
            listed = _walk_times(octets, position, end, count, time_bytes, largest_max, offset_bytes, block)
    return listed


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.int, cython.Py_ssize_t, cython.Py_ssize_t))
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    time_bytes=cython.int,
    largest_max=cython.longlong,
    offset_bytes=cython.int,
    entries=cython.p_uchar,
    entry=cython.Py_ssize_t,
    index=cython.Py_ssize_t,
    record=_RECORD,
    next_offset=cython.longlong,
    largest=cython.longlong,
)
def _walk_times(
    octets: memoryview,
    at: int,
    end: int,
    count: int,
    time_bytes: int,
    largest_max: int,
    offset_bytes: int,
    entries: Rows,
) -> tuple[int, int, int]:
    """Do times' work without Python: (fault, record, its position)."""
    largest = 0
    next_offset = 0
    entry = 0
    for index in range(count):
        record = _short_record(octets, at, end)
        if record[0] != _OK:
            record = _any_record(octets, at, end)
            if record[0] != _OK:
                return record[0], index, at
        if record[3] < next_offset:
            return _NOT_NEXT, index, at
        next_offset = record[3] + 1
        if index == 0 or record[2] > largest:
            largest = record[2]
            if largest > largest_max or largest < -1 - largest_max:
                return _DOES_NOT_FIT, index, at
        if offset_bytes == 0 and record[3] != index:
            return _DOES_NOT_FIT, index, at
        entry = _put(entries, entry, time_bytes, largest)
        entry = _put(entries, entry, offset_bytes, record[3])
        at = record[1]
    if at != end:
        return _LEFT_OVER, count, at
    return _OK, count, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
@cython.locals(
    octets=cython.p_uchar,
    at=cython.Py_ssize_t,
    size=cython.int,
    value=cython.longlong,
    behind=cython.Py_ssize_t,
)
def _put(octets: Rows, at: int, size: int, value: int) -> int:
    """Write the low size bytes of an integer, big-endian; return the position behind them."""
    behind = at + size
    while size > 0:
        size -= 1
        octets[at + size] = value & 0xFF
        value >>= 8
    return behind


@cython.cfunc
@cython.returns(cython.Py_ssize_t)
@cython.exceptval(check=True)
@cython.locals(
    start=cython.Py_ssize_t,
    entry_bytes=cython.Py_ssize_t,
    key_bytes=cython.Py_ssize_t,
    wanted=cython.longlong,
    octets=cython.p_const_uchar,
    low=cython.Py_ssize_t,
    high=cython.Py_ssize_t,
    middle=cython.Py_ssize_t,
)
def _bisect(data: Buffer | mmap, start: int, entry_bytes: int, key_bytes: int, wanted: int) -> int:
    """Do find_entry's work. It keeps the interpreter's lock: data may be an index that is being appended to."""
    low = 0
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        octets = cython.cast(cython.p_const_uchar, view.buf)
        high = (view.len - start) // entry_bytes if view.len > start else 0
    else:
        octets = memoryview(data)
        high = max(0, octets.nbytes - start) // entry_bytes
    while low < high:
        middle = (low + high) >> 1
        if _integer(octets, start + middle * entry_bytes, key_bytes) < wanted:
            low = middle + 1
        else:
            high = middle
    if cython.compiled:
        PyBuffer_Release(cython.address(view))
    else:
        octets.release()
    return low


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    index=cython.Py_ssize_t,
    value=cython.longlong,
)
def _integer(octets: memoryview, at: int, size: int) -> int:
    """Read a big-endian signed integer of size bytes."""
    value = octets[at]
    if value >= 128:
        value -= 256
    for index in range(1, size):
        value = value * 256 + octets[at + index]
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.int, cython.Py_ssize_t))
@cython.locals(
    octets=cython.p_const_uchar,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    wanted=cython.longlong,
    by_time=cython.bint,
    size=cython.longlong,
    magic=cython.int,
    base=cython.longlong,
    delta=cython.longlong,
)
def _find(octets: memoryview, at: int, end: int, wanted: int, by_time: bool) -> tuple[int, int]:
    """Do find_batch's and find_timestamp's work without Python: (fault, position); _RAN_OUT is no error."""
    while end - at > 16:
        size = _integer(octets, at + 8, 4)
        magic = octets[at + 16]
        if magic > 2:
            return _ENTRY_MAGIC, at
        if size < (49 if magic == 2 else 14):
            return _ENTRY_SIZE, at
        if end - at < (43 if magic == 2 else 26):
            break
        if by_time:
            if magic > 0 and _integer(octets, at + (35 if magic == 2 else 18), 8) >= wanted:
                return _OK, at
        else:
            base = _integer(octets, at, 8)
            delta = _integer(octets, at + 23, 4) if magic == 2 else 0
            if base < 0 or delta < 0:
                return _ENTRY_OFFSET, at
            if wanted - base <= delta:
                return _OK, at
        at += 12 + size
    return _RAN_OUT, at


@cython.cfunc
@cython.returns(cython.Py_ssize_t)
@cython.exceptval(check=True)
@cython.locals(
    position=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    wanted=cython.longlong,
    by_time=cython.bint,
    octets=cython.p_const_uchar,
    found=(cython.int, cython.Py_ssize_t),
)
def _search(data: Buffer, position: int, end: int, wanted: int, by_time: bool) -> int:
    """Run _find over data within bounds and turn its faults into errors."""
    found = (_OK, 0)
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        octets = cython.cast(cython.p_const_uchar, view.buf)
        if position < 0 or end > view.len:
            found = (_RANGE, view.len)
        elif end - position < _UNLOCK_BYTES:
            found = _find(octets, position, end, wanted, by_time)
        else:
            with cython.nogil:
                found = _find(octets, position, end, wanted, by_time)
        PyBuffer_Release(cython.address(view))
    else:
        octets = memoryview(data)
        if position < 0 or end > octets.nbytes:
            found = (_RANGE, octets.nbytes)
        else:
            found = _find(octets, position, end, wanted, by_time)
    if found[0] == _RAN_OUT:
        return -1 - found[1]
    if found[0] != _OK:
        raise RecordError(f"batch at position {found[1]}: {_REASONS[found[0]]}")
    return found[1]
