"""The way from an offset or a time to a batch, around damage, in reads of a bounded size."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import NOW, fill, first_at, open_log, scan, whole_rows
from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage.errors import CorruptLog
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT, WAITING, WARM, Source

# Batches of 2 records; of some the value is larger than what is read at once.
SIZES = [10, 10, 300, 10, 10, 2000, 10, 10, 10, 500, 10, 10, 10, 10]
DAMAGED = [3, 4, 8, 12]


@pytest.fixture(params=[0, 200, 1 << 20])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(by_offset, "FIRST_READ_BYTES", 150)
    monkeypatch.setattr(by_offset, "MAX_READ_BYTES", 600)
    monkeypatch.setattr(by_offset, "SMALL_BATCH_BYTES", 100)
    log = open_log(tmp_path, index_interval_bytes=request.param)
    for number, size in enumerate(SIZES):
        fill(log, [[NOW + number * 37 % 50, NOW + number]], value=b"v" * size)
    return log


def batches_of(log: Log) -> list[tuple[int, BatchHeader]]:
    return [(position, header) for _, position, header in log.headers(0)]


def spoil(log: Log, numbers: list[int]) -> Log:
    """Flip a bit in some batches, and load the log again, from its batches alone."""
    path = log.active.path(".log")
    data = bytearray(path.read_bytes())
    for position, header in [batches_of(log)[number] for number in numbers]:
        data[position + header.size_bytes - 1] ^= 1
    path.write_bytes(data)
    interval = log.active.summary.index_interval_bytes
    for sidecar in log.directory.glob("*.summary"):
        sidecar.unlink()
    return open_log(log.directory, index_interval_bytes=interval, recovery_point=log.log_end_offset)


@pytest.mark.parametrize("source", [PATIENT, WAITING, WARM])
def test_every_offset_is_found_in_its_batch(log: Log, source: Source) -> None:
    data = log.active.path(".log").read_bytes()
    for position, header in batches_of(log):
        for offset in (header.base_offset, header.last_offset):
            *place, head = by_offset.locate(log.active, offset, source)
            assert place == [position, header.size_bytes]
            assert 0 < len(head) <= header.size_bytes
            assert head == data[position : position + len(head)]
    assert by_offset.locate(log.active, log.log_end_offset, source)[:2] == (len(data), 0)


def test_a_read_names_as_many_bytes_as_fit(log: Log) -> None:
    end = log.active.size
    for position, header in batches_of(log):
        size = header.size_bytes
        for max_bytes in (0, 1, size - 1, size, size + 1, size + 1000, 1 << 30):
            for at_least_one in (True, False):
                piece = log.read(header.last_offset, max_bytes, at_least_one, PATIENT)
                length = max_bytes if size <= max_bytes else size if at_least_one else 0
                assert (piece.position, piece.length) == (position, min(length, end - position))
                assert len(piece.read()) == piece.length


def test_around_damage_every_batch_is_found_and_no_other(log: Log) -> None:
    whole = batches_of(log)
    rows = [row for row in scan(log) if row.offset // 2 not in DAMAGED]
    log = spoil(log, DAMAGED)
    assert len(log.active.summary.damage) == 3
    ends = [*(damage.start for damage in log.active.summary.damage), log.active.size]
    for number, (position, header) in enumerate(whole):
        for offset in (header.base_offset, header.last_offset):
            if number in DAMAGED:
                behind = number + 1 if number + 1 not in DAMAGED else number + 2
                next_offset = whole[behind][1].base_offset
                with pytest.raises(CorruptLog, match=rf"offset {offset} .*; read on from {next_offset}$"):
                    log.read(offset, 1 << 20, True, PATIENT)
            else:
                piece = log.read(offset, 1 << 20, True, PATIENT)
                assert piece.position == position
                assert position + piece.length == min(end for end in ends if end > position)
                assert whole_rows(piece.read())[0].offset == header.base_offset
    assert scan(log) == rows
    for wanted in range(NOW - 1, NOW + 60):
        found = first_at(log, wanted, PATIENT)
        expected = next((row for row in rows if row.timestamp >= wanted), None)
        assert (found and found[1::-1]) == (expected and expected[:2])
    for offset in range(0, log.log_end_offset, 2):
        headers = [header.base_offset for _, header in by_offset.headers(log.active, offset)]
        assert headers == [row.offset for row in rows if row.offset >= offset and row.offset % 2 == 0]


def test_reads_on_the_way_grow_up_to_a_bound(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(log.directory, index_interval_bytes=1 << 20)
    reads: list[int] = []

    def read(segment: Segment, count: int, position: int, source: Source, read: Any = Segment.read) -> Any:
        reads.append(count)
        return read(segment, count, position, source)

    monkeypatch.setattr(Segment, "read", read)
    assert by_offset.locate(log.active, 27, PATIENT)[1]
    assert reads[:3] == [150, 300, 600]
    assert max(reads) == 600


def test_a_log_that_somebody_cut_is_corrupt_where_it_ends(log: Log) -> None:
    position, header = batches_of(log)[9]
    log.active.file.truncate(position + 30)
    with pytest.raises(CorruptLog, match="cut short"):
        by_offset.locate(log.active, header.base_offset, PATIENT)
    with pytest.raises(CorruptLog):
        by_offset.locate_timestamp(log.active, NOW + 1000, position, -1, PATIENT)


def test_a_place_in_the_middle_of_a_batch_is_no_batch(log: Log) -> None:
    log.active.file.write_at(b"\x80", batches_of(log)[5][0] + 8)
    with pytest.raises(CorruptLog, match=r"\.log@\d+: "):  # that is where the way to the next leads
        by_offset.locate(log.active, 12, PATIENT)


@pytest.mark.parametrize("likely", [0, 12, 100, 1000, 5000])
def test_a_batch_is_read_whole_where_it_is_about_as_large_as_is_thought(log: Log, likely: int) -> None:
    data = log.active.path(".log").read_bytes()
    for position, header in batches_of(log):
        # From memory as well: the last batch is there, though it may be smaller than is thought.
        *place, head = by_offset.batch_at(log.active, position, max(likely, 12), WARM)
        assert place == [position, header.size_bytes]
        assert head == data[position : position + len(head)]
        assert len(head) == min(header.size_bytes, max(likely, 12) + max(likely, 12) // 8)
