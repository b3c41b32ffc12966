# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, infer_types=True
# mypy: disallow-untyped-decorators=False, warn-return-any=False, disable-error-code="type-arg,valid-type"
"""What is counted of each key of a log, in memory of a fixed size; runs with or without a compiler.

Owns the loops that count a batch's records by their keys. Knows a key by its hash alone, as `key_hashes` writes it;
zeros stand for no key, which is counted like one. Knows bytes only: no file, no clock, no batch header. Invariant:
whatever columns and bytes say, nothing outside the buffers is read or written and every step moves on; compiled or
interpreted, answers and errors are the same.

The table lies in memory that it is handed, entry after entry: the two halves of a hash, the key's last offset plus one,
0 where the entry is free, how many records it has, and the offset of the last one that was delivered, plus one; each an
unsigned 64-bit integer in the machine's byte order. Memory that is all zeros is an empty table.

The functions that are pure C when compiled say so in their annotations; those of the public ones are for the type
checker alone.
"""

import array
from mmap import mmap
from struct import Struct
from typing import Final, NamedTuple

import cython  # type: ignore[import-untyped]

from tidelog.protocol.records import keys
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

if cython.compiled:
    from cython.cimports.cpython import array  # type: ignore[import-untyped, no-redef]
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER  # type: ignore[import-untyped]
    from cython.cimports.tidelog.protocol.records.keys import find  # type: ignore[import-untyped]
else:
    from tidelog.protocol.records.keys import find

COMPILED: Final[bool] = bool(cython.compiled)

Buffer = bytes | bytearray | memoryview | mmap

ENTRY_BYTES: Final = 40
# of an entry, 8 bytes each
_WORDS = cython.declare(cython.Py_ssize_t, ENTRY_BYTES // 8)
_MOST = cython.declare(cython.longlong, (1 << 63) - 1)

# how many records, how far columns are apart, how many entries; the batch's base offset, which offsets count: from the
# first on and before the second; which keys do: those the second half of whose hash, under a mask, is this
_TASK = cython.typedef(
    (
        cython.Py_ssize_t,
        cython.Py_ssize_t,
        cython.ulonglong,
        cython.longlong,
        cython.longlong,
        cython.longlong,
        cython.ulonglong,
        cython.ulonglong,
    )
)
# fault, the record where the walk ended, entries added or records that count
_TALLIED = cython.typedef((cython.int, cython.Py_ssize_t, cython.longlong))

_OK = cython.declare(cython.int, 0)
_OFFSET = cython.declare(cython.int, 1)

_INT64_MAX: Final = (1 << 63) - 1
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
    table: bytearray | memoryview | mmap,
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
    entries, halves = keys.words(keys.writable(table), ENTRY_BYTES), memoryview(hashes).cast("B").cast("Q")
    _check(columns, halves, base_offset)
    if len(new) < 2 * columns.count:
        raise ValueError(f"room for {len(new)} numbers, and there may be {2 * columns.count}")
    fault, record, added = _guarded_count(
        entries,
        halves,
        columns.block,
        new,
        (
            columns.count,
            columns.capacity,
            len(entries) // _WORDS,
            base_offset,
            offsets.start,
            offsets.stop,
            share.mask,
            share.number,
        ),
        max(0, room),
    )
    if fault != _OK:
        raise _wrong(record)
    return Tallied(record, added)


def deliver(
    table: bytearray | memoryview | mmap, hashes: Buffer, columns: Columns, base_offset: int, offsets: range
) -> int:
    """Take note that the records of a batch in a range of offsets were delivered, for keys that are in the table.

    Return how many lie in the range. RecordError as by count.
    """
    entries, halves = keys.words(keys.writable(table), ENTRY_BYTES), memoryview(hashes).cast("B").cast("Q")
    _check(columns, halves, base_offset)
    fault, record, found = _guarded_deliver(
        entries,
        halves,
        columns.block,
        (
            columns.count,
            columns.capacity,
            len(entries) // _WORDS,
            base_offset,
            offsets.start,
            offsets.stop,
            0,
            0,
        ),
    )
    if fault != _OK:
        raise _wrong(record)
    return found


def read(table: Buffer, entry: int) -> Count:
    """Return what is counted in an entry."""
    last, records, delivered = _entry.unpack_from(table, entry * ENTRY_BYTES + 16)
    return Count(last - 1, records, delivered - 1)


def _check(columns: Columns, halves: memoryview, base_offset: int) -> None:
    columns.check(halves.nbytes // 16)
    if not 0 <= base_offset <= _INT64_MAX:
        raise RecordError(f"a batch cannot begin at offset {base_offset}")


def _wrong(record: int) -> RecordError:
    return RecordError(f"record {record}: its offset is negative or leaves an int64", record)


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_count(
    table: Buffer,
    hashes: Buffer,
    block: array.array,
    new: array.array,
    task: _TASK,
    room: cython.longlong,
) -> _TALLIED:
    """Run _count without the interpreter's lock."""
    tallied: _TALLIED
    if cython.compiled:
        entries: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(table).buf)
        halves: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(hashes).buf)
        rows: cython.p_longlong = block.data.as_longlongs  # type: ignore[attr-defined]
        firsts: cython.p_longlong = new.data.as_longlongs  # type: ignore[attr-defined]
    else:
        entries, halves, rows, firsts = table, hashes, block, new
    with cython.nogil:
        tallied = _count(entries, halves, rows, firsts, task, room)
    return tallied


@cython.cfunc
@cython.exceptval(check=True)
@cython.annotation_typing(True)
def _guarded_deliver(table: Buffer, hashes: Buffer, block: array.array, task: _TASK) -> _TALLIED:
    """Run _deliver without the interpreter's lock."""
    tallied: _TALLIED
    if cython.compiled:
        entries: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(table).buf)
        halves: cython.p_ulonglong = cython.cast(cython.p_ulonglong, PyMemoryView_GET_BUFFER(hashes).buf)
        rows: cython.p_longlong = block.data.as_longlongs  # type: ignore[attr-defined]
    else:
        entries, halves, rows = table, hashes, block
    with cython.nogil:
        tallied = _deliver(entries, halves, rows, task)
    return tallied


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _count(
    entries: cython.p_ulonglong,
    hashes: cython.p_ulonglong,
    columns: cython.p_longlong,
    new: cython.p_longlong,
    task: _TASK,
    room: cython.longlong,
) -> _TALLIED:
    """Do count's work without Python."""
    count, stride, capacity, base, start, stop, mask, number = task  # type: ignore[attr-defined]
    added: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(count):
        delta: cython.longlong = columns[stride + index]
        if delta < 0 or delta >= _MOST - base:
            return _OFFSET, index, added
        if base + delta < start or base + delta >= stop:
            continue
        first: cython.ulonglong = hashes[2 * index]
        second: cython.ulonglong = hashes[2 * index + 1]
        if (second & mask) != number:
            continue
        at: cython.Py_ssize_t = find(
            entries, _WORDS, capacity, ((first >> 32) * capacity >> 32) * _WORDS, first, second
        )
        if at < 0:
            return _OK, index, added
        last: cython.ulonglong = entries[at + 2]
        offset: cython.ulonglong = base + delta
        if last == 0:
            if added >= room:
                return _OK, index, added
            new[2 * added] = index
            new[2 * added + 1] = at // _WORDS
            added += 1
            entries[at] = first
            entries[at + 1] = second
        if last <= offset:
            entries[at + 2] = offset + 1
        entries[at + 3] += 1
    return _OK, count, added


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.annotation_typing(True)
def _deliver(
    entries: cython.p_ulonglong,
    hashes: cython.p_ulonglong,
    columns: cython.p_longlong,
    task: _TASK,
) -> _TALLIED:
    """Do deliver's work without Python."""
    count, stride, capacity, base, start, stop, _mask, _number = task  # type: ignore[attr-defined]
    found: cython.longlong = 0
    index: cython.Py_ssize_t
    for index in range(count):
        delta: cython.longlong = columns[stride + index]
        if delta < 0 or delta >= _MOST - base:
            return _OFFSET, index, found
        if base + delta < start or base + delta >= stop:
            continue
        found += 1
        first: cython.ulonglong = hashes[2 * index]
        second: cython.ulonglong = hashes[2 * index + 1]
        at: cython.Py_ssize_t = find(
            entries, _WORDS, capacity, ((first >> 32) * capacity >> 32) * _WORDS, first, second
        )
        if at < 0 or entries[at + 2] == 0:
            continue
        offset: cython.ulonglong = base + delta
        if entries[at + 4] <= offset:
            entries[at + 4] = offset + 1
    return _OK, count, found
