"""Decodes batches of every format and codec into Arrow columns.

Rows keep the order of the log. Control batches and records outside the window are left out. Keys and values are not
copied one by one: the positions of a column in the buffer become the offsets of an Arrow array whose every second
element is a value and whose others are the bytes in between, and Arrow takes the values from it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipeline.tables import IS_BOUND, READABLE, RECORDS
from tidelog.protocol.records import compression, kernel, legacy, message_set
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader, Buffer
from tidelog.protocol.records.columns import Columns

# Rows of an Arrow batch: the size that Spark takes fastest.
ROWS: Final = 64 << 10
# Room for `ROWS` twice and for a batch; not a power of two, or the processor's cache would hold few columns at a time.
_ROOM: Final = 2 * ROWS + 10_000
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


# The columns that a scan fills, by number.
_OFFSET, _TIME, _KEY, _KEY_LENGTH, _VALUE, _VALUE_LENGTH, _HEADERS, _HEADER_COUNT = range(1, 9)


class _Batch(NamedTuple):
    """A batch whose records have rows. Positions are those in `data`; a length of -1 is null."""

    data: Buffer
    start: int  # where its bytes begin and end in `data`
    end: int
    header: BatchHeader
    append_ms: int
    is_bound: bool  # append_ms is an upper bound
    row_count: int
    base_offset: int  # offsets and times of the rows count from these
    base_time: int


class Decoder:
    """Turns the entries of one partition, in order, into Arrow batches."""

    def __init__(self, topic: str, partition: int, names: Sequence[str], window: Window) -> None:
        """Make the named columns of `READABLE`, in that order."""
        self.schema = pa.schema([READABLE.field(name) for name in names])
        self._topic = topic
        self._partition = partition
        self._window = window
        self._columns = Columns(_ROOM)
        self._batches: list[_Batch] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the caller must take the rows before it adds more."""
        # At `ROWS` a few rows of a buffer would often be left, and would be joined with all of the next one.
        return self._columns.count >= 2 * ROWS or self._bytes >= HELD_BYTES

    def should_take_before(self, data: Buffer) -> bool:
        """Return whether to take the rows before rows of another buffer are added: joining buffers costs a copy."""
        if self._bytes < COPIED_BYTES:
            return False
        first, last = self._batches[0].data, self._batches[-1].data
        return first is last and last is not data

    def add(
        self, data: Buffer, position: int, header: BatchHeader, append_ms: int, is_bound: bool = False
    ) -> None:
        """Add the records of an entry with a correct checksum; RecordsError, RecordError if they cannot be decoded.

        They were appended at `append_ms`; if `is_bound`, at that time or earlier.
        """
        wanted = self._window.append
        if wanted is not None and not wanted[0] <= append_ms < wanted[1]:
            return
        columns = self._columns
        first, base_offset, base_time = columns.count, 0, 0
        held = data
        if header.magic != MAGIC:
            held = self._scan_legacy(data, position, header)
        elif not header.is_control:
            base_offset = header.base_offset
            base_time = header.max_timestamp if header.is_log_append_time else header.base_timestamp
            held = self._scan(data, position, header)
        count = columns.count - first
        if count:
            if not self._batches or self._batches[-1].data is not held:
                self._bytes += len(held)
            start, end = (position, position + header.size_bytes) if held is data else (0, len(held))
            self._batches.append(
                _Batch(held, start, end, header, append_ms, is_bound, count, base_offset, base_time)
            )

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows added since the last call, about `ROWS` at a time."""
        batches, self._batches, self._bytes = self._batches, [], 0
        if not batches:
            return
        rows = self._rows(0)
        self._columns.count = 0
        made = self._made(batches, rows)
        count = made.num_rows
        # Slices of equal size: a batch of a few left-over rows costs Spark as much as one of ten thousand.
        size = max(1, -(-count // max(1, round(count / ROWS))))
        for first in range(0, count, size):
            yield made.slice(first, size)

    def _scan(self, data: Buffer, position: int, header: BatchHeader) -> Buffer:
        """Add the rows of a batch, unless none is in the window of times; return what their positions refer to."""
        columns, wanted, is_stamped = self._columns, self._window.create, header.is_log_append_time
        if wanted is not None and is_stamped and not wanted[0] <= header.max_timestamp < wanted[1]:
            return data
        start, end = position + HEADER_BYTES, position + header.size_bytes
        if header.codec:
            data = compression.decompress(header.codec, memoryview(data)[start:end], BATCH_BYTES_MAX)
            start, end = 0, len(data)
        first, base = columns.count, header.base_timestamp
        latest, _, earliest = kernel.scan(
            data, start, end, header.record_count, columns, contiguous=False, row=first
        )
        if is_stamped:
            self._rows(first)[_TIME] = 0
        elif wanted is not None and (base + latest < wanted[0] or base + earliest >= wanted[1]):
            columns.count = first
        return data

    def _scan_legacy(self, data: Buffer, position: int, header: BatchHeader) -> Buffer:
        """Add the rows of an entry of an older format; return what their positions refer to."""
        entry = legacy.read_entry(data, position, position + header.size_bytes)
        found = list(message_set.messages(data, entry, BATCH_BYTES_MAX))
        parts = [part for _, _, key, value in found for part in (key, value)]
        lengths = np.array([-1 if part is None else len(part) for part in parts], np.int64)
        positions = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))[:-1])).astype(np.int64)
        columns = self._columns
        first, end = columns.count, columns.count + len(found)
        columns.reserve(end, first)
        columns.count = end
        rows = self._rows(first)
        rows[_OFFSET] = [offset for offset, *_ in found]
        rows[_TIME] = [time for _, time, *_ in found]
        rows[_KEY], rows[_VALUE] = positions[::2], positions[1::2]
        rows[_KEY_LENGTH], rows[_VALUE_LENGTH] = lengths[::2], lengths[1::2]
        rows[_HEADERS] = rows[_HEADER_COUNT] = 0
        return b"".join(filter(None, parts))

    def _rows(self, first: int) -> Numbers:
        """Return the rows from one on, as an array of the columns."""
        return np.frombuffer(self._columns.block, np.int64).reshape(9, -1)[:, first : self._columns.count]

    def _made(self, batches: list[_Batch], rows: Numbers) -> pa.RecordBatch:
        """Return the rows in the window."""
        numbers = np.repeat(np.arange(len(batches)), [each.row_count for each in batches])
        offsets = rows[_OFFSET] + _spread(batches, numbers, lambda each: each.base_offset)
        times = rows[_TIME] + _spread(batches, numbers, lambda each: each.base_time)
        start, end, create, _ = self._window
        if create is not None or offsets.min() < start or offsets.max() >= end:
            is_wanted = (offsets >= start) & (offsets < end)
            if create is not None:
                is_wanted &= (times >= create[0]) & (times < create[1])
            rows, numbers = rows[:, is_wanted], numbers[is_wanted]
            offsets, times = offsets[is_wanted], times[is_wanted]
        data, shifts = _joined(batches)
        if shifts.any():
            rows[[_KEY, _VALUE, _HEADERS]] += shifts[numbers]

        def of_batches(value: Callable[[_Batch], Any], kind: Any = np.int64) -> Any:
            return _spread(batches, numbers, value, kind)

        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(pa.scalar(self._topic), len(offsets)),
            "partition": lambda: pa.array(np.full(len(offsets), self._partition, np.int32)),
            "offset": lambda: pa.array(offsets),
            "create_time": lambda: _timestamps(times),
            "append_time": lambda: _timestamps(of_batches(lambda each: each.append_ms)),
            "timestamp_type": lambda: _TYPES.take(pa.array(of_batches(_timestamp_type, np.int8))),
            "key": lambda: _gathered(data, rows[_KEY], rows[_KEY_LENGTH]),
            "value": lambda: _gathered(data, rows[_VALUE], rows[_VALUE_LENGTH]),
            "headers": lambda: _headers(data, rows[_HEADERS], rows[_HEADER_COUNT]),
            "producer_id": lambda: pa.array(of_batches(lambda each: each.header.producer_id)),
            "batch_base": lambda: pa.array(of_batches(lambda each: each.header.base_offset)),
            "leader_epoch": lambda: pa.array(of_batches(lambda each: each.header.leader_epoch, np.int32)),
            IS_BOUND: lambda: pa.array(of_batches(lambda each: each.is_bound, np.bool_)),
        }
        return pa.record_batch([makers[field.name]() for field in self.schema], schema=self.schema)


def _spread(
    batches: list[_Batch], numbers: Numbers, value: Callable[[_Batch], Any], kind: Any = np.int64
) -> Any:
    """Return for each row the value of its batch."""
    return np.array([value(each) for each in batches], kind)[numbers]


def _joined(batches: list[_Batch]) -> tuple[Buffer, Numbers]:
    """Join the bytes of batches in their order; return the result, and how far the positions of each batch move."""
    first = batches[0].data
    if all(each.data is first for each in batches):
        return first, np.zeros(len(batches), np.int64)
    pieces: list[memoryview] = []
    shifts: list[int] = []
    size = 0
    for _, group in groupby(batches, lambda each: id(each.data)):
        run = list(group)
        start, end = run[0].start, run[-1].end
        pieces.append(memoryview(run[0].data)[start:end])
        shifts += [size - start] * len(run)
        size += end - start
    return b"".join(pieces), np.array(shifts, np.int64)


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


def _timestamp_type(batch: _Batch) -> int:
    """Return the index of the timestamp type in `_TYPES`."""
    return 0 if batch.header.magic == 0 else 2 if batch.header.is_log_append_time else 1


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
