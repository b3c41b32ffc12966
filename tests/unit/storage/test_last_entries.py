"""S15: what Kafka has stopped cleanly is opened by the last entries of its indexes, and verified as it is read."""

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.batches import batch_of
from tests.support.logs import NOW, batch, crash, fetch_all, first_at, is_damaged, open_log, scan
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import files, read_only, retention
from tidelog.storage.errors import TakesLong
from tidelog.storage.log import Log
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME, first_at_or_after, largest_timestamp
from tidelog.storage.search.time_range import between
from tidelog.storage.sources import PATIENT, WARM
from tidelog.storage.upkeep import enforce_retention

MTIME_MS = NOW - 5000
SEGMENTS, BATCHES, PER_BATCH = 3, 40, 4
SEGMENT_OFFSETS = BATCHES * PER_BATCH
END = SEGMENTS * SEGMENT_OFFSETS
LAST_BASE = END - SEGMENT_OFFSETS


def as_kafka_leaves_it(log: Log) -> Path:
    """Close a log, and remove what Kafka would not have written."""
    log.close()
    for suffix in (".summary", ".appendindex"):
        for path in log.directory.glob("*" + suffix):
            path.unlink()
    for path in log.directory.glob("*.log"):
        os.utime(path, ns=(MTIME_MS * 10**6, MTIME_MS * 10**6))
    return log.directory


@pytest.fixture(params=["in order", "shuffled", "LogAppendTime"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of three segments of some 100 KB each, as Kafka leaves it; all of it is flushed."""
    chance = random.Random(request.param)
    kind = "LogAppendTime" if request.param == "LogAppendTime" else "CreateTime"
    log = open_log(tmp_path / "t-0", message_timestamp_type=kind)
    for number in range(SEGMENTS * BATCHES):
        if number % BATCHES == 0 and number:
            log.roll(NOW)
        times = [NOW - 10**6 + 10 * (number * PER_BATCH + n) for n in range(PER_BATCH)]
        if request.param == "shuffled":
            times = [NOW - chance.randrange(10**6) for _ in times]
        log.append(batch(times, bytes(600)), NOW - 10**6 + number)
    return as_kafka_leaves_it(log)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a log asked for."""
    counts: list[int] = []
    pread = files.File.pread

    def counted(self: files.File, count: int, position: int) -> bytes:
        data = pread(self, count, position)
        counts.append(len(data))
        return data

    monkeypatch.setattr(files.File, "pread", counted)
    return counts


def opened(folder: Path, recovery_point: int = END, *, clean: bool = True) -> Log:
    return open_log(folder, clean=clean, recovery_point=recovery_point)


def known_by_index(log: Log) -> list[bool]:
    return [segment.is_known_by_index for segment in log.segments]


def test_S15_a_start_reads_the_last_entries_and_what_comes_after_them(
    folder: Path, read_bytes: list[int]
) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*.log"))
    before = sorted(path.name for path in folder.iterdir())
    log = opened(folder)
    assert known_by_index(log) == [True, True, True, False]
    assert sum(read_bytes) < size / 5
    assert (log.log_start_offset, log.log_end_offset) == (0, END)
    # What is written is one empty segment, for what comes.
    assert {name for name in os.listdir(folder) if name not in before} == {
        f"{END:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")
    }


def test_S15_S24_the_largest_timestamp_is_that_of_the_last_entry(folder: Path) -> None:
    by_scan = open_log(Path(shutil.copytree(folder, folder.with_name("copy"))))
    log = opened(folder)
    assert [s.summary.max_timestamp for s in log.segments[:3]] == [
        s.summary.max_timestamp for s in by_scan.segments[:3]
    ]
    ours = [retention.stamp(segment, "bounded") for segment in log.segments[:3]]
    assert ours == [retention.stamp(segment, "bounded") for segment in by_scan.segments[:3]]
    assert known_by_index(log)[:3] == [True] * 3


def test_S51_append_times_are_those_of_the_batches_or_else_of_the_file(folder: Path) -> None:
    log = opened(folder)
    if log.segments[0].summary.max_timestamp == log.segments[0].summary.last_append_ms:
        assert [s.summary.last_append_ms for s in log.segments[:3]] == [
            NOW - 10**6 + BATCHES * (n + 1) - 1 for n in range(3)
        ]
        assert first_at_or_after(log, NOW - 10**6 + 7, APPEND_TIME, PATIENT).offset == 7 * PER_BATCH  # type: ignore[union-attr]
    else:
        assert {s.summary.last_append_ms for s in log.segments[:3]} == {MTIME_MS}
        assert first_at_or_after(log, MTIME_MS, APPEND_TIME, PATIENT).offset == 0  # type: ignore[union-attr]


def test_S51_the_creation_of_what_is_known_by_its_index_is_bounded_by_the_time_of_the_file(
    folder: Path,
) -> None:
    known = [segment.summary for segment in opened(folder).segments if segment.is_known_by_index]
    assert [(each.created_ms, each.is_created_bound) for each in known] == [(MTIME_MS, 1)] * SEGMENTS


def test_S15_every_answer_is_that_of_a_scan(folder: Path) -> None:
    rows = scan(open_log(Path(shutil.copytree(folder, folder.with_name("copy")))))
    times = sorted({row.timestamp for row in rows})
    for target in [times[0], times[1], *random.Random(1).sample(times, 20), times[-1], times[-1] + 1]:
        log = opened(Path(shutil.copytree(folder, folder.with_name(f"copy-{target}"))))
        found = first_at(log, target, PATIENT)
        wanted = next((row for row in rows if row.timestamp >= target), None)
        assert (found and found.offset) == (wanted and wanted.offset), target
    log = opened(folder)
    newest = largest_timestamp(log, PATIENT)
    assert newest is not None
    assert newest.offset == next(row.offset for row in rows if row.timestamp == times[-1])
    assert fetch_all(log) == rows


def test_S15_what_is_read_is_described_then_and_the_rest_stays_as_it_is(folder: Path) -> None:
    log = opened(folder)
    with pytest.raises(TakesLong):
        log.read(SEGMENT_OFFSETS, 100, True, WARM)
    log.read(SEGMENT_OFFSETS, 100, True, PATIENT)
    assert known_by_index(log) == [True, False, True, False]
    assert [path.name for path in folder.glob("*.summary")] == [f"{SEGMENT_OFFSETS:020d}.summary"]
    log.close()
    again = opened(folder)
    assert known_by_index(again) == [True, False, True, False]
    assert [row.offset for row in fetch_all(again)] == list(range(END))


@pytest.mark.parametrize("crashes", [True, False])
def test_I4_what_is_appended_goes_on_from_there_and_survives(
    folder: Path, tmp_path: Path, crashes: bool
) -> None:
    log = opened(folder)
    assert log.append(batch([NOW, NOW + 1]), NOW).base_offset == END
    log.flush()
    if crashes:
        folder = crash(log, tmp_path / "after")
    else:
        log.close()
    again = opened(folder, END + 2, clean=not crashes)
    assert known_by_index(again)[:3] == [True] * 3
    assert again.log_end_offset == END + 2
    assert [row.offset for row in fetch_all(again)] == list(range(END + 2))
    assert again.append(batch([NOW]), NOW).base_offset == END + 2


def test_S17_what_the_recovery_point_does_not_cover_is_scanned(folder: Path) -> None:
    for copy, point in (("a", LAST_BASE + 1), ("b", END - 1)):
        log = opened(Path(shutil.copytree(folder, folder.with_name(copy))), point, clean=False)
        assert known_by_index(log) == [True, True, False], point
    assert (
        known_by_index(open_log(Path(shutil.copytree(folder, folder.with_name("copy"))), clean=True))
        == [False] * 3
    )


def test_segments_of_ours_are_scanned_as_they_have_append_times(folder: Path) -> None:
    for base in range(0, END, SEGMENT_OFFSETS):
        (folder / f"{base:020d}.appendindex").write_bytes(b"")
    assert known_by_index(opened(folder)) == [False] * 3


def edited(change: Callable[[bytearray], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)

    return edit


def put(format_: str, at: int, number: int) -> Callable[[bytearray], object]:
    return lambda data: struct.pack_into(format_, data, len(data) + at, number)


def add(format_: str, at: int, number: int) -> Callable[[bytearray], object]:
    return lambda data: put(format_, at, struct.unpack_from(format_, data, len(data) + at)[0] + number)(data)


UNTRUE = {
    "the last offset entry names another offset": (".index", edited(put(">i", -8, SEGMENT_OFFSETS - 2))),
    "it names an offset within its batch": (".index", edited(add(">i", -8, -1))),
    "it names a place within a batch": (".index", edited(put(">i", -4, 1000))),
    "it names a place after the end": (".index", edited(put(">i", -4, 1 << 30))),
    "it names a place before the log": (".index", edited(put(">i", -4, -8))),
    "the index was not cut": (".index", edited(lambda data: data.extend(bytes(8)))),
    "the index is torn": (".index", edited(lambda data: data.pop())),
    "the index is empty": (".index", edited(lambda data: data.clear())),
    "the index is missing": (".index", Path.unlink),
    "the last time entry names another time": (".timeindex", edited(put(">q", -12, NOW + 10**6))),
    "it names an earlier time": (".timeindex", edited(add(">q", -12, -1))),
    "it names an offset after the end": (".timeindex", edited(put(">i", -4, 1 << 30))),
    "the time index was not cut": (".timeindex", edited(lambda data: data.extend(bytes(12)))),
    "the time index is torn": (".timeindex", edited(lambda data: data.pop())),
    "the end of the log is damaged": (".log", edited(put(">B", -5, 7))),
    "the end of the log is cut": (".log", edited(lambda data: data.__delitem__(slice(-300, None)))),
}  # fmt: skip


@pytest.mark.parametrize("what", UNTRUE)
def test_S15_S21_entries_that_are_not_of_this_log_are_not_believed(folder: Path, what: str) -> None:
    suffix, spoil = UNTRUE[what]
    spoil(folder / f"{SEGMENT_OFFSETS:020d}{suffix}")
    by_scan = open_log(Path(shutil.copytree(folder, folder.with_name("copy"))), recovery_point=0, clean=True)
    log = opened(folder)
    assert known_by_index(log)[:3] == [True, False, True]
    middle, scanned = log.segments[1].summary, by_scan.segments[1].summary
    assert middle.max_timestamp == scanned.max_timestamp
    assert middle.next_offset == scanned.next_offset
    for offset in range(END):
        if is_damaged(log, offset):
            assert suffix == ".log"
            assert 2 * SEGMENT_OFFSETS - PER_BATCH <= offset < 2 * SEGMENT_OFFSETS
    for row in scan(by_scan)[::7]:
        found, wanted = first_at(log, row.timestamp, PATIENT), first_at(by_scan, row.timestamp, PATIENT)
        assert (found and found.offset) == (wanted and wanted.offset)


def test_S15_a_time_entry_may_name_any_record_of_its_batch(tmp_path: Path) -> None:
    """As newer Kafka writes it: the one that has the time, and not the last one."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=300)
    for number in range(24):
        log.append(batch([NOW + 10 * (number ^ 12), NOW, NOW], bytes(400)), NOW)
    folder = as_kafka_leaves_it(log)
    edited(add(">i", -4, -2))(folder / f"{0:020d}.timeindex")
    log = opened(folder, 72)
    assert known_by_index(log) == [True, False]
    assert log.segments[0].summary.max_timestamp == NOW + 310


def test_S15_the_time_of_a_batch_that_compaction_has_emptied_is_that_of_no_record(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(24):
        log.append(batch([NOW + number], bytes(400)), NOW)
    folder = as_kafka_leaves_it(log)
    with (folder / f"{0:020d}.log").open("ab") as file:
        file.write(batch_of(b"", count=0, base_offset=24, last_offset_delta=2, max_timestamp=NOW + 10**6))
    (folder / f"{24:020d}.snapshot").rename(folder / f"{27:020d}.snapshot")
    log = opened(folder, 27)
    assert known_by_index(log) == [True, False]
    assert log.segments[0].summary.max_timestamp == NOW + 23
    assert log.log_end_offset == 27


def test_S15_a_range_of_times_ends_where_nobody_has_read(folder: Path) -> None:
    rows = scan(open_log(Path(shutil.copytree(folder, folder.with_name("copy")))))
    log = opened(folder)
    first_ms = min(row.timestamp for row in rows)
    within = [row.offset for row in rows if row.timestamp <= first_ms + 900_000]
    assert between(log, first_ms, first_ms + 900_001, RECORD_TIME, PATIENT) == range(
        within[0], within[-1] + 1
    )


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_S21_a_bit_that_flips_in_an_index_changes_no_answer(tmp_path: Path, suffix: str) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes=300)
    for number in range(24):
        log.append(batch([NOW + 10 * (number ^ 3), NOW + number], bytes(90)), NOW)
    folder = as_kafka_leaves_it(log)
    rows = scan(open_log(Path(shutil.copytree(folder, tmp_path / "scanned"))))
    path = folder / f"{0:020d}{suffix}"
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        copy = Path(shutil.copytree(folder, tmp_path / "copy"))
        (copy / path.name).write_bytes(
            data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        )
        log = opened(copy, 48)
        assert log.log_end_offset == 48
        found = first_at(log, NOW + 100, PATIENT)
        assert found is not None
        assert found.offset == next(row.offset for row in rows if row.timestamp >= NOW + 100), bit
        assert log.segments[0].summary.max_timestamp == max(row.timestamp for row in rows)
        shutil.rmtree(copy)


@pytest.mark.parametrize("spoil", [Path.unlink, edited(lambda data: data.clear())])
def test_S13_S24_a_time_index_that_is_not_there_expires_nothing(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    for path in folder.glob("*.timeindex"):
        spoil(path)
    log = opened(folder)
    assert known_by_index(log) == [False] * 3
    assert all(segment.summary.max_timestamp > NOW - 10**6 for segment in log.segments)


def test_I8_what_only_an_index_says_has_expired_is_read_before_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last entries were cut off, where they name a time in the midst of older ones: nothing shows it."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=300)
    log.append(batch([NOW - 10**6]), NOW)
    log.roll(NOW)
    for number in range(40):
        at = NOW - 1000 if number == 20 else NOW - 10**6 + number % 20
        log.append(batch([at], bytes(300)), NOW)
    log.roll(NOW)
    log.append(batch([NOW - 10**6]), NOW)
    folder = as_kafka_leaves_it(log)
    for path in folder.glob("*.timeindex"):
        data = path.read_bytes()
        entries = [data[at : at + 12] for at in range(0, len(data), 12)]
        path.write_bytes(b"".join(each for each in entries if int.from_bytes(each[:8], "big") < NOW - 1000))
    for now_ms in (NOW, MTIME_MS + 500_000):
        copy = Path(shutil.copytree(folder, tmp_path / f"copy-{now_ms}"))
        log = open_log(copy, clean=True, recovery_point=42, now_ms=now_ms, retention_ms=500_000)
        assert known_by_index(log)[:2] == [False, True]
        enforce_retention(log, now_ms)
        assert (log.log_start_offset, known_by_index(log)[0]) == (1, False)
    # As soon as it is old by the time of its file, too, nobody has to look.
    monkeypatch.setattr(Log, "recheck", None)
    log = open_log(folder, clean=True, recovery_point=42, now_ms=now_ms + 1, retention_ms=500_000)
    enforce_retention(log, now_ms + 1)
    assert log.log_start_offset == 42


def test_S52_kafkas_clock_may_have_been_set_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    for number in range(40):
        log.append(batch([NOW], bytes(600)), NOW + 1000 + number)
    log.last_append_ms = 0  # so that the next ones are earlier
    for number in range(40):
        log.append(batch([NOW], bytes(600)), NOW + number)
    log = opened(as_kafka_leaves_it(log), 80)
    assert known_by_index(log) == [True, False]
    assert log.segments[0].summary.last_append_ms == NOW + 1039
    found = first_at_or_after(log, NOW + 1020, APPEND_TIME, PATIENT)
    assert found is not None
    assert found.offset == 20


def test_V10_P8_damage_that_the_start_did_not_see_is_found_when_it_is_read(folder: Path) -> None:
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    log = opened(folder)
    assert log.damaged == ()
    damaged = [offset for offset in range(END) if is_damaged(log, offset)]
    assert damaged == list(range(damaged[0], damaged[0] + PER_BATCH))
    assert damaged[0] // PER_BATCH in (BATCHES // 2 - 1, BATCHES // 2)
    assert len(log.damaged) == 1
    log.close()
    again = opened(folder)
    assert [offset for offset in range(END) if is_damaged(again, offset)] == damaged


def test_S13_S26_messages_without_times_name_nobody(tmp_path: Path, read_bytes: list[int]) -> None:
    """Kafka before 0.11 leaves neither epochs nor producers, nor a time index before 0.10."""
    log = open_log(tmp_path / "t-0", message_format_version="0")
    for number in range(200):
        log.append(batch([NOW + number], bytes(1000)), NOW)
    end = log.log_end_offset
    folder = as_kafka_leaves_it(log)
    for path in [*folder.glob("*.timeindex"), *folder.glob("*.snapshot"), folder / "leader-epoch-checkpoint"]:
        path.unlink(missing_ok=True)
    read_bytes.clear()
    log = opened(folder, end)
    assert known_by_index(log) == [True, False]
    assert sum(read_bytes) < 20_000
    assert retention.stamp(log.segments[0], "bounded") == (MTIME_MS, "append")
    assert [row.offset for row in fetch_all(log)] == list(range(end))


def test_S13_S26_epochs_that_begin_behind_messages_without_are_believed(
    tmp_path: Path, read_bytes: list[int]
) -> None:
    """As Kafka leaves a log that it has gone on with in the format of 0.11."""
    log = open_log(tmp_path / "t-0", message_format_version="1")
    for number in range(100):
        log.append(batch([NOW + number], bytes(1000)), NOW)
    log.close()
    log = open_log(tmp_path / "t-0", clean=True, recovery_point=100)
    log.roll(NOW)
    for number in range(100):
        log.append(batch([NOW + number], bytes(1000)), NOW)
    folder = as_kafka_leaves_it(log)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 100\n")
    read_bytes.clear()
    log = opened(folder, 200)
    assert known_by_index(log) == [True, True, False]
    assert sum(read_bytes) < 20_000
    assert list(log.epochs.entries) == [(0, 100)]


def test_producers_and_epochs_come_from_what_kafka_has_left(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(100):
        log.append(batch([NOW], bytes(1000), producer_id=7, producer_epoch=0, base_sequence=number), NOW)
    end = log.log_end_offset
    folder = as_kafka_leaves_it(log)
    log = opened(folder, end)
    assert known_by_index(log) == [True, False]
    again = batch([NOW], bytes(1000), producer_id=7, producer_epoch=0, base_sequence=99)
    assert log.append(again, NOW).duplicate
    assert log.epochs.at(0) == 0
    # Without them the batches tell.
    shutil.rmtree(folder.with_name("bare"), ignore_errors=True)
    bare = Path(shutil.copytree(folder, folder.with_name("bare")))
    for path in [*bare.glob("*.snapshot"), bare / "leader-epoch-checkpoint"]:
        path.unlink(missing_ok=True)
    log = opened(bare, end)
    again = batch([NOW], bytes(1000), producer_id=7, producer_epoch=0, base_sequence=99)
    assert log.append(again, NOW).duplicate
    assert log.epochs.at(0) == 0


def test_explain_reads_such_a_folder_and_leaves_it_alone(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    log = read_only.load(folder, "topic", 0, TopicConfig(retention_ms=-1), 0, NOW)
    assert known_by_index(log) == [True] * 3
    assert [row.offset for row in scan(log)] == list(range(END))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
