"""The options of the source: each one, every way to get it wrong, and the message."""

from pathlib import Path

import pytest

from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.options import TASK_BYTES, Options, parse

NOW = 1_700_000_000_000
LEAST = {"source": "segments:/data", "topic": "t"}


def test_what_is_not_given_has_its_default() -> None:
    assert parse(LEAST, NOW) == Options("segments", "/data", "t")
    assert parse(LEAST, NOW).task_bytes == TASK_BYTES


def test_all_of_them_by_names_in_any_case_as_spark_hands_them_over() -> None:
    given = {
        "SOURCE": "broker:127.0.0.1:9092",
        "topic": "orders",
        "table": "batches",
        "clock": "append",
        "from": "2023-11-14T22:13:20Z",
        "to": "1700000001500",
        "bad": "quarantine:/q:1",
        "partitions": "0, 2,2",
        "maxrecords": "0",
        "taskbytes": "1",
    }
    assert parse(given, NOW) == Options(
        "broker", "127.0.0.1:9092", "orders", "batches", "append", NOW, NOW + 1500, "quarantine", "/q:1",
        frozenset({0, 2}), 0, 1,
    )  # fmt: skip


def test_folders_are_named_as_executors_find_them_who_work_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parse({"source": "segments:data", "topic": "t", "bad": "quarantine:bad"}, NOW)
    assert (found.place, found.quarantine) == (f"{tmp_path}/data", f"{tmp_path}/bad")
    assert parse({"source": "segments:s3://bucket/a", "topic": "t"}, NOW).place == "s3://bucket/a"


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2 hours ago", NOW - 7_200_000),
        ("2023-11-14T23:13:20.250+01:00", NOW + 250),
        ("1700000000", NOW),
        (str(NOW + 1), NOW + 1),
    ],
)
def test_times_have_the_forms_of_the_commands(text: str, time_ms: int) -> None:
    assert parse({**LEAST, "from": text}, NOW).from_ms == time_ms


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": ""}, "option source: '' is not valid; write segments:FOLDER"),
        ({"source": "files:/x"}, "option source: 'files:/x' is not valid"),
        ({"source": "segments:"}, "option source: 'segments:' is not valid"),
        ({"topic": ""}, 'option topic: it is missing; write .option("topic", "NAME")'),
        ({"topics": "t"}, "option topics: there is none of this name"),
        ({"table": "recordz"}, "option table: 'recordz' is none of records, batches, segments"),
        ({"clock": "wall"}, "option clock: 'wall' is none of record, append"),
        ({"bad": "ignore"}, "option bad: 'ignore' is none of fail, skip and quarantine:FOLDER"),
        ({"bad": "quarantine:"}, "option bad: 'quarantine:' is none"),
        ({"bad": "skip:/x"}, "option bad: 'skip:/x' is none"),
        ({"partitions": "0,x"}, "option partitions: '0,x' is no list of numbers; write 0,1,2"),
        (
            {"partitions": "\N{ARABIC-INDIC DIGIT THREE}"},
            "option partitions: '\N{ARABIC-INDIC DIGIT THREE}' is no list of numbers",
        ),
        (
            {"taskBytes": "\N{ARABIC-INDIC DIGIT THREE}"},
            "option taskBytes: '\N{ARABIC-INDIC DIGIT THREE}' is no number",
        ),
        ({"partitions": ""}, "option partitions: '' is no list of numbers"),
        ({"maxRecords": "-1"}, "option maxRecords: '-1' is no number from 0 on"),
        ({"maxRecords": "many"}, "option maxRecords: 'many' is no number from 0 on"),
        ({"taskBytes": "many"}, "option taskBytes: 'many' is no number from 1 on"),
        ({"taskBytes": "0"}, "option taskBytes: '0' is no number from 1 on"),
        ({"from": "yesterdayish"}, "option from: "),
        ({"to": "14/11/2023"}, "option to: "),
        ({"from": "1700000001000", "to": "1700000000000"}, "option from: 1700000001000 (2023-11-14"),
    ],
)
def test_what_cannot_be_understood_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption) as caught:
        parse({**LEAST, **changed}, NOW)
    assert message in str(caught.value)
    assert isinstance(caught.value, PipelineError)


def test_a_range_may_be_empty_but_not_end_before_it_begins() -> None:
    same = parse({**LEAST, "from": str(NOW), "to": str(NOW)}, NOW)
    assert same.from_ms == same.to_ms == NOW
