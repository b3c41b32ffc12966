# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""The map of log compaction, from keys to their latest offsets; runs with or without a compiler.

Owns the loops that put a batch's records into the map and that ask it which of them stay. Knows bytes only: no file, no
clock, no batch header; what it is told of records are the columns of a scan. Invariant: whatever columns and bytes say,
nothing outside the buffers is read or written and every step moves on; compiled or interpreted, answers and errors are
the same.

The map lies in memory that it is handed, entry after entry: the two halves of a hash of a key and the key's latest
offset plus one, 0 where the entry is free, each an unsigned 64-bit integer in the machine's byte order. Memory that is
all zeros is an empty map. An entry lies at the place that the first half of its hash says, or behind it, round the end,
with no free one between. A key is known by all 128 bits of its hash, SipHash-2-4-128 (Aumasson and Bernstein, 2012):
without the secret nobody can make two keys of one hash, or many that want one place. Whoever cleans draws a new secret
for each map.

The functions that are pure C when compiled say so in their annotations; those of the public ones are for the type
checker alone.
"""

import array
from mmap import mmap
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records import siphash
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

ENTRY_BYTES: Final = 24
SECRET_BYTES: Final = siphash.SECRET_BYTES
# All bits of the first half of a hash count, unless a test wants keys to collide.
ALL_BITS: Final = (1 << 64) - 1

# of an entry, 8 bytes each
_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_BYTES // 8)
# Below this a walk is over before another thread could have used the lock.
_UNLOCK_BYTES = cython.declare(cython.Py_ssize_t, 65536)
_UNLOCK_RECORDS = cython.declare(cython.Py_ssize_t, 1024)
# So many records are hashed before the map is asked for the first of them.
_STEP = cython.declare(cython.Py_ssize_t, 64)
# Of each: its place in the map, the two halves of its hash, what lay there.
_SCRATCH = cython.declare(cython.Py_ssize_t, 4)
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)

# the state of the hash once it knows its secret
_STATE = cython.typedef((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
# how many records, how far columns are apart, how many bytes of data, how many entries, the batch's base offset, the
# bits of a hash's first half that count
_TASK = cython.typedef(
    (
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.ulonglong,
        cython.longlong,
        cython.ulonglong,
    )
)
# fault, the record that is wrong
_AHEAD = cython.typedef((cython.int, cython.Py_ssize_t))
# fault, the record where the walk ended, entries added
_NOTED = cython.typedef((cython.int, cython.Py_ssize_t, cython.longlong))
# fault, the record that is wrong or how many are kept, tombstones among them, records without a key among them
_CHOSEN = cython.typedef((cython.int, cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t))

_OK = cython.declare(cython.int, 0)
_OFFSET = cython.declare(cython.int, 1)
_KEY = cython.declare(cython.int, 2)

_REASONS: Final = {
    _OFFSET: "its offset is negative or leaves an int64",
    _KEY: "its key lies outside the data",
}

_INT64_MAX: Final = (1 << 63) - 1
# A place in the table is a share of its entries, in parts of 2 ** 32.
_ENTRIES_MAX: Final = (1 << 32) - 1


class Noted(NamedTuple):
    """How many records the map knows of, from the first on, and how many entries it took for them."""

    records: int
    entries: int


class Chosen(NamedTuple):
    """How many records are kept, how many of them are tombstones, and how many have no key."""

    kept: int
    tombstones: int
    keyless: int


def note(
    table: bytearray | memoryview | mmap,
    secret: bytes,
    data: Buffer,
    columns: Columns,
    base_offset: int,
    room: int,
    slot_mask: int = ALL_BITS,
    first_offset: int = 0,
) -> Noted:
    """Put the offset of each record that has a key, in order, into the map, where it has none as late for the key.

    Stop before the first record whose key would be one more than room new ones, or finds no free entry. What has no
    key, or lies before first_offset, is passed over, and counts as noted. RecordError where an offset leaves an int64
    or the columns are not those of data: the map is then void.
    """
    entries, octets = words(writable(table), ENTRY_BYTES), memoryview(data).cast("B")
    columns.check()
    _check_base(base_offset)
    fault, record, added = _guarded_note(
        entries,
        octets,
        columns.block,
        (
            columns.count,
            columns.capacity,
            octets.nbytes,
            len(entries) // _WORDS,
            base_offset,
            slot_mask & ALL_BITS,
        ),
        _start(secret),
        max(0, min(room, _INT64_MAX)),
        max(0, min(first_offset, _INT64_MAX)),
    )
    if fault != _OK:
        raise _wrong(fault, record)
    return Noted(record, added)


def choose(
    table: Buffer,
    secret: bytes,
    data: Buffer,
    columns: Columns,
    base_offset: int,
    mapped_end: int,
    drops_tombstones: bool,
    keep: bytearray | memoryview,
    slot_mask: int = ALL_BITS,
) -> Chosen:
    """Write 1 into keep for each record that stays and 0 for each that goes: a byte a record.

    A record stays if its offset is mapped_end or later, where the map does not reach; if it has no key; or if the map
    has no later offset for its key, and it is not a tombstone that drops_tombstones has go. RecordError as by note.
    """
    entries, octets, marks = words(table, ENTRY_BYTES), memoryview(data).cast("B"), writable(keep)
    columns.check(marks.nbytes)
    _check_base(base_offset)
    fault, kept, tombstones, keyless = _guarded_choose(
        entries,
        octets,
        columns.block,
        marks,
        (
            columns.count,
            columns.capacity,
            octets.nbytes,
            len(entries) // _WORDS,
            base_offset,
            slot_mask & ALL_BITS,
        ),
        _start(secret),
        max(0, min(mapped_end, ALL_BITS)),
        drops_tombstones,
    )
    if fault != _OK:
        raise _wrong(fault, kept)
    return Chosen(kept, tombstones, keyless)


def put(
    table: bytearray | memoryview | mmap,
    secret: bytes,
    key: Buffer,
    offset: int,
    room: int,
    slot_mask: int = ALL_BITS,
) -> Noted:
    """Note one record of this key and offset, as note does."""
    columns = Columns(1)
    columns.count = 1
    columns.key_length[0] = memoryview(key).nbytes
    return note(table, secret, key, columns, offset, room, slot_mask)


def latest(table: Buffer, secret: bytes, key: Buffer, slot_mask: int = ALL_BITS) -> int:
    """Tell the latest offset that the map has for a key; -1 where it has none."""
    entries, octets = words(table, ENTRY_BYTES), memoryview(key).cast("B")
    return _latest(
        entries,
        octets,
        (1, 1, octets.nbytes, len(entries) // _WORDS, 0, slot_mask & ALL_BITS),
        _start(secret),
    )


def writable(buffer: Buffer) -> memoryview:
    """Return the bytes of a buffer; TypeError where they cannot be written."""
    view = memoryview(buffer).cast("B")
    if view.readonly:
        raise TypeError("a buffer that is written into cannot be read-only")
    return view


def words(table: Buffer, entry_bytes: int) -> memoryview:
    """Return a table of whole entries as integers of 64 bits; ValueError where there are none, or too many."""
    view = memoryview(table).cast("B")
    entries = view.nbytes // entry_bytes
    if not 1 <= entries <= _ENTRIES_MAX:
        raise ValueError(
            f"a table of {view.nbytes} bytes: {entry_bytes} to {entry_bytes * _ENTRIES_MAX} will do"
        )
    return view[: entries * entry_bytes].cast("Q")


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _start(secret: bytes) -> _STATE:
    """Begin a hash; a compiler can make no such tuple out of one of Python's."""
    a: cython.ulonglong
    b: cython.ulonglong
    c: cython.ulonglong
    d: cython.ulonglong
    a, b, c, d = siphash.begin(secret)
    return a, b, c, d


def _check_base(offset: int) -> None:
    if not 0 <= offset <= _INT64_MAX:
        raise RecordError(f"a batch cannot begin at offset {offset}")


def _wrong(fault: int, record: int) -> RecordError:
    return RecordError(f"record {record}: {_REASONS[fault]}", record)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_note(
    table: Buffer,
    data: Buffer,
    block: array.array,
    task: _TASK,
    start: _STATE,
    room: cython.longlong,
    first: cython.longlong,
) -> _NOTED:
    """Run _note; without the interpreter's lock if it takes long."""
    noted: _NOTED
    scratch: array.array = array.array("Q", bytes(8 * _STEP * _SCRATCH))
    count, _stride, size, _capacity, _base, _mask = task  # type: ignore[attr-defined]
    if cython.compiled:
        entries: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(table).buf)
        octets: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(data).buf)
        rows: cython.p_longlong = block.data.as_longlongs  # type: ignore[attr-defined]
        ahead: cython.p_ulonglong = scratch.data.as_ulonglongs  # type: ignore[attr-defined]
    else:
        entries, octets, rows, ahead = table, data, block, scratch
    if size < _UNLOCK_BYTES and count < _UNLOCK_RECORDS:
        noted = _note(entries, octets, rows, ahead, task, start, room, first)
    else:
        with cython.nogil:
            noted = _note(entries, octets, rows, ahead, task, start, room, first)
    return noted


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_choose(
    table: Buffer,
    data: Buffer,
    block: array.array,
    keep: Buffer,
    task: _TASK,
    start: _STATE,
    mapped_end: cython.ulonglong,
    drops_tombstones: cython.bint,
) -> _CHOSEN:
    """Run _choose; without the interpreter's lock if it takes long."""
    chosen: _CHOSEN
    scratch: array.array = array.array("Q", bytes(8 * _STEP * _SCRATCH))
    count, _stride, size, _capacity, _base, _mask = task  # type: ignore[attr-defined]
    if cython.compiled:
        entries: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(table).buf)
        octets: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(data).buf)
        marks: cython.p_uchar = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(keep).buf)
        rows: cython.p_longlong = block.data.as_longlongs  # type: ignore[attr-defined]
        ahead: cython.p_ulonglong = scratch.data.as_ulonglongs  # type: ignore[attr-defined]
    else:
        entries, octets, rows, ahead, marks = table, data, block, scratch, keep
    if size < _UNLOCK_BYTES and count < _UNLOCK_RECORDS:
        chosen = _choose(entries, octets, rows, ahead, marks, task, start, mapped_end, drops_tombstones)
    else:
        with cython.nogil:
            chosen = _choose(entries, octets, rows, ahead, marks, task, start, mapped_end, drops_tombstones)
    return chosen


@cython.cfunc
@cython.annotation_typing(True)
def _latest(table: Buffer, data: Buffer, task: _TASK, start: _STATE) -> cython.longlong:
    """Look up the key that fills data."""
    _count, _stride, size, capacity, _base, mask = task  # type: ignore[attr-defined]
    a, b, c, d = start  # type: ignore[attr-defined]
    if cython.compiled:
        entries: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(table).buf)
        octets: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(data).buf)
    else:
        entries, octets = table, data
    half, other = hash_key(octets, 0, size, a, b, c, d, mask)
    place: cython.ulonglong = ((half >> 32) * capacity >> 32) * _WORDS
    at: cython.Py_ssize_t = find(entries, _WORDS, capacity, place, half, other)
    if at < 0 or entries[at + 2] == 0:
        return -1
    return entries[at + 2] - 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _note(
    entries: cython.p_ulonglong,
    octets: cython.p_const_uchar,
    columns: cython.p_longlong,
    scratch: cython.p_ulonglong,
    task: _TASK,
    start: _STATE,
    room: cython.longlong,
    first: cython.longlong,
) -> _NOTED:
    """Do note's work without Python."""
    count, stride, _size, capacity, base, _mask = task  # type: ignore[attr-defined]
    added: cython.longlong = 0
    step: cython.Py_ssize_t = 0
    hashed: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if index == hashed:
            step = index
            hashed = min(hashed + _STEP, count)
            fault, wrong = _hash_ahead(entries, octets, columns, scratch, task, start, index, hashed)
            if fault != _OK:
                return fault, wrong, added
        if columns[4 * stride + index] < 0 or base + columns[stride + index] < first:
            continue
        row: cython.Py_ssize_t = (index - step) * _SCRATCH
        at: cython.Py_ssize_t = find(
            entries, _WORDS, capacity, scratch[row], scratch[row + 1], scratch[row + 2]
        )
        if at < 0:
            return _OK, index, added
        noted: cython.ulonglong = entries[at + 2]
        offset: cython.ulonglong = base + columns[stride + index]
        if noted == 0:
            if added >= room:
                return _OK, index, added
            added += 1
            entries[at] = scratch[row + 1]
            entries[at + 1] = scratch[row + 2]
        if noted <= offset:
            entries[at + 2] = offset + 1
    return _OK, count, added


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _choose(
    entries: cython.p_ulonglong,
    octets: cython.p_const_uchar,
    columns: cython.p_longlong,
    scratch: cython.p_ulonglong,
    keep: cython.p_uchar,
    task: _TASK,
    start: _STATE,
    mapped_end: cython.ulonglong,
    drops_tombstones: cython.bint,
) -> _CHOSEN:
    """Do choose's work without Python."""
    count, stride, _size, capacity, base, _mask = task  # type: ignore[attr-defined]
    kept: cython.Py_ssize_t = 0
    tombstones: cython.Py_ssize_t = 0
    keyless: cython.Py_ssize_t = 0
    step: cython.Py_ssize_t = 0
    hashed: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if index == hashed:
            step = index
            hashed = min(hashed + _STEP, count)
            fault, wrong = _hash_ahead(entries, octets, columns, scratch, task, start, index, hashed)
            if fault != _OK:
                return fault, wrong, 0, 0
        offset: cython.ulonglong = base + columns[stride + index]
        has_key: cython.bint = columns[4 * stride + index] >= 0
        is_tombstone: cython.bint = has_key and columns[6 * stride + index] < 0
        keep[index] = 0
        if has_key and offset < mapped_end:
            if drops_tombstones and is_tombstone:
                continue
            row: cython.Py_ssize_t = (index - step) * _SCRATCH
            at: cython.Py_ssize_t = find(
                entries, _WORDS, capacity, scratch[row], scratch[row + 1], scratch[row + 2]
            )
            if at >= 0 and entries[at + 2] > offset + 1:
                continue
        keep[index] = 1
        kept += 1
        tombstones += is_tombstone
        keyless += not has_key
    return _OK, kept, tombstones, keyless


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _hash_ahead(
    entries: cython.p_ulonglong,
    octets: cython.p_const_uchar,
    columns: cython.p_longlong,
    scratch: cython.p_ulonglong,
    task: _TASK,
    start: _STATE,
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> _AHEAD:
    """Check the records from first to stop, hash their keys and touch their places in the map.

    Memory brings many places at once where none of them waits for another: thrice as fast as one after the other.
    """
    _count, stride, size, capacity, base, mask = task  # type: ignore[attr-defined]
    a, b, c, d = start  # type: ignore[attr-defined]
    row: cython.Py_ssize_t
    index: cython.Py_ssize_t
    for index in range(first, stop):
        offset: cython.longlong = columns[stride + index]
        if offset < 0 or offset > _MOST - base:
            return _OFFSET, index
        length: cython.longlong = columns[4 * stride + index]
        if length < 0:
            continue
        key: cython.longlong = columns[3 * stride + index]
        if key < 0 or length > size or key > size - length:
            return _KEY, index
        half, other = hash_key(octets, key, length, a, b, c, d, mask)
        row = (index - first) * _SCRATCH
        scratch[row] = ((half >> 32) * capacity >> 32) * _WORDS
        scratch[row + 1] = half
        scratch[row + 2] = other
    for index in range(stop - first):
        row = index * _SCRATCH
        at: cython.Py_ssize_t = scratch[row]
        # Two, for an entry may begin in one line of the cache and end in the next.
        scratch[row + 3] = entries[at] ^ entries[at + 2]
    return _OK, stop


# As in `keys.pxd`: the table of `tally` is one of these, of longer entries.
@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
@cython.locals(
    entries=cython.p_ulonglong, width=cython.Py_ssize_t, capacity=cython.ulonglong,
    at=cython.Py_ssize_t, first=cython.ulonglong, second=cython.ulonglong,
    end=cython.Py_ssize_t, left=cython.ulonglong,
)  # fmt: skip
def find(entries: memoryview, width: int, capacity: int, at: int, first: int, second: int) -> int:
    """Find the entry of a hash from its place on, else the free one that it would get; -1 where there is neither."""
    end = capacity * width
    left = capacity
    while left > 0:
        left -= 1
        if entries[at + 2] == 0 or (entries[at] == first and entries[at + 1] == second):
            return at
        at += width
        if at >= end:
            at = 0
    return -1
