"""Reports the error codes in responses.

The code is generated from the declaration of the message, so that it takes less than a microsecond for an answer about
one partition.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tidelog.protocol.wire.schema import NO_VERSION, fields_of
from tidelog.protocol.wire.types import Array

_FIELD = "error_code"


def reporting_errors(
    message: type, encode: Callable[[int, Any], Any], report: Callable[[int], None]
) -> Callable[[int, Any], Any]:
    """Return an encoder of responses that calls `report` with each error code other than 0, and then `encode`."""
    lines = [
        "def reporting(correlation_id, m0):",
        *_lines(message, 0),
        "    return encode(correlation_id, m0)",
    ]
    names: dict[str, Any] = {"encode": encode, "report": report}
    exec("\n".join(lines), names)
    reporting: Callable[[int, Any], Any] = names["reporting"]
    return reporting


def _lines(message: type, depth: int) -> Iterator[str]:
    """Yield the statements that search the message `m<depth>`."""
    outer, inner, indent = f"m{depth}", f"m{depth + 1}", "    " * (depth + 1)
    for field in fields_of(message):
        kind, value = field.type, f"{outer}.{field.name}"
        if field.name == _FIELD:
            yield f"{indent}if {value}: report({value})"
            continue
        if isinstance(kind, Array):
            kind, values = kind.element, value if field.nullable == NO_VERSION else f"{value} or ()"
        else:
            values = f"({value},) if {value} is not None else ()"
        if isinstance(kind, type) and (nested := list(_lines(kind, depth + 1))):
            yield f"{indent}for {inner} in {values}:"
            yield from nested
