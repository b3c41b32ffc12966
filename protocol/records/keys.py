# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""The map of log compaction, from keys to their latest offsets; compiled if there is a compiler.

`note` puts the records of a batch into the map, and `choose` marks the records that stay. The positions of keys are in
the columns of a scan. Whatever columns and bytes are, nothing outside the buffers is read or written, and every step
moves forward. Compiled or interpreted, results and errors are the same.

The map is in memory of the caller. An entry has the two halves of a key's hash, and the key's latest offset plus one, 0
for a free entry; each is an unsigned 64-bit integer in the machine's byte order. Zeroed memory is an empty map. The
first half of the hash gives the place of an entry; if that is taken, it is at the next free one, and the table wraps
around. A key is known by all 128 bits of its hash (`key_hashes`): without the secret, nobody can make two keys with the
same hash, or many for the same place. Each map needs a new secret.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker.
"""

from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records import key_hashes
from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        integers_of,
        octets_of,
        prefetch,
        words_of,
    )
else:
    from tidelog.protocol.records.buffers import integers_of, octets_of, prefetch, words_of

COMPILED: Final[bool] = bool(cython.compiled)

ENTRY_BYTES: Final = 24
SECRET_BYTES: Final = key_hashes.SECRET_BYTES
# All bits of the first half of a hash count, unless a test wants keys to collide.
ALL_BITS: Final = (1 << 64) - 1

# of an entry, 8 bytes each
_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_BYTES // 8)
# A shorter walk ends before another thread could use the lock.
_UNLOCK_RECORDS = cython.declare(cython.Py_ssize_t, 1024)
# So many records ahead the memory of the map is fetched: thrice as fast as waiting for one place after another.
_AHEAD = cython.declare(cython.Py_ssize_t, 16)
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)

# how many records, how far columns are apart, how many entries, the batch's base offset, the bits of a hash's first
# half that count
_TASK = cython.typedef(
    (cython.Py_ssize_t, cython.Py_ssize_t, cython.ulonglong, cython.longlong, cython.ulonglong)
)
# whether all offsets are right, the record where the walk ended, entries added
_NOTED = cython.typedef((cython.bint, cython.Py_ssize_t, cython.longlong))
# whether all offsets are right, the record that is wrong or how many are kept, tombstones among them, records without a
# key among them
_CHOSEN = cython.typedef((cython.bint, cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t))

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
    table: Buffer,
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
    entries, hashes = words(writable(table), ENTRY_BYTES), _hashes(secret, data, columns)
    check_base(base_offset)
    is_right, record, added = _guarded_note(
        entries,
        hashes,
        columns.block,
        (columns.count, columns.capacity, len(entries) // _WORDS, base_offset, slot_mask & ALL_BITS),
        max(0, min(room, _INT64_MAX)),
        max(0, min(first_offset, _INT64_MAX)),
    )
    if not is_right:
        raise wrong_offset(record)
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
    entries, marks = words(table, ENTRY_BYTES), writable(keep)
    columns.check(marks.nbytes)
    hashes = _hashes(secret, data, columns)
    check_base(base_offset)
    is_right, kept, tombstones, keyless = _guarded_choose(
        entries,
        hashes,
        columns.block,
        marks,
        (columns.count, columns.capacity, len(entries) // _WORDS, base_offset, slot_mask & ALL_BITS),
        max(0, min(mapped_end, ALL_BITS)),
        drops_tombstones,
    )
    if not is_right:
        raise wrong_offset(kept)
    return Chosen(kept, tombstones, keyless)


def put(
    table: Buffer, secret: bytes, key: Buffer, offset: int, room: int, slot_mask: int = ALL_BITS
) -> Noted:
    """Note one record of this key and offset, as note does."""
    return note(table, secret, key, _one(key), offset, room, slot_mask)


def latest(table: Buffer, secret: bytes, key: Buffer, slot_mask: int = ALL_BITS) -> int:
    """Tell the latest offset that the map has for a key; -1 where it has none."""
    first, second = _hashes(secret, key, _one(key))
    return _latest(words(table, ENTRY_BYTES), first & slot_mask, second)


def words(table: Buffer, entry_bytes: int) -> memoryview:
    """Return a table of whole entries as integers of 64 bits; ValueError where there are none, or too many."""
    view = memoryview(table).cast("B")
    entries = view.nbytes // entry_bytes
    if not 1 <= entries <= _ENTRIES_MAX:
        raise ValueError(
            f"a table of {view.nbytes} bytes: {entry_bytes} to {entry_bytes * _ENTRIES_MAX} will do"
        )
    return view[: entries * entry_bytes].cast("Q")


def check_base(offset: int) -> None:
    """Raise RecordError where no batch can begin at an offset."""
    if not 0 <= offset <= _INT64_MAX:
        raise RecordError(f"a batch cannot begin at offset {offset}")


def wrong_offset(record: int) -> RecordError:
    """Return the error for a record whose offset cannot be."""
    return RecordError(f"record {record}: its offset is negative or leaves an int64", record)


def _one(key: Buffer) -> Columns:
    """Return the columns of one record, whose key fills the data."""
    columns = Columns(1)
    columns.count = 1
    columns.key_length[0] = memoryview(key).nbytes
    return columns


def _hashes(secret: bytes, data: Buffer, columns: Columns) -> memoryview:
    columns.check()
    hashes = bytearray(columns.count * key_hashes.HASH_BYTES)
    key_hashes.write(secret, data, columns, hashes)
    return memoryview(hashes).cast("Q")


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_note(
    table: memoryview,
    hashes: memoryview,
    block: memoryview,
    task: _TASK,
    room: cython.longlong,
    first: cython.longlong,
) -> _NOTED:
    """Run _note; without the interpreter's lock if it takes long."""
    noted: _NOTED
    entries: cython.p_ulonglong = words_of(table)
    halves: cython.p_ulonglong = words_of(hashes)
    columns: cython.p_longlong = integers_of(block)
    count, _stride, _capacity, _base, _mask = task  # type: ignore[attr-defined]
    if count < _UNLOCK_RECORDS:
        noted = _note(entries, halves, columns, task, room, first)
    else:
        with cython.nogil:
            noted = _note(entries, halves, columns, task, room, first)
    return noted


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_choose(
    table: memoryview,
    hashes: memoryview,
    block: memoryview,
    keep: memoryview,
    task: _TASK,
    mapped_end: cython.ulonglong,
    drops_tombstones: cython.bint,
) -> _CHOSEN:
    """Run _choose; without the interpreter's lock if it takes long."""
    chosen: _CHOSEN
    entries: cython.p_ulonglong = words_of(table)
    halves: cython.p_ulonglong = words_of(hashes)
    columns: cython.p_longlong = integers_of(block)
    marks: cython.p_uchar = octets_of(keep)
    count, _stride, _capacity, _base, _mask = task  # type: ignore[attr-defined]
    if count < _UNLOCK_RECORDS:
        chosen = _choose(entries, halves, columns, marks, task, mapped_end, drops_tombstones)
    else:
        with cython.nogil:
            chosen = _choose(entries, halves, columns, marks, task, mapped_end, drops_tombstones)
    return chosen


@cython.cfunc
@cython.annotation_typing(True)
def _latest(table: memoryview, first: cython.ulonglong, second: cython.ulonglong) -> cython.longlong:
    """Look up a hash."""
    entries: cython.p_ulonglong = words_of(table)
    at: cython.Py_ssize_t = find(entries, _WORDS, len(table) // _WORDS, first, second)
    if at < 0 or entries[at + 2] == 0:
        return -1
    return entries[at + 2] - 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _note(
    entries: cython.p_ulonglong,
    hashes: cython.p_ulonglong,
    columns: cython.p_longlong,
    task: _TASK,
    room: cython.longlong,
    first: cython.longlong,
) -> _NOTED:
    """Do note's work without Python."""
    count, stride, capacity, base, mask = task  # type: ignore[attr-defined]
    added: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if index + _AHEAD < count:
            _fetch_ahead(entries, capacity, hashes[2 * (index + _AHEAD)] & mask)
        delta: cython.longlong = columns[stride + index]
        if delta < 0 or delta > _MOST - base:
            return False, index, added
        if columns[4 * stride + index] < 0 or base + delta < first:
            continue
        half: cython.ulonglong = hashes[2 * index] & mask
        at: cython.Py_ssize_t = find(entries, _WORDS, capacity, half, hashes[2 * index + 1])
        if at < 0:
            return True, index, added
        noted: cython.ulonglong = entries[at + 2]
        offset: cython.ulonglong = base + delta
        if noted == 0:
            if added >= room:
                return True, index, added
            added += 1
            entries[at] = half
            entries[at + 1] = hashes[2 * index + 1]
        if noted <= offset:
            entries[at + 2] = offset + 1
    return True, count, added


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _choose(
    entries: cython.p_ulonglong,
    hashes: cython.p_ulonglong,
    columns: cython.p_longlong,
    keep: cython.p_uchar,
    task: _TASK,
    mapped_end: cython.ulonglong,
    drops_tombstones: cython.bint,
) -> _CHOSEN:
    """Do choose's work without Python."""
    count, stride, capacity, base, mask = task  # type: ignore[attr-defined]
    kept: cython.Py_ssize_t = 0
    tombstones: cython.Py_ssize_t = 0
    keyless: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    for index in range(count):
        if index + _AHEAD < count:
            _fetch_ahead(entries, capacity, hashes[2 * (index + _AHEAD)] & mask)
        delta: cython.longlong = columns[stride + index]
        if delta < 0 or delta > _MOST - base:
            return False, index, 0, 0
        offset: cython.ulonglong = base + delta
        has_key: cython.bint = columns[4 * stride + index] >= 0
        is_tombstone: cython.bint = has_key and columns[6 * stride + index] < 0
        keep[index] = 0
        if has_key and offset < mapped_end:
            if drops_tombstones and is_tombstone:
                continue
            at: cython.Py_ssize_t = find(
                entries, _WORDS, capacity, hashes[2 * index] & mask, hashes[2 * index + 1]
            )
            if at >= 0 and entries[at + 2] > offset + 1:
                continue
        keep[index] = 1
        kept += 1
        tombstones += is_tombstone
        keyless += not has_key
    return True, kept, tombstones, keyless


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _fetch_ahead(
    entries: cython.p_ulonglong, capacity: cython.ulonglong, first: cython.ulonglong
) -> cython.void:
    """Have the place of a hash fetched: two lines, as an entry may begin in one and end in the next."""
    at: cython.Py_ssize_t = ((first >> 32) * capacity >> 32) * _WORDS
    prefetch(entries, at)
    prefetch(entries, at + 2)


# As in `keys.pxd`: the table of `tally` is one of these, of longer entries.
@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
@cython.locals(
    entries=cython.p_ulonglong, width=cython.Py_ssize_t, capacity=cython.ulonglong,
    first=cython.ulonglong, second=cython.ulonglong,
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, left=cython.ulonglong,
)  # fmt: skip
def find(entries: memoryview, width: int, capacity: int, first: int, second: int) -> int:
    """Find the entry of a hash from its place on, else the free one that it would get; -1 where there is neither."""
    end = capacity * width
    at = ((first >> 32) * capacity >> 32) * width
    left = capacity
    while left > 0:
        left -= 1
        if entries[at + 2] == 0 or (entries[at] == first and entries[at + 1] == second):
            return at
        at += width
        if at >= end:
            at = 0
    return -1
