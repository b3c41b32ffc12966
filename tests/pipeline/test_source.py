"""The log as a table in Spark: which rows a scan has, by every way to ask for them."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.support.logs import NOW, batch, fill, open_log
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.source import TidelogSource
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import pins
from tidelog.storage.pins import FOLDER

MANY = [[NOW + (n * 37) % 101, NOW + n] for n in range(60)]
OFFSET = StructField("offset", LongType())
HEADERS = "headers array<struct<key: string, value: binary>>"


def a_topic(folder: Path, *batches: list[int], partition: int = 0) -> Path:
    log = open_log(folder / f"t-{partition}", segment_bytes=1500, index_interval_bytes=200)
    for number, times in enumerate(batches):
        fill(log, [times], now_ms=NOW + 10 * number)
    log.close()
    return folder


def table(spark: Any, folder: Path, **options: Any) -> Any:
    reader = spark.read.format("tidelog").option("source", f"segments:{folder}").option("topic", "t")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader


def reader(folder: Path, *fields: StructField, **options: object) -> Any:
    """Return the reader that Spark gets, to use it without Spark."""
    given = {name: str(value) for name, value in options.items()}
    source = TidelogSource({"source": f"segments:{folder}", "topic": "t", **given})
    return source.reader(StructType(list(fields)))


def test_every_column_arrives_and_snapshots_are_gone(spark: Any, tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-3")
    log.append(batch([NOW, NOW + 1], producer_id=9, producer_epoch=0, base_sequence=0), NOW + 7)
    log.close()
    row = table(spark, tmp_path).load().where("offset = 1").collect()[0].asDict()
    times = row.pop("create_time"), row.pop("append_time")
    assert [round(time.timestamp() * 1000) for time in times] == [NOW + 1, NOW + 7]
    assert row == {
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp_type": "CreateTime",
        "key": None,
        "value": b"v1",
        "headers": [],
        "producer_id": 9,
        "batch_base": 0,
        "leader_epoch": 0,
    }
    assert not list(tmp_path.glob(f"*/{FOLDER}"))


def test_headers_arrive_where_they_are_asked_for(spark: Any, tmp_path: Path) -> None:
    large, many = b"x" * 100_000, tuple((f"n{number}", b"%d" % number) for number in range(300))
    headers = [(), (("a", None), ("a", b""), ("", b"1")), (("é", large),), many]
    log = open_log(tmp_path / "t-0")
    for codec in (0, 4):
        records = [Record(number, NOW, None, b"v", each) for number, each in enumerate(headers)]
        log.append(bytearray(build_batch(records, codec=codec)), NOW)
    log.close()
    rows = table(spark, tmp_path).schema(f"offset long, {HEADERS}").load().orderBy("offset").collect()
    assert [tuple(tuple(each) for each in row.headers) for row in rows] == headers * 2


def test_queries_that_stop_early_share_their_links_until_all_is_read(spark: Any, tmp_path: Path) -> None:
    for partition in range(2):
        a_topic(tmp_path, *MANY, partition=partition)
    segments = len(list(tmp_path.glob("*/*.log")))
    for _ in range(2):
        assert len(table(spark, tmp_path).option("taskBytes", "1000").load().limit(2).collect()) == 2
    assert len(list(tmp_path.glob(f"*/{FOLDER}/*/*/*.log"))) == segments
    (process,) = {path.name for path in tmp_path.glob(f"*/{FOLDER}/*")}
    assert process == pins.process_of(spark.sparkContext._gateway.proc.pid)
    assert not pins.has_ended(process)


def test_predicates_and_ranges(spark: Any, tmp_path: Path) -> None:
    """Spark 4.3.0 keeps the tasks of a frame's first scan: a predicate must not narrow those of the next (ADR 9)."""
    for partition in range(3):
        a_topic(tmp_path, *MANY, partition=partition)
    every = table(spark, tmp_path).load()
    assert every.where("partition in (0, 2) and offset >= 17 and offset < 40").count() == 46
    assert every.where("offset = 1").union(every.where("offset = 100")).count() == 6
    assert every.count() == 360
    ranged = table(
        spark, tmp_path, **{"from": str(NOW + 20), "to": str(NOW + 30), "partitions": "0,1"}
    ).load()
    wanted = [n for n, at in enumerate(time for times in MANY for time in times) if NOW + 20 <= at < NOW + 30]
    assert sorted(row.offset for row in ranged.collect()) == sorted(wanted * 2)
    assert table(spark, tmp_path, **{"from": str(NOW + 10**6)}).load().collect() == []


def test_a_narrower_schema_is_honoured_and_a_wrong_one_named(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, *MANY)
    some = table(spark, tmp_path).schema("value binary, offset long").load()
    assert some.columns == ["value", "offset"]
    assert tuple(some.orderBy("offset").first()) == (b"v0", 0)
    with pytest.raises(
        Exception, match="column ofset: there is none"
    ):  # Spark's error, with the text of ours
        table(spark, tmp_path).schema("ofset long").load().collect()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("ofset", LongType())], "column ofset: there is none"),
        ([StructField("offset", StringType())], "column offset: it is bigint, not string"),
        ([OFFSET, OFFSET], "column offset: it is named twice"),
        ([StructField("key", BinaryType(), False)], "column key: it may be null; leave out `not null`"),
    ],
)
def test_a_schema_that_the_table_has_not(tmp_path: Path, fields: list[StructField], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        reader(tmp_path, *fields)


def test_max_records_are_exactly_so_many(tmp_path: Path) -> None:
    for partition in range(2):
        a_topic(tmp_path, *MANY, partition=partition)
    for count, expected in ((0, 0), (1, 1), (130, 130), (1000, 240)):
        limited = reader(tmp_path, OFFSET, maxRecords=count, taskBytes=500)
        (task,) = limited.partitions()
        assert sum(rows.num_rows for rows in limited.read(task)) == expected
    assert not list(tmp_path.glob(f"*/{FOLDER}/*/*.log"))


def test_the_other_tables_of_a_log(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, *MANY)
    counts = "count(*)", "sum(records)"
    batches = table(spark, tmp_path, table="batches").load().selectExpr(*counts)
    segments = table(spark, tmp_path, table="segments").load().selectExpr(*counts)
    logs = len(list(tmp_path.glob("t-0/*.log")))
    assert list(map(tuple, batches.unionAll(segments).collect())) == [(60, 120), (logs, 120)]
