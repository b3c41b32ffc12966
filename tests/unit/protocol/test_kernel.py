"""The record kernel, compiled and interpreted: what it finds, what it refuses, and where."""

import gc
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import batch_of, plain_record, record_bytes, some_records, varint
from tests.support.kernels import BOTH, INTERPRETED
from tests.support.messages import message, shifted, some
from tidelog.protocol.records.batch import HEADER_BYTES, MAX_TIMESTAMP_POSITION, PREFIX_BYTES
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set, entries

pytestmark = pytest.mark.parametrize("kernel", BOTH, ids=["installed", "interpreted"])

NONE = varint(-1)
ZERO = varint(0)


def scan(kernel: Any, data: bytes, count: int = 1, contiguous: bool = True) -> Any:
    return kernel.scan(data, 0, len(data), count, None, contiguous)


def refusal(kernel: Any, data: bytes, count: int = 1) -> str:
    with pytest.raises(kernel.RecordError) as caught:
        scan(kernel, data, count)
    return str(caught.value)


def test_scan_of_nothing(kernel: Any) -> None:
    assert scan(kernel, b"", 0) == (0, -1, 0)


def test_columns_say_where_everything_is(kernel: Any) -> None:
    first = record_bytes(varint(3), varint(0), varint(2), b"kk", varint(1), b"v", ZERO)
    header = varint(1) + b"h" + NONE
    second = record_bytes(varint(-70_000), varint(1), NONE, NONE, varint(1), header)
    data = b"...." + first + second
    columns = kernel.Columns()
    assert kernel.scan(data, 4, len(data), 2, columns) == (3, 0, -70_000)
    assert columns.count == 2
    assert list(columns.start[:2]) == [4, 4 + len(first)]
    assert list(columns.offset_delta[:2]) == [0, 1]
    assert list(columns.timestamp_delta[:2]) == [3, -70_000]
    key, value = columns.key_position[0], columns.value_position[0]
    assert data[key : key + columns.key_length[0]] == b"kk"
    assert data[value : value + columns.value_length[0]] == b"v"
    assert (columns.key_length[1], columns.value_length[1]) == (-1, -1)
    assert data[columns.headers_position[1] :] == varint(1) + header
    assert list(columns.headers_count[:2]) == [0, 1]


def test_S79_an_empty_key_is_not_a_null_key(kernel: Any) -> None:
    data = record_bytes(ZERO, ZERO, ZERO, ZERO, ZERO) + record_bytes(ZERO, varint(1), NONE, NONE, ZERO)
    columns = kernel.Columns()
    kernel.scan(data, 0, len(data), 2, columns)
    assert list(columns.key_length[:2]) == [0, -1]
    assert list(columns.value_length[:2]) == [0, -1]


def test_columns_are_reused_and_grow(kernel: Any) -> None:
    columns = kernel.Columns(1)
    block = columns.block
    kernel.scan(plain_record(), 0, 8, 1, columns)
    assert columns.block is block
    data = b"".join(plain_record(index, index) for index in range(100))
    kernel.scan(data, 0, len(data), 100, columns)
    assert list(columns.timestamp_delta[:100]) == list(range(100))
    kernel.scan(plain_record(), 0, 8, 1, columns)
    assert columns.count == 1


def test_rows_are_added_after_others(kernel: Any) -> None:
    columns = kernel.Columns(2)
    data = b"".join(plain_record(index, 10 + index) for index in range(3))
    kernel.scan(data, 0, 8, 1, columns)
    kernel.scan(data, 0, 16, 2, columns, row=1)  # more than there is room for
    assert columns.count == 3
    assert list(columns.timestamp_delta[:3]) == [10, 10, 11]
    assert list(columns.value_length[:3]) == [columns.value_length[0]] * 3
    with pytest.raises(kernel.RecordError):
        kernel.scan(data, 0, 17, 2, columns, row=2)
    assert columns.count == 2
    assert list(columns.timestamp_delta[:2]) == [10, 10]


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_are_added_only_after_others(kernel: Any, row: int) -> None:
    columns = kernel.Columns(2)
    with pytest.raises(ValueError, match=f"row {row} of 2"):
        kernel.scan(plain_record(), 0, 8, 1, columns, row=row)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: array("B", data)])
def test_any_flat_buffer_can_be_scanned(kernel: Any, wrap: Any) -> None:
    assert scan(kernel, wrap(plain_record(timestamp_delta=2)), 1) == (2, 0, 2)


def test_gaps_are_for_those_who_ask(kernel: Any) -> None:
    data = plain_record(3) + plain_record(7)
    assert "record 0" in refusal(kernel, data, 2)
    assert scan(kernel, data, 2, contiguous=False) == (0, 0, 0)
    with pytest.raises(kernel.RecordError, match="does not follow"):
        scan(kernel, plain_record(3) + plain_record(3), 2, contiguous=False)
    with pytest.raises(kernel.RecordError, match="does not follow"):
        scan(kernel, plain_record(-1), 1, contiguous=False)


HEADER = varint(1) + b"h" + varint(1) + b"v"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x80\x80\x80\x10" + b"\0" * 20, "length"),  # five bytes, beyond an int32
        (b"\xff" * 30, "length"),
        (varint(-7) + b"\0" * 9, "length"),
        (varint(5) + b"\0" * 9, "length"),
        (varint(30) + b"\0" * 9, "length"),
        (varint(2**31 - 1) + b"\0" * 9, "length"),
        (record_bytes(b"\xff" * 9 + b"\x02", ZERO, NONE, NONE, ZERO), "timestamp delta"),  # beyond an int64
        (record_bytes(b"\xff" * 20), "timestamp delta"),
        (record_bytes(ZERO, b"\xff" * 12), "offset delta"),
        (record_bytes(ZERO, varint(1), NONE, NONE, ZERO), "does not follow"),
        (record_bytes(ZERO, varint(-1), NONE, NONE, ZERO), "does not follow"),
        (record_bytes(ZERO, ZERO, varint(-2), NONE, ZERO), "key length"),
        (record_bytes(ZERO, ZERO, varint(50), NONE, ZERO), "key length"),
        (record_bytes(ZERO, ZERO, varint(2**31 - 1), NONE, ZERO), "key length"),
        (record_bytes(ZERO, ZERO, NONE, varint(-2), ZERO), "value length"),
        (record_bytes(ZERO, ZERO, NONE, varint(50), ZERO), "value length"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(-1)), "headers"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(9), HEADER), "headers"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(2**31 - 1), HEADER), "headers"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(1), NONE, NONE), "headers"),  # a header has a name
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(1), ZERO, varint(-2)), "headers"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(1), ZERO, varint(9)), "headers"),
        (record_bytes(ZERO, ZERO, NONE, NONE, ZERO, b"\0"), "add up"),
        (record_bytes(ZERO, ZERO, NONE, NONE, ZERO) + b"\0", "left over"),
        (record_bytes(ZERO, ZERO, NONE, NONE, varint(1), HEADER, b"\0\0"), "add up"),
    ],
)
def test_a_wrong_record_is_refused_and_named(kernel: Any, data: bytes, reason: str) -> None:
    assert reason in refusal(kernel, data)
    # The same behind a record that is right, and far from the end of the data.
    behind = refusal(kernel, plain_record(0) + data + b"\0" * 64, 2)
    assert "record 1 at position 8" in behind or "record 2" in behind


def found_headers(kernel: Any, data: bytes, positions: list[int], counts: list[int], room: int) -> list[Any]:
    """Return position and length of name and value of each header."""
    out = array("q", bytes(4 * 8 * room))
    kernel.find_headers(data, array("q", positions), array("q", counts), out)
    return list(zip(*(out[part * room : (part + 1) * room] for part in range(4)), strict=True))


def test_headers_are_found(kernel: Any) -> None:
    name, value = b"n" * 70, b"v" * 9000
    first = varint(2) + varint(1) + b"h" + NONE + varint(70) + name + varint(9000) + value
    data = b".." + first + varint(0) + varint(1) + ZERO + ZERO
    last = 2 + len(first) + 1
    found = found_headers(kernel, data, [2, 0, 2 + len(first), last], [2, 0, 0, 1], 3)
    assert found == [(4, 1, 6, -1), (8, 70, 81, 9000), (last + 2, 0, last + 3, 0)]
    assert (data[8:78], data[81:9081]) == (name, value)
    assert found_headers(kernel, b"", [], [], 0) == []


@pytest.mark.parametrize(
    ("data", "position", "count"),
    [
        (varint(1) + HEADER, -1, 1),
        (varint(1) + HEADER, 6, 1),
        (varint(1) + HEADER, 2**40, 1),
        (varint(1) + HEADER, 5, 1),  # the end
        (varint(2) + HEADER, 0, 1),
        (varint(2) + HEADER, 0, 2),
        (varint(-1) + HEADER, 0, 1),
        (varint(1) + HEADER[:-1], 0, 1),
        (varint(1) + varint(-1) + HEADER, 0, 1),
        (varint(1) + varint(2**31 - 1) + HEADER, 0, 1),
        (varint(1) + ZERO + varint(-2), 0, 1),
        (varint(1) + ZERO + varint(2**31 - 1), 0, 1),
        (varint(1) + b"\xff" * 9, 0, 1),
    ],
)
def test_headers_are_not_read_where_there_are_none(
    kernel: Any, data: bytes, position: int, count: int
) -> None:
    right = varint(1) + HEADER
    with pytest.raises(kernel.RecordError, match="record 1: its headers are wrong"):
        found_headers(kernel, right + data, [0, len(right) + position], [1, count], 9)


@pytest.mark.parametrize("room", [0, 1, 3])
def test_headers_that_do_not_fill_the_columns_are_refused(kernel: Any, room: int) -> None:
    data = varint(2) + HEADER + HEADER
    with pytest.raises(ValueError, match=f"room for {room} headers"):
        found_headers(kernel, data, [0], [2], room)
    with pytest.raises(ValueError, match="2 positions of headers and 1 counts"):
        found_headers(kernel, data, [0, 0], [2], 2)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_any_walk(kernel: Any) -> None:
    data = plain_record()
    for count in (-1, 2, 2**31 - 1):
        assert "cannot lie" in refusal(kernel, data, count)
    columns = kernel.Columns()
    with pytest.raises(kernel.RecordError):
        kernel.scan(data, 0, len(data), 2**31 - 1, columns)
    assert columns.capacity == 0


@pytest.mark.parametrize(("position", "end"), [(-1, 8), (0, 9), (4, 2), (-(2**40), 2**40), (0, 2**40)])
def test_nothing_beyond_the_data_is_read(kernel: Any, position: int, end: int) -> None:
    with pytest.raises(kernel.RecordError):
        kernel.scan(plain_record(), position, end, 1)
    if position <= 0:
        with pytest.raises(kernel.RecordError):
            kernel.find_batch(plain_record(), position, end, 0)


def test_a_long_walk_lets_other_threads_run(kernel: Any) -> None:
    if not kernel.COMPILED:
        pytest.skip("an interpreted walk gives way as all Python does")
    count = 200_000
    data = batch_of(b"".join(plain_record(index) for index in range(count)), count=count)
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for _ in range(50):
            start = time.perf_counter()
            kernel.scan(data, HEADER_BYTES, len(data), count)
            end = time.perf_counter()
            if any(start < at < end for at in list(ticks)):
                break
        else:
            pytest.fail("no other thread ran during a walk")
    finally:
        done.set()
        thread.join()


def test_S35_find_record_finds_the_first_at_a_time_and_an_offset(kernel: Any) -> None:
    data = b"..." + b"".join(plain_record(index, delta) for index, delta in enumerate((100, 200, 120, 300)))

    def find(timestamp: int, offset: int, count: int = 4) -> Any:
        end = len(data) if count == 4 else 3 + len(data[3:]) // 4 * count
        return kernel.find_record(data, 0, end, count, timestamp, offset, kernel.Cut(0, 3, 0))

    assert find(150, 0) == (200, 1)
    assert find(150, 2) == (300, 3)
    assert find(301, 0) is None
    assert find(300, 0, 0) is None
    assert find(-5, 0) == (100, 0)
    # A time far from the batch's own is further from its base than an int64 reaches.
    assert find(2**63, 0) is None
    assert find(-(2**64), -(2**64)) == (100, 0)
    assert find(0, 2**64) is None


def test_find_record_looks_at_nothing_behind_what_it_finds(kernel: Any) -> None:
    data = plain_record(0, 100) + plain_record(1, 200)
    first = kernel.Cut(0, 0, 0)
    assert kernel.find_record(data + b"\xff", 0, len(data) + 1, 3, 200, 0, first) == (200, 1)
    with pytest.raises(kernel.RecordError, match="record 2 at position"):
        kernel.find_record(data + b"\xff", 0, len(data) + 1, 3, 201, 0, first)
    with pytest.raises(kernel.RecordError, match="left over"):
        kernel.find_record(data, 0, len(data), 1, 201, 0, first)
    for position in (-1, len(data) + 1):
        with pytest.raises(kernel.RecordError, match="the data ends here"):
            kernel.find_record(data, 0, len(data) + 2, 3, 201, 0, kernel.Cut(0, position, 0))


def test_find_record_goes_on_where_a_part_ends(kernel: Any) -> None:
    one, other = plain_record(0, 100), plain_record(1, 200)
    data, end = one + other, len(one + other)
    for size in range(end):
        start = kernel.Cut(0, 0, 0)
        cut = kernel.find_record(data[:size], 0, end, 2, 150, 0, start)
        assert cut == (start if size < len(one) else (1, len(one), 1))
        assert kernel.find_record(data[cut.position :], cut.position, end, 2, 150, 0, cut) == (200, 1)
        assert kernel.find_record(data[cut.position :], cut.position, end, 2, 201, 0, cut) is None
    cut = kernel.Cut(1, len(one), 1)
    with pytest.raises(kernel.RecordError, match=f"record 2 at position {end}: its length"):
        kernel.find_record(other, len(one), end, 3, 201, 0, cut)
    with pytest.raises(kernel.RecordError, match=r"record 1 at position .*does not follow"):
        kernel.find_record(one, len(one), end, 2, 201, 0, cut)
    # All the records are there, and yet there is more.
    with pytest.raises(kernel.RecordError, match="left over"):
        kernel.find_record(one, 0, end, 1, 201, 0, kernel.Cut(0, 0, 0))


def packed(size: int, *values: int) -> bytes:
    return b"".join(value.to_bytes(size, "big", signed=True) for value in values)


def test_times_gives_the_largest_up_to_each_record(kernel: Any) -> None:
    deltas = [-5, -7, 2, 1, 2, 9]
    data = b"".join(plain_record(index, delta) for index, delta in enumerate(deltas))
    for size in range(1, 9):
        entries = kernel.times(data, 0, len(data), 6, size, 0)
        assert entries == (packed(size, -5, -5, 2, 2, 2, 9), size, 0)
        assert kernel.find_entry(entries[0], size, size, 3) == (5, 9, 0)
        assert kernel.find_entry(b"??" + entries[0], size, size, 3, 2) == (5, 9, 0)
    gaps = plain_record(1, 3) + plain_record(4, 1)
    assert kernel.times(gaps, 0, len(gaps), 2, 1, 4) == (b"\3\0\0\0\1\3\0\0\0\4", 1, 4)
    assert kernel.times(b"", 0, 0, 0, 1, 0) == (b"", 1, 0)
    for count in (3, 2**40):
        with pytest.raises(kernel.RecordError):
            kernel.times(gaps, 0, len(gaps), count, 1, 0)
    backwards = plain_record(1, 3) + plain_record(0, 1)
    with pytest.raises(kernel.RecordError, match="does not follow"):
        kernel.times(backwards, 0, len(backwards), 2, 1, 4)
    with pytest.raises(kernel.RecordError, match="the data ends here"):
        kernel.times(gaps, 0, len(gaps) + 1, 2, 1, 4)
    for sizes in ((0, 0), (9, 0), (1, 1)):
        with pytest.raises(ValueError, match="a time of"):
            kernel.times(gaps, 0, len(gaps), 2, *sizes)


def test_scan_times_scans_and_lists_times(kernel: Any) -> None:
    deltas = [-5, -7, 2, 1, 128, 9]
    data = b"".join(plain_record(index, delta) for index, delta in enumerate(deltas))
    assert kernel.scan_times(data, 0, len(data), 6, 1) == (128, 4, -7, None)
    for size in range(2, 9):
        listed = packed(size, -5, -5, 2, 2, 128, 128)
        assert kernel.scan_times(data, 0, len(data), 6, size) == (128, 4, -7, listed)
    assert kernel.scan_times(b"", 0, 0, 0, 1) == (0, -1, 0, b"")
    low = plain_record(0, -128) + plain_record(1, -129)
    assert kernel.scan_times(low, 0, len(low), 2, 1) == (-128, 0, -129, b"\x80\x80")
    low = plain_record(0, -129) + plain_record(1, -128)
    assert kernel.scan_times(low, 0, len(low), 2, 1) == (-128, 1, -129, None)
    with pytest.raises(kernel.RecordError, match="does not follow"):
        kernel.scan_times(plain_record(1), 0, len(plain_record(1)), 1, 1)
    with pytest.raises(kernel.RecordError, match="cannot lie"):
        kernel.scan_times(data, 0, len(data), 2**40, 1)
    for size in (0, 9):
        with pytest.raises(ValueError, match="a time of"):
            kernel.scan_times(data, 0, len(data), 6, size)


@pytest.mark.parametrize("delta", [127, -128, 128, -129, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
def test_times_takes_more_room_where_something_does_not_fit(kernel: Any, delta: int) -> None:
    data = plain_record(0, delta)
    size = next(size for size in (1, 4, 8) if -(1 << (8 * size - 1)) <= delta < 1 << (8 * size - 1))
    assert kernel.times(data, 0, len(data), 1, size, 0) == (packed(size, delta), size, 0)
    if size > 1:
        widest = packed(8, delta) + bytes(4)
        assert kernel.times(data, 0, len(data), 1, 1, 0) == (widest, 8, 4)
    gap = plain_record(3, 1)
    assert kernel.times(gap, 0, len(gap), 1, 1, 0) == (packed(8, 1) + b"\0\0\0\3", 8, 4)


def test_find_entry_looks_behind_the_start_only(kernel: Any) -> None:
    assert kernel.find_entry(b"\0\0\1", 1, 1, 1, 2) == (0, 1, 0)
    assert kernel.find_entry(b"\0\0\1", 1, 1, 2, 2) == (1, -1, -1)
    assert kernel.find_entry(b"\0\0\1", 1, 1, 0, 7) == (0, -1, -1)
    with pytest.raises(ValueError, match="position -1"):
        kernel.find_entry(b"\0", 1, 1, 0, -1)


def log_of(*bases: int) -> bytes:
    """Three records a batch."""
    return b"".join(
        build_batch([Record(base + index, base * 10 + index, None, b"v") for index in range(3)])
        for base in bases
    )


def test_find_batch_that_ends_first_says_where_to_read_on(kernel: Any) -> None:
    data = log_of(0, 3, 6)
    size = len(data) // 3
    assert kernel.find_batch(data, 0, len(data), 9) == (3 * size, 0)
    # The header is there, the batch is not: it is known not to be the one, so reading goes on behind it.
    assert kernel.find_batch(data, 0, size + 50, 9) == (2 * size, 0)
    assert kernel.find_batch(data, 0, size + 50, 4) == (size, size)
    assert kernel.find_batch(data, 0, size + 20, 9) == (size, 0)
    assert kernel.find_batch(data, 0, 0, 9) == (0, 0)


def test_find_timestamp_by_the_headers(kernel: Any) -> None:
    data = log_of(0, 3, 6)
    size = len(data) // 3
    assert [kernel.find_timestamp(data, 0, len(data), at) for at in (0, 2, 3, 32, 33, 62)] == [
        (at, size) for at in (0, 0, size, size, 2 * size, 2 * size)
    ]
    assert kernel.find_timestamp(data, 0, len(data), 63) == (len(data), 0)
    assert kernel.find_timestamp(data, 0, len(data), -(2**63)) == (0, size)
    # No more of a header is needed than what is looked at.
    end = 2 * size + MAX_TIMESTAMP_POSITION + 8
    for find, wanted in ((kernel.find_timestamp, 62), (kernel.find_batch, 7)):
        assert find(data, 0, end, wanted) == (2 * size, size)
        assert find(data, 0, end - 1, wanted) == (2 * size, 0)


def legacy(offset: int, magic: int, timestamp: int, size: int = 40) -> bytes:
    body = b"\0\0\0\0" + bytes([magic, 0]) + timestamp.to_bytes(8, "big", signed=True)
    return offset.to_bytes(8, "big") + size.to_bytes(4, "big") + body.ljust(size, b"\0")


def test_legacy_entries_are_stepped_over(kernel: Any) -> None:
    data = legacy(5, 0, 0) + legacy(6, 1, 700) + log_of(7)
    assert kernel.find_batch(data, 0, len(data), 6) == (52, 52)
    assert kernel.find_batch(data, 0, len(data), 9) == (104, len(data) - 104)
    assert kernel.find_timestamp(data, 0, len(data), 1) == (52, 52)
    assert kernel.find_timestamp(data, 0, len(data), 701) == (len(data), 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (batch_of(b"", count=0, batch_length=48), "size"),
        (batch_of(b"", count=0, batch_length=-1), "size"),
        (batch_of(b"", count=0, batch_length=-(2**31)), "size"),
        (batch_of(b"", magic=3), "magic"),
        (batch_of(b"", magic=-1), "magic"),
        (batch_of(b"", base_offset=-1), "negative"),
        (batch_of(b"", last_offset_delta=-1), "negative"),
        (legacy(0, 0, 0, size=13).ljust(60, b"\0"), "size"),
        (bytes(61), "size"),
    ],
)
def test_what_is_no_batch_is_refused_and_named(kernel: Any, data: bytes, reason: str) -> None:
    good = log_of(0)
    with pytest.raises(kernel.RecordError, match=rf"batch at position {len(good)}: .*{reason}"):
        kernel.find_batch(good + data, 0, len(good) + len(data), 100)


def test_offsets_at_the_ends_of_an_int64(kernel: Any) -> None:
    data = bytes(batch_of(b"", base_offset=2**63 - 1, last_offset_delta=2**31 - 1))
    for offset in (-(2**63), 0, 2**63 - 1):
        assert kernel.find_batch(data, 0, len(data), offset) == (0, len(data))
    late = bytes(batch_of(b"", max_timestamp=2**63 - 1))
    assert kernel.find_timestamp(late, 0, len(late), 2**63 - 1) == (0, len(late))


def test_buffers_are_let_go(kernel: Any) -> None:
    data = bytearray(build_batch(some_records(3)))
    columns = kernel.Columns()
    kernel.scan(data, HEADER_BYTES, len(data), 3, columns)
    with pytest.raises(kernel.RecordError):
        kernel.scan(data, PREFIX_BYTES, len(data), 3, columns)
    kernel.find_batch(data, 0, len(data), 1)
    gc.collect()
    data.append(0)  # BufferError if a view were still held


@pytest.mark.parametrize("key_bytes", [4, 8])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_find_entry_finds_the_first_key_that_is_at_least(kernel: Any, key_bytes: int, kind: Any) -> None:
    keys = [-300, -1, 0, 0, 5, 2**31 - 1]
    for count in range(len(keys) + 1):
        rests = [n - 2 << 24 for n in range(count)]
        data = b"".join(
            packed(key_bytes, key) + packed(4, rest) for key, rest in zip(keys, rests, strict=False)
        )
        for wanted in (-(2**80), -301, -300, -2, -1, 0, 1, 5, 6, 2**31 - 1, 2**31, 2**80):
            right = next((n for n, key in enumerate(keys[:count]) if key >= wanted), count)
            found = (right, keys[right], rests[right]) if right < count else (count, -1, -1)
            # What does not make a whole entry is none.
            assert kernel.find_entry(kind(data + b"\x00"), key_bytes + 4, key_bytes, wanted) == found


@pytest.mark.parametrize(
    "key_of",
    [
        lambda n: n,
        lambda n: n * n,
        lambda n: 1 << min(n // 4, 62),
        lambda n: -(1 << 63) + n * (1 << 55),
        lambda n: (1 << 63) - 2 if n > 490 else -(1 << 63) + n // 3,
        lambda n: (1 << 62) + n,  # as floats, all the same
        lambda _: 7,
    ],
    ids=["even", "growing", "doubling", "of all sizes", "far jump", "close together", "equal"],
)
@pytest.mark.parametrize("count", [1, 2, 3, 17, 500])
def test_find_entry_finds_among_keys_however_they_rise(
    kernel: Any, key_of: Callable[[int], int], count: int
) -> None:
    keys = [key_of(n) for n in range(count)]
    data = b"".join(packed(8, key) + packed(4, n) for n, key in enumerate(keys))
    for wanted in {each for key in keys for each in (key - 1, key, key + 1)}:
        right = bisect_left(keys, wanted)
        found = (right, keys[right], right) if right < count else (count, -1, -1)
        assert kernel.find_entry(data, 12, 8, wanted) == found


@pytest.mark.parametrize(
    ("key_of", "most"),
    [
        (lambda n: n, 12),
        (lambda n: n + n * 37 % 5, 14),
        (lambda n: n * n, 30),
        (lambda n: 1 << 40 if n > 50_000 else n, 40),
        (lambda n: n if n > 4 else n - (1 << 40), 40),
    ],
    ids=["even", "about even", "growing", "jump in the middle", "jump at the start"],
)
def test_find_entry_looks_at_few_entries(
    kernel: Any, monkeypatch: pytest.MonkeyPatch, key_of: Callable[[int], int], most: int
) -> None:
    if kernel is not INTERPRETED:
        pytest.skip("counted in the interpreted twin, which looks at the same entries")
    keys = sorted(1_700_000_000_000 + key_of(n) for n in range(100_000))
    data = b"".join(packed(8, key) for key in keys)
    names = kernel.find_entry.__globals__
    looked: list[int] = []
    integer = names["_integer"]
    monkeypatch.setitem(names, "_integer", lambda *args: (looked.append(args[1]), integer(*args))[1])
    for number in range(0, 100_000, 977):
        looked.clear()
        assert kernel.find_entry(data, 8, 8, keys[number])[0] == bisect_left(keys, keys[number])
        assert len(looked) <= most


def test_find_entry_lets_go_of_its_data(kernel: Any) -> None:
    data = bytearray(16)
    assert kernel.find_entry(data, 8, 4, 1) == (2, -1, -1)
    assert kernel.find_entry(data, 8, 4, 0) == (0, 0, 0)
    data += bytes(8)  # A BufferError, if it were still held.
    for entry_bytes, key_bytes in ((16, 9), (9, 0), (17, 8), (3, 4)):
        with pytest.raises(ValueError, match=f"a key of {key_bytes} bytes in entries of {entry_bytes}"):
            kernel.find_entry(data, entry_bytes, key_bytes, 1)


MESSAGES = [some(n, size_bytes=30 * n) for n in (1, 2, 9)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("given", MESSAGES)
def test_messages_are_given_their_offsets_in_place(kernel: Any, magic: int, given: list[Record]) -> None:
    data = bytearray(build_message_set(given, magic=magic))
    kernel.number_messages(memoryview(data), 2**40)
    assert data == build_message_set(shifted(given, 2**40), magic=magic)
    last = list(entries(bytes(data)))[-1].position
    cut = bytearray(data[:-1])
    kernel.number_messages(cut, 0)
    assert cut[last:] == data[last:-1]


@pytest.mark.parametrize("given", MESSAGES)
def test_messages_are_given_the_time_of_the_append_in_place(kernel: Any, given: list[Record]) -> None:
    data = bytearray(build_message_set(given, magic=1))
    kernel.stamp_messages(memoryview(data), 2**41)
    stamped = [replace(record, timestamp=2**41) for record in given]
    assert data == build_message_set(stamped, magic=1, log_append_time=True)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_tallied_up_to_where_one_begins(kernel: Any, magic: int) -> None:
    times = [5, 9, -1, 9, 2**40, 7]
    given = [Record(n, time, None, b"v" * n) for n, time in enumerate(times)]
    data = build_message_set(given, magic=magic)
    starts = [entry.position for entry in entries(data)]
    places = [*starts, len(data)]
    if magic == 0:
        times = [-1] * 6
    for first in range(6):
        for stop in range(starts[first] + 1, len(data) + 2):
            last = max(n for n in range(6) if starts[n] < stop)
            taken = times[first : last + 1]
            newest = max(taken)
            assert kernel.tally_messages(data, starts[first], stop) == (
                places[last + 1], len(taken), newest, taken.index(newest), min(taken)
            )  # fmt: skip


def test_what_is_no_message_is_not_walked_over(kernel: Any) -> None:
    """Whatever the bytes say, nothing beyond them is read or written, and every walk ends."""
    for length in (-1, 0, 13, 14, 21, 10**6, 2**31 - 1):
        data = bytearray(message(1, 0))
        data[8:12] = length.to_bytes(4, "big", signed=True)
        for size in (0, 11, 16, 17, 25, 26, len(data)):
            part = data[:size]
            kernel.number_messages(part, 5)
            kernel.stamp_messages(part, 5)
            assert len(part) == size
            assert kernel.tally_messages(part, 0, size)[0] <= size
