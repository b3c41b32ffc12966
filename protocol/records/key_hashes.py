# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""The hashes of the keys of a batch: of all of them, or a sample of the keys; runs with or without a compiler.

Owns the walk over a batch's keys. Knows bytes only; what hashes are for is its caller's. Invariant: whatever columns
and bytes say, nothing outside the buffers is read or written; compiled or interpreted, answers and errors are the same.

The functions that are pure C when compiled say so in their annotations; those of the public ones are for the type
checker alone.
"""

import array
from mmap import mmap
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records import keys, siphash
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.cpython import array  # type: ignore[import-untyped, no-redef]
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER  # type: ignore[import-untyped]
    from cython.cimports.tidelog.protocol.records.siphash import hash_key  # type: ignore[import-untyped]
else:
    from tidelog.protocol.records.siphash import hash_key

COMPILED: Final[bool] = bool(cython.compiled)

Buffer = bytes | bytearray | memoryview | mmap

# The two halves of a hash, each an unsigned 64-bit integer in the machine's byte order.
HASH_BYTES: Final = 16

# Below this a walk is over before another thread could have used the lock.
_UNLOCK_RECORDS = cython.declare(cython.Py_ssize_t, 1024)

# the state of the hash once it knows its secret
_STATE = cython.typedef((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
# how many records, how far columns are apart, how many bytes of data; whether all hashes are wanted, else how many bits
# the first half has of one that is
_TASK = cython.typedef(
    (cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t, cython.bint, cython.ulonglong)
)
# the record that is wrong, or -1; how many hashes were written, how many bytes records with a key have
_WALKED = cython.typedef((cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong))


class Sampled(NamedTuple):
    """How many hashes were written, and how many bytes the records with a key have."""

    hashes: int
    keyed_bytes: int


def write(secret: bytes, data: Buffer, columns: Columns, out: bytearray | memoryview | mmap) -> None:
    """Write the two halves of the hash of each record's key into out, HASH_BYTES a record; zeros where it has none.

    RecordError where the columns are not those of data, ValueError where out has no room: what is in it is then void.
    """
    room = keys.writable(out)
    columns.check(room.nbytes // HASH_BYTES)
    _walked(secret, data, columns, room[: columns.count * HASH_BYTES].cast("Q"), True, 0)


def sample(secret: bytes, data: Buffer, columns: Columns, zeros: int, out: "array.array[int]") -> Sampled:
    """Write the first half of the hash of each key whose hash begins with so many bits of zeros, and a size, into out.

    The size is that of the record, up to the next one or the end of data, in bytes; 0 of a tombstone. out has two
    unsigned 64-bit integers for each record. RecordError and ValueError as by write.
    """
    columns.check(len(out) // 2)
    return _walked(secret, data, columns, memoryview(out), False, 64 - zeros)


def _walked(
    secret: bytes, data: Buffer, columns: Columns, out: memoryview, wants_all: bool, bits: int
) -> Sampled:
    octets = memoryview(data).cast("B")
    wrong, hashes, keyed_bytes = _guarded(
        octets,
        columns.block,
        out,
        (columns.count, columns.capacity, octets.nbytes, wants_all, (1 << bits) - 1),
        siphash.begin(secret),
    )
    if wrong >= 0:
        raise RecordError(f"record {wrong}: its key lies outside the data", wrong)
    return Sampled(hashes, keyed_bytes)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded(
    data: Buffer, block: array.array, out: Buffer, task: _TASK, begun: tuple[int, int, int, int]
) -> _WALKED:
    """Run _walk; without the interpreter's lock if it takes long."""
    walked: _WALKED
    a: cython.ulonglong
    b: cython.ulonglong
    c: cython.ulonglong
    d: cython.ulonglong
    a, b, c, d = begun
    start: _STATE = (a, b, c, d)
    count, _stride, _size, _all, _most = task  # type: ignore[attr-defined]
    if cython.compiled:
        octets: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(data).buf)
        room: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(out).buf)
        rows: cython.p_longlong = block.data.as_longlongs  # type: ignore[attr-defined]
    else:
        octets, room, rows = data, out, block
    if count < _UNLOCK_RECORDS:
        walked = _walk(octets, rows, room, task, start)
    else:
        with cython.nogil:
            walked = _walk(octets, rows, room, task, start)
    return walked


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _walk(
    octets: cython.p_const_uchar,
    columns: cython.p_longlong,
    out: cython.p_ulonglong,
    task: _TASK,
    start: _STATE,
) -> _WALKED:
    """Hash the keys of all records; write down the hashes that are wanted."""
    count, stride, size, wants_all, most = task  # type: ignore[attr-defined]
    a, b, c, d = start  # type: ignore[attr-defined]
    full: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    hashes: cython.Py_ssize_t = 0
    keyed: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(count):
        key: cython.longlong = columns[3 * stride + index]
        length: cython.longlong = columns[4 * stride + index]
        first: cython.ulonglong = 0
        second: cython.ulonglong = 0
        if length >= 0:
            if key < 0 or length > size or key > size - length:
                return index, hashes, keyed
            first, second = hash_key(octets, key, length, a, b, c, d, full)
        if wants_all:
            out[2 * index] = first
            out[2 * index + 1] = second
            hashes += 1
        elif length >= 0:
            end: cython.longlong = columns[index + 1] if index + 1 < count else size
            record: cython.longlong = end - columns[index]
            if record < 0 or record > size:
                return index, hashes, keyed  # else nothing would bound the sum
            keyed += record
            if first <= most:
                out[2 * hashes] = first
                out[2 * hashes + 1] = 0 if columns[6 * stride + index] < 0 else record
                hashes += 1
    return -1, hashes, keyed
