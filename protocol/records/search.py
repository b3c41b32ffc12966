# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="valid-type"
"""Searches over batches by their headers, and over sorted entries by their keys; compiled if there is a compiler.

These are the loops with one step per batch or entry, also those that change the headers of many messages of an older
format. Whatever the bytes are, nothing outside [position, end) is read, and every step moves forward. Compiled or
interpreted, results and errors are the same.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker.
"""

from typing import Final
from zlib import crc32

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records import batch, legacy
from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        Py_buffer,
        acquire,
        octets_of,
        release,
        size_of,
        view_of,
    )
else:
    from tidelog.protocol.records.buffers import (
        Py_buffer,
        acquire,
        octets_of,
        release,
        size_of,
        view_of,
    )

COMPILED: Final[bool] = bool(cython.compiled)

# Below this a search is over before another thread could have used the lock.
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)

# What is read of a header: of a batch, and of an entry of an older format.
_LENGTH_AT = cython.declare(cython.Py_ssize_t, batch.LENGTH_POSITION)
_MAGIC_AT = cython.declare(cython.Py_ssize_t, batch.MAGIC_POSITION)
_LAST_OFFSET_DELTA_AT = cython.declare(cython.Py_ssize_t, batch.LAST_OFFSET_DELTA_POSITION)
_MAX_TIMESTAMP_AT = cython.declare(cython.Py_ssize_t, batch.MAX_TIMESTAMP_POSITION)
_CRC_AT = cython.declare(cython.Py_ssize_t, batch.PREFIX_BYTES)
_ATTRIBUTES_AT = cython.declare(cython.Py_ssize_t, legacy.ATTRIBUTES_POSITION)
_LOG_APPEND_TIME = cython.declare(cython.int, batch.LOG_APPEND_TIME)
_LEGACY_TIMESTAMP_AT = cython.declare(cython.Py_ssize_t, legacy.TIMESTAMP_POSITION)
# Whose length does not count what comes before it.
_PREFIX_BYTES = cython.declare(cython.Py_ssize_t, batch.PREFIX_BYTES)
_LENGTH_MIN = cython.declare(cython.longlong, batch.HEADER_BYTES - batch.PREFIX_BYTES)
_LEGACY_LENGTH_MIN = cython.declare(cython.longlong, legacy.LENGTH_MIN)
_MAGIC = cython.declare(cython.int, batch.MAGIC)

# fault, position of what was found or is wrong, or where to read on
_SOUGHT = cython.typedef((cython.int, cython.Py_ssize_t))

# How a search ends: at what was sought, where the data ends first, or at a fault.
_FOUND = cython.declare(cython.int, 0)
_RAN_OUT = cython.declare(cython.int, 1)
_RANGE = cython.declare(cython.int, 2)
_LENGTH = cython.declare(cython.int, 3)
_NO_MAGIC = cython.declare(cython.int, 4)
_OFFSET = cython.declare(cython.int, 5)

_REASONS: Final = {
    _RANGE: "the data ends here, before the range that was asked for",
    _LENGTH: "its size is too small for its format",
    _NO_MAGIC: "its magic byte is none of 0, 1 and 2",
    _OFFSET: "its offset or its last offset delta is negative",
}

# How far from the expected entry find_entry looks next.
_FIRST_STEP = cython.declare(cython.Py_ssize_t, 8)

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)


@cython.locals(
    octets=cython.p_const_uchar,
    size=cython.Py_ssize_t,
    width=cython.Py_ssize_t,
    key_width=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    number=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    key=cython.longlong,
    rest=cython.longlong,
)
def find_entry(
    data: Buffer, entry_bytes: int, key_bytes: int, wanted: int, start: int = 0
) -> tuple[int, int, int]:
    """Find the first entry whose key is at least wanted; return its number, its key, and what is after the key.

    data holds, from start on, entries of entry_bytes each, which begin with their keys: signed big-endian integers
    of key_bytes, at most 8, that never decrease. What is after a key is such an integer too, 0 if it has no bytes.
    Where no key is large enough the answer is the number of entries, -1, -1. The interpreter's lock is kept: data may
    be an index that is being appended to.
    """
    width, key_width, first = entry_bytes, key_bytes, start
    if not 1 <= key_width <= 8 or not key_width <= width <= key_width + 8:
        raise ValueError(f"a key of {key_bytes} bytes in entries of {entry_bytes}")
    if first < 0:
        raise ValueError(f"entries from position {start} on")
    key = max(_INT64_MIN, min(wanted, _INT64_MAX))
    held = cython.declare(Py_buffer)
    octets = acquire(data, cython.address(held))
    size = len(data)
    count = (size - first) // width if size > first else 0
    number = _bisect(octets, first, count, width, key_width, key)
    key = rest = -1
    if number < count:
        at = first + number * width
        key = _integer(octets, at, key_width)
        rest = _integer(octets, at + key_width, width - key_width) if width > key_width else 0
    release(cython.address(held))
    return number, key, rest


def find_batch(data: Buffer, position: int, end: int, offset: int) -> tuple[int, int]:
    """Find the first batch or legacy entry in [position, end) whose last offset is at least offset.

    Return its position and its size in bytes; where the data ends first, the position, maybe beyond end, of the first
    entry whose header is not wholly there, and 0. position must be an entry's start, else RecordError.
    """
    return _search(data, position, end, max(offset, 0), False)


def find_timestamp(data: Buffer, position: int, end: int, timestamp: int) -> tuple[int, int]:
    """Find the first batch in [position, end) whose max timestamp is at least timestamp; answer as find_batch.

    Entries of format v1 answer by their own timestamp, those of v0 have none.
    """
    return _search(data, position, end, timestamp, True)


@cython.locals(
    octets=cython.p_uchar,
    size=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    after=cython.Py_ssize_t,
    offset=cython.longlong,
)
def number_messages(data: bytearray | memoryview, base_offset: int) -> None:
    """Give each message of an older format, of those that fill data, its offset, from base_offset on; in place.

    They are known to be right; what is not whole at the end is left as it is.
    """
    view = writable(data)
    octets = octets_of(view)
    size = size_of(view)
    at = 0
    offset = base_offset
    after = _after_message(octets, at, size)
    while after > at:
        _put(octets, at, 8, offset)
        offset += 1
        at = after
        after = _after_message(octets, at, size)


@cython.locals(
    octets=cython.p_uchar,
    size=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    after=cython.Py_ssize_t,
    time=cython.longlong,
    crc=cython.longlong,
)
def stamp_messages(data: bytearray | memoryview, timestamp: int) -> None:
    """Give each message of format v1, of those that fill data, this time as that of its append; in place, signed anew.

    They are known to be right; what is not whole at the end is left as it is.
    """
    view = writable(data)
    octets = octets_of(view)
    size = size_of(view)
    at = 0
    time = timestamp
    after = _after_message(octets, at, size)
    while after >= at + _LEGACY_TIMESTAMP_AT + 8:
        octets[at + _ATTRIBUTES_AT] |= _LOG_APPEND_TIME
        _put(octets, at + _LEGACY_TIMESTAMP_AT, 8, time)
        crc = crc32(view[at + _MAGIC_AT : after])
        _put(octets, at + _CRC_AT, 4, crc)
        at = after
        after = _after_message(octets, at, size)


@cython.locals(
    octets=cython.p_const_uchar,
    size=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    time=cython.longlong,
    largest=cython.longlong,
    smallest=cython.longlong,
    after=cython.Py_ssize_t,
)
def tally_messages(data: Buffer, position: int, stop: int) -> tuple[int, int, int, int, int]:
    """Walk the messages of an older format that begin in [position, stop), which are known to be right.

    Return where the next begins, how many they are, the largest of their timestamps, the number of the first that has
    it, and the smallest; in v0 each timestamp is -1. There must be one.
    """
    view = view_of(data)
    octets = octets_of(view)
    size = size_of(view)
    at, end = position, min(stop, size)
    count = first = 0
    largest = smallest = -1
    after = _after_message(octets, at, size)
    while at < end and after > at:
        time = -1
        if octets[at + _MAGIC_AT] and after >= at + _LEGACY_TIMESTAMP_AT + 8:
            time = _integer(octets, at + _LEGACY_TIMESTAMP_AT, 8)
        if count == 0 or time > largest:
            largest = time
            first = count
        if count == 0 or time < smallest:
            smallest = time
        count += 1
        at = after
        after = _after_message(octets, at, size)
    return at, count, largest, first, smallest


@cython.cfunc
@cython.annotation_typing(True)
def _search(
    data: Buffer,
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    wanted: cython.longlong,
    by_time: cython.bint,
) -> tuple[int, int]:
    """Run _find; turn its faults into errors."""
    sought: _SOUGHT
    held = cython.declare(Py_buffer)
    octets: cython.p_const_uchar = acquire(data, cython.address(held))
    size: cython.Py_ssize_t = len(data)
    if position < 0 or end > size:
        sought = (_RANGE, size)
    elif end - position < _UNLOCK_BYTES:
        sought = _find(octets, position, end, wanted, by_time)
    else:
        with cython.nogil:
            sought = _find(octets, position, end, wanted, by_time)
    fault, at = sought
    found_bytes: cython.longlong = 0
    if fault == _FOUND:
        found_bytes = _PREFIX_BYTES + _integer(octets, at + _LENGTH_AT, 4)
    release(cython.address(held))
    if fault > _RAN_OUT:
        raise RecordError(f"batch at position {at}: {_REASONS[fault]}")
    return at, found_bytes


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _bisect(
    octets: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    entry_bytes: cython.Py_ssize_t,
    key_bytes: cython.Py_ssize_t,
    wanted: cython.longlong,
) -> cython.Py_ssize_t:
    """Do find_entry's search without Python."""
    if count < 1:
        return 0
    low: cython.Py_ssize_t = 1
    high: cython.Py_ssize_t = count - 1
    # Most readers are near the end; and what is before need not be in memory.
    last: cython.longlong = _integer(octets, start + high * entry_bytes, key_bytes)
    if last < wanted:
        return count
    first: cython.longlong = _integer(octets, start, key_bytes)
    if first >= wanted:
        return 0
    # The answer is in [low, high]. Keys rise about evenly: begin where the wanted one would be, and go from there in
    # growing steps until both ends have moved; then bisect. A bisection of all of a large index would look at more
    # entries that are not in the processor's cache.
    least: cython.double = first
    span: cython.double = last - least
    middle: cython.Py_ssize_t = (
        cython.cast(cython.Py_ssize_t, (wanted - least) / span * high) if span > 0 else 0
    )
    step: cython.Py_ssize_t = _FIRST_STEP
    while low < high:
        if not low <= middle < high or (low > 1 and high < count - 1):
            middle = (low + high) >> 1
        if _integer(octets, start + middle * entry_bytes, key_bytes) < wanted:
            low = middle + 1
            middle = low + step
        else:
            high = middle
            middle = high - step
        if step < count:
            step *= 4
    return low


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _find(
    octets: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    wanted: cython.longlong,
    by_time: cython.bint,
) -> _SOUGHT:
    """Do find_batch's and find_timestamp's work without Python."""
    while end - at > _MAGIC_AT:
        length: cython.longlong = _integer(octets, at + _LENGTH_AT, 4)
        magic: cython.int = octets[at + _MAGIC_AT]
        if magic > _MAGIC:
            return _NO_MAGIC, at
        is_batch: cython.bint = magic == _MAGIC
        if length < (_LENGTH_MIN if is_batch else _LEGACY_LENGTH_MIN):
            return _LENGTH, at
        timestamp_at: cython.Py_ssize_t = _MAX_TIMESTAMP_AT if is_batch else _LEGACY_TIMESTAMP_AT
        # The timestamp is the last field that is looked at.
        if end - at < timestamp_at + 8:
            break
        if by_time:
            if magic > 0 and _integer(octets, at + timestamp_at, 8) >= wanted:
                return _FOUND, at
        else:
            offset: cython.longlong = _integer(octets, at, 8)
            delta: cython.longlong = _integer(octets, at + _LAST_OFFSET_DELTA_AT, 4) if is_batch else 0
            if offset < 0 or delta < 0:
                return _OFFSET, at
            if wanted - offset <= delta:
                return _FOUND, at
        at += _PREFIX_BYTES + length
    return _RAN_OUT, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _after_message(
    octets: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the position after a message of an older format; its own where it is not wholly there."""
    if size - at < _PREFIX_BYTES + _LEGACY_LENGTH_MIN:
        return at
    length: cython.longlong = _integer(octets, at + _LENGTH_AT, 4)
    if length < _LEGACY_LENGTH_MIN or length > size - at - _PREFIX_BYTES:
        return at
    return at + _PREFIX_BYTES + length


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _integer(octets: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """Read a big-endian signed integer of size bytes."""
    value: cython.longlong = octets[at]
    if value >= 128:
        value -= 256
    index: cython.Py_ssize_t
    for index in range(1, size):
        value = value * 256 + octets[at + index]
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _put(
    octets: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, value: cython.longlong
) -> cython.void:
    """Write a big-endian integer of size bytes."""
    index: cython.Py_ssize_t
    for index in range(size):
        octets[at + size - 1 - index] = value & 0xFF
        value >>= 8
