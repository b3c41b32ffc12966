"""The walk over batches: where the next whole one begins behind bytes that are none."""

import zlib
from pathlib import Path

import pytest

from tests.support.batches import NOW_MS, changed, resign
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import HEADER, HEADER_BYTES, BatchHeader, read_header, set_base
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.message_set import build_message_set
from tidelog.storage import files, walk
from tidelog.storage.errors import CorruptLog
from tidelog.storage.walk import INT32_MAX


def at(offset: int, value: bytes = b"v", count: int = 1) -> bytes:
    """Make a batch as it lies in a log."""
    data = bytearray(build_batch([Record(n, 1, None, value) for n in range(count)]))
    set_base(data, 0, offset, 0)
    return bytes(data)


def found(path: Path, data: bytes) -> list[tuple[int, int, int]]:
    """Return (position, end, base offset or -1) of all that a walk yields."""
    path.write_bytes(data)
    batches = walk.verified(files.File(path), 0, len(data), 0, 0)
    return [(each.position, each.end, each.header.base_offset if each.header else -1) for each in batches]


FALSE = {
    "magic bytes only": b"\x02",
    "a batch with a wrong checksum": at(1)[:-1] + b"?",
    "a batch cut short": at(1)[:-2],
    "a whole batch whose offset is behind": at(0),
    "a whole batch whose offset is beyond the segment": at(1 << 31),
    "a whole batch with less than no offsets": bytes(changed(at(1), last_offset_delta=-1)),
    "zeros": b"\0",
}


@pytest.mark.parametrize("chunk_bytes", [61, 64, 100, 333, 1 << 20])
@pytest.mark.parametrize("what", FALSE)
def test_what_only_looks_like_a_batch_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(walk, "CHUNK_BYTES", chunk_bytes)
    first, second, third = at(0), at(1, b"\x02" * 200), at(2, count=3)
    for times in (*range(1, 20), 60, 61, 62, 100, 333):
        junk = FALSE[what] * times
        data = first + junk + second + junk + third
        a = len(first)
        b = a + len(junk)
        c = b + len(second)
        d = c + len(junk)
        expected = [(0, a, 0), (a, b, -1), (b, c, 1), (c, d, -1), (d, len(data), 2)]
        assert found(tmp_path / "log", data) == expected
        assert found(tmp_path / "log", first + junk) == [(0, a, 0), (a, b, -1)]


def test_a_batch_is_found_wherever_a_read_ends_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = at(7)
    for chunk_bytes in range(61, 200):
        monkeypatch.setattr(walk, "CHUNK_BYTES", chunk_bytes)
        for junk in (b"\x02" * 150, b"\0" * 150, b"\x02\0" * 75):
            assert found(tmp_path / "log", junk + second)[-1] == (150, 150 + len(second), 7)


def test_a_batch_inside_a_misplaced_one_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    """Where a batch ends is true by its checksum, though its offset is not."""
    inner, last = at(3), at(4)
    outer = at(9, inner)  # of one record, whose value is a batch; its offset should be 2
    data = at(0, count=2) + outer + last
    a, b = len(at(0, count=2)), len(at(0, count=2) + outer)
    assert found(tmp_path / "log", data) == [(0, a, 0), (a, b, -1), (b, len(data), 4)]


EMPTY = resign(bytearray(HEADER.pack(5, 49, 0, 2, 0, 0, 2, NOW_MS, NOW_MS, -1, -1, -1, 0)))


def test_a_batch_of_a_header_alone_is_found_at_the_very_end(tmp_path: Path) -> None:
    """What compaction leaves of a producer's last batch."""
    assert len(EMPTY) == HEADER_BYTES
    for junk in (b"", b"\0" * 61, b"\2" * 7):
        places = found(tmp_path / "log", junk + EMPTY)
        assert places[-1] == (len(junk), len(junk) + 61, 5)
        assert found(tmp_path / "log", junk + EMPTY[:-1]) == [(0, len(junk) + 60, -1)]


def test_offsets_may_skip_some_but_not_some_that_the_next_batch_has(tmp_path: Path) -> None:
    size = len(at(0))
    for offsets, believed in (
        ([0, 5, 6], [0, 5, 6]),  # compaction, or a batch that was lost
        ([0, 5, 5], [0, -1, 5]),
        ([0, 5, 3], [0, -1, 3]),
        ([0, 5], [0, 5]),
        ([2, 2], [-1, 2]),
        ([0, INT32_MAX], [0, INT32_MAX]),
        ([0, INT32_MAX + 1], [0, -1]),
    ):
        places = found(tmp_path / "log", b"".join(map(at, offsets)))
        assert places == [(n * size, (n + 1) * size, offset) for n, offset in enumerate(believed)]


def test_a_segment_holds_offsets_up_to_its_base_and_the_largest_int32(tmp_path: Path) -> None:
    base = 1 << 40
    data = at(base) + at(base + INT32_MAX - 1, count=2) + at(base + INT32_MAX + 1)
    (tmp_path / "log").write_bytes(data)
    walked = list(walk.verified(files.File(tmp_path / "log"), 0, len(data), base, base))
    assert [each.header and each.header.base_offset for each in walked] == [base, base + INT32_MAX - 1, None]


@pytest.mark.parametrize("refused", [None, 0, 1, 2])
def test_who_knows_more_is_asked_what_to_believe(tmp_path: Path, refused: int | None) -> None:
    """Told the offset that is next, and that of the batch behind if it asks."""
    first, second, third = at(0, count=2), at(7), at(8)
    junk = b"?" * 100
    asked: list[tuple[int, int, int | None, int | None]] = []

    def refuses(position: int, header: BatchHeader, expected: int | None, following: walk.Following) -> bool:
        asked.append((position, header.base_offset, expected, following()))
        return len(asked) - 1 == refused

    data = first + junk + second + third
    (tmp_path / "log").write_bytes(data)
    walked = list(walk.verified(files.File(tmp_path / "log"), 0, len(data), 0, 0, refuses))
    a = len(first)
    b = a + len(junk)
    c = b + len(second)
    assert asked[:2] == [(0, 0, 0, None), (b, 7, None, 8)]  # none at once behind the first
    assert asked[2] == ((c, 8, None, None) if refused == 1 else (c, 8, 8, None))
    assert [each[:2] for each in walked] == [(0, a), (a, b), (b, c), (c, len(data))]
    believed = [each.header and each.header.base_offset for each in walked]
    offsets: list[int | None] = [0, None, 7, 8]
    if refused is not None:
        offsets[[0, 2, 3][refused]] = None
    assert believed == offsets


def test_what_is_misplaced_is_refused_without_asking(tmp_path: Path) -> None:
    data = at(5) + at(5)
    (tmp_path / "log").write_bytes(data)
    asked = []
    walked = walk.verified(
        files.File(tmp_path / "log"), 0, len(data), 0, 0, lambda *args: bool(asked.append(args[0]))
    )
    assert [each.header is None for each in walked] == [True, False]
    assert asked == [len(at(5))]


def test_headers_of_whole_batches_are_listed_from_where_one_starts(tmp_path: Path) -> None:
    batches = [at(0), at(1, b"x" * 300, 3), bytes(EMPTY), at(6)]
    data = b"".join(batches)
    (tmp_path / "log").write_bytes(data)
    starts = [sum(map(len, batches[:n])) for n in range(5)]
    for first in range(4):
        for behind in range(first, 5):
            listed = walk.headers(files.File(tmp_path / "log"), starts[first], starts[behind])
            expected = [(starts[n], read_header(data, starts[n])) for n in range(first, behind)]
            assert list(listed) == expected


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_batch_that_would_be_shorter_than_its_header_ends_a_listing(tmp_path: Path, length: int) -> None:
    data = at(0) + bytes(EMPTY[:8]) + length.to_bytes(4, "big", signed=True) + bytes(EMPTY[12:]) + at(6)
    (tmp_path / "log").write_bytes(data)
    listed = walk.headers(files.File(tmp_path / "log"), 0, len(data))
    assert [next(listed)[0], next(listed)[0]] == [0, len(at(0))]
    with pytest.raises(CorruptLog, match=rf"log@{len(at(0))}: a batch of {length} bytes cannot be"):
        next(listed)


def test_a_listing_of_a_log_that_somebody_cut_says_where(tmp_path: Path) -> None:
    data = at(0) + at(1)
    (tmp_path / "log").write_bytes(data[: len(at(0)) + 60])
    listed = walk.headers(files.File(tmp_path / "log"), 0, len(data))
    assert next(listed)[0] == 0
    with pytest.raises(CorruptLog, match=rf"log@{len(at(0))}: a batch is cut short"):
        next(listed)


def legacy(
    magic: int, body: bytes, size: int | None = None, crc: int | None = None, offset: int = 0
) -> bytes:
    """Make an entry of an older format: offset, size, CRC-32 of what follows it, magic, the rest."""
    body = bytes([magic]) + body
    crc = zlib.crc32(body) if crc is None else crc
    size = 4 + len(body) if size is None else size
    return offset.to_bytes(8, "big") + size.to_bytes(4, "big", signed=True) + crc.to_bytes(4, "big") + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("body", [bytes(17), bytes(50), b"\0\2\2\2" * 100])
@pytest.mark.parametrize("before", [b"", at(0)])
@pytest.mark.parametrize("behind", [b"", b"\0" * 100])
def test_a_whole_entry_of_an_older_format_is_one_batch(
    tmp_path: Path, magic: int, body: bytes, before: bytes, behind: bytes
) -> None:
    """By its checksum; what is in it is looked at when it is read."""
    start, offset = len(before), len(before) and 1
    entry = legacy(magic, body, offset=offset)
    expected = [(0, start, 0)] * bool(before) + [(start, start + len(entry), offset)]
    expected += [(start + len(entry), start + len(entry) + 100, -1)] * bool(behind)
    assert found(tmp_path / "log", before + entry + behind) == expected


def message(offset: int, value: bytes = b"v") -> bytes:
    return build_message_set([Record(offset, NOW_MS, b"k", value)], magic=1)


@pytest.mark.parametrize("noise", [b"\0" * 300, b"\1" * 3, bytes(range(256)) * 9000, b"x" * walk.CHUNK_BYTES])
def test_messages_after_damage_are_found_again(tmp_path: Path, noise: bytes) -> None:
    """At the beginning, and after other messages; where offsets are beyond 2^32 as well."""
    first, second = message(0), message(5)
    ends = [len(first), len(first) + len(noise), len(first + noise + second)]
    assert found(tmp_path / "log", first + noise + second) == [
        (0, ends[0], 0),
        (ends[0], ends[1], -1),
        (ends[1], ends[2], 5),
    ]
    assert found(tmp_path / "log", noise + second) == [
        (0, len(noise), -1),
        (len(noise), len(noise + second), 5),
    ]
    path, base = tmp_path / "large", (1 << 33) - 1
    path.write_bytes(noise + message(base) + noise + message(base + 3))
    listed = walk.verified(files.File(path), 0, path.stat().st_size, base, base)
    assert [each.header and each.header.base_offset for each in listed] == [None, base, None, base + 3]


def test_messages_after_a_damaged_batch_are_found_too(tmp_path: Path) -> None:
    """As where a topic's format was set back, whatever attributes they have."""
    body = bytearray(message(7)[16:])
    body[1] = 0x90
    odd = legacy(body[0], bytes(body[1:]), offset=7)
    data = at(0) + b"?" * 70 + odd + at(8)
    start = len(at(0)) + 70
    assert found(tmp_path / "log", data) == [
        (0, len(at(0)), 0),
        (len(at(0)), start, -1),
        (start, start + len(odd), 7),
        (start + len(odd), len(data), 8),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        legacy(0, bytes(8)),
        legacy(2, bytes(50)),
        legacy(255, bytes(50)),
        legacy(1, bytes(50), crc=1),
        legacy(1, bytes(50))[:-1],
        legacy(1, bytes(50), size=13),
        legacy(1, bytes(50), size=-1),
        legacy(1, bytes(50), size=54),
    ],
)
def test_what_is_no_whole_entry_of_an_older_format_is_damage(tmp_path: Path, entry: bytes) -> None:
    assert found(tmp_path / "log", at(0) + entry) == [
        (0, len(at(0)), 0),
        (len(at(0)), len(at(0)) + len(entry), -1),
    ]


def test_a_walk_reads_a_log_once_and_holds_no_more_than_a_chunk_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "CHUNK_BYTES", 4096)
    data = b"".join(at(offset, b"x" * 500) for offset in range(100))
    reads: list[int] = []
    pread = files.File.pread
    monkeypatch.setattr(
        files.File, "pread", lambda file, count, at: (reads.append(count), pread(file, count, at))[1]
    )
    assert len(found(tmp_path / "log", data)) == 100
    assert max(reads) == 4096
    assert sum(reads) < 1.4 * len(data)  # what is cut by the end of a chunk is read again
    reads.clear()
    assert len(list(walk.headers(files.File(tmp_path / "log"), 0, len(data)))) == 100
    assert sum(reads) < 1.4 * len(data)


def _complete(path: Path, data: bytes, next_offset: int, flushed_to: int = 0) -> tuple[int, int]:
    path.write_bytes(data)
    return walk.complete(files.File(path), 0, len(data), 0, next_offset, flushed_to)


def test_of_what_is_damaged_the_whole_batches_are_complete_and_no_more(tmp_path: Path) -> None:
    path, first, second = tmp_path / "log", at(7, count=3)[:-1] + b"?", at(10)[:-1] + b"?"
    end = len(first) + len(second)
    assert _complete(path, first + second, 7) == (end, 11)
    for left in (0, 1, entries.BYTES_MIN - 1, entries.BYTES_MIN, HEADER_BYTES, len(second) - 1):
        assert _complete(path, first + second[:left], 7) == (len(first), 10)
    assert _complete(path, b"", 7) == (0, 7)


@pytest.mark.parametrize(
    ("batch", "next_offset", "after"),
    [
        (at(7, count=3)[:-1] + b"?", 5, 10),  # its offset may be right
        (at(7, count=3), 5, 8),  # its checksum is right, so its offset is wrong
        (at(3, count=3)[:-1] + b"?", 5, 8),  # an offset never goes back
        (at((1 << 31) - 1)[:-1] + b"?", 5, 1 << 31),
        (at(1 << 31)[:-1] + b"?", 5, 6),  # no segment holds that one
        (bytes(changed(at(5, count=3), last_offset_delta=0))[:-1] + b"?", 5, 8),
        (bytes(changed(at(5, count=3), record_count=1))[:-1] + b"?", 5, 8),
        (bytes(changed(at(5), last_offset_delta=-9, record_count=-9))[:-1] + b"?", 5, 6),
    ],
)
def test_after_a_damaged_batch_comes_the_largest_offset_that_its_header_allows(
    tmp_path: Path, batch: bytes, next_offset: int, after: int
) -> None:
    assert _complete(tmp_path / "log", batch, next_offset) == (len(batch), after)


@pytest.mark.parametrize(("flushed_to", "after"), [(5, 8), (6, 6), (7, 7), (8, 8), (9, 8)])
def test_a_damaged_batch_ends_where_a_flush_ended_after_it_began(
    tmp_path: Path, flushed_to: int, after: int
) -> None:
    data = at(5, count=3)[:-1] + b"?"
    assert _complete(tmp_path / "log", data, 5, flushed_to) == (len(data), after)


@pytest.mark.parametrize(
    ("epochs", "known", "refused"),
    [
        ((1, 9, 1), 1, True),
        ((1, 9, 9), 1, False),  # a new epoch has begun
        ((1, 9, 1), 9, False),  # the epochs of the log say that it began there
        ((9, 1, 9), 9, True),
        ((1, 1, 1), 1, False),
    ],
)
def test_a_leader_epoch_between_two_batches_of_another_is_false(
    tmp_path: Path, epochs: tuple[int, ...], known: int, refused: bool
) -> None:
    data = bytearray()
    for offset, epoch in enumerate(epochs):
        one = bytearray(at(offset))
        set_base(one, 0, offset, epoch)
        data += one
    path = tmp_path / "log"
    path.write_bytes(data)
    batches = walk.verified(files.File(path), 0, len(data), 0, 0, epoch_at=lambda _: known)
    assert [each.header is None for each in batches] == [False, refused, False]
