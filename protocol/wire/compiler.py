"""From a construct Struct to one flat Python function that reads it, and one that writes it.

Walks the Struct of `structs` and emits source: adjacent fixed-width fields become one `struct.Struct`, nested
structs and arrays are written out in place, objects are made by setting slots. The layout rules are not here:
they are in the Struct. Invariant: the function does to bytes what the Struct does, and a construct that is
not in the tables below is a `CompileError`, never a slow path.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct, error, pack, unpack_from
from typing import Any, Protocol

from construct import Bytes, FormatField, Renamed  # type: ignore[import-untyped]

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
from tidelog.protocol.wire.errors import CompileError, EncodeError, WireError
from tidelog.protocol.wire.schema import Field, default_of
from tidelog.protocol.wire.source import Source, format_name, snake_case, width
from tidelog.protocol.wire.structs import struct_of
from tidelog.protocol.wire.types import ZERO_UUID

__all__ = ["Reader", "Writer", "reader_of", "reader_source", "writer_of", "writer_source"]


class Reader(Protocol):
    """Read a message from a buffer; give it and the position after it, or raise `WireError`.

    Nothing at or after `end` is touched. The views in the message keep the buffer alive.
    """

    def __call__(self, buffer: Any, position: int, end: int) -> tuple[Any, int]:
        """Read one message."""


class Writer(Protocol):
    """Hand the parts of an encoded message to `put`, in order, or raise `EncodeError`."""

    def __call__(self, message: Any, put: Callable[[Any], object]) -> None:
        """Write one message."""


@cache
def reader_of(message: type, version: int, flexible: bool) -> Reader:
    """Compile the reader of a message in a version."""
    reader: Reader = _ReaderSource(struct_of(message, version, flexible=flexible)).compile()
    return reader


@cache
def writer_of(message: type, version: int, flexible: bool) -> Writer:
    """Compile the writer of a message in a version."""
    writer: Writer = _WriterSource(struct_of(message, version, flexible=flexible)).compile()
    return writer


def reader_source(message: type, version: int, flexible: bool) -> str:
    """Give the source of a reader, to be read."""
    return _ReaderSource(struct_of(message, version, flexible=flexible)).source.text()


def writer_source(message: type, version: int, flexible: bool) -> str:
    """Give the source of a writer, to be read."""
    return _WriterSource(struct_of(message, version, flexible=flexible)).source.text()


class _Compiled:
    """What reading and writing share: the run of fixed-width fields, dispatch, defaults."""

    verb: str

    def __init__(self, struct: MessageStruct) -> None:
        self.source = Source({})
        self.struct = struct
        self.run: list[tuple[str, str]] = []
        self.name = f"{self.verb}_{snake_case(struct.message.__name__)}_v{struct.version}"
        self.emit()

    def emit(self) -> None:
        raise NotImplementedError

    def compile(self) -> Any:
        return self.source.function(self.name, f"<{self.name}>")

    def visit(self, node: Any, expression: str, path: str) -> None:
        """Emit the code for one construct whose value is the expression."""
        method = getattr(self, "visit_" + _METHODS.get(type(node), "unknown"))
        method(node, expression, path)

    def visit_unknown(self, node: Any, _expression: str, path: str) -> None:
        raise CompileError(
            f"{self.name}: {path or 'the message'} is a {type(node).__name__}; teach the compiler it"
        )

    def visit_fixed(self, node: Any, expression: str, _path: str) -> None:
        self.run.append((_code(node), expression))

    def default(self, field: Field) -> str:
        """Give an expression for the default of a field."""
        value = default_of(field)
        if hasattr(value, "__wire_fields__"):
            return self.source.constant(f"default_{field.name}", value)
        if value == ZERO_UUID:
            return self.source.constant("ZERO_UUID", ZERO_UUID)
        return repr(value)


class _ReaderSource(_Compiled):
    verb = "read"

    def emit(self) -> None:
        add, block = self.source.add, self.source.block
        cls = self.struct.message.__name__
        self.source.scope.update(
            new=object.__new__,
            unpack_from=unpack_from,
            read_uvarint=runtime.read_uvarint,
            read_text_length=runtime.read_text_length,
            skip_tagged_fields=runtime.skip_tagged_fields,
            misfit=runtime.misfit,
            WireError=WireError,
            struct_error=error,
        )
        with block(f"def {self.name}(buffer, position, end):"):
            add("view = memoryview(buffer)[:end]")
            with block("try:"):
                root = self.visit_message(self.struct, "", "")
                self.flush()
                add(f"return {root}, position")
            with block("except (IndexError, UnicodeDecodeError, struct_error) as error:"):
                where = f"{cls} v{self.struct.version} is cut short or malformed near position"
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
            self.run.append((_code(length), name))
            self.flush()
            return
        self.run.append(("B", name))
        self.flush()
        with self.source.block(f"if {name} > 127:"):
            self.source.add(f"{name}, position = {longer}(view, position, {name})")

    def visit_message(self, node: MessageStruct, expression: str, path: str) -> str:
        """Emit the making of an object and the reading of its members; return the local that holds it."""
        cls = node.message.__name__
        local = self.source.unique(snake_case(cls))
        self.source.scope[cls] = node.message
        self.source.add(f"{expression} = {local} = new({cls})" if expression else f"{local} = new({cls})")
        for field in node.absent:
            self.source.add(f"{local}.{field.name} = {self.default(field)}")
        for member in node.subcons:
            name, inner = member.name, member.subcon
            self.visit(
                inner, local if isinstance(inner, TaggedSection) else f"{local}.{name}", _join(path, name)
            )
        return local

    def visit_nullable(self, node: NullableStruct, expression: str, path: str) -> None:
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
        self.read_length(node.length, "size", "read_text_length")
        self.sized(node, expression, path, 'str(view[position:stop], "utf-8")')

    def visit_blob(self, node: Blob, expression: str, path: str) -> None:
        self.read_length(node.length, "size")
        self.sized(
            node, expression, path, "view[position:stop]" if node.view else "bytes(view[position:stop])"
        )

    def sized(self, node: Any, expression: str, path: str, value: str) -> None:
        """Emit the taking of `size` bytes, or of null, checked against the end of the frame."""
        if node.nullable:
            with self.source.block(f"if size == {_null(node)}:"):
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
        self.read_length(node.length, "count")
        if node.nullable:
            with self.source.block(f"if count == {_null(node)}:"):
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
            add(f'{expression} = list(unpack_from(f">{{count}}{_code(node.subcon)}", view, position))')
            add(f"position += {least} * count")
            return
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

    def visit_tagged(self, node: TaggedSection, expression: str, path: str) -> None:
        add, block = self.source.add, self.source.block
        self.run.append(("B", "tags"))
        self.flush()
        for field, _ in node.members.values():
            add(f"{expression}.{field.name} = {self.default(field)}")
        if not node.members:
            with block("if tags:"):
                add("position = skip_tagged_fields(view, position, tags)")
            return
        with block("if tags > 127:"):
            add("tags, position = read_uvarint(view, position, tags)")
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
                        subcon, f"{expression}.{field.name}", _join(path.rpartition(".")[0], field.name)
                    )
                    self.flush()
                keyword = "elif"
            with block("else:"):
                add(f"position = {tag_end}")
            with block(f"if position != {tag_end}:"):
                add(f'raise misfit("{path}", size, position, {tag_end})')


class _WriterSource(_Compiled):
    verb = "write"

    def emit(self) -> None:
        self.put = "put"
        root = self.source.unique(snake_case(self.struct.message.__name__))
        self.source.scope.update(
            pack=pack,
            short_uvarints=runtime.SHORT_UVARINTS,
            uvarint=runtime.uvarint,
            text_prefix=runtime.text_prefix,
            EncodeError=EncodeError,
            struct_error=error,
        )
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
            self.run.append((_code(node.length), f"len({value})"))
            self.flush()
            return
        self.flush()
        self.source.add(f"size = len({value}) + 1")
        self.source.add(f"{self.put}(short_uvarints[size] if size < 128 else {longer}(size))")

    def write_null(self, node: Any) -> None:
        if node.compact:
            self.source.add(f"{self.put}({bytes(1)!r})")
        else:
            self.source.add(f"{self.put}({pack('>' + _code(node.length), -1)!r})")

    def visit_message(self, node: MessageStruct, expression: str, path: str) -> None:
        for field in node.absent:
            if not field.ignorable:
                self.refuse_absent(node, field, f"{expression}.{field.name}")
        for member in node.subcons:
            name, inner = member.name, member.subcon
            value = expression if isinstance(inner, TaggedSection) else f"{expression}.{name}"
            self.visit(inner, value, _join(path, name))

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
        # struct would pad or cut it without a word.
        with self.source.block(f"if len({expression}) != 16:"):
            self.source.add(f'raise EncodeError(f"{path} is not 16 bytes: {{{expression}!r}}")')
        self.visit_fixed(node, expression, path)

    def visit_nullable(self, node: NullableStruct, expression: str, path: str) -> None:
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
        def write(value: str) -> None:
            self.source.add(f"text = {value}.encode()")
            self.write_length(node, "text", "text_prefix")
            self.source.add(f"{self.put}(text)")

        if node.nullable:
            self.sized(node, expression, path.rpartition(".")[2], write)
        else:
            write(expression)

    def visit_blob(self, node: Blob, expression: str, path: str) -> None:
        def write(value: str) -> None:
            self.write_length(node, value)
            self.source.add(f"{self.put}({value})")

        self.sized(node, expression, path.rpartition(".")[2], write)

    def visit_array(self, node: ArrayOf, expression: str, path: str) -> None:
        def write(items: str) -> None:
            self.write_length(node, items)
            if isinstance(node.subcon, FormatField):
                self.source.add(f'{self.put}(pack(f">{{len({items})}}{_code(node.subcon)}", *{items}))')
                return
            message = getattr(node.subcon, "message", None)
            item = self.source.unique(snake_case(message.__name__) if message else "item")
            with self.source.block(f"for {item} in {items}:"):
                self.visit(node.subcon, item, path)
                self.flush()

        self.sized(node, expression, path.rpartition(".")[2], write)

    def visit_tagged(self, node: TaggedSection, expression: str, path: str) -> None:
        add, block = self.source.add, self.source.block
        if not node.members:
            self.run.append(("B", "0"))
            return
        self.source.scope["write_tagged_fields"] = runtime.write_tagged_fields
        self.flush()
        outer, tagged, parts = self.put, self.source.unique("tagged"), self.source.unique("parts")
        add(f"{tagged} = []")
        for tag, (field, subcon) in node.members.items():
            local = self.source.unique(field.name)
            add(f"{local} = {expression}.{field.name}")
            with block(f"if {self.differs(field, local)}:"):
                add(f"{parts} = []")
                self.put = f"{parts}.append"
                self.visit(subcon, local, _join(path.rpartition(".")[0], field.name))
                self.flush()
                self.put = outer
                add(f"{tagged}.append(({tag}, {parts}))")
        with block(f"if {tagged}:"):
            add(f"write_tagged_fields({outer}, {tagged})")
        with block("else:"):
            add(f"{outer}({bytes(1)!r})")


_METHODS: dict[type, str] = {
    FormatField: "fixed",
    Bytes: "uuid",
    MessageStruct: "message",
    NullableStruct: "nullable",
    Text: "text",
    Blob: "blob",
    ArrayOf: "array",
    TaggedSection: "tagged",
}
# Only a writer must look at a uuid before it packs it.
_ReaderSource.visit_uuid = _ReaderSource.visit_fixed  # type: ignore[attr-defined]


def smallest(node: Any) -> int:
    """Give the fewest bytes that a construct can take, by which the count of an array is bounded."""
    if isinstance(node, Renamed):
        return smallest(node.subcon)
    if isinstance(node, MessageStruct):
        return sum(smallest(member) for member in node.subcons)
    if isinstance(node, Text | Blob | ArrayOf):
        return 1 if node.compact else width([_code(node.length)])
    if isinstance(node, NullableStruct | TaggedSection):
        return 1
    return width([_code(node)])


def _code(node: Any) -> str:
    """Give the `struct` code of a construct of fixed width."""
    if isinstance(node, FormatField) and node.fmtstr[0] == ">":
        return str(node.fmtstr[1])
    if isinstance(node, Bytes) and node.length == 16:
        return "16s"
    raise CompileError(f"{node!r} has no fixed width that the compiler knows; teach the compiler it")


def _null(node: Any) -> int:
    """Give the length that stands for null on the wire."""
    return 0 if node.compact else -1


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
