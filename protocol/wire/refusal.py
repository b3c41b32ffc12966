"""From a request to an answer that refuses it, made of the declarations of both.

As Kafka's `getErrorResponse`: where a response has one error code for all, it says that; where it has one for each
thing that was asked for, a topic, a partition, a group, the answer names each of these as the request does. What else
a response holds is empty.
"""

from collections.abc import Iterable
from typing import Any

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import Field, default_of, fields_of
from tidelog.protocol.wire.types import INT32, INT64, Array

__all__ = ["refusal", "refuses_as_a_whole"]

_CODE = "error_code"
# What one thing is called in a request, and in its response.
_SAME = (
    frozenset({"index", "partition", "partition_index", "partition_id"}),
    frozenset({"name", "topic", "topic_name"}),
    frozenset({"group_id", "key"}),
)
# What a thing is called that the request lists without more: a group's id, a partition's number.
_NAMES = frozenset().union(*_SAME)
# What is called the same in both.
_IDS = frozenset({"topic_id", "member_id", "group_instance_id", "resource_type", "resource_name"})


def refusal(api: Api, version: int, request: Any, code: int) -> Any:
    """Return the response of that version that refuses all that a request asks for. Raises ValueError if none can."""
    if not _tells(api.response, version):
        raise ValueError(f"{api.name} v{version} has no error code")
    return _answer(api.response, version, request, code)


def refuses_as_a_whole(api: Api, version: int) -> bool:
    """Tell whether the response of a version has one error code for all that was asked for."""
    return any(field.name == _CODE and field.versions.has(version) for field in fields_of(api.response))


def _tells(message: type, version: int) -> bool:
    """Tell whether a message has an error code, or holds any that has."""
    return any(
        field.versions.has(version)
        and (field.name == _CODE or (_element(field) is not None and _tells(_element(field), version)))
        for field in fields_of(message)
    )


def _element(field: Field) -> Any:
    """Return the message that a field lists, or None."""
    element = field.type.element if isinstance(field.type, Array) else None
    return element if isinstance(element, type) else None


def _answer(message: type, version: int, asked: Any, code: int) -> Any:
    """Return the message that answers what was asked, be it a request, a part of one, or a name in it."""
    values: dict[str, Any] = {}
    for field in fields_of(message):
        element = _element(field)
        if field.name == _CODE:
            values[field.name] = code if field.versions.has(version) else default_of(field)
        elif element is not None and field.versions.has(version) and _tells(element, version):
            parts = _listed(asked, version)
            values[field.name] = [_answer(element, version, part, code) for part in parts]
        else:
            named = _named(field, asked) if field.versions.has(version) else None
            is_told = named is not None or field.nullable.has(version)
            values[field.name] = named if is_told else _nothing(field)
    return message(**values)


def _listed(asked: Any, version: int) -> Iterable[Any]:
    """Return what a request, or a part of one, lists first."""
    for field in fields_of(type(asked)):
        if isinstance(field.type, Array) and field.versions.has(version):
            return getattr(asked, field.name) or ()
    return ()


def _named(field: Field, asked: Any) -> Any:
    """Return what a request calls a thing, where the field is for that, or None."""
    if not hasattr(type(asked), "__wire_fields__"):
        return asked if field.name in _NAMES else None
    called = next((names for names in _SAME if field.name in names), {field.name} & _IDS)
    for each in fields_of(type(asked)):
        if each.name in called and type(each.type) is type(field.type):
            return getattr(asked, each.name)
    return None


def _nothing(field: Field) -> Any:
    """Return what stands for nothing: -1 where a number is expected, as in Kafka's own."""
    if not field.is_required:
        return default_of(field)
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, type):
        return field.type(**{inner.name: _nothing(inner) for inner in fields_of(field.type)})
    return -1 if field.type in (INT32, INT64) else field.type.zero
