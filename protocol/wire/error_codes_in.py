"""From a response to the error codes in it, wherever its message has a field of that name.

Made of the declaration, once a message, as source: an answer about one partition is looked through in a few tenths of a
microsecond.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tidelog.protocol.wire.schema import fields_of
from tidelog.protocol.wire.types import Array

__all__ = ["finder_of"]

_FIELD = "error_code"


@cache
def finder_of(message: type) -> Callable[[Any], list[int]]:
    """Return what lists the error codes in a message that are not 0, each as often as it is there."""
    lines = ["def find(m0):", "    found = []", *_lines(message, 0), "    return found"]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    find: Callable[[Any], list[int]] = made["find"]
    return find


def _lines(message: type, depth: int) -> Iterator[str]:
    """Yield the statements that look through the message `m<depth>`."""
    outer, inner, indent = f"m{depth}", f"m{depth + 1}", "    " * (depth + 1)
    for field in fields_of(message):
        kind = field.type
        if field.name == _FIELD:
            yield f"{indent}if {outer}.{_FIELD}: found.append({outer}.{_FIELD})"
        elif isinstance(kind, Array) and isinstance(kind.element, type):
            nested = list(_lines(kind.element, depth + 1))
            if nested:
                yield f"{indent}for {inner} in {outer}.{field.name} or ():"
                yield from nested
        elif isinstance(kind, type):
            nested = list(_lines(kind, depth + 1))
            if nested:
                yield f"{indent}for {inner} in ({outer}.{field.name},) if {outer}.{field.name} else ():"
                yield from nested
