# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
# mypy: disallow-untyped-decorators=False, disable-error-code="misc, no-any-return"
"""Makes the objects of message classes; runs with or without a compiler.

Owns the constructor that all message classes share: keywords only, each field its value or its default. A broker makes
three to ten such objects a request; by an `__init__` in Python each takes half a microsecond, of which most goes into
handing over keywords. Compiled, a class gets a function of C that CPython calls in its place (`tp_vectorcall`), and
that puts the values straight into the object's slots.
"""

import sys
from typing import Any, Final

import cython  # type: ignore[import-untyped]

if cython.compiled:
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore[import-untyped]

__all__ = ["COMPILED", "Slot", "construct_by_keywords", "initialize", "offset_of"]

COMPILED: Final[bool] = bool(cython.compiled)

_WORD_BYTES = cython.declare(cython.Py_ssize_t, cython.sizeof(cython.p_void))
# How many arguments of a vectorcall are positional; the bit above says something else.
_POSITIONAL = cython.declare(cython.size_t, (1 << 63) - 1)
_slots: Final[dict[type, tuple["Slot", ...]]] = {}


@cython.final
@cython.cclass
class Slot:
    """One field of a class: its name, where it lies in an object, and its default."""

    name = cython.declare(object)
    default = cython.declare(object)
    is_list = cython.declare(cython.bint)  # the default, of which each object gets its own
    is_required = cython.declare(cython.bint)
    offset = cython.declare(cython.Py_ssize_t)

    def __init__(self, name: str, default: Any, is_required: bool) -> None:
        """Describe a field."""
        self.name = sys.intern(name)
        self.default = default
        self.is_list = type(default) is list
        self.is_required = is_required


@cython.locals(slot=Slot)
def construct_by_keywords(cls: type, slots: tuple[Any, ...]) -> None:
    """Have a class with these slots, in this order, called with keywords. Its `__init__` is to be `initialize`."""
    _slots[cls] = slots
    if cython.compiled:
        for each in slots:
            slot = each
            slot.offset = offset_of(cls, slot.name)
        made = cython.cast(cython.pointer(PyTypeObject), cls)  # type: ignore[name-defined] # noqa: F821
        made.tp_vectorcall = cython.cast(vectorcallfunc, cython.address(_construct))  # type: ignore[name-defined] # noqa: F821


@cython.locals(at=cython.Py_ssize_t, place=cython.p_char)
def offset_of(cls: type, name: str) -> int:
    """Return where the objects of a class have a slot, in bytes. Raise TypeError if they have none of that name.

    Asked for by compiled modules; beside this one interpreted they would write anywhere.
    """
    if not cython.compiled:
        raise ImportError("only a part of tidelog.protocol.wire is compiled; build all of it: make setup")
    probe: Any = cls.__new__(cls)  # type: ignore[call-overload]
    marker = object()
    setattr(probe, name, marker)
    place = cython.cast(cython.p_char, cython.cast(cython.p_void, probe))
    for at in range(0, cls.__basicsize__, _WORD_BYTES):
        if cython.cast(cython.pp_void, place + at)[0] == cython.cast(cython.p_void, marker):
            return at
    raise TypeError(f"{cls.__name__}.{name} is no slot")


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
    for each in _slots[type(message)]:
        slot = each
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
