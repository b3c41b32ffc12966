"""What the bytes of a message are, version by version, as a Struct of construct's: the reference for the codecs.

Slow and readable. It follows the same rules as the compiled code: a length is checked before anything is allocated, a
varint ends after five bytes. construct's own `VarInt` has no bound.
"""

import io
from collections.abc import Mapping
from typing import Any

from construct import (  # type: ignore[import-untyped]
    Bytes,
    Construct,
    Container,
    FormatField,
    Int16sb,
    Int32sb,
    IntegerError,
    StreamError,
    StringError,
    Struct,
    Subconstruct,
    stream_read,
    stream_write,
)

from tidelog.protocol.wire.schema import Field, default_of, fields_of
from tidelog.protocol.wire.types import RECORDS, STRING, UUID, Array, Fixed, WireType

# Kafka's limit for a string, whichever way its length is written.
MAX_STRING_BYTES = 0x7FFF
TAGS = "tagged_fields"


class Uvarint(Construct):  # type: ignore[misc]
    """An unsigned 32-bit integer in groups of seven bits, the lowest first, in at most five bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte: int = stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                return value
        raise IntegerError("varint is wider than 32 bits", path=path)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        if not 0 <= obj < 1 << 32:
            raise IntegerError(f"varint cannot hold {obj}", path=path)
        value, out = obj, bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        stream_write(stream, bytes(out), len(out), path)
        return obj


class _Counted(Subconstruct):  # type: ignore[misc]
    """Something after its length: a signed integer, or a varint of one more. Null has length -1."""

    def __init__(self, length: Any, nullable: bool, inner: Any = None) -> None:
        super().__init__(length if inner is None else inner)
        self.length = length
        self.compact = isinstance(length, Uvarint)
        self.nullable = nullable

    def _parse_length(self, stream: Any, context: Any, path: str) -> int | None:
        length: int = self.length._parsereport(stream, context, path)
        if self.compact:
            length -= 1
        if length < -1 or (length == -1 and not self.nullable):
            raise StreamError(f"length {length}", path=path)
        return None if length == -1 else length

    def _build_length(self, length: int | None, stream: Any, context: Any, path: str) -> None:
        if length is None:
            if not self.nullable:
                raise StreamError("null is not allowed here", path=path)
            length = -1
        self.length._build(length + 1 if self.compact else length, stream, context, path)


class Text(_Counted):
    """A string in strict UTF-8."""

    def _parse(self, stream: Any, context: Any, path: str) -> str | None:
        length = self._parse_length(stream, context, path)
        if length is None:
            return None
        if length > MAX_STRING_BYTES:
            raise StringError(f"string of {length} bytes", path=path)
        data: bytes = stream_read(stream, length, path)
        return data.decode()

    def _build(self, obj: str | None, stream: Any, context: Any, path: str) -> str | None:
        data = None if obj is None else obj.encode()
        if data is not None and len(data) > MAX_STRING_BYTES:
            raise StringError(f"string of {len(data)} bytes", path=path)
        self._build_length(None if data is None else len(data), stream, context, path)
        if data is not None:
            stream_write(stream, data, len(data), path)
        return obj


class Blob(_Counted):
    """Bytes that the protocol does not look into; `view` asks for a view of the frame in place of a copy."""

    def __init__(self, length: Any, nullable: bool, view: bool) -> None:
        super().__init__(length, nullable)
        self.view = view

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        length = self._parse_length(stream, context, path)
        if length is None:
            return None
        data: bytes = stream_read(stream, length, path)
        return data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self._build_length(None if obj is None else len(obj), stream, context, path)
        if obj is not None:
            stream_write(stream, bytes(obj), len(obj), path)
        return obj


class ArrayOf(_Counted):
    """A counted list of one construct."""

    def __init__(self, length: Any, nullable: bool, element: Any) -> None:
        super().__init__(length, nullable, element)

    def _parse(self, stream: Any, context: Any, path: str) -> list[Any] | None:
        count = self._parse_length(stream, context, path)
        if count is None:
            return None
        return [self.subcon._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self._build_length(None if obj is None else len(obj), stream, context, path)
        for element in obj or ():
            self.subcon._build(element, stream, context, path)
        return obj


class NullableStruct(Subconstruct):  # type: ignore[misc]
    """A struct after one byte: -1 for null, 1 for present (KIP-893)."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        presence = stream_read(stream, 1, path)
        if presence == b"\xff":
            return None
        if presence != b"\x01":
            raise StreamError(f"presence byte {presence!r}", path=path)
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, b"\xff" if obj is None else b"\x01", 1, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


class TaggedSection(Construct):  # type: ignore[misc]
    """The section of tagged fields that ends every struct of a flexible version (KIP-482).

    Parses into the known fields, with defaults for those that are not there; unknown tags are passed over.
    Builds from the whole struct, and leaves out what has its default.
    """

    def __init__(self, members: dict[int, tuple[Field, Any]]) -> None:
        super().__init__()
        self.members = dict(sorted(members.items()))
        self.uvarint = Uvarint()

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = Container((field.name, plain(default_of(field))) for field, _ in self.members.values())
        for _ in range(self.uvarint._parsereport(stream, context, path)):
            tag = self.uvarint._parsereport(stream, context, path)
            size = self.uvarint._parsereport(stream, context, path)
            data = stream_read(stream, size, path)
            if tag in self.members:
                field, subcon = self.members[tag]
                values[field.name] = _parse_all(subcon, data, path)
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        present = [
            (tag, subcon.build(obj[field.name]))
            for tag, (field, subcon) in self.members.items()
            if obj[field.name] != plain(default_of(field))
        ]
        self.uvarint._build(len(present), stream, context, path)
        for tag, data in present:
            self.uvarint._build(tag, stream, context, path)
            self.uvarint._build(len(data), stream, context, path)
            stream_write(stream, data, len(data), path)
        return obj


class MessageStruct(Struct):  # type: ignore[misc]
    """The Struct of one message in one version.

    Parses into a Container that holds every declared field, those that the version lacks by their default.
    Builds from such a mapping, and refuses a value that the version cannot carry.
    """

    def __init__(self, message: type, version: int, members: list[Any], absent: list[Field]) -> None:
        super().__init__(*members)
        self.message = message
        self.version = version
        self.absent = absent

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        parsed = super()._parse(stream, context, path)
        del parsed["_io"]
        parsed.update(parsed.pop(TAGS, {}))
        parsed.update((field.name, plain(default_of(field))) for field in self.absent)
        return parsed

    def _build(self, obj: Mapping[str, Any], stream: Any, context: Any, path: str) -> Any:
        for field in self.absent:
            if not field.ignorable and obj[field.name] != plain(default_of(field)):
                raise StreamError(f"{field.name} does not exist in version {self.version}", path=path)
        return super()._build({**obj, TAGS: obj}, stream, context, path)


def plain(value: Any) -> Any:
    """Turn a message into the nested dicts that a Struct parses into and builds from."""
    if hasattr(value, "__wire_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in value.__wire_fields__}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value


def _parse_all(subcon: Any, data: bytes, path: str) -> Any:
    """Parse a construct that must take up all of the data."""
    stream = io.BytesIO(data)
    value = subcon.parse_stream(stream)
    if stream.read(1):
        raise StreamError("tagged field is shorter than its size", path=path)
    return value


def struct_of(message: type, version: int, *, flexible: bool) -> MessageStruct:
    """Lay out a message; a `flexible` version has compact lengths and tagged fields (KIP-482)."""
    members: list[Any] = []
    tagged, absent = {}, []
    for field in fields_of(message):
        if not field.versions.has(version):
            absent.append(field)
            continue
        layout = _layout(field.type, version, flexible, field.nullable.has(version))
        if field.tag is not None and field.tagged.has(version):
            tagged[field.tag] = (field, layout)
        else:
            members.append(field.name / layout)
    if flexible:
        members.append(TAGS / TaggedSection(tagged))
    return MessageStruct(message, version, members, absent)


def _layout(type_: WireType, version: int, flexible: bool, nullable: bool) -> Any:
    if isinstance(type_, Fixed):
        return Bytes(16) if type_ is UUID else FormatField(">", type_.kind)
    if isinstance(type_, Array):
        element = _layout(type_.element, version, flexible, nullable=False)
        return ArrayOf(Uvarint() if flexible else Int32sb, nullable, element)
    if type_ is STRING:
        return Text(Uvarint() if flexible else Int16sb, nullable)
    if isinstance(type_, type):
        struct = struct_of(type_, version, flexible=flexible)
        return NullableStruct(struct) if nullable else struct
    return Blob(Uvarint() if flexible else Int32sb, nullable, view=type_ is RECORDS)
