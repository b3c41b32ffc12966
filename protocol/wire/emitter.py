"""What emitting a reader and emitting a writer share: the walk over a Struct, and the run of fixed-width fields.

Invariant: a construct that is not in the table below is a `CompileError`, never a slow path.
"""

from typing import Any

from construct import Bytes, FormatField, Renamed  # type: ignore[import-untyped]

from tidelog.protocol.wire.constructs import ArrayOf, Blob, MessageStruct, NullableStruct, TaggedSection, Text
from tidelog.protocol.wire.errors import CompileError
from tidelog.protocol.wire.schema import Field, default_of
from tidelog.protocol.wire.source import Source, snake_case, width
from tidelog.protocol.wire.types import ZERO_UUID

__all__ = ["Emitter", "code_of", "join", "null_length", "smallest"]

# The method of an emitter that knows the construct: `visit_` and this name.
_KINDS: dict[type, str] = {
    FormatField: "fixed",
    Bytes: "uuid",
    MessageStruct: "message",
    NullableStruct: "nullable",
    Text: "text",
    Blob: "blob",
    ArrayOf: "array",
    TaggedSection: "tagged",
}


class Emitter:
    """Emits one function for one Struct; `run` holds the fixed-width fields that are to be fused into one."""

    verb: str

    def __init__(self, struct: MessageStruct, scope: dict[str, Any], locals_: str) -> None:
        self.source = Source(scope, locals_.split())
        self.struct = struct
        self.run: list[tuple[str, str]] = []
        self.name = f"{self.verb}_{snake_case(struct.message.__name__)}_v{struct.version}"
        self.emit()

    def emit(self) -> None:
        """Emit the function."""
        raise NotImplementedError

    def compile(self) -> Any:
        """Give the function."""
        return self.source.function(self.name, f"<{self.name}>")

    def visit(self, node: Any, expression: str, path: str) -> None:
        """Emit the code for one construct whose value is the expression."""
        method = getattr(self, "visit_" + _KINDS.get(type(node), "unknown"))
        method(node, expression, path)

    def visit_unknown(self, node: Any, _expression: str, path: str) -> None:
        """Refuse a construct that is not in the table."""
        raise CompileError(
            f"{self.name}: {path or 'the message'} is a {type(node).__name__}; teach the compiler it"
        )

    def visit_fixed(self, node: Any, expression: str, _path: str) -> None:
        """Put off a field of fixed width until it is known how many follow."""
        self.run.append((code_of(node), expression))

    def default(self, field: Field) -> str:
        """Give an expression for the default of a field."""
        value = default_of(field)
        if hasattr(value, "__wire_fields__"):
            return self.source.constant(f"default_{field.name}", value)
        if value == ZERO_UUID:
            return self.source.constant("ZERO_UUID", ZERO_UUID)
        return repr(value)


def smallest(node: Any) -> int:
    """Give the fewest bytes that a construct can take, by which the count of an array is bounded."""
    if isinstance(node, Renamed):
        return smallest(node.subcon)
    if isinstance(node, MessageStruct):
        return sum(smallest(member) for member in node.subcons)
    if isinstance(node, Text | Blob | ArrayOf):
        return 1 if node.compact else width([code_of(node.length)])
    if isinstance(node, NullableStruct | TaggedSection):
        return 1
    return width([code_of(node)])


def code_of(node: Any) -> str:
    """Give the `struct` code of a construct of fixed width."""
    if isinstance(node, FormatField) and node.fmtstr[0] == ">":
        return str(node.fmtstr[1])
    if isinstance(node, Bytes) and node.length == 16:
        return "16s"
    raise CompileError(f"{node!r} has no fixed width that the compiler knows; teach the compiler it")


def null_length(node: Any) -> int:
    """Give the length that stands for null on the wire."""
    return 0 if node.compact else -1


def join(path: str, name: str) -> str:
    """Name a field by the fields that it lies in."""
    return f"{path}.{name}" if path else name
