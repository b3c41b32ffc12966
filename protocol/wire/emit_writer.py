"""Emits the writer of a message: the source of one flat function.

The parts are handed over in order and never joined, and `records` untouched: they may be a slice of a file. What a
version cannot carry is an error, unless the field is ignorable.
"""

from collections.abc import Callable
from struct import Struct, error, pack
from typing import Any

from construct import FormatField  # type: ignore[import-untyped]

from tidelog.protocol.wire import runtime
from tidelog.protocol.wire.constructs import ArrayOf, Blob, MessageStruct, NullableStruct, TaggedSection, Text
from tidelog.protocol.wire.emitter import Emitter, code_of, join
from tidelog.protocol.wire.errors import EncodeError
from tidelog.protocol.wire.schema import Field
from tidelog.protocol.wire.source import format_name, snake_case, width

__all__ = ["WriterEmitter"]

_SCOPE: dict[str, Any] = {
    "pack": pack,
    "short_uvarints": runtime.SHORT_UVARINTS,
    "uvarint": runtime.uvarint,
    "text_prefix": runtime.text_prefix,
    "write_tagged_fields": runtime.write_tagged_fields,
    "EncodeError": EncodeError,
    "struct_error": error,
}
_LOCALS = "put size text error"


class WriterEmitter(Emitter):
    """Emits `(message, put)`; `put` is the name of whatever takes the parts at this point of the source."""

    verb = "write"
    put = "put"

    def __init__(self, struct: MessageStruct) -> None:
        super().__init__(struct, dict(_SCOPE), _LOCALS)

    def emit(self) -> None:
        """Emit the function."""
        root = self.source.unique(snake_case(self.struct.message.__name__))
        cls, version = self.struct.message.__name__, self.struct.version
        with self.source.block(f"def {self.name}({root}, put):"):
            with self.source.block("try:"):
                if not self.struct.subcons:
                    self.source.add("pass")
                self.visit(self.struct, root, "")
                self.flush()
            # What a wrong value raises depends on its type; the cause shows the line and so the field.
            with self.source.block(
                "except (AttributeError, TypeError, UnicodeEncodeError, struct_error) as error:"
            ):
                self.source.add(f'raise EncodeError(f"{cls} v{version}: {{error}}") from error')

    def flush(self) -> None:
        """Emit one packing of the run of fixed-width fields."""
        if not self.run:
            return
        codes, values = [code for code, _ in self.run], [value for _, value in self.run]
        if all(value == "0" for value in values):
            self.source.add(f"{self.put}({bytes(width(codes))!r})")
        else:
            name = format_name("pack", codes)
            self.source.scope[name] = Struct(">" + "".join(codes)).pack
            self.source.add_call(f"{self.put}({name}(", values, "))")
        self.run.clear()

    def write_length(self, node: Any, value: str, longer: str = "uvarint") -> None:
        """Emit the length or count of a value, in the way of its node."""
        if not node.compact:
            self.run.append((code_of(node.length), f"len({value})"))
            self.flush()
            return
        self.flush()
        self.source.add(f"size = len({value}) + 1")
        self.source.add(f"{self.put}(short_uvarints[size] if size < 128 else {longer}(size))")

    def write_null(self, node: Any) -> None:
        """Emit the length that stands for null."""
        if node.compact:
            self.source.add(f"{self.put}({bytes(1)!r})")
        else:
            self.source.add(f"{self.put}({pack('>' + code_of(node.length), -1)!r})")

    def visit_message(self, node: MessageStruct, expression: str, path: str) -> None:
        """Emit the checks of what the version lacks, and the writing of the members."""
        for field in node.absent:
            if not field.ignorable:
                self.refuse_absent(node, field, f"{expression}.{field.name}")
        for member in node.subcons:
            name, inner = member.name, member.subcon
            value = expression if isinstance(inner, TaggedSection) else f"{expression}.{name}"
            self.visit(inner, value, join(path, name))

    def refuse_absent(self, node: MessageStruct, field: Field, value: str) -> None:
        """Emit the check that a field which the version lacks has its default."""
        with self.source.block(f"if {self.differs(field, value)}:"):
            what = f"{node.message.__name__}.{field.name} does not exist in version {node.version}"
            self.source.add(f'raise EncodeError(f"{what}, and is {{{value}!r}}")')

    def differs(self, field: Field, value: str) -> str:
        """Give a condition that holds when a value is not the default of its field."""
        default = self.default(field)
        if default == "None":
            return f"{value} is not None"
        if default.startswith("default_"):
            # Almost always the shared default itself, which spares the comparison of all its fields.
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def visit_uuid(self, node: Any, expression: str, path: str) -> None:
        """Emit the check and the writing of a uuid."""
        # struct would pad or cut it without a word.
        with self.source.block(f"if len({expression}) != 16:"):
            self.source.add(f'raise EncodeError(f"{path} is not 16 bytes: {{{expression}!r}}")')
        self.visit_fixed(node, expression, path)

    def visit_nullable(self, node: NullableStruct, expression: str, path: str) -> None:
        """Emit the writing of a struct that may be null."""
        self.flush()
        with self.source.block(f"if {expression} is None:"):
            self.source.add(f"{self.put}({bytes([255])!r})")
        with self.source.block("else:"):
            self.run.append(("b", "1"))
            local = self.source.unique(path.rpartition(".")[2])
            self.source.add(f"{local} = {expression}")
            self.visit(node.subcon, local, path)
            self.flush()

    def sized(self, node: Any, expression: str, name: str, write: Callable[[str], None]) -> None:
        """Emit the writing of a value that may be null."""
        local = self.source.unique(name)
        self.source.add(f"{local} = {expression}")
        if not node.nullable:
            write(local)
            return
        self.flush()
        with self.source.block(f"if {local} is None:"):
            self.write_null(node)
        with self.source.block("else:"):
            write(local)
            self.flush()

    def visit_text(self, node: Text, expression: str, path: str) -> None:
        """Emit the writing of a string."""

        def write(value: str) -> None:
            self.source.add(f"text = {value}.encode()")
            self.write_length(node, "text", "text_prefix")
            self.source.add(f"{self.put}(text)")

        if node.nullable:
            self.sized(node, expression, path.rpartition(".")[2], write)
        else:
            write(expression)

    def visit_blob(self, node: Blob, expression: str, path: str) -> None:
        """Emit the writing of bytes, which are handed on as they are."""

        def write(value: str) -> None:
            self.write_length(node, value)
            self.source.add(f"{self.put}({value})")

        self.sized(node, expression, path.rpartition(".")[2], write)

    def visit_array(self, node: ArrayOf, expression: str, path: str) -> None:
        """Emit the writing of an array."""

        def write(items: str) -> None:
            self.write_length(node, items)
            if isinstance(node.subcon, FormatField):
                self.source.add(f'{self.put}(pack(f">{{len({items})}}{code_of(node.subcon)}", *{items}))')
                return
            message = getattr(node.subcon, "message", None)
            item = self.source.unique(snake_case(message.__name__) if message else "item")
            with self.source.block(f"for {item} in {items}:"):
                self.visit(node.subcon, item, path)
                self.flush()

        self.sized(node, expression, path.rpartition(".")[2], write)

    def visit_tagged(self, node: TaggedSection, expression: str, path: str) -> None:
        """Emit the writing of the tagged section, without what has its default."""
        add, block = self.source.add, self.source.block
        if not node.members:
            self.run.append(("B", "0"))
            return
        self.flush()
        outer, tagged, parts = self.put, self.source.unique("tagged"), self.source.unique("parts")
        add(f"{tagged} = []")
        for tag, (field, subcon) in node.members.items():
            local = self.source.unique(field.name)
            add(f"{local} = {expression}.{field.name}")
            with block(f"if {self.differs(field, local)}:"):
                add(f"{parts} = []")
                self.put = f"{parts}.append"
                self.visit(subcon, local, join(path.rpartition(".")[0], field.name))
                self.flush()
                self.put = outer
                add(f"{tagged}.append(({tag}, {parts}))")
        with block(f"if {tagged}:"):
            add(f"write_tagged_fields({outer}, {tagged})")
        with block("else:"):
            add(f"{outer}({bytes(1)!r})")
