"""archive: what is in the store afterwards, whatever was there before, and reading back from it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from tests.pipeline.jobs import TIMES, Ran, a_topic, rows_of, run
from tests.support.logs import NOW, fill, open_log
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.pipeline.files import remote
from tidelog.pipeline.jobs.parts import archives, engines
from tidelog.pipeline.jobs.parts.place import place
from tidelog.storage import files
from tidelog.storage.checkpoints import save_offsets
from tidelog.storage.layout import LOG_STARTS, PARTITION_METADATA, SUFFIXES, save_topic_id

Captured = pytest.CaptureFixture[str]
SEGMENT_BYTES = 700


def small(folder: Path, **options: Any) -> Path:
    """Make a topic of some ten segments a partition."""
    return a_topic(folder, segment_bytes=SEGMENT_BYTES, **options)


def archive(capsys: Captured, data: Path, out: object, *more: str) -> Ran:
    source = ("--source", f"segments:{data}", "--topic", "t")
    return run(capsys, "archive", *source, "--out", str(out), "--json", *more)


def rows(where: object, **options: Any) -> list[tuple[Any, ...]]:
    """Return partition, offset, create and append time of all that the source reads."""
    names = ("partition", "offset", "create_time", "append_time")
    return [tuple(row.values()) for row in rows_of(where, names, **options)]


def bases(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def manifest(out: Path, partition: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / f"t-{partition}" / "manifest.json").read_bytes())
    return document


def names_of(document: dict[str, Any]) -> set[str]:
    return {each["name"] for segment in document["segments"] for each in segment["files"]}


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes of files that are written once more."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_sealed_segments_are_in_the_archive_and_read_as_in_the_log(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    save_topic_id(data / "t-1", bytes(range(16)))
    ran = archive(capsys, data, out)
    actives = [bases(data / f"t-{partition}")[-1] for partition in range(2)]
    logs = [path for path in sorted(data.glob("*/*.log")) if int(path.stem) not in actives]
    assert ran.status == 0, ran.err
    (account,) = ran.rows
    assert account["segments"] == len(logs) > 8
    assert account["bytes"] == sum(path.stat().st_size for path in logs)
    assert account["others"] == 2
    # All that lies beside them too, byte for byte; and no other file.
    for path in logs:
        for suffix in SUFFIXES:
            name = f"{path.parent.name}/{path.stem}{suffix}"
            assert (out / name).read_bytes() == (data / name).read_bytes()
    assert not list(out.rglob("*.tmp"))
    assert len(list(out.glob("*/*.log"))) == len(logs)
    assert rows(out) == [row for row in rows(data) if row[1] < actives[row[0]]]
    times = {"from": NOW + 1000, "to": NOW + 2000}
    assert rows(out, **times) == [row for row in rows(data, **times) if row[1] < actives[row[0]]] != []
    assert not list(data.rglob(".snapshot"))


def test_what_a_manifest_says(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    save_topic_id(data / "t-1", bytes(range(16)))
    (data / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n3 0\n")
    archive(capsys, data, out)
    assert (out / "t-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n3 0\n"
    document = manifest(out, 1)
    assert (document["version"], document["topic"], document["partition"]) == (1, "t", 1)
    assert (document["topic_id"], manifest(out)["topic_id"]) == (bytes(range(16)).hex(), "")
    assert (out / "t-1" / PARTITION_METADATA).read_bytes() == (data / "t-1" / PARTITION_METADATA).read_bytes()
    assert document["log_start_offset"] == 0
    found = bases(data / "t-1")
    assert [segment["base_offset"] for segment in document["segments"]] == found[:-1]
    for segment, following in zip(document["segments"], found[1:], strict=True):
        first, end = segment["base_offset"], segment["next_offset"]
        times = [at for batch in TIMES for at in batch][first:end]
        assert (end, segment["records"], segment["batches"]) == (following, end - first, (end - first) // 10)
        assert (segment["min_timestamp"], segment["max_timestamp"]) == (min(times), max(times))
        assert segment["first_append_time"] == NOW + first * 10 + 50
        assert segment["last_append_time"] == NOW + (end - 10) * 10 + 50
        assert segment["damage"] == []
        assert [each["name"] for each in segment["files"]][-1] == f"{first:020d}.log"
        for each in segment["files"]:
            content = (out / "t-1" / each["name"]).read_bytes()
            assert (each["bytes"], each["crc32c"]) == (len(content), f"{crc32c(content):08x}")


def test_the_next_run_ships_what_is_new_and_touches_nothing_else(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    archive(capsys, data, out)
    before, named = identities(out / "t-0"), names_of(manifest(out))
    before_count = len(manifest(out)["segments"])
    again = archive(capsys, data, out)
    assert (again.status, again.rows[0]["segments"], again.rows[0]["bytes"]) == (0, 0, 0)
    log = open_log(data / "t-0", segment_bytes=SEGMENT_BYTES)
    for number in range(20):
        fill(log, [[NOW + 9000 + number]], now_ms=NOW + 9000 + number)
        log.roll(NOW + 9000 + number)
    log.close()
    more = archive(capsys, data, out)
    assert more.rows[0]["segments"] == len(bases(data / "t-0")) - 1 - before_count >= 20
    after = identities(out / "t-0")
    assert {name: after[name] for name in named} == {name: before[name] for name in named}
    assert named < names_of(manifest(out))
    assert len(rows(out)) == bases(data / "t-0")[-1]


def test_who_is_stopped_goes_on_behind_the_last_wave(
    engine: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "THREADS", 1)
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    ship, done = archives.ship, []

    def stopped(*arguments: Any) -> dict[str, Any]:
        if len(done) == 6:
            raise PipelineError("the store is full")
        done.append(ship(*arguments))
        return done[-1]

    monkeypatch.setattr(archives, "ship", stopped)
    ran = archive(capsys, data, out)
    assert (ran.status, ran.out) == (1, "")
    assert "the store is full" in ran.err
    assert len(manifest(out)["segments"]) == 4
    assert len(bases(out / "t-0")) == 6
    assert not list(data.rglob(".snapshot"))
    named, before = names_of(manifest(out)), identities(out / "t-0")
    monkeypatch.setattr(archives, "ship", ship)
    ran = archive(capsys, data, out, "--engine", engine)
    assert ran.rows[0]["segments"] == len(bases(data / "t-0")) - 1 - 4
    after = identities(out / "t-0")
    assert {name: after[name] for name in named} == {name: before[name] for name in named}
    assert rows(out) == [row for row in rows(data) if row[1] < bases(data / "t-0")[-1]]


def test_an_archive_that_was_stopped_before_its_first_segment_says_so(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archives, "ship", killed)
        assert archive(capsys, data, out).status == 130
    for where in (str(out), out.as_uri()):
        ran = run(capsys, f"audit --source segments:{where} --topic t --dry-run")
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert f"{where}/t-0: holds no segment of a log" in ran.err
        assert "run `tidelog pipeline archive` again" in ran.err
    assert archive(capsys, data, out).status == 0
    assert rows(out)


def break_a_batch(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)


def test_damage_is_not_archived_unless_that_is_asked_for(capsys: Captured, tmp_path: Path) -> None:
    data = small(tmp_path / "data", partitions=1)
    log = sorted(data.glob("t-0/*.log"))[2]
    break_a_batch(log)
    ran = archive(capsys, data, tmp_path / "out")
    assert (ran.status, ran.out) == (1, "")
    assert f"{log.name}@" in ran.err
    assert not (tmp_path / "out" / "t-0" / log.name).exists()
    assert not list((tmp_path / "out").rglob("*.tmp"))
    for how in ("skip", f"quarantine:{tmp_path}/q"):
        out = tmp_path / how[:4]
        assert archive(capsys, data, out, "--bad", how).status == 0
        assert (out / "t-0" / log.name).read_bytes() == log.read_bytes()
        with pytest.raises(DamagedLog, match=f"{log.name}@"):
            rows(out)
        kept = [row for row in rows(data, bad="skip") if row[1] < bases(data / "t-0")[-1]]
        assert rows(out, bad="skip") == kept
        (segment,) = [each for each in manifest(out)["segments"] if each["damage"]]
        assert f"{segment['base_offset']:020d}" == log.stem
        (damage,) = segment["damage"]
        assert damage["position"] + damage["bytes"] == log.stat().st_size
    (path,) = (tmp_path / "q").rglob("*.bin")
    assert path.read_bytes() == log.read_bytes()[-len(path.read_bytes()) :]


@pytest.mark.parametrize("how", ["cut", "gone"])
def test_what_the_store_has_lost_of_the_last_segment_is_an_error(
    capsys: Captured, tmp_path: Path, how: str
) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    archive(capsys, data, out)
    last = max(out.glob("t-0/*.log"))
    if how == "cut":
        last.write_bytes(last.read_bytes()[:-100])
    else:
        for path in out.glob(f"t-0/{last.stem}.*"):
            path.unlink()
    what = "bytes are damaged" if how == "cut" else "are gone: they had been flushed"
    with pytest.raises(DamagedLog, match=what):
        rows(out)


def test_verify_names_each_file_that_is_not_what_was_written(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    archive(capsys, data, out)
    whole = run(capsys, "archive --out", str(out), "--verify", "--json")
    assert (whole.status, whole.out) == (0, "")
    files_there = sum(len(names_of(manifest(out, number))) for number in range(2))
    assert f"{files_there} files" in whole.err
    assert (
        run(capsys, "archive --out", str(out), "--verify", "--json", "--dry-run").rows[0]["files"]
        == files_there
    )
    gone, cut, changed = sorted(out.glob("t-0/*.log"))[:3]
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    break_a_batch(changed)
    ran = run(capsys, "archive --out", str(out), "--verify", "--json")
    assert ran.status == 1
    assert [row["file"] for row in ran.rows] == [f"t-0/{path.name}" for path in (gone, cut, changed)]
    found = [row["finding"] for row in ran.rows]
    assert found[0] == "it is gone"
    size = cut.stat().st_size
    assert found[1] == f"it has {size} bytes, and had {size + 1}"
    assert found[2].startswith("its CRC-32C is ")
    other = run(capsys, "archive --out", str(out), "--verify", "--topic", "u")
    assert (other.status, "no manifest of u is in it" in other.err) == (1, True)


def test_verify_misses_partitions_that_are_gone(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    archive(capsys, data, out)
    verify = ("archive", "--out", str(out), "--verify", "--json")
    for number in (1, 0):
        shutil.rmtree(out / f"t-{number}")
        ran = run(capsys, *verify, "--topic", "t")
        assert ran.status == 1
        if number:
            with pytest.raises(
                DamagedLog, match=r"t-1: the folder is gone, and offsets up to \d+ were on disk"
            ):
                rows(out)
            assert (
                {row[0] for row in rows(out, bad="skip")}
                == {row[0] for row in rows(out, partitions="0")}
                == {0}
            )
        gone = [f"t-{each}/manifest.json" for each in range(number, 2)]
        assert [row["file"] for row in ran.rows] == gone
        assert {row["finding"] for row in ran.rows} == {"it is gone"}
    assert run(capsys, *verify, "--topic", "u").status == 1


def test_an_archive_overwrites_no_other_log(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    ran = archive(capsys, data, data)
    assert (ran.status, "it has a log without manifest.json" in ran.err) == (1, True)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    # Nor one that somebody else has put into an archive.
    archives.begin(place("--out", str(out)), archives.Manifest("t", 0, "", 0))
    (out / "t-0" / f"{0:020d}.log").write_bytes(b"theirs")
    ran = archive(capsys, data, out)
    assert (ran.status, "another log is there, of 6 bytes" in ran.err) == (1, True)
    assert (out / "t-0" / f"{0:020d}.log").read_bytes() == b"theirs"


def test_an_archive_of_another_topic_of_this_name_is_left_alone(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    save_topic_id(data / "t-0", b"a" * 16)
    archive(capsys, data, out)
    save_topic_id(data / "t-0", b"b" * 16)
    ran = archive(capsys, data, out)
    assert (ran.status, "the topic was deleted and created again" in ran.err) == (1, True)
    (data / "t-0" / PARTITION_METADATA).unlink()
    assert archive(capsys, data, out).status == 0
    # A log that is not what was archived any more: its first segments were joined, as compaction may.
    for path in data.glob("t-0/*"):
        path.unlink()
    log = open_log(data / "t-0", segment_bytes=5000)
    fill(log, TIMES)
    log.close()
    before = identities(out / "t-0")
    ran = archive(capsys, data, out)
    assert (ran.status, "the log was cut or compacted" in ran.err) == (1, True)
    assert identities(out / "t-0") == before


def test_what_retention_deleted_before_is_said_once_and_read_as_lost(
    capsys: Captured, tmp_path: Path
) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    whole = tmp_path / "whole"
    shutil.copytree(data, whole)
    bases_there = bases(data / "t-0")
    for base in bases_there[5:]:
        for path in data.glob(f"t-0/{base:020d}.*"):
            path.unlink()
    archive(capsys, data, out)
    shutil.rmtree(data)
    shutil.copytree(whole, data)
    for base in bases_there[:6]:
        for path in data.glob(f"t-0/{base:020d}.*"):
            path.unlink()
    ran = archive(capsys, data, out)
    said = f"t-0: offsets {bases_there[4]} to {bases_there[6] - 1} were deleted before they were archived"
    assert (ran.status, said in ran.err) == (1, True)
    assert archive(capsys, data, out).status == 0
    with pytest.raises(DamagedLog, match=f"offsets {bases_there[4]} to {bases_there[6] - 1} are gone"):
        rows(out)
    some = [row for row in rows(whole) if row[1] < bases_there[-1]]
    gone = range(bases_there[4], bases_there[6])
    assert rows(out, bad="skip") == [row for row in some if row[1] not in gone]


def test_what_goes_before_it_is_shipped_is_said(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    taken = "tidelog.pipeline.jobs.archive.snapshot.taken"
    monkeypatch.setattr(taken, lambda pieces, _: pieces[2:])
    ran = archive(capsys, data, out)
    assert (ran.status, "retention has deleted 2 segments" in ran.err) == (1, True)
    assert ran.rows[0]["segments"] == len(bases(data / "t-0")) - 3


def test_the_start_of_the_log_is_that_of_the_archive(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    found = bases(data / "t-0")
    start = found[2] + 7
    save_offsets(data / LOG_STARTS, {("t", 0): start})
    archive(capsys, data, out)
    assert bases(out / "t-0") == found[2:-1]
    assert [row[1] for row in rows(out)] == list(range(start, found[-1]))
    # What is archived stays, whatever the log lets go of.
    save_offsets(data / LOG_STARTS, {("t", 0): found[4]})
    assert archive(capsys, data, out).status == 0
    assert [row[1] for row in rows(out)] == list(range(start, found[-1]))
    for path in out.glob(f"t-0/{found[2]:020d}.*"):
        path.unlink()
    with pytest.raises(DamagedLog, match=f"offsets {start} to {found[3] - 1} are gone"):
        rows(out)


def test_a_partition_without_a_sealed_segment_comes_later(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    log = open_log(data / "t-1", segment_bytes=SEGMENT_BYTES)
    fill(log, TIMES[:1])
    assert archive(capsys, data, out).status == 0
    assert {row[0] for row in rows(out)} == {0}
    fill(log, TIMES[1:])
    log.close()
    assert archive(capsys, data, out).status == 0
    assert {row[0] for row in rows(out)} == {0, 1}


def test_a_topic_of_which_nothing_is_sealed_is_no_error(capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path / "data", partitions=1, segment_bytes=1 << 20)
    ran = archive(capsys, tmp_path / "data", tmp_path / "store")
    assert (ran.status, ran.rows[0]["segments"], ran.rows[0]["others"]) == (0, 0, 1), ran.err


def test_several_topics_share_an_archive(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    archive(capsys, data, out)
    shutil.copytree(data / "t-0", data / "u-0")
    flags = ("--source", f"segments:{data}", "--topic", "u", "--out", str(out))
    assert run(capsys, "archive", *flags).status == 0
    assert [each.topic for each in archives.manifests(place("--out", str(out)))] == ["t", "u"]
    for topic in ("t", "u"):
        last = max(out.glob(f"{topic}-0/*.log"))
        last.unlink()
        with pytest.raises(DamagedLog, match="they had been flushed"):
            rows(out, topic=topic)


def test_a_dry_run_counts_what_is_new_and_makes_nothing(capsys: Captured, tmp_path: Path) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    source = ("--source", f"segments:{data}", "--topic", "t", "--dry-run", "--json")
    (first,) = run(capsys, "archive", *source).rows
    assert first["segments"] == first["tasks"] == len(list(data.glob("*/*.log"))) - 2
    assert first["pruned"] == 2
    assert not out.exists()
    assert not list(data.rglob(".snapshot"))
    archive(capsys, data, out)
    (second,) = run(capsys, "archive", *source, "--out", str(out)).rows
    assert (second["segments"], second["bytes"], second["pruned"]) == (0, 0, first["segments"] + 2)


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        ("--source segments:{}", 2, "--topic is missing"),
        ("--source segments:{} --topic t", 2, "--out is missing"),
        ("--source broker:h:1 --topic t --out x", 2, "is none that can be archived"),
        (
            "--source segments:s3://b/p --topic t --out x",
            2,
            "is none that can be archived",
        ),
        (
            "--source segments:{} --topic u --out {}/o",
            1,
            "no topic u is in it; there are: t",
        ),
        ("--source segments:{} --topic t --from @1 --out x", 2, "--from, --to"),
        ("--verify", 2, "--out is missing; name the archive to verify"),
        ("--verify --out {} --to @1", 2, "--from, --to"),
        ("--verify --out {}", 1, "no manifest is in it"),
    ],
)
def test_what_cannot_be_archived(
    capsys: Captured, tmp_path: Path, flags: str, status: int, said: str
) -> None:
    small(tmp_path, partitions=1)
    ran = run(capsys, "archive", *flags.replace("{}", str(tmp_path)).split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert said in ran.err


def test_damage_that_is_known_before_is_archived_as_it_is(capsys: Captured, tmp_path: Path) -> None:
    """A tail that is torn, bytes behind the last batch, a segment that is gone: all of sealed segments."""
    data = small(tmp_path / "data", partitions=1)
    logs = sorted(data.glob("t-0/*.log"))
    logs[1].write_bytes(logs[1].read_bytes()[:-20])
    logs[2].write_bytes(logs[2].read_bytes() + b"x" * 50)
    for path in data.glob(f"t-0/{logs[4].stem}.*"):
        path.unlink()
    source = tmp_path / "one"
    for number, said in ((1, "bytes are damaged"), (2, "50 bytes are damaged"), (3, "are gone: ")):
        shutil.rmtree(source, ignore_errors=True)
        (source / "t-0").mkdir(parents=True)
        for log in [*logs[number : number + 2], logs[-1]]:
            for path in data.glob(f"t-0/{log.stem}.*"):
                shutil.copy2(path, source / "t-0")
        ran = archive(capsys, source, tmp_path / f"failed-{number}")
        assert (ran.status, ran.out) == (1, "")
        assert f"{logs[number].name}@" in ran.err
        assert said in ran.err
    out = tmp_path / "out"
    assert archive(capsys, data, out, "--bad", "skip").status == 0
    for log in (*logs[:4], *logs[5:-1]):
        assert (out / "t-0" / log.name).read_bytes() == log.read_bytes()
    assert rows(out, bad="skip") == [row for row in rows(data, bad="skip") if row[1] < int(logs[-1].stem)]
    damaged = [segment["base_offset"] for segment in manifest(out)["segments"] if segment["damage"]]
    assert damaged == [int(logs[number].stem) for number in (1, 2, 3)]


@pytest.mark.parametrize("content", ["", "{}", '{"version": 2}', '{"version": 1}', "[]"])
def test_a_manifest_that_is_none(capsys: Captured, tmp_path: Path, content: str) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    archive(capsys, data, out)
    (out / "t-0" / "manifest.json").write_text(content)
    ran = archive(capsys, data, out)
    assert (ran.status, ran.out, "t-0/manifest.json: it is no manifest of an archive" in ran.err) == (
        1,
        "",
        True,
    )


def test_files_are_on_disk_before_the_manifest_that_names_them(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = small(tmp_path / "data", partitions=1), tmp_path / "out"
    synced: list[str] = []
    sync = files.sync

    def noted(path: Path) -> None:
        synced.append(path.name.removesuffix(".tmp"))
        sync(path)

    monkeypatch.setattr(files, "sync", noted)
    archive(capsys, data, out)
    assert names_of(manifest(out)) < set(synced)
    last = len(synced) - 1 - synced[::-1].index("manifest.json")
    assert all(synced.index(name) < last for name in names_of(manifest(out)))


@pytest.mark.slow
def test_an_archive_in_an_object_store(capsys: Captured, tmp_path: Path, store: str) -> None:
    data, root = small(tmp_path / "data"), f"s3://id:secret@archive/a/b{store}"
    ran = archive(capsys, data, root)
    assert ran.status == 0, ran.err
    assert ran.rows[0]["out"] == "s3://archive/a/b"
    actives = [bases(data / f"t-{partition}")[-1] for partition in range(2)]
    assert rows(root) == [row for row in rows(data) if row[1] < actives[row[0]]]
    assert archive(capsys, data, root).rows[0]["segments"] == 0
    assert run(capsys, "archive --out", root, "--verify").status == 0
    there, path = archives.fs.FileSystem.from_uri(root)
    names = [each.base_name for each in there.get_file_info(archives.fs.FileSelector(path, recursive=True))]
    assert not [name for name in names if name.endswith(".tmp")]
    there.delete_file(f"{path}/t-0/{bases(data / 't-0')[-2]:020d}.log")
    assert run(capsys, "archive --out", root, "--verify").status == 1
    with pytest.raises(DamagedLog, match="they had been flushed"):
        rows(root)
    assert remote.is_remote(root)


def test_segments_are_shipped_by_tasks_and_read_by_spark(
    spark: Any, capsys: Captured, tmp_path: Path
) -> None:
    data, out = small(tmp_path / "data"), tmp_path / "out"
    break_a_batch(sorted(data.glob("t-1/*.log"))[1])
    ran = archive(capsys, data, out, "--engine", "spark")
    assert (ran.status, "@" in ran.err, ran.err.count("Traceback")) == (1, True, 0)
    ran = archive(capsys, data, out, "--bad", "skip", "--engine", "spark")
    assert ran.status == 0, ran.err
    options = {
        "source": f"segments:{out}",
        "topic": "t",
        "bad": "skip",
        "from": str(NOW),
        "to": str(NOW + 1000),
    }
    read = spark.read.format("tidelog").options(**options).load().select("partition", "offset").collect()
    actives = [bases(data / f"t-{partition}")[-1] for partition in range(2)]
    there = rows(data, bad="skip", **{"from": NOW, "to": NOW + 1000})
    assert sorted(map(tuple, read)) == [row[:2] for row in there if row[1] < actives[row[0]]] != []
