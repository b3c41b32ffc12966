"""Files put in place of others, and what a quarantine holds; a broker that is asked for lag, and sent what was kept."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipeline import topics
from tests.pipeline.jobs import a_topic, run
from tests.support.broker import Broker
from tests.support.logs import NOW
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs import backfill, deadletter, lag
from tidelog.pipeline.jobs.parts import landing
from tidelog.pipeline.jobs.parts.committed import Reads
from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import place
from tidelog.pipeline.options import Options
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import pins

Captured = pytest.CaptureFixture[str]
NOTE = {"file": "f", "position": 0, "bytes": 0, "topic": "t", "partition": 0, "reason": "why"}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_files_take_the_place_of_those_with_the_same_prefix_alone(tmp_path: Path) -> None:
    target = place("--out", str(tmp_path))
    staged = tmp_path / "_staged"
    for name in ("a-1-00000.parquet", "a-1-00002.parquet", "a-1-2-00000.parquet", "a-11-00000.parquet"):
        (tmp_path / name).write_text("old")

    def put(*files: tuple[str, int]) -> list[str]:
        staged.mkdir(exist_ok=True)
        for name, _ in files:
            (staged / name).write_text(name)
        return landing.put(target, "_staged", [Landed(name, task, 1, 1, None) for name, task in files], "a-1")

    # None takes a name that another has: that one would be gone before all of the new are there.
    assert put(("x", 7), ("y", 3)) == ["a-1-00003.parquet", "a-1-00004.parquet"]
    assert [(tmp_path / name).read_text() for name in ("a-1-00003.parquet", "a-1-00004.parquet")] == [
        "y",
        "x",
    ]
    kept = ["a-1-2-00000.parquet", "a-11-00000.parquet"]
    assert names(tmp_path) == ["a-1-00003.parquet", "a-1-00004.parquet", *kept]
    assert put(("x", 7), ("y", 3)) == ["a-1-00000.parquet", "a-1-00001.parquet"]
    assert names(tmp_path) == ["a-1-00000.parquet", "a-1-00001.parquet", *kept]
    assert put() == []
    assert names(tmp_path) == kept
    landing.discard(target, "_staged")
    landing.discard(target, "_staged")
    assert not staged.exists()


def test_who_is_stopped_between_files_has_lost_none(tmp_path: Path) -> None:
    target, staged = place("--out", str(tmp_path)), tmp_path / "_staged"
    staged.mkdir()
    for number, text in enumerate(("a", "b")):
        (tmp_path / f"p-0000{number}.parquet").write_text(text)
    (staged / "x").write_text("b")  # what was read by the second task is read by the first one now
    landed = [Landed(name, task, 1, 1, None) for task, name in enumerate(("x", "y"))]
    with pytest.raises(FileNotFoundError):
        landing.put(target, "_staged", landed, "p")
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"a", "b"}
    (staged / "x").write_text("b")
    (staged / "y").write_text("a")
    landing.put(target, "_staged", landed, "p")
    assert sorted((tmp_path / name).read_text() for name in names(tmp_path)) == ["a", "b"]


def test_what_a_killed_run_staged_goes_and_what_others_stage_stays(tmp_path: Path) -> None:
    target, day_ms = place("--out", str(tmp_path)), 24 * 3600 * 1000
    gone, mine = f"_staged-{pins.process_of(999999999)}1", landing.own_folder()
    host, namespace, *rest = mine.rsplit("-", 3)
    elsewhere, long_ago = ("-".join([each, namespace, *rest]) for each in (f"{host}x", f"{host}y"))
    not_staged = {"_staged", "date=2025-01-01", "notes"}
    for name in (gone, mine, elsewhere, long_ago, *not_staged):
        inside = tmp_path / name / "date=2025-01-01"
        inside.mkdir(parents=True)
        for path in (inside / "00000-0.staged", inside, inside.parent):
            path.touch()
            is_old = name in {long_ago, *not_staged} or (name == elsewhere and path.is_dir())
            at_ms = NOW - day_ms - is_old
            os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
    assert sorted(landing.clear_left(target, NOW)) == sorted([gone, long_ago])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {mine, elsewhere, *not_staged}
    assert landing.clear_left(place("--out", str(tmp_path / "none")), NOW) == []


def test_files_of_the_longest_topics_have_names_of_their_own(tmp_path: Path) -> None:
    target, times = place("--out", str(tmp_path)), {"from_ms": NOW, "to_ms": NOW + 1}
    ours, other = (Options("segments", "d", "t" * 248 + end, **times) for end in "xy")
    name = f"{backfill._prefix(ours)}-00000.parquet"
    (tmp_path / name).write_text("its name is not too long")
    assert not name.startswith(backfill._prefix(other))
    assert backfill._prefix(Options("segments", "d", "t.2")) == "t.2-by-record-start-end"
    backfill._refuse_overlap(target, ours)
    backfill._refuse_overlap(target, other._replace(to_ms=None))
    with pytest.raises(PipelineError, match="may have some of the same records"):
        backfill._refuse_overlap(target, ours._replace(to_ms=None))


def a_quarantine(folder: Path) -> Path:
    good = build_batch(
        [
            Record(5, NOW, b"k", b"five", (("h", b"1"),)),
            Record(6, NOW + 1, None, b""),
            Record(7, NOW, None, None),
        ]
    )
    bad = bytearray(build_batch([Record(8, NOW, None, b"eight")]))
    bad[-2] ^= 1
    place_ = folder / "t-0"
    place_.mkdir(parents=True)
    for position, data in ((0, bytes(good) + bytes(bad) + b"torn"), (900, b"")):
        name = f"{0:020d}.log@{position}"
        note = {**NOTE, "position": position, "bytes": len(data)}
        (place_ / f"{name}.json").write_text(json.dumps(note))
        (place_ / f"{name}.bin").write_bytes(data)
    return folder


def test_a_quarantine_is_listed_and_looked_into(capsys: Captured, tmp_path: Path) -> None:
    folder = str(a_quarantine(tmp_path / "bad"))
    ran = run(capsys, "deadletter --folder", folder, "--json")
    assert [(row["name"][-9:], row["position"], row["reason"]) for row in ran.rows] == [
        ("000.log@0", 0, "why"),
        ("0.log@900", 900, "why"),
    ]
    ran = run(capsys, "deadletter --folder", folder, "--inspect", f"{0:020d}.log@0", "--json")
    assert [(row["base_offset"], row["records"], row["state"]) for row in ran.rows] == [
        (5, 3, "sound"),
        (8, 0, "wrong checksum"),
        (None, 0, "no batch can be recognized"),
    ]
    assert [row["at"] for row in ran.rows] == [
        0,
        ran.rows[0]["bytes"],
        ran.rows[0]["bytes"] + ran.rows[1]["bytes"],
    ]
    assert "sound" in run(capsys, "deadletter --folder", folder, "--inspect", f"{0:020d}.log@0").out


@pytest.mark.parametrize("size", [1, 25, 26, 60, 61])
def test_a_batch_that_is_cut_short_hides_none_before_it(size: int) -> None:
    good = bytes(build_batch([Record(5, NOW, b"k", b"five")]))
    found = [(each.bytes, each.state) for each in deadletter.batches(good + good[:size])]
    assert found == [(len(good), "sound"), (size, "no batch can be recognized")]


def test_what_is_wrong_with_a_quarantine_is_said(capsys: Captured, tmp_path: Path) -> None:
    folder = a_quarantine(tmp_path / "bad")
    for flags, status, said in (
        ((), 2, "--folder is missing"),
        (("--folder", f"{tmp_path}/none"), 1, "none is no folder"),
        (("--folder", str(folder), "--inspect", "x"), 1, "there is no x in it"),
        (("--folder", str(folder), "--redrive"), 2, "name it by --source broker:HOST:PORT"),
        (("--folder", str(folder), "--redrive", "--source", "broker:h:p", "--topic", "t"), 2, "no HOST:PORT"),
    ):
        ran = run(capsys, "deadletter", *flags)
        assert (ran.status, ran.out) == (status, "")
        assert said in ran.err
    for note in ("{", "[]", '{"topic": "t"}', json.dumps({**NOTE, "partition": "first"})):
        (folder / "t-0" / "x.json").write_text(note)
        ran = run(capsys, "deadletter --folder", str(folder))
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "x.json: it is no note of a quarantine" in ran.err


def test_what_the_client_library_does_not_send() -> None:
    sendable = Record(0, NOW, None, None, (("h", b""),))
    assert deadletter.headers_of(sendable) == [("h", b"")]
    assert deadletter.headers_of(replace(sendable, headers=(("a", b""), ("h", None)))) is None


def test_a_marker_is_no_record() -> None:
    end = Record(0, NOW, bytes([0, 0, 0, 1]), bytes(6))
    (found,) = deadletter.batches(
        build_batch([end], producer_id=1, producer_epoch=0, transactional=True, control=True)
    )
    assert (found.state, found.records) == ("marker", [])


@pytest.mark.e2e
def test_a_broker_is_sent_what_is_whole_and_asked_for_lag(capsys: Captured, tmp_path: Path) -> None:
    from kafka import KafkaConsumer, TopicPartition

    folder = str(a_quarantine(tmp_path / "bad"))
    with Broker(tmp_path / "data").start() as broker:
        to = ("--source", f"broker:{broker.address}", "--topic", "again", "--json")
        ran = run(capsys, "deadletter --folder", folder, "--redrive", "--dry-run", *to)
        assert ran.rows == [{"job": "deadletter", "sent": 3, "damaged": 2, "refused": 0, "topic": "again"}]
        ran = run(capsys, "deadletter --folder", folder, "--redrive", *to)
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "there is no topic again" in ran.err
        assert not (tmp_path / "data" / "again-0").exists(), "a name that is mistyped has made a topic"
        topics.make(broker, "again")
        assert "there is no topic agin; did you mean again?" in run(capsys, "lag", *to[:3], "agin").err
        ran = run(capsys, "deadletter --folder", folder, "--redrive", *to)
        assert (ran.status, ran.rows[0]["sent"]) == (1, 3), ran.err
        assert "2 ranges and 0 records with a header without a value" in ran.err
        assert ran.err.count("retention.ms=604800000 (7d)") == 1, "the records are older than that"
        consumer = KafkaConsumer(
            "again",
            bootstrap_servers=broker.address,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        got = []
        while len(got) < 3:
            got += [record for records in consumer.poll(1000).values() for record in records]
        assert [(each.timestamp, each.key, each.value) for each in got] == [
            (NOW, b"k", b"five"),
            (NOW + 1, None, b""),
            (NOW, None, None),
        ]
        assert list(got[0].headers) == [("h", b"1"), ("tidelog.source", b"t-0@5")]
        consumer.seek(TopicPartition("again", 0), 1)
        consumer.commit()
        consumer.close()
        (row,) = run(capsys, "lag", *to[:2], "--group", "g", "--json").rows
        (from_files,) = run(capsys, f"lag --source segments:{tmp_path}/data --json").rows
        for each in (row, from_files):
            assert each.pop("lag_s") > 1000
            assert each == {
                "group": "g",
                "topic": "again",
                "partition": 0,
                "committed": 1,
                "end": 3,
                "lag": 2,
                "past_end": 0,
            }
        assert run(capsys, "lag", *to, "--clock", "append").status == 2
        gone = {Reads("g", "gone", 0): 7}
        (row,) = lag.at_broker(broker.address, gone, "record", NOW)
        assert (row["committed"], row["end"], row["lag"], row["lag_s"]) == (7, None, None, None)
        assert not (tmp_path / "data" / "gone-0").exists(), "a question has made a topic"


def test_a_broker_that_does_not_answer(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.cluster.WAIT_S", 0.2)
    ran = run(capsys, "lag --source broker:127.0.0.1:1")
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "no broker answers at 127.0.0.1:1" in ran.err


def test_places(tmp_path: Path) -> None:
    a_topic(tmp_path, partitions=1)
    found = place("--out", str(tmp_path / "t-0"))
    assert found.names("0") == [name for name in names(tmp_path / "t-0") if name[0] == "0"] != []
    (tmp_path / "t-0" / "0-is-a-folder").mkdir()
    assert "0-is-a-folder" not in found.names("0")
    assert found.under("x") == f"{tmp_path}/t-0/x"
    assert place("--out", f"file://{tmp_path}/none").names("") == []
    assert place("--out", f"file://{tmp_path}/").path == str(tmp_path)


def test_what_is_larger_than_a_client_sends_unasked_is_sent(capsys: Captured, tmp_path: Path) -> None:
    folder, value = tmp_path / "bad" / "t-0", b"v" * 1_500_000
    folder.mkdir(parents=True)
    (folder / "f.log@0.json").write_text(json.dumps(NOTE))
    (folder / "f.log@0.bin").write_bytes(build_batch([Record(0, NOW, b"k", value)]))
    overrides = {"log.retention.ms": "-1", "message.max.bytes": "5000000"}
    with Broker(tmp_path / "data", overrides) as broker:
        topics.make(broker.start(), "again")
        to = ("--source", f"broker:{broker.address}", "--topic", "again")
        ran = run(capsys, "deadletter --folder", str(tmp_path / "bad"), "--redrive", *to, "--json")
        assert (ran.status, ran.rows[0]["sent"]) == (0, 1), ran.err
        assert [each.value for each in topics.read(broker, "again")] == [value]
        broker.stop()
