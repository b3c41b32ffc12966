"""The types of options: text to value and back, so that parse(text(value)) == value."""

import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
DOUBLE_MAX = sys.float_info.max


class Kind(NamedTuple, Generic[T]):
    """A type. `parse` raises ValueError with the reason; `code` is its number in DescribeConfigs (KIP-569)."""

    name: str
    code: int
    parse: Callable[[str], T]
    text: Callable[[T], str] = str
    lowest: int | None = None
    highest: int | None = None


class Listener(NamedTuple):
    """An address to listen on, `NAME://host:port`; an empty host means every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"

    @property
    def is_wildcard(self) -> bool:
        """Whether this address means every interface."""
        return self.host in ("", "0.0.0.0", "::")


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_host(host: str) -> None:
    """Raise ValueError if no host can have this name."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(
            f"{host!r} is not a host name: its parts, between dots, have 1 to 63 characters"
        ) from None


def _integer(text: str, kind: str) -> int:
    try:
        # int() also accepts "1_000" and digits of other scripts, which Kafka does not.
        if text.isascii() and "_" not in text:
            return int(text)
    except ValueError:
        pass
    raise ValueError(f"Not a number of type {kind}")


def _real(text: str) -> float:
    try:
        if text.isascii() and "_" not in text and math.isfinite(value := float(text)):
            return value
    except ValueError:
        pass
    raise ValueError("Not a number of type DOUBLE")


def _real_text(value: float) -> str:
    """Return a number as Java writes it, since Kafka's tools show and compare that."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    from decimal import Decimal  # takes 1 % of a start, and is rarely needed

    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{exponent + len(others)}"


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("Expected value to be either true or false")


def _items(text: str) -> tuple[str, ...]:
    """Return the items of a list, each once, as Kafka does."""
    return tuple(dict.fromkeys(item for part in text.split(",") if (item := part.strip())))


def _directory(text: str) -> Path:
    if not text:
        raise ValueError("a folder is needed")
    if "," in text:
        raise ValueError("several data folders are not supported")
    return Path(text)


def _listener(text: str) -> Listener:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and separator and colon):
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{text!r}: the port is not a number from 0 to 65535")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, NAME://[::1]:9092")
    check_host(host)
    return Listener(name.upper(), host.strip("[]"), int(port))


def _listeners(text: str) -> tuple[Listener, ...]:
    return tuple(_listener(item) for item in _items(text))


def _format(text: str) -> str:
    if not _FORMAT.fullmatch(text):
        if _FORMAT.fullmatch(f"{text}.0"):  # before 1.0 a release has three numbers
            raise ValueError(f"write {text}.0, as Kafka requires")
        raise ValueError("must be a format, 0, 1 or 2, or a release of Kafka, such as 0.10.2 or 3.0-IV1")
    return text


def _pair(text: str) -> tuple[str, str]:
    name, colon, protocol = text.partition(":")
    if not (name and colon and protocol):
        raise ValueError(f"{text!r} is not of the form NAME:PROTOCOL")
    return name.strip().upper(), protocol.strip().upper()


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_pair(item) for item in _items(text))


# Kafka's releases, with their further parts, and the versions between two releases.
_FORMAT = re.compile(
    r"[012]|(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9]|4\.[0-3])(\.[0-9]+)*(-IV[0-9]+)?"
)

BOOL = Kind("boolean", 1, _boolean, lambda value: "true" if value else "false")
STRING = Kind("string", 2, str)
FORMAT = Kind("string", 2, _format)
POLICY = Kind("string", 2, str.lower)
DIRECTORY = Kind("folder", 2, _directory)
INT = Kind("int", 3, partial(_integer, kind="INT"), lowest=-INT_MAX - 1, highest=INT_MAX)
LONG = Kind("long", 5, partial(_integer, kind="LONG"), lowest=-LONG_MAX - 1, highest=LONG_MAX)
DOUBLE = Kind("double", 6, _real, _real_text)
LIST = Kind("list", 7, _items, ",".join)
LISTENERS = Kind("list", 7, _listeners, lambda listeners: ",".join(map(str, listeners)))
PROTOCOL_MAP = Kind("list", 7, _pairs, lambda pairs: ",".join(map(":".join, pairs)))
