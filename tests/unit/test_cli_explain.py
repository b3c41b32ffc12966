"""`tidelog explain`, on the folder of a broker that runs and of one that has stopped."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.logs import batch, open_log
from tests.support.served import Connect, Serve, connect, serve
from tests.unit.test_handlers import make_topic
from tidelog.broker.catalog import Catalog, CatalogError, TopicRecord, new_topic_id, read_topics
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app

__all__ = ["connect", "serve"]  # fixtures

AT = 1_700_000_000_000
FUTURE = {"message_timestamp_after_max_ms": 1 << 62}


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def rows(*words: object) -> list[dict[str, Any]]:
    code, out, error = run(*words, "--json")
    assert (code, error) == (OK, "")
    return [json.loads(line) for line in out.splitlines()]


def files_of(folder: Path) -> dict[Path, tuple[bytes, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder as a stop leaves it: a topic of two partitions, with records in the second."""
    catalog = Catalog(tmp_path / "catalog.sqlite")
    options = {"retention.ms": "1000", "retention.clock": "record"}
    catalog.add_topic(TopicRecord("t", new_topic_id(), 2, options))
    catalog.close()
    for number, segments in ((0, []), (1, [[AT, AT + 1], [AT + 50, AT + 20], [4102444800000], [AT + 60]])):
        log = open_log(tmp_path / f"t-{number}", now_ms=AT, **FUTURE)
        for each in segments:
            log.roll(AT + 100)
            log.append(batch(each), AT + 100)
        log.close()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 1 2\n")
    return tmp_path


def test_I8_retention_is_told_segment_by_segment(folder: Path) -> None:
    before = files_of(folder)
    empty, *found = rows("retention", "t", "--data-dir", folder)
    assert (empty["partition"], empty["why"]) == (0, "stays: it is empty, and takes the appends")
    assert [row["partition"] for row in found] == [1] * 4
    assert [row["segment"] for row in found] == [0, 2, 4, 5]
    assert [row["rule"] for row in found] == ["log start", "retention.ms", None, None]
    assert found[0]["why"] == "goes: it ends before the log's start, 2"
    by = "retention.ms=1000 after its largest record time (retention.clock=record)"
    assert [row["why"] for row in found[1:3]] == [f"goes: {by}", f"stays: {by}"]
    assert found[3]["why"] == "stays: not before the segment at 4, which is older"
    assert [row["expires"] for row in found[2:]] == [4102444801001] * 2
    assert [row["held_by"] for row in found] == [None, None, None, 4]
    assert (found[1]["age_begins"], found[1]["age_by"], found[1]["next_offset"]) == (AT + 50, "record", 4)
    assert files_of(folder) == before


def test_the_brokers_own_options_are_taken_from_its_file(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("t", new_topic_id(), 2, {}))
    config = folder / "server.properties"
    config.write_text(f"log.retention.ms=-1\nlog.retention.bytes=0\nlog.dir={folder}\n")
    found = rows("retention", "t", "--config", config, "-p", 1)
    assert [row["rule"] for row in found] == ["log start", "retention.bytes", "retention.bytes", None]
    assert found[1]["why"] == "goes: the segments after it hold retention.bytes=0"
    assert found[3]["why"] == "stays: retention.ms=-1"
    config.write_text("log.retention.ms=soon\n")
    code, _, error = run("retention", "t", "--config", config)
    assert code == USAGE
    assert "retention.ms" in error


def test_V5_a_lookup_is_told_step_by_step(folder: Path) -> None:
    before = files_of(folder)
    *steps, answer = rows("offset", "t", "--at", f"@{AT + 30}", "-p", 1, "--data-dir", folder)
    assert [(row["kind"], row["what"]) for row in steps] == [
        ("segment", "skipped"),
        ("segment", "searched"),
        ("segment", "not reached"),
        ("segment", "not reached"),
    ]
    assert steps[1]["largest_time"] == AT + 50
    assert (steps[1]["entry_time"], steps[1]["entry_offset"], steps[1]["position"]) == (AT + 50, 3, 0)
    read = steps[1]["bytes_read"]
    assert read > 0
    assert answer == {
        "kind": "answer",
        "partition": 1,
        "clock": "record",
        "offset": 2,
        "timestamp": AT + 50,
        "bytes_read": read,
    }
    *_, answer = rows(
        "offset", "t", "--at", f"@{AT + 30}", "-p", 1, "--clock", "append", "--data-dir", folder
    )
    assert (answer["clock"], answer["offset"], answer["timestamp"]) == ("append", 2, AT + 100)
    *_, nothing = rows("offset", "t", "--at", f"@{AT + 30}", "-p", 0, "--data-dir", folder)
    assert (nothing["offset"], nothing["bytes_read"]) == (None, 0)
    assert files_of(folder) == before


def test_S44_a_topic_that_is_searched_by_append_time_is_explained_by_it(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("t", new_topic_id(), 2, {"lookup.clock": "append"}))
    words = ("offset", "t", "--at", f"@{AT + 60}", "-p", 1, "--data-dir", folder)
    *_, answer = rows(*words)
    assert (answer["clock"], answer["offset"], answer["timestamp"]) == ("append", 2, AT + 100)
    *_, answer = rows(*words, "--clock", "record")
    assert (answer["clock"], answer["offset"], answer["timestamp"]) == ("record", 4, 4102444800000)


def test_what_takes_the_appends_stays_unless_there_are_more(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("one", new_topic_id(), 1, {"retention.ms": str(10**15)}))
    log = open_log(folder / "one-0", now_ms=AT)
    log.append(batch([-1]), AT)
    log.close()
    (row,) = rows("retention", "one", "--data-dir", folder)
    assert row["why"].startswith("stays: retention.ms=1000000000000000 after its last append")
    assert row["why"].endswith(", unless more is appended")
    _, table, _ = run("offset", "one", "--at", f"@{AT}", "--data-dir", folder)
    assert table.splitlines()[1].split()[5:8] == ["-", "-", "-"]  # it has no times


def test_people_get_a_table_and_the_answer_in_a_line(folder: Path) -> None:
    code, out, _ = run("offset", "t", "--at", f"@{AT + 30}", "--data-dir", folder)
    assert code == OK
    assert "partition 0, by record time: nothing; 0 bytes read" in out
    assert "partition 1, by record time: offset 2, " in out
    assert "its largest time is earlier" not in out.splitlines()[0]
    code, out, _ = run("retention", "t", "--data-dir", folder)
    assert code == OK
    assert out.splitlines()[0].split()[:2] == ["partition", "segment"]
    assert len(out.splitlines()) == 6


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["retention", "other"], FAILED, "there is no topic other in it"),
        (["retention", "t", "-p", 2], USAGE, "--partition 2: t has 2, counted from 0"),
        (
            ["offset", "t", "--at", "now", "--clock", "wall"],
            USAGE,
            "--clock wall: it is one of record, append",
        ),
        (["offset", "t", "--at", "soon"], USAGE, "--at"),
        (["offset", "t"], USAGE, "--at"),
    ],
)
def test_what_cannot_be_told_is_said(folder: Path, words: list[object], code: int, message: str) -> None:
    found, out, error = run(*words, "--data-dir", folder)
    assert (found, out) == (code, "")
    assert message in error


def test_folders_that_are_none(folder: Path) -> None:
    code, _, error = run("retention", "t", "--data-dir", folder / "nowhere")
    assert (code, "there is no catalogue" in error) == (FAILED, True)
    for path in (folder / "t-0").iterdir():
        path.unlink()
    code, _, error = run("retention", "t", "--data-dir", folder)
    assert (code, "no segment of a log is in it" in error) == (FAILED, True)
    (folder / "t-0").rmdir()
    code, _, error = run("retention", "t", "--data-dir", folder)
    assert (code, "t-0: No such file or directory" in error) == (FAILED, True)


async def test_a_broker_that_runs_is_not_disturbed(serve: Serve, connect: Connect) -> None:
    served = await serve()
    client = await connect(served)
    await make_topic(client, "t")
    log = served.broker.topics.by_name["t"].partitions[0].log
    for n in range(5):
        log.append(batch([AT + n, AT + n]), AT + n)
    folder = log.directory.parent
    *_, answer = rows("offset", "t", "--at", f"@{AT + 3}", "--data-dir", folder)
    assert (answer["offset"], answer["timestamp"]) == (6, AT + 3)
    (row,) = rows("retention", "t", "--data-dir", folder)
    assert (row["next_offset"], row["bytes"], row["rule"]) == (10, log.active.size, "retention.ms")
    await make_topic(client, "later")
    assert rows("retention", "later", "--data-dir", folder)


def test_a_catalogue_is_read_beside_its_writer_and_not_in_the_midst_of_a_change(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with pytest.raises(CatalogError, match="there is no catalogue"):
        read_topics(path)
    catalog = Catalog(path)
    catalog.add_topic(TopicRecord("t", bytes(15) + b"x", 2, {"retention.ms": "5"}))
    assert read_topics(path) == catalog.topics()
    journal = tmp_path / "catalog.sqlite-journal"
    catalog.close()
    journal.write_bytes(b"half a change")
    with pytest.raises(CatalogError, match="it is being changed"):
        read_topics(path)
    journal.write_bytes(bytes(100) + b"a change that was committed")
    assert [topic.name for topic in read_topics(path)] == ["t"]
    journal.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(CatalogError, match="schema 9"):
        read_topics(path)
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(CatalogError, match="not a catalogue"):
        read_topics(path)
