"""`tidelog fsck`: its lines, its verdict and its exit codes."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.logs import NOW, fill, open_log
from tests.support.paths import KAFKA_WRITTEN
from tidelog.broker.catalog import ALL_BROKERS, Catalog, TopicRecord, new_topic_id
from tidelog.cli.connect import no_topic
from tidelog.cli.exit_codes import FAILED, OK, UNREADABLE, USAGE
from tidelog.cli.main import app
from tidelog.storage import files, producer_state
from tidelog.storage.files import FolderLock

NAME = f"{0:020d}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "topic-0", index_interval_bytes=50)
    fill(log, [[NOW], [NOW + 1], [NOW + 2]])
    log.close()
    return tmp_path / "topic-0"


def fsck(*words: object) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(app, ["fsck", *map(str, words)])
    return result.exit_code, result.stdout.splitlines(), result.stderr


def test_what_is_sound(folder: Path) -> None:
    size = (folder / f"{NAME}.log").stat().st_size
    assert fsck(folder) == (OK, [f"1 partition, 1 segment, {size} bytes of log: no damage"], "")
    code, (line,), _ = fsck(folder, "--json", "--deep")
    assert (code, json.loads(line)) == (
        OK,
        {"kind": "summary", "partitions": 1, "segments": 1, "log_bytes": size, "damaged": 0, "repaired": 0}
        | {"unreadable": 0},
    )


def test_I5_an_index_is_mended(folder: Path) -> None:
    index = folder / f"{NAME}.index"
    index.write_bytes(b"")
    code, lines, _ = fsck(folder)
    assert (code, lines[0]) == (FAILED, f"{index}@0: ends after 0 of 2 entries")
    assert lines[-1].endswith(": 1 damaged place")
    code, lines, _ = fsck(folder, "--repair")
    assert (code, lines[0]) == (OK, f"{index}@0: ends after 0 of 2 entries (repaired)")
    assert lines[-1].endswith(": 1 damaged place, 1 repaired")
    assert fsck(folder)[0] == OK


def test_P9_damage_of_a_log_stays(folder: Path) -> None:
    log = folder / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    code, lines, _ = fsck("--data-dir", folder, "--repair")
    assert code == FAILED
    assert "(cannot be repaired)" in lines[0]
    code, lines, _ = fsck(folder, "--json")
    found, summary = map(json.loads, lines)
    assert (code, found["kind"], found["file"], found["repaired"]) == (FAILED, "damage", str(log), False)
    assert (found["position"], summary["damaged"]) == (len(data) // 3 * 2, 1)


def test_append_times_that_are_lost_are_said_to_be_bounded(folder: Path) -> None:
    times = folder / f"{NAME}.appendindex"
    data = bytearray(times.read_bytes())
    data[0] ^= 1
    times.write_bytes(data)
    shutil.copytree(folder, other := folder.parent / "other-0")
    code, lines, _ = fsck(folder, "--repair")
    assert (code, lines[0].startswith(f"{times}@0: ")) == (FAILED, True)
    assert lines[0].endswith(" (times lost, replaced by a bound)")
    assert fsck(folder)[0] == OK
    found = json.loads(fsck(other, "--repair", "--json")[1][0])
    assert (found["kind"], found["repaired"], found["bounded"]) == ("damage", False, True)


def test_P8_a_partition_that_is_gone_is_damage_unless_its_topic_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n3\ndeleted 0 7\nkept 1 5\nkept 2 6\n")
    assert len(fsck(tmp_path)[1]) == 4  # without a catalogue nobody knows
    catalog = Catalog(tmp_path / "catalog.sqlite")
    catalog.add_topic(TopicRecord("kept", new_topic_id(), 2, {}))
    catalog.close()
    code, (line, verdict), _ = fsck(tmp_path, "--repair")
    assert (code, line) == (
        FAILED,
        f"{tmp_path / 'kept-1'}@0: is gone, but all before 5 had been flushed (cannot be repaired)",
    )
    assert verdict == "0 partitions, 0 segments, 0 bytes of log: 1 damaged place, 0 repaired"
    (tmp_path / "catalog.sqlite").write_bytes(b"no catalogue")
    code, lines, _ = fsck(tmp_path)
    # Whether the partitions are to be there cannot be told any more.
    assert (code, len(lines)) == (FAILED, 5)
    assert lines[0].startswith(f"{tmp_path / 'catalog.sqlite'}@0: not a catalogue that can be read")
    assert all("cannot be looked at" in line for line in lines[1:4])
    (tmp_path / "catalog.sqlite").unlink()
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as db:
        db.execute("PRAGMA user_version = 9")
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    code, lines, _ = fsck(tmp_path)
    assert (code, len(lines)) == (UNREADABLE, 2)
    newer = "a newer version of Tidelog wrote this data folder (schema 9, this one reads "
    assert lines[0].startswith(f"{tmp_path / 'catalog.sqlite'}@0: cannot be looked at: {newer}")


def test_a_folder_that_another_version_wrote_is_not_repaired(tmp_path: Path, folder: Path) -> None:
    """What this version takes for damaged may be whole to the other."""
    (tmp_path / "meta.properties").touch()
    Catalog(tmp_path / "catalog.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as db:
        db.execute("PRAGMA user_version = 9")
    times = folder / f"{NAME}.appendindex"
    times.write_bytes(b"of a later layout")
    for words in ((tmp_path,), ("--data-dir", tmp_path), (folder,)):
        code, lines, error = fsck(*words, "--repair")
        assert (code, lines, "a newer version of Tidelog" in error) == (UNREADABLE, [], True)
    assert times.read_bytes() == b"of a later layout"


def test_P9_every_kind_of_file_is_looked_at(tmp_path: Path, folder: Path) -> None:
    """0 where all is sound, 1 where anything is not, also under --deep; a repair mends what a start makes anew."""
    (tmp_path / "meta.properties").touch()
    (tmp_path / ".kafka_cleanshutdown").touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 3\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    (folder / f"{3:020d}.snapshot").write_bytes(producer_state.encode({7: bytes(26)}))
    catalog = Catalog(tmp_path / "catalog.sqlite")
    catalog.add_topic(TopicRecord("topic", new_topic_id(), 1, {}))
    assert fsck(tmp_path)[0] == fsck(tmp_path, "--deep")[0] == OK
    catalog.close()
    mended = [folder / f"{3:020d}.snapshot", folder / "leader-epoch-checkpoint"]
    names = "recovery-point-offset-checkpoint", "catalog.sqlite"
    for path in (*mended, folder / "partition.metadata", *(tmp_path / name for name in names)):
        sound = path.read_bytes()
        path.write_bytes(b"\xff" + sound[1:])
        for words in ((), ("--deep",)):
            code, lines, _ = fsck(tmp_path, *words)
            assert (code, len(lines), lines[0].startswith(f"{path}@0: ")) == (FAILED, 2, True)
        assert (fsck(tmp_path, "--repair")[0] == OK) == (path in mended) != path.exists()
        path.write_bytes(sound)
    assert fsck(tmp_path)[0] == OK


def test_what_is_no_log_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "python-3").mkdir()
    code, lines, error = fsck(tmp_path)
    assert (code, lines) == (UNREADABLE, [])
    assert error.startswith(f"tidelog: {tmp_path}: holds no log; name a data folder")


def test_what_cannot_be_looked_at(tmp_path: Path, folder: Path) -> None:
    assert fsck(tmp_path / "missing")[0] == UNREADABLE
    code, lines, error = fsck("--data-dir", tmp_path / "none")
    assert (code, lines, error) == (
        UNREADABLE,
        [],
        f"tidelog: {tmp_path / 'none'}: cannot be looked at: No such file or directory\n",
    )
    (tmp_path / "meta.properties").touch()
    lock = FolderLock(tmp_path / ".lock")
    try:
        code, _, error = fsck(tmp_path, "--repair")
        assert (code, "stop it before a repair" in error) == (UNREADABLE, True)
    finally:
        lock.release()


def test_what_is_no_command_line(folder: Path) -> None:
    assert fsck()[0] == USAGE
    assert fsck(folder, "--data-dir", folder)[0] == USAGE
    assert fsck(folder, "--mend")[0] == USAGE


@pytest.mark.parametrize("written", sorted(KAFKA_WRITTEN.glob("m[01]-*")), ids=lambda path: path.name)
def test_older_formats_are_no_damage(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / written.name))
    assert fsck(folder, "--deep")[0] == OK


def test_a_catalogue_that_cannot_be_read_leaves_the_logs_to_be_checked(tmp_path: Path, folder: Path) -> None:
    """Without it nothing tells whether the other files are of this log, where these would say how far it came."""
    (tmp_path / "meta.properties").touch()
    (tmp_path / ".kafka_cleanshutdown").touch()
    (tmp_path / "catalog.sqlite").write_bytes(b"no catalogue")
    (folder / f"{NAME}.index").write_bytes(b"")
    code, lines, _ = fsck(tmp_path)
    assert code == FAILED
    assert [line.partition("@")[0] for line in lines[:-1]] == [
        str(folder / f"{NAME}.index"),
        str(folder),
        str(tmp_path / "catalog.sqlite"),
    ]
    assert "cannot be looked at" in lines[1]


def test_rows_of_the_catalogue_that_a_start_does_not_serve_or_honour_are_damage(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    path = tmp_path / "catalog.sqlite"
    with closing(Catalog(path)) as catalog:
        catalog.add_topic(TopicRecord("sound", new_topic_id(), 1, {"retention.ms": "1000"}))
        catalog.set_broker_options("1", {"log.retention.ms": "1000"})
    assert fsck(tmp_path)[0] == OK
    with closing(Catalog(path)) as catalog:
        catalog.add_topic(TopicRecord("a/b", new_topic_id(), 1, {}))
        catalog.add_topic(TopicRecord("many", new_topic_id(), 0, {}))
        catalog.add_topic(TopicRecord("short", b"id", 1, {}))
        catalog.add_topic(TopicRecord("tides", new_topic_id(), 1, {"retention.ms": "soon"}))
        catalog.set_broker_options("1", {"log.retention.ms": "later"})
        catalog.set_broker_options(ALL_BROKERS, {"nonsense": "1"})
    for words in ((), ("--repair",)):
        code, lines, _ = fsck(tmp_path, *words)
        wanted = [
            ["topic 'a/b' is not served", "characters other than"],
            ["topic 'many' is not served", "0 partitions"],
            ["topic 'short' is not served", "16 bytes"],
            ["an option of topic 'tides' is not honoured", "retention.ms", "soon", "set or delete it"],
            ["an option of all brokers is not honoured", "nonsense"],
            ["an option of broker 1 is not honoured", "log.retention.ms", "later"],
        ]
        assert (code, len(lines)) == (FAILED, len(wanted) + 1), lines
        for line, parts in zip(lines[:-1], wanted, strict=True):
            assert line.startswith(f"{path}@0: ")
            assert all(part in line for part in parts), line
        assert "6 damaged places" in lines[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("fsck",),
        ("configs", "describe", "--all-brokers", "--data-dir"),
        ("configs", "alter", "--all-brokers", "--config", "log.retention.ms=1", "--data-dir"),
        ("serve", "--port", "0", "--data-dir"),
    ],
)
def test_a_catalogue_that_is_a_fifo_is_said_in_a_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAECAwQFBgcICQoLDA0ODw\n")
    os.mkfifo(tmp_path / "catalog.sqlite")
    result = CliRunner().invoke(app, [*words, str(tmp_path)])
    said = result.stdout if words == ("fsck",) else result.stderr
    assert result.exit_code == FAILED
    (line,) = [line for line in said.splitlines() if "catalog.sqlite" in line]
    assert "is not a regular file; move it away, and restore the catalogue from a backup" in line


def test_a_backup_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    ended = CliRunner().invoke(app, ["fsck", str(tmp_path)])
    assert ended.exit_code == UNREADABLE
    assert f"{tmp_path}: is a backup; " in ended.stderr


def test_doctor_writes_nothing_into_a_folder_that_is_no_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "sync_time_s", lambda folder: pytest.fail("it wrote a file"))
    (tmp_path / "passwd").touch()
    ended = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path)])
    assert "is no data folder: it has no meta.properties" in ended.stdout


def test_completion_for_bash_is_printed_where_bash_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = CliRunner().invoke(app, ["completion", "bash"])
    assert ended.exit_code == 0
    assert "_tidelog_completion" in ended.stdout
    assert not ended.stderr


def test_a_topic_that_does_not_exist_is_named_with_the_nearest() -> None:
    assert str(no_topic("tdies", ["prices", "tides"])) == "topic tdies does not exist; did you mean tides?"
    assert "topics list shows all topics" in str(no_topic("x", ["tides"]))
