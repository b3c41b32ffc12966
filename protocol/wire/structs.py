"""From a message and a version to its construct Struct: what the bytes look like, in a form one can read.

Owns the layout rules: which fields a version has, legacy or compact lengths, what may be null, the tagged
section. The compiler knows none of them; it walks the Struct.
"""

from typing import Any

from construct import Bytes, FormatField, Int16sb, Int32sb  # type: ignore[import-untyped]

from tidelog.protocol.wire.constructs import (
    TAGS,
    ArrayOf,
    Blob,
    MessageStruct,
    NullableStruct,
    TaggedSection,
    Text,
    Uvarint,
)
from tidelog.protocol.wire.schema import fields_of
from tidelog.protocol.wire.types import RECORDS, STRING, Array, Fixed, WireType

__all__ = ["struct_of"]


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
        return Bytes(16) if type_.code == "16s" else FormatField(">", type_.code)
    if isinstance(type_, Array):
        element = _layout(type_.element, version, flexible, nullable=False)
        return ArrayOf(Uvarint() if flexible else Int32sb, nullable, element)
    if type_ is STRING:
        return Text(Uvarint() if flexible else Int16sb, nullable)
    if isinstance(type_, type):
        struct = struct_of(type_, version, flexible=flexible)
        return NullableStruct(struct) if nullable else struct
    return Blob(Uvarint() if flexible else Int32sb, nullable, view=type_ is RECORDS)
