"""The loops of compaction, compiled and interpreted, against a dict and records that were never bytes."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import batch_of, records
from tests.support.kernels import BOTH
from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch, read_records
from tidelog.protocol.records.columns import Columns

NO_END = 2**63
# Few, so that they come again: in other batches, and in the same one.
KEYS = [None, b"", b"a", b"b", b"aa", b"seven..", b"eight...", b"nine.....", b"k" * 300]
INT64 = st.integers(-(2**63), 2**63 - 1)

masks = st.sampled_from([2**64 - 1, 2**64 - 1, 0, 1 << 63, 0xFF << 40])
secrets = st.binary(min_size=16, max_size=16)
keys = st.sampled_from(KEYS) | st.binary(max_size=3)


@st.composite
def batches(draw: st.DrawFn, *, times: st.SearchStrategy[int] | None = None) -> list[Record]:
    """Draw a batch's records, their offsets relative to it."""
    drawn = draw(records(max_size=20, gaps=True))
    if times is not None:
        drawn = [replace(record, timestamp=draw(times)) for record in drawn]
    return [replace(record, key=draw(keys)) for record in drawn]


def scanned(kernel: Any, given_records: list[Record]) -> tuple[bytes, Any]:
    data, columns = build_batch(given_records)[batch.HEADER_BYTES :], kernel.Columns()
    kernel.scan(data, 0, len(data), len(given_records), columns, False)
    return data, columns


class Model:
    """The map as a dict, of at most so many keys."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.latest: dict[bytes, int] = {}

    def note(self, given_records: list[Record], base: int, room: int) -> tuple[int, int]:
        added = 0
        for number, record in enumerate(given_records):
            if record.key is None:
                continue
            if record.key not in self.latest:
                if added == room or len(self.latest) == self.capacity:
                    return number, added
                added += 1
            self.latest[record.key] = max(self.latest.get(record.key, -1), base + record.offset)
        return len(given_records), added

    def stays(self, record: Record, base: int, mapped_end: int, drops: bool) -> bool:
        offset = base + record.offset
        if offset >= mapped_end or record.key is None:
            return True
        return self.latest.get(record.key, -1) <= offset and not (drops and record.value is None)


@given(
    st.lists(st.tuples(batches(), st.integers(0, 3000), st.integers(0, 12)), min_size=1, max_size=4),
    st.integers(1, 12) | st.just(100),
    secrets,
    masks,
    st.integers(0, 8000),
    st.booleans(),
)
@settings(max_examples=200)
def test_the_map_is_a_dict_and_what_it_does_not_replace_stays(
    steps: list[tuple[list[Record], int, int]],
    capacity: int,
    secret: bytes,
    mask: int,
    mapped_end: int,
    drops: bool,
) -> None:
    tables = []
    for kernel in BOTH:
        table, model = bytearray(24 * capacity), Model(capacity)
        tables.append(table)
        for given_records, base, room in steps:
            data, columns = scanned(kernel, given_records)
            noted = kernel.note(table, secret, data, columns, base, room, mask)
            assert noted == model.note(given_records, base, room)
        for key in {*KEYS, *model.latest} - {None}:
            assert kernel.latest(table, secret, key, mask) == model.latest.get(key, -1)
        for given_records, base, _ in steps:
            data, columns = scanned(kernel, given_records)
            keep = bytearray(len(given_records))
            chosen = kernel.choose(table, secret, data, columns, base, mapped_end, drops, keep, mask)
            stay = [record for record in given_records if model.stays(record, base, mapped_end, drops)]
            assert keep == bytes(record in stay for record in given_records)
            tombstones = [record for record in stay if record.key is not None and record.value is None]
            assert chosen == (len(stay), len(tombstones), sum(record.key is None for record in stay))
    assert tables[0] == tables[1]


@given(batches() | batches(times=INT64), st.randoms(), st.just(0) | INT64 | st.integers(-300, 300))
@settings(max_examples=200)
def test_what_stays_is_read_back_as_it_was(given_records: list[Record], random: Any, shift: int) -> None:
    base_time = given_records[0].timestamp
    # A delta that leaves an int64 cannot be written to begin with.
    given_records = [record for record in given_records if -(2**63) <= record.timestamp - base_time < 2**63]
    marks = bytes(random.choice((0, 1, 1, 255)) for _ in given_records)
    kept = [record for record, mark in zip(given_records, marks, strict=True) if mark]
    deltas = [record.timestamp - base_time + shift for record in kept]
    answers = []
    for kernel in BOTH:
        data, columns = scanned(kernel, given_records)
        out = bytearray(len(data) + (kernel.GROWTH_BYTES * len(kept) if shift else 0))
        if not all(-(2**63) <= delta < 2**63 for delta in deltas):
            try:
                kernel.write(data, columns, marks, out, shift)
            except kernel.RecordError as error:
                answers.append(str(error))
                continue
            raise AssertionError("a timestamp delta left an int64")
        written = kernel.write(data, columns, marks, out, shift)
        answers.append((bytes(out), written))
        largest = max(deltas, default=0)
        offset = kept[deltas.index(largest)].offset if kept else -1
        assert written[1:] == (largest, offset, min(deltas, default=0))
        made = batch_of(bytes(out[: written.size_bytes]), count=len(kept), base_timestamp=0, max_timestamp=0)
        moved = [replace(record, timestamp=delta) for record, delta in zip(kept, deltas, strict=True)]
        assert list(read_records(made)) == moved
    assert answers[0] == answers[1]


def answers_of(kernel: Any, data: bytes, columns: Any, shift: int, room: int) -> list[Any]:
    """Have all three do their work within larger buffers, of which the rest stays as it is."""
    marks = b"\1" * columns.count
    table, keep, out = bytearray(24 * 7), bytearray(7), bytearray(room + 40)
    map_, inner = memoryview(table)[48:120], memoryview(keep)[2 : 2 + len(marks)]
    calls = (
        lambda: kernel.note(map_, bytes(16), data, columns, 5, 9),
        lambda: kernel.choose(map_, bytes(16), data, columns, 0, 40, True, inner),
        lambda: kernel.write(data, columns, marks, memoryview(out)[20 : 20 + room], shift),
    )
    answers: list[Any] = []
    for call in calls:
        try:
            answers.append(call())
        except ValueError as error:
            answers.append((type(error).__name__, str(error)))
    assert not any(table[:48] + table[120:])
    assert not any(keep[:2] + keep[2 + len(marks) :])
    assert not any(out[:20] + out[20 + room :])
    return [*answers, table, keep, out]


@given(
    st.binary(max_size=80),
    st.integers(1, 3),
    st.lists(st.integers(-3, 90) | INT64, min_size=27, max_size=27),
    st.integers(-(2**64), 2**64) | st.integers(-200, 200),
    st.integers(0, 200),
)
@settings(max_examples=500)
def test_whatever_bytes_and_columns_say_both_say_the_same(
    data: bytes, count: int, cells: list[int], shift: int, room: int
) -> None:
    columns = Columns(3)
    for row, cell in enumerate(cells):
        columns.block[row] = cell
    columns.count = count
    assert answers_of(BOTH[0], data, columns, shift, room) == answers_of(BOTH[1], data, columns, shift, room)
