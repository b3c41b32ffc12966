"""`tidelog import`: folders of partitions, by Kafka and by us, become partitions; S51, V2, I5, P2."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.logs import NOW, batch, fill, log_bytes, open_log, scan
from tests.support.paths import KAFKA_WRITTEN
from tidelog.broker.catalog import CATALOG_FILE, Catalog
from tidelog.broker.clock import Clock
from tidelog.broker.importing import Imported, import_partition
from tidelog.broker.topics import Topic, Topics
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app
from tidelog.config.options import BrokerConfig
from tidelog.protocol.records.batch import set_base
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import files
from tidelog.storage.errors import CorruptLog, DataDirLocked, StorageError
from tidelog.storage.files import FolderLock
from tidelog.storage.fsck import Fsck
from tidelog.storage.log_manager import LogManager
from tidelog.storage.sources import PATIENT

ALL = sorted(KAFKA_WRITTEN.glob("m*"))
M2 = sorted(KAFKA_WRITTEN.glob("m2-*"))
BASE = 5000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.hold(NOW)
    return clock


def bring(
    data: Path, source: Path, clock: Clock, topic: str = "old", partition: int = 0, **options: str
) -> Imported:
    named = {name.replace("_", "."): value for name, value in options.items()}
    config = BrokerConfig(log_dir=data)
    return import_partition(config, clock, source, topic, partition, named)


def served(data: Path) -> tuple[LogManager, dict[str, Topic]]:
    """Open a data folder as a broker does, and look at its topics."""
    config = BrokerConfig(log_dir=data)
    logs = LogManager(data, config, lambda: NOW)
    logs.lock()
    catalog, loop = Catalog(data / CATALOG_FILE), asyncio.new_event_loop()
    try:
        topics = Topics(catalog, logs, config, loop)
        topics.open()
        return logs, topics.by_name
    finally:
        loop.close()
        catalog.close()


def topics_of(data: Path) -> dict[str, list[int]]:
    """Return the end of each partition of each topic."""
    if not data.exists():
        return {}
    logs, topics = served(data)
    try:
        return {name: [p.log.log_end_offset for p in topic.partitions] for name, topic in topics.items()}
    finally:
        logs.close()


def sidecars_gone(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder)
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    return folder


@pytest.mark.parametrize("source", ALL, ids=lambda path: path.name)
def test_V2_I5_what_kafka_wrote_keeps_its_offsets_and_bytes(source: Path, data: Path, clock: Clock) -> None:
    imported = bring(data, source, clock)
    assert imported.foreign == ["expected.jsonl"]
    assert imported.staged[1:4] == (BASE, imported.staged.end_offset, 1)
    assert log_bytes(data / "old-0") == log_bytes(source)
    assert not list(Fsck(data, deep=True, repair=False).problems())
    assert not (data / "old-0" / "expected.jsonl").exists()
    logs, topics = served(data)
    log = topics["old"].partitions[0].log
    assert (log.log_start_offset, log.log_end_offset) == (BASE, imported.staged.end_offset)
    assert topics["old"].id == log.topic_id
    rows = scan(log)
    assert [row.offset for row in rows] == list(range(BASE, log.log_end_offset))
    logs.close()


def test_S51_append_times_are_the_files_time_as_a_bound(tmp_path: Path, data: Path, clock: Clock) -> None:
    source = sidecars_gone(KAFKA_WRITTEN / "m2-none-ct-0", tmp_path / "kafka-0")
    os.utime(next(source.glob("*.log")), (NOW / 1000 - 60, NOW / 1000 - 60))
    bring(data, source, clock)
    logs, topics = served(data)
    times = topics["old"].partitions[0].log.segments[0].append_index
    assert [tuple(times.entry(n)) for n in range(len(times))] == [(NOW - 60_000, 0, True)]
    logs.close()


def with_gaps(folder: Path, stamped: str, *segments: tuple[int, ...]) -> Path:
    """Make a partition's folder as compaction leaves it: a batch at each of these offsets, and no other."""
    log = open_log(folder.with_name("appended"), message_timestamp_type=stamped)
    folder.mkdir()
    for offsets in segments:
        parts = []
        for offset in offsets:
            log.append(batch([NOW]), NOW + offset)
            data = bytearray(log.read(log.log_end_offset - 1, 1 << 20, True, PATIENT).read())
            set_base(data, 0, offset, 0)
            parts.append(bytes(data))
        (folder / f"{offsets[0]:020d}.log").write_bytes(b"".join(parts))
    return folder


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("stop", ["stop", "crash"])
def test_S51_gaps_between_offsets_stay_though_the_summary_is_lost(
    tmp_path: Path, data: Path, clock: Clock, stamped: str, stop: str
) -> None:
    bring(data, with_gaps(tmp_path / "kafka-0", stamped, (10, 14, 30)), clock, retention_ms="-1")
    assert not list(Fsck(data, deep=True, repair=False).problems())
    (data / "old-0" / f"{10:020d}.summary").unlink()
    if stop == "crash":
        (data / ".kafka_cleanshutdown").unlink()
    assert {problem.what for problem in Fsck(data, deep=True, repair=False).problems()} <= {"missing"}
    logs, topics = served(data)
    log = topics["old"].partitions[0].log
    assert ([row.offset for row in scan(log)], log.damaged, log.log_end_offset) == ([10, 14, 30], (), 31)
    logs.close()
    assert not list(Fsck(data, deep=True, repair=False).problems())


def test_S51_a_bound_on_lost_append_times_says_of_no_gap_that_a_batch_was_in_it(
    tmp_path: Path, data: Path, clock: Clock
) -> None:
    bring(data, with_gaps(tmp_path / "kafka-0", "CreateTime", (10, 14, 30)), clock, retention_ms="-1")
    logs, topics = served(data)
    log = topics["old"].partitions[0].log
    fill(log, [[NOW]], NOW + 10**12)
    logs.close()
    times = log.active.path(".appendindex")
    entries = bytearray(times.read_bytes())
    entries[-1] ^= 1
    times.write_bytes(entries)
    for _ in range(2):
        log.active.path(".summary").unlink()
        logs, topics = served(data)
        again = topics["old"].partitions[0].log
        assert ([row.offset for row in scan(again)], again.damaged) == ([10, 14, 30, 31], ())
        index = again.active.append_index
        assert [index.entry(n)[1:] for n in range(len(index))] == [(0, True)], "one bound is that of all"
        logs.close()


def test_V10_what_is_appended_to_an_imported_log_leaves_no_gap(
    tmp_path: Path, data: Path, clock: Clock
) -> None:
    bring(data, with_gaps(tmp_path / "kafka-0", "CreateTime", (10, 14, 30)), clock, retention_ms="-1")
    logs, topics = served(data)
    log = topics["old"].partitions[0].log
    fill(log, [[NOW]] * 2)
    log.flush()
    logs.checkpoint()
    logs.abandon()
    path = log.active.path(".log")
    position = path.stat().st_size // 5 * 4
    assert not list(Fsck(data, deep=True, repair=False).problems())
    with open(path, "r+b") as file:
        file.seek(position + 7)
        file.write(bytes([32 + 8]))  # an offset, which no checksum covers
    found = [(problem.path, problem.position) for problem in Fsck(data, deep=False, repair=False).problems()]
    assert (path, position) in found


@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_a_gap_between_segments_of_what_was_imported_is_no_damage(
    tmp_path: Path, data: Path, clock: Clock, stamped: str
) -> None:
    bring(data, with_gaps(tmp_path / "kafka-0", stamped, (10, 11), (20, 21)), clock, retention_ms="-1")
    assert not list(Fsck(data, deep=True, repair=False).problems())


def test_what_tidelog_wrote_is_imported_too(tmp_path: Path, data: Path, clock: Clock) -> None:
    log = open_log(tmp_path / "ours-4", index_interval_bytes=50)
    fill(log, [[NOW, NOW + 5], [NOW + 3]])
    log.roll(NOW)
    fill(log, [[NOW + 9]])
    log.close()
    imported = bring(data, tmp_path / "ours-4", clock, partition=4)
    assert (imported.foreign, imported.partitions, imported.expired) == ([], 5, None)
    assert log_bytes(data / "old-4") == log_bytes(tmp_path / "ours-4")
    assert topics_of(data) == {"old": [0, 0, 0, 0, 4]}


def test_a_topic_that_is_there_grows_and_keeps_its_id_and_options(data: Path, clock: Clock) -> None:
    first = bring(data, M2[0], clock, partition=1, retention_ms="-1")
    logs, topics = served(data)
    topic_id = topics["old"].id
    logs.close()
    second = bring(data, M2[1], clock, partition=3)
    bring(data, M2[2], clock, partition=0)
    logs, topics = served(data)
    assert (topics["old"].id, topics["old"].options) == (topic_id, {"retention.ms": "-1"})
    assert [partition.log.topic_id for partition in topics["old"].partitions] == [topic_id] * 4
    ends = [partition.log.log_end_offset for partition in topics["old"].partitions]
    assert (ends[1], ends[2], ends[3]) == (first.staged.end_offset, 0, second.staged.end_offset)
    logs.close()


def test_a_partition_that_holds_records_is_refused(data: Path, clock: Clock) -> None:
    bring(data, M2[0], clock)
    before = log_bytes(data / "old-0")
    with pytest.raises(StorageError, match="partition 0 of topic old holds records"):
        bring(data, M2[1], clock)
    assert log_bytes(data / "old-0") == before
    assert not list(data.glob("*-delete"))


def test_a_partition_that_held_records_is_refused(data: Path, clock: Clock) -> None:
    bring(data, M2[0], clock)
    logs, topics = served(data)
    log = topics["old"].partitions[0].log
    log.roll(NOW)
    log.drop_segments(1, NOW)
    log.deleted.remove_now(())
    assert not log.size_bytes
    logs.close()
    with pytest.raises(StorageError, match="or has held some"):
        bring(data, M2[1], clock)


@pytest.mark.parametrize(
    ("topic", "partition", "says"),
    [
        ("no/name", 0, "other than ASCII alphanumerics"),
        ("__cluster_metadata", 0, "controllers"),
        ("topic", 10_000, "at most 10000"),
        ("a.b", 0, "collides with existing topic: a_b"),
        ("gone", 0, "was deleted"),
    ],
)
def test_what_no_topic_can_be_is_refused(
    data: Path, clock: Clock, topic: str, partition: int, says: str
) -> None:
    bring(data, M2[0], clock, "a_b")
    catalog = Catalog(data / CATALOG_FILE)
    catalog.remove_topic("gone")
    catalog.close()
    with pytest.raises(StorageError, match=says):
        bring(data, M2[0], clock, topic, partition)


def test_other_options_of_a_topic_that_is_there_are_refused(data: Path, clock: Clock) -> None:
    bring(data, M2[0], clock, retention_ms="-1")
    with pytest.raises(StorageError, match="leave --config out"):
        bring(data, M2[1], clock, partition=1, retention_ms="5")
    bring(data, M2[1], clock, partition=1, retention_ms="-1")


def test_folders_that_a_broker_has_open_are_refused(tmp_path: Path, data: Path, clock: Clock) -> None:
    other, link = tmp_path / "other", tmp_path / "link-0"
    bring(other, M2[0], clock)
    link.symlink_to(other / "old-0")
    for folder in (data, other):
        folder.mkdir(exist_ok=True)
        lock = FolderLock(folder / ".lock")
        try:
            for source in (other / "old-0", link):
                with pytest.raises(DataDirLocked, match="stop it"):
                    bring(data, source, clock)
        finally:
            lock.release()
    bring(data, other / "old-0", clock)
    bring(data, data / "old-0", clock, "again")  # from one topic to another: the lock is ours


def test_a_folder_without_a_log_is_refused(tmp_path: Path, data: Path, clock: Clock) -> None:
    for source in (tmp_path / "missing-0", tmp_path):
        with pytest.raises(StorageError, match=source.name):
            bring(data, source, clock)
    assert topics_of(data) == {}


def test_a_torn_tail_is_left_out_and_damage_is_kept(tmp_path: Path, data: Path, clock: Clock) -> None:
    source = sidecars_gone(M2[2], tmp_path / "kafka-0")
    log = next(source.glob("*.log"))
    whole = bytearray(log.read_bytes())
    whole[80] ^= 1
    log.write_bytes(whole + whole[:50])
    staged = bring(data, source, clock).staged
    assert (staged.cut_bytes, len(staged.damaged)) == (50, 1)
    assert log_bytes(data / "old-0") == {log.name: bytes(whole)}


def test_segments_that_overlap_are_named_in_the_source(tmp_path: Path, data: Path, clock: Clock) -> None:
    source = sidecars_gone(M2[2], tmp_path / "kafka-0")
    log = next(source.glob("*.log"))
    shutil.copy(log, again := source / f"{BASE + 1:020d}.log")
    with pytest.raises(CorruptLog) as raised:
        bring(data, source, clock)
    assert str(log) in str(raised.value)
    assert str(again) in str(raised.value)
    assert "-delete" not in str(raised.value)


class Killed(BaseException):
    """The process is no more."""


@pytest.mark.parametrize(
    ("options", "partition", "has_topic"),
    [({}, 0, False), ({}, 2, True), ({"retention_ms": "-1"}, 0, False)],
)
def test_a_kill_at_any_step_leaves_nothing_or_all(
    tmp_path: Path,
    data: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    partition: int,
    has_topic: bool,
) -> None:
    if has_topic:
        bring(data, M2[0], clock, "old", 1, **options)
    else:
        bring(data, M2[0], clock, "other")
    steps = 0
    left = -1

    def killed(do: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == left:
                raise Killed
            return do(*args, **named)

        return step

    names = (
        "copy",
        "write",
        "write_atomically",
        "rename",
        "sync_folder",
        "sync",
        "make_folder",
        "remove",
        "create",
    )
    for name in names:
        monkeypatch.setattr(files, name, killed(getattr(files, name)))
    # Each file is synced by itself, whatever other programs have written: each run takes the same steps.
    monkeypatch.setattr(files.DirtyMemory, "bytes", lambda _: 1 << 40)
    whole = tmp_path / "whole"
    shutil.copytree(data, whole)
    before = topics_of(whole)
    steps = 0
    bring(whole, M2[1], clock, "old", partition, **options)
    most, after = steps, topics_of(whole)
    empty = {"old": [0] * (partition + 1)} | before if options else before
    for left in range(1, most + 1):
        again = tmp_path / f"again-{left}"
        shutil.copytree(data, again)
        steps = 0
        with pytest.raises(Killed):
            bring(again, M2[1], clock, "old", partition, **options)
        steps = -1_000_000
        got = topics_of(again)
        assert got in (before, after, empty), left
        assert not list(again.glob("*-delete"))
        if got == after:
            assert log_bytes(again / f"old-{partition}") == log_bytes(M2[1])
        else:
            bring(again, M2[1], clock, "old", partition, **options)
            assert topics_of(again) == after
        shutil.rmtree(again)


# The command.


def command(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["import", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def test_P2_what_retention_would_delete_is_said(tmp_path: Path, data: Path) -> None:
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka-1"))
    code, out, error = command(source, "--topic", "old", "--data-dir", data)
    end = topics_of(data)["old"][1]
    assert (code, out) == (
        OK,
        f"old-1: offsets 5000 to {end - 1}, 1 segment, 8491 bytes; topic old has 2 partitions\n",
    )
    left, warning = error.splitlines()
    assert left == f"tidelog: {source}: not imported, as these are not files of a log: expected.jsonl"
    assert f"retention.ms=604800000 and retention.bytes=-1: a broker that is started on it deletes all of it, offsets 5000 to {end - 1}" in warning  # fmt: skip  # noqa: E501
    assert "log.retention.check.interval.ms=300000 of its start" in warning
    code, _, error = command(source, "--topic", "kept", "--data-dir", data, "--config", "retention.ms=-1")
    assert (code, len(error.splitlines())) == (OK, 1)
    command(source, "--topic", "short", "--data-dir", data, "--config", "retention.bytes=0", "--partition", 7)
    _, _, error = command(source, "--topic", "short", "--data-dir", data)
    assert "this topic sets its own retention" in error


@pytest.mark.parametrize("transactional", [False, True])
def test_a_log_with_transactions_is_warned_of_at_the_import_and_at_each_start(
    tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture, transactional: bool
) -> None:
    """`read_committed` would have to leave out what was aborted, and does not."""
    source = tmp_path / "kafka-0"
    source.mkdir()
    batches = [
        build_batch(
            [Record(n, NOW, None, b"v")],
            producer_id=7,
            producer_epoch=0,
            base_sequence=n,
            transactional=transactional,
        )
        for n in range(3)
    ]
    source.joinpath(f"{0:020d}.log").write_bytes(b"".join(batches))
    code, _, error = command(source, "--topic", "t", "--data-dir", data, "--config", "retention.ms=-1")
    assert (code, "read_committed" in error) == (OK, transactional)
    for _ in range(2):
        caplog.clear()
        topics_of(data)
        warnings = [message for message in caplog.messages if "read_committed" in message]
        assert len(warnings) == transactional
        assert all("log=t-0" in message for message in warnings)


@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_data_folder_is_as_good_as_none_and_the_source_stays_as_it_is(
    tmp_path: Path, data: Path, is_there: bool
) -> None:
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka-1"))
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    assert "expected.jsonl" in before
    if is_there:
        data.mkdir()
    options = ("--topic", "old", "--data-dir", data, "--config", "retention.ms=-1")
    assert command(source, *options)[0] == OK
    assert command(source, *options, "--partition", 3)[0] == OK
    ends = topics_of(data)["old"]
    assert [bool(end) for end in ends] == [False, True, False, True]
    assert log_bytes(data / "old-1") == log_bytes(data / "old-3") == log_bytes(source)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


@pytest.mark.parametrize("step", ["copy", "sync_folder"])
def test_a_full_disk_is_that_of_the_data_folder(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka-1"))
    words = (source, "--topic", "old", "--data-dir", data)

    def fails(path: Path, *_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, step, fails)
        assert command(*words) == (FAILED, "", f"tidelog: {data}: No space left on device\n")
    assert command(*words)[0] == OK


@pytest.mark.parametrize("name", ["fsync", "fdatasync", "open"])
def test_a_disk_that_fails_is_that_of_the_partition_to_be(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nobody knows the name of the copy that is made first, and the source is only read."""
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka-1"))
    calls, do, errors = 0, getattr(os, name), []

    def fails(what: int | Path, *rest: int, **named: int | None) -> int | None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.EIO, "Input/output error", *([str(what)] if name == "open" else []))
        done: int | None = do(what, *rest, **named)
        return done

    for failing in count(1):
        calls = 0
        shutil.rmtree(data, ignore_errors=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            code, _, error = command(source, "--topic", "old", "--data-dir", data)
        if calls < failing:
            break
        errors += [error] if code else []
    assert not [error for error in errors if str(source) in error or "-delete" in error]
    assert [error for error in errors if error == f"tidelog: {data}/old-1: Input/output error\n"]
    assert [
        error for error in errors if error.startswith("tidelog: old-1: takes no writes since a flush failed")
    ]


def test_the_number_is_that_of_the_name_or_of_what_a_link_names(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka-3"))
    for number, name in ((3, "link"), (5, "link-5")):
        (tmp_path / name).symlink_to(source)
        assert command(tmp_path / name, "--topic", "old", "--data-dir", data)[1].startswith(f"old-{number}: ")
    monkeypatch.chdir(source)
    assert command(".", "--topic", "other", "--data-dir", data)[1].startswith("other-3: ")


def test_what_is_wrong_is_one_line(tmp_path: Path, data: Path) -> None:
    source = Path(shutil.copytree(M2[2], tmp_path / "kafka"))
    code, _, error = command(source, "--topic", "old", "--data-dir", data)
    assert (code, "--partition" in error) == (USAGE, True)
    assert command(source, "--topic", "old", "--data-dir", data, "--partition", 0)[0] == OK
    code, out, error = command(source, "--topic", "old", "--data-dir", data, "--partition", 0)
    assert (code, out, len(error.splitlines())) == (FAILED, "", 1)
    assert command(source, "--topic", "t", "--data-dir", data, "--partition", 0, "--config", "x")[0] == USAGE
    assert (
        command(source, "--topic", "t", "--data-dir", data, "--partition", 0, "--config", "x=1")[0] == USAGE
    )
