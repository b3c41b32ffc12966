"""What values mean, and dates: transformations of a table in memory."""

import datetime
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.support.logs import NOW
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.jobs.parts.table_out import Form
from tidelog.pipeline.transforms import decoding, windows

DAY_MS = 86_400_000


def decoded(spark: Any, form: Form, values: list[bytes | None]) -> list[Any]:
    frame = spark.createDataFrame([(n, each) for n, each in enumerate(values)], "n int, value binary")
    rows = form.shaped(frame).orderBy("n").collect()
    assert [row.value for row in rows] == values, "values stay as they are"
    return [row.decoded for row in rows]


def test_values_as_text(spark: Any) -> None:
    values = ["grüße".encode(), b"", b"\xff\xfe", None]
    assert decoded(spark, Form(decode="string"), values) == ["grüße", "", None, None]


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
    found = decoded(spark, Form(decode="json", schema=schema), [*right, *wrong])
    assert dict(zip(wrong, found[len(right) :], strict=True)) == dict.fromkeys(wrong)
    assert [tuple(row) for row in found[: len(right)]] == list(right.values())


def test_the_column_has_the_type_of_the_schema_which_must_be_one(spark: Any) -> None:
    frame = spark.range(1).selectExpr("binary('{}') as value")
    made = decoding.as_json(frame, StructType.fromDDL("`a.b` int, c map<string, date>")).schema
    assert made["decoded"].dataType.simpleString() == "struct<a.b:int,c:map<string,date>>"
    assert made.names == ["value", "decoded"]

    for schema in ("id lang", "long", "id"):
        with pytest.raises(WrongOption, match=r"--schema: .* is no schema; write 'id long, user string'"):
            Form(decode="json", schema=schema).shaped(frame)


def test_dates_are_those_of_utc_and_end_with_the_year_9999(spark: Any) -> None:
    midnight = NOW - NOW % DAY_MS
    last = 253_402_300_799_999
    times: list[int | None] = [
        midnight - 1,
        midnight,
        midnight + DAY_MS - 1,
        0,
        last,
        last + 1,
        1 << 53,
        None,
    ]
    frame = spark.createDataFrame([(n, each) for n, each in enumerate(times)], "n int, ms long")
    frame = frame.selectExpr("n", "timestamp_millis(ms) as append_time")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        rows = windows.with_date(frame, "append_time").orderBy("n").select("date").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    day = datetime.date(2023, 11, 14)
    assert [row.date for row in rows] == [
        day - datetime.timedelta(days=1),
        day,
        day,
        datetime.date(1970, 1, 1),
        datetime.date(9999, 12, 31),
        None,
        None,
        None,
    ]
