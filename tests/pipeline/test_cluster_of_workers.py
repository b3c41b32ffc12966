"""Jobs on a Spark standalone cluster: executors are other processes than the driver, and than one another."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from tests.pipeline import topics
from tests.pipeline.jobs import TIMES, a_topic, told
from tests.pipeline.workers import Workers, acts, as_flags
from tests.support.broker import COMMAND, Broker, wait_until
from tests.support.java import needs_java
from tests.support.logs import NOW
from tidelog.storage.pins import FOLDER

pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(300)]

FIRST, END = NOW + 900, NOW + 2500
BOTH = {"0", "1"}


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that driver and executors see alike: a topic `t` of two partitions, and others like it."""
    folder = a_topic(tmp_path / "data")
    for name in ("gone", "torn"):
        for partition in range(2):
            shutil.copytree(folder / f"t-{partition}", folder / f"{name}-{partition}")
    for path in (sorted(folder.glob(f"torn-{n}/*.log"))[1] for n in range(2)):
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
    return folder


@pytest.fixture
def store(data: Path) -> Iterator[str]:
    """The same folder in an object store, by its URI."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    root = f"s3://id:secret@logs?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    there, bucket = fs.FileSystem.from_uri(f"{root}&allow_bucket_creation=true")
    there.create_dir(bucket)
    fs.copy_files(str(data), bucket, destination_filesystem=there)
    yield root
    server.stop()


def of_range(first: int = 0, end: int = 2 * NOW) -> list[list[Any]]:
    """Return what a scan says that is there, of both partitions."""
    return [
        [partition, offset, f"v{offset % 10}"]
        for partition in range(2)
        for offset, _ in told(TIMES, first, end)
    ]


@pytest.mark.all
def test_rows_are_right_and_of_both_executors(
    workers: Workers, data: Path, store: str, target_broker: Broker, tmp_path: Path
) -> None:
    """One driver, since each takes seconds to start: what it reads and writes, one after another."""
    ranged = {"topic": "t", "from": str(FIRST), "to": str(END), "taskBytes": "1000"}
    folder, bad = f"segments:{data}", tmp_path / "bad"
    torn = {"source": folder, "topic": "torn", "taskBytes": "3000"}
    copy = topics.make(target_broker, "of-two-executors", 2)
    to = {"target": f"broker:{target_broker.address}", "topic": copy, "job": copy}
    to |= {"maxRecordsPerSecond": "5000", "machines": "2"}
    written = [tmp_path / "written", tmp_path / "resumed"]
    origin = {"source": folder, **ranged}
    some = str(NOW + 1500)
    done = acts(
        workers,
        [
            {"name": "folder", "read": origin},
            {"name": "store", "read": {"source": f"segments:{store}", **ranged}},
            {
                "name": "retention",
                "read": {"source": folder, "topic": "gone", "taskBytes": "3000"},
                "delete": list(map(str, data.glob("gone-*/*.log"))),
            },
            {"name": "fails", "read": torn},
            {"name": "quarantine", "read": {**torn, "bad": f"quarantine:{bad}"}},
            {"name": "write", "read": {**origin, "to": some}, "write": {**to, "report": str(written[0])}},
            {"name": "resume", "read": origin, "write": {**to, "resume": "true", "report": str(written[1])}},
        ],
    )
    # A range is the same set, whoever reads it from wherever.
    expected = of_range(FIRST, END)
    assert 0 < len(expected) < 800
    for name in ("folder", "store"):
        assert done[name]["rows"] == expected, done[name]
        assert done[name]["tasks"] > 4
    # What the driver has planned is read by other processes, though its files are gone, and nothing is left of it.
    assert done["retention"]["rows"] == of_range()
    assert not list(data.glob(f"*/{FOLDER}/*"))
    # An error of a task comes back with its place; a quarantine has what either of them met.
    assert ".log@0: " in done["fails"]["error"]
    lost = sum(1 for row in of_range() if row not in done["quarantine"]["rows"])
    assert lost > 0
    notes = [json.loads(path.read_bytes()) for path in bad.glob("torn-*/*.json")]
    assert sorted(note["partition"] for note in notes) == [0, 1]
    assert all(path.with_suffix(".bin").stat().st_size for path in bad.glob("torn-*/*.json"))
    # Each row is written once, by whichever executor, and the second write leaves out what the first one wrote.
    earlier = len(of_range(FIRST, NOW + 1500))
    assert [json.loads(path.read_text()) for path in written] == [
        {"written": earlier, "left_out": 0},
        {"written": len(expected) - earlier, "left_out": earlier},
    ]
    assert sorted(
        (one.headers[-1][1].decode(), one.value.decode()) for one in topics.read(target_broker, copy)
    ) == sorted((f"t-{partition}@{offset}", value) for partition, offset, value in expected)
    # All of it on both.
    ran = workers.executors()
    for name in ("folder", "store", "retention", "quarantine", "write", "resume"):
        assert ran[name] == BOTH, name


@pytest.mark.all
@pytest.mark.timeout(600)  # each job starts Spark anew
def test_jobs_are_the_same_on_a_cluster(workers: Workers, data: Path, store: str, tmp_path: Path) -> None:
    """As they are typed: a folder by the name that it has for who types it, and an object store."""
    ranged = ["--topic", "t", "--from", str(FIRST), "--to", str(END)]
    flags = as_flags(workers.settings)
    os.symlink(data, tmp_path / "cluster" / "logs")

    def job(*words: str) -> list[Any]:
        done = workers.run(str(COMMAND), "pipeline", *words, "--json", *flags)
        assert done.returncode == 0, done.stderr
        # A scan of so little is one task; these have one for each segment or partition.
        assert workers.executors()[""] == BOTH or words[0] not in ("archive", "fsck")
        return [json.loads(line) for line in done.stdout.splitlines()]

    for source, out in (("segments:logs", "by-path"), (f"segments:{store}", "by-store")):
        (account,) = job("backfill", "--source", source, *ranged, "--out", out)
        assert account["rows"] == len(of_range(FIRST, END))
        rows = pq.read_table(tmp_path / "cluster" / out).select(["partition", "offset", "value"]).to_pylist()
        found = sorted([row["partition"], row["offset"], row["value"].decode()] for row in rows)
        assert found == of_range(FIRST, END)
    (account,) = job("archive", "--source", "segments:logs", "--topic", "t", "--out", "archived")
    assert account["segments"] == len(list(data.glob("t-*/*.log"))) - 2  # all but the active ones
    assert job("fsck", "--source", "segments:logs", "--topic", "t") == []
    counted = job("audit", "--source", "segments:archived", "--topic", "t", "--window", "1s")
    ends = [max(int(path.stem) for path in data.glob(f"t-{partition}/*.log")) for partition in range(2)]
    expected = Counter(
        (partition, at // 1000 * 1000)
        for partition, end in enumerate(ends)
        for offset, at in told(TIMES, 0, 2 * NOW)
        if offset < end
    )
    assert {
        (row["partition"], round(datetime.fromisoformat(row["window"]).timestamp() * 1000)): row["n"]
        for row in counted
    } == expected


@pytest.mark.all
def test_rows_are_right_where_an_executor_is_killed_meanwhile(
    workers: Workers, data: Path, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.mkdir()
    read = {"source": f"segments:{data}", "topic": "t", "taskBytes": "3000"}
    act = {"name": "killed", "read": read, "hold": str(hold)}
    with ThreadPoolExecutor(1) as pool:
        try:
            doing = pool.submit(acts, workers, [act])
            wait_until(lambda: doing.done() or len(list(hold.glob("begun-*"))) == 2, 90)
            assert not doing.done(), doing.result()
            os.kill(min(workers.executor_pids()), signal.SIGKILL)
        finally:
            (hold / "go").touch()
        done = doing.result()
    assert done["killed"].get("rows") == of_range(), done["killed"]
    assert not list(data.glob(f"*/{FOLDER}/*"))
