"""ingest, from a broker and from its files: every record once, whatever is done again, stopped or killed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import dataset

from tests.pipeline import topics
from tests.pipeline.jobs import Ran, run
from tests.support.broker import COMMAND, Broker, environment, wait_until
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.pipeline.tables import RECORDS
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e
Captured = pytest.CaptureFixture[str]
DAY_MS = 86_400_000
MIDNIGHT = NOW - NOW % DAY_MS  # of 2023-11-14


def table(out: Path) -> pa.Table:
    if (out / "_delta_log").exists():
        return DeltaTable(out).to_pyarrow_table()
    return dataset.dataset(out, partitioning="hive").to_table()


def offsets(out: Path) -> list[tuple[int, int]]:
    rows = table(out)
    return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def expected(*counts: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def source_of(broker: Broker, kind: str) -> str:
    return f"broker:{broker.address}" if kind == "broker" else f"segments:{broker.data_dir}"


def do_last_batch_again(checkpoint: Path) -> int:
    """Have the checkpoint not know of the last batch that it was done, as after a kill; return its number."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
    return last


@pytest.mark.parametrize(("kind", "form"), [("broker", "parquet"), ("segments", "delta")])
def test_a_topic_is_written_once_as_it_grows_also_when_a_batch_is_done_again(
    spark: Any, capsys: Captured, broker: Broker, client: RawClient, tmp_path: Path, kind: str, form: str
) -> None:
    topic, out = f"grows-{kind}", tmp_path / "out"
    flags = ["--source", source_of(broker, kind), "--topic", topic, "--out", str(out), "--format", form]
    if kind == "broker":
        flags += ["--group", topic]

    def ingest(*more: str) -> Ran:
        return run(capsys, "ingest", *flags, "--available-now", "--json", *more)

    client.create(topic, 2)
    for partition, count in enumerate((30, 10)):
        client.produce(topic, batch([NOW + n for n in range(count)]), partition)
    ran = ingest("--max-records", "16")
    assert ran.status == 0, ran.err
    assert (ran.rows[0]["rows"], ran.rows[0]["batches"]) == (40, 3)
    lines = [line for line in ran.err.splitlines() if line.startswith("ingest: batch")]
    assert len(lines) == 3
    for line, left in zip(lines, (24, 8, 0), strict=True):
        assert " rows/s, " in line
        assert f" {left} records and " in line
        assert " behind, ETA " in line
    assert " 0 records and 0.0 s behind, ETA 0ms" in lines[-1]
    assert offsets(out) == expected(30, 10)
    # Killed when the rows of the last batch were there, and the checkpoint did not say so yet.
    do_last_batch_again(out / "_checkpoint")
    client.produce(topic, batch([NOW] * 5), 1)
    ran = ingest()
    assert (ran.status, offsets(out)) == (0, expected(30, 15)), ran.err
    assert not list(out.glob("_staged*"))
    found = table(out)
    assert set(found.column_names) == set(RECORDS.names)
    assert pa.types.is_binary(found.schema.field("value").type)
    if kind == "broker":
        assert topics.committed(broker, topic, topic) == {0: 30, 1: 15}
    # With another checkpoint all would be there twice.
    ran = ingest("--checkpoint", str(tmp_path / "other"))
    assert (ran.status, ran.out, offsets(out)) == (1, "", expected(30, 15))
    said = ran.err.splitlines()[-1]
    assert f"{out} has records of topic {topic} already, by the checkpoint {out}/_checkpoint" in said
    # And the checkpoint is of that topic alone.
    client.create(f"{topic}-2", 2)
    client.produce(f"{topic}-2", batch([NOW]))
    ran = ingest("--topic", f"{topic}-2")
    assert (ran.status, ran.out, offsets(out)) == (1, "", expected(30, 15))
    assert f"the checkpoint is of topic {topic}, not of {topic}-2" in ran.err.splitlines()[-1]


def values(*each: tuple[int, bytes | None]) -> bytes:
    return bytes(build_batch([Record(n, at, b"k", value) for n, (at, value) in enumerate(each)]))


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_values_are_decoded_beside_and_rows_lie_by_date(
    spark: Any, capsys: Captured, broker: Broker, client: RawClient, tmp_path: Path, form: str
) -> None:
    topic, out = f"dated-{form}", tmp_path / "out"
    client.create(topic)
    client.produce(
        topic,
        values(
            (MIDNIGHT - 1, b'{"id": 1}'),
            (MIDNIGHT, b'{"id": 2, "user": "b"}'),
            (MIDNIGHT + DAY_MS, b"no json"),
            (-1, b'{"id": 4}'),
            (MIDNIGHT, None),
        ),
    )
    flags = ["--source", source_of(broker, "segments"), "--topic", topic, "--out", str(out), "--format", form]
    flags += ["--decode", "json", "--schema", "id long, user string", "--by-date", "--json"]
    ran = run(capsys, "ingest", *flags, "--available-now")
    assert ran.status == 0, ran.err
    assert (ran.rows[0]["rows"], ran.rows[0]["undecoded"]) == (5, 1)
    do_last_batch_again(out / "_checkpoint")
    assert run(capsys, "ingest", *flags, "--available-now").status == 0
    folders = {
        path.parent.name: None
        for path in sorted(out.rglob("*.parquet"))
        if path.parent.name.startswith("date=")
    }
    days = ("2023-11-13", "2023-11-14", "2023-11-15", "__HIVE_DEFAULT_PARTITION__")
    assert list(folders) == [f"date={day}" for day in days]
    found = sorted(table(out).to_pylist(), key=lambda row: row["offset"])
    assert [row["offset"] for row in found] == list(range(5))
    assert [row["decoded"] for row in found] == [
        {"id": 1, "user": None},
        {"id": 2, "user": "b"},
        None,
        {"id": 4, "user": None},
        None,
    ]
    assert [row["value"] for row in found][2] == b"no json"
    assert [row["date"] and str(row["date"]) for row in found] == [*days[:3], None, days[1]]
    ran = run(capsys, "ingest", *flags[:8], "--available-now")
    assert (ran.status, ran.out) == (1, "")
    assert "has folders by date; write --by-date too" in ran.err
    # A range of it is put right.
    if form == "delta":
        ran = run(capsys, "backfill", *flags, "--from", str(MIDNIGHT - 1), "--to", str(MIDNIGHT + 1))
        assert (ran.status, ran.rows[0]["rows"]) == (0, 3), ran.err
        assert sorted(table(out).to_pylist(), key=lambda row: row["offset"]) == found
    else:
        dates = {row.offset: row.date for row in spark.read.parquet(str(out)).collect()}
        assert [dates[offset] and str(dates[offset]) for offset in range(5)] == [*days[:3], None, days[1]]


def test_folders_by_append_time(
    spark: Any, capsys: Captured, broker: Broker, client: RawClient, tmp_path: Path
) -> None:
    client.create("appended")
    client.produce("appended", batch([NOW] * 2))
    flags = [
        "--topic",
        "appended",
        "--out",
        str(tmp_path / "out"),
        "--by-date",
        "--clock",
        "append",
        "--decode",
        "string",
    ]
    ran = run(capsys, "ingest --source", source_of(broker, "segments"), *flags, "--available-now")
    assert ran.status == 0, ran.err
    found = table(tmp_path / "out")
    days = {str(at.date()) for at in found["append_time"].to_pylist()}
    assert {path.name for path in (tmp_path / "out").glob("date=*")} == {f"date={day}" for day in days}
    assert found["decoded"].to_pylist() == ["v0", "v1"]
    for job in ("ingest", "backfill"):
        ran = run(capsys, job, "--source", source_of(broker, "broker"), *flags)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "topic appended has message.timestamp.type=CreateTime" in ran.err


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        ("--topic none-such", 1, "there is no topic none-such"),
        ("--group g --source segments:{}", 2, "option group: only a broker keeps the offsets"),
        ("--out s3://bucket/prefix?region=us-east-1", 2, "--checkpoint is missing; name a folder"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    capsys: Captured,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    status: int,
    said: str,
) -> None:
    from tidelog.pipeline.jobs.parts.flags import JobFlags

    monkeypatch.setattr(JobFlags, "session", None)
    common = [
        "--source",
        source_of(broker, "broker"),
        "--topic",
        "__consumer_offsets",
        "--out",
        str(tmp_path),
    ]
    ran = run(capsys, "ingest", *common, *flags.format(broker.data_dir).split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert said in ran.err


@contextmanager
def started(said: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The command as a shell starts it: of a process group, which Ctrl-C goes to; killed in the end."""
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [str(COMMAND), "pipeline", "ingest", *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        with process.stdout:
            yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.all
@pytest.mark.timeout(400)  # each start of Spark takes its time where others work
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_ctrl_c_ends_behind_a_batch_and_nothing_is_lost_or_doubled(
    spark: Any, capsys: Captured, broker: Broker, client: RawClient, tmp_path: Path, form: str
) -> None:
    topic, out, said = f"stopped-{form}", tmp_path / "out", tmp_path / "said"
    client.create(topic, 2)
    flags = ["--source", source_of(broker, "broker"), "--topic", topic, "--out", str(out), "--format", form]
    flags += ["--group", topic, "--json"]
    few = ["--max-records", "400"]
    counts = [0, 0]

    def produce(count: int) -> None:
        for partition in range(2):
            client.produce(topic, batch([NOW] * count), partition)
            counts[partition] += count

    produce(2000)
    with started(said, *flags, *few, "--conf", "spark.master=local[2]") as process:
        wait_until(lambda: process.poll() is not None or b"batch 0:" in said.read_bytes(), 150)
        produce(10)
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    lines = said.read_text().splitlines()
    assert process.returncode == 130, lines
    account = json.loads(printed)
    done = table(out)
    assert done.num_rows == account["rows"] == 400 * account["batches"] < sum(counts)
    # Before them, what Spark says as it starts.
    ours = lines[next(n for n, line in enumerate(lines) if line.startswith("ingest: ")) :]
    assert all(line.startswith("ingest: ") for line in ours), lines
    assert lines[-1].startswith("ingest: stopped after batch ")
    assert not list(out.glob("_staged*"))
    checkpoint = out / "_checkpoint"
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    assert len(commits) == account["batches"]
    if form == "delta":
        with started(said, *flags, *few) as process:  # and killed, hard, in the middle
            wait_until(lambda: (checkpoint / "offsets" / str(len(commits) + 2)).exists(), 150)
    ran = run(capsys, "ingest", *flags, "--available-now")
    assert ran.status == 0, ran.err
    assert offsets(out) == expected(*counts)
    assert topics.committed(broker, topic, topic) == dict(enumerate(counts))
