"""How many files the sealed segments of all logs hold open together."""

import gc
import resource
import threading
from pathlib import Path

import pytest

from tests.support.logs import NOW, fetch_all, fill, held_open, new_shared, open_files, open_log, scan
from tidelog.storage import files, open_segments
from tidelog.storage.log import Log
from tidelog.storage.shared import Shared
from tidelog.storage.sources import PATIENT

MOST = 5


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shared:
    """Bound what is opened from now on; no other test has anything in it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4 * 4 * MOST, resource.RLIM_INFINITY))
    return new_shared(tmp_path)


def logs_open(log: Log) -> list[int]:
    """Return the base offsets of the segments whose log is open."""
    return sorted(int(path.stem) for path in open_files(log.directory) if path.suffix == ".log")


def tiny(folder: Path, count: int, shared: Shared) -> Log:
    """Make a log of which each batch is a segment."""
    log = open_log(folder, shared=shared, segment_bytes=14, index_interval_bytes=0)
    fill(log, [[NOW]] * count)
    return log


def test_segments_that_are_sealed_let_go_of_their_files_at_the_bound(tmp_path: Path, shared: Shared) -> None:
    log = tiny(tmp_path, 50, shared)
    assert held_open(tmp_path) == MOST + 2
    log.flush()
    assert [row.offset for row in fetch_all(log)] == list(range(50))
    assert held_open(tmp_path) <= 3 * MOST + 2
    assert len(shared.open_segments) == MOST


def test_segments_whose_log_is_read_without_their_indexes_are_bounded_too(
    tmp_path: Path, shared: Shared
) -> None:
    log = tiny(tmp_path, 50, shared)
    for segment in log.segments[:-1]:
        assert len(segment.read(segment.size, 0, PATIENT)) == segment.size
    assert held_open(tmp_path) == MOST + 2


def test_the_bound_is_that_of_all_logs_together(tmp_path: Path, shared: Shared) -> None:
    logs = [tiny(tmp_path / str(number), 10, shared) for number in range(4)]
    assert held_open(tmp_path) == MOST + 8
    assert [len(scan(log)) for log in logs] == [10] * 4
    assert held_open(tmp_path) <= 3 * MOST + 8


def test_those_that_were_opened_last_stay_open(tmp_path: Path, shared: Shared) -> None:
    log = tiny(tmp_path, 20, shared)
    for offset in (3, 4, 3):
        log.read(offset, 1, True, PATIENT)
    assert logs_open(log) == [3, 4, 16, 17, 18, 19]


def test_what_a_reader_holds_is_read_to_its_end(tmp_path: Path, shared: Shared) -> None:
    log = tiny(tmp_path, 20, shared)
    held = log.read(0, 1000, True, PATIENT)
    data = held.read()
    for offset in range(1, 19):
        log.read(offset, 1000, True, PATIENT)
    assert 0 in logs_open(log), "the reader's"
    assert len(shared.open_segments) == MOST
    assert held.read() == data


def test_a_segment_that_is_gone_takes_its_files_with_it(tmp_path: Path, shared: Shared) -> None:
    log = tiny(tmp_path, 4, shared)
    gc.disable()
    try:
        assert (len(shared.open_segments), len(shared.open_append_indexes), held_open(tmp_path)) == (3, 1, 5)
        del log
        assert (len(shared.open_segments), len(shared.open_append_indexes), held_open(tmp_path)) == (0, 0, 0)
    finally:
        gc.enable()


def test_an_active_segment_keeps_its_file(tmp_path: Path, shared: Shared) -> None:
    """One that a cut makes active again, too: its appends go on where it ended."""
    log = tiny(tmp_path, 3, shared)
    log.update_config(log.config.override({"segment.bytes": "1000000"}))
    log.truncate(2)
    tiny(tmp_path / "other", 20, shared)
    assert logs_open(log) == [log.active.base_offset]
    fill(log, [[NOW], [NOW]])
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2, 3]


def test_whoever_opens_a_log_first_it_is_one_file(
    tmp_path: Path, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would not know what was appended by way of the first."""
    log = open_log(tmp_path)
    fill(log, [[NOW]])
    log.close()
    log = open_log(tmp_path, clean=True)
    log.active.close()
    entered = threading.Event()
    file_of = files.File

    def slowly(path: Path, *, read_only: bool = False) -> files.File:
        opened = file_of(path, read_only=read_only)
        if threading.current_thread() is not other:
            entered.set()
            other.join()
            fill(log, [[NOW]])
        return opened

    monkeypatch.setattr(files, "File", slowly)
    got: list[files.File] = []
    other = threading.Thread(target=lambda: (entered.wait(10), got.append(log.active.file)))
    other.start()
    mine = log.active.file
    monkeypatch.undo()
    assert got == [mine]
    fill(log, [[NOW]])
    assert [row.offset for row in fetch_all(log)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 256), (resource.RLIM_INFINITY, open_segments.DESCRIPTORS_MAX)]
)
def test_segments_have_a_quarter_of_the_descriptors_that_there_are(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    segments, opened = open_segments.OpenSegments(1), [open_segments.OpenFile() for _ in range(most + 9)]
    with segments.lock:
        for each in opened:
            segments.note(each)
    assert len(segments) == most
