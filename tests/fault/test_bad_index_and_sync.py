"""F6, F8: an index that is not the log's, however it came about; and a sync that fails, whichever it is."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, Row, batch, fetch_all, fill, first_at, index_bytes, open_log, scan
from tests.support.reference_index import differences
from tidelog.storage.errors import LogOffline
from tidelog.storage.sources import PATIENT

INTERVAL_BYTES = 100


def indexed(folder: Path, first_ms: int = NOW) -> list[Row]:
    """Make a log of three segments with a few entries in each index, and stop it."""
    log = open_log(folder, index_interval_bytes=INTERVAL_BYTES)
    for segment in range(3):
        fill(log, [[first_ms + 100 * segment + 7 * n, first_ms + n] for n in range(8)])
        if segment < 2:
            log.roll(NOW)
    log.close()
    assert differences(folder, INTERVAL_BYTES) == []
    return scan(log)


def shuffled(path: Path, _: Path) -> None:
    width = 8 if path.suffix == ".index" else 12
    data = path.read_bytes()
    entries = [data[at : at + width] for at in range(0, len(data), width)]
    random.Random(1).shuffle(entries)
    path.write_bytes(b"".join(entries))


SPOILT: dict[str, Callable[[Path, Path], object]] = {
    "deleted": lambda path, _: path.unlink(),
    "zeros": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "padded, as if allocated before": lambda path, _: path.write_bytes(path.read_bytes() + bytes(8 * 12)),
    "cut": lambda path, _: path.write_bytes(path.read_bytes()[:-5]),
    "shuffled": shuffled,
    "that of another partition": lambda path, other: path.write_bytes((other / path.name).read_bytes()),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("clean", [True, False])
def test_F6_an_index_that_is_lost_or_false_is_made_again_byte_for_byte(
    tmp_path: Path, suffix: str, how: str, clean: bool
) -> None:
    rows = indexed(tmp_path / "a")
    indexed(tmp_path / "b", first_ms=NOW + 3)
    good = index_bytes(tmp_path / "a")
    for path in sorted((tmp_path / "a").glob(f"*{suffix}")):
        SPOILT[how](path, tmp_path / "b")
    log = open_log(tmp_path / "a", clean=clean, recovery_point=len(rows), index_interval_bytes=INTERVAL_BYTES)
    for row in rows:
        found = first_at(log, row.timestamp, PATIENT)
        first = next(each for each in rows if each.timestamp >= row.timestamp)
        assert found is not None
        assert found[:2] == (first.timestamp, first.offset)
    assert fetch_all(log) == rows
    log.close()
    if how.startswith("padded"):  # What is behind the last entry is not looked at, and is no entry.
        assert all(data.startswith(good[name]) for name, data in index_bytes(tmp_path / "a").items())
    else:
        assert index_bytes(tmp_path / "a") == good


def test_F8_after_a_sync_that_failed_nothing_is_acknowledged_and_everything_is_read(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """Whichever sync it is of a log that rolls: the n-th fails once; that the next ones succeed proves nothing."""
    for nth in range(1, 200):
        folder = tmp_path / f"log-{nth}"
        log = open_log(folder, segment_bytes=250, index_interval_bytes=INTERVAL_BYTES)
        fault = disk.fail("sync", after=nth - 1, times=1)
        acknowledged, appended, has_failed = 0, 0, False
        for _ in range(6):
            try:
                log.append(batch([NOW]), NOW)
                appended += 1
                acknowledged = log.flush()
                assert not has_failed, f"an acknowledgement after sync {nth} had failed"
            except LogOffline:
                has_failed = True
        assert len(scan(log)) == appended
        if not has_failed:
            assert not fault.hits, "no sync was left out"
            break
        with pytest.raises(LogOffline, match=r"flush failed .*repair the disk and restart"):
            log.append(batch([NOW]), NOW)
        again = open_log(folder, recovery_point=acknowledged, segment_bytes=250)
        assert again.log_end_offset >= acknowledged
        assert again.append(batch([NOW]), NOW).base_offset == again.log_end_offset - 1
        assert again.flush() == again.log_end_offset
        disk.heal()
    assert nth > 10
