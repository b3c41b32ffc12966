"""The small text files in Kafka's format."""

from pathlib import Path

import pytest

from tests.support.faulty_disk import FaultyDisk
from tidelog.storage import checkpoints

OFFSETS = {("t", 1): 5, ("a-b", 0): 1 << 40, ("t", 0): 0}


@pytest.mark.parametrize("offsets", [{}, {("t", 0): 7}, OFFSETS])
def test_what_is_saved_is_loaded(tmp_path: Path, offsets: checkpoints.OffsetsByPartition) -> None:
    checkpoints.save_offsets(tmp_path / "file", offsets)
    assert checkpoints.load_offsets(tmp_path / "file") == offsets
    lines = checkpoints.load(tmp_path / "file", checkpoints.lines_in)
    assert lines == [[topic, str(n), str(offset)] for (topic, n), offset in sorted(offsets.items())]


def test_entries_are_in_order(tmp_path: Path) -> None:
    checkpoints.save_offsets(tmp_path / "file", OFFSETS)
    assert (tmp_path / "file").read_text() == f"0\n3\na-b 0 {1 << 40}\nt 0 0\nt 1 5\n"


def test_a_file_that_was_made_and_never_filled_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert checkpoints.load(tmp_path / "file", checkpoints.lines_in) == []


@pytest.mark.parametrize(
    "text", ["0", "0\n", "1\n0\n", "0\n1\n", "0\n1\nt 0 5\nt 1 6\n", "0\n2\nt 0 5\n", "x\n1\nt 0 5\n"]
)
def test_a_file_that_is_not_whole_reads_as_nothing_and_says_so(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text(text)
    assert checkpoints.load(tmp_path / "file", checkpoints.lines_in) is None
    assert f"checkpoint ignored file={tmp_path / 'file'} reason=broken" in caplog.text
    assert checkpoints.load_offsets(tmp_path / "file") == {}


def test_a_missing_file_is_no_trouble(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert checkpoints.load(tmp_path / "file", checkpoints.lines_in) is None
    assert checkpoints.load_offsets(tmp_path / "file") == {}
    assert not caplog.records


@pytest.mark.parametrize("text", ["0\n2\nt 0 5\nt x 5\n", "0\n2\nt 0 5\nt 1\n", "0\n2\nt 0 5\nt 1 2 3\n"])
def test_offsets_are_loaded_all_or_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert checkpoints.load_offsets(tmp_path / "file") == {}


def test_offsets_are_replaced_durably(tmp_path: Path, disk: FaultyDisk) -> None:
    checkpoints.save_offsets(tmp_path / "file", OFFSETS)
    assert disk.paths("sync") == [tmp_path / "file", tmp_path], "the content, and the name"
    assert checkpoints.load_offsets(tmp_path / "file") == OFFSETS
