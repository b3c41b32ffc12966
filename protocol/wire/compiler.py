"""Makes the reader and the writer of a message in a version from its declaration, on first use.

It applies the rules of layout: the fields of the version, legacy or compact lengths, nullable fields, and the tagged
section (KIP-482).
"""

from functools import cache
from operator import itemgetter
from typing import Any, Protocol

from tidelog.protocol.wire.errors import CompileError
from tidelog.protocol.wire.layout import FieldLayout, MessageLayout
from tidelog.protocol.wire.reader import Reader as MessageReader
from tidelog.protocol.wire.schema import default_of, fields_of
from tidelog.protocol.wire.types import Array, Fixed, WireType
from tidelog.protocol.wire.writer import Writer as MessageWriter


class Reader(Protocol):
    """Reads a message from a buffer, and returns it and the position after it, or raises WireError.

    Nothing at or after `end` is read. Views in the message keep the buffer alive. TooManyElements if the message has
    more than `most` elements of arrays and tags.
    """

    def __call__(self, buffer: Any, position: int, end: int, most: int = ...) -> tuple[Any, int]:
        """Read a message."""


class Writer(Protocol):
    """Returns the parts of an encoded message, in order, and their size in bytes, or raises EncodeError.

    With `head` they are a frame: its size in four bytes, the head, the message. A large value of type bytes or records,
    or one that is a slice of a file, is a part as it is, and is not copied.
    """

    def __call__(self, message: Any, head: bytes | None = None) -> tuple[list[Any], int]:
        """Write a message."""


@cache
def reader_of(message: type, version: int, flexible: bool) -> Reader:
    """Return the reader of a message in a version; `flexible` as in `Api.is_flexible`."""
    read: Reader = MessageReader(_message_layout(message, version, flexible, "")).read
    return read


@cache
def writer_of(message: type, version: int, flexible: bool) -> Writer:
    """Return the writer of a message in a version."""
    write: Writer = MessageWriter(_message_layout(message, version, flexible, "")).write
    return write


def _message_layout(message: type, version: int, flexible: bool, path: str) -> MessageLayout:
    """Return the layout of a message; `path` has the names of the fields around it."""
    present: list[FieldLayout] = []
    absent: list[FieldLayout] = []
    tagged: list[tuple[int, FieldLayout]] = []
    for field in fields_of(message):
        name = field.name
        if not field.versions.has(version):
            absent.append(FieldLayout(name, "", "-", ignorable=field.ignorable, default=default_of(field)))
            continue
        tag = field.tag if field.tagged.has(version) else None
        layout = _field_layout(
            field.type,
            version,
            flexible,
            name,
            f"{path}.{name}" if path else name,
            nullable=field.nullable.has(version),
            default=None if tag is None else default_of(field),
        )
        if tag is None:
            present.append(layout)
        else:
            tagged.append((tag, layout))
    tagged.sort(key=itemgetter(0))
    return MessageLayout(message, version, tuple(present), tuple(absent), flexible, tuple(tagged))


def _field_layout(
    type_: WireType,
    version: int,
    flexible: bool,
    name: str,
    path: str,
    *,
    nullable: bool = False,
    default: Any = None,
) -> FieldLayout:
    """Return the layout of a field, or without a name of an element of an array."""
    if isinstance(type_, Fixed):
        return FieldLayout(name, path, type_.kind, type_.size_bytes, default=default)
    if isinstance(type_, type):
        inner = _message_layout(type_, version, flexible, path)
        least_bytes = 1 if nullable else inner.least_bytes
        return FieldLayout(name, path, "M", least_bytes, nullable=nullable, inner=inner, default=default)
    element = None
    kind, length_bytes = "A", 4
    if isinstance(type_, Array):
        element = _field_layout(type_.element, version, flexible, "", path)
        if element.least_bytes == 0:
            raise CompileError(f"{path} has elements of 0 bytes, so a frame does not bound their number")
    else:
        kind, length_bytes = type_.kind, type_.length_bytes
    return FieldLayout(
        name,
        path,
        kind,
        1 if flexible else length_bytes,
        compact=flexible,
        nullable=nullable,
        element=element,
        default=default,
    )
