"""The formats of `tail`: text, JSON, and templates.

Text and JSON have one line for each record. {key} and {value} of a template are the bytes as they are.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.cli.output import json_bytes, plain, to_json
from tidelog.config import times

if TYPE_CHECKING:
    from tidelog.client.cluster import Partition
    from tidelog.client.fetching import Read, Record
    from tidelog.protocol.records.batch import BatchHeader
    from tidelog.protocol.records.lines import Line

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_TYPES_IN_JSON: Final = {number: f'"{name}"' for number, name in enumerate(TIMESTAMP_TYPES)}
WIDTH_DIGITS: Final = 4
# What PostgreSQL's COPY prints, so that a tombstone is not the text "null".
NULL: Final = "\\N"
# A text that looks like it has one more backslash.
_LIKE_NULL: Final = re.compile(r"\\+N")

Format = Callable[["Record"], bytes]


def choose(name: str, *, names_topic: bool = False) -> Format:
    """Return the function that formats a record, by the name of a format or by a template.

    With `names_topic`, text names the topic of each record.
    """
    if name == "text":
        return _text(names_topic)
    if name == "json":
        return _json
    if "{" in name:
        return _template(name)
    raise CommandError(
        f"--format {name}: must be text, json or a template such as '{{offset}} {{value}}'", USAGE
    )


def line_reader(name: str, write: Format, *, names_topic: bool = False) -> "Read[Line] | None":
    """Return a function that reads the records of a batch as lines in a format, many at once; None for a template.

    The lines are those of `write`, which makes those that need more than copying.
    """
    if name not in ("text", "json"):
        return None
    from tidelog.client.fetching import Record, records
    from tidelog.protocol.records import build
    from tidelog.protocol.records.legacy import MAGICS
    from tidelog.protocol.records.lines import Line, Shape

    show = _times()

    def shape(topic: str, partition: int, kind: int) -> Shape:
        if name == "json":
            head = f'{{"topic": {_quoted(topic)}, "partition": {partition}, "offset": '.encode()
            after = f'"timestamp_type": {_TYPES_IN_JSON[kind]}, "key": '
            return Shape(
                lambda timestamp: (head, f', "timestamp": {timestamp}, {after}'.encode()),
                b', "value": ',
                b', "headers": []}\n',
                b"null",
                quotes=True,
            )
        place = f"{topic}:{partition}" if names_topic else str(partition)
        return Shape(
            lambda timestamp: (f"{show(timestamp)}\t{place}:".encode(), b"\t"),
            b"\t",
            b"\n",
            NULL.encode(),
            quotes=False,
        )

    def read(key: "Partition", data: memoryview, at: int, header: "BatchHeader", offset: int) -> "list[Line]":
        if header.magic in MAGICS:
            return [
                Line(each.offset, each.timestamp, write(each))
                for each in records(key, data, at, header, offset)
            ]
        topic, partition, _ = key
        kind = int(header.is_log_append_time)

        def other(row: "build.Row") -> bytes:
            place, timestamp, its_key, value, headers = row
            return write(Record(topic, partition, place, timestamp, kind, its_key, value, list(headers)))

        return build.read_lines(
            data, at, build.READ_LIMIT_BYTES, offset, shape(topic, partition, kind), other
        )

    return read


def json_content(key: bytes | None, value: bytes | None, headers: Any) -> dict[str, Any]:
    """Return key, value and headers of a record for JSON."""
    shown = [{"name": name, **json_bytes("value", data)} for name, data in headers]
    return {**json_bytes("key", key), **json_bytes("value", value), "headers": shown}


def plain_headers(headers: Any, show: Callable[[bytes | None], str] = plain) -> str:
    """Return headers as name=value words."""
    return " ".join(f"{plain(name.encode())}={show(data)}" for name, data in headers)


def _cell(data: bytes | None) -> str:
    """Return bytes of a record for a line of text; `lines.text_reader` reads null and what looks like it back."""
    if data is None:
        return NULL
    text = plain(data)
    return f"\\{text}" if _LIKE_NULL.fullmatch(text) else text


def _text(names_topic: bool) -> Format:
    show = _times()

    def write(record: "Record") -> bytes:
        topic, partition, offset, timestamp, _, key, value, headers = record
        place = f"{topic}:{partition}:{offset}" if names_topic else f"{partition}:{offset}"
        shown_headers = f"\t{plain_headers(headers, _cell)}" if headers else ""
        return f"{show(timestamp)}\t{place}\t{_cell(key)}\t{_cell(value)}{shown_headers}\n".encode()

    return write


def _times() -> Callable[[int], str]:
    """Return a function that does what `times.show` does, for many records of the same seconds."""
    of_second = lru_cache(maxsize=1024)(lambda second: times.show(second * 1000).partition("."))

    @lru_cache(maxsize=1)  # records of one batch often have the same time
    def show(timestamp_ms: int) -> str:
        second, ms = divmod(timestamp_ms, 1000)
        before, point, after = of_second(second)
        return f"{before}.{ms:03}{after[3:]}" if point else times.show(timestamp_ms)

    return show


def _json(record: "Record") -> bytes:
    # By hand: json's encoder takes three times as long.
    headers = to_json(json_content(None, None, record.headers)["headers"]) if record.headers else "[]"
    return (
        f'{{"topic": {_quoted(record.topic)}, "partition": {record.partition}, "offset": {record.offset}, '
        f'"timestamp": {record.timestamp}, "timestamp_type": {_TYPES_IN_JSON.get(record.timestamp_type, "null")}, '
        f'{_json_bytes("key", record.key)}, {_json_bytes("value", record.value)}, "headers": {headers}}}\n'
    ).encode()


def _json_bytes(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {_quoted(data.decode())}'
    except UnicodeDecodeError:
        return to_json(json_bytes(name, data))[1:-1]


def _template(template: str) -> Format:
    """Read a template in the syntax of `str.format`, with \\t and \\n as in a shell's printf."""
    try:
        fields = [(name, spec or "") for _, name, spec, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise _unusable(template, str(error)) from None
    for name, spec in fields:
        if name not in FIELDS:
            raise CommandError(
                f"--format: no such field {{{name}}}; the fields are {', '.join(FIELDS)}", USAGE
            )
        if "{" in spec:
            raise _unusable(template, f"the format '{spec}' of a field cannot hold another field")
        if any(len(number.lstrip("0")) > WIDTH_DIGITS for number in re.findall(r"\d+", spec)):
            raise _unusable(template, f"a field has at most {10**WIDTH_DIGITS - 1} characters")
    show = _times()
    spelled = template.replace("\\t", "\t").replace("\\n", "\n") + "\n"

    def write(record: "Record") -> bytes:
        text = spelled.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            time=show(record.timestamp),
            key=_raw(record.key),
            value=_raw(record.value),
            headers=json.dumps(json_content(None, None, record.headers)["headers"], ensure_ascii=False),
        )
        return text.encode("utf-8", "surrogateescape")

    from tidelog.client.fetching import Record

    # Python rejects a bad format, or a number that is too large for it, only when it formats. If this record works,
    # every record does.
    extreme = Record("", (1 << 31) - 1, (1 << 63) - 1, (1 << 63) - 1, 0, b"", b"", [])
    try:
        write(extreme)
    except (ValueError, OverflowError) as error:
        raise _unusable(template, str(error)) from None
    return write


def _unusable(template: str, why: str) -> CommandError:
    return CommandError(f"--format '{template}': {why}", USAGE)


def _raw(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "surrogateescape")
