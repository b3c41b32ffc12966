"""How `produce` makes a record of a line: of text with or without a key, or of the JSON that `tail --json` prints."""

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.cli.text import shortened

Header = tuple[str, bytes | None]

_IGNORED: Final = frozenset({"topic", "offset", "timestamp_type"})
_USED: Final = ("partition", "timestamp", "key", "key_base64", "value", "value_base64", "headers")
_HEADER: Final = ("name", "value", "value_base64")
_EXAMPLE: Final = '{"key": "a", "value": "b"}'
_HEADERS_WANTED: Final = '\'headers\' must be a list such as [{"name": "a", "value": "b"}]'
_LIKE_NULL: Final = re.compile(rb"\\+N")
_TIMESTAMP_MAX: Final = (1 << 63) - 1


class Outgoing(NamedTuple):
    """A record to send; without a partition, the key decides, and without a timestamp (in ms), the clock."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


# Makes a record of a line without its LF; ValueError says what is wrong with it.
Reader = Callable[[bytes], Outgoing]


def text_reader(defaults: Outgoing, key_separator: bytes | None, empty_is_null: bool) -> Reader:
    """Return a reader of lines of text; with `empty_is_null`, an empty value is null.

    With a separator, lines are as `tail` prints key and value: \\N is null, and a text with more backslashes before N
    has one less.
    """
    _, key, headers, partition, timestamp = defaults

    def read(line: bytes) -> Outgoing:
        line = line.removesuffix(b"\r")
        its_key: bytes | None = key
        value: bytes | None = line
        if key_separator is not None:
            before, found, after = line.partition(key_separator)
            if not found:
                raise ValueError(f"it has no {key_separator.decode()!r} between key and value")
            its_key, value = _cell(before), _cell(after)
        return Outgoing(
            None if empty_is_null and not value else value, its_key, headers, partition, timestamp
        )

    return read


def _cell(text: bytes) -> bytes | None:
    """Return a key or value as `formats` shows it."""
    if not _LIKE_NULL.fullmatch(text):
        return text
    return text[1:] if len(text) > 2 else None


class Values:
    """Reads lines of text without keys: each is a value, and `defaults` has what the records share."""

    def __init__(self, defaults: Outgoing, empty_is_null: bool) -> None:
        """With `empty_is_null`, an empty value is null."""
        self.defaults = defaults
        self.line = text_reader(defaults, None, empty_is_null)
        self._empty_is_null = empty_is_null

    def all(self, lines: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of lines."""
        if self._empty_is_null:
            return [line.removesuffix(b"\r") or None for line in lines]
        return [line.removesuffix(b"\r") for line in lines]


def json_reader(defaults: Outgoing) -> Reader:
    """Return a reader of JSON objects; what an object does not say comes from `defaults`."""

    def read(line: bytes) -> Outgoing:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ValueError(f"it is not a JSON object such as {_EXAMPLE}")
        _check_names("field", fields.keys() - _IGNORED, _USED)
        record = defaults._replace(value=_content(fields, "value"))
        if "key" in fields or "key_base64" in fields:
            record = record._replace(key=_content(fields, "key"))
        if "headers" in fields:
            record = record._replace(headers=_headers(fields["headers"]))
        if fields.get("partition") is not None:
            record = record._replace(partition=_integer(fields, "partition", 0, (1 << 31) - 1))
        # Messages of format v0 have no timestamp; `tail` shows -1.
        if fields.get("timestamp") not in (None, -1):
            record = record._replace(timestamp=_integer(fields, "timestamp", 0, _TIMESTAMP_MAX))
        return record

    return read


def _check_names(what: str, names: Any, known: tuple[str, ...]) -> None:
    unknown = sorted(names - set(known))
    if unknown:
        raise ValueError(f"unknown {what} {shortened(unknown[0])!r}; it can have {', '.join(known)}")


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of `name`, which is text or null, or of `name`_base64."""
    text, encoded = fields.get(name), fields.get(f"{name}_base64")
    if encoded is None:
        if text is None:
            return None
        if not isinstance(text, str):
            raise ValueError(f"{name!r} must be text or null")
        return _utf8(name, text)
    if text is not None:
        raise ValueError(f"it has both {name!r} and '{name}_base64'")
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except (ValueError, TypeError):
        raise ValueError(f"'{name}_base64' is not base64") from None


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} has half of a surrogate pair, which is not text") from None


def _integer(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    number = fields[name]
    if type(number) is not int or not least <= number <= most:
        raise ValueError(f"{name!r} must be a whole number from {least} to {most}")
    return number


def _headers(listed: Any) -> tuple[Header, ...]:
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ValueError(_HEADERS_WANTED)
    return tuple(map(_header, listed))


def _header(fields: Mapping[str, Any]) -> Header:
    _check_names("field of a header", fields.keys(), _HEADER)
    name = fields.get("name")
    if not isinstance(name, str):
        raise ValueError(_HEADERS_WANTED)
    _utf8("name", name)
    return name, _content(fields, "value")
