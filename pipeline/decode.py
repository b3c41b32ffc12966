"""Decodes batches of every format and codec into Arrow columns.

Rows keep the order of the log. Control batches and records outside the window are left out. Keys and values are not
copied one by one: the positions of a column in the buffer become the offsets of an Arrow array whose every second
element is a value and whose others are the bytes in between, and Arrow takes the values from it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipeline.tables import IS_BOUND, READABLE, RECORDS
from tidelog.protocol.records import compression, kernel, legacy, message_set
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader, Buffer
from tidelog.protocol.records.columns import Columns

# Rows of an Arrow batch: the size that Spark takes fastest.
ROWS: Final = 64 << 10
# Bytes of batches that are held before rows are made; a larger batch is held alone.
HELD_BYTES: Final = 64 << 20
# From this size on, to copy a buffer costs more than another Arrow batch does.
COPIED_BYTES: Final = 1 << 20
# The largest decompressed batch: positions have 32 bits.
BATCH_BYTES_MAX: Final = 1 << 30
_US: Final = 1000
_LARGEST_MS: Final = (1 << 63) // _US - 1
OFFSET_MAX: Final = (1 << 63) - 1

_TYPES: Final = pa.array(["NoTimestampType", "CreateTime", "LogAppendTime"])

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Window(NamedTuple):
    """The records to read: ranges of offsets and times, each with an exclusive end."""

    start: int = 0
    end: int = OFFSET_MAX
    create: tuple[int, int] | None = None
    append: tuple[int, int] | None = None


# The rows of a table of records: offset, time, and the positions and lengths of the parts.
_OFFSET, _TIME, _KEY, _KEY_LENGTH, _VALUE, _VALUE_LENGTH, _HEADERS, _HEADER_COUNT = range(8)


class _Rows(NamedTuple):
    """Records of one batch. Positions are those in `data`; a length of -1 is null."""

    data: Buffer
    header: BatchHeader
    append_ms: int
    is_bound: bool  # append_ms is an upper bound
    table: Numbers  # a row for each constant above


class Decoder:
    """Turns the entries of one partition, in order, into Arrow batches."""

    def __init__(self, topic: str, partition: int, names: Sequence[str], window: Window) -> None:
        """Make the named columns of `READABLE`, in that order."""
        self.schema = pa.schema([READABLE.field(name) for name in names])
        self._topic = topic
        self._partition = partition
        self._window = window
        self._columns = Columns()
        self._pending: list[_Rows] = []
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the caller must take the rows before it adds more."""
        # At `ROWS` a few rows of a buffer would often be left, and would be joined with all of the next one.
        return self._count >= 2 * ROWS or self._bytes >= HELD_BYTES

    def should_take_before(self, data: Buffer) -> bool:
        """Return whether to take the rows before rows of another buffer are added: joining buffers costs a copy."""
        if self._bytes < COPIED_BYTES:
            return False
        first, last = self._pending[0].data, self._pending[-1].data
        return first is last and last is not data

    def add(
        self, data: Buffer, position: int, header: BatchHeader, append_ms: int, is_bound: bool = False
    ) -> None:
        """Add the records of an entry with a correct checksum; RecordsError, RecordError if they cannot be decoded.

        They were appended at `append_ms`; if `is_bound`, at that time or earlier.
        """
        if header.magic != MAGIC:
            self._add_legacy(data, position, header, append_ms, is_bound)
        elif not header.is_control:
            self._add_batch(data, position, header, append_ms, is_bound)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows added since the last call, about `ROWS` at a time."""
        pending, self._pending = self._pending, []
        count, self._count, self._bytes = self._count, 0, 0
        if not count:
            return
        made = pa.record_batch(
            _arrays(self.schema, pending, self._topic, self._partition), schema=self.schema
        )
        # Slices of equal size: a batch of a few left-over rows costs Spark as much as one of ten thousand.
        size = -(-count // max(1, round(count / ROWS)))
        for first in range(0, count, size):
            yield made.slice(first, size)

    def _add_batch(
        self, data: Buffer, position: int, header: BatchHeader, append_ms: int, is_bound: bool
    ) -> None:
        if header.is_log_append_time and not self._is_in_time(header.max_timestamp):
            return
        start, end = position + HEADER_BYTES, position + header.size_bytes
        if header.codec:
            data = compression.decompress(header.codec, memoryview(data)[start:end], BATCH_BYTES_MAX)
            start, end = 0, len(data)
        columns = self._columns
        kernel.scan(data, start, end, header.record_count, columns, contiguous=False)
        # Copied, because the next batch uses the same columns.
        table = np.frombuffer(columns.block, np.int64).reshape(9, -1)[1:, : columns.count].copy()
        table[_OFFSET] += header.base_offset
        if header.is_log_append_time:
            table[_TIME] = header.max_timestamp
        else:
            table[_TIME] += header.base_timestamp
        self._keep(_Rows(data, header, append_ms, is_bound, table))

    def _add_legacy(
        self, data: Buffer, position: int, header: BatchHeader, append_ms: int, is_bound: bool
    ) -> None:
        entry = legacy.read_entry(data, position, position + header.size_bytes)
        found = list(message_set.messages(data, entry, BATCH_BYTES_MAX))
        parts = [part for _, _, key, value in found for part in (key, value)]
        lengths = np.array([-1 if part is None else len(part) for part in parts], np.int64)
        positions = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))[:-1])).astype(np.int64)
        table = np.zeros((8, len(found)), np.int64)
        table[_OFFSET] = [offset for offset, *_ in found]
        table[_TIME] = [time for _, time, *_ in found]
        table[_KEY], table[_VALUE] = positions[::2], positions[1::2]
        table[_KEY_LENGTH], table[_VALUE_LENGTH] = lengths[::2], lengths[1::2]
        self._keep(_Rows(b"".join(filter(None, parts)), header, append_ms, is_bound, table))

    def _is_in_time(self, time_ms: int) -> bool:
        wanted = self._window.create
        return wanted is None or wanted[0] <= time_ms < wanted[1]

    def _keep(self, rows: _Rows) -> None:
        """Keep the rows in the window."""
        window, table = self._window, rows.table
        if not table.size:
            return
        if window.append is not None and not window.append[0] <= rows.append_ms < window.append[1]:
            return
        offsets, times = table[_OFFSET], table[_TIME]
        if offsets[0] < window.start or offsets[-1] >= window.end:
            table = table[:, (offsets >= window.start) & (offsets < window.end)]
            times = table[_TIME]
        if window.create is not None:
            table = table[:, (times >= window.create[0]) & (times < window.create[1])]
        if table.size:
            if not self._pending or self._pending[-1].data is not rows.data:
                self._bytes += len(rows.data)
            self._pending.append(rows if table is rows.table else rows._replace(table=table))
            self._count += table.shape[1]


def _arrays(schema: pa.Schema, pending: list[_Rows], topic: str, partition: int) -> list[pa.Array]:
    counts = [rows.table.shape[1] for rows in pending]
    data, shifts = _joined(pending)
    table = np.concatenate([rows.table for rows in pending], axis=1)
    if shifts.any():
        table[[_KEY, _VALUE, _HEADERS]] += np.repeat(shifts, counts)

    def of_batches(value: Callable[[_Rows], Any], kind: Any) -> Any:
        return np.repeat(np.array([value(rows) for rows in pending], kind), counts)

    makers: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: pa.repeat(pa.scalar(topic), sum(counts)),
        "partition": lambda: pa.array(np.full(sum(counts), partition, np.int32)),
        "offset": lambda: pa.array(table[_OFFSET]),
        "create_time": lambda: _timestamps(table[_TIME]),
        "append_time": lambda: _timestamps(of_batches(lambda rows: rows.append_ms, np.int64)),
        "timestamp_type": lambda: _TYPES.take(pa.array(of_batches(_timestamp_type, np.int8))),
        "key": lambda: _gathered(data, table[_KEY], table[_KEY_LENGTH]),
        "value": lambda: _gathered(data, table[_VALUE], table[_VALUE_LENGTH]),
        "headers": lambda: _headers(data, table[_HEADERS], table[_HEADER_COUNT]),
        "producer_id": lambda: pa.array(of_batches(lambda rows: rows.header.producer_id, np.int64)),
        "batch_base": lambda: pa.array(of_batches(lambda rows: rows.header.base_offset, np.int64)),
        "leader_epoch": lambda: pa.array(of_batches(lambda rows: rows.header.leader_epoch, np.int32)),
        IS_BOUND: lambda: pa.array(of_batches(lambda rows: rows.is_bound, np.bool_)),
    }
    return [makers[field.name]() for field in schema]


def _joined(pending: list[_Rows]) -> tuple[Buffer, Numbers]:
    """Join the buffers of the rows; return the result, and the position in it of each one's buffer."""
    first = pending[0].data
    if all(rows.data is first for rows in pending):
        return first, np.zeros(len(pending), np.int64)
    pieces: list[Buffer] = []
    starts: dict[int, int] = {}
    end = 0
    for rows in pending:
        if id(rows.data) not in starts:
            starts[id(rows.data)] = end
            pieces.append(rows.data)
            end += len(rows.data)
    return b"".join(pieces), np.array([starts[id(rows.data)] for rows in pending], np.int64)


def timestamps(times_ms: Sequence[int | None]) -> pa.Array:
    """Return a column of times in ms; None becomes null."""
    return _timestamps(np.array([NO_TIMESTAMP if each is None else each for each in times_ms], np.int64))


def _timestamps(times_ms: Numbers) -> pa.Array:
    """Return a column of times: NO_TIMESTAMP becomes null, and times after the year 294247 its end."""
    if len(times_ms) and (times_ms.max() > _LARGEST_MS or times_ms.min() < -_LARGEST_MS):
        times_ms = np.clip(times_ms, -_LARGEST_MS, _LARGEST_MS)
    unknown = times_ms == NO_TIMESTAMP
    return pa.array(
        (times_ms * _US).view("M8[us]"), pa.timestamp("us", "UTC"), mask=unknown if unknown.any() else None
    )


def _timestamp_type(rows: _Rows) -> int:
    """Return the index of the timestamp type in `_TYPES`."""
    return 0 if rows.header.magic == 0 else 2 if rows.header.is_log_append_time else 1


def _gathered(data: Buffer, positions: Numbers, lengths: Numbers) -> pa.Array:
    """Return a column of the bytes at increasing positions; null where the length is negative."""
    count = len(positions)
    edges = np.empty(2 * count + 1, np.int32)
    is_null = lengths < 0
    has_null = bool(is_null.any())
    edges[0:-1:2] = positions
    edges[1::2] = positions + (np.maximum(lengths, 0) if has_null else lengths)
    edges[-1] = edges[-2] if count else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    numbers = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=is_null if has_null else None)
    return every.take(numbers)


def _headers(data: Buffer, positions: Numbers, counts: Numbers) -> pa.Array:
    """Return a column of the headers of records; positions are those of their counts."""
    kind = RECORDS.field("headers").type
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    found = bytearray(4 * 8 * int(edges[-1]))
    # Rows that a window has cut out need not lie one after another.
    starts, numbers = np.ascontiguousarray(positions), np.ascontiguousarray(counts)
    kernel.find_headers(data, starts.data, numbers.data, found)
    names, name_lengths, values, value_lengths = np.frombuffer(found, np.int64).reshape(4, edges[-1])
    items = pa.StructArray.from_arrays(
        [_text(_gathered(data, names, name_lengths)), _gathered(data, values, value_lengths)],
        fields=list(kind.value_type),
    )
    return pa.ListArray.from_arrays(edges, items, type=kind)


def _text(octets: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as strings; bytes that are not UTF-8 become U+FFFD."""
    strings = octets.view(pa.string())
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([each.decode("utf-8", "replace") for each in octets.to_pylist()], pa.string())
    return strings
