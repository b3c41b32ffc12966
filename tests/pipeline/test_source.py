"""The log as a table in Spark: which rows a scan has, by every way to ask for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import NOW, batch, fill, open_log
from tidelog.storage import pins
from tidelog.storage.pins import FOLDER

MANY = [[NOW + (n * 37) % 101, NOW + n] for n in range(60)]


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


def test_queries_that_stop_early_share_their_links_until_all_is_read(spark: Any, tmp_path: Path) -> None:
    for partition in range(2):
        a_topic(tmp_path, *MANY, partition=partition)
    segments = len(list(tmp_path.glob("*/*.log")))
    for _ in range(3):
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


def test_a_narrower_schema_is_honoured_and_a_wrong_one_named(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, *MANY)
    some = table(spark, tmp_path).schema("value binary, offset long").load()
    assert some.columns == ["value", "offset"]
    assert tuple(some.orderBy("offset").first()) == (b"v0", 0)
    for schema, message in (
        ("ofset long", "column ofset: there is none"),
        ("offset string", "column offset: it is bigint, not string"),
        ("offset long, offset long", "column offset: it is named twice"),
        ("key binary not null", "column key: it may be null; leave out `not null`"),
    ):
        fails(lambda schema=schema: table(spark, tmp_path).schema(schema).load().collect(), message)


def test_max_records_are_exactly_so_many(spark: Any, tmp_path: Path) -> None:
    for partition in range(2):
        a_topic(tmp_path, *MANY, partition=partition)
    for count, expected in ((0, 0), (1, 1), (130, 130), (1000, 240)):
        assert table(spark, tmp_path, maxRecords=count, taskBytes=500).load().count() == expected
    assert not list(tmp_path.glob(f"*/{FOLDER}/*/*.log"))


def test_the_other_tables_of_a_log(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, *MANY)
    assert table(spark, tmp_path, table="batches").load().selectExpr("sum(records)").first()[0] == 120
    segments = table(spark, tmp_path, table="segments").load()
    assert segments.count() == len(list(tmp_path.glob("t-0/*.log")))
    assert segments.selectExpr("sum(records)").first()[0] == 120


def test_an_empty_range_has_no_rows(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, *MANY)
    assert table(spark, tmp_path, **{"from": str(NOW + 10**6)}).load().collect() == []


def fails(act: Callable[[], object], message: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (Spark's own, which has ours in its text)
        act()
    assert message in str(caught.value)
