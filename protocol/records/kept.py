# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""Copies the records of a batch that compaction keeps; compiled if there is a compiler.

The caller marks the records to keep; the columns of a scan have their positions. Timestamp deltas can be shifted to
another base timestamp. Whatever columns and bytes are, nothing outside the buffers is read or written, and every step
moves forward. Compiled or interpreted, results and errors are the same.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker.
"""

from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.libc.string import memmove  # type: ignore[import-untyped]
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        integers_of,
        octets_of,
    )
else:
    from tidelog.protocol.records.buffers import integers_of, octets_of

COMPILED: Final[bool] = bool(cython.compiled)

# By how much a record can grow when its timestamp delta becomes another: nine bytes of that, and one of its length.
GROWTH_BYTES: Final = 10

# A shorter walk ends before another thread could use the lock.
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)
_LONGEST_RECORD = cython.declare(cython.longlong, (1 << 31) - 1)

# value, position after it
_VARINT = cython.typedef((cython.longlong, cython.Py_ssize_t))
# how many records, how far columns are apart, how many bytes of data and of room; whether timestamp deltas change, by
# how much, modulo 2 ** 64, and the least and the largest that may
_TASK = cython.typedef(
    (
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.bint,
        cython.ulonglong,
        cython.longlong,
        cython.longlong,
    )
)
# fault, the record that is wrong or bytes written, largest timestamp delta, the offset delta of the first record that
# has it, smallest
_WRITTEN = cython.typedef((cython.int, cython.Py_ssize_t, cython.longlong, cython.longlong, cython.longlong))

_OK = cython.declare(cython.int, 0)
_PLACE = cython.declare(cython.int, 1)
_TIMESTAMP = cython.declare(cython.int, 2)
_LENGTH = cython.declare(cython.int, 3)
_ROOM = cython.declare(cython.int, 4)

_REASONS: Final = {
    _PLACE: "no record lies where the columns say",
    _TIMESTAMP: "its timestamp, counted from another one, leaves an int64",
    _LENGTH: "it would be longer than a record may be",
}

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_ALL_BITS: Final = (1 << 64) - 1


class Written(NamedTuple):
    """How many bytes were written; the largest timestamp delta, the offset delta of its first record, the smallest."""

    size_bytes: int
    timestamp_delta_max: int
    offset_delta_of_max: int
    timestamp_delta_min: int


def write(data: Buffer, columns: Columns, keep: Buffer, out: Buffer, timestamp_shift: int = 0) -> Written:
    """Copy the records for which keep is not 0 to the start of out, one after another.

    With a timestamp_shift each timestamp delta becomes larger by it, else all bytes stay. out needs room for what is
    written, ValueError where it has too little: no more than the records take, and with a timestamp_shift GROWTH_BYTES
    more for each that is kept. The deltas are those that were written; of no records they are 0, and the offset delta
    is -1. RecordError where a timestamp delta would leave an int64, a record be too long, or the columns are not those
    of data: what is in out is then void.
    """
    octets, marks, room = memoryview(data).cast("B"), memoryview(keep).cast("B"), writable(out)
    columns.check(marks.nbytes)
    low = max(_INT64_MIN, _INT64_MIN - timestamp_shift)
    high = min(_INT64_MAX, _INT64_MAX - timestamp_shift)
    if low > high:
        # No delta can be moved that far.
        low, high = _INT64_MAX, _INT64_MIN
    fault, size, largest, offset, smallest = _guarded(
        octets,
        columns.block,
        marks,
        room,
        (
            columns.count,
            columns.capacity,
            octets.nbytes,
            room.nbytes,
            timestamp_shift != 0,
            timestamp_shift & _ALL_BITS,
            low,
            high,
        ),
    )
    if fault == _ROOM:
        raise ValueError(f"record {size} finds no room in the {room.nbytes} bytes that are there for all")
    if fault != _OK:
        raise RecordError(f"record {size}: {_REASONS[fault]}", size)
    return Written(size, largest, offset, smallest)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded(data: memoryview, block: memoryview, keep: memoryview, out: memoryview, task: _TASK) -> _WRITTEN:
    """Run _write; without the interpreter's lock if it takes long."""
    written: _WRITTEN
    _count, _stride, size, _room, _moves, _shift, _low, _high = task  # type: ignore[attr-defined]
    octets: cython.p_const_uchar = octets_of(data)
    columns: cython.p_longlong = integers_of(block)
    marks: cython.p_const_uchar = octets_of(keep)
    room: cython.p_uchar = octets_of(out)
    if size < _UNLOCK_BYTES:
        written = _write(octets, columns, marks, room, task)
    else:
        with cython.nogil:
            written = _write(octets, columns, marks, room, task)
    return written


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _write(
    octets: cython.p_const_uchar,
    columns: cython.p_longlong,
    keep: cython.p_const_uchar,
    out: cython.p_uchar,
    task: _TASK,
) -> _WRITTEN:
    """Do write's work without Python."""
    count, stride, size, room, moves, shift, low, high = task  # type: ignore[attr-defined]
    largest: cython.longlong = 0
    largest_offset: cython.longlong = -1
    smallest: cython.longlong = 0
    is_first: cython.bint = True
    to: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if keep[index] == 0:
            continue
        start: cython.longlong = columns[index]
        if start < 0 or start >= size:
            return _PLACE, index, 0, 0, 0
        length, at = _length(octets, start, size)
        if at < 0 or length < 0 or length > size - at:
            return _PLACE, index, 0, 0, 0
        end: cython.Py_ssize_t = at + length
        time: cython.longlong = columns[2 * stride + index]
        if time < low or time > high:
            return _TIMESTAMP, index, 0, 0, 0
        if moves:
            # Its attributes come before the timestamp delta, all else behind it.
            rest: cython.Py_ssize_t = _after_varint(octets, at + 1, end)
            if rest < 0:
                return _PLACE, index, 0, 0, 0
            raw: cython.ulonglong = _sum(time, shift)
            time = _signed(raw)
            raw = _zigzag(raw)
            length = 1 + _varint_bytes(raw) + (end - rest)
            if length > _LONGEST_RECORD:
                return _LENGTH, index, 0, 0, 0
            if _varint_bytes(length << 1) + length > room - to:
                return _ROOM, index, 0, 0, 0
            to = _put_varint(out, to, length << 1)
            out[to] = octets[at]
            to = _put_varint(out, to + 1, raw)
            start = rest
        elif end - start > room - to:
            return _ROOM, index, 0, 0, 0
        _copy(out, to, octets, start, end - start)
        to += end - start
        if is_first or time > largest:
            largest = time
            largest_offset = columns[stride + index]
        if is_first or time < smallest:
            smallest = time
        is_first = False
    return _OK, to, largest, largest_offset, smallest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _copy(
    out: cython.p_uchar,
    to: cython.Py_ssize_t,
    octets: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    """Copy size bytes; the two may overlap."""
    if cython.compiled:
        memmove(out + to, octets + at, size)
    else:
        out[to : to + size] = octets[at : at + size]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _sum(value: cython.longlong, shift: cython.ulonglong) -> cython.ulonglong:
    """Add modulo 2 ** 64."""
    full: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    return ((value & full) + shift) & full


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _signed(raw: cython.ulonglong) -> cython.longlong:
    """Read an integer modulo 2 ** 64 as one that has a sign."""
    value: cython.longlong = raw & _MOST
    return value - _MOST - 1 if raw >> 63 else value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _zigzag(raw: cython.ulonglong) -> cython.ulonglong:
    """Put the sign of an integer modulo 2 ** 64 into its last bit."""
    full: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    return (raw << 1 & full) ^ full if raw >> 63 else raw << 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _length(octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> _VARINT:
    """Read a record's length; (length, position after it or -1 where there is none)."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    while at < end and shift <= 28:
        byte: cython.ulonglong = octets[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # An odd one is negative.
            return -1 if raw & 1 else raw >> 1, at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _after_varint(
    octets: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Step over a varint; the position after it, -1 where it does not end."""
    while at < end:
        at += 1
        if octets[at - 1] < 0x80:
            return at
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _varint_bytes(raw: cython.ulonglong) -> cython.Py_ssize_t:
    """Tell how many bytes a varint takes."""
    size: cython.Py_ssize_t = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _put_varint(octets: cython.p_uchar, at: cython.Py_ssize_t, raw: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a varint; return the position after it."""
    while raw > 0x7F:
        octets[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    octets[at] = raw
    return at + 1
