"""The table of keys that are counted, as installed and interpreted, against a dictionary."""

from array import array
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels import load_source
from tidelog.protocol.records import key_hashes, keys, tally
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

SECRET = bytes(range(16))
HASHES = load_source(key_hashes)
BOTH = pytest.mark.parametrize("kernel", [tally, load_source(tally)], ids=["installed", "interpreted"])


def columns(*rows: tuple[int, int, int]) -> Columns:
    """Columns of offset deltas, positions and lengths of keys."""
    made = Columns(len(rows) + 3)
    made.count = len(rows)
    for number, (delta, position, length) in enumerate(rows):
        made.offset_delta[number], made.key_position[number], made.key_length[number] = (
            delta,
            position,
            length,
        )
    return made


def hashed(module: Any, data: bytes, rows: Columns) -> bytearray:
    out = bytearray(rows.count * key_hashes.HASH_BYTES)
    module.write(SECRET, data, rows, out)
    return out


@given(st.binary(max_size=40), st.data())
def test_hashes_are_those_of_the_map(data: bytes, drawn: st.DataObject) -> None:
    rows = []
    for delta in range(drawn.draw(st.integers(0, 4))):
        at = drawn.draw(st.integers(0, len(data)))
        rows.append((delta, at, drawn.draw(st.integers(-1, len(data) - at))))
    made = columns(*rows)
    found = hashed(key_hashes, data, made)
    assert found == hashed(HASHES, data, made)
    table = bytearray(keys.ENTRY_BYTES * 8)
    for (_, at, length), number in zip(rows, range(0, len(found), 16), strict=True):
        half = found[number : number + 16]
        if length < 0:
            assert half == bytes(16)
            continue
        keys.put(table, SECRET, data[at : at + length], 1, 8)
        assert any(table[entry : entry + 16] == half for entry in range(0, len(table), keys.ENTRY_BYTES))


@pytest.mark.parametrize("module", [key_hashes, HASHES], ids=["installed", "interpreted"])
def test_a_key_outside_the_data_has_no_hash(module: ModuleType) -> None:
    for row in ((0, 3, 3), (0, -1, 1), (0, 0, 6)):
        with pytest.raises(RecordError, match="record 0: its key lies outside"):
            hashed(module, b"abcde", columns(row))
    with pytest.raises(ValueError, match="1 marks for 2 rows"):
        module.write(SECRET, b"", columns((0, 0, 0), (1, 0, 0)), bytearray(16))
    with pytest.raises(TypeError, match="read-only"):
        module.write(SECRET, b"", columns((0, 0, 0)), bytes(16))


@given(st.binary(max_size=40), st.integers(0, 3), st.data())
def test_a_sample_is_of_the_keys_whose_hashes_begin_with_zeros(
    data: bytes, zeros: int, drawn: st.DataObject
) -> None:
    lengths = [drawn.draw(st.integers(-1, len(data))) for _ in range(drawn.draw(st.integers(0, 9)))]
    starts = sorted(drawn.draw(st.integers(0, len(data))) for _ in lengths)
    sizes = [end - start for start, end in pairwise([*starts, len(data)])]
    rows = columns(*((number, 0, length) for number, length in enumerate(lengths)))
    for number, start in enumerate(starts):
        rows.start[number], rows.value_length[number] = start, drawn.draw(st.integers(-1, 0))
    halves = memoryview(hashed(key_hashes, data, rows)).cast("Q")[::2].tolist()
    expected = [
        (half, 0 if rows.value_length[number] < 0 else sizes[number])
        for number, half in enumerate(halves)
        if lengths[number] >= 0 and half < 1 << (64 - zeros)
    ]
    keyed = sum(size for size, length in zip(sizes, lengths, strict=True) if length >= 0)
    for module in (key_hashes, HASHES):
        out = array("Q", bytes(16 * len(lengths)))
        assert module.sample(SECRET, data, rows, zeros, out) == (len(expected), keyed)
        assert (batched(out[: 2 * len(expected)])) == expected


def batched(numbers: "array[int]") -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_sample_needs_room_and_keys_that_are_there() -> None:
    for module in (key_hashes, HASHES):
        with pytest.raises(ValueError, match="0 marks for 1 rows"):
            module.sample(SECRET, b"", columns((0, 0, 0)), 0, array("Q", [0]))
        with pytest.raises(RecordError, match="record 0: its key lies outside"):
            module.sample(SECRET, b"a", columns((0, 1, 1)), 0, array("Q", [0, 0]))
        rows = columns((0, 0, 1), (1, 0, 1))
        rows.start[1] = -1
        with pytest.raises(RecordError, match="record 0: its key lies outside"):
            module.sample(SECRET, b"a", rows, 0, array("Q", bytes(32)))


@BOTH
@given(st.data())
def test_each_key_is_counted_as_a_dictionary_would(kernel: Any, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(b"abcdef"), max_size=12))
    text = bytes(names)
    rows = columns(*((number, number, 1) for number in range(len(text))))
    halves = hashed(key_hashes, text, rows)
    size = data.draw(st.integers(1, 8))
    table, new = bytearray(kernel.ENTRY_BYTES * size), array("q", bytes(16 * len(text)))
    start, stop = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 14))
    room = data.draw(st.integers(0, 8))
    done = kernel.count(table, halves, rows, 7, range(7 + start, 7 + stop), room, new)
    expected: dict[int, list[int]] = {}
    records = 0
    for number, key in enumerate(names):
        if start <= number < stop:
            if key not in expected and len(expected) >= min(room, size):
                break
            seen = expected.setdefault(key, [number, 0, 0])
            seen[1], seen[2] = number + 7, seen[2] + 1
        records = number + 1
    assert done == (records, len(expected))
    found = [tuple(new[2 * each : 2 * each + 2]) for each in range(done.entries)]
    assert [record for record, _ in found] == [first for first, _, _ in expected.values()]
    for (_, entry), (_, last, count) in zip(found, expected.values(), strict=True):
        assert kernel.read(table, entry) == (last, count, -1)
    delivered = kernel.deliver(table, halves, rows, 7, range(7, 7 + start))
    assert delivered == min(start, len(names))
    for (_, entry), key in zip(found, expected, strict=True):
        before = [number + 7 for number, name in enumerate(names) if name == key and number < start]
        assert kernel.read(table, entry).delivered_offset == max(before, default=-1)


@BOTH
def test_keys_of_another_share_are_left_out(kernel: Any) -> None:
    text = bytes(range(64))
    rows = columns(*((number, number, 1) for number in range(64)))
    halves = hashed(key_hashes, text, rows)
    counted = []
    for number in range(4):
        table, new = bytearray(kernel.ENTRY_BYTES * 100), array("q", bytes(16 * 64))
        done = kernel.count(table, halves, rows, 0, range(64), 99, new, kernel.Share(3, number))
        assert done.records == 64
        counted += new[: 2 * done.entries : 2]
    assert sorted(counted) == list(range(64))


@BOTH
def test_what_cannot_be_counted_is_refused(kernel: Any) -> None:
    rows = columns((0, 0, 0))
    table, halves, new = bytearray(kernel.ENTRY_BYTES), bytes(16), array("q", [0, 0])
    with pytest.raises(RecordError, match="cannot begin at offset -1"):
        kernel.count(table, halves, rows, -1, range(1), 1, new)
    for delta, base in ((-1, 0), (1, (1 << 63) - 2)):
        with pytest.raises(RecordError, match="record 0: its offset"):
            kernel.count(table, halves, columns((delta, 0, 0)), base, range(1), 1, new)
        with pytest.raises(RecordError, match="record 0: its offset"):
            kernel.deliver(table, halves, columns((delta, 0, 0)), base, range(1))
    with pytest.raises(ValueError, match="room for 1 numbers"):
        kernel.count(table, halves, rows, 0, range(1), 1, array("q", [0]))
    with pytest.raises(ValueError, match="marks for 1 rows"):
        kernel.count(table, b"", rows, 0, range(1), 1, new)
    with pytest.raises(ValueError, match="a table of 39 bytes"):
        kernel.deliver(table[:-1], halves, rows, 0, range(1))
    with pytest.raises(TypeError, match="read-only"):
        kernel.deliver(bytes(table), halves, rows, 0, range(1))
