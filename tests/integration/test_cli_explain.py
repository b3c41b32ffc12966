"""`tidelog explain`, on the folder of a broker that runs and of one that has stopped."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.logs import batch, open_log
from tests.support.paths import KAFKA_WRITTEN
from tests.support.served import Client, log_of
from tidelog.broker.broker import Broker
from tidelog.broker.catalog import Catalog, CatalogError, TopicRecord, new_topic_id, read
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.main import app
from tidelog.protocol.records.compression import GZIP

AT = 1_700_000_000_000
KAFKA_WRITTEN = KAFKA_WRITTEN / "m2-none-ct-0"
FUTURE = {"message_timestamp_after_max_ms": 1 << 62}


def run(line: str, *words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *line.split(), *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def told(line: str, *words: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the options that are assumed, and what is said."""
    code, out, _ = run(line, *words, "--json")
    assert code == OK
    options, *rest = (json.loads(line) for line in out.splitlines())
    assert options["kind"] == "options"
    return options["options"], rest


def rows(line: str, *words: object) -> list[dict[str, Any]]:
    return told(line, *words)[1]


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


def test_defaults_may_be_other_ones_where_the_options_of_the_broker_are_not_known(folder: Path) -> None:
    assert "--config-file and --config are not known here" in run("retention t --data-dir", folder)[1]
    _, text, _ = run("retention t --config log.retention.ms=5 --data-dir", folder)
    assert "known here" not in text


def test_I8_retention_is_told_segment_by_segment(folder: Path) -> None:
    before = files_of(folder)
    empty, *found = rows("retention t --data-dir", folder)
    assert (empty["partition"], empty["why"]) == (0, "stays: it is the active segment, and empty")
    assert [row["partition"] for row in found] == [1] * 4
    assert [row["segment"] for row in found] == [0, 2, 4, 5]
    assert [row["rule"] for row in found] == ["log start", "retention.ms", None, None]
    assert found[0]["why"] == "goes: it ends before the log's start, 2"
    by = "retention.ms=1000 after its largest record time (retention.clock=record)"
    assert [row["why"] for row in found[1:3]] == [f"goes: {by}", f"stays: {by}"]
    assert found[3]["why"] == "stays: the older segment at 4 has to go first"
    assert [row["expires"] for row in found[2:]] == [4102444801001] * 2
    assert [row["held_by"] for row in found] == [None, None, None, 4]
    assert (found[1]["age_begins"], found[1]["age_by"], found[1]["next_offset"]) == (AT + 50, "record", 4)
    assert files_of(folder) == before


def test_the_brokers_own_options_are_taken_from_its_file(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("t", new_topic_id(), 2, {}))
    config = folder / "server.properties"
    config.write_text(f"log.retention.ms=-1\nlog.retention.bytes=0\nlog.dir={folder}\n")
    found = rows("retention t --config-file", config, "-p", 1)
    assert [row["rule"] for row in found] == ["log start", "retention.bytes", "retention.bytes", None]
    assert found[1]["why"] == "goes: the segments after it hold retention.bytes=0"
    assert found[3]["why"] == "stays: retention.ms=-1"
    config.write_text("log.retention.ms=soon\n")
    code, _, error = run("retention t --config-file", config)
    assert code == USAGE
    assert "retention.ms" in error


def test_what_was_set_while_the_broker_ran_is_judged_by_too(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("t", new_topic_id(), 2, {}))
        catalog.set_broker_options("1", {"log.retention.ms": "-1"})
        catalog.set_broker_options("", {"log.retention.ms": "5", "log.retention.bytes": "0"})
    options, found = told("retention t --data-dir", folder, "-p", 1)
    assert options["retention.ms"] == {"value": "-1", "source": "dynamic broker"}
    assert options["retention.bytes"] == {"value": "0", "source": "dynamic default"}
    assert [row["rule"] for row in found] == ["log start", "retention.bytes", "retention.bytes", None]


def test_with_compaction_alone_segments_stay_and_it_is_said_why(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.set_options("t", {"cleanup.policy": "compact", "retention.ms": "1"})
    first, *found = rows("retention t --data-dir", folder, "-p", 1)
    assert first["rule"] == "log start"
    assert {row["why"] for row in found} == {"stays: cleanup.policy=compact, so nothing expires"}


def test_V5_a_lookup_is_told_step_by_step(folder: Path) -> None:
    before = files_of(folder)
    *steps, answer = rows(f"offset t --at @{AT + 30} -p 1 --data-dir", folder)
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
        "bound": False,
        "bytes_read": read,
        "damage": [],
    }
    *_, answer = rows(f"offset t --at @{AT + 30} -p 1 --clock append --data-dir", folder)
    assert (answer["clock"], answer["offset"], answer["timestamp"]) == ("append", 2, AT + 100)
    *_, nothing = rows(f"offset t --at @{AT + 30} -p 0 --data-dir", folder)
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
    words = ("range", "t", "--from", f"@{AT + 60}", "--to", f"@{AT + 101}", "-p", 1, "--data-dir", folder)
    (answer,) = rows(*words)
    assert (answer["clock"], answer["offset"], answer["end_offset"]) == ("append", 2, 6)


def test_what_takes_the_appends_stays_unless_there_are_more(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("one", new_topic_id(), 1, {"retention.ms": str(10**15)}))
    log = open_log(folder / "one-0", now_ms=AT)
    log.append(batch([-1]), AT)
    log.close()
    (row,) = rows("retention one --data-dir", folder)
    assert row["why"].startswith("stays: retention.ms=1000000000000000 after its last append")
    assert row["why"].endswith(", unless more is appended")
    _, table, _ = run(f"offset one --at @{AT} --data-dir", folder)
    assert table.splitlines()[1].split()[5:8] == ["-", "-", "-"]  # it has no times


def test_people_get_a_table_and_the_answer_in_a_line(folder: Path) -> None:
    code, out, _ = run(f"offset t --at @{AT + 30} --data-dir", folder)
    assert code == OK
    assert "partition 0, by record time: nothing; 0 bytes read" in out
    assert "partition 1, by record time: offset 2, " in out
    assert "its largest time is earlier" not in out.splitlines()[0]
    code, out, _ = run("retention t --data-dir", folder)
    assert code == OK
    assert out.splitlines()[0].split()[:2] == ["partition", "segment"]
    assert out.splitlines()[-1] == (
        "options: cleanup.policy=delete (default), retention.bytes=-1 (default), retention.clock=record (topic), "
        "retention.ms=1000 (topic); the broker's --config-file and --config are not known here"
    )
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["retention", "other"], FAILED, "has no topic other"),
        (["retention", "t", "-p", 2], USAGE, "--partition 2: t has no such partition; the last is 1"),
        (
            ["offset", "t", "--at", "now", "--clock", "wall"],
            USAGE,
            "Invalid value for '--clock': 'wall' is not one of 'record', 'append'",
        ),
        (["offset", "t", "--at", "soon"], USAGE, "--at"),
        (["offset", "t"], USAGE, "--at"),
        (["offset", "t", "--at", "now", "--config", "lookup.clock"], USAGE, "write it as name=value"),
        (["range", "t", "--from", "10:00", "--to", "09:00"], USAGE, "--from 10:00 is later than --to 09:00"),
    ],
)
def test_what_cannot_be_told_is_said(folder: Path, words: list[object], code: int, message: str) -> None:
    found, out, error = run(*words, "--data-dir", folder)
    assert (found, out) == (code, "")
    assert message in error


def test_folders_that_are_none(folder: Path) -> None:
    code, _, error = run("retention t --data-dir", folder / "nowhere")
    assert (code, "nowhere: No such file or directory" in error) == (FAILED, True)
    for path in (folder / "t-0").iterdir():
        path.unlink()
    code, _, error = run("retention t --data-dir", folder)
    assert (code, "holds no segment of a log" in error) == (FAILED, True)
    (folder / "t-0").rmdir()
    code, _, error = run("retention t --data-dir", folder)
    assert (code, "t-0: No such file or directory" in error) == (FAILED, True)


def test_topics_that_only_their_folders_tell_of(tmp_path: Path) -> None:
    for source, name in ((KAFKA_WRITTEN, "old-1"), (KAFKA_WRITTEN, "__cluster_metadata-0")):
        shutil.copytree(source, tmp_path / name)
    before = files_of(tmp_path)
    for words in (["retention"], ["offset", "--at", "@0"], ["range", "--from", "@0", "--to", "now"]):
        code, out, error = run(words[0], "old", *words[1:], "--data-dir", tmp_path)
        assert code == OK
        assert error.startswith(f"tidelog: topic old is not in the catalogue of {tmp_path} yet: ")
        assert "(default)" in out
    assert {row["partition"] for row in rows("retention old --data-dir", tmp_path)} == {1}
    code, _, error = run("retention __cluster_metadata --data-dir", tmp_path)
    assert (code, "has no topic __cluster_metadata" in error) == (FAILED, True)
    assert files_of(tmp_path) == before


def test_a_folder_that_a_start_would_adopt_is_one_more_partition(folder: Path) -> None:
    shutil.copytree(folder / "t-1", folder / "t-3")
    shutil.copytree(folder / "t-0", folder / "t-2")
    assert {row["partition"] for row in rows("retention t --data-dir", folder)} == {0, 1, 2, 3}


def test_options_are_those_that_the_broker_was_started_with(folder: Path, tmp_path: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("t", new_topic_id(), 2, {"retention.ms": "-1"}))
    config = tmp_path / "server.properties"
    config.write_text("log.retention.bytes=0\nlog.retention.ms=5\n")
    started = ["--data-dir", folder, "--config-file", config, "--config", "retention.clock=append"]
    options, found = told("retention t -p 1", *started)
    assert options == {
        "cleanup.policy": {"value": "delete", "source": "default"},
        "retention.bytes": {"value": "0", "source": "broker"},
        "retention.clock": {"value": "append", "source": "broker"},
        "retention.ms": {"value": "-1", "source": "topic"},
    }
    assert [row["rule"] for row in found] == ["log start", "retention.bytes", "retention.bytes", None]
    options, found = told(f"offset t -p 1 --at @{AT}", *started, "--config", "lookup.clock=append")
    assert options == {"lookup.clock": {"value": "append", "source": "broker"}}
    assert found[-1]["clock"] == "append"
    options, _ = told("range t --from @0 --to now --data-dir", folder)
    assert options == {"lookup.clock": {"value": "record", "source": "default"}}


def test_P4_a_lookup_reads_no_more_of_a_batch_than_the_broker_allows(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("big", new_topic_id(), 1, {"max.decompressed.bytes": "100000"}))
    log = open_log(folder / "big-0", now_ms=AT, **FUTURE)
    log.append(batch([AT, AT + 1], bytes(5000), codec=GZIP), AT)
    log.close()
    words = ["offset", "big", "--at", f"@{AT + 1}", "--data-dir", folder]
    assert rows(*words)[-1]["offset"] == 1
    code, _, error = run(*words, "--config", "max.decompressed.bytes=1000")
    assert code == FAILED
    assert "1000" in error


def test_a_bound_is_called_one(folder: Path) -> None:
    """What came from elsewhere was appended by the time that its file was last changed."""
    for path in (folder / "t-1").iterdir():
        if path.suffix in (".appendindex", ".summary"):
            path.unlink()
    words = ["offset", "t", "-p", 1, "--at", f"@{AT}", "--clock", "append", "--data-dir", folder]
    *steps, answer = rows(*words)
    assert (answer["offset"], answer["bound"]) == (2, True)
    assert [step["entry_bound"] for step in steps if step["what"] == "searched"] == [True]
    code, out, _ = run(*words)
    assert code == OK
    assert " or earlier (a bound); " in out.splitlines()[-1]
    words = ["range", "t", "-p", 1, "--from", "@0", "--to", "now", "--clock", "append", "--data-dir", folder]
    (answer,) = rows(*words)
    assert (answer["offset"], answer["end_offset"], answer["bound"]) == (2, 6, True)
    code, out, _ = run(*words)
    assert "at an end only a bound is known" in out.splitlines()[-1]


def test_S51_an_age_that_begins_with_a_bound_is_called_one(folder: Path) -> None:
    with closing(Catalog(folder / "catalog.sqlite")) as catalog:
        catalog.add_topic(TopicRecord("a", new_topic_id(), 2, {"retention.clock": "append"}))
    log = open_log(folder / "a-0", now_ms=AT)
    log.append(batch([AT]), AT)
    log.close()
    shutil.copytree(KAFKA_WRITTEN, folder / "a-1")
    words = ["retention", "a", "--data-dir", folder]

    def bounds() -> list[tuple[int, str, bool]]:
        return [(row["partition"], row["age_by"], row["age_bound"]) for row in rows(*words)]

    of_kafka = [(1, "append", True)] * len(list(KAFKA_WRITTEN.glob("*.log")))
    assert bounds() == [(0, "append", False), *of_kafka]
    for suffix in (".appendindex", ".summary"):
        log.active.path(suffix).unlink()
    assert bounds() == [(0, "append", True), *of_kafka]
    _, out, _ = run(*words, "-p", 0)
    assert "or earlier" in out.splitlines()[0]
    assert "  yes  " in out.splitlines()[1]
    # By a record's time nothing is bounded.
    assert {row["age_bound"] for row in rows("retention t --data-dir", folder)} == {False}


def test_P9_damage_that_was_stepped_over_is_named(folder: Path) -> None:
    log = folder / "t-1" / f"{2:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    place = {"file": str(log), "position": 0, "end": len(data), "next_offset": 4}
    for kind, span in (
        ("offset", ["--at", f"@{AT}"]),
        ("range", ["--from", f"@{AT}", "--to", f"@{AT + 90}"]),
    ):
        words = [kind, "t", "-p", 1, *span, "--data-dir", folder]
        answer = rows(*words)[-1]
        assert answer["damage"] == [place], kind
        code, out, _ = run(*words)
        assert code == OK
        assert f"damaged bytes at {log}@0, up to offset 3, were skipped: " in out.splitlines()[-1]


def test_I6_a_range_is_told_with_what_was_read_for_it(folder: Path) -> None:
    words = ["range", "t", "--from", f"@{AT + 10}", "--to", f"@{AT + 61}", "--data-dir", folder]
    before = files_of(folder)
    empty, found = rows(*words)
    assert (empty["partition"], empty["offset"], empty["end_offset"]) == (0, None, None)
    assert (found["partition"], found["clock"], found["offset"], found["end_offset"]) == (1, "record", 2, 6)
    assert found["reads"] > 0
    assert found["bytes_read"] > 0
    code, out, _ = run(*words)
    assert (code, len(out.splitlines())) == (OK, 4)
    assert out.splitlines()[1].split()[:4] == ["0", "record", "-", "-"]
    assert out.splitlines()[2].split()[:4] == ["1", "record", "2", "6"]
    assert out.splitlines()[3].startswith("options: lookup.clock=record (default); ")
    (found,) = rows(*words, "-p", 1, "--clock", "append")
    assert (found["clock"], found["offset"]) == ("append", None)
    (found,) = rows(
        f"range t -p 1 --clock append --from @{AT + 100} --to @{AT + 101} --data-dir",
        folder,
    )
    assert (found["offset"], found["end_offset"], found["bound"]) == (2, 6, False)
    assert files_of(folder) == before


async def test_a_broker_that_runs_is_not_disturbed(broker: Broker, client: Client) -> None:
    await client.make_topic("t")
    log = log_of(broker, "t")
    broker.clock.hold(AT)  # else the broker takes what has expired
    for n in range(5):
        log.append(batch([AT + n, AT + n]), AT + n)
    folder = log.directory.parent
    *_, answer = rows(f"offset t --at @{AT + 3} --data-dir", folder)
    assert (answer["offset"], answer["timestamp"]) == (6, AT + 3)
    (found,) = rows(f"range t --from @{AT + 1} --to @{AT + 3} --data-dir", folder)
    assert (found["offset"], found["end_offset"]) == (2, 6)
    (row,) = rows("retention t --data-dir", folder)
    assert (row["next_offset"], row["bytes"], row["rule"]) == (10, log.active.size, "retention.ms")
    await client.make_topic("later")
    assert rows("retention later --data-dir", folder)


def test_a_catalogue_is_read_beside_its_writer_and_not_in_the_midst_of_a_change(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with pytest.raises(CatalogError, match="there is no catalogue"):
        read(path)
    catalog = Catalog(path)
    catalog.add_topic(TopicRecord("t", bytes(15) + b"x", 2, {"retention.ms": "5"}))
    assert read(path).topics == catalog.topics()
    journal = tmp_path / "catalog.sqlite-journal"
    catalog.close()
    journal.write_bytes(b"half a change")
    with pytest.raises(CatalogError, match="it is being changed"):
        read(path)
    journal.write_bytes(bytes(100) + b"a change that was committed")
    assert [topic.name for topic in read(path).topics] == ["t"]
    journal.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(CatalogError, match="schema 9"):
        read(path)
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(CatalogError, match="not a catalogue"):
        read(path)
