"""A codec and its judge side by side, and a message that uses every type."""

import io
import sys
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from tests.support.constructs import MessageStruct, struct_of
from tests.support.kernels import load_source
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire import compiler, layout, reader, writer
from tidelog.protocol.wire.compiler import Reader, Writer
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    Array,
)


@message
class Leaf:
    """Nested in every way there is."""

    number: int = field(INT32, default=-1)
    text: str | None = field(STRING, "1+", default=None, nullable="1+", ignorable=True)


@message
class Everything:
    """Every type, nullable and not, plain and tagged; version 2 is the first flexible one."""

    a_bool: bool = field(BOOL)
    an_int8: int = field(INT8)
    a_uint16: int = field(UINT16)
    a_float64: float = field(FLOAT64)
    a_uuid: bytes = field(UUID)
    a_string: str = field(STRING)
    some_bytes: bytes = field(BYTES)
    null_bytes: bytes | None = field(BYTES, nullable="0+")
    some_records: bytes | None = field(RECORDS, nullable="0+")
    null_string: str | None = field(STRING, nullable="0+")
    uuids: list[bytes] = field(Array(UUID))
    strings: list[str] = field(Array(STRING))
    flags: list[bool] = field(Array(BOOL))
    null_numbers: list[int] | None = field(Array(INT64), nullable="0+")
    a_leaf: Leaf = field(Leaf)
    null_leaf: Leaf | None = field(Leaf, nullable="1+")
    leaves: list[Leaf] = field(Array(Leaf))
    only_zero: int = field(INT16, "0", default=7)
    tagged_string: str | None = field(STRING, "2+", default="", nullable="2+", tag=0, tagged="2+")
    tagged_leaf: Leaf = field(Leaf, "2+", default=Leaf(), tag=3, tagged="2+", ignorable=True)
    tagged_null_leaf: Leaf | None = field(
        Leaf, "2+", default=None, nullable="2+", tag=200, tagged="2+", ignorable=True
    )
    tagged_leaves: list[Leaf] = field(Array(Leaf), "2+", default=[], tag=4, tagged="2+", ignorable=True)
    # A tag in some versions and an ordinary field in others.
    moved: bytes = field(UUID, "1+", default=ZERO_UUID, tag=5, tagged="3+", ignorable=True)


@message
class Awkward:
    """Named like what the generated code calls its own."""

    tags: list[Leaf] = field(Array(Leaf))
    size: list[str] = field(Array(STRING))
    count: list[Leaf] = field(Array(Leaf))
    text: str | None = field(STRING, nullable="0+")
    put: list[str] | None = field(Array(STRING), nullable="0+")
    view: bytes | None = field(RECORDS, nullable="0+")
    end: list[int] = field(Array(INT32))
    position: list[Leaf] = field(Array(Leaf))
    stop: Leaf | None = field(Leaf, nullable="0+")
    pack: list[Leaf] = field(Array(Leaf))
    new: list[Leaf] = field(Array(Leaf))
    item: list[str] = field(Array(STRING))
    elements: list[Leaf] = field(Array(Leaf))
    error: str = field(STRING)
    tag_end: list[Leaf] = field(Array(Leaf), "2+", default=[], tag=1, tagged="2+")
    parts: list[Leaf] = field(Array(Leaf), "2+", default=[], tag=2, tagged="2+")
    tagged: str = field(STRING, "2+", default="", tag=3, tagged="2+")


def _interpreted() -> ModuleType:
    """Load readers, writers and their compiler from their sources: none is the extension beside it."""
    installed = {module.__name__: module for module in (layout, reader, writer)}
    try:
        for name, module in installed.items():
            sys.modules[name] = load_source(module)
        return load_source(compiler)
    finally:
        sys.modules.update(installed)


INTERPRETED = _interpreted()


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Case(NamedTuple):
    """One message class in one version."""

    message: type
    version: int
    flexible: bool

    def __str__(self) -> str:
        return f"{self.message.__name__}-v{self.version}"

    @property
    def reader(self) -> Reader:
        return compiler.reader_of(*self)

    @property
    def writer(self) -> Writer:
        return compiler.writer_of(*self)

    @property
    def interpreted(self) -> Any:
        """The compiler of this case for an interpreter."""
        return INTERPRETED

    @property
    def struct(self) -> MessageStruct:
        return _struct_of(self)

    def write(self, value: object) -> bytes:
        """Encode by the writer."""
        return b"".join(self.writer(value)[0])

    def judge(self, data: bytes) -> tuple[Any, int]:
        """Decode by the Struct: give the plain values and the position after them."""
        stream = io.BytesIO(data)
        return self.struct.parse_stream(stream), stream.tell()


@cache
def _struct_of(case: Case) -> MessageStruct:
    return struct_of(case.message, case.version, flexible=case.flexible)


EVERYTHING = [Case(Everything, version, version >= 2) for version in range(4)]
CASES = [
    *EVERYTHING,
    Case(Awkward, 1, False),
    Case(Awkward, 2, True),
    *(
        Case(message, version, api.is_flexible(version))
        for api in APIS.values()
        for message in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ),
]
