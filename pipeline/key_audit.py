"""Finds the keys of a partition that a group has not read to the end, and how far each was delivered.

`tidelog audit keys` and the job `audit-keys` share it. Memory is bounded: a table of fixed size
(`protocol/records/tally`), and the batches that the caller reads at a time. The keys themselves go to a temporary file.
If the table has no room for all keys, they are split into shares by hash, and the log is read once for each share. A
key is identified by 128 bits of a hash with a random secret.

Records are those that `read_committed` delivers: no records of aborted transactions, no markers, and nothing from the
first open transaction on.
"""

import base64
import mmap
import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.records import key_hashes, tally
from tidelog.protocol.records.batch import MAGIC, NO_TIMESTAMP, BatchHeader, Buffer
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.tally import Share
from tidelog.storage.compaction.reading import UNREADABLE, Entry, messages, scanned
from tidelog.storage.compaction.transactions import Transactions

TABLE_BYTES: Final = 96 << 20
# The share of the table's entries that may be used, so that a lookup takes few steps.
_LOAD: Final = 0.75
_SPLIT_BITS_MAX: Final = 40
# Why it is unknown whether a record of a key was delivered: its records were removed.
COMPACTED: Final = "compacted"
DELETED: Final = "deleted"

# Yields the entries of a range of offsets, in lists.
Read = Callable[[int, int], Iterable[list[Entry]]]


class Bounds(NamedTuple):
    """The start and end of a partition, and the committed offset of the group, 0 if there is none."""

    start: int
    end: int
    committed: int


class Behind(NamedTuple):
    """A key with records that were not delivered."""

    key: bytes | None
    produced_offset: int
    delivered_offset: int | None
    gone: str | None  # if delivered_offset is None, what may have removed the record: COMPACTED, DELETED
    records: int  # not delivered
    first_ms: int  # the time of the first of these records; -1 if it has none

    def waits_ms(self, now_ms: int) -> int | None:
        """Return how long the first of these records has waited; None if it has no time."""
        return None if self.first_ms < 0 else max(0, now_ms - self.first_ms)

    def row(self, partition: int, now_ms: int) -> dict[str, Any]:
        """Return the row for JSON. A key that is not UTF-8 is `key_base64`."""
        key: dict[str, str | None]
        try:
            key = {"key": None if self.key is None else self.key.decode()}
        except UnicodeDecodeError:
            key = {"key_base64": base64.b64encode(self.key or b"").decode()}
        return {
            "partition": partition,
            **key,
            "produced_offset": self.produced_offset,
            "delivered_offset": self.delivered_offset,
            **({"delivered": self.gone} if self.gone else {}),
            "behind": self.records,
            "behind_ms": self.waits_ms(now_ms),
        }


class _Full(Exception):
    """The table has no room for another key."""


class _Transactional(Exception):
    """The log has transactions, so their outcome must be read first."""


def behind(read: Read, bounds: Bounds, table_bytes: int = TABLE_BYTES) -> Iterator[Behind]:
    """Yield the keys that are behind, within each share in the order of their first record that was not delivered.

    PipelineError if records cannot be read.
    """
    audit = _Audit(read, bounds)
    shares = [Share()]
    while shares:
        share = shares.pop()
        try:
            with _Tally(table_bytes) as counted:
                audit.count(counted, share)
                yield from audit.results(counted)
        except _Full:
            if share.mask.bit_length() >= _SPLIT_BITS_MAX:
                raise PipelineError("there is no room for the keys: use more memory") from None
            mask = share.mask << 1 | 1
            shares += [Share(mask, share.number | share.mask + 1), Share(mask, share.number)]
        except _Transactional:
            audit.read_markers()
            shares.append(share)


class _Tally:
    """The table, and a file with the keys in it."""

    _head = Struct("=qqq")  # the entry, the time of the first record, the length of the key or -1

    def __init__(self, table_bytes: int) -> None:
        entries = max(table_bytes // tally.ENTRY_BYTES, 2)
        self.table = mmap.mmap(-1, entries * tally.ENTRY_BYTES)
        self._room = max(1, min(int(entries * _LOAD), entries - 1))
        self._new = array("q")
        try:
            self._keys = TemporaryFile()  # noqa: SIM115  (closed with the table)
        except OSError:
            self.table.close()
            raise

    def __enter__(self) -> "_Tally":
        return self

    def __exit__(self, *_: object) -> None:
        self.table.close()
        self._keys.close()

    def count(self, batch: "_Batch", hashes: Buffer, offsets: range, share: Share) -> None:
        """Count records; _Full if there is no room for one of their keys."""
        columns, base_offset = batch.columns, batch.header.base_offset
        if len(self._new) < 2 * columns.count:
            self._new = array("q", bytes(16 * columns.count))
        done = tally.count(self.table, hashes, columns, base_offset, offsets, self._room, self._new, share)
        if done.records < columns.count:
            raise _Full
        self._room -= done.entries
        if done.entries:
            self._keys.write(b"".join(self._lines(batch, done.entries)))

    def _lines(self, batch: "_Batch", count: int) -> Iterator[bytes]:
        data, columns, pack = batch.data, batch.columns, self._head.pack
        positions, lengths = columns.key_position, columns.key_length
        news = iter(self._new[: 2 * count])
        for record, entry in zip(news, news, strict=True):
            length = lengths[record]
            yield pack(entry, batch.time_ms(record), length)
            if length > 0:
                at = positions[record]
                yield bytes(data[at : at + length])

    def each(self) -> Iterator[tuple[bytes | None, int, tally.Count]]:
        """Yield each key in the order of arrival, with the time of its first record and its counts."""
        self._keys.seek(0)
        while head := self._keys.read(self._head.size):
            entry, first_ms, length = self._head.unpack(head)
            key = self._keys.read(length) if length >= 0 else None
            yield key, first_ms, tally.read(self.table, entry)


class _Batch:
    """The records of an entry as columns. The next entry uses the same columns."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.header: BatchHeader
        self.data: Buffer = b""
        self._times: list[int] = []

    def open(self, entry: Entry) -> None:
        """Decode an entry; PipelineError if it cannot be read."""
        header, self._times = entry.header, []
        self.header = header
        try:
            if header.magic != MAGIC:
                self._open_messages(entry)
            else:
                self.data, _ = scanned(entry, self.columns)
        except UNREADABLE as error:
            raise PipelineError(f"the batch at offset {header.base_offset} cannot be read: {error}") from None

    def _open_messages(self, entry: Entry) -> None:
        found = list(messages(entry))
        columns, count, at = self.columns, len(found), 0
        columns.reserve(count)
        columns.count = count
        for number, (offset, _, key, _) in enumerate(found):
            columns.offset_delta[number] = offset - self.header.base_offset
            columns.key_position[number], columns.key_length[number] = at, -1 if key is None else len(key)
            at += len(key or b"")
        self.data = b"".join(key or b"" for _, _, key, _ in found)
        self._times = [time_ms for _, time_ms, _, _ in found]

    def time_ms(self, record: int) -> int:
        """Return the time of a record."""
        if self.header.magic != MAGIC:
            return self._times[record]
        if self.header.is_log_append_time:
            return self.header.max_timestamp
        base_ms, delta = self.header.base_timestamp, self.columns.timestamp_delta[record]
        return max(NO_TIMESTAMP, min(base_ms + delta, (1 << 63) - 1))


class _Audit:
    """Audits one partition, for all shares."""

    def __init__(self, read: Read, bounds: Bounds) -> None:
        self._read = read
        self._start, self._end, self._committed = bounds
        self._next = max(bounds.committed, bounds.start)
        self._batch = _Batch()
        self._hashes = bytearray()
        self._secret = secrets.token_bytes(key_hashes.SECRET_BYTES)  # one for all shares
        self._transactions: Transactions | None = None
        self._there = 0  # delivered records and markers that the log still has

    def read_markers(self) -> None:
        """Learn the outcome of each transaction: its marker comes after its records."""
        self._transactions = Transactions()
        for found in self._read(self._start, self._end):
            for entry in found:
                self._transactions.note(entry)
        self._end = min(self._end, self._transactions.first_open)

    def count(self, counted: _Tally, share: Share) -> None:
        """Count the records that were not delivered by key, then find the last delivered record of these keys."""
        left = range(self._next, self._end)
        for entry in self._entries(left):
            if self._is_data(entry.header):
                counted.count(self._batch, self._hashed(entry), left, share)
        self._there = 0
        delivered = range(self._start, self._next)
        for entry in self._entries(delivered):
            header = entry.header
            if not self._is_data(header):
                last, first = min(header.last_offset + 1, self._next), max(header.base_offset, self._start)
                self._there += min(header.record_count, last - first)
                continue
            hashes = self._hashed(entry)
            self._there += tally.deliver(
                counted.table, hashes, self._batch.columns, header.base_offset, delivered
            )

    def _entries(self, offsets: range) -> Iterator[Entry]:
        for found in self._read(offsets.start, offsets.stop):
            for entry in found:
                if entry.header.is_transactional and self._transactions is None:
                    raise _Transactional
                yield entry

    def _is_data(self, header: BatchHeader) -> bool:
        if header.is_control or not header.record_count:
            return False
        return self._transactions is None or not self._transactions.is_aborted(header)

    def _hashed(self, entry: Entry) -> bytearray:
        self._batch.open(entry)
        columns = self._batch.columns
        if len(self._hashes) < columns.count * key_hashes.HASH_BYTES:
            self._hashes = bytearray(columns.count * key_hashes.HASH_BYTES)
        key_hashes.write(self._secret, self._batch.data, columns, self._hashes)
        return self._hashes

    def results(self, counted: _Tally) -> Iterator[Behind]:
        """Yield the counted keys."""
        gone = self._gone()
        for key, first_ms, each in counted.each():
            delivered = each.delivered_offset if each.delivered_offset >= 0 else None
            yield Behind(
                key,
                each.last_offset,
                delivered,
                gone if delivered is None else None,
                each.records,
                first_ms,
            )

    def _gone(self) -> str | None:
        """Return what may have removed delivered records; None if all of them are there."""
        if self._there < self._next - self._start:
            return COMPACTED
        return DELETED if min(self._committed, self._start) > 0 else None
