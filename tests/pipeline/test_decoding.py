"""What values mean, and dates: transformations of a table in memory."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.support.logs import NOW
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.jobs.parts.table_out import Form
from tidelog.pipeline.transforms import decoding

DAY_MS = 86_400_000


@pytest.mark.parametrize("wrong", [[], [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]])
def test_values_as_text(wrong: list[bytes]) -> None:
    values = ["grüße".encode(), b"", None, *wrong]
    rows = Form(decode="string").completed(pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert rows["value"].to_pylist() == values, "values stay as they are"
    assert rows["decoded"].to_pylist() == ["grüße", "", None, *[None] * len(wrong)]


def test_values_as_json(spark: Any) -> None:
    right = {
        b'{"id": 7, "user": "a", "more": [1]}': (7, "a", None),
        b' {"user": "b", "at": {"x": 1.5}} ': (None, "b", (1.5,)),
        b"{}": (None, None, None),
        b'{"id": null}': (None, None, None),
        '{"user": "ü"}'.encode(): (None, "ü", None),
        b'{"id": 7} {"id": 8}': (7, None, None),
    }
    wrong = [
        b'{"id": "seven", "user": "a"}',
        b'{"id": 7',
        b"seven",
        b"7",
        b"null",
        b"",
        b" ",
        b'[{"id": 7}]',
        b'{"user": "\xff"}',
        None,
    ]
    schema = "id long, user string, at struct<x: double>"
    frame = spark.createDataFrame([*enumerate([*right, *wrong])], "n int, value binary")
    rows = Form(decode="json", schema=schema).decoded(frame).orderBy("n").collect()
    assert [row.value for row in rows] == [*right, *wrong], "values stay as they are"
    found = [row.decoded for row in rows]
    assert dict(zip(wrong, found[len(right) :], strict=True)) == dict.fromkeys(wrong)
    assert [tuple(row) for row in found[: len(right)]] == list(right.values())


def test_the_column_has_the_type_of_the_schema_which_must_be_one(spark: Any) -> None:
    frame = spark.range(1).selectExpr("binary('{}') as value")
    made = decoding.as_json(frame, StructType.fromDDL("`a.b` int, c map<string, date>")).schema
    assert made["decoded"].dataType.simpleString() == "struct<a.b:int,c:map<string,date>>"
    assert made.names == ["value", "decoded"]

    for schema in ("id lang", "long", "id"):
        with pytest.raises(WrongOption, match=r"--schema: .* is no schema; write 'id long, user string'"):
            Form(decode="json", schema=schema).decoded(frame)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
def test_dates_are_those_of_utc_and_end_with_the_year_9999(zone: str) -> None:
    midnight = NOW - NOW % DAY_MS
    last = 253_402_300_799_999
    times: list[int | None] = [
        midnight - 1,
        midnight,
        midnight + DAY_MS - 1,
        0,
        -1,
        last,
        last + 1,
        1 << 53,
        None,
    ]
    at_us = pa.array([None if each is None else each * 1000 for each in times], pa.int64())
    rows = pa.record_batch({"append_time": at_us.cast(pa.timestamp("us", zone))})
    day = datetime.date(2023, 11, 14)
    assert Form(time="append_time").completed(rows)["date"].to_pylist() == [
        day - datetime.timedelta(days=1),
        day,
        day,
        datetime.date(1970, 1, 1),
        datetime.date(1969, 12, 31),
        datetime.date(9999, 12, 31),
        None,
        None,
        None,
    ]
