"""F5, V10, P9, P27: any one bit of any file of a partition flipped, then a start after a clean stop, and after a crash.

No start fails; no wrong record is given by offset or by time; the batch that is hit is answered as corrupt and every
other one is read; another start says the same. `make test` tries some of the bits, `make test-all` every one.
"""

import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fault.test_damage import answers, batches, expected
from tests.support.logs import NOW, Row, batch, scan
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.steps import at_once
from tidelog.storage.layout import CLEAN_SHUTDOWN, LOG_STARTS, RECOVERY_POINTS
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

# What Kafka reads as text has no checksum, so that a digit may become another: less is promised of these.
TEXT = (RECOVERY_POINTS, LOG_STARTS)
KINDS = (".log", ".index", ".timeindex", ".appendindex", ".summary", ".snapshot")
HINTS = ("leader-epoch-checkpoint", "partition.metadata", "boot-id")
CONFIG = TopicConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=-1)
STEP = 61  # a prime: in time every bit of a byte


class Whole(NamedTuple):
    """A folder as it should be, and what its log answers."""

    folder: Path
    rows: list[Row]
    where: list[tuple[str, int, int, range]]
    times: Sequence[int]
    reads: list[bytes | None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def opened(folder: Path) -> tuple[LogManager, Log]:
    manager = LogManager(folder, BrokerConfig(), lambda: NOW + 1000)
    manager.open(lambda _: CONFIG)
    return manager, manager.logs["t", 0]


def whole(folder: Path, *, clean: bool) -> Whole:
    """Make a log of a few segments and two leader epochs, some batches compressed, times not in order."""
    manager = LogManager(folder, BrokerConfig(), lambda: NOW)
    manager.open(lambda _: CONFIG)
    log = manager.create("t", 0, bytes(range(16)), CONFIG)
    for number, times in enumerate([[30, 10], [20], [0, 40], [50, 60], [55], [70] * 6, [90], [80, 100]]):
        if number == 4:
            log.flush()
            manager.checkpoint()
            manager.abandon()
            manager, log = opened(folder)
        stamps = [NOW + at for at in times]
        log.append(
            batch(
                stamps,
                codec=4 * (number % 2),
                producer_id=5,
                producer_epoch=0,
                base_sequence=log.log_end_offset,
            ),
            NOW + number,
        )
    log.flush()
    at_once(manager.look_after())
    log.active.save()
    manager.checkpoint()
    times = [NOW - 1, *sorted({row.timestamp for row in scan(log)}), NOW + 1000]
    found = Whole(folder, scan(log), list(batches(log)), times, answers(log, times).reads)
    assert answers(log, times).found == expected(found.rows, log, times)
    assert len(log.segments) >= 3
    if clean:
        assert manager.close()
    else:
        manager.abandon()
    return found


def bits(folder: Path, kinds: tuple[str, ...], step: int) -> Iterator[tuple[Path, int]]:
    """Yield every so many-th bit of the files of these kinds, as a path in the folder and a number."""
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    sizes = [(name, 8 * (folder / name).stat().st_size) for name in names if name.name.endswith(kinds)]
    every = ((name, bit) for name, size in sizes for bit in range(size))
    return (each for number, each in enumerate(every) if number % step == 0)


def flipped(folder: Path, to: Path, name: Path, bit: int) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    data = bytearray((to / name).read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    (to / name).write_bytes(data)
    return to


def records(found: Sequence[tuple[int, int, int] | None]) -> list[tuple[int, int] | None]:
    """Return what was found without the leader epoch: the file that holds them is a text."""
    return [each and each[:2] for each in found]


def is_epoch(good: Whole, name: Path, bit: int, hit: range) -> bool:
    """Tell whether a bit is one of a leader epoch in the segment that was written to last."""
    starts = [start for file, start, _, offsets in good.where if offsets == hit and file == name.name]
    is_last = name.name == good.where[-1][0]
    return is_last and any(12 <= bit // 8 - start < 16 for start in starts)


def check(good: Whole, name: Path, bit: int, to: Path) -> None:
    """Flip a bit and see what two starts make of it."""
    manager, log = opened(flipped(good.folder, to, name, bit))
    hit = next((o for file, a, b, o in good.where if file == name.name and a <= bit // 8 < b), range(0))
    end = len(good.reads)
    reads = [None if offset in hit else good.reads[offset] for offset in range(end)]
    if is_epoch(good, name, bit, hit) and not (good.folder / CLEAN_SHUTDOWN).exists():
        given = answers(log, []).reads
        if given != reads:
            # No checksum covers it before a summary does, and the batches around do not tell.
            hit, reads = range(0), given
            assert [data and data[:12] + data[16:] for data in reads] == [
                data and data[:12] + data[16:] for data in good.reads
            ]
    left = [row for row in good.rows if row.offset not in hit]
    right, rest = (records(expected(rows, log, good.times)) for rows in (good.rows, left))
    assert log.log_end_offset == end
    first = answers(log, good.times, lookups_first=bit % 2 == 0)
    assert first.reads == reads
    assert all(found in either for found, *either in zip(records(first.found), right, rest, strict=True))
    again = answers(log, good.times)
    assert (again.reads, records(again.found)) == (reads, rest)
    assert log.log_end_offset == end
    manager.abandon()
    manager, log = opened(to)
    again = answers(log, good.times)
    assert (again.reads, records(again.found)) == (reads, rest)
    assert log.append(batch([NOW]), NOW).base_offset == end
    manager.abandon()


def check_text(good: Whole, name: Path, bit: int, to: Path) -> None:
    """Flip a bit of a text without a checksum: nothing wrong is served, and another start says the same."""
    seen = []
    for _ in range(2):
        manager, log = opened(to if seen else flipped(good.folder, to, name, bit))
        given = answers(log, good.times)
        start = log.log_start_offset
        for offset, data in enumerate(given.reads[: len(good.reads) - start], start):
            assert data == good.reads[offset]
        assert not any(given.reads[max(len(good.reads) - start, 0) :])
        left = [row for row in good.rows if row.offset >= start]
        assert records(given.found) == records(expected(left, log, good.times))
        seen.append((given.reads, start, log.log_end_offset))
        manager.abandon()
    assert seen[0] == seen[1]


def flip(folder: Path, kinds: tuple[str, ...], *, clean: bool, step: int) -> None:
    good = whole(folder / "good", clean=clean)
    assert (good.folder / CLEAN_SHUTDOWN).exists() == clean
    look = check_text if kinds == TEXT else check
    count = 0
    for name, bit in bits(good.folder, kinds, step):
        count += 1
        try:
            look(good, name, bit, folder / "bad")
        except Exception as error:
            raise AssertionError(f"bit {bit % 8} of {name}@{bit // 8}") from error
    assert count > 5


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("kinds", [KINDS, HINTS, TEXT], ids=["segments", "hints", "texts"])
def test_F5_V10_P9_P27_a_bit_that_flips_costs_its_batch_and_nothing_else(
    tmp_path: Path, kinds: tuple[str, ...], clean: bool
) -> None:
    flip(tmp_path, kinds, clean=clean, step=STEP if kinds == KINDS else 7)


@pytest.mark.all
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), HINTS, TEXT], ids=lambda kinds: kinds[0])
def test_F5_V10_P9_P27_every_bit(tmp_path: Path, kinds: tuple[str, ...], clean: bool) -> None:
    flip(tmp_path, kinds, clean=clean, step=1)
