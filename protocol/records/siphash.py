# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""SipHash-2-4-128, by which keys are told apart (Aumasson and Bernstein, 2012); runs with or without a compiler.

Owns the hash. Knows bytes only, and not whose they are. Who has not the secret cannot make two keys that have one hash,
nor many that begin alike. Where it is compiled other compiled modules call it as C (`siphash.pxd`).
"""

from typing import Final

import cython  # type: ignore[import-untyped]

COMPILED: Final[bool] = bool(cython.compiled)
SECRET_BYTES: Final = 16

# the state of the hash once it knows its secret
_STATE = cython.typedef((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))


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


# As in `siphash.pxd`. An annotation cannot say to a compiler what it returns.
@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
@cython.locals(
    octets=cython.p_const_uchar, at=cython.Py_ssize_t, length=cython.Py_ssize_t,
    a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong, mask=cython.ulonglong,
    word=cython.ulonglong, last=cython.Py_ssize_t, left=cython.int, size=cython.ulonglong, first=cython.ulonglong,
)  # fmt: skip
def hash_key(
    octets: bytes, at: int, length: int, a: int, b: int, c: int, d: int, mask: int
) -> tuple[int, int]:
    """Hash the length bytes at a position, from what `begin` returns; of the first half only the bits of the mask."""
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
    return first & mask, a ^ b ^ c ^ d


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
