"""The examples of docs/pipeline.md: each runs and prints the lines that the page shows.

Logs are small here, so figures of jobs differ. What the page shows of Spark's tables is the same to the letter.
"""

import contextlib
import doctest
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer

from tests.pipeline import topics
from tests.pipeline.jobs import commit_offsets, run
from tests.support.broker import Broker
from tests.support.example_kinds import kind
from tests.support.examples import EXAMPLES, Example, steady
from tests.support.logs import NOW, open_log
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.compression import ZSTD
from tidelog.storage import layout

pytestmark = pytest.mark.e2e
Captured = pytest.CaptureFixture[str]

HERE = [example for example in EXAMPLES if example.page == "docs/pipeline.md"]
CONNECTOR = Path(__file__).with_name("connector") / "pom.xml"
START_MS = 1_760_000_000_000  # 2025-10-09 08:53:20 UTC
KEYS = (b"EUR", b"NOK", b"item-%d", b"CHF")
TOPICS = {"ingest": "orders", "upsert": "prices", "replay": "orders.again", "deadletter": "orders.repaired"}
WITH_SPARK = ("audit-keys", "failover", "fsck", "ingest", "latency", "replay", "upsert")
PROGRESS = re.compile(r"^\w[\w-]*: .*/s")  # a line every two seconds

TABLES = "+------"


def jobs(example: Example) -> list[str]:
    """Return which jobs an example runs."""
    is_run = example.language in ("console", "shell") and kind(example) == "run"
    return re.findall(r"tidelog pipeline ([a-z-]+)", example.text) if is_run else []


def needs_spark(example: Example) -> bool:
    return any(job in WITH_SPARK for job in jobs(example)) or "--against" in example.text


def one(start: str) -> Example:
    (found,) = [example for example in HERE if example.text.startswith(start)]
    return found


# -- jobs -------------------------------------------------------------------------------------------------------------


def order_logs(folder: Path) -> None:
    """Two partitions of small segments, of four minutes, out of order by three seconds."""
    for partition in range(2):
        log = open_log(folder / f"orders-{partition}", segment_bytes=20_000)
        for number in range(300):
            at_ms = START_MS + number * 800
            records = [
                Record(
                    each, at_ms + each * 30 - number % 7 * 500, b"customer", b'{"id": %d, "user": "u"}' % each
                )
                for each in range(10)
            ]
            log.append(bytearray(build_batch(records)), at_ms + 350)
        log.close()


def price_logs(folder: Path) -> None:
    """Two partitions of keys that change often."""
    for partition in range(2):
        log = open_log(folder / f"prices-{partition}", segment_bytes=8000)
        for number in range(0, 800, 4):
            records = [
                Record(each, START_MS + number, key % (number % 61) if b"%" in key else key, b"1.07")
                for each, key in enumerate(KEYS)
            ]
            log.append(bytearray(build_batch(records)), START_MS + number)
        log.close()


def logs(folder: Path) -> None:
    """The data folder of the page's jobs, and copies of it."""
    data = folder / "data"
    data.mkdir()
    layout.identify(data, 1)
    order_logs(data)
    price_logs(data)
    orders = [("billing", "orders", 0, 1500), ("billing", "orders", 1, 1700), ("search", "orders", 0, 2000)]
    prices = [("shop", "prices", 0, 796), ("shop", "prices", 1, 796)]
    commit_offsets(data, 0, *orders, *prices)
    shutil.copytree(data, folder / "other")
    shutil.copytree(data, folder / "copy")


def lake(capsys: Captured, folder: Path) -> None:
    """Parquet files of the orders that lack three records, and have two twice."""
    run(capsys, "backfill --source segments:data --topic orders --out lake")
    (path, *_) = sorted((folder / "lake").glob("*.parquet"))
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table.slice(3), table.slice(10, 2)]), path)


def quarantine(capsys: Captured, folder: Path) -> None:
    """What a job has kept of a damaged log."""
    shutil.copytree(folder / "data", folder / "damaged")
    path = min((folder / "damaged" / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    run(capsys, "audit --source segments:damaged --topic orders --bad quarantine:bad")


def lines_of(text: str) -> set[str]:
    """Return the lines of an output without figures, and without those that depend on how long it took."""
    lines = {steady(line, figures=False) for line in text.splitlines() if not PROGRESS.match(line)}
    return lines - {"", "..."}


def prints_its_lines(capsys: Captured, example: Example, address: str) -> None:
    """Run the jobs of an example in this process; each line that the page shows must be printed."""
    before: list[str] = []
    status = 0
    for command, shown in example.commands:
        for line in command.replace("\\\n", " ").splitlines():
            if line == "echo $?":
                assert shown.strip() == str(status)
                continue
            words = shlex.split(line, comments=True)[2:]
            if "..." in words:
                words = [*before, *(word for word in words[1:] if word != "...")]
            before = words
            # Spark's own processes have another folder.
            words = [re.sub(r"^segments:", f"segments:{Path.cwd()}/", word) for word in words]
            words = [re.sub(r"^broker:.*", f"broker:{address}", word) for word in words]
            ran = run(capsys, "", *words)
            status = ran.status
            assert status == 0 or "echo $?" in example.text or "--redrive" in words, ran.err
            missing = lines_of(shown) - lines_of((ran.out + ran.err).replace(f"{Path.cwd()}/", ""))
            assert not missing, f"{example.place}: {line}\n{missing}\n{ran.out}{ran.err}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logs(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "example",
    [example for example in HERE if jobs(example) and not needs_spark(example)],
    ids=lambda each: each.place,
)
def test_a_job_prints_what_the_page_shows(
    capsys: Captured, folder: Path, broker: Broker, example: Example
) -> None:
    if "segments:store" in example.text:
        run(capsys, "archive --source segments:data --topic orders --out store")
    if "deadletter" in example.text:
        quarantine(capsys, folder)
        topics.make(broker, TOPICS["deadletter"])
    prints_its_lines(capsys, example, broker.address)
    if "--out store" in example.text:
        manifest = (folder / "store" / "orders-0" / "manifest.json").read_text()
        names = re.findall(r'"\w+":', one('"base_offset"').text)
        assert names
        assert [name for name in names if name not in manifest] == []


@pytest.mark.parametrize(
    "example", [example for example in HERE if needs_spark(example)], ids=lambda each: each.place
)
def test_a_job_on_spark_prints_what_the_page_shows(
    spark: Any, capsys: Captured, folder: Path, broker: Broker, example: Example
) -> None:
    if "--against" in example.text:
        lake(capsys, folder)
    if (topic := TOPICS.get(jobs(example)[0])) is not None:
        topics.make(broker, topic, 2)
        if "--source broker:" in example.text:
            send(broker, topic)
    prints_its_lines(capsys, example, broker.address)


def send(broker: Broker, topic: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for number in range(60):
            to.send(topic, b'{"id": %d, "user": "u"}' % number, b"key-%d" % (number % 7))
        to.flush()


# -- Spark ------------------------------------------------------------------------------------------------------------


def small_log(folder: Path) -> None:
    """Six batches of two records, a minute apart, in two segments: what the first table of the page shows."""
    log = open_log(folder / "orders-0", segment_bytes=400)
    for number in range(6):
        at_ms = NOW + number * 60_000
        records = [
            Record(
                2 * number + each,
                at_ms - each * 7000,
                b"customer-%d" % (number % 2),
                b'{"order": %d}' % (2 * number + each),
            )
            for each in range(2)
        ]
        log.append(bytearray(build_batch(records, codec=ZSTD if number % 2 else 0)), at_ms + 250)
    log.close()


def printed(work: Callable[[], object]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        work()
    return output.getvalue().strip()


def execute(text: str, names: dict[str, Any], places: dict[str, str]) -> str:
    """Run a script of the page, with these places for those of the page; return what it printed."""
    for shown, real in places.items():
        text = text.replace(shown, real)
    return printed(lambda: exec(text, names))


def python() -> list[Example]:
    return [example for example in HERE if example.language == "python"]


def tables() -> list[Example]:
    return [example for example in HERE if example.text.startswith(TABLES)]


def test_tables_are_as_shown(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small_log(data)
    places = {"/tmp/data": str(data), "/tmp/q": str(tmp_path / "q")}
    first, own_session, *_ = python()
    records, batches, segments, _ = tables()
    names: dict[str, Any] = {}
    assert execute(first.text, names, places) == records.text.strip()
    execute(own_session.text, {}, places)
    reader = (
        names["spark"].read.format("tidelog").option("source", f"segments:{data}").option("topic", "orders")
    )
    for table, example in (("batches", batches), ("segments", segments)):
        columns = re.findall(r"[\w()]+", example.text.splitlines()[1])
        frame = reader.option("table", table).load().selectExpr(*columns)
        assert printed(lambda: frame.show(truncate=False)) == example.text.strip()  # noqa: B023

    damaged = data / "orders-0" / f"{6:020d}.log"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    reader.option("table", "records")
    with pytest.raises(Exception, match="DamagedLog") as error:
        reader.load().collect()
    message = " ".join(one("DamagedLog").text.split()).replace("/tmp/data", str(data))
    assert message in " ".join(str(error.value).split())
    reader.option("bad", f"quarantine:{tmp_path / 'q'}").load().collect()
    note = one("$ cat /tmp/q").text.split("\n", 1)[1].replace("/tmp/data", str(data))
    assert json.loads((tmp_path / "q" / "orders-0" / f"{6:020d}.log@0.json").read_text()) == json.loads(note)


def test_prompts_print_what_they_show(spark: Any, broker: Broker, tmp_path: Path) -> None:
    topics.make(broker, "minutes", 2)
    at_ms = int(datetime(2026, 6, 28, 9, tzinfo=UTC).timestamp() * 1000)
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for number in range(400):
            half = number // 2
            to.send("minutes", b"order %d" % half, partition=number % 2, timestamp_ms=at_ms + half * 60_000)
        to.flush()
    places = {
        "localhost:9092": broker.address,
        '"topic", "orders"': '"topic", "minutes"',
        "/data/": f"{tmp_path}/",
    }
    names = {"spark": spark}
    for example in (example for example in HERE if example.language == "prompt"):
        text = example.text
        for shown, real in places.items():
            text = text.replace(shown, real)
        test = doctest.DocTestParser().get_doctest(text, names, example.place, None, 0)
        report = io.StringIO()
        assert (
            doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.DONT_ACCEPT_BLANKLINE)
            .run(test, out=report.write, clear_globs=False)
            .failed
            == 0
        ), report.getvalue()
        names = test.globs
    (source,) = names["query"].lastProgress["sources"]
    shown, found = json.loads(one('{"topic"').text), json.loads(source["endOffset"])
    assert found | {"topic": "orders", "topic_id": shown["topic_id"]} == shown


def test_rows_are_written_once(spark: Any, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", {"log.retention.ms": "-1"}) as broker:
        broker.start()
        for topic in ("orders", "orders-again"):
            topics.make(broker, topic, 2)
        places = {"127.0.0.1:9092": broker.address, "segments:data": f"segments:{tmp_path}/data"}
        names: dict[str, Any] = {}
        _, _, write, read = python()
        execute(write.text, names, places)
        assert execute(read.text, names, places) == tables()[-1].text.strip()
    message = " ".join(one("column Key").text.split())
    frame = spark.range(1).selectExpr("'tea' as value", "'a' as Key")
    with pytest.raises(Exception, match="column Key") as error:
        frame.write.format("tidelog").options(target=f"broker:{broker.address}", topic="orders").mode(
            "append"
        ).save()
    assert message in " ".join(str(error.value).split())


def test_the_jars_of_the_connector_are_those_that_are_tested() -> None:
    pom = " ".join(CONNECTOR.read_text().split())
    for jar in one("org.apache.spark:").text.split():
        group, artifact, version = jar.split(":")
        pinned = (
            f"<groupId>{group}</groupId> <artifactId>{artifact}</artifactId> <version>{version}</version>"
        )
        assert pinned in pom
