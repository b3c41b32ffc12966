"""What of an index is in memory, what in its file, and what its checksum is of."""

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog.storage import files
from tidelog.storage.offset_index import OffsetIndex


@pytest.mark.parametrize("seed", range(8))
def test_the_file_is_what_was_kept_and_the_checksum_is_of_the_file(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "index"
    index = OffsetIndex(path, bytearray())
    expected: list[tuple[int, int]] = []
    saved = b""
    for _ in range(60):
        match chance.randrange(5):
            case 0 | 1:
                entry = (chance.randrange(1 << 31), chance.randrange(1 << 31))
                index.append(*entry)
                expected.append(entry)
            case 2:
                count = chance.randrange(len(expected) + 2)
                index.keep(count)
                del expected[count:]
            case 3:
                final = chance.choice([b"", bytes(8), b"12345678"])
                assert index.save(final) == crc32c(bytes(index.data) + final)
                assert path.read_bytes() == bytes(index.data) + final
                assert index.crc == crc32c(bytes(index.data))
                saved = bytes(index.data)
            case 4:
                # As after a start: what was saved is in the file, and in memory that cannot be changed.
                index = OffsetIndex(path, saved)
                expected = [index.entry(number) for number in range(len(index))]
                assert index.crc == crc32c(saved)
        assert len(index) == len(expected)
        assert [index.entry(number) for number in range(len(index))] == expected


def test_what_is_in_the_file_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[bytes, int]] = []
    write_at = files.File.write_at
    monkeypatch.setattr(
        files.File,
        "write_at",
        lambda file, data, at: (written.append((bytes(data), at)), write_at(file, data, at))[1],
    )
    index = OffsetIndex(tmp_path / "index", bytearray())
    index.append(1, 2)
    index.save()
    index.save()
    index.append(3, 4)
    index.save(b"finally.")
    assert written == [
        (bytes([0, 0, 0, 1, 0, 0, 0, 2]), 0),
        (bytes([0, 0, 0, 3, 0, 0, 0, 4]) + b"finally.", 8),
    ]


def test_the_final_entry_is_not_taken_into_memory(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "index", bytearray())
    index.append(1, 2)
    index.save(b"finally.")
    assert len(index) == 1
    index.save()
    assert (tmp_path / "index").read_bytes() == bytes(index.data)
