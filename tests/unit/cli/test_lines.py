"""What a line of `tidelog produce` becomes."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.formats import choose
from tidelog.cli.lines import Outgoing, json_reader, text_reader
from tidelog.client.fetching import Record

DEFAULTS = Outgoing(key=b"k", headers=(("h", b"1"),), partition=2, timestamp=5)
BYTES = st.none() | st.binary(max_size=20)


@pytest.mark.parametrize(
    ("line", "separator", "empty_is_null", "key", "value"),
    [
        (b"a", None, False, b"k", b"a"),
        (b"a\r", None, False, b"k", b"a"),
        (b"", None, False, b"k", b""),
        (b"", None, True, b"k", None),
        (b"a:b:c", b":", False, b"a", b"b:c"),
        (b":b", b":", False, b"", b"b"),
        (b"a:", b":", True, b"a", None),
        (b"a\tb", b"\t", False, b"a", b"b"),
        (b"\\N", None, False, b"k", b"\\N"),
        (b"\\N:\\N\r", b":", False, None, None),
        (b"\\\\N:\\n", b":", False, b"\\N", b"\\n"),
    ],
)
def test_a_line_of_text(
    line: bytes, separator: bytes | None, empty_is_null: bool, key: bytes | None, value: bytes | None
) -> None:
    read = text_reader(DEFAULTS, separator, empty_is_null)
    assert read(line) == DEFAULTS._replace(key=key, value=value)


PRINTABLE = st.none() | st.text("N\\\xe4x", max_size=4).map(str.encode)


@given(PRINTABLE, PRINTABLE, PRINTABLE)
def test_key_and_value_of_a_line_of_text_are_read_back(
    key: bytes | None, value: bytes | None, header: bytes | None
) -> None:
    line = choose("text")(Record("t", 0, 0, 0, 0, key, value, [("h", header)]))
    _, _, *words, headers = line.removesuffix(b"\n").split(b"\t")
    read = text_reader(Outgoing(), b"\t", empty_is_null=False)
    assert read(b"\t".join(words)) == Outgoing(value, key)
    assert read(b"\t" + headers.removeprefix(b"h=")).value == header


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="no ':' between key and value"):
        text_reader(DEFAULTS, b":", empty_is_null=False)(b"ab")


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        ({}, DEFAULTS),
        ({"value": "a"}, DEFAULTS._replace(value=b"a")),
        ({"value": None, "key": None}, DEFAULTS._replace(key=None)),
        ({"value_base64": "/w==", "key_base64": ""}, DEFAULTS._replace(value=b"\xff", key=b"")),
        ({"partition": 0, "timestamp": 0}, DEFAULTS._replace(partition=0, timestamp=0)),
        ({"partition": None, "timestamp": None, "headers": None}, DEFAULTS._replace(headers=())),
        ({"timestamp": -1}, DEFAULTS),
        (
            {"headers": [{"name": "a", "value": None}, {"name": "a", "value_base64": "AA=="}]},
            DEFAULTS._replace(headers=(("a", None), ("a", b"\0"))),
        ),
        ({"topic": "t", "offset": 7, "timestamp_type": "LogAppendTime"}, DEFAULTS),
    ],
)
def test_a_line_of_json(fields: dict[str, Any], record: Outgoing) -> None:
    assert json_reader(DEFAULTS)(json.dumps(fields).encode()) == record


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "it is not a JSON object such as"),
        ("", "it is not a JSON object"),
        ("[1]", "it is not a JSON object"),
        ("[" * 100_000, "it is not a JSON object"),
        ("\xff", "it is not a JSON object"),
        ('{"val": "a"}', "unknown field 'val'; it can have partition, timestamp, key, key_base64, value,"),
        ('{"value": 1}', "'value' must be text or null"),
        ('{"key": "\\ud800"}', "'key' has half of a surrogate pair"),
        ('{"key": "a", "key_base64": "AA=="}', "it has both 'key' and 'key_base64'"),
        ('{"value_base64": "A"}', "'value_base64' is not base64"),
        ('{"value_base64": 7}', "'value_base64' is not base64"),
        ('{"partition": -1}', "'partition' must be a whole number from 0 to 2147483647"),
        ('{"partition": true}', "'partition' must be a whole number"),
        ('{"timestamp": 1.5}', "'timestamp' must be a whole number"),
        ('{"timestamp": 9223372036854775808}', "'timestamp' must be a whole number"),
        ('{"headers": {"a": "b"}}', "'headers' must be a list such as"),
        ('{"headers": ["a"]}', "'headers' must be a list such as"),
        ('{"headers": [{"value": "b"}]}', "'headers' must be a list such as"),
        ('{"headers": [{"name": "a", "data": "b"}]}', "unknown field of a header 'data'"),
        ('{"headers": [{"name": "\\ud800"}]}', "'name' has half of a surrogate pair"),
        (f'{{"{"a" * 1000}": 1}}', f"unknown field '{'a' * 60}...'; it can have"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        json_reader(DEFAULTS)(line.encode("latin-1"))


@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
    partition=st.integers(0, 9),
    timestamp=st.integers(0, 1 << 62),
)
def test_a_line_of_tail_is_the_record_that_it_shows(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp: int,
) -> None:
    line = choose("json")(Record("t", partition, 9, timestamp, 0, key, value, headers))
    assert json_reader(DEFAULTS)(line) == Outgoing(value, key, tuple(headers), partition, timestamp)
