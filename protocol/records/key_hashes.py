# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""Hashes the keys of a batch, all or a sample of them; compiled if there is a compiler.

The hash is SipHash-2-4-128 (Aumasson and Bernstein, 2012). Without the secret, nobody can make two keys with the same
hash, or many whose hashes start with the same bits. Whatever columns and bytes are, nothing outside the buffers is read
or written. Compiled or interpreted, results and errors are the same.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker.
"""

from array import array
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        integers_of,
        octets_of,
        words_of,
    )
else:
    from tidelog.protocol.records.buffers import integers_of, octets_of, words_of

COMPILED: Final[bool] = bool(cython.compiled)

SECRET_BYTES: Final = 16
# The two halves of a hash, each an unsigned 64-bit integer in the machine's byte order.
HASH_BYTES: Final = 16

# A shorter walk ends before another thread could use the lock.
_UNLOCK_RECORDS = cython.declare(cython.Py_ssize_t, 1024)
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)

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


def begin(secret: bytes) -> tuple[int, int, int, int]:
    """Begin a hash of 128 bits under this secret."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes: it takes {SECRET_BYTES}")
    one, other = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")
    return (
        one ^ 0x736F6D6570736575,
        other ^ 0x646F72616E646F6D ^ 0xEE,
        one ^ 0x6C7967656E657261,
        other ^ 0x7465646279746573,
    )


def write(secret: bytes, data: Buffer, columns: Columns, out: Buffer) -> None:
    """Write the two halves of the hash of each record's key into out, HASH_BYTES a record; zeros where it has none.

    RecordError where the columns are not those of data, ValueError where out has no room: what is in it is then void.
    """
    room = writable(out)
    columns.check(room.nbytes // HASH_BYTES)
    _walked(secret, data, columns, room, True, 0)


def sample(secret: bytes, data: Buffer, columns: Columns, zeros: int, out: "Buffer | array[int]") -> Sampled:
    """Write the first half of the hash of each key whose hash begins with so many bits of zeros, and a size, into out.

    The size is that of the record, up to the next one or the end of data, in bytes; 0 of a tombstone. out has two
    unsigned 64-bit integers for each record. RecordError and ValueError as by write.
    """
    room = writable(out)
    columns.check(room.nbytes // HASH_BYTES)
    return _walked(secret, data, columns, room, False, 64 - zeros)


def _walked(
    secret: bytes, data: Buffer, columns: Columns, room: memoryview, wants_all: bool, bits: int
) -> Sampled:
    octets = memoryview(data).cast("B")
    wrong, hashes, keyed_bytes = _guarded(
        octets,
        columns.block,
        room[: columns.count * HASH_BYTES].cast("Q"),
        (columns.count, columns.capacity, octets.nbytes, wants_all, (1 << bits) - 1),
        begin(secret),
    )
    if wrong >= 0:
        raise RecordError(f"record {wrong}: its key lies outside the data", wrong)
    return Sampled(hashes, keyed_bytes)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded(
    data: memoryview, block: memoryview, out: memoryview, task: _TASK, begun: tuple[int, int, int, int]
) -> _WALKED:
    """Run _walk; without the interpreter's lock if it takes long."""
    walked: _WALKED
    a: cython.ulonglong
    b: cython.ulonglong
    c: cython.ulonglong
    d: cython.ulonglong
    # A compiler can make no such tuple out of one of Python's.
    a, b, c, d = begun
    start: _STATE = (a, b, c, d)
    octets: cython.p_const_uchar = octets_of(data)
    columns: cython.p_longlong = integers_of(block)
    room: cython.p_ulonglong = words_of(out)
    count, _stride, size, _all, _most = task  # type: ignore[attr-defined]
    if count < _UNLOCK_RECORDS and size < _UNLOCK_BYTES:
        walked = _walk(octets, columns, room, task, start)
    else:
        with cython.nogil:
            walked = _walk(octets, columns, room, task, start)
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
            first, second = _hash(octets, key, length, a, b, c, d)
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


# An annotation cannot say to a compiler what it returns.
@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
@cython.locals(
    octets=cython.p_const_uchar, at=cython.Py_ssize_t, length=cython.Py_ssize_t,
    a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong,
    word=cython.ulonglong, last=cython.Py_ssize_t, left=cython.int, size=cython.ulonglong, first=cython.ulonglong,
)  # fmt: skip
def _hash(octets: memoryview, at: int, length: int, a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """Hash the length bytes at a position, from what `begin` returns, to the two halves of 128 bits."""
    last = at + length - (length & 7)
    while at < last:
        word = _word(octets, at, 8)
        a, b, c, d = _round(a, b, c, d ^ word)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        at += 8
    left = length & 7
    if length < 8:
        word = _word(octets, at, left)
    else:
        # The last 8 bytes, less those that are hashed: quicker than one by one.
        word = _word(octets, at + left - 8, 8) >> 8 >> (56 - 8 * left)
    size = length & 0xFF
    word |= size << 56
    a, b, c, d = _round(a, b, c, d ^ word)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a ^ word, b, c ^ 0xEE, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    first = a ^ b ^ c ^ d
    a, b, c, d = _round(a, b ^ 0xDD, c, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    return first, a ^ b ^ c ^ d


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _word(octets: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    """Read size bytes, little-endian."""
    word: cython.ulonglong = 0
    index: cython.Py_ssize_t
    for index in range(size):
        byte: cython.ulonglong = octets[at + index]
        word |= byte << 8 * index
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _round(a: cython.ulonglong, b: cython.ulonglong, c: cython.ulonglong, d: cython.ulonglong) -> _STATE:
    """Do one round of SipHash."""
    # For those whose integers have no end: a compiler takes it out.
    full: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    a = (a + b) & full
    b = a ^ ((b << 13 | b >> 51) & full)
    a = (a << 32 | a >> 32) & full
    c = (c + d) & full
    d = c ^ ((d << 16 | d >> 48) & full)
    a = (a + d) & full
    d = a ^ ((d << 21 | d >> 43) & full)
    c = (c + b) & full
    b = c ^ ((b << 17 | b >> 47) & full)
    c = (c << 32 | c >> 32) & full
    return a, b, c, d
