"""The kernel, compiled and interpreted, against a slow reader that takes no shortcut."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import plain_record, records
from tests.support.kernels import BOTH, INSTALLED, INTERPRETED
from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch

Row = tuple[int, ...]
COLUMNS = (
    "start",
    "offset_delta",
    "timestamp_delta",
    "key_position",
    "key_length",
    "value_position",
    "value_length",
    "headers_position",
    "headers_count",
)
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)


class WrongError(Exception):
    """The slow reader's verdict: these are not the records."""


class Slow:
    """Reads varints and lengths one after another, straight from the description of the format."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data, self.at, self.end = data, 0, end

    def varint(self, bits: int) -> int:
        raw = shift = 0
        while True:
            if self.at >= self.end or shift > bits:
                raise WrongError
            byte = self.data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if raw >= 1 << bits:
            raise WrongError
        return (raw >> 1) ^ -(raw & 1)

    def skip(self, lowest: int) -> tuple[int, int]:
        length = self.varint(32)
        position = self.at
        if length < lowest or position + max(length, 0) > self.end:
            raise WrongError
        self.at += max(length, 0)
        return position, length

    def record(self) -> Row:
        start, outer = self.at, self.end
        length = self.varint(32)
        if length < 1 or self.at + length > outer:
            raise WrongError
        self.end = self.at + length
        self.at += 1
        time, offset = self.varint(64), self.varint(32)
        key, value = self.skip(-1), self.skip(-1)
        headers_position = self.at
        headers = self.varint(32)
        if headers < 0:
            raise WrongError
        for _ in range(headers):
            self.skip(0)
            self.skip(-1)
        if self.at != self.end:
            raise WrongError
        self.end = outer
        return start, offset, time, *key, *value, headers_position, headers


def slowly(data: bytes, count: int, contiguous: bool) -> list[Row] | None:
    """Read count records that fill data, or None."""
    reader = Slow(data, len(data))
    rows: list[Row] = []
    try:
        for index in range(count):
            rows.append(reader.record())
            before = rows[-2][1] if index else -1
            if rows[-1][1] <= before or (contiguous and rows[-1][1] != index):
                return None
    except WrongError:
        return None
    return rows if count >= 0 and reader.at == len(data) else None


def answer(kernel: Any, data: bytes, count: int, columns: Any, contiguous: bool) -> Any:
    """The three answers, or the words of the refusal."""
    try:
        return kernel.scan(data, 0, len(data), count, columns, contiguous)
    except kernel.RecordError as error:
        return str(error)


def by_kernel(kernel: Any, data: bytes, count: int, contiguous: bool) -> tuple[list[Row] | None, Any]:
    """Rows and answer, the same with columns, after other rows, and without columns; no rows where refused."""
    columns = kernel.Columns()
    said = answer(kernel, data, count, columns, contiguous)
    assert said == answer(kernel, data, count, None, contiguous)
    if isinstance(said, str):
        return None, said
    kernel.scan(data, 0, len(data), count, columns, contiguous, row=count)
    assert columns.count == 2 * count
    rows = list(zip(*(getattr(columns, name)[: 2 * count] for name in COLUMNS), strict=True))
    assert rows[:count] == rows[count:]
    return rows[:count], said


def compare(data: bytes, count: int, contiguous: bool) -> None:
    rows = slowly(data, count, contiguous)
    compiled, interpreted = (by_kernel(kernel, data, count, contiguous) for kernel in BOTH)
    assert compiled == interpreted
    if rows is None:
        assert compiled[0] is None
    else:
        times = [row[2] for row in rows]
        best = (max(times), times.index(max(times)), min(times)) if times else (0, -1, 0)
        assert compiled == (rows, best)


@given(records(gaps=True, max_size=30), edits, st.integers(-1, 1), st.integers(0, 3), st.booleans())
@settings(max_examples=500)
def test_the_kernel_agrees_with_a_slow_reader_on_records_and_their_ruins(
    given_records: list[Record], changes: list[tuple[float, int]], miscount: int, cut: int, contiguous: bool
) -> None:
    data = bytearray(build_batch(given_records)[batch.HEADER_BYTES :])
    for place, value in changes:
        data[int(place * len(data))] = value
    compare(bytes(data[: len(data) - cut]), len(given_records) + miscount, contiguous)


@given(st.binary(max_size=60), st.integers(-1, 5), st.booleans())
@settings(max_examples=300)
def test_the_kernel_agrees_with_a_slow_reader_on_any_bytes(data: bytes, count: int, contiguous: bool) -> None:
    compare(data, count, contiguous)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, 12, 14, 16]), max_size=24).map(bytes))
@settings(max_examples=300)
def test_the_kernel_agrees_with_a_slow_reader_on_bytes_that_look_like_records(body: bytes) -> None:
    framed = bytes([2 * len(body)]) + body
    compare(framed, 1, False)
    compare(plain_record() + framed + plain_record(63), 3, False)


def found_in_parts(kernel: Any, data: bytes, count: int, time: int, offset: int, part_bytes: int) -> Any:
    """Find a record where no more than so many bytes are at hand at once, or as many as it takes."""
    cut, size = kernel.Cut(0, 0, 0), part_bytes
    while True:
        start = cut.position
        try:
            found = kernel.find_record(data[start : start + size], start, len(data), count, time, offset, cut)
        except kernel.RecordError as error:
            return str(error)
        if not isinstance(found, kernel.Cut):
            return found
        size = 2 * size if found == cut else part_bytes
        cut = found


def scanned_in_parts(kernel: Any, data: bytes, count: int, part_bytes: int, room: int, ends: bool) -> Any:
    """Scan records where no more than so many bytes are at hand at once; it is known or not where they end."""
    rows: list[Row] = []
    columns, cut, size = kernel.Columns(room), kernel.Cut(0, 0, 0), part_bytes
    times: list[int] = []
    while True:
        start = cut.position
        part = data[start : start + size]
        is_last = start + len(part) == len(data)
        end = len(data) if ends or is_last else start + len(part) + 1
        try:
            after, largest, smallest = kernel.scan_part(part, start, end, count, columns, cut)
        except kernel.RecordError:
            return None
        assert columns.count <= room
        for row in range(columns.count):
            at = [getattr(columns, name)[row] for name in COLUMNS]
            rows.append(
                tuple(
                    n + start if "position" in name or name == "start" else n
                    for name, n in zip(COLUMNS, at, strict=True)
                )
            )
        if columns.count:
            times += (largest, smallest)
            assert (largest, smallest) == (
                max(columns.timestamp_delta[: columns.count]),
                min(columns.timestamp_delta[: columns.count]),
            )
        if (is_last and after == cut) or (after.record == count and after.position == len(data)):
            return rows
        size = 2 * size if after == cut else part_bytes
        cut = after


@given(
    st.lists(records(), max_size=3),
    edits,
    st.integers(0, 3),
    st.integers(1, 90),
    st.integers(1, 5),
    st.booleans(),
)
def test_records_are_scanned_alike_part_by_part(
    batches: list[list[Record]],
    changes: list[tuple[float, int]],
    miscount: int,
    part_bytes: int,
    room: int,
    ends: bool,
) -> None:
    given_records = [record for each in batches for record in each]
    data = bytearray(
        b"".join(
            plain_record(n, record.timestamp % 1000, record.value or b"")
            for n, record in enumerate(given_records)
        )
    )
    for place, value in changes:
        if data:
            data[int(place * len(data))] = value
    count = max(len(given_records) - miscount, 0)
    for kernel in BOTH:
        columns = kernel.Columns()
        try:
            kernel.scan(bytes(data), 0, len(data), count, columns, False)
        except kernel.RecordError:
            whole = None
        else:
            whole = [tuple(getattr(columns, name)[row] for name in COLUMNS) for row in range(count)]
        assert scanned_in_parts(kernel, bytes(data), count, part_bytes, room, ends) == whole


def listed_times(kernel: Any, data: bytes, count: int, time_bytes: int, offset_bytes: int) -> Any:
    try:
        return kernel.times(data, 0, len(data), count, time_bytes, offset_bytes)
    except kernel.RecordError as error:
        return str(error)


def scanned_times(kernel: Any, data: bytes, count: int, time_bytes: int) -> Any:
    try:
        return kernel.scan_times(data, 0, len(data), count, time_bytes)
    except kernel.RecordError as error:
        return str(error)


@given(
    records(max_size=30) | records(gaps=True, max_size=30),
    edits,
    st.integers(1, 60),
    st.integers(-10, 2000) | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 40),
    st.integers(1, 8),
    st.sampled_from([0, 4]),
)
@settings(max_examples=300)
def test_both_kernels_find_a_time_alike_in_all_bytes_or_parts_or_a_list_of_times(
    given_records: list[Record],
    changes: list[tuple[float, int]],
    part_bytes: int,
    time: int,
    offset: int,
    time_bytes: int,
    offset_bytes: int,
) -> None:
    data = bytearray(build_batch(given_records)[batch.HEADER_BYTES :])
    for place, value in changes:
        data[int(place * len(data))] = value
    part, count = bytes(data), len(given_records)
    found = found_in_parts(INSTALLED, part, count, time, offset, len(part))
    for kernel in BOTH:
        for size in (part_bytes, len(part)):
            assert found_in_parts(kernel, part, count, time, offset, size) == found
    listed = listed_times(INSTALLED, part, count, time_bytes, offset_bytes)
    assert listed == listed_times(INTERPRETED, part, count, time_bytes, offset_bytes)
    scanned = scanned_times(INSTALLED, part, count, time_bytes)
    assert scanned == scanned_times(INTERPRETED, part, count, time_bytes)
    rows = slowly(part, count, False)
    if not isinstance(scanned, str):
        assert scanned[:3] == answer(INSTALLED, part, count, None, True)
        entries, *sizes = INSTALLED.times(part, 0, len(part), count, time_bytes, 0)
        assert scanned[3] == (entries if sizes == [time_bytes, 0] else None)
    if rows is None:
        assert isinstance(listed, str)
        return
    first = next(((row[2], row[1]) for row in rows if row[2] >= time and row[1] >= offset), None)
    assert found == first
    entries, time_bytes, offset_bytes = listed
    entry_bytes = time_bytes + offset_bytes
    at, reached, _ = INSTALLED.find_entry(entries, entry_bytes, time_bytes, time)
    assert at == next((at for at, row in enumerate(rows) if row[2] >= time), count)
    assert at == count or reached == rows[at][2]
    assert len(entries) == count * entry_bytes
    if offset_bytes:
        offsets = [
            int.from_bytes(entries[n + time_bytes : n + entry_bytes])
            for n in range(0, len(entries), entry_bytes)
        ]
        assert offsets == [row[1] for row in rows]


def findings(kernel: Any, data: bytes, wanted: int) -> list[Any]:
    found: list[Any] = []
    for find in (kernel.find_batch, kernel.find_timestamp):
        try:
            found.append(find(data, 0, len(data), wanted))
        except kernel.RecordError as error:
            found.append(str(error))
    return found


@given(
    st.lists(records(max_size=3, gaps=True), min_size=1, max_size=4),
    edits,
    st.integers(0, 70),
    st.integers(-10, 2000) | st.integers(-(2**63), 2**63 - 1),
)
@settings(max_examples=300)
def test_both_kernels_walk_batches_alike_and_say_where_to_read_on(
    batches: list[list[Record]], changes: list[tuple[float, int]], cut: int, wanted: int
) -> None:
    data = bytearray()
    starts: list[tuple[int, int, int, int]] = []
    base = 0
    for each in batches:
        built = build_batch(each, base_offset=0)
        header = batch.read_header(built)
        batch.set_base(moved := bytearray(built), 0, base, 0)
        starts.append((len(data), len(built), base + header.last_offset_delta, header.max_timestamp))
        data += moved
        base += header.last_offset_delta + 1
    if not changes:
        # What a walk over whole batches must answer, said in one line each.
        by_offset = next(((at, size) for at, size, last, _ in starts if last >= wanted), (len(data), 0))
        by_time = next(((at, size) for at, size, _, newest in starts if newest >= wanted), (len(data), 0))
        assert findings(INSTALLED, bytes(data), wanted) == [by_offset, by_time]
    for place, value in changes:
        data[int(place * len(data))] = value
    part = bytes(data[: max(0, len(data) - cut)])
    found = findings(INSTALLED, part, wanted)
    assert found == findings(INTERPRETED, part, wanted)
    for each in found:
        assert isinstance(each, str) or not each[1] or each[0] < len(part)
