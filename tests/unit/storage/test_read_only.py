"""A folder that is read while its broker goes on, or after it is gone, and not touched."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.logs import KEEP_ALL, NOW, batch, crash, fill, open_log, scan
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, read_only, retention
from tidelog.storage.errors import LogOffline, ReadFailed, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.search import by_time, time_range
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME
from tidelog.storage.sources import PATIENT, WAITING

CONFIG = TopicConfig(**KEEP_ALL)  # type: ignore[arg-type]


def read(folder: Path, start: int = 0) -> read_only.ReadOnlyLog:
    return read_only.load(folder, "topic", 0, CONFIG, start, NOW + 1000)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture
def nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every descriptor that could write, and every change of a name."""
    opened = os.open

    def reading(path: str, flags: int, mode: int = 0o777) -> int:
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC), path
        return opened(path, flags, mode)

    monkeypatch.setattr(files.os, "open", reading)
    for name in ("rename", "replace", "remove", "unlink", "ftruncate", "pwrite"):
        monkeypatch.setattr(files.os, name, None, raising=False)


def told(log: Log) -> list[object]:
    """Return what can be asked of a log."""
    ends = (log.log_start_offset, log.log_end_offset, log.damaged)
    answers = [
        (
            by_time.first_at_or_after(log, wanted, timeline, PATIENT),
            time_range.between(log, wanted, wanted + 9, timeline, PATIENT),
        )
        for wanted in range(NOW - 3, NOW + 60, 7)
        for timeline in (RECORD_TIME, APPEND_TIME)
    ]
    return [scan(log), ends, answers]


@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
@pytest.mark.parametrize("saved", ["nothing", "some", "all"])
def test_a_log_that_is_being_written_is_read_as_it_is(
    tmp_path: Path, segment_bytes: int, saved: str, request: pytest.FixtureRequest
) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=100)
    for n in range(20):
        if n == 15 and saved == "some":
            log.active.save()
        fill(log, [[NOW + n, NOW + 40 - n]], NOW + 2 * n)
    if saved == "all":
        log.close()
    expected = told(log)
    log.advance_start(21)
    expected_from_21 = told(log)
    request.getfixturevalue("nothing_is_written")
    before = content(tmp_path)
    assert told(read(tmp_path)) == expected
    assert told(read(tmp_path, 21)) == expected_from_21
    assert content(tmp_path) == before


def test_a_batch_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1]], NOW)
    with open(log.active.path(".log"), "ab") as file:
        file.write(bytes(batch([NOW + 2]))[:-3])
    found = read(tmp_path)
    assert found.log_end_offset == 2
    assert told(found) == told(log)
    assert not found.damaged


def test_a_folder_that_may_only_be_read_is_enough(tmp_path: Path, nothing_is_written: None) -> None:
    (tmp_path / ("0" * 20 + ".log")).write_bytes(b"")
    found = read(tmp_path)
    assert scan(found) == []
    with pytest.raises(LogOffline, match="opened for reading only"):
        found.append(batch([NOW]), NOW)
    assert stat.S_ISDIR(tmp_path.stat().st_mode)


def test_what_a_summary_says_falsely_is_found_again_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for n in range(12):
        fill(log, [[NOW + n, NOW - n]], NOW + n)
    log.close()
    sealed = log.segments[1]
    data = bytearray(sealed.path(".log").read_bytes())
    data[14] ^= 1  # a leader epoch, which no batch's checksum covers
    sealed.path(".log").write_bytes(data)
    sealed.path(".index").write_bytes(b"\0" * 8)
    request.getfixturevalue("nothing_is_written")
    before = content(tmp_path)
    with pytest.raises(TakesLong):
        read(tmp_path).recheck(sealed, WAITING)
    found = read(tmp_path)
    for wanted in range(NOW - 12, NOW + 13):
        expected = next((row for row in scan(found) if row.timestamp >= wanted), None)
        answer = by_time.first_at_or_after(found, wanted, RECORD_TIME, PATIENT)
        assert (answer and answer.offset) == (expected and expected.offset)
    assert found.damaged
    assert by_time.first_at_or_after(found, NOW + 3, APPEND_TIME, PATIENT) is not None
    assert content(tmp_path) == before


def test_what_retention_takes_meanwhile_is_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for n in range(6):
        fill(log, [[NOW + n]], NOW)
    first, second = log.segments[0].path(".log"), log.segments[1]
    copy = crash(log, tmp_path / "copy")
    listed = files.list_folder(copy)
    (copy / first.name).unlink()
    monkeypatch.setattr(files, "list_folder", lambda _: listed)
    assert read(copy).log_start_offset == second.base_offset


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"")
    with pytest.raises(ReadFailed, match="holds no segment of a log"):
        read(tmp_path)


def test_what_came_after_a_summary_stays_where_the_rest_is_rebuilt(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW], [NOW + 1]], NOW)
    log.active.save()
    fill(log, [[NOW + 2]], NOW)
    with open(log.active.path(".log"), "r+b") as file:
        file.seek(8 + 4 + 3)
        file.write(b"\7")  # a leader epoch, which no batch's checksum covers
    found = read(tmp_path)
    assert by_time.first_at_or_after(found, NOW, RECORD_TIME, PATIENT) is not None
    assert by_time.first_at_or_after(found, NOW + 2, RECORD_TIME, PATIENT) == (NOW + 2, 2, 0)
    assert found.segments[0].next_offset == 3


def test_of_what_nothing_tells_the_append_time_it_was_before_now(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [[NOW]], NOW)
    for suffix in (".summary", ".appendindex"):
        log.active.path(suffix).unlink(missing_ok=True)
    for modified_ms, bound_ms in ((NOW + 500, NOW + 500), (NOW + 10**7, NOW + 1000)):
        os.utime(log.active.path(".log"), (modified_ms / 1000, modified_ms / 1000))
        index = read(tmp_path).active.append_index
        assert tuple(index.entry(0)) == (bound_ms, 0, True)


def test_I8_an_empty_segment_of_which_nothing_tells_was_made_before_now(tmp_path: Path) -> None:
    path = tmp_path / ("0" * 20 + ".log")
    path.write_bytes(b"")
    for modified_ms, created_ms in ((NOW + 500, NOW + 500), (NOW + 10**7, NOW + 1000)):
        os.utime(path, (modified_ms / 1000, modified_ms / 1000))
        active = read(tmp_path).active
        begins = retention.stamp(active, "bounded")
        assert (begins, retention.is_bound(active, begins)) == ((created_ms, "created"), False)


def test_S52_a_bound_of_append_times_lies_no_earlier_than_the_last_one_that_is_known(tmp_path: Path) -> None:
    """The clock, and so the time of the file, may have gone back since; append times do not."""
    log = open_log(tmp_path)
    fill(log, [[NOW]], NOW + 5000)
    log.active.save()
    fill(log, [[NOW]], NOW + 5000)
    log.active.path(".appendindex").unlink()
    os.utime(log.active.path(".log"), (NOW / 1000, NOW / 1000))
    assert tuple(read(tmp_path).active.append_index.entry(0)) == (NOW + 5000, 0, True)


def test_a_segment_that_stands_for_lost_offsets_takes_no_appends_and_a_torn_one_ends_before_that(
    tmp_path: Path,
) -> None:
    (tmp_path / ("0" * 20 + ".log")).write_bytes(b"")
    log = open_log(tmp_path / "other", log_start_offset=5)
    fill(log, [[NOW]])
    data = log.active.path(".log").read_bytes()
    (tmp_path / f"{5:020d}.log").write_bytes(data + data[:-1])
    found = read(tmp_path)
    assert [segment.is_active for segment in found.segments] == [False, True]
    assert found.active.summary.log_bytes == found.active.size == len(data)
