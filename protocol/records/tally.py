# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""Counts the records of a log by key, in memory of a fixed size; compiled if there is a compiler.

A key is known only by its hash, as `key_hashes` writes it; zeros stand for no key, which is counted like a key.
Whatever columns and bytes are, nothing outside the buffers is read or written, and every step moves forward. Compiled
or interpreted, results and errors are the same.

The table is in memory of the caller. An entry has the two halves of a hash, the key's last offset plus one, 0 for a
free entry, the number of its records, and the offset of the last delivered record plus one; each is an unsigned 64-bit
integer in the machine's byte order. Zeroed memory is an empty table.

Functions that compile to pure C have annotations of C types; annotations of public functions are only for the type
checker.
"""

import array
from struct import Struct
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records.buffers import Buffer, writable
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.keys import check_base, words, wrong_offset

if cython.compiled:
    from cython.cimports.tidelog.protocol.records.buffers import (  # type: ignore[import-untyped]
        integers_of,
        size_of,
        words_of,
    )
    from cython.cimports.tidelog.protocol.records.keys import find  # type: ignore[import-untyped]
else:
    from tidelog.protocol.records.buffers import integers_of, size_of, words_of
    from tidelog.protocol.records.keys import find

COMPILED: Final[bool] = bool(cython.compiled)

ENTRY_BYTES: Final = 40
# of an entry, 8 bytes each
_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_BYTES // 8)
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)

# how many records, how far columns are apart; the batch's base offset, which offsets count: from the
# first on and before the second; which keys do: those the second half of whose hash, under a mask, is this
_TASK = cython.typedef(
    (
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.longlong,
        cython.longlong,
        cython.longlong,
        cython.ulonglong,
        cython.ulonglong,
    )
)
# whether all offsets are right, the record where the walk ended, entries added or records that count
_TALLIED = cython.typedef((cython.bint, cython.Py_ssize_t, cython.longlong))

_entry: Final = Struct("=QQQ")


class Share(NamedTuple):
    """The keys that are counted: those the second half of whose hash, under the mask, is the number."""

    mask: int = 0
    number: int = 0


class Tallied(NamedTuple):
    """How many records were looked at, from the first on, and how many keys came for the first time."""

    records: int
    entries: int


class Count(NamedTuple):
    """What is known of a key: its last offset, how many records it has, the last one delivered, -1 for none."""

    last_offset: int
    records: int
    delivered_offset: int


ALL: Final = Share()


def count(
    table: Buffer,
    hashes: Buffer,
    columns: Columns,
    base_offset: int,
    offsets: range,
    room: int,
    new: "array.array[int]",
    share: Share = ALL,
) -> Tallied:
    """Count the records of a batch that lie in a range of offsets, each for its key.

    Stop before the first record whose key would be one more than room new ones, or finds no free entry. For each new
    key its record and its entry are written into new, one after the other; it has two numbers for each record.
    RecordError where an offset leaves an int64: the table is then void.
    """
    if len(new) < 2 * columns.count:
        raise ValueError(f"room for {len(new)} numbers, and there may be {2 * columns.count}")
    entries, halves = _buffers(table, hashes, columns, base_offset)
    is_right, record, added = _count(
        entries,
        halves,
        columns.block,
        memoryview(new),
        (columns.count, columns.capacity, base_offset, offsets.start, offsets.stop, share.mask, share.number),
        max(0, room),
    )
    if not is_right:
        raise wrong_offset(record)
    return Tallied(record, added)


def deliver(table: Buffer, hashes: Buffer, columns: Columns, base_offset: int, offsets: range) -> int:
    """Take note that the records of a batch in a range of offsets were delivered, for keys that are in the table.

    Return how many lie in the range. RecordError as by count.
    """
    entries, halves = _buffers(table, hashes, columns, base_offset)
    is_right, record, found = _deliver(
        entries,
        halves,
        columns.block,
        (columns.count, columns.capacity, base_offset, offsets.start, offsets.stop, 0, 0),
    )
    if not is_right:
        raise wrong_offset(record)
    return found


def read(table: Buffer, entry: int) -> Count:
    """Return what is counted in an entry."""
    last, records, delivered = _entry.unpack_from(table, entry * ENTRY_BYTES + 16)
    return Count(last - 1, records, delivered - 1)


def _buffers(
    table: Buffer, hashes: Buffer, columns: Columns, base_offset: int
) -> tuple[memoryview, memoryview]:
    """Return the words of a table and of hashes, checked as the columns are."""
    entries, halves = words(writable(table), ENTRY_BYTES), memoryview(hashes).cast("B").cast("Q")
    columns.check(halves.nbytes // 16)
    check_base(base_offset)
    return entries, halves


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _count(
    table: memoryview,
    halves: memoryview,
    block: memoryview,
    firsts: memoryview,
    task: _TASK,
    room: cython.longlong,
) -> _TALLIED:
    """Do count's work, without the interpreter's lock."""
    count, stride, base, start, stop, mask, number = task  # type: ignore[attr-defined]
    entries: cython.p_ulonglong = words_of(table)
    capacity: cython.ulonglong = size_of(table) // ENTRY_BYTES
    hashes: cython.p_ulonglong = words_of(halves)
    columns: cython.p_longlong = integers_of(block)
    new: cython.p_longlong = integers_of(firsts)
    added: cython.longlong = 0
    index: cython.Py_ssize_t
    with cython.nogil:
        for index in range(count):
            delta: cython.longlong = columns[stride + index]
            if delta < 0 or delta >= _MOST - base:
                return False, index, added
            offset: cython.longlong = base + delta
            if offset < start or offset >= stop:
                continue
            first: cython.ulonglong = hashes[2 * index]
            second: cython.ulonglong = hashes[2 * index + 1]
            if (second & mask) != number:
                continue
            at: cython.Py_ssize_t = find(entries, _WORDS, capacity, first, second)
            if at < 0:
                return True, index, added
            after: cython.ulonglong = offset + 1
            if entries[at + 2] == 0:
                if added >= room:
                    return True, index, added
                new[2 * added] = index
                new[2 * added + 1] = at // _WORDS
                added += 1
                entries[at] = first
                entries[at + 1] = second
            entries[at + 2] = max(entries[at + 2], after)
            entries[at + 3] += 1
    return True, count, added


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _deliver(table: memoryview, halves: memoryview, block: memoryview, task: _TASK) -> _TALLIED:
    """Do deliver's work, without the interpreter's lock."""
    count, stride, base, start, stop, _mask, _number = task  # type: ignore[attr-defined]
    entries: cython.p_ulonglong = words_of(table)
    capacity: cython.ulonglong = size_of(table) // ENTRY_BYTES
    hashes: cython.p_ulonglong = words_of(halves)
    columns: cython.p_longlong = integers_of(block)
    found: cython.longlong = 0
    index: cython.Py_ssize_t
    with cython.nogil:
        for index in range(count):
            delta: cython.longlong = columns[stride + index]
            if delta < 0 or delta >= _MOST - base:
                return False, index, found
            offset: cython.longlong = base + delta
            if offset < start or offset >= stop:
                continue
            found += 1
            at: cython.Py_ssize_t = find(entries, _WORDS, capacity, hashes[2 * index], hashes[2 * index + 1])
            if at >= 0 and entries[at + 2] > 0:
                after: cython.ulonglong = offset + 1
                entries[at + 4] = max(entries[at + 4], after)
    return True, count, found
