"""From the declaration of a message to what reads and what writes it in one version, made when it is first asked for.

Owns the layout rules: which fields a version has, legacy or compact lengths, what may be null, the tagged section
(KIP-482).
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

__all__ = ["Reader", "Writer", "reader_of", "writer_of"]


class Reader(Protocol):
    """Read a message from a buffer; give it and the position after it, or raise `WireError`.

    Nothing at or after `end` is touched. The views in the message keep the buffer alive. With more than `most`
    elements and tags over all its arrays it is TooManyElements.
    """

    def __call__(self, buffer: Any, position: int, end: int, most: int = ...) -> tuple[Any, int]:
        """Read one message."""


class Writer(Protocol):
    """Give the parts of an encoded message, in order, and how many bytes they are; or raise `EncodeError`.

    With a head they are a frame: its size in four bytes, the head, the message. What a message carries, if it is large
    or no bytes at all, is a part as it is, never copied.
    """

    def __call__(self, message: Any, head: bytes | None = None) -> tuple[list[Any], int]:
        """Write one message."""


@cache
def reader_of(message: type, version: int, flexible: bool) -> Reader:
    """Make the reader of a message in a version; a `flexible` one has compact lengths and tagged fields (KIP-482)."""
    read: Reader = MessageReader(_message_layout(message, version, flexible, "")).read
    return read


@cache
def writer_of(message: type, version: int, flexible: bool) -> Writer:
    """Make the writer of a message in a version."""
    write: Writer = MessageWriter(_message_layout(message, version, flexible, "")).write
    return write


def _message_layout(message: type, version: int, flexible: bool, path: str) -> MessageLayout:
    """Lay out a message; `path` names the fields that it is in."""
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
    """Lay out a field, or with no name an element of an array."""
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
            raise CompileError(f"{path} has elements of no bytes, so nothing bounds its count")
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
