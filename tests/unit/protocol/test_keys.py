"""The loops of compaction, compiled and interpreted: the map of keys, what it lets go, and the copying of the rest."""

import hashlib
import mmap
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.batches import plain_record, record_bytes, varint
from tests.support.kernels import BOTH
from tests.support.siphash import siphash128

pytestmark = pytest.mark.parametrize("kernel", BOTH, ids=["installed", "interpreted"])

SECRET = bytes(range(16))
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
# Farther than any offset.
NO_END = 2**63
MANY = 10**9
# Two blocks of Wang and Yu (2005), whose MD5 stays the same where six bits are turned.
WANG = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f89"
    "55ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5b"
    "d8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
TURNED = (19, 45, 59, 83, 109, 123)


def sized(part: bytes | None) -> bytes:
    return varint(-1) if part is None else varint(len(part)) + part


def keyed(offset: int, key: bytes | None, value: bytes | None = b"v", timestamp: int = 0) -> bytes:
    return record_bytes(varint(timestamp), varint(offset), sized(key), sized(value), varint(0))


def scanned(kernel: Any, records: Iterable[bytes]) -> tuple[bytes, Any]:
    """Lay records one behind another: their bytes, and the columns of a scan."""
    parts = list(records)
    data, columns = b"".join(parts), kernel.Columns()
    kernel.scan(data, 0, len(data), len(parts), columns, False)
    return data, columns


def entry(table: bytes | bytearray, number: int) -> tuple[bytes, int]:
    """Take an entry apart: the hash, as the reference has it, and the offset plus one."""
    first, second, stored = struct.unpack_from("=QQQ", table, 24 * number)
    return struct.pack("<QQ", first, second), stored


# The map.


def test_the_hash_is_siphash_2_4_of_128_bits(kernel: Any) -> None:
    published = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
        63: "5150d1772f50834a503e069a973fbd7c",
    }
    for size in (*range(64), 255, 256, 257, 1000):
        message = bytes(at % 256 for at in range(size))
        table = bytearray(24)
        assert kernel.put(table, SECRET, message, 5, 1) == (1, 1)
        right = siphash128(SECRET, message)
        assert entry(table, 0) == (right, 6)
        if size in published:
            assert right.hex() == published[size]


@pytest.mark.parametrize("secret", [bytes(16), b"\xff" * 16, bytes(15) + b"\x80", b"\x80" + bytes(15)])
def test_the_hash_is_another_under_another_secret(kernel: Any, secret: bytes) -> None:
    table = bytearray(24)
    kernel.put(table, secret, b"\xff" * 21, 0, 1)
    assert entry(table, 0) == (siphash128(secret, b"\xff" * 21), 1)
    assert kernel.latest(table, SECRET, b"\xff" * 21) == -1


@pytest.mark.parametrize("capacity", [1, 2, 7, 64, 1000])
def test_an_entry_lies_where_its_hash_says(kernel: Any, capacity: int) -> None:
    # What is left over at the end is too little for an entry.
    for number in range(20):
        table = bytearray(24 * capacity + number)
        key = b"%d" % number
        kernel.put(table, SECRET, key, 3, 1)
        right = siphash128(SECRET, key)
        place = int.from_bytes(right[4:8], "little") * capacity >> 32
        assert entry(table, place) == (right, 4)
        assert sum(map(bool, table[: 24 * place] + table[24 * place + 24 :])) == 0


def test_half_a_hash_is_no_hash(kernel: Any) -> None:
    """A key is not taken for another whose hash agrees in one half."""
    right = siphash128(SECRET, b"key")
    half, other = struct.unpack("<QQ", right)
    for wrong in ((half, other ^ 1), (half ^ 1, other), (half ^ 1 << 63, other), (half, other ^ 1 << 63)):
        table = bytearray(struct.pack("=QQQ", *wrong, 10) * 2)
        assert kernel.latest(table, SECRET, b"key") == -1
        data, columns = scanned(kernel, [keyed(0, b"key")])
        keep = bytearray(1)
        assert kernel.choose(table, SECRET, data, columns, 0, NO_END, False, keep) == (1, 0, 0)
        assert keep == b"\1"
        # Behind it, the key finds a place of its own.
        roomy = bytearray(24 * 3)
        place = (half >> 32) * 3 >> 32
        roomy[24 * place : 24 * place + 24] = struct.pack("=QQQ", *wrong, 10)
        assert kernel.put(roomy, SECRET, b"key", 4, 1) == (1, 1)
        assert entry(roomy, (place + 1) % 3) == (right, 5)
        assert kernel.latest(roomy, SECRET, b"key") == 4


def test_a_full_map_takes_no_new_key_and_knows_those_it_has(kernel: Any) -> None:
    names = [b"%d" % number for number in range(5)]
    table = bytearray(24 * 5)
    for offset, key in enumerate(names):
        assert kernel.put(table, SECRET, key, offset, MANY) == (1, 1)
    before = bytes(table)
    assert kernel.put(table, SECRET, b"one more", 9, MANY) == (0, 0)
    assert table == before
    assert kernel.latest(table, SECRET, b"one more") == -1
    assert kernel.put(table, SECRET, names[3], 9, 0) == (1, 0)
    assert [kernel.latest(table, SECRET, key) for key in names] == [0, 1, 2, 9, 4]
    data, columns = scanned(kernel, [keyed(n, key) for n, key in enumerate([b"one more", *names])])
    keep = bytearray(6)
    assert kernel.choose(table, SECRET, data, columns, 4, NO_END, False, keep) == (5, 0, 0)
    assert keep == b"\1\1\1\1\0\1"


def test_a_chain_goes_round_the_end(kernel: Any) -> None:
    """Keys whose place is the last one."""
    table = bytearray(24 * 6)
    late = [key for key in (b"%d" % n for n in range(200)) if siphash128(SECRET, key)[7] >= 0xE0][:4]
    for offset, key in enumerate(late):
        kernel.put(table, SECRET, key, offset, MANY)
    assert [entry(table, place)[1] for place in range(6)] == [2, 3, 4, 0, 0, 1]
    assert [kernel.latest(table, SECRET, key) for key in late] == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 129, 1023, 1024, 1500])
def test_batches_of_any_size(kernel: Any, count: int) -> None:
    """The map is asked in steps, and from a size on without the interpreter's lock."""
    names = [b"%d" % (number % 100) for number in range(count)]
    data, columns = scanned(kernel, [keyed(n, key) for n, key in enumerate(names)])
    table, keep = bytearray(24 * 150), bytearray(count)
    assert kernel.note(table, SECRET, data, columns, 0, MANY) == (count, min(count, 100))
    right = bytearray(n + 100 >= count for n in range(count))
    assert kernel.choose(table, SECRET, data, columns, 0, NO_END, False, keep) == (min(count, 100), 0, 0)
    assert keep == right
    # Room runs out where a step ends, or within one.
    for room in (0, 62, 63, 64, 65, 99):
        noted = min(room, count) if count <= 100 or room < 100 else count
        assert kernel.note(bytearray(24 * 150), SECRET, data, columns, 0, room) == (noted, min(room, count))


def test_P17_V8_two_keys_of_the_same_md5_are_two_keys(kernel: Any) -> None:
    other = bytearray(WANG)
    for at in TURNED:
        other[at] ^= 0x80
    pair = [WANG, bytes(other)]
    assert pair[0] != pair[1]
    assert len({hashlib.md5(key, usedforsecurity=False).digest() for key in pair}) == 1
    data, columns = scanned(kernel, [keyed(0, pair[0]), keyed(1, pair[1]), keyed(2, pair[0])])
    table, keep = bytearray(24 * 4), bytearray(3)
    assert kernel.note(table, SECRET, data, columns, 0, MANY) == (3, 2)
    assert [kernel.latest(table, SECRET, key) for key in pair] == [2, 1]
    assert kernel.choose(table, SECRET, data, columns, 0, NO_END, True, keep) == (2, 0, 0)
    assert keep == b"\0\1\1"


# What goes.


def test_a_key_that_the_map_does_not_have_stays(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a"), keyed(1, b"b", None)])
    keep = bytearray(2)
    assert kernel.choose(bytes(24 * 4), SECRET, data, columns, 0, NO_END, False, keep) == (2, 1, 0)
    assert kernel.choose(bytes(24 * 4), SECRET, data, columns, 0, NO_END, True, keep) == (1, 0, 0)
    assert keep == b"\1\0"
    empty = kernel.Columns()
    assert kernel.choose(bytes(24), SECRET, b"", empty, 0, NO_END, True, bytearray()) == (0, 0, 0)
    assert kernel.note(bytearray(24), SECRET, b"", empty, 0, 5) == (0, 0)


def test_offsets_at_the_end_of_an_int64(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a"), keyed(3, b"a")])
    table, keep = bytearray(24 * 2), bytearray(2)
    assert kernel.note(table, SECRET, data, columns, INT64_MAX - 3, MANY) == (2, 1)
    assert kernel.latest(table, SECRET, b"a") == INT64_MAX
    choose = kernel.choose
    assert choose(table, SECRET, data, columns, INT64_MAX - 3, NO_END, True, keep) == (1, 0, 0)
    assert keep == b"\0\1"
    assert choose(table, SECRET, data, columns, INT64_MAX - 3, INT64_MAX - 3, True, keep) == (2, 0, 0)
    for base in (INT64_MAX - 2, INT64_MAX):
        for call in (
            lambda base=base: kernel.note(table, SECRET, data, columns, base, MANY),
            lambda base=base: choose(table, SECRET, data, columns, base, NO_END, True, keep),
        ):
            with pytest.raises(kernel.RecordError, match="record 1: its offset") as caught:
                call()
            assert caught.value.record == 1
    for base in (-1, INT64_MAX + 1, 2**80):
        with pytest.raises(kernel.RecordError, match="begin at offset"):
            kernel.note(table, SECRET, data, columns, base, MANY)
        with pytest.raises(kernel.RecordError, match="begin at offset"):
            choose(table, SECRET, data, columns, base, NO_END, True, keep)


# What stays.


def moved(kernel: Any, records: list[bytes], shift: int = 0, keep: bytes | None = None) -> tuple[bytes, Any]:
    data, columns = scanned(kernel, records)
    marks = b"\1" * len(records) if keep is None else keep
    out = bytearray(b"\xee") * (len(data) + kernel.GROWTH_BYTES * len(records) + 1)
    written = kernel.write(data, columns, marks, out, shift)
    assert set(out[written.size_bytes :]) == {0xEE}
    assert kernel.write(data, columns, marks, bytearray(written.size_bytes), shift) == written
    if written.size_bytes:
        with pytest.raises(ValueError, match="finds no room"):
            kernel.write(data, columns, marks, bytearray(written.size_bytes - 1), shift)
    return bytes(out[: written.size_bytes]), written


def test_what_stays_is_copied_byte_for_byte(kernel: Any) -> None:
    # Varints that are longer than they need to be stay so.
    long = bytes([2 * 11, 0, 0x8A, 0x80, 0x00, 0x88, 0x00]) + varint(1) + b"k" + varint(-1) + b"\x80\x00"
    records = [keyed(0, b"a", b"1", 3), long, keyed(7, b"", None, -4), keyed(9, b"b" * 200, b"2" * 9000, 5)]
    assert moved(kernel, records) == (b"".join(records), (sum(map(len, records)), 5, 4, -4))
    assert moved(kernel, records, keep=b"\1\0\xff\0") == (
        records[0] + records[2],
        (len(records[0] + records[2]), 3, 0, -4),
    )
    assert moved(kernel, records, keep=b"\0\0\2\0")[1] == (len(records[2]), -4, 7, -4)
    assert moved(kernel, records, keep=b"\0\0\0\0") == (b"", (0, 0, -1, 0))
    assert moved(kernel, records, 5, keep=b"\0\0\0\0") == (b"", (0, 0, -1, 0))
    assert moved(kernel, []) == (b"", (0, 0, -1, 0))


def test_timestamps_are_counted_from_another_one(kernel: Any) -> None:
    long = bytes([2 * 11, 0x55, 0x8A, 0x80, 0x00, 0x88, 0x00]) + varint(1) + b"k" + varint(-1) + b"\x80\x00"
    records = [keyed(0, b"a", b"1" * 56, 3), long, keyed(7, b"c", None, -4)]
    made, written = moved(kernel, records, 61)
    right = [
        keyed(0, b"a", b"1" * 56, 64),
        b"\x14\x55" + varint(66) + b"\x88\x00" + varint(1) + b"k" + varint(-1) + b"\x80\x00",
        keyed(7, b"c", None, 57),
    ]
    # A byte more of the timestamp makes the length a byte longer as well.
    assert (len(records[0]), len(right[0])) == (64, 66)
    assert made == b"".join(right)
    assert written == (len(made), 66, 4, 57)
    # And back: in no more bytes than they need.
    made, written = moved(kernel, right, -61)
    assert (
        made
        == records[0] + b"\x12\x55\x0a\x88\x00" + varint(1) + b"k" + varint(-1) + b"\x80\x00" + records[2]
    )
    assert written == (len(made), 5, 4, -4)


@pytest.mark.parametrize("delta", [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX])
@pytest.mark.parametrize(
    "to", [INT64_MIN, INT64_MIN + 1, -(2**31), -65, -64, -1, 0, 63, 64, 2**62, INT64_MAX]
)
def test_any_timestamp_delta_becomes_any_other(kernel: Any, delta: int, to: int) -> None:
    made, written = moved(kernel, [keyed(0, b"k", b"v", delta)], to - delta)
    assert made == keyed(0, b"k", b"v", to)
    assert written == (len(made), to, 0, to)
    assert len(made) <= len(keyed(0, b"k", b"v", delta)) + kernel.GROWTH_BYTES


@pytest.mark.parametrize(
    ("delta", "shift"),
    [
        (INT64_MAX, 1), (INT64_MIN, -1), (0, 2**63), (0, -(2**63) - 1), (INT64_MIN, 2**64), (INT64_MAX, -(2**64)),
        (5, 2**64), (5, -(2**64)), (5, 2**80), (-5, -(2**80)), (-1, 2**63 + 1), (1, INT64_MAX), (-2, INT64_MIN + 1),
    ],
)  # fmt: skip
def test_a_timestamp_that_leaves_an_int64_is_an_error(kernel: Any, delta: int, shift: int) -> None:
    data, columns = scanned(kernel, [keyed(0, b"k"), keyed(1, b"k", b"v", delta)])
    out = bytearray(200)
    with pytest.raises(kernel.RecordError, match="record 1: its timestamp") as caught:
        kernel.write(data, columns, b"\0\1", out, shift)
    assert caught.value.record == 1
    # Whoever does not stay cannot be wrong.
    assert kernel.write(data, columns, b"\0\0", out, shift) == (0, 0, -1, 0)


def test_a_batch_may_be_compacted_where_it_lies(kernel: Any) -> None:
    records = [keyed(n, b"key", b"%d" % n * 30) for n in range(20)]
    data, columns = scanned(kernel, records)
    place = bytearray(data)
    keep = bytes(n % 3 == 1 for n in range(20))
    size = kernel.write(place, columns, keep, place).size_bytes
    assert place[:size] == b"".join(records[1::3])


def test_no_record_becomes_longer_than_a_record_may_be(kernel: Any) -> None:
    longest = 2**31 - 1
    # Of so much memory only what is touched is there.
    with mmap.mmap(-1, longest + 5) as data:
        data[:7] = varint(longest) + b"\0\0"
        columns = kernel.Columns(1)
        columns.count = 1
        out = bytearray(100)
        with pytest.raises(kernel.RecordError, match="record 0: it would be longer"):
            kernel.write(data, columns, b"\1", out, 64)
        for shift in (0, 63):
            with pytest.raises(ValueError, match="finds no room"):
                kernel.write(data, columns, b"\1", out, shift)


# What is wrong.


def test_columns_of_other_data_are_refused(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"key"), keyed(1, b"key")])
    table, keep, size = bytearray(24 * 4), bytearray(2), len(data)

    def refused(reason: str) -> None:
        for call in (
            lambda: kernel.note(table, SECRET, data, columns, 0, MANY),
            lambda: kernel.choose(table, SECRET, data, columns, 0, NO_END, False, keep),
        ):
            with pytest.raises(kernel.RecordError, match=f"record 1: {reason}") as caught:
                call()
            assert caught.value.record == 1

    position = columns.key_position[1]
    for wrong in (-1, size - 2, size, size + 1, INT64_MAX, INT64_MIN):
        columns.key_position[1] = wrong
        refused("its key lies outside the data")
    columns.key_position[1] = position
    for wrong in (size - position + 1, size, size + 1, INT64_MAX):
        columns.key_length[1] = wrong
        refused("its key lies outside the data")
    columns.key_length[1] = size - position
    assert kernel.note(table, SECRET, data, columns, 0, MANY) == (2, 2)
    columns.key_position[1], columns.key_length[1] = 0, size
    assert kernel.note(table, SECRET, data, columns, 0, MANY) == (2, 1)
    columns.key_position[1], columns.key_length[1] = size, 0
    assert kernel.note(table, SECRET, data, columns, 0, MANY) == (2, 1)
    for wrong in (-1, INT64_MIN):
        columns.offset_delta[1] = wrong
        refused("its offset is negative")


@pytest.mark.parametrize("start", [-1, 9, 10, INT64_MAX, INT64_MIN])
def test_a_record_that_is_not_there_is_not_copied(kernel: Any, start: int) -> None:
    data, columns = plain_record(), kernel.Columns(1)
    assert len(data) == 8
    columns.count, columns.start[0] = 1, start - 1 if start > 0 else start
    for shift in (0, 1):
        with pytest.raises(kernel.RecordError, match="record 0: no record lies where"):
            kernel.write(data, columns, b"\1", bytearray(50), shift)


@pytest.mark.parametrize(
    ("data", "shift"),
    [
        (b"", 0),
        (b"\x80", 0),
        (b"\x80\x80\x80\x80\x80\x00" + b"\0" * 20, 0),  # six bytes
        (b"\xff\xff\xff\xff\x7f" + b"\0" * 20, 0),
        (b"\x01" + b"\0" * 20, 0),  # -1
        (b"\x03" + b"\0" * 20, 1),
        (b"\x10" + b"\0" * 7, 0),
        (b"\x10" + b"\0" * 7, 1),
        (b"\x00" + b"\0" * 7, 1),  # no room for attributes
        (b"\x02" + b"\0" * 7, 1),  # nor for a timestamp
        (b"\x04\x00\x80\x00", 1),  # whose end is not in the record
        (b"\x04\x00\x80", 1),
    ],
)
def test_bytes_that_are_no_record_are_not_copied(kernel: Any, data: bytes, shift: int) -> None:
    columns = kernel.Columns(1)
    columns.count = 1
    with pytest.raises(kernel.RecordError, match="record 0: no record lies where"):
        kernel.write(data, columns, b"\1", bytearray(50), shift)


def test_buffers_of_a_wrong_size_are_refused(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a"), keyed(1, b"b")])
    table, keep, out = bytearray(48), bytearray(2), bytearray(100)
    for secret in (b"", bytes(15), bytes(17)):
        for call in (
            lambda secret=secret: kernel.note(table, secret, data, columns, 0, 1),
            lambda secret=secret: kernel.choose(table, secret, data, columns, 0, 1, False, keep),
            lambda secret=secret: kernel.latest(table, secret, b""),
            lambda secret=secret: kernel.put(table, secret, b"", 0, 1),
        ):
            with pytest.raises(ValueError, match=f"a secret of {len(secret)} bytes"):
                call()
    for size in (0, 23):
        small = bytearray(size)
        for call in (
            lambda small=small: kernel.note(small, SECRET, data, columns, 0, 1),
            lambda small=small: kernel.choose(small, SECRET, data, columns, 0, 1, False, keep),
            lambda small=small: kernel.latest(small, SECRET, b""),
            lambda small=small: kernel.put(small, SECRET, b"", 0, 1),
        ):
            with pytest.raises(ValueError, match=f"a table of {size} bytes"):
                call()
    for marks in (b"", b"\1"):
        with pytest.raises(ValueError, match="marks for 2 rows"):
            kernel.write(data, columns, marks, out)
        with pytest.raises(ValueError, match="marks for 2 rows"):
            kernel.choose(table, SECRET, data, columns, 0, 1, False, bytearray(marks))


def test_what_is_written_into_must_be_writable(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a")])
    for call in (
        lambda: kernel.note(bytes(48), SECRET, data, columns, 0, 1),
        lambda: kernel.put(bytes(48), SECRET, b"", 0, 1),
        lambda: kernel.choose(bytes(48), SECRET, data, columns, 0, 1, False, b"\0"),
        lambda: kernel.write(data, columns, b"\1", bytes(100)),
    ):
        with pytest.raises(TypeError, match="read-only"):
            call()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", -1),
        ("count", 3),
        ("count", 2**70),
        ("capacity", 3),
        ("capacity", 2**40),
        ("block", memoryview(bytearray(8 * 17)).cast("q")),
        ("block", memoryview(bytearray(4 * 18)).cast("i")),
        ("block", memoryview(bytearray(18)).cast("b")),
    ],
)
def test_columns_that_have_too_little_room_are_refused(kernel: Any, name: str, value: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a"), keyed(1, b"b")])
    assert columns.capacity == 2
    setattr(columns, name, value)
    for call in (
        lambda: kernel.note(bytearray(48), SECRET, data, columns, 0, 1),
        lambda: kernel.choose(bytearray(48), SECRET, data, columns, 0, 1, False, bytearray(9)),
        lambda: kernel.write(data, columns, bytes(9), bytearray(100)),
    ):
        with pytest.raises(ValueError, match="rows of"):
            call()


def test_buffers_are_let_go(kernel: Any) -> None:
    data, columns = scanned(kernel, [keyed(0, b"a")])
    table, keep, out, held = bytearray(48), bytearray(1), bytearray(100), bytearray(data)
    kernel.note(table, SECRET, held, columns, 0, 1)
    kernel.choose(table, SECRET, held, columns, 0, 1, False, keep)
    kernel.write(held, columns, keep, out)
    kernel.latest(table, SECRET, held)
    kernel.put(table, SECRET, held, 0, 1)
    for base in (-1, INT64_MAX + 1):
        with pytest.raises(kernel.RecordError):
            kernel.note(table, SECRET, held, columns, base, 1)
    columns.start[0] = -1
    with pytest.raises(kernel.RecordError):
        kernel.write(held, columns, keep, out)
    for buffer in (table, keep, out, held):
        buffer += b"."  # A BufferError, if it were still held.


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda data: array("b", data)])
def test_any_flat_buffer_will_do(kernel: Any, wrap: Callable[[bytes], Any]) -> None:
    data, columns = scanned(kernel, [keyed(0, b"\xff\xfe"), keyed(1, b"b", b"\xff", 200), keyed(2, b"b")])
    with mmap.mmap(-1, 4096) as table:
        assert kernel.note(table, SECRET, wrap(data), columns, 0, MANY) == (3, 2)
        assert kernel.latest(table, SECRET, wrap(b"\xff\xfe")) == 0
        keep = array("b", bytes(3))
        assert kernel.choose(table, SECRET, wrap(data), columns, 0, NO_END, True, keep) == (2, 0, 0)
        out = array("b", bytes(100))
        size = kernel.write(wrap(data), columns, keep, out).size_bytes
        assert out.tobytes()[:size] == keyed(0, b"\xff\xfe") + keyed(2, b"b")
        copied = bytes(table)
    assert kernel.latest(wrap(copied), SECRET, b"b") == 2


@pytest.mark.parametrize("what", ["note", "choose", "write"])
def test_long_walks_let_other_threads_run(kernel: Any, what: str) -> None:
    if not kernel.COMPILED:
        pytest.skip("an interpreted walk gives way as all Python does")
    count = 100_000
    data, columns = scanned(kernel, [keyed(n, b"%d" % n) for n in range(count)])
    table, keep, out = bytearray(48 * count), bytearray(b"\1") * count, bytearray(2 * len(data) + 10 * count)
    calls = {
        "note": lambda: kernel.note(table, SECRET, data, columns, 0, MANY),
        "choose": lambda: kernel.choose(table, SECRET, data, columns, 0, NO_END, False, keep),
        "write": lambda: kernel.write(data, columns, keep, out, 1 << 40),
    }
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
            calls[what]()
            end = time.perf_counter()
            if any(start < at < end for at in ticks[-100_000:]):
                break
        else:
            pytest.fail("no other thread ran during a walk")
    finally:
        done.set()
        thread.join()
