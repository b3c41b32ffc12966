"""Messages for Hypothesis, drawn from their declarations, and bytes that nearly are messages.

Owns: what a field of each type may hold in a version. A message drawn for a version has a value in the fields
that the version carries, and the default in all others, so that it survives the wire unchanged.
"""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidelog.protocol.wire.schema import Field, default_of, fields_of
from tidelog.protocol.wire.types import BOOL, FLOAT64, STRING, UUID, Array, Fixed, WireType

_INTEGER_BITS = {"b": 8, "h": 16, "H": 16, "l": 32, "q": 64}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.just("ü" * 64)
_BLOB = st.binary(max_size=4) | st.just(b"r" * 200)


@cache
def messages(message: type, version: int) -> st.SearchStrategy[Any]:
    """Draw a message of a class that fits a version."""
    values = {field.name: _values(field, version) for field in fields_of(message)}
    return st.builds(message, **values)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if not field.versions.has(version):
        return st.builds(lambda: default_of(field))
    values = of_type(field.type, version)
    if field.nullable.has(version):
        values = st.none() | values
    if field.tag is not None:
        values = st.builds(lambda: default_of(field)) | values
    return values


def of_type(type_: WireType, version: int) -> st.SearchStrategy[Any]:
    """Draw a value of a type; never null."""
    if isinstance(type_, Array):
        return st.lists(of_type(type_.element, version), max_size=3)
    if isinstance(type_, type):
        return messages(type_, version)
    if isinstance(type_, Fixed):
        return _fixed(type_)
    return _TEXT if type_ is STRING else _BLOB


def _fixed(type_: Fixed) -> st.SearchStrategy[Any]:
    if type_ is BOOL:
        return st.booleans()
    if type_ is UUID:
        return st.binary(min_size=16, max_size=16)
    if type_ is FLOAT64:
        return st.floats(allow_nan=False)
    bits = _INTEGER_BITS[type_.kind]
    if type_.kind.isupper():
        return st.integers(0, (1 << bits) - 1)
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


# What breaks a length or a count: nothing, null, the largest of each width, and varints that do not end.
_POISON = st.sampled_from(
    [
        b"\x00",
        b"\xff",
        b"\x7f\xff",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x80" * 12,
        b"\xff\xff\xff\xff\x0f",
    ]
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw bytes that were a message before something was cut, put in or written over."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        poison = draw(_POISON | st.binary(max_size=4))
        match draw(st.sampled_from(["cut", "insert", "overwrite"])):
            case "cut":
                data = data[:at]
            case "insert":
                data = data[:at] + poison + data[at:]
            case _:
                data = data[:at] + poison + data[at + len(poison) :]
    return data
