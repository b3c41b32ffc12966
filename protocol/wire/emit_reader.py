"""Emits the reader of a message: the source of one flat function.

The view that it reads from ends where the frame ends, so that fixed-width reads cannot cross it; lengths and counts
are checked before they are used. Objects are made by setting slots, which costs less than half of a keyword call.
"""

from struct import Struct, error, unpack_from
from typing import Any

from construct import FormatField  # type: ignore[import-untyped]

from tidelog.protocol.wire import runtime
from tidelog.protocol.wire.constructs import (
    ArrayOf,
    Blob,
    MessageStruct,
    NullableStruct,
    TaggedSection,
    Text,
    Uvarint,
)
from tidelog.protocol.wire.emitter import Emitter, code_of, join, null_length, smallest
from tidelog.protocol.wire.errors import CompileError, WireError
from tidelog.protocol.wire.source import format_name, snake_case, width

__all__ = ["ReaderEmitter"]

_SCOPE: dict[str, Any] = {
    "new": object.__new__,
    "unpack_from": unpack_from,
    "read_uvarint": runtime.read_uvarint,
    "read_text_length": runtime.read_text_length,
    "skip_tagged_fields": runtime.skip_tagged_fields,
    "misfit": runtime.misfit,
    "too_many": runtime.too_many,
    "MAX_ELEMENTS": runtime.MAX_ELEMENTS,
    "WireError": WireError,
    "struct_error": error,
}
_LOCALS = "buffer position end most view count size stop tags tag presence item elements error"


class ReaderEmitter(Emitter):
    """Emits `(buffer, position, end, most) -> (message, position)`."""

    verb = "read"

    def __init__(self, struct: MessageStruct) -> None:
        super().__init__(struct, dict(_SCOPE), _LOCALS)

    def emit(self) -> None:
        """Emit the function."""
        add, block = self.source.add, self.source.block
        with block(f"def {self.name}(buffer, position, end, most=MAX_ELEMENTS):"):
            add("view = memoryview(buffer)[:end]")
            add("elements = 0")
            with block("try:"):
                root = self.visit_message(self.struct, "", "")
                self.flush()
                add(f"return {root}, position")
            with block("except (IndexError, UnicodeDecodeError, struct_error) as error:"):
                where = f"{self.struct.message.__name__} v{self.struct.version} is cut short or malformed near position"
                add(f'raise WireError(f"{where} {{position}}: {{error}}") from error')

    def flush(self) -> None:
        """Emit one unpacking of the run of fixed-width fields."""
        if not self.run:
            return
        codes, targets = [code for code, _ in self.run], [target for _, target in self.run]
        if codes == ["B"]:
            self.source.add(f"{targets[0]} = view[position]")
        else:
            name = format_name("unpack", codes)
            self.source.scope[name] = Struct(">" + "".join(codes)).unpack_from
            if len(targets) == 1:
                self.source.add(f"({targets[0]},) = {name}(view, position)")
            else:
                self.source.add_call("(", targets, f") = {name}(view, position)")
        self.source.add(f"position += {width(codes)}")
        self.run.clear()

    def read_length(self, length: Any, name: str, longer: str = "read_uvarint") -> None:
        """Emit the reading of a length or count; a compact one is left one more than the value."""
        if not isinstance(length, Uvarint):
            self.run.append((code_of(length), name))
            self.flush()
            return
        self.run.append(("B", name))
        self.flush()
        with self.source.block(f"if {name} > 127:"):
            self.source.add(f"{name}, position = {longer}(view, position, {name})")

    def visit_message(self, node: MessageStruct, expression: str, path: str) -> str:
        """Emit the making of an object and the reading of its members; return the local that holds it."""
        cls = self.source.constant(node.message.__name__, node.message)
        local = self.source.unique(snake_case(cls))
        self.source.add(f"{expression} = {local} = new({cls})" if expression else f"{local} = new({cls})")
        for field in node.absent:
            self.source.add(f"{local}.{field.name} = {self.default(field)}")
        for member in node.subcons:
            name, inner = member.name, member.subcon
            self.visit(
                inner, local if isinstance(inner, TaggedSection) else f"{local}.{name}", join(path, name)
            )
        return local

    def visit_nullable(self, node: NullableStruct, expression: str, path: str) -> None:
        """Emit the reading of a struct that may be null."""
        self.run.append(("b", "presence"))
        self.flush()
        with self.source.block("if presence == -1:"):
            self.source.add(f"{expression} = None")
        with self.source.block("elif presence == 1:"):
            self.visit(node.subcon, expression, path)
            self.flush()
        with self.source.block("else:"):
            self.source.add(f'raise misfit("{path}", presence, position, end)')

    def visit_text(self, node: Text, expression: str, path: str) -> None:
        """Emit the reading of a string."""
        self.read_length(node.length, "size", "read_text_length")
        self.sized(node, expression, path, 'str(view[position:stop], "utf-8")')

    def visit_blob(self, node: Blob, expression: str, path: str) -> None:
        """Emit the reading of bytes."""
        self.read_length(node.length, "size")
        self.sized(
            node, expression, path, "view[position:stop]" if node.view else "bytes(view[position:stop])"
        )

    def sized(self, node: Any, expression: str, path: str, value: str) -> None:
        """Emit the taking of `size` bytes, or of null, checked against the end of the frame."""
        if node.nullable:
            with self.source.block(f"if size == {null_length(node)}:"):
                self.source.add(f"{expression} = None")
            with self.source.block("else:"):
                self._take(node, expression, path, value)
        else:
            self._take(node, expression, path, value)

    def _take(self, node: Any, expression: str, path: str, value: str) -> None:
        size = "size - 1" if node.compact else "size"
        self.source.add(f"stop = position + {size}")
        with self.source.block("if not position <= stop <= end:"):
            self.source.add(f'raise misfit("{path}", {size}, position, end)')
        self.source.add(f"{expression} = {value}")
        self.source.add("position = stop")

    def visit_array(self, node: ArrayOf, expression: str, path: str) -> None:
        """Emit the reading of an array, its count bounded by the bytes that are left."""
        self.read_length(node.length, "count")
        if node.nullable:
            with self.source.block(f"if count == {null_length(node)}:"):
                self.source.add(f"{expression} = None")
            with self.source.block("else:"):
                self._elements(node, expression, path)
        else:
            self._elements(node, expression, path)

    def _elements(self, node: ArrayOf, expression: str, path: str) -> None:
        add, block = self.source.add, self.source.block
        least = smallest(node.subcon)
        if least == 0:
            raise CompileError(f"{self.name}: {path} has elements of no bytes, so nothing bounds its count")
        if node.compact:
            add("count -= 1")
        with block(f"if not 0 <= count <= (end - position) // {least}:"):
            add(f'raise misfit("{path}", count, position, end)')
        if isinstance(node.subcon, FormatField):
            add(f'{expression} = list(unpack_from(f">{{count}}{code_of(node.subcon)}", view, position))')
            add(f"position += {least} * count")
            return
        self.count_elements("count")
        items = self.source.unique(path.rpartition(".")[2])
        add(f"{expression} = {items} = []")
        with block("for _ in range(count):"):
            if isinstance(node.subcon, MessageStruct):
                element = self.visit_message(node.subcon, "", path)
            else:
                element = "item"
                self.visit(node.subcon, element, path)
            self.flush()
            add(f"{items}.append({element})")

    def count_elements(self, count: str) -> None:
        """Emit the check of what the whole message holds."""
        self.source.add(f"elements += {count}")
        with self.source.block("if elements > most:"):
            self.source.add("raise too_many(most, position)")

    def visit_tagged(self, node: TaggedSection, expression: str, path: str) -> None:
        """Emit the reading of the tagged section: defaults first, then whatever is there."""
        add, block = self.source.add, self.source.block
        self.run.append(("B", "tags"))
        self.flush()
        for field, _ in node.members.values():
            add(f"{expression}.{field.name} = {self.default(field)}")
        with block("if tags:"):
            with block("if tags > 127:"):
                add("tags, position = read_uvarint(view, position, tags)")
            self.count_elements("tags")
            if node.members:
                self._tagged_fields(node, expression, path)
            else:
                add("position = skip_tagged_fields(view, position, tags)")

    def _tagged_fields(self, node: TaggedSection, expression: str, path: str) -> None:
        add, block = self.source.add, self.source.block
        with block("for _ in range(tags):"):
            self.read_length(Uvarint(), "tag")
            self.read_length(Uvarint(), "size")
            tag_end = self.source.unique("tag_end")
            add(f"{tag_end} = position + size")
            with block(f"if {tag_end} > end:"):
                add(f'raise misfit("{path}", size, position, end)')
            keyword = "if"
            for tag, (field, subcon) in node.members.items():
                with block(f"{keyword} tag == {tag}:"):
                    self.visit(
                        subcon, f"{expression}.{field.name}", join(path.rpartition(".")[0], field.name)
                    )
                    self.flush()
                keyword = "elif"
            with block("else:"):
                add(f"position = {tag_end}")
            with block(f"if position != {tag_end}:"):
                add(f'raise misfit("{path}", size, position, {tag_end})')

    # Only a writer must look at a uuid first.
    visit_uuid = Emitter.visit_fixed
