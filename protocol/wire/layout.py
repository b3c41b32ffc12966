# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
# mypy: disallow-untyped-decorators=False, disable-error-code="misc, no-any-return"
"""The layout of messages: their fields in objects, and on the wire in a version.

All message classes share a constructor, which takes keywords only. A broker makes three to ten such objects per
request. An `__init__` in Python takes half a microsecond, mostly to pass keywords. When compiled, a class gets a C
function that CPython calls instead (`tp_vectorcall`), and that puts the values into the object's slots. The C types of
the classes are in `layout.pxd`.
"""

import sys
from typing import Any, Final

import cython  # type: ignore[import-untyped]

if cython.compiled:
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore[import-untyped]

__all__ = [
    "COMPILED",
    "FieldLayout",
    "MessageLayout",
    "Slot",
    "construct_by_keywords",
    "initialize",
]

COMPILED: Final[bool] = bool(cython.compiled)

_WORD_BYTES = cython.declare(cython.Py_ssize_t, cython.sizeof(cython.p_void))
# How many arguments of a vectorcall are positional; the bit above says something else.
_POSITIONAL = cython.declare(cython.size_t, (1 << 63) - 1)
_slots: Final[dict[type, tuple["Slot", ...]]] = {}


class Slot:
    """One field of a class: its name, its default, and its offset in an object in bytes."""

    def __init__(self, name: str, default: Any, is_required: bool = False) -> None:
        """Describe a field. A default that is a list is copied for each object."""
        self.name = sys.intern(name)
        self.default = default
        self.is_list = type(default) is list
        self.is_required = is_required
        self.offset = 0


class FieldLayout(Slot):
    """One field of a message in one version; `path` is its name after those of the fields that it is in, for errors.

    `kind` is the letter of `struct` for a type of fixed width, or U for a UUID, T for text, B for bytes, V for a view
    of bytes, A for an array of `element`, M for the message `inner`. `compact` lengths are varints (KIP-482).
    """

    def __init__(
        self,
        name: str,
        path: str,
        kind: str,
        least_bytes: int = 0,
        *,
        compact: bool = False,
        nullable: bool = False,
        ignorable: bool = False,
        element: "FieldLayout | None" = None,
        inner: "MessageLayout | None" = None,
        default: Any = None,
    ) -> None:
        """Describe a field that takes `least_bytes` or more."""
        super().__init__(name, default)
        self.path = path
        self.kind = kind
        self.least_bytes = least_bytes
        self.compact = compact
        self.nullable = nullable
        self.ignorable = ignorable
        self.element = element
        self.inner = inner


class MessageLayout:
    """One message in one version: its fields in their order, those that the version lacks, and its tagged fields."""

    def __init__(
        self,
        message: type,
        version: int,
        fields: tuple[FieldLayout, ...],
        absent: tuple[FieldLayout, ...],
        is_flexible: bool,
        tagged: tuple[tuple[int, FieldLayout], ...],
    ) -> None:
        """Describe a message. A flexible version ends in a section of tagged fields (KIP-482)."""
        if cython.compiled:
            _set_offsets(message, (*fields, *absent, *[field for _, field in tagged]))
        self.message = message
        self.version = version
        self.fields = fields
        self.absent = absent
        self.is_flexible = is_flexible
        self.tagged = tagged
        self.least_bytes = sum([field.least_bytes for field in fields]) + is_flexible


def construct_by_keywords(cls: type, slots: tuple[Slot, ...]) -> None:
    """Have a class with these slots, in this order, called with keywords. Its `__init__` must be `initialize`."""
    _slots[cls] = slots
    if cython.compiled:
        _set_offsets(cls, slots)
        made = cython.cast(cython.pointer(PyTypeObject), cls)  # type: ignore[name-defined] # noqa: F821
        made.tp_vectorcall = cython.cast(vectorcallfunc, cython.address(_construct))  # type: ignore[name-defined] # noqa: F821


@cython.cfunc
@cython.locals(slot=Slot, at=cython.Py_ssize_t, place=cython.p_char)
def _set_offsets(cls: Any, slots: tuple[Any, ...]) -> Any:
    """Find where an object of the class has each slot. Raise TypeError where it has none of that name."""
    probe = cls.__new__(cls)
    marker = object()
    place = cython.cast(cython.p_char, cython.cast(cython.p_void, probe))
    for slot in slots:
        setattr(probe, slot.name, marker)
        for at in range(0, cls.__basicsize__, _WORD_BYTES):
            if cython.cast(cython.pp_void, place + at)[0] == cython.cast(cython.p_void, marker):
                slot.offset = at
                break
        else:
            raise TypeError(f"{cls.__name__}.{slot.name} is no slot")
        delattr(probe, slot.name)


@cython.cfunc
@cython.locals(
    cls=cython.p_void,
    arguments=cython.pp_void,
    flags=cython.size_t,
    names=cython.p_void,
    made=type,
    slots=tuple,
    slot=Slot,
    given=cython.Py_ssize_t,
    taken=cython.Py_ssize_t,
    place=cython.p_char,
)
def _construct(cls: Any, arguments: Any, flags: int, names: Any) -> Any:
    """Make an object of keywords, which come in the order of the fields, as a rule. The form of a vectorcallfunc."""
    made = cython.cast(object, cls)
    slots = _slots[made]
    keywords: tuple[str, ...] = ()
    if names != cython.NULL:
        keywords = cython.cast(tuple, cython.cast(object, names))
    given = len(keywords)
    taken = 0
    message = made.__new__(made)
    place = cython.cast(cython.p_char, cython.cast(cython.p_void, message))
    for each in slots:
        slot = cython.cast(Slot, each)
        if taken < given and keywords[taken] is slot.name:
            value = cython.cast(object, arguments[taken])
            taken += 1
        elif slot.is_required:
            break
        elif slot.is_list:
            value = []
        else:
            value = slot.default
        Py_INCREF(value)
        cython.cast(cython.pp_void, place + slot.offset)[0] = cython.cast(cython.p_void, value)
    else:
        if taken == given and not flags & _POSITIONAL:
            return message
    # In another order, or not what it takes.
    values = {}
    for taken in range(given):
        values[keywords[taken]] = cython.cast(object, arguments[(flags & _POSITIONAL) + taken])
    return _fill(made.__new__(made), (flags & _POSITIONAL) != 0, values)


@cython.locals(slot=Slot)
def _fill(message: Any, is_positional: bool, values: dict[str, Any]) -> Any:
    """Give an object the values of its fields, and their defaults. Raise TypeError for what it does not take."""
    name = type(message).__name__
    if is_positional:
        raise TypeError(f"{name}() takes keyword arguments only")
    missing = []
    for slot in _slots[type(message)]:
        if slot.name in values:
            setattr(message, slot.name, values.pop(slot.name))
        elif slot.is_required:
            missing.append(slot.name)
        else:
            setattr(message, slot.name, [] if slot.is_list else slot.default)
    if missing:
        raise TypeError(f"{name}() misses {', '.join(missing)}")
    if values:
        raise TypeError(f"{name}() has no field {', '.join(values)}")
    return message


def initialize(self: Any, *positional: Any, **values: Any) -> None:
    """Give an object its values: the `__init__` of message classes."""
    _fill(self, bool(positional), values)
