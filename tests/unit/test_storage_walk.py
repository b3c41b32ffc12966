"""The walk over batches: where the next whole one begins behind bytes that are none."""

from pathlib import Path

import pytest

from tests.support.batches import changed
from tidelog.protocol.records.batch import set_base
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import files, walk


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
