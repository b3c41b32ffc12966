# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""Makes a line of text of each record of a batch, if it is plain: without headers, its key and value printable ASCII.

The positions of keys and values are in the columns of a scan. The caller makes the lines of other records, so this loop
knows no rule about what cannot be printed. Whatever columns and bytes are, nothing outside the buffers is read or
written. Compiled or interpreted, results and errors are the same.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        copy,
        integers_of,
        octets_of,
        size_of,
        view_of,
    )
else:
    from tidelog.protocol.records.buffers import copy, integers_of, octets_of, size_of, view_of

COMPILED: Final[bool] = bool(cython.compiled)

_MOST = cython.declare(cython.longlong, (1 << 63) - 1)
_LEAST = cython.declare(cython.longlong, -(1 << 63))
# The most digits of an offset.
_DIGITS = cython.declare(cython.Py_ssize_t, 19)
_SPACE = cython.declare(cython.uchar, 0x20)
_TILDE = cython.declare(cython.uchar, 0x7E)
_QUOTE = cython.declare(cython.uchar, 0x22)
_BACKSLASH = cython.declare(cython.uchar, 0x5C)


class Shape(NamedTuple):
    """How lines look: HEAD offset MIDDLE key SEPARATOR value END.

    `around` returns HEAD and MIDDLE for a timestamp. With `quotes`, key and value are in double quotes, and those in
    them and backslashes have a backslash before them; without, one that begins with a backslash is not plain.
    """

    around: Callable[[int], tuple[bytes, bytes]]
    separator: bytes
    end: bytes
    null: bytes
    quotes: bool


@cython.cclass
class Line:
    """The line of a record, and its place."""

    offset = cython.declare(cython.longlong, visibility="public")
    timestamp = cython.declare(cython.longlong, visibility="public")
    text = cython.declare(bytes, visibility="public")

    def __init__(self, offset: int, timestamp: int, text: bytes) -> None:
        self.offset, self.timestamp, self.text = offset, timestamp, text


def write(
    data: bytes,
    columns: Columns,
    shape: Shape,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    first_offset: int,
) -> tuple[list[Line], list[tuple[Line, int]]]:
    """Return the line of each record at or after an offset, and those lines, with the record's number, that lack text.

    With `append_timestamp`, all records have it. RecordError if an offset or a timestamp leaves an int64.
    """
    columns.check()
    made: list[Line] = []
    others: list[tuple[Line, int]] = []
    _fill(
        view_of(data),
        columns.block,
        columns.count,
        columns.capacity,
        tuple(shape),
        (first_offset, base_offset, base_timestamp if append_timestamp is None else append_timestamp),
        append_timestamp is None,
        made,
        others,
    )
    return made, others


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _fill(
    view: object,
    block: memoryview,
    count: cython.Py_ssize_t,
    stride: cython.Py_ssize_t,
    shape: tuple,
    bases: tuple,
    has_deltas: cython.bint,
    made: list,
    others: list,
) -> cython.int:
    octets: cython.p_uchar = octets_of(view)
    size: cython.Py_ssize_t = size_of(view)
    columns: cython.p_longlong = integers_of(block)
    around = shape[0]
    separator: bytes = shape[1]
    end: bytes = shape[2]
    null: bytes = shape[3]
    quotes: cython.bint = shape[4]
    first: cython.longlong = bases[0]
    base_offset: cython.longlong = bases[1]
    base_timestamp: cython.longlong = bases[2]
    room: cython.Py_ssize_t = 4096
    held: object = memoryview(bytearray(room))
    out: cython.p_uchar = octets_of(held)
    head: bytes = b""
    middle: bytes = b""
    of_timestamp: cython.longlong = 0
    has_head: cython.bint = False
    index: cython.Py_ssize_t
    for index in range(count):
        offset: cython.longlong = _sum(base_offset, columns[stride + index], index)
        timestamp: cython.longlong = base_timestamp
        if has_deltas:
            timestamp = _sum(base_timestamp, columns[2 * stride + index], index)
        if offset < first:
            continue
        line: Line = Line.__new__(Line)
        line.offset = offset
        line.timestamp = timestamp
        made.append(line)
        key: cython.longlong = columns[3 * stride + index]
        key_length: cython.longlong = columns[4 * stride + index]
        value: cython.longlong = columns[5 * stride + index]
        value_length: cython.longlong = columns[6 * stride + index]
        key_size: cython.Py_ssize_t = _written(octets, size, key, key_length, quotes)
        value_size: cython.Py_ssize_t = _written(octets, size, value, value_length, quotes)
        if columns[8 * stride + index] != 0 or key_size < 0 or value_size < 0 or offset < 0:
            others.append((line, index))
            continue
        if not has_head or timestamp != of_timestamp:
            head, middle = around(timestamp)
            of_timestamp = timestamp
            has_head = True
        wanted: cython.Py_ssize_t = len(head) + _DIGITS + len(middle) + len(separator) + len(end)
        wanted += key_size + value_size + 2 * len(null)
        if wanted > room:
            room = 2 * wanted
            held = memoryview(bytearray(room))
            out = octets_of(held)
        copy(out, 0, head)
        at: cython.Py_ssize_t = _digits(out, len(head), offset)
        copy(out, at, middle)
        at += len(middle)
        if key_length < 0:
            copy(out, at, null)
            at += len(null)
        else:
            at = _content(out, at, octets, key, key_length, key_size, quotes)
        copy(out, at, separator)
        at += len(separator)
        if value_length < 0:
            copy(out, at, null)
            at += len(null)
        else:
            at = _content(out, at, octets, value, value_length, value_size, quotes)
        copy(out, at, end)
        at += len(end)
        if cython.compiled:
            line.text = out[:at]
        else:
            line.text = bytes(out[:at])
    return 0


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _sum(base: cython.longlong, delta: cython.longlong, record: cython.Py_ssize_t) -> cython.longlong:
    if (delta > 0 and base > _MOST - delta) or (delta < 0 and base < _LEAST - delta):
        raise RecordError(f"record {record}: its offset or its timestamp leaves an int64", record)
    return base + delta


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _written(
    octets: cython.p_uchar,
    size: cython.Py_ssize_t,
    at: cython.longlong,
    length: cython.longlong,
    quotes: cython.bint,
) -> cython.Py_ssize_t:
    """Return how many bytes a key or value takes in a line, -1 if it is not plain; 0 for null."""
    if length < 0:
        return 0
    if at < 0 or at > size or length > size - at:
        return -1
    others: cython.Py_ssize_t = 0
    escapes: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(at, at + length):
        octet: cython.uchar = octets[index]
        others += octet < _SPACE or octet > _TILDE
        escapes += octet in (_QUOTE, _BACKSLASH)
    if others:
        return -1
    if quotes:
        return length + escapes + 2
    if length > 0 and octets[at] == _BACKSLASH:
        return -1
    return length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _content(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    octets: cython.p_uchar,
    start: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
    written: cython.Py_ssize_t,
    quotes: cython.bint,
) -> cython.Py_ssize_t:
    """Write a key or value, and return the position after it."""
    index: cython.Py_ssize_t
    if quotes:
        out[at] = _QUOTE
        at += 1
        written -= 2
    if written == length:
        for index in range(length):
            out[at + index] = octets[start + index]
        at += length
    else:
        for index in range(start, start + length):
            octet: cython.uchar = octets[index]
            if octet in (_QUOTE, _BACKSLASH):
                out[at] = _BACKSLASH
                at += 1
            out[at] = octet
            at += 1
    if quotes:
        out[at] = _QUOTE
        at += 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _digits(out: cython.p_uchar, at: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    """Write a number that is not negative, and return the position after it."""
    size: cython.Py_ssize_t = 1
    rest: cython.longlong = number
    while rest > 9:
        rest //= 10
        size += 1
    index: cython.Py_ssize_t = at + size
    while index > at:
        index -= 1
        out[index] = 0x30 + number % 10
        number //= 10
    return at + size
