"""The source in Spark, from a broker and as a stream: a table, and every row once in Parquet after hard kills."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import topics
from tests.support.broker import Broker, environment, wait_until
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.e2e
PROGRAM = Path(__file__).with_name("stream_to_parquet.py")
PARTITIONS, BATCHES, RECORDS = 3, 20, 500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", {"log.retention.ms": "-1"}) as broker:
        broker.start()
        with RawClient(broker) as client:
            client.create("t", PARTITIONS)
            for number in range(BATCHES):
                for partition in range(PARTITIONS):
                    client.produce("t", batch(range(NOW + number, NOW + number + RECORDS)), partition)
        yield broker


def table(spark: Any, broker: Broker, **given: str) -> Any:
    reader = spark.read.format("tidelog").option("source", f"broker:{broker.address}").option("topic", "t")
    for name, text in given.items():
        reader = reader.option(name, text)
    return reader


def test_a_topic_of_a_broker_as_a_table(spark: Any, broker: Broker) -> None:
    rows = table(spark, broker).load()
    assert rows.count() == PARTITIONS * BATCHES * RECORDS
    found = rows.where("partition = 1 and offset >= 700 and offset < 703").select("offset", "value").collect()
    assert [tuple(row) for row in found] == [(700, b"v200"), (701, b"v201"), (702, b"v202")]
    pushed = rows.where(
        f"create_time >= timestamp_millis({NOW + 10}) and create_time < timestamp_millis({NOW + 12})"
    )
    assert pushed.count() == PARTITIONS * (11 + 12)


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The program and the Java it starts, of a process group of their own that is killed in the end."""
    command = [sys.executable, str(PROGRAM), *arguments]
    root = PROGRAM.parents[2]
    process = subprocess.Popen(
        command, cwd=root, env=environment(), stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        # Java may live on after Python.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_begun(folder: Path, number: int) -> bool:
    """Whether a batch is in the log of offsets: it is being written, and not yet among those that are done."""
    return (folder / "checkpoint" / "offsets" / str(number)).exists()


@pytest.mark.all
@pytest.mark.timeout(1200)  # each start of Spark takes its time where others work
@pytest.mark.parametrize(("kind", "kills"), [("broker", range(10)), ("segments", range(10))])
def test_every_row_once_after_hard_kills(
    spark: Any, broker: Broker, tmp_path: Path, kind: str, kills: range
) -> None:
    """Each batch of the first ten is begun and broken off once."""
    source, group = (
        (f"broker:{broker.address}", "g") if kind == "broker" else (f"segments:{broker.data_dir}", "")
    )
    arguments = (source, "t", str(tmp_path), group, "2500")
    for number in kills:
        with running(*arguments) as process:
            wait_until(lambda n=number: process.poll() is not None or is_begun(tmp_path, n), 120)
            assert process.poll() is None, "the stream ended by itself"
    with running(*arguments, "now") as process:
        assert process.wait(timeout=120) == 0
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert (
        rows.count()
        == rows.select("partition", "offset").distinct().count()
        == PARTITIONS * BATCHES * RECORDS
    )
    if kind == "broker":
        ends = dict.fromkeys(range(PARTITIONS), BATCHES * RECORDS)
        assert topics.committed(broker, "g", "t") == ends


def test_a_stream_goes_on_where_the_broker_starts_anew(spark: Any, broker: Broker, tmp_path: Path) -> None:
    reader = (
        spark.readStream.format("tidelog")
        .option("source", f"broker:{broker.address}")
        .option("topic", "grows")
    )
    with RawClient(broker) as client:
        client.create("grows")
        client.produce("grows", batch([NOW] * 5))
    writer = reader.load().select("offset").writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        with RawClient(broker) as client:
            client.produce("grows", batch([NOW] * 3))
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row[0] for row in rows) == list(range(8))
