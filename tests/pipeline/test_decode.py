"""Columns of Arrow's against the readers of `protocol`: the same records, whatever the format and the window."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import NOW_MS, batch_of, changed, plain_record, record_bytes, records, varint
from tests.support.logs import read_records
from tidelog.pipeline import decode, tables
from tidelog.pipeline.decode import COPIED_BYTES, ROWS, Decoder, Window
from tidelog.pipeline.tables import RECORDS
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import LOG_APPEND_TIME
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import CorruptBatch, RecordError, RecordsError, UnsupportedCodec
from tidelog.protocol.records.message_set import build_message_set

ALL = Window()
LARGEST_MS = (1 << 63) // 1000 - 1
TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


def each_entry(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        header = entries.peek(data, at)
        yield at, header
        at += header.size_bytes


def decoded(
    data: bytes, names: Iterable[str] = RECORDS.names, window: Window = ALL, append_ms: int = 7
) -> list[dict[str, Any]]:
    decoder = Decoder("t", 3, tuple(names), window)
    for at, header in each_entry(data):
        decoder.add(memoryview(data), at, header, append_ms)
    return [row for rows in decoder.take() for row in as_numbers(rows)]


def as_numbers(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Times as ms: those beyond the year 9999 have no place in Python."""
    columns = {}
    for field in rows.schema:
        column = rows.column(field.name)
        if pa.types.is_timestamp(field.type):
            assert field.type == pa.timestamp("us", "UTC")
            column = column.cast(pa.int64())
            columns[field.name] = [None if us is None else us // 1000 for us in column.to_pylist()]
        else:
            columns[field.name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def expected(data: bytes, append_ms: int = 7) -> list[dict[str, Any]]:
    found = []
    for at, header in each_entry(data):
        if header.magic == 2 and header.is_control:
            continue
        for record in read_records(data[at : at + header.size_bytes]):
            time = max(-LARGEST_MS, min(record.timestamp, LARGEST_MS))
            found.append(
                {
                    "topic": "t",
                    "partition": 3,
                    "offset": record.offset,
                    "create_time": None if record.timestamp == -1 else time,
                    "append_time": append_ms,
                    "timestamp_type": TYPES[0 if not header.magic else 2 if header.is_log_append_time else 1],
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": name, "value": value} for name, value in record.headers],
                    "producer_id": header.producer_id,
                    "batch_base": header.base_offset,
                    "leader_epoch": header.leader_epoch,
                }
            )
    return found


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some entries of any format, one after another, with gaps between offsets and within batches."""
    data, offset = b"", draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(1, 4))):
        offset += draw(st.integers(0, 5))
        drawn = draw(records(gaps=True))
        these = [Record(offset + r.offset, r.timestamp, r.key, r.value, r.headers) for r in drawn]
        magic, is_stamped = draw(st.integers(0, 2)), draw(st.booleans())
        if magic == 2:
            codec, is_control = draw(st.integers(0, 4)), draw(st.sampled_from([False, False, True]))
            data += build_batch(
                these,
                codec=codec,
                log_append_time=is_stamped,
                leader_epoch=draw(st.integers(-1, 9)),
                producer_id=draw(st.integers(-1, 2**62)),
                control=is_control,
            )
        else:
            codec = draw(st.integers(0, 2 if magic == 0 else 3))
            data += build_message_set(these, magic=magic, codec=codec, log_append_time=is_stamped)
        offset = these[-1].offset + 1
    return data


@given(logs())
def test_all_columns_of_every_format_and_codec_are_what_the_readers_of_protocol_give(data: bytes) -> None:
    assert decoded(data) == expected(data)


@given(logs(), st.data())
def test_a_window_leaves_exactly_its_records(data: bytes, draw: st.DataObject) -> None:
    rows = expected(data)
    kinds = draw.draw(st.sets(st.sampled_from(["offsets", "create", "append"]), min_size=1))
    offsets = st.sampled_from([0, *(row["offset"] + step for row in rows for step in (0, 1))])
    # Not those that were too large, and are shown as the largest: the window counts what is stored.
    shown = [time for row in rows if abs(time := row["create_time"] or 0) < LARGEST_MS]
    times = st.sampled_from([0, *(time + step for time in shown for step in (0, 1))])
    first, end = sorted([draw.draw(offsets), draw.draw(offsets)])
    since, until = sorted([draw.draw(times), draw.draw(times)])
    append_ms = draw.draw(st.sampled_from([4, 5, 6])) if "append" in kinds else 7
    window = Window(
        *((first, end) if "offsets" in kinds else ()),
        create=(since, until) if "create" in kinds else None,
        append=(5, 6) if "append" in kinds else None,
    )
    wanted = [
        row | {"append_time": append_ms}
        for row in rows
        if ("offsets" not in kinds or first <= row["offset"] < end)
        and (
            "create" not in kinds or (row["create_time"] is not None and since <= row["create_time"] < until)
        )
        and ("append" not in kinds or append_ms == 5)
    ]
    assert decoded(data, window=window, append_ms=append_ms) == wanted


@given(logs())
def test_a_decoder_goes_on_after_its_rows_were_taken_and_makes_room(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_ROOM", 1)
        decoder = Decoder("t", 3, RECORDS.names, ALL)
    for _ in range(2):
        for at, header in each_entry(data):
            decoder.add(memoryview(data), at, header, 7)
        assert [row for rows in decoder.take() for row in as_numbers(rows)] == expected(data)


HEADERS = (("name", b"value"),)


@pytest.mark.parametrize(
    ("first", "window"),
    [
        pytest.param(build_batch([Record(0, 50, None, b"a")]), ALL, id="without headers"),
        pytest.param(
            build_batch([Record(0, 0, None, b"a", HEADERS), Record(1, 100, None, b"b", HEADERS)]),
            Window(create=(50, 51)),
            id="around the range of times",
        ),
        pytest.param(
            bytes(changed(build_batch([Record(0, 50, None, b"a", HEADERS)]), last_offset_delta=3)),
            Window(start=3),
            id="before the start, where compaction has removed records",
        ),
    ],
)
def test_plain_and_compressed_batches_lie_between_each_other(first: bytes, window: Window) -> None:
    data = first
    for offset in range(4, 8):
        data += build_batch([Record(offset, 50, None, b"c" * 900, HEADERS)], codec=3 * (offset % 2))
    wanted = [row for row in expected(data) if row["offset"] >= 4 or window == ALL]
    assert decoded(data, window=window) == wanted


def test_a_range_of_times_leaves_out_whole_batches_among_others() -> None:
    data = b"".join(build_batch([Record(offset, 10 * offset, None, b"a")]) for offset in range(10))
    for offset, append_ms in ((10, 39), (11, 40), (12, 59), (13, 60)):
        batch = build_batch([Record(offset, 0, None, b"a")])
        data += changed(batch, attributes=LOG_APPEND_TIME, max_timestamp=append_ms)
    found = decoded(data, window=Window(create=(40, 60)))
    assert found == [row for row in expected(data) if row["offset"] in (4, 5, 11, 12)]


def test_messages_of_older_formats_have_no_headers_of_others() -> None:
    decoder = Decoder("t", 3, ["headers"], ALL)
    for data, headers in (
        (build_batch([Record(0, 0, None, b"a", HEADERS)]), [{"key": "name", "value": b"value"}]),
        (build_message_set([Record(1, 0, None, b"a")], magic=1), []),
    ):
        decoder.add(data, 0, entries.peek(data), 7)
        assert [row for rows in decoder.take() for row in as_numbers(rows)] == [{"headers": headers}]


def test_append_times_of_some_batches_are_bounds() -> None:
    decoder = Decoder("t", 3, ["offset", tables.IS_BOUND], ALL)
    for offset, is_bound in enumerate([True, False]):
        data = build_batch([Record(offset, NOW_MS, None, b"a")])
        decoder.add(data, 0, entries.peek(data), 7, is_bound)
    found = [row for rows in decoder.take() for row in as_numbers(rows)]
    assert found == [{"offset": 0, tables.IS_BOUND: True}, {"offset": 1, tables.IS_BOUND: False}]


@settings(max_examples=30)
@given(logs(), st.lists(st.sampled_from(RECORDS.names), unique=True, min_size=1))
def test_only_columns_that_are_asked_for_are_made_in_their_order(data: bytes, names: list[str]) -> None:
    rows = decoded(data, names)
    assert rows == [{name: row[name] for name in names} for row in expected(data)]
    assert all(list(row) == names for row in rows)


names_of_headers = st.text(max_size=8).map(str.encode) | st.binary(max_size=8)
values_of_headers = st.none() | st.binary(max_size=8) | st.integers(60, 20_000).map(bytes)
headers_of_records = st.lists(st.tuples(names_of_headers, values_of_headers), max_size=3)


def with_headers(headers: list[list[tuple[bytes, bytes | None]]]) -> bytes:
    """Make a batch of records that have these headers, whatever their names are."""
    rows = []
    for number, each in enumerate(headers):
        parts = [varint(0), varint(number), varint(-1), varint(-1), varint(len(each))]
        for name, value in each:
            parts += (varint(len(name)), name, varint(-1 if value is None else len(value)), value or b"")
        rows.append(record_bytes(*parts))
    return bytes(batch_of(b"".join(rows), count=len(rows)))


@given(st.lists(st.lists(headers_of_records, min_size=1, max_size=6), min_size=1, max_size=3), st.data())
def test_the_column_of_headers_is_what_plain_python_makes(
    batches: list[list[list[tuple[bytes, bytes | None]]]], draw: st.DataObject
) -> None:
    """Names may be any bytes: what is not UTF-8 is replaced, name by name."""
    first = draw.draw(st.integers(0, len(batches[0])))
    decoder = Decoder("t", 0, ["headers"], Window(start=first))
    wanted: list[list[tuple[str, bytes | None]]] = []
    for number, headers in enumerate(batches):
        data = changed(with_headers(headers), base_offset=10 * number)
        decoder.add(memoryview(data), 0, entries.peek(data), 0)
        wanted += [list(record.headers) for record in read_records(data)]
    found = pa.Table.from_batches(decoder.take(), decoder.schema).column("headers").combine_chunks()
    found.validate(full=True)
    assert found.equals(pa.array(wanted[first:], RECORDS.field("headers").type))


def test_headers_are_not_looked_for_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(decode.kernel, "find_headers", lambda *_: calls.append(None))
    data = with_headers([[(b"h", b"v")]])
    decoded(data, [name for name in RECORDS.names if name != "headers"])
    assert not calls


def test_batches_of_several_buffers_are_gathered_in_order() -> None:
    parts = [build_batch([Record(n, NOW_MS, b"k%d" % n, None, (("h", b"%d" % n),))]) for n in range(5)]
    decoder = Decoder("t", 3, RECORDS.names, Window())
    for part in parts:
        decoder.add(memoryview(part), 0, entries.peek(part), 7)
    assert [row for rows in decoder.take() for row in as_numbers(rows)] == expected(b"".join(parts))
    assert list(decoder.take()) == []


def test_an_empty_batch_that_compaction_left_has_no_rows() -> None:
    empty = bytes(batch_of(b"", count=0, last_offset_delta=4))
    data = empty + build_batch([Record(5, NOW_MS, b"k", b"v")])
    assert [row["offset"] for row in decoded(data)] == [5]
    assert decoded(empty) == []


def test_a_delete_horizon_is_what_times_of_records_count_from() -> None:
    data = bytes(
        changed(build_batch([Record(0, NOW_MS, b"k", None)]), attributes=0x40, base_timestamp=NOW_MS + 5)
    )
    assert decoded(data)[0]["create_time"] == NOW_MS + 5


@pytest.mark.parametrize("time_ms", [LARGEST_MS, LARGEST_MS + 1, (1 << 63) - 1])
def test_times_beyond_what_arrow_holds_are_its_last_moment(time_ms: int) -> None:
    assert decoded(build_batch([Record(0, time_ms, None, b"v")]))[0]["create_time"] == LARGEST_MS


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (ROWS + 1, [ROWS + 1]),
        (ROWS * 3 // 2 + 2, [ROWS * 3 // 4 + 1] * 2),
        (2 * ROWS + 1, [ROWS + 1, ROWS]),
        (3, [3]),
    ],
)
def test_rows_come_about_64_ki_at_a_time_and_no_few_are_left_over(count: int, sizes: list[int]) -> None:
    many = build_batch([Record(n, NOW_MS, None, b"") for n in range(count)])
    decoder = Decoder("t", 0, ["offset"], Window())
    decoder.add(many, 0, entries.peek(many), 0)
    assert decoder.is_full is (count >= 2 * ROWS)
    assert [rows.num_rows for rows in decoder.take()] == sizes
    assert not decoder.is_full


def test_what_is_held_has_a_bound_though_few_rows_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows hold the buffer that they lie in: that counts, once."""
    monkeypatch.setattr(decode, "HELD_BYTES", 1000)
    batch = build_batch([Record(0, NOW_MS, None, b"x" * 300)])
    decoder = Decoder("t", 0, ["offset"], Window())
    two = memoryview(batch + batch)
    decoder.add(two, 0, entries.peek(batch), 0)
    decoder.add(two, len(batch), entries.peek(batch), 0)
    assert not decoder.is_full
    decoder.add(memoryview(bytes(two)), 0, entries.peek(batch), 0)
    assert decoder.is_full
    list(decoder.take())
    decoder.add(two, 0, entries.peek(batch), 0)
    assert not decoder.is_full


def test_a_batch_that_would_take_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_BYTES_MAX", 1000)
    data = build_batch([Record(0, NOW_MS, None, b"x" * 2000)], codec=4)
    with pytest.raises(RecordsError, match="more than 1000 bytes"):
        decoded(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytes(changed(build_batch([Record(0, 0, None, b"v")]), attributes=5)), UnsupportedCodec),
        (bytes(changed(build_batch([Record(0, 0, None, b"v")]), attributes=1)), CorruptBatch),
        (bytes(batch_of(plain_record(), count=2)), RecordError),
        (bytes(batch_of(plain_record(), count=-1)), RecordError),
        (bytes(batch_of(plain_record() + b"\0", count=1)), RecordError),
        (bytes(batch_of(record_bytes(varint(0), varint(0), varint(-1), varint(-1), varint(1)))), RecordError),
    ],
    ids=["unknown codec", "not gzip", "too few records", "a negative count", "bytes left over", "no header"],
)
def test_records_that_are_wrong_are_refused_and_nothing_of_them_is_kept(
    data: bytes, error: type[Exception]
) -> None:
    decoder = Decoder("t", 0, ["offset"], Window())
    with pytest.raises(error):
        decoder.add(data, 0, entries.peek(data), 0)
    assert list(decoder.take()) == []


def test_positions_that_rise_are_gathered_with_nulls() -> None:
    data = b"abcdef"
    found = decode._gathered(data, np.array([0, 2, 2, 5]), np.array([2, -1, 0, 1]))
    assert found.to_pylist() == [b"ab", None, b"", b"f"]


def test_a_large_buffer_is_not_joined_with_another_and_small_ones_are() -> None:
    """A compressed batch is a buffer of its own."""
    small = build_batch([Record(0, NOW_MS, None, b"")])
    large = build_batch([Record(0, NOW_MS, None, bytes(COPIED_BYTES))])
    packed = build_batch([Record(0, NOW_MS, None, bytes(COPIED_BYTES // 2))], codec=4)
    decoder = Decoder("t", 0, ["offset"], Window())
    assert not decoder.should_take_before(large)
    decoder.add(large, 0, entries.peek(large), 0)
    assert not decoder.should_take_before(large)
    assert decoder.should_take_before(small)
    assert sum(rows.num_rows for rows in decoder.take()) == 1
    for data in (small, packed, packed, large):
        assert not decoder.should_take_before(data)
        decoder.add(data, 0, entries.peek(data), 0)
    # They are joined anyway.
    assert not decoder.should_take_before(small)
    assert [rows.num_rows for rows in decoder.take()] == [4]


def test_a_window_cuts_a_batch_that_reaches_beyond_it() -> None:
    data = build_batch([Record(n, NOW_MS + 10 * n, None, b"v") for n in range(3)])
    for window in (Window(create=(NOW_MS, NOW_MS + 20)), Window(0, 2)):
        assert [row["offset"] for row in decoded(data, window=window)] == [0, 1]
