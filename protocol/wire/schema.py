"""The declaration of messages: `@message` classes with `field(...)` attributes.

A class is for all versions of a message, as in Kafka's definitions. It becomes a plain class with slots, a keyword-only
constructor (in `layout`), equality and repr. `dataclasses` would execute four functions for each class at import, 60 ms
for all messages of a broker.

All objects share a default, unless it is a list. So do not change a nested message that is a default.
"""

import re
from functools import cache
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from tidelog.protocol.wire.layout import Slot, construct_by_keywords, initialize
from tidelog.protocol.wire.types import Array, WireType

_Message = TypeVar("_Message")


class Versions(NamedTuple):
    """A closed range of versions; `high` is None if it has no end."""

    low: int
    high: int | None

    @classmethod
    @cache  # many fields have the same versions
    def parse(cls, text: str) -> "Versions":
        """Read Kafka's notation: "4+", "0-12", "3", or "" for none."""
        if not text:
            return NO_VERSION
        matched = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
        if matched is None:
            raise ValueError(f"not a range of versions: {text!r}; write it as '4+', '0-12' or '3'")
        low = int(matched[1])
        if matched[2] is None:
            return cls(low, low)
        return cls(low, None if matched[3] is None else int(matched[3]))

    def has(self, version: int) -> bool:
        """Return whether a version is in the range."""
        return self.low <= version and (self.high is None or version <= self.high)

    def __str__(self) -> str:
        """Return the range in Kafka's notation."""
        if self == NO_VERSION:
            return "none"
        if self.high is None:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSION = Versions(1, 0)
EVERY_VERSION = Versions(0, None)

_UNSET: Any = object()


class Field:
    """A declared field: its type, its versions, and its form on the wire."""

    __slots__ = ("declared_default", "ignorable", "name", "nullable", "tag", "tagged", "type", "versions")

    def __init__(
        self,
        type: WireType,
        versions: Versions,
        default: Any,
        nullable: Versions,
        tag: int | None,
        tagged: Versions,
        ignorable: bool,
    ) -> None:
        self.name = ""
        self.type = type
        self.versions = versions
        self.declared_default = default
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable

    @property
    def is_required(self) -> bool:
        """Whether the constructor requires this field."""
        return self.declared_default is _UNSET


def field(
    type: WireType,
    versions: str = "0+",
    *,
    default: Any = _UNSET,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a field of a message.

    In a version without the field, writing a value other than the default is an error, unless it is `ignorable`: then
    it is dropped. Without `default`, the constructor requires the field.
    """
    if (tag is None) != (tagged == ""):
        raise ValueError("a tagged field needs both `tag` and `tagged`")
    return Field(
        type,
        Versions.parse(versions),
        default,
        Versions.parse(nullable),
        tag,
        Versions.parse(tagged),
        ignorable,
    )


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(cls: type[_Message]) -> type[_Message]:
    """Turn a class of field declarations into a slotted, keyword-only value class."""
    declared: dict[str, Field] = {}
    namespace: dict[str, Any] = {}
    for name, value in vars(cls).items():
        if isinstance(value, Field):
            value.name = name
            declared[name] = value
        elif name not in ("__dict__", "__weakref__"):
            namespace[name] = value
    namespace.update(
        __slots__=tuple(declared),
        __init__=initialize,
        __eq__=_equal,
        __hash__=None,
        __repr__=_represent,
        __wire_fields__=tuple(declared.values()),
        __match_args__=(),
    )
    made = type(cls.__name__, cls.__bases__, namespace)
    slots = [
        Slot(name, None if field.is_required else field.declared_default, field.is_required)
        for name, field in declared.items()
    ]
    construct_by_keywords(made, tuple(slots))
    return made


def fields_of(message: type) -> tuple[Field, ...]:
    """Return the fields of a message class, in the order on the wire."""
    fields: tuple[Field, ...] = message.__wire_fields__  # type: ignore[attr-defined]
    return fields


def default_of(field: Field) -> Any:
    """Return the value of an absent field: its default, or the zero of its type."""
    if field.declared_default is not _UNSET:
        return field.declared_default
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, type):
        raise ValueError(f"{field.name} can be absent: declare its default, {field.type.__name__}()")
    return field.type.zero


def _equal(self: object, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in fields_of(type(self)))


def _represent(self: object) -> str:
    inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields_of(type(self)))
    return f"{type(self).__name__}({inside})"
