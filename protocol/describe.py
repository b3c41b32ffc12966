"""The text of docs/protocol.md, from the declarations of messages (`make docs`)."""

import json
from collections.abc import Iterator

from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import NO_VERSION, Field, fields_of
from tidelog.protocol.wire.types import ZERO_UUID, Array, WireType

REGENERATE = "make docs"

_INTRODUCTION = f"""\
# Protocol

This page lists each message that Tidelog reads and writes, field by field. Use it to write a client, or to read a
capture of the network. [compatibility.md](compatibility.md) says what each API does.

Generated from `protocol/messages/` by `{REGENERATE}`; do not edit.

Tidelog speaks Kafka's wire protocol. Each API below lists the versions that are served, and the first *flexible*
version: from it on, lengths are compact, and structs may have tagged fields (KIP-482).

In the tables of fields, `[]` after a name marks an array; the following rows describe its elements. A field outside its
versions is not on the wire: it is read as its default, and writing another value is an error unless the field is
*ignorable*. *Tag* is the number of a field in the tagged section. A field without a default must be set by the sender.
"""


def describe() -> str:
    """Return the whole document."""
    lines = [
        _INTRODUCTION,
        "## APIs",
        "",
        "| Key | API | Versions | Flexible |",
        "| --: | --- | --- | --- |",
        *map(_summary, APIS.values()),
        "",
    ]
    for api in APIS.values():
        lines += [f"## {api.name}", ""]
        for message in (api.request, api.response):
            lines += [f"### {message.__name__}", "", _docstring(message), ""]
            rows = list(_rows(message, ""))
            lines += [*_TABLE_HEAD, *rows, ""] if rows else ["No fields.", ""]
    return "\n".join(lines)


_TABLE_HEAD = (
    "| Field | Type | Versions | Nullable | Default | Tag | Ignorable |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def _summary(api: Api) -> str:
    served = f"{api.min_version}-{api.max_version}"
    return f"| {api.key} | [{api.name}](#{api.name.lower()}) | {served} | {api.flexible} |"


def _docstring(message: type) -> str:
    return (message.__doc__ or "").strip()


def _rows(message: type, prefix: str) -> Iterator[str]:
    for field in fields_of(message):
        nested = field.type.element if isinstance(field.type, Array) else field.type
        path = prefix + field.name + ("[]" if isinstance(field.type, Array) else "")
        yield _row(field, path)
        if isinstance(nested, type):
            yield from _rows(nested, f"{path}.")


def _row(field: Field, path: str) -> str:
    cells = (
        f"`{path}`",
        _type_name(field.type),
        str(field.versions),
        "" if field.nullable == NO_VERSION else str(field.nullable),
        _default(field),
        "" if field.tag is None else f"{field.tag} ({field.tagged})",
        "yes" if field.ignorable else "",
    )
    return f"| {' | '.join(cells)} |"


def _type_name(type_: WireType) -> str:
    if isinstance(type_, Array):
        return f"array of {_type_name(type_.element)}"
    return type_.__name__ if isinstance(type_, type) else type_.name


def _default(field: Field) -> str:
    if field.is_required:
        return ""
    value = field.declared_default
    if value == ZERO_UUID:
        return "zero"
    return "all defaults" if hasattr(value, "__wire_fields__") else f"`{json.dumps(value)}`"
