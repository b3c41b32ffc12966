"""The options and columns of a writer, and the messages for wrong ones."""

import pytest
from pyspark.sql import types

from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.writing.write_options import WriteOptions, checked, parse

TO = {"target": "broker:h:9092", "topic": "t"}


def test_options_and_their_defaults() -> None:
    assert parse(TO) == WriteOptions("h:9092", "t", None, False, "sink")
    given = {
        **TO,
        "maxrecordspersecond": "300",
        "RESUME": "True",
        "job": "j",
        "queryName": "q",
    }
    assert parse({**given, "checkpointLocation": "/c"}) == WriteOptions("h:9092", "t", 300, True, "j")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": None}, "option target: None is not valid; write broker:HOST:PORT"),
        ({"target": "segments:/data"}, "option target: 'segments:/data' is not valid"),
        ({"target": "broker:9092"}, "broker:9092 names no HOST:PORT"),
        ({"target": "broker:h:port"}, "broker:h:port names no HOST:PORT"),
        ({"source": "broker:h:1"}, "option source: there is none of this name in writing"),
        ({"rezume": "true"}, "option rezume: there is none of this name in writing.*resume"),
        ({"clock": "append"}, "option clock: there is none"),
        ({"resume": "yes"}, "option resume: 'yes' is neither true nor false"),
        ({"maxRecordsPerSecond": "0"}, "option maxRecordsPerSecond: '0' is no number from 1 on"),
        ({"maxRecordsPerSecond": "1.5"}, "option maxRecordsPerSecond: '1.5' is no number"),
    ],
)
def test_an_option_that_cannot_be_understood(given: dict[str, str | None], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        parse({name: text for name, text in {**TO, **given}.items() if text is not None})


STRING, BINARY = types.StringType(), types.BinaryType()


def frame(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


PLAIN = WriteOptions("h:1", "t")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"key": BINARY}, PLAIN, "column value: it is missing; the columns are key"),
        ({"value": types.LongType()}, PLAIN, "column value: it must be binary or string, not bigint"),
        (
            {"value": BINARY, "key": types.LongType()},
            PLAIN,
            "column key: it must be binary or string, not bigint",
        ),
        (
            {"value": BINARY, "Key": BINARY},
            PLAIN,
            "column Key: it cannot be written; drop it, or .*; did you mean key",
        ),
        (
            {"value": BINARY, "offset": types.LongType()},
            PLAIN,
            "column offset: it cannot be written; drop it",
        ),
        (
            {"value": BINARY, "partition": types.LongType()},
            PLAIN,
            "column partition: it must be int, not bigint",
        ),
        (
            {"value": BINARY, "timestamp": types.LongType()},
            PLAIN,
            "column timestamp: it must be timestamp, not bigint",
        ),
        (
            {"value": BINARY, "headers": types.ArrayType(STRING)},
            PLAIN,
            "column headers: it must be array<struct<key",
        ),
        ({"value": BINARY, "topic": BINARY}, PLAIN, "column topic: it must be string, not binary"),
        (
            {"value": BINARY},
            PLAIN._replace(topic=None),
            "option topic: it is missing, and there is no column topic",
        ),
        (
            {"value": BINARY},
            PLAIN._replace(resume=True),
            "column source: it is missing; without it resume cannot",
        ),
        (
            {"value": BINARY, "source": STRING, "topic": STRING},
            PLAIN._replace(topic=None),
            "option topic: with column source all rows go to one topic",
        ),
        ({"value": BINARY, "source": STRING, "topic": STRING}, PLAIN, "column topic: with column source"),
    ],
)
def test_a_wrong_schema_is_an_error_that_names_the_column(
    columns: dict[str, types.DataType], options: WriteOptions, message: str
) -> None:
    with pytest.raises(WrongOption, match=message):
        checked(frame(**columns), options)


def test_all_columns_that_there_are() -> None:
    header = types.StructType().add("key", STRING).add("value", BINARY)
    others = {"partition": types.IntegerType(), "timestamp": types.TimestampType()}
    checked(frame(value=STRING, key=STRING, headers=types.ArrayType(header), **others, topic=STRING), PLAIN)
    checked(frame(value=BINARY, key=BINARY, **others, source=STRING), PLAIN._replace(resume=True))
