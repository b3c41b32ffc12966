"""From a message and a version to what reads and what writes it, made when it is first asked for.

The Struct of `structs` says what the bytes are; this walks it, and knows none of its rules. Invariant: readers and
writers do to bytes what the Struct does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from construct import Bytes, FormatField, Renamed  # type: ignore[import-untyped]

from tidelog.protocol.wire.constructs import ArrayOf, Blob, MessageStruct, NullableStruct, TaggedSection, Text
from tidelog.protocol.wire.errors import CompileError
from tidelog.protocol.wire.reader import Reader as MessageReader
from tidelog.protocol.wire.reader import ReadField
from tidelog.protocol.wire.schema import Field, default_of
from tidelog.protocol.wire.structs import struct_of
from tidelog.protocol.wire.writer import Writer as MessageWriter
from tidelog.protocol.wire.writer import WrittenField

__all__ = ["Reader", "Writer", "reader_of", "reader_of_struct", "writer_of", "writer_of_struct"]

# What fixes the size of a value: the letters of `struct` that stand in a FormatField.
_WIDTHS = {"?": 1, "b": 1, "h": 2, "H": 2, "l": 4, "q": 8, "d": 8}
_UUID_BYTES = 16


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
    read: Reader = reader_of_struct(struct_of(message, version, flexible=flexible)).read
    return read


@cache
def writer_of(message: type, version: int, flexible: bool) -> Writer:
    """Make the writer of a message in a version."""
    write: Writer = writer_of_struct(struct_of(message, version, flexible=flexible)).write
    return write


def reader_of_struct(struct: MessageStruct, path: str = "") -> Any:
    """Make the reader of what a Struct says; `path` names the fields that it lies in."""

    def inner(name: str, node: Any, default: Any = None) -> Any:
        return _field(ReadField, reader_of_struct, name, node, path, default)

    absent = tuple(ReadField(field.name, "", _ABSENT, default=default_of(field)) for field in struct.absent)
    fields, is_flexible, tagged = _members(struct, inner)
    return MessageReader(struct.message, struct.version, fields, absent, is_flexible, tagged)


def writer_of_struct(struct: MessageStruct, path: str = "") -> Any:
    """Make the writer of what a Struct says; `path` names the fields that it lies in."""

    def inner(name: str, node: Any, default: Any = None) -> Any:
        return _field(WrittenField, writer_of_struct, name, node, path, default)

    absent = [field for field in struct.absent if not field.ignorable]
    refused = tuple(WrittenField(field.name, "", _ABSENT, default=default_of(field)) for field in absent)
    fields, is_flexible, tagged = _members(struct, inner)
    return MessageWriter(struct.message, struct.version, fields, refused, is_flexible, tagged)


_ABSENT = "-"  # in place of a kind


def _members(
    struct: MessageStruct, field: Callable[..., Any]
) -> tuple[tuple[Any, ...], bool, tuple[tuple[int, Any], ...]]:
    """Return what stands in every message, whether tagged fields follow, and those by their tags."""
    fields: list[Any] = []
    for member in struct.subcons:
        if isinstance(member.subcon, TaggedSection):
            known: dict[int, tuple[Field, Any]] = member.subcon.members
            tagged = ((tag, field(of.name, node, default_of(of))) for tag, (of, node) in known.items())
            return tuple(fields), True, tuple(tagged)
        fields.append(field(member.name, member.subcon))
    return tuple(fields), False, ()


def _field(
    make: Callable[..., Any], codec_of: Callable[..., Any], name: str, node: Any, outer: str, default: Any
) -> Any:
    """Describe a field by its construct."""
    path = f"{outer}.{name}" if outer and name else outer or name
    if isinstance(node, FormatField) and node.fmtstr[0] == ">" and node.fmtstr[1] in _WIDTHS:
        return make(name, path, node.fmtstr[1], default=default)
    if isinstance(node, Bytes) and node.length == _UUID_BYTES:
        return make(name, path, "U", default=default)
    if isinstance(node, Text):
        return make(name, path, "T", node.compact, node.nullable, default=default)
    if isinstance(node, Blob):
        return make(name, path, "V" if node.view else "B", node.compact, node.nullable, default=default)
    if isinstance(node, MessageStruct):
        return make(name, path, "M", inner=codec_of(node, path), default=default)
    if isinstance(node, NullableStruct):
        return make(name, path, "M", nullable=True, inner=codec_of(node.subcon, path), default=default)
    if isinstance(node, ArrayOf):
        least = _least_bytes(node.subcon)
        if least == 0:
            raise CompileError(f"{path} has elements of no bytes, so nothing bounds its count")
        element = _field(make, codec_of, "", node.subcon, path, None)
        return make(name, path, "A", node.compact, node.nullable, least, element, default=default)
    raise CompileError(f"{path} is a {type(node).__name__}, for which there is no kind of field")


def _least_bytes(node: Any) -> int:
    """Return the fewest bytes that a construct can take, by which the count of an array is bounded."""
    if isinstance(node, Renamed):
        return _least_bytes(node.subcon)
    if isinstance(node, MessageStruct):
        return sum(map(_least_bytes, node.subcons))
    if isinstance(node, Text | Blob | ArrayOf) and not node.compact:
        return 2 if isinstance(node, Text) else 4
    if isinstance(node, Bytes):
        return _UUID_BYTES
    return _WIDTHS[node.fmtstr[1]] if isinstance(node, FormatField) else 1
