"""The log as a table in Spark: which rows a scan has, by every way to ask for them."""

from pathlib import Path
from typing import Any

from tests.support.logs import NOW, fill, open_log


def a_topic(folder: Path, *batches: list[int], partition: int = 0) -> Path:
    log = open_log(folder / f"t-{partition}")
    fill(log, batches)
    log.close()
    return folder


def test_all_records_of_a_topic(spark: Any, tmp_path: Path) -> None:
    a_topic(tmp_path, [NOW, NOW + 5], [NOW + 3])
    table = spark.read.format("tidelog").option("source", f"segments:{tmp_path}").option("topic", "t").load()
    rows = table.selectExpr("offset", "unix_millis(create_time) as at", "value").collect()
    assert [tuple(row) for row in rows] == [(0, NOW, b"v0"), (1, NOW + 5, b"v1"), (2, NOW + 3, b"v0")]
