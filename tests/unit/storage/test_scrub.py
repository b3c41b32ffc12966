"""P9: sealed segments are read again; what the disk has spoilt is found, told and refused before a reader comes."""

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import NOW, batch, fetch_all, fill, is_damaged, open_log
from tidelog.broker import broker
from tidelog.broker.clock import Clock
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.blocks import BLOCK_BYTES
from tidelog.storage.log import Log
from tidelog.storage.scrub import Scrubber

KEY = ("topic", 0)
MUCH = 1 << 40


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of two sealed segments, one of three blocks, and an active one; all flushed."""
    log = open_log(tmp_path / "topic-0")
    for number in range(30):
        log.append(batch([NOW + number], value=b"%d" % number * 2500), NOW)
    log.roll(NOW)
    fill(log, [[NOW], [NOW + 1]])
    log.roll(NOW)
    fill(log, [[NOW + 2]])
    log.flush()
    return log


def scrub(logs: dict[tuple[str, int], Log], rate: int = MUCH) -> bool:
    """Do one round; return whether it came to the end."""
    return finished(Scrubber(lambda: logs, rate))


def finished(scrubber: Scrubber) -> bool:
    steps = scrubber.round()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def spoil(path: Path, position: int) -> None:
    """Change a byte on the disk, in memory too."""
    fd = os.open(path, os.O_RDWR)
    byte = os.pread(fd, 1, position)
    os.pwrite(fd, bytes([byte[0] ^ 4]), position)
    os.fsync(fd)
    os.close(fd)


@pytest.fixture(params=["direct", "in memory", "dropped"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Have the file system take reads past memory, or not."""
    real = os.open

    def refusing(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode)

    if request.param != "direct":
        monkeypatch.setattr(os, "open", refusing)
    if request.param == "dropped":
        monkeypatch.setattr(files.File, "read_nowait", lambda *_: None)
    return request.param


def test_P9_what_is_sound_stays_as_it_is(log: Log, way: str, caplog: pytest.LogCaptureFixture) -> None:
    segments = log.segments
    assert scrub({KEY: log})
    assert log.segments == segments
    assert not caplog.records


@pytest.mark.parametrize("position", [70, BLOCK_BYTES + 9, 80_000])
def test_P9_damage_is_told_once_and_refused(
    log: Log, way: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(log.segments[0].path(".log"), position)
    assert scrub({KEY: log})
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    start = position // BLOCK_BYTES * BLOCK_BYTES
    assert told[0].startswith(f"scrub found damage at={log.segments[0].path('.log')}@{start}-")
    assert len(log.damaged) == 1
    assert sum(is_damaged(log, offset) for offset in range(30)) == 1
    caplog.clear()
    assert scrub({KEY: log})
    assert not caplog.records


def test_P9_a_base_offset_that_no_checksum_covers_is_found(log: Log) -> None:
    spoil(log.segments[0].path(".log"), 7)
    assert fetch_all(log)[0].offset != 0  # It was verified when it was appended.
    assert scrub({KEY: log})
    assert is_damaged(log, 0)
    assert not is_damaged(log, 1)


def test_P9_a_leader_epoch_that_no_checksum_covers_is_found(log: Log) -> None:
    spoil(log.segments[0].path(".log"), 15)
    assert scrub({KEY: log})
    assert is_damaged(log, 0)
    assert not is_damaged(log, 1)


def test_P9_what_is_in_memory_vouches_for_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log.segments[0].path(".log")

    class Spoiled(files.ColdFile):
        def pread(self, count: int, position: int) -> bytes:
            data = bytearray(super().pread(count, position))
            if self.path == path and position == 0:
                data[70] ^= 4
            return bytes(data)

    def forget_clean(file: files.File, position: int) -> None:
        if file.path == path and position == 0:
            spoil(path, 70)  # From here on the disk is read.

    monkeypatch.setattr(files, "ColdFile", Spoiled)
    monkeypatch.setattr(files.File, "forget_clean", forget_clean)
    assert scrub({KEY: log})
    assert is_damaged(log, 0)
    assert not is_damaged(log, 1)


def test_a_round_reads_no_more_than_its_share(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    pread = files.ColdFile.pread

    def counting(file: files.ColdFile, count: int, position: int) -> bytes:
        read.append(count)
        return pread(file, count, position)

    monkeypatch.setattr(files.ColdFile, "pread", counting)
    scrubber = Scrubber(lambda: {KEY: log}, BLOCK_BYTES)
    sealed = [segment.size for segment in log.segments[:2]]
    assert sealed[0] > BLOCK_BYTES
    assert not finished(scrubber)
    assert read == [BLOCK_BYTES]
    rounds = 1
    while not finished(scrubber):
        rounds += 1
    assert sum(read) == sum(sealed)
    assert rounds >= sum(sealed) // BLOCK_BYTES
    read.clear()
    while not finished(scrubber):
        pass
    assert sum(read) == sum(sealed)  # and again


def test_what_is_written_or_not_flushed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "topic-0")
    fill(log, [[NOW]])
    log.roll(NOW)
    fill(log, [[NOW]])
    monkeypatch.setattr(files, "ColdFile", None)
    assert scrub({KEY: log})
    assert scrub({})


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("steps_before", range(5))
def test_what_is_deleted_meanwhile_ends_it(
    log: Log, steps_before: int, is_log: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logs = {KEY: log}
    steps = Scrubber(lambda: logs, MUCH).round()
    for _ in range(steps_before):
        next(steps)
    if is_log:
        logs.clear()
    log.segments[0].path(".log").unlink()
    log.segments = log.segments[1:]
    for _ in range(10):
        next(steps, None)
    assert next(steps, None) is None
    assert not caplog.records


def test_a_segment_that_cannot_be_read_is_told_once_and_stops_no_other(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(files.ColdFile):
        def pread(self, count: int, position: int) -> bytes:
            if self.path == log.segments[0].path(".log"):
                raise OSError(5, "Input/output error")
            read.append(self.path)
            return super().pread(count, position)

    read: list[Path] = []
    well = files.ColdFile.pread
    monkeypatch.setattr(files, "ColdFile", Broken)
    scrubber = Scrubber(lambda: {KEY: log}, MUCH)
    assert finished(scrubber)
    assert finished(scrubber)
    assert [record.getMessage().split("=")[0] for record in caplog.records] == ["scrub cannot read file"]
    assert read == [log.segments[1].path(".log")] * 2
    with monkeypatch.context() as patch:
        patch.setattr(Broken, "pread", well)
        assert finished(scrubber)
    assert finished(scrubber)
    assert len(caplog.records) == 2  # it is said again after it had been well


@pytest.mark.parametrize("rate", [0, BLOCK_BYTES])
async def test_P9_a_broker_scrubs_unless_it_is_told_not_to(
    tmp_path: Path, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrubbed = threading.Event()
    rates: list[int] = []

    def round_(scrubber: Scrubber) -> Iterator[None]:
        rates.append(scrubber._rate)
        scrubbed.set()
        yield

    monkeypatch.setattr(Scrubber, "round", round_)
    monkeypatch.setattr(broker, "LOOK_EVERY_S", 0.01)
    one = broker.Broker(BrokerConfig(log_dir=tmp_path / "data", log_scrub_bytes_per_second=rate), Clock())
    one.start()
    try:
        assert await asyncio.to_thread(scrubbed.wait, 5 if rate else 0.1) == bool(rate)
    finally:
        one.release()
        one.stop()
    assert set(rates) == ({rate} if rate else set())
