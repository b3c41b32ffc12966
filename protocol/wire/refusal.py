"""Makes the response that refuses a request, from the declarations of both.

It is Kafka's `getErrorResponse`. A response may have one error code for the whole request, or one for each topic,
partition or group; then it has an entry for each of those in the request. Other fields are empty.
"""

from collections.abc import Iterable
from typing import Any

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import Field, default_of, fields_of
from tidelog.protocol.wire.types import INT32, INT64, Array

_CODE = "error_code"
# Names of the same thing, in a request and in its response.
_SAME = (
    frozenset({"index", "partition", "partition_index", "partition_id"}),
    frozenset({"name", "topic", "topic_name"}),
    frozenset({"group_id", "key"}),
)
# A request may list only values: ids of groups, or numbers of partitions.
_NAMES = frozenset().union(*_SAME)
# Fields with the same name in both.
_IDS = frozenset({"topic_id", "member_id", "group_instance_id", "resource_type", "resource_name"})


def refusal(api: Api, version: int, request: Any, code: int) -> Any:
    """Return the response that refuses a whole request; ValueError if the response has no error code."""
    if not _has_code(api.response, version):
        raise ValueError(f"{api.name} v{version} has no error code")
    return _answer(api.response, version, request, code)


def refuses_as_a_whole(api: Api, version: int) -> bool:
    """Return whether the response of a version has an error code for the whole request."""
    return any(field.name == _CODE and field.versions.has(version) for field in fields_of(api.response))


def _has_code(message: type, version: int) -> bool:
    """Return whether a message has an error code, also in nested messages."""
    return any(
        field.versions.has(version)
        and (field.name == _CODE or (_element(field) is not None and _has_code(_element(field), version)))
        for field in fields_of(message)
    )


def _element(field: Field) -> Any:
    """Return the message class of the elements of a field; None if it has none."""
    element = field.type.element if isinstance(field.type, Array) else None
    return element if isinstance(element, type) else None


def _answer(message: type, version: int, asked: Any, code: int) -> Any:
    """Return the message that refuses a request, a part of it, or a name in it."""
    values: dict[str, Any] = {}
    for field in fields_of(message):
        element = _element(field)
        if field.name == _CODE:
            values[field.name] = code if field.versions.has(version) else default_of(field)
        elif element is not None and field.versions.has(version) and _has_code(element, version):
            parts = _listed(asked, version)
            values[field.name] = [_answer(element, version, part, code) for part in parts]
        else:
            named = _named(field, asked) if field.versions.has(version) else None
            is_known = named is not None or field.nullable.has(version)
            values[field.name] = named if is_known else _nothing(field)
    return message(**values)


def _listed(asked: Any, version: int) -> Iterable[Any]:
    """Return the elements of the first array in a request, or in a part of one."""
    for field in fields_of(type(asked)):
        if isinstance(field.type, Array) and field.versions.has(version):
            return getattr(asked, field.name) or ()
    return ()


def _named(field: Field, asked: Any) -> Any:
    """Return the value of the field with the same meaning in the request; None if there is none."""
    if not hasattr(type(asked), "__wire_fields__"):
        return asked if field.name in _NAMES else None
    called = next((names for names in _SAME if field.name in names), {field.name} & _IDS)
    for each in fields_of(type(asked)):
        if each.name in called and type(each.type) is type(field.type):
            return getattr(asked, each.name)
    return None


def _nothing(field: Field) -> Any:
    """Return an empty value, which is -1 for a number, as in Kafka."""
    if not field.is_required:
        return default_of(field)
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, type):
        return field.type(**{inner.name: _nothing(inner) for inner in fields_of(field.type)})
    return -1 if field.type in (INT32, INT64) else field.type.zero
