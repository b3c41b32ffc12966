"""A summary of other bytes is a hint that is false: no sound batch is refused for it, and no append time is lost."""

import shutil
from pathlib import Path

import pytest

from tests.support.compaction import COMPACTED, append_ms_of, clean_all, keyed
from tests.support.logs import NOW, batch, first_at, open_log, scan
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import read_only
from tidelog.storage.errors import CorruptLog
from tidelog.storage.fsck import Fsck
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.search import by_time
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Damage, Summary

OPTIONS = {"index_interval_bytes": 150}
# Of each log the batches of its sealed segments, the records in a batch, and the size of a value.
SHAPES = {
    "plain": ((10, 10), 1, 1),
    "alike": ((10, 10), 1, 1),
    "wider": ((10, 10), 1, 2),
    "longer": ((20, 5), 1, 1),
    "shorter": ((4, 16), 1, 1),
    "large": ((10, 10), 1, 500),
    "of threes": ((10, 10), 3, 1),
    "compacted": ((10, 10), 3, 40),
}


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)


def made(folder: Path, shape: str) -> Log:
    log = open_log(folder, **{**OPTIONS, **(COMPACTED if shape == "compacted" else {})})
    segments, records, size = SHAPES[shape]
    at = NOW + 1000 * list(SHAPES).index(shape)
    for count in (*segments, 3):
        if log.active.size:
            log.roll(at)
        for _ in range(count):
            at += 1
            if shape == "compacted":
                pairs = [(b"%d" % (n + at % 2), b"v" * size) for n in range(records)]
                log.append(keyed(*pairs, at=at), at)
            else:
                log.append(batch([at] * records, b"v" * size), at)
    if shape == "compacted":
        assert clean_all(log, at + 1000) > 0
    log.flush()
    log.close()
    return log


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Log]:
    root = tmp_path_factory.mktemp("logs")
    return {shape: made(root / f"{shape.replace(' ', '-')}-0", shape) for shape in SHAPES}


def answers(log: Log) -> tuple[object, ...]:
    """Return what a log says of each record, and of when it was appended."""
    rows = scan(log)
    times = [append_ms_of(log, header.base_offset) for _, _, header in log.headers(0)]
    found = [by_time.first_at_or_after(log, at, by_time.APPEND_TIME, PATIENT) for at, _ in times]
    by_record = [first_at(log, row.timestamp, PATIENT) for row in rows]
    assert log.damaged == ()
    return rows, times, [each and each[:2] for each in found], [each and each[:2] for each in by_record]


def summaries(log: Log) -> list[int]:
    return [each.base_offset for each in log.segments if each.path(".summary").exists()]


def with_false_summaries(logs: dict[str, Log], target: str, source: str, folder: Path) -> Path:
    """Copy a log, and over each of its summaries one of another log; of the same base offset if there is one."""
    shutil.copytree(logs[target].directory, folder)
    theirs = summaries(logs[source])
    for number, base in enumerate(summaries(logs[target])):
        of = base if base in theirs else theirs[number % len(theirs)]
        shutil.copy(logs[source].directory / f"{of:020d}.summary", folder / f"{base:020d}.summary")
    return folder


@pytest.mark.parametrize("how", ["clean", "killed", "checked", "repaired"])
@pytest.mark.parametrize("source", SHAPES)
@pytest.mark.parametrize("target", ["plain", "large", "of threes", "compacted"])
def test_no_sound_batch_is_refused_for_a_summary_of_another_log(
    logs: dict[str, Log], tmp_path: Path, target: str, source: str, how: str
) -> None:
    end = logs[target].log_end_offset
    sound = shutil.copytree(logs[target].directory, tmp_path / "sound-0")
    expected = answers(open_log(sound, clean=True, recovery_point=end, **OPTIONS))
    folder = with_false_summaries(logs, target, source, tmp_path / "topic-0")
    if how == "checked":
        log = read_only.load(folder, "topic", 0, TopicConfig(**OPTIONS), 0, NOW)
        assert [row.offset for row in scan(log)] == [row.offset for row in expected[0]]  # type: ignore[attr-defined]
        return
    if how == "repaired":
        found = list(Fsck(folder, deep=True, repair=True).problems())
        assert (source == target) == (not found)
        assert all(each.is_repaired and each.path.suffix == ".summary" for each in found), found
        assert not list(Fsck(folder, deep=True, repair=False).problems())
    for _ in range(2):
        log = open_log(folder, clean=how != "killed", was_cut_off=False, recovery_point=end, **OPTIONS)
        assert answers(log) == expected
        if how != "killed":
            assert log.close()
            assert not list(Fsck(folder, deep=True, repair=False).problems())


def test_lost_offsets_of_another_log_are_not_of_one_with_batches(
    logs: dict[str, Log], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(logs["plain"].directory, tmp_path / "topic-0"))
    summary = Summary(1, 0, 0, NOW, 4096, damage=(Damage(0, 0, 10),))
    (folder / f"{0:020d}.summary").write_bytes(summary.encode())
    log = open_log(folder, clean=True, recovery_point=logs["plain"].log_end_offset, **OPTIONS)
    assert (len(scan(log)), log.damaged) == (23, ())


def test_damage_is_found_beside_a_summary_of_another_log(logs: dict[str, Log], tmp_path: Path) -> None:
    folder = with_false_summaries(logs, "plain", "of threes", tmp_path / "topic-0")
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[4 * 70 + 65] ^= 1
    path.write_bytes(data)
    log = open_log(folder, clean=True, recovery_point=23, **OPTIONS)
    with pytest.raises(CorruptLog, match="read on from 5"):
        log.read(4, 1, True, PATIENT)
    assert [row.offset for row in scan(log)] == [offset for offset in range(23) if offset != 4]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_I2_the_check_and_the_start_agree_on_a_summary_beside_a_log_without_batches(
    logs: dict[str, Log], tmp_path: Path, clean: bool, is_flushed: bool
) -> None:
    """A clean stop has noted the end; after a kill, a summary that was flushed tells of batches that are gone."""
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    manager.open()
    folder = manager.create("t", 0, bytes(16), TopicConfig()).directory
    manager.close() if clean else manager.abandon()
    summary = Summary.load(min(logs["plain"].directory.glob("*.summary")))
    assert summary is not None
    summary.flushed = int(is_flushed)
    (folder / f"{0:020d}.summary").write_bytes(summary.encode())
    are_lost = is_flushed and not clean
    found = list(Fsck(tmp_path / "data", deep=False, repair=False).problems())
    assert any(each.path.suffix == ".log" for each in found) == are_lost
    assert [each.path.suffix for each in found if each.path.suffix == ".summary"] == [".summary"] * clean
    manager = LogManager(tmp_path / "data", BrokerConfig(), lambda: NOW)
    manager.open()
    assert manager.logs["t", 0].log_end_offset == (summary.next_offset if are_lost else 0)
    manager.close()
    if not are_lost:
        assert not list(Fsck(tmp_path / "data", deep=False, repair=False).problems())
