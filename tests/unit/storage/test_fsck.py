"""P8, P9, V10, I5: what `fsck` finds in folders that are sound, are written, were killed, or are damaged anywhere."""

import os
import resource
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.logs import (
    NOW,
    batch,
    crash,
    fill,
    index_bytes,
    is_damaged,
    log_bytes,
    open_log,
    scan,
)
from tests.support.paths import KAFKA_WRITTEN
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records.batch import set_base
from tidelog.storage import append_index, layout, segment_check
from tidelog.storage.append_index import HEADER_BYTES, AppendTime
from tidelog.storage.compaction import swap
from tidelog.storage.errors import DataDirLocked
from tidelog.storage.files import FolderLock, boot_id
from tidelog.storage.fsck import Fsck, NothingToCheck, Problem
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.summary import Damage, Summary

OPTIONS = {"index_interval_bytes": 150}
SUFFIXES = (".log", ".index", ".timeindex", ".summary", ".appendindex")


def problems(folder: Path, *, deep: bool = False, repair: bool = False) -> list[Problem]:
    return list(Fsck(folder, deep=deep, repair=repair, pause=lambda _: None).problems())


def places(folder: Path, **options: bool) -> list[tuple[str, int]]:
    return [(problem.path.name, problem.position) for problem in problems(folder, **options)]


def made(folder: Path, *, close: bool = True) -> Log:
    """Make a log of two sealed segments, of two epochs, and an active one."""
    log = open_log(folder, **OPTIONS)
    fill(log, [[NOW + 30, NOW + 10], [NOW + 20], [NOW, NOW + 40]])
    log.flush()
    log = open_log(folder, recovery_point=log.recovery_point, now_ms=NOW + 1, **OPTIONS)
    fill(log, [[NOW + 50, NOW + 60], [NOW + 55]], NOW + 5)
    log.roll(NOW + 5)
    fill(log, [[NOW + 70] * 3, [NOW + 75]], NOW + 6)
    log.roll(NOW + 6)
    fill(log, [[NOW + 90], [NOW + 80, NOW + 100], [NOW + 85]], NOW + 9)
    if close:
        log.close()
    return log


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "topic-0"
    made(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "topic-0"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a log that was closed in order."""
    manager, data = manager_of(tmp_path / "data"), tmp_path / "data"
    manager.open()
    log = manager.create("topic", 0, bytes(15) + b"\7", manager.defaults.topic_defaults())
    fill(log, [[NOW], [NOW + 1], [NOW + 2]])
    assert manager.close()
    return data


def manager_of(data: Path) -> LogManager:
    return LogManager(data, BrokerConfig(log_dir=data), lambda: NOW)


def change(path: Path, position: int, to: bytes | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(to or b"x")] = to or bytes([data[position] ^ 0x10])
    overwrite(path, data)


def overwrite(path: Path, data: bytes) -> None:
    """In place: ext4 puts on disk at once what takes the place of a file cut to nothing, thousands of times here."""
    with path.open("r+b") as file:
        file.write(data)


def batch_positions(path: Path) -> list[int]:
    data, positions, at = path.read_bytes(), [], 0
    while at < len(data):
        positions.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return positions


# What is sound.


@pytest.mark.parametrize("deep", [False, True])
def test_a_log_that_was_closed_is_sound(sound: Path, deep: bool) -> None:
    assert not problems(sound, deep=deep)


@pytest.mark.parametrize("written", sorted(KAFKA_WRITTEN.glob("m*")), ids=lambda path: path.name)
def test_V2_I5_what_kafka_wrote_is_sound_whatever_its_interval(written: Path) -> None:
    assert not problems(written, deep=True)


def test_V2_I5_indexes_that_are_right_for_another_interval_are_sound(folder: Path, tmp_path: Path) -> None:
    log = open_log(tmp_path / "other", index_interval_bytes=70)
    for segment in sorted(folder.glob("*.log"))[:1]:
        data = segment.read_bytes()
        for at, end in zip(batch_positions(segment), [*batch_positions(segment)[1:], None], strict=True):
            log.append(bytearray(data[at:end]), NOW)
    log.close()
    for suffix in (".index", ".timeindex"):
        name = f"{0:020d}{suffix}"
        assert (folder / name).read_bytes() != (tmp_path / "other" / name).read_bytes()
        shutil.copy(tmp_path / "other" / name, folder / name)
    assert not problems(folder)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(NOW, NOW + 9), min_size=1, max_size=6), max_size=12), st.integers(0, 600)
)
def test_I5_every_log_at_every_interval_is_sound(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]], interval: int
) -> None:
    folder = tmp_path_factory.mktemp("log") / "topic-0"
    log = open_log(folder, index_interval_bytes=interval)
    for number, each in enumerate(times):
        if number % 5 == 4:
            log.roll(NOW + number)
        log.append(batch(each), NOW + number)
    log.close()
    assert not problems(folder, deep=True)
    for summary in folder.glob("*.summary"):
        summary.unlink()
    assert {(p.path.suffix, p.what) for p in problems(folder)} <= {(".summary", "missing")}


def test_a_log_that_is_open_is_sound_at_every_step_and_not_disturbed(tmp_path: Path) -> None:
    manager, data = manager_of(tmp_path / "data"), tmp_path / "data"
    manager.open()
    config = manager.defaults.topic_defaults()
    log = manager.create("topic", 0, bytes(15) + b"\7", config)
    for number in range(12):
        log.append(batch([NOW + number], value=b"v" * 1500), NOW + number)
        if number % 4 == 2:
            log.active.save()
        if number % 5 == 4:
            log.roll(NOW + number)
        before = {path: path.read_bytes() for path in (data / "topic-0").iterdir()}
        assert not problems(data, deep=True)
        assert {path: path.read_bytes() for path in (data / "topic-0").iterdir()} == before
    with open(log.active.path(".log"), "ab") as file:
        file.write(batch([NOW])[:-1])
    assert not problems(data)
    with pytest.raises(DataDirLocked, match="stop it before a repair"):
        problems(data, repair=True)
    manager.abandon()
    assert not problems(data)  # as a kill leaves it


def test_a_log_whose_end_was_flushed_has_no_torn_tail(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    path = data / "topic-0" / f"{0:020d}.log"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 5)
    assert places(data)[0] == (path.name, path.stat().st_size)


def test_a_folder_that_is_closed_ends_with_a_batch(data: Path) -> None:
    path = data / "topic-0" / f"{0:020d}.log"
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(bytes(30))
    assert places(data) == [(path.name, size)]
    (data / ".kafka_cleanshutdown").unlink()
    assert not places(data)


def test_offsets_that_the_checkpoints_know_are_missed(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 9\n")
    assert "all before 9 had been flushed" in problems(data)[0].what
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 3\n")
    assert not problems(data)


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_P8_a_partition_that_is_gone_is_missed(data: Path, left: str) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\nempty 0 0\ntopic 0 3\n")
    shutil.rmtree(data / "topic-0")
    says = "is gone, but all before 3 had been flushed"
    if left == "an empty folder":
        (data / "topic-0").mkdir()
        says = "holds no log, but all before 3 had been flushed"
    for repair in (False, True, True):
        found = [(p.path, p.what, p.is_repaired) for p in problems(data, repair=repair)]
        assert found == [(data / "topic-0", says, False)]
    lock = FolderLock(data / ".lock")
    try:
        assert not problems(data)  # whoever has it open may be deleting the topic
    finally:
        lock.release()


def test_a_segment_that_is_gone_is_missed(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.log"))
    (folder / names[1]).unlink()
    found = problems(folder)
    assert f"offsets 8 to {int(names[2][:20]) - 1} before it are gone" in found[0].what
    beside = {path.name for path in folder.glob(names[1].replace(".log", ".*")) if path.stat().st_size}
    assert {p.path.name for p in found[1:]} == beside


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("without", [".txnindex", ".summary"])
def test_a_segment_that_is_gone_with_all_its_files_is_missed(
    tmp_path: Path, stamped: str, without: str
) -> None:
    """The append indexes tell it from what compaction leaves of a log that was imported."""
    folder = tmp_path / "topic-0"
    log = open_log(folder, message_timestamp_type=stamped)
    for _ in range(3):
        fill(log, [[NOW]])
        log.roll(NOW)
    log.close()
    for path in {*folder.glob(f"{1:020d}.*"), *folder.glob(f"*{without}")}:
        path.unlink()
    (found,) = [problem for problem in problems(folder) if problem.path.suffix == ".log"]
    assert (found.path.name, found.position, found.is_note) == (f"{2:020d}.log", 0, False)
    assert found.what.startswith("offsets 1 to 1 before it are ")


def test_segments_that_overlap_are_told(folder: Path) -> None:
    first = min(folder.glob("*.log"))
    for suffix in SUFFIXES:
        source = first.with_suffix(suffix)
        if suffix in (".log", ".index", ".timeindex"):
            shutil.copy(source, folder / f"{3:020d}{suffix}")
    assert any("begins with offset 3" in p.what for p in problems(folder))


# What is damaged.


def test_P8_P9_V10_I5_a_changed_byte_anywhere_is_found(folder: Path) -> None:
    missed = []
    for path in sorted(folder.iterdir()):
        if path.suffix not in SUFFIXES:
            continue
        before = path.read_bytes()
        for position in range(len(before)):
            change(path, position)
            if path.name not in {p.path.name for p in problems(folder)}:
                missed.append((path.name, position))
            overwrite(path, before)
    assert not missed


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + bytes(24),
        lambda data: bytes(len(data)),
        lambda data: data + data,
    ],
)
def test_I5_P3_V9_an_index_that_is_cut_padded_or_emptied_is_found_and_mended(
    folder: Path, suffix: str, spoil: Callable[[bytes], bytes]
) -> None:
    right = index_bytes(folder)
    path = min(folder.glob(f"*{suffix}"))
    path.write_bytes(spoil(path.read_bytes()))
    assert {p.path.name for p in problems(folder)} == {path.name}
    assert all(p.is_repaired for p in problems(folder, repair=True))
    assert index_bytes(folder) == right
    assert not problems(folder, deep=True)
    path.unlink()
    assert [(p.path.name, p.what) for p in problems(folder, repair=True)] == [(path.name, "missing")]
    assert index_bytes(folder) == right


@pytest.mark.parametrize("written", sorted(KAFKA_WRITTEN.glob("m*")), ids=lambda path: path.name)
def test_I5_what_kafka_wrote_is_mended_without_files_of_ours(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / written.name))
    right = index_bytes(folder)
    index = next(folder.glob("*.timeindex" if written.name[1] != "0" else "*.index"))
    change(index, 3)
    assert places(folder, repair=True) == [(index.name, 0)]
    assert index_bytes(folder) == right
    assert not list(folder.glob("*.summary"))


@pytest.mark.parametrize("spoil", ["gone", "cut", "empty"])
def test_a_summary_that_is_gone_or_wrong_is_made_again(folder: Path, spoil: str) -> None:
    path = min(folder.glob("*.summary"))
    before = Summary.load(path)
    match spoil:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-3])
        case _:
            path.write_bytes(b"")
    found = problems(folder, repair=True)
    assert path.name in {p.path.name for p in found}
    assert not problems(folder, deep=True)
    after = Summary.load(path)
    assert before is not None
    assert after is not None
    assert (after.next_offset, after.digests, after.append_entries, after.offset_crc) == (
        before.next_offset,
        before.digests,
        before.append_entries,
        before.offset_crc,
    )
    assert after.flushed


@pytest.mark.parametrize(
    "field",
    ["next_offset", "record_count", "batch_count", "first_timestamp", "max_timestamp", "indexed_position",
     "max_timestamp_last_offset", "offset_entries", "offset_crc", "time_entries", "time_crc", "append_crc"],
)  # fmt: skip
def test_a_summary_that_says_what_the_log_does_not_is_found(folder: Path, field: str) -> None:
    path = min(folder.glob("*.summary"))
    summary = Summary.load(path)
    assert summary is not None
    setattr(summary, field, getattr(summary, field) + 1)
    path.write_bytes(summary.encode())
    assert problems(folder)
    problems(folder, repair=True)
    assert not problems(folder) or field == "append_crc"


@pytest.mark.parametrize("field", ["min_timestamp", "max_timestamp_offset"])
def test_a_summary_whose_times_no_record_has_is_found_when_records_are_looked_at(
    folder: Path, field: str
) -> None:
    path = max(folder.glob("*.summary"))
    summary = Summary.load(path)
    assert summary is not None
    setattr(summary, field, getattr(summary, field) + 1)
    path.write_bytes(summary.encode())
    assert not problems(folder)
    assert [p.path.name for p in problems(folder, deep=True, repair=True)] == [path.name]
    assert not problems(folder, deep=True)


def test_P8_V10_damage_of_a_log_is_kept_and_told_again_and_the_rest_is_mended(folder: Path) -> None:
    path = min(folder.glob("*.log"))
    _, second, third, *_ = batch_positions(path)
    change(path, second + 65)
    change(path.with_suffix(".index"), 1)
    spoiled = log_bytes(folder)
    found = problems(folder, repair=True)
    assert (path.name, second, False) in [(p.path.name, p.position, p.is_repaired) for p in found]
    assert "nothing from offset 2 to offset 2 can be read" in found[0].what
    assert log_bytes(folder) == spoiled
    again = problems(folder, repair=True)
    assert [(p.path.name, p.position) for p in again] == [(path.name, second)]
    log = open_log(folder, clean=True, **OPTIONS)
    assert log.damaged == (f"{path.name}@{second}-{third}",)


@pytest.mark.parametrize("at", [7, 15], ids=["base offset", "leader epoch"])
@pytest.mark.parametrize("with_summary", [True, False])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_V10_fields_that_no_checksum_covers_are_told_and_stay_told(
    folder: Path, at: int, with_summary: bool, which: int
) -> None:
    path = max(folder.glob("*.log"))
    position = batch_positions(path)[which]
    change(path, position + at, b"\x70")
    if not with_summary:
        path.with_suffix(".summary").unlink()
    for _ in range(2):
        assert position in [p.position for p in problems(folder, repair=True) if p.path == path]


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_V10_an_offset_that_the_append_index_does_not_know_is_told(tmp_path: Path, stamped: str) -> None:
    """That of the last batch, where nothing comes after it and no digest vouches for it."""
    folder = tmp_path / "topic-0"
    log = open_log(folder, message_timestamp_type=stamped)
    for n in range(3):
        fill(log, [[NOW]], NOW + n)
    log.close()
    path = folder / f"{0:020d}.log"
    position = batch_positions(path)[-1]
    change(path, position + 7, b"\x05")
    path.with_suffix(".summary").unlink()
    assert (path.name, position) in places(folder)
    log = open_log(folder, was_cut_off=False, recovery_point=3)
    assert [row.offset for row in scan(log)] == [0, 1]
    assert is_damaged(log, 2)


def test_V10_an_offset_that_was_changed_after_damage_is_damage_to_the_check_as_to_a_start(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "topic-0"
    log = open_log(folder)
    fill(log, [[NOW]] * 5)
    log.close()
    path = folder / f"{0:020d}.log"
    positions = batch_positions(path)
    change(path, positions[1] + 65)
    change(path, positions[2] + 7, b"\x01")
    path.with_suffix(".summary").unlink()
    assert any("nothing from offset 1 to offset 2 can be read" in each.what for each in problems(folder))
    log = open_log(folder, was_cut_off=False)
    assert [row.offset for row in scan(log)] == [0, 3, 4]


def test_an_epoch_that_falls_is_told_where_nothing_else_knows_it(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KAFKA_WRITTEN / "m2-none-ct-0", tmp_path / "kafka-0"))
    path = next(folder.glob("*.log"))
    second = batch_positions(path)[1]
    change(path, second + 12, b"\0\0\0\x09")
    assert ("epochs never fall" in problems(folder)[0].what, problems(folder)[0].position) == (True, second)


def test_a_gap_is_no_damage_in_what_others_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "kafka-0"
    folder.mkdir()
    parts = []
    for offset in (10, 14, 30):
        data = batch([NOW])
        set_base(data, 0, offset, 0)
        parts.append(bytes(data))
    (folder / f"{10:020d}.log").write_bytes(b"".join(parts))
    (folder / f"{10:020d}.index").touch()
    (folder / f"{10:020d}.timeindex").write_bytes(NOW.to_bytes(8, "big") + bytes(4))
    assert not problems(folder)
    size = len(parts[0])
    parts[1] = (5).to_bytes(8, "big") + parts[1][8:]
    (folder / f"{10:020d}.log").write_bytes(b"".join(parts))
    assert (f"{10:020d}.log", size) in places(folder)


def test_a_log_that_is_shorter_than_what_was_flushed_is_left_as_it_is(folder: Path) -> None:
    path = max(folder.glob("*.log"))
    with open(path, "r+b") as file:
        file.truncate(batch_positions(path)[-1])
    before = {each: each.read_bytes() for each in folder.iterdir()}
    found = problems(folder, repair=True)
    assert "ends here" in found[0].what
    assert not any(p.is_repaired for p in found)
    assert {each: each.read_bytes() for each in folder.iterdir()} == before


def test_S51_lost_append_times_are_bounded_by_a_repair_and_told(folder: Path) -> None:
    path = min(folder.glob("*.appendindex"))
    change(path, HEADER_BYTES + 20)
    found = problems(folder, repair=True)
    assert [(p.path.name, p.position, p.is_repaired) for p in found] == [
        (path.name, HEADER_BYTES + 16, False)
    ]
    assert not problems(folder)
    entries = list(append_index.sound_entries(append_index.load(path).entries))
    assert any(entry is not None and entry.is_bound for entry in entries)


def test_S51_of_append_times_that_nothing_tells_the_time_of_the_file_is_the_bound(folder: Path) -> None:
    path = max(folder.glob("*.appendindex"))
    path.with_suffix(".summary").unlink()
    path.write_bytes(path.read_bytes()[:-16] + bytes(16))
    os.utime(path.with_suffix(".log"), ((NOW + 5000) / 1000, (NOW + 5000) / 1000))
    problems(folder, repair=True)
    *_, last = append_index.sound_entries(append_index.load(path).entries)
    assert last is not None
    assert (last.time_ms, last.is_bound) == (NOW + 5000, True)


def test_S51_a_creation_that_nothing_tells_is_bounded_by_a_repair(folder: Path) -> None:
    path = max(folder.glob("*.summary"))
    path.unlink()
    os.utime(path.with_suffix(".log"), ((NOW + 5000) / 1000, (NOW + 5000) / 1000))
    problems(folder, repair=True)
    summary = Summary.load(path)
    assert summary is not None
    assert (summary.created_ms, summary.is_created_bound) == (NOW + 5000, 1)


def test_an_append_index_without_its_beginning_or_with_more_than_the_log_is_found(folder: Path) -> None:
    path = max(folder.glob("*.appendindex"))
    data = path.read_bytes()
    for spoiled in (
        data + append_index.encoded([AppendTime(NOW + 99, 50, False)]),
        data[:HEADER_BYTES] + append_index.encoded([AppendTime(NOW + 9, 1, False)]),
        data + b"torn",
        data[:-16],
    ):
        path.write_bytes(spoiled)
        assert path.name in {p.path.name for p in problems(folder)}


def test_deep_decodes_every_record(folder: Path) -> None:
    path = min(folder.glob("*.log"))
    data = bytearray(path.read_bytes())
    end = batch_positions(path)[1]
    data[62] ^= 0x40  # a record's attributes or times
    data[61] = 0x7E
    data[17:21] = crc32c(data[21:end]).to_bytes(4, "big")
    path.write_bytes(data)
    path.with_suffix(".summary").unlink()
    assert not [p for p in problems(folder) if p.path == path]
    assert [p.position for p in problems(folder, deep=True) if p.path == path] == [0]


def test_lost_offsets_that_a_segment_stands_for_stay_told(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    log = made(folder, close=False)
    log.flush()
    lost = crash(log, tmp_path / "lost-0")
    last = max(lost.glob("*.log"))
    with open(last, "r+b") as file:
        file.truncate(0)
    open_log(lost, recovery_point=log.log_end_offset, **OPTIONS).close()
    for _ in range(2):
        assert any("were on disk and are lost" in p.what for p in problems(lost, repair=True))


def test_a_flipped_bit_is_one_finding_and_no_index_is_blamed_for_it(folder: Path) -> None:
    path = min(folder.glob("*.log"))
    change(path, 70)
    assert places(folder) == [(path.name, 0)]


def test_damage_at_the_end_of_a_sealed_segment_ends_where_the_next_begins(folder: Path) -> None:
    path, following, _ = sorted(folder.glob("*.log"))
    position = batch_positions(path)[-1]
    change(path, path.stat().st_size - 1)
    for suffix in (".summary", ".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    found = [p for p in problems(folder) if p.path.suffix == ".log"]
    assert [(p.path, p.position) for p in found] == [(path, position)]
    assert found[0].what.endswith(f"to offset {int(following.name[:20]) - 1} can be read")


def test_a_summary_of_more_than_there_is_is_told_of_a_log_that_was_closed(folder: Path) -> None:
    path = max(folder.glob("*.log"))
    summary = Summary.load(path.with_suffix(".summary"))
    assert summary is not None
    summary.flushed = 0
    path.with_suffix(".summary").write_bytes(summary.encode())
    with open(path, "r+b") as file:
        file.truncate(batch_positions(path)[-1])
    assert "ends here" in problems(folder)[0].what


def test_a_summary_that_names_damage_of_no_batch_is_found(folder: Path) -> None:
    path = min(folder.glob("*.summary"))
    summary = Summary.load(path)
    assert summary is not None
    summary.damage = (Damage(1, 2, 3),)
    path.write_bytes(summary.encode())
    assert [(p.path, p.what) for p in problems(folder)] == [(path, "names damage where the log has none")]


def test_an_epoch_below_that_of_the_checkpoint_is_told_of_what_kafka_wrote(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KAFKA_WRITTEN / "m2-none-ct-0", tmp_path / "kafka-0"))
    path = next(folder.glob("*.log"))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n3 5000\n")
    assert not problems(folder)
    change(path, 12, b"\0\0\0\x02")
    assert places(folder)[0] == (path.name, 0)


def test_a_torn_tail_below_the_recovery_point_is_damage(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    path = data / "topic-0" / f"{0:020d}.log"
    path.with_suffix(".summary").unlink()
    path.with_suffix(".timeindex").write_bytes(b"")  # as it is until a segment is saved
    position = batch_positions(path)[-1]
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 5)
    assert (path.name, position) in places(data)
    (data / "recovery-point-offset-checkpoint").unlink()
    assert not places(data)


def test_a_segment_that_was_never_begun_is_no_damage(folder: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        (folder / f"{3:020d}{suffix}").touch()
    assert not [p for p in problems(folder) if "begins with" in p.what]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_I5_an_index_that_is_wrong_is_found_beside_a_log_that_is_open(tmp_path: Path, suffix: str) -> None:
    manager, data = manager_of(tmp_path / "data"), tmp_path / "data"
    manager.open()
    log = manager.create("topic", 0, bytes(15) + b"\7", manager.defaults.topic_defaults())
    for number in range(12):
        log.append(batch([NOW + number], value=b"v" * 1500), NOW + number)
    log.active.save()
    log.append(batch([NOW + 50]), NOW + 50)
    assert not problems(data)
    path = log.active.path(suffix)
    before = path.read_bytes()
    change(path, 3)
    assert places(data) == [(path.name, 0)]

    def heal(_: float) -> None:
        path.write_bytes(before)

    assert not list(Fsck(data, deep=False, repair=False, pause=heal).problems())
    manager.abandon()
    change(path, 3)
    assert places(data) == [(path.name, 0)]


@pytest.mark.parametrize("spoil", ["torn", "gone", "older"])
def test_beside_a_start_without_a_summary_that_describes_the_log_nothing_is_damaged(
    data: Path, spoil: str
) -> None:
    path = data / "topic-0" / f"{0:020d}.summary"
    summary = Summary.load(path)
    assert summary is not None
    assert (data / "topic-0" / f"{0:020d}.timeindex").stat().st_size
    if spoil == "torn":
        path.write_bytes(bytes(path.stat().st_size))
    elif spoil == "gone":
        path.unlink()
    else:  # one of another version vouches for nothing
        body = struct.pack(">4sHH", b"TLSM", 1, 0) + bytes(200)
        path.write_bytes(body + struct.pack(">I", crc32c(body)))
    (data / ".kafka_cleanshutdown").unlink()
    manager = manager_of(data)
    manager.open()
    fill(manager.logs["topic", 0], [[NOW + 7], [NOW + 8]])
    assert not problems(data, deep=True)
    manager.abandon()
    assert not problems(data, deep=True)


def test_an_interval_that_changes_in_an_emptied_log_damages_nothing(data: Path) -> None:
    manager = manager_of(data)
    manager.open()
    log = manager.logs["topic", 0]
    manager.truncate("topic", 0, 0)
    log.update_config(manager.defaults.topic_defaults().override({"index.interval.bytes": "100"}))
    for number in range(4):
        fill(log, [[NOW + 10 * number], [NOW + 10 * number + 5]])
        log.active.save()
        assert not problems(data, deep=True)
    log.roll(NOW + 60)
    assert not problems(data, deep=True)
    manager.abandon()
    assert not problems(data, deep=True)


def test_what_a_power_cut_may_tear_is_noted_and_what_was_flushed_is_damage(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "boot-id").write_text("another run of the system\n")
    folder = data / "topic-0"
    for suffix in (".summary", ".index", ".timeindex"):
        (folder / f"{0:020d}{suffix}").write_bytes(bytes(36))
    (folder / "leader-epoch-checkpoint").write_bytes(bytes(8))
    (folder / "partition.metadata").write_bytes(bytes(8))
    found = problems(data)
    assert {problem.path.name for problem in found} == {"leader-epoch-checkpoint", "partition.metadata"}
    assert all(problem.is_note and "before it is used" in problem.what for problem in found)
    change(folder / f"{0:020d}.log", 30)
    (lost,) = [problem for problem in problems(data) if problem.path.suffix == ".log"]
    assert not lost.is_note
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 0\n")
    (noted,) = [problem for problem in problems(data) if problem.path.suffix == ".log"]
    assert noted.is_note
    assert noted.what.endswith("the next start cuts it")


def test_a_later_summary_tells_that_a_flush_covers_damage_which_no_start_cuts(data: Path) -> None:
    manager = manager_of(data)
    manager.open()
    log = manager.logs["topic", 0]
    log.roll(NOW)
    fill(log, [[NOW + 3], [NOW + 4]])
    assert manager.close()
    cut_off(data, recovery_point=0)
    (data / "topic-0" / f"{0:020d}.summary").unlink()
    change(data / "topic-0" / f"{0:020d}.log", batch_positions(data / "topic-0" / f"{0:020d}.log")[1] + 30)
    (damage,) = [problem for problem in problems(data) if problem.path.suffix == ".log"]
    assert (damage.is_note, "the next start" in damage.what) == (False, False)
    manager.open()
    log = manager.logs["topic", 0]
    assert [row.offset for row in scan(log)] == [0, 2, 3, 4]
    assert is_damaged(log, 1)
    manager.abandon()


def test_a_torn_tail_beside_a_summary_that_was_not_flushed_is_cut_by_the_next_start(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.open()
    log = manager.create("topic", 0, bytes([1] * 16), TopicConfig(retention_ms=-1))
    log.append(batch([-1, -1]), NOW)  # the first batch has no timestamp, so its summary is written at once
    manager.abandon()
    cut_off(tmp_path, recovery_point=0)
    (file,) = (tmp_path / "topic-0").glob("*.log")
    file.write_bytes(bytes(file.stat().st_size))
    (noted,) = [problem for problem in problems(tmp_path) if problem.path.suffix == ".log"]
    assert noted.is_note
    assert noted.what.endswith("the next start cuts it")
    manager.open()
    assert manager.logs["topic", 0].log_end_offset == 0
    manager.abandon()
    assert not problems(tmp_path)


def test_an_end_of_zeros_that_a_start_after_a_kill_cuts_is_damage_and_said_to_be_cut(tmp_path: Path) -> None:
    """A kill takes nothing that was written, and the summary says that there were batches."""
    manager = killed(tmp_path)
    log = manager.logs["topic", 0]
    log.roll(NOW)
    manager.abandon()
    path = log.segments[0].path(".log")
    position = batch_positions(path)[1]
    data = path.read_bytes()
    path.write_bytes(data[:position] + bytes(len(data) - position))
    (damage,) = problems(tmp_path)
    assert (damage.path, damage.position, damage.is_note) == (path, position, False)
    assert damage.what.endswith("nothing from offset 1 to offset 2 can be read; the next start cuts it")
    manager.open()
    assert manager.logs["topic", 0].log_end_offset == 1
    assert path.stat().st_size == position
    manager.abandon()
    assert not problems(tmp_path)


def test_an_end_that_only_a_summary_without_a_flush_describes_is_noted(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.open()
    log = manager.create("topic", 0, bytes([1] * 16), TopicConfig(retention_ms=-1))
    fill(log, [[NOW], [NOW + 1]])
    log.roll(NOW)
    fill(log, [[NOW + 2]])
    manager.abandon()
    cut_off(tmp_path, recovery_point=0)
    os.truncate(tmp_path / "topic-0" / f"{0:020d}.log", 0)
    copied = Fsck(tmp_path, deep=False, repair=False, is_ours=lambda *_: False)
    (noted,) = [problem for problem in copied.problems() if problem.path.suffix == ".log"]
    assert (noted.path.name, noted.is_note) == (f"{0:020d}.log", True)
    assert noted.what.endswith("no flush covers them")


@pytest.mark.parametrize("written_again", [0, 1])
def test_a_summary_from_before_a_start_cut_the_log_is_noted(tmp_path: Path, written_again: int) -> None:
    manager = manager_of(tmp_path)
    manager.open()
    log = manager.create("topic", 0, bytes([1] * 16), TopicConfig(retention_ms=-1))
    fill(log, [[NOW], [NOW + 1], [NOW + 2] * 3])
    first = log.active
    first.save()
    manager.abandon()
    stale = first.path(".summary").read_bytes()
    os.truncate(first.path(".log"), batch_positions(first.path(".log"))[-1])
    cut_off(tmp_path, recovery_point=0)
    manager = manager_of(tmp_path)
    manager.open()
    log = manager.logs["topic", 0]
    assert log.log_end_offset == 2
    fill(log, [[NOW + 2]] * written_again)
    log.roll(NOW)
    fill(log, [[NOW + 3]])
    log.flush()
    manager.abandon()
    first.path(".summary").write_bytes(stale)
    cut_off(tmp_path, recovery_point=0)
    (noted,) = [each for each in problems(tmp_path) if each.path.suffix in (".log", ".summary")]
    assert (noted.path.suffix, noted.is_note) == (".summary", True)
    assert "describes more than the log, which the next segment continues" in noted.what
    manager = manager_of(tmp_path)
    manager.open()
    assert [row.offset for row in scan(manager.logs["topic", 0])] == list(range(3 + written_again))
    manager.abandon()
    assert not problems(tmp_path)


def test_a_start_cuts_nothing_of_a_topic_that_was_copied_here(data: Path) -> None:
    cut_off(data, recovery_point=0)
    file = data / "topic-0" / f"{0:020d}.log"
    file.with_suffix(".summary").unlink()
    change(file, batch_positions(file)[1] + 30)
    (damage,) = [
        problem
        for problem in Fsck(data, deep=False, repair=False, is_ours=lambda *_: False).problems()
        if problem.path.suffix == ".log"
    ]
    assert (damage.is_note, "the next start" in damage.what) == (False, False)


def test_more_segments_are_checked_than_files_may_be_open(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", segment_bytes=100)
    fill(log, [[NOW + number] for number in range(200)])
    log.close()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, before[1]))
    try:
        assert not problems(log.directory, deep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_changed_leader_epoch_is_damage_that_no_start_cuts(data: Path) -> None:
    cut_off(data, recovery_point=0)
    path = data / "topic-0" / f"{0:020d}.log"
    path.with_suffix(".summary").unlink()
    change(path, batch_positions(path)[2] + 15)
    (damage,) = [problem for problem in problems(data) if problem.path == path]
    assert (damage.is_note, "leader epoch 16" in damage.what) == (False, True)
    change(path, batch_positions(path)[1] + 30)
    assert [problem.is_note for problem in problems(data) if problem.path == path] == [True]
    manager = manager_of(data)
    manager.open()
    assert [row.offset for row in scan(manager.logs["topic", 0])] == [0]
    manager.abandon()


def cut_off(data: Path, *, recovery_point: int) -> None:
    """Have a data folder look as if a power cut had ended its broker, which had noted a flush up to an offset."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (data / "boot-id").write_text("another run of the system\n")
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\ntopic 0 {recovery_point}\n")


def test_a_kill_between_a_log_and_what_lies_beside_it_is_no_damage(folder: Path) -> None:
    first, second, *_ = sorted(folder.glob("*.log"))
    data = folder.parent
    (data / "meta.properties").write_text("version=1\n")
    (data / "boot-id").write_bytes(boot_id() or b"")
    first.unlink()
    assert not problems(data)
    second.unlink()
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 99\n")
    assert "ends before offset" in problems(data)[-1].what


# What cannot be looked at.


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NothingToCheck, match=folder.name):
            problems(folder)


@pytest.mark.parametrize("is_data", [True, False])
def test_a_folder_with_the_name_of_a_partition_is_no_log(tmp_path: Path, is_data: bool) -> None:
    folder = tmp_path / "python-3"
    folder.mkdir()
    (folder / "settings").write_text("x")
    (folder / f"{0:020d}.index").touch()
    with pytest.raises(NothingToCheck, match=f"{tmp_path}.*holds no log; name"):
        problems(tmp_path if is_data else folder)
    (folder / f"{0:020d}.index").write_bytes(bytes(8))
    assert [p.what for p in problems(tmp_path if is_data else folder)] == [
        "the log that it belongs to is gone"
    ]


def test_a_log_that_cannot_be_looked_at_stops_no_other(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(data / "topic-0", data / "other-0")
    broken = data / "other-0" / f"{0:020d}.log"
    look = segment_check.SegmentCheck.check

    def refuse(check: segment_check.SegmentCheck, *, deep: bool) -> list[segment_check.Finding]:
        if check.path == broken:
            raise PermissionError(13, "Permission denied", str(broken))
        return look(check, deep=deep)

    monkeypatch.setattr(segment_check.SegmentCheck, "check", refuse)
    fsck = Fsck(data, deep=False, repair=False)
    assert [(p.path, p.is_seen) for p in fsck.problems()] == [(broken, False)]
    assert fsck.tally[:2] == (2, 1)


@pytest.mark.parametrize(
    "name", [f"{5:020d}.snapshot", f"{0:020d}.index", "leader-epoch-checkpoint", f"{10**20 - 1}.log"]
)
def test_what_keeps_a_partition_from_being_opened_is_named_and_the_others_are_checked(
    data: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(data / "topic-0", data / "other-0")
    path = data / "topic-0" / name
    path.unlink(missing_ok=True)
    if path.suffix == ".log":
        path.write_bytes(bytes(100))
        what = f"a log with an offset above {2**63 - 1}"
    else:
        path.mkdir()
        what = "a folder where a file belongs"
    fsck = Fsck(data, deep=False, repair=False)
    assert list(fsck.problems()) == [Problem(path, 0, f"{what}: this partition is not read", is_flushed=True)]
    assert fsck.tally[:2] == (2, 1)
    manager = manager_of(data)
    manager.open()
    assert f"{what}; move it away: '{path}'" in caplog.text
    manager.close()


def test_a_folder_that_cannot_be_looked_at_stops_no_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data / "topic-0", data / "other-0")
    broken = data / "topic-0"
    look_through = layout.look_through

    def refuse(folder: Path) -> tuple[list[str], list[layout.Misplaced]]:
        if folder == broken:
            raise OSError(5, "Input/output error", str(folder))
        return look_through(folder)

    monkeypatch.setattr(layout, "look_through", refuse)
    fsck = Fsck(data, deep=False, repair=False)
    assert [(p.path, p.is_seen) for p in fsck.problems()] == [(broken, False)]
    assert fsck.tally[:2] == (2, 1)


def test_a_partition_in_a_data_folder_is_under_its_lock(data: Path) -> None:
    lock = FolderLock(data / ".lock")
    try:
        assert not problems(data / "topic-0")
        with pytest.raises(DataDirLocked):
            problems(data / "topic-0", repair=True)
    finally:
        lock.release()
    assert not problems(data / "topic-0", repair=True)


@pytest.mark.parametrize("way", ["link", "link to the data folder", "relative", "."])
def test_a_partition_is_under_its_lock_by_whatever_path(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(data / "topic-0" if way == "." else data)
    match way:
        case "link":
            (path := tmp_path / "link").symlink_to(data / "topic-0")
        case "link to the data folder":
            (path := tmp_path / "link").symlink_to(data)
        case "relative":
            path = Path("topic-0")
        case _:
            path = Path()
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 9\n")
    assert "all before 9 had been flushed" in problems(path)[0].what
    before = {each: each.read_bytes() for each in (data / "topic-0").iterdir()}
    lock = FolderLock(data / ".lock")
    try:
        with pytest.raises(DataDirLocked):
            problems(path, repair=True)
    finally:
        lock.release()
    assert {each: each.read_bytes() for each in (data / "topic-0").iterdir()} == before


# What a repair leaves behind.


def killed(data: Path) -> LogManager:
    """Return the manager of a data folder of one log, whose writer is about to be killed."""
    manager = manager_of(data)
    manager.open()
    log = manager.create("topic", 0, bytes(15) + b"\7", manager.defaults.topic_defaults())
    fill(log, [[NOW], [NOW + 1], [NOW + 2]])
    return manager


def test_a_repair_of_a_torn_tail_describes_what_comes_before_it(tmp_path: Path) -> None:
    manager = killed(tmp_path / "data")
    log = manager.logs["topic", 0]
    log.active.save()
    path = log.active.path(".log")
    manager.abandon()
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(bytes(batch([NOW + 3]))[:-3])
    path.with_suffix(".index").write_bytes(bytes(8))
    assert places(tmp_path / "data", repair=True) == [(path.with_suffix(".index").name, 0)]
    summary = Summary.load(path.with_suffix(".summary"))
    assert summary is not None
    assert (summary.log_bytes, summary.flushed) == (size, 0)
    assert not problems(tmp_path / "data", deep=True)


def test_a_repair_keeps_the_times_of_a_summary_of_which_the_log_has_less(tmp_path: Path) -> None:
    manager = killed(tmp_path / "data")
    log = manager.logs["topic", 0]
    log.active.summary.created_ms = NOW - 5000
    log.active.save()
    path = log.active.path(".log")
    manager.abandon()
    with open(path, "r+b") as file:
        file.truncate(batch_positions(path)[-1])
    path.with_suffix(".index").write_bytes(bytes(8))
    path.with_suffix(".appendindex").write_bytes(bytes(3))
    assert places(tmp_path / "data", repair=True) == [(path.with_suffix(".appendindex").name, 0)]
    summary = Summary.load(path.with_suffix(".summary"))
    assert summary is not None
    assert (summary.created_ms, summary.next_offset) == (NOW - 5000, 2)


def test_I5_indexes_of_another_interval_leave_out_what_is_damaged(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours-0", tmp_path / "other-0"
    for folder, interval in ((ours, 1 << 20), (other, 0)):
        log = open_log(folder, index_interval_bytes=interval)
        fill(log, [[NOW]] * 6)
        log.close()
        path = log.active.path(".log")
        position = batch_positions(path)[3]
        change(path, position + 15, b"\x70")  # the leader epoch, which no checksum covers
        assert (path.name, position) in places(folder, repair=True)
    assert index_bytes(ours) != index_bytes(other)
    for suffix in (".index", ".timeindex"):
        shutil.copy(other / path.with_suffix(suffix).name, ours)
    assert places(ours) == [(path.name, position)]


@pytest.mark.parametrize("tail", [append_index.encoded([AppendTime(NOW + 9, 3, False)]), b"torn"])
def test_an_append_time_whose_batch_was_never_written_is_no_damage(tmp_path: Path, tail: bytes) -> None:
    manager = killed(tmp_path / "data")
    path = manager.logs["topic", 0].active.path(".appendindex")
    manager.abandon()
    with open(path, "ab") as file:
        file.write(tail)
    assert not problems(tmp_path / "data", deep=True)


def test_deep_finds_a_record_beyond_its_batch(tmp_path: Path) -> None:
    folder = tmp_path / "kafka-0"
    folder.mkdir()
    data = batch([NOW, NOW])
    data[23:27] = bytes(4)  # the last offset, relative to the first
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    (folder / f"{0:020d}.log").write_bytes(data)
    (folder / f"{0:020d}.timeindex").write_bytes(NOW.to_bytes(8, "big") + bytes(4))
    assert not problems(folder)
    (found,) = problems(folder, deep=True)
    assert (found.position, found.what.endswith("offset 1 is not of this batch")) == (0, True)


# What the data folder knows of its logs.


def test_only_the_last_segment_may_lag_behind(tmp_path: Path) -> None:
    manager = killed(tmp_path / "data")
    log = manager.logs["topic", 0]
    log.roll(NOW)
    fill(log, [[NOW]])
    path = log.segments[0].path(".log")
    manager.abandon()
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 5)
    assert (path.name, path.stat().st_size) in places(tmp_path / "data")


@pytest.mark.parametrize("clean", [True, False])
def test_offsets_before_the_first_segment_are_missed_after_a_clean_stop(tmp_path: Path, clean: bool) -> None:
    """Otherwise retention may have come after the checkpoint."""
    manager, data = killed(tmp_path / "data"), tmp_path / "data"
    log = manager.logs["topic", 0]
    log.roll(NOW)
    fill(log, [[NOW]])
    log.advance_start(1)
    assert manager.close()
    for path in (data / "topic-0").glob(f"{0:020d}.*"):
        path.unlink()
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    told = [(f"{3:020d}.log", 0, "offsets 1 to 2 before it are gone")]
    assert [(p.path.name, p.position, p.what) for p in problems(data)] == (told if clean else [])


def test_damage_at_the_end_is_told_once_though_it_was_flushed(data: Path) -> None:
    path = data / "topic-0" / f"{0:020d}.log"
    path.with_suffix(".summary").unlink()
    position = batch_positions(path)[-1]
    change(path, position + 65)
    assert [p.position for p in problems(data) if p.path == path] == [position]


def test_what_is_written_meanwhile_is_looked_at_again_until_it_stays(data: Path) -> None:
    lock, path = FolderLock(data / ".lock"), data / "topic-0" / f"{0:020d}.timeindex"
    change(path, 3)
    looks = 0

    def write(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks < 4:
            with open(path.with_suffix(".appendindex"), "ab") as file:
                file.write(b"t")  # torn, as yet

    try:
        (found,) = Fsck(data, deep=False, repair=False, pause=write).problems()
    finally:
        lock.release()
    assert (found.path, looks) == (path, 4)


def test_a_log_that_vanishes_is_no_damage_only_while_it_is_served(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"topic-0": [(0, ""), (7, "")]}
    monkeypatch.setattr(swap, "present", lambda folder: there.get(folder.name, []))
    with pytest.raises(FileNotFoundError, match=f"{7:020d}.log"):
        problems(data)
    lock = FolderLock(data / ".lock")
    try:
        assert not problems(data)
    finally:
        lock.release()
