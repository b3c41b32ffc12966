"""F11: one appends and looks up, as the event loop does, while others flush, roll, expire and let go of files."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.logs import NOW, batch, first_at, open_log, whole_rows
from tests.support.reference_index import differences
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.search import by_time
from tidelog.storage.sources import PATIENT
from tidelog.storage.upkeep import enforce_retention

APPENDS = 500


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Let threads alternate every few bytecodes, where they would every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_reads_lookups_and_appends_go_on_while_others_change_the_structure(tmp_path: Path) -> None:
    log = open_log(
        tmp_path, index_interval_bytes=0, segment_bytes=2000, retention_ms=100, file_delete_delay_ms=0
    )
    stop = threading.Event()
    failures: list[BaseException] = []
    clock = [NOW]

    def repeat(job: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                job()
        except BaseException as error:
            failures.append(error)

    jobs: list[Callable[[], object]] = [
        log.flush,
        lambda: log.roll(clock[0]),
        lambda: enforce_retention(log, clock[0]),
        log.release,
    ]
    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        for n in range(APPENDS):
            clock[0] = NOW + n
            assert log.append(batch([NOW + n]), clock[0]).base_offset == n
            assert first_at(log, NOW + n, PATIENT) == (NOW + n, n, 0)
            found = by_time.largest_timestamp(log, PATIENT)
            assert found is not None
            assert found.offset == n
            early = first_at(log, NOW, PATIENT)
            assert early is not None
            assert early.timestamp == NOW + early.offset
            for offset in (n, log.log_start_offset):
                try:
                    data = log.read(offset, 1000, True, PATIENT).read()
                except OffsetOutOfRange:
                    assert offset < log.log_start_offset
                else:
                    assert whole_rows(data)[0][:2] == (offset, NOW + offset)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert log.flush() == APPENDS
    log.close()
    assert differences(tmp_path, 0) == []
