# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""Writes the records of a batch: the loop with one step per record; compiled if there is a compiler.

Compiled or interpreted, results and errors are the same. Nothing is written outside the bytes that were allocated: each
record is measured before any is written, and the parts of a row are immutable bytes.
"""

from collections.abc import Sequence
from typing import Final

import cython  # type: ignore[import-untyped]

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import copy, octets_of  # type: ignore[import-untyped]
else:
    from tidelog.protocol.records.buffers import copy, octets_of

# Timestamp, key, value, and the number of headers with the headers as `build.encode_headers` writes them.
Row = tuple[int, bytes | None, bytes | None, bytes]

COMPILED: Final[bool] = bool(cython.compiled)

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
# More than the attributes and the varints of a record take: a length, two deltas, and two lengths.
_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 64)


def encode(rows: Sequence[Row], base_timestamp: int) -> bytearray:
    """Return the records of a batch, with offsets from 0 on.

    OverflowError if a timestamp is further from the base than an int64 reaches.
    """
    held = list(rows)
    times = [row[0] for row in held]
    if times and not (
        min(times) - base_timestamp >= _INT64_MIN and max(times) - base_timestamp <= _INT64_MAX
    ):
        raise OverflowError(f"timestamps from {min(times)} to {max(times)} in a batch of {base_timestamp}")
    bound: cython.Py_ssize_t = 0
    for _, key, value, headers in held:
        bound += _OVERHEAD_BYTES + _length(key) + _length(value) + len(headers)
    out = bytearray(bound)
    view = memoryview(out)
    used = _fill(view, held, base_timestamp)
    view.release()
    del out[used:]
    return out


@cython.cfunc
@cython.annotation_typing(True)
def _length(data: bytes | None) -> cython.Py_ssize_t:
    return 0 if data is None else len(data)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _fill(view: memoryview, rows: list, base_timestamp: object) -> cython.Py_ssize_t:
    octets: cython.p_uchar = octets_of(view)
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = 0
    row: tuple
    key: bytes | None
    value: bytes | None
    headers: bytes
    for row in rows:
        delta: cython.longlong = row[0] - base_timestamp
        key, value, headers = row[1], row[2], row[3]
        key_length: cython.longlong = -1 if key is None else len(key)
        value_length: cython.longlong = -1 if value is None else len(value)
        size: cython.longlong = (
            1
            + _size(delta)
            + _size(index)
            + _size(key_length)
            + _size(value_length)
            + _length(key)
            + _length(value)
            + len(headers)
        )
        at = _varint(octets, at, size)
        octets[at] = 0
        at = _varint(octets, at + 1, delta)
        at = _varint(octets, at, index)
        at = _varint(octets, at, key_length)
        if key is not None:
            copy(octets, at, key)
            at += len(key)
        at = _varint(octets, at, value_length)
        if value is not None:
            copy(octets, at, value)
            at += len(value)
        copy(octets, at, headers)
        at += len(headers)
        index += 1  # noqa: SIM113  (in C, `enumerate` counts objects)
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _size(value: cython.longlong) -> cython.Py_ssize_t:
    """Return how many bytes an integer takes in zigzag."""
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
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
def _varint(octets: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write an integer in zigzag, and return the position after it."""
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        octets[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    octets[at] = raw
    return at + 1
