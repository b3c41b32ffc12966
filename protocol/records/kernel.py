# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""The walk over the records of a batch: the loop with one step per record; compiled if there is a compiler.

It reads uncompressed records. Whatever the bytes are, nothing outside [position, end) is read, and every step moves
forward. Compiled or interpreted, results and errors are the same.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker. No sum here may leave an int64: those that hostile bytes could push over it are left to the caller, in
Python's integers.
"""

from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        integers_of,
        octets_of,
        size_of,
        view_of,
    )
else:
    from tidelog.protocol.records.buffers import integers_of, octets_of, size_of, view_of

COMPILED: Final[bool] = bool(cython.compiled)

# No delta is larger, and no offset delta as large: as the least that is sought it stands for none.
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)
# A shorter walk ends before another thread could use the lock.
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)
# The shortest record: length, attributes, two deltas, no key, no value, no headers, a byte each.
_SHORTEST_RECORD = cython.declare(cython.Py_ssize_t, 7)
# What _record reads before it looks at the end again: attributes and four varints of two bytes.
_SHORT_BYTES = cython.declare(cython.Py_ssize_t, 9)

# value, position after it
_SHORT_VARINT = cython.typedef((cython.uint, cython.Py_ssize_t))
_VARINT = cython.typedef((cython.longlong, cython.Py_ssize_t))
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
# how many records, the least offset delta that the first may have, whether each must be the one after; the least deltas
# that are sought; how far columns are apart, or 0, and how many bytes a listed time takes, and an offset, or 0
_TASK = cython.typedef(
    (
        cython.Py_ssize_t,
        cython.longlong,
        cython.bint,
        cython.longlong,
        cython.longlong,
        cython.Py_ssize_t,
        cython.int,
        cython.int,
    )
)
# fault, the record where the walk ended, its position, the least offset delta that the next one may have; largest
# timestamp delta, the record that has it, smallest
_WALKED = cython.typedef(
    (
        cython.int,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.longlong,
        cython.longlong,
        cython.Py_ssize_t,
        cython.longlong,
    )
)
# fault, the record that is wrong
_HEADERS_FOUND = cython.typedef((cython.int, cython.Py_ssize_t))

# How a walk ends: at the end of all records, at the one that was sought, where the data ends first, or at a fault.
_OK = cython.declare(cython.int, 0)
_FOUND = cython.declare(cython.int, 1)
_RAN_OUT = cython.declare(cython.int, 2)
_LENGTH = cython.declare(cython.int, 3)
_TIMESTAMP = cython.declare(cython.int, 4)
_OFFSET = cython.declare(cython.int, 5)
_NOT_NEXT = cython.declare(cython.int, 6)
_KEY = cython.declare(cython.int, 7)
_VALUE = cython.declare(cython.int, 8)
_HEADERS = cython.declare(cython.int, 9)
_SIZE = cython.declare(cython.int, 10)
_LEFT_OVER = cython.declare(cython.int, 11)
_RANGE = cython.declare(cython.int, 12)
_ROOM = cython.declare(cython.int, 13)

_REASONS: Final = {
    _LENGTH: "its length is wrong or leads past the end",
    _TIMESTAMP: "its timestamp delta is not a varlong",
    _OFFSET: "its offset delta is not a varint",
    _NOT_NEXT: "its offset delta does not follow the one before",
    _KEY: "its key length is wrong",
    _VALUE: "its value length is wrong",
    _HEADERS: "its headers are wrong",
    _SIZE: "its fields do not add up to its length",
    _LEFT_OVER: "bytes are left over after the last record",
    _RANGE: "the data ends here, before the range that was asked for",
}

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_NO_ROWS: Final = memoryview(b"").cast("q")
_NO_ENTRIES: Final = memoryview(b"")
# What holds any timestamp delta and any offset delta.
_WIDEST: Final = (8, 4)


class Cut(NamedTuple):
    """Where a walk ran out of data: a record, its position, and the least offset delta that it may have."""

    record: int
    position: int
    offset_delta: int


def scan(
    data: Buffer,
    position: int,
    end: int,
    count: int,
    columns: Columns | None = None,
    contiguous: bool = True,
    row: int = 0,
) -> tuple[int, int, int]:
    """Walk the count uncompressed records that fill [position, end); check all that their format promises.

    Return the largest timestamp delta, the index of the first record that has it, and the smallest timestamp
    delta; (0, -1, 0) where count is 0. Positions in columns are positions in data; the rows before row stay as they
    are. With contiguous, each offset delta must be the record's index, else larger than the one before. RecordError
    where anything is wrong: the columns then end at row.
    """
    _check_room(position, end, count)
    rows = _NO_ROWS
    stride = 0
    if columns is not None:
        if not 0 <= row <= columns.capacity:
            raise ValueError(f"row {row} of {columns.capacity}")
        columns.reserve(row + count, row)
        rows = columns.block[row:] if row else columns.block
        stride = columns.capacity
    fault, record, at, _, largest, first, smallest = _guarded(
        data, position, end, end, (count, 0, contiguous, 0, _MOST, stride, 0, 0), rows, _NO_ENTRIES
    )
    if fault != _OK:
        raise _wrong(fault, record, at, count)
    if columns is not None:
        columns.count = row + count
    return largest, first, smallest


def scan_part(
    part: Buffer, start: int, end: int, count: int, columns: Columns, cut: Cut
) -> tuple[Cut, int, int]:
    """Scan as many records, of count that fill bytes up to end, as lie whole in part and have room in columns.

    part is what of the bytes is at hand, from position start on; end lies behind it where it is not known. Return the
    cut where the next record begins, and the largest and smallest timestamp delta of those scanned, void where there
    are none. Positions in columns are positions in part. RecordError as by scan.
    """
    record, position, next_offset = cut
    if record > count:
        raise RecordError(f"there are {count} records, and {record} lie before position {position}")
    task = (min(count - record, columns.capacity), next_offset, False, 0, _MOST, columns.capacity, 0, 0)
    stop = min(end - start, len(part))
    fault, walked, at, offset, largest, _, smallest = _guarded(
        part, position - start, stop, end - start, task, columns.block, _NO_ENTRIES
    )
    if fault not in (_OK, _RAN_OUT) and not (fault == _LEFT_OVER and (record + walked < count or at == stop)):
        raise _wrong(fault, record + walked, start + at, count)
    columns.count = walked
    return Cut(record + walked, start + at, offset), largest, smallest


def scan_times(
    data: Buffer, position: int, end: int, count: int, time_bytes: int
) -> tuple[int, int, int, bytes | None]:
    """Scan records whose offset deltas are 0, 1, ...; list their times as well, as times does without offset deltas.

    Of the times None, where time_bytes is too few for one of them.
    """
    entries, _, largest, first, smallest = _listed(data, position, end, count, True, time_bytes, 0)
    return largest, first, smallest, entries


def times(
    data: Buffer, position: int, end: int, count: int, time_bytes: int, offset_bytes: int
) -> tuple[bytes, int, int]:
    """Walk the count records that begin at position; list the largest timestamp delta up to each, and its offset delta.

    Return them as entries for search.find_entry, signed big-endian integers of time_bytes and, unless they are 0, 1,
    ..., offset_bytes, and the two sizes: larger than asked for where something did not fit. time_bytes is 1 to 8,
    offset_bytes 0 or 4. RecordError where the records are wrong.
    """
    entries, next_offset, _, _, _ = _listed(data, position, end, count, False, time_bytes, offset_bytes)
    # Offset deltas only grow: as many as the last one says are all there are.
    if entries is None or (offset_bytes == 0 and next_offset != count):
        return times(data, position, end, count, *_WIDEST)
    return entries, time_bytes, offset_bytes


def _listed(
    data: Buffer, position: int, end: int, count: int, contiguous: bool, time_bytes: int, offset_bytes: int
) -> tuple[bytes | None, int, int, int, int]:
    """Walk records and list times and offset deltas: the entries, None where time_bytes is too few for one of them.

    And the next offset delta, the largest timestamp delta, the first record that has it, the smallest.
    """
    _check_room(position, end, count)
    if not 1 <= time_bytes <= _WIDEST[0] or offset_bytes not in (0, _WIDEST[1]):
        raise ValueError(f"a time of {time_bytes} bytes and an offset of {offset_bytes}")
    entries = bytearray(count * (time_bytes + offset_bytes))
    task = (count, 0, contiguous, 0, _MOST, 0, time_bytes, offset_bytes)
    fault, record, at, next_offset, largest, first, smallest = _guarded(
        data, position, end, end, task, _NO_ROWS, memoryview(entries)
    )
    if fault != _OK:
        raise _wrong(fault, record, at, count)
    bound = 1 << (8 * time_bytes - 1)
    least = smallest
    if smallest < -bound:
        # What is listed first is the first record's own; the smallest of all may belong to one that comes late.
        task = (1, 0, False, _INT64_MIN, 0, 0, 0, 0)
        _, _, _, _, least, _, _ = _guarded(data, position, end, end, task, _NO_ROWS, _NO_ENTRIES)
    fits = -bound <= least and largest < bound
    return bytes(entries) if fits else None, next_offset, largest, first, smallest


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
    record, position, next_offset = cut
    timestamp_delta = max(timestamp_delta, _INT64_MIN)
    offset_delta_min = max(_INT64_MIN, min(offset_delta_min, _INT64_MAX))
    fault, walked, at, offset, timestamp, _, _ = _guarded(
        part,
        position - start,
        min(end - start, len(part)),
        end - start,
        (count - record, next_offset, False, timestamp_delta, offset_delta_min, 0, 0, 0),
        _NO_ROWS,
        _NO_ENTRIES,
    )
    if fault == _FOUND:
        return timestamp, offset
    if fault == _OK:
        return None
    if fault == _RAN_OUT:
        return Cut(record + walked, start + at, offset)
    raise _wrong(fault, record + walked, start + at, count)


def find_headers(data: Buffer, positions: Buffer, counts: Buffer, out: Buffer) -> None:
    """Find the names and values of the headers of records, which a scan has checked.

    positions and counts are those columns of the scan. out is four columns of int64 with an entry for each header: the
    position and the length of its name, then those of its value, whose length is -1 if it is null. ValueError where the
    sizes of columns differ, RecordError where the columns are not those of data.
    """
    places = writable(out).cast("q")
    starts, numbers = (memoryview(column).cast("B").cast("q") for column in (positions, counts))
    if len(starts) != len(numbers):
        raise ValueError(f"{len(starts)} positions of headers and {len(numbers)} counts")
    fault, record = _guarded_headers(data, starts, numbers, places, len(starts), len(places) // 4)
    if fault == _ROOM:
        raise ValueError(f"room for {len(places) // 4} headers, and the records have another number")
    if fault != _OK:
        raise RecordError(f"record {record}: {_REASONS[fault]}", record)


@cython.cfunc
def _check_room(position: int, end: int, count: int) -> None:
    if position < 0 or end < position or count < 0 or count > (end - position) // _SHORTEST_RECORD:
        raise RecordError(f"{count} records cannot lie between positions {position} and {end}")


def _wrong(fault: int, record: int, position: int, count: int) -> RecordError:
    message = f"record {record} at position {position}: {_REASONS[fault]}"
    return RecordError(message, record if record < count else -1)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded(
    data: Buffer,
    position: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    task: _TASK,
    rows: memoryview,
    entries: memoryview,
) -> _WALKED:
    """Run _walk_for from position to stop, if data has all that; without the interpreter's lock if it takes long."""
    walked: _WALKED
    view = view_of(data)
    octets: cython.p_const_uchar = octets_of(view)
    size: cython.Py_ssize_t = size_of(view)
    columns: cython.p_longlong = integers_of(rows)
    listed: cython.p_uchar = octets_of(entries)
    if stop > size:
        walked = (_RANGE, 0, size, 0, 0, 0, 0)
    elif position < 0 or position > stop:
        walked = (_RANGE, 0, position, 0, 0, 0, 0)
    elif stop - position < _UNLOCK_BYTES:
        walked = _walk_for(octets, position, stop, end, task, columns, listed)
    else:
        with cython.nogil:
            walked = _walk_for(octets, position, stop, end, task, columns, listed)
    return walked


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _walk_for(
    octets: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    task: _TASK,
    columns: cython.p_longlong,
    entries: cython.p_uchar,
) -> _WALKED:
    """Run _walk for what the task asks: with each of these constants the compiler makes a walk of its own."""
    _count, _next, _contiguous, _timestamp, offset_min, stride, time_bytes, _bytes = task  # type: ignore[attr-defined]
    if offset_min < _MOST:
        return _walk(octets, at, stop, end, task, columns, entries, True, False, False)
    if time_bytes > 0:
        return _walk(octets, at, stop, end, task, columns, entries, False, True, False)
    if stride > 0:
        return _walk(octets, at, stop, end, task, columns, entries, False, False, True)
    return _walk(octets, at, stop, end, task, columns, entries, False, False, False)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _walk(
    octets: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    task: _TASK,
    columns: cython.p_longlong,
    entries: cython.p_uchar,
    seeks: cython.bint,
    lists_times: cython.bint,
    fills_columns: cython.bint,
) -> _WALKED:
    """Walk records, which reach to end, the data to stop, or to the first whose deltas are not less than those sought.

    Its offset and timestamp delta then stand in the place of the next offset delta and of the largest timestamp delta.
    """
    count, next_offset, contiguous, timestamp_min, offset_min, stride, time_bytes, offset_bytes = task  # type: ignore[attr-defined]
    largest: cython.longlong = ~_MOST if count > 0 else 0
    smallest: cython.longlong = _MOST if count > 0 else 0
    first: cython.Py_ssize_t = 0 if count > 0 else -1
    entry: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        fault, after, timestamp, offset, key, key_length, value, value_length, headers, headers_count = (
            _record(octets, at, stop)
        )
        if fault != _OK:
            # Its length says that more of it follows, or is nonsense: the next part, or the end, will tell.
            if fault == _LENGTH and stop < end:
                fault = _RAN_OUT
            return fault, index, at, next_offset, largest, first, smallest
        if offset != next_offset and (contiguous or offset < next_offset):
            return _NOT_NEXT, index, at, 0, 0, 0, 0
        next_offset = offset + 1
        if seeks:
            if offset >= offset_min and timestamp >= timestamp_min:
                return _FOUND, index, at, offset, timestamp, 0, 0
            at = after
            continue
        if timestamp > largest:
            largest = timestamp
            first = index
        if timestamp < smallest:
            smallest = timestamp
        if lists_times:
            entry = _put(entries, entry, time_bytes, largest)
            if offset_bytes > 0:
                entry = _put(entries, entry, offset_bytes, offset)
        if fills_columns:
            columns[index] = at
            columns[stride + index] = offset
            columns[2 * stride + index] = timestamp
            columns[3 * stride + index] = key
            columns[4 * stride + index] = key_length
            columns[5 * stride + index] = value
            columns[6 * stride + index] = value_length
            columns[7 * stride + index] = headers
            columns[8 * stride + index] = headers_count
        at = after
    return _OK if at == end else _LEFT_OVER, count, at, next_offset, largest, first, smallest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _record(octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> _RECORD:
    """Read a record, here if it has no headers and its varints take one byte or two.

    Three looks at the end of the data instead of one a byte make this thrice as fast. Varints stay in zigzag:
    an even one is twice its value, 1 is -1.
    """
    if end - at < _SHORT_BYTES:
        return _any_record(octets, at, end)
    length: cython.uint
    timestamp: cython.uint
    offset: cython.uint
    key_length: cython.uint
    value_length: cython.uint
    stop: cython.Py_ssize_t
    key: cython.Py_ssize_t
    value: cython.Py_ssize_t
    length, stop = _short(octets, at)
    timestamp, key = _short(octets, stop + 1)
    offset, key = _short(octets, key)
    key_length, key = _short(octets, key)
    value = key + (key_length >> 1)
    if value > end - 3:
        return _any_record(octets, at, end)
    value_length, value = _short(octets, value)
    headers: cython.Py_ssize_t = value + (value_length >> 1)
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
        return _any_record(octets, at, end)
    sign: cython.longlong = timestamp & 1
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
@cython.annotation_typing(True)
def _short(octets: cython.p_const_uchar, at: cython.Py_ssize_t) -> _SHORT_VARINT:
    """Read a varint of one byte or two, in zigzag; above 0x3FFF it is a longer one. Two bytes must be there."""
    raw: cython.uint = octets[at]
    if raw < 0x80:
        return raw, at + 1
    return raw & 0x7F | octets[at + 1] << 7, at + 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _any_record(octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> _RECORD:
    """Read one record, whatever it is."""
    length, at = _varint(octets, at, end)
    if at < 0 or length < _SHORTEST_RECORD - 1 or length > end - at:
        return _LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    stop: cython.Py_ssize_t = at + length
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
    headers: cython.Py_ssize_t = value + value_length if value_length > 0 else value
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
@cython.annotation_typing(True)
def _skip_headers(
    octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong
) -> cython.Py_ssize_t:
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
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_headers(
    data: Buffer,
    positions: memoryview,
    counts: memoryview,
    places: memoryview,
    records: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
) -> _HEADERS_FOUND:
    """Run _find_headers, without the interpreter's lock."""
    found: _HEADERS_FOUND
    view = view_of(data)
    octets: cython.p_const_uchar = octets_of(view)
    size: cython.Py_ssize_t = size_of(view)
    starts: cython.p_longlong = integers_of(positions)
    numbers: cython.p_longlong = integers_of(counts)
    columns: cython.p_longlong = integers_of(places)
    with cython.nogil:
        found = _find_headers(octets, size, starts, numbers, records, columns, room)
    return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _find_headers(
    octets: cython.p_const_uchar,
    size: cython.Py_ssize_t,
    positions: cython.p_longlong,
    counts: cython.p_longlong,
    records: cython.Py_ssize_t,
    columns: cython.p_longlong,
    room: cython.Py_ssize_t,
) -> _HEADERS_FOUND:
    """Do find_headers' work without Python."""
    entry: cython.Py_ssize_t = 0
    record: cython.Py_ssize_t
    for record in range(records):
        left: cython.longlong = counts[record]
        # Without headers there may be no position: older formats have none.
        if left == 0:
            continue
        start: cython.longlong = positions[record]
        if start < 0 or start > size:
            return _HEADERS, record
        count, at = _varint(octets, start, size)
        if at < 0 or count != left:
            return _HEADERS, record
        if left > room - entry:
            return _ROOM, record
        while left > 0:
            left -= 1
            length, at = _varint(octets, at, size)
            if at < 0 or length < 0 or length > size - at:
                return _HEADERS, record
            columns[entry] = at
            columns[room + entry] = length
            length, at = _varint(octets, at + length, size)
            if at < 0 or length < -1 or length > size - at:
                return _HEADERS, record
            columns[2 * room + entry] = at
            columns[3 * room + entry] = length
            if length > 0:
                at += length
            entry += 1
    return _OK if entry == room else _ROOM, records


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _varint(octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> _VARINT:
    """Read a zigzag int32; (value, position after it or -1 where there is none)."""
    return _zigzag(octets, at, end, 28, 0x0F)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _zigzag(
    octets: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    last_shift: cython.int,
    last_max: cython.ulonglong,
) -> _VARINT:
    """Read a zigzag varint, its last byte shifted and bounded so; (value, position after it or -1)."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    while at < end and shift <= last_shift:
        byte: cython.ulonglong = octets[at]
        at += 1
        if shift == last_shift and byte > last_max:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            half: cython.longlong = raw >> 1
            sign: cython.longlong = raw & 1
            return half ^ -sign, at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _put(
    octets: cython.p_uchar, at: cython.Py_ssize_t, size: cython.int, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write the low size bytes of an integer, big-endian; return the position after them."""
    after: cython.Py_ssize_t = at + size
    while size > 0:
        size -= 1
        octets[at + size] = value & 0xFF
        value >>= 8
    return after
