# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
# mypy: disallow-untyped-decorators=False, disable-error-code="misc, no-any-return"
"""Writes messages as bytes, and the size of a frame; compiled if there is a compiler.

Records are passed on without a copy; they may be a slice of a file. A value that the version cannot express is an
error, unless the field is ignorable. Compiled or interpreted, bytes and errors are the same. The C types are in
decorators and declarations.
"""

import struct
from typing import Any, Final

import cython  # type: ignore[import-untyped]

from tidelog.protocol.wire.errors import EncodeError

if cython.compiled:
    from cython.cimports.cpython.buffer import (  # type: ignore[import-untyped]
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore[import-untyped]
    from cython.cimports.cpython.mem import PyMem_Free, PyMem_Realloc  # type: ignore[import-untyped]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]
    from cython.cimports.tidelog.protocol.wire.layout import (  # type: ignore[import-untyped]
        FieldLayout,
        MessageLayout,
    )
else:
    from tidelog.protocol.wire.layout import FieldLayout, MessageLayout

__all__ = ["COMPILED", "Writer"]

COMPILED: Final[bool] = bool(cython.compiled)

# Kafka's limit for a string, whichever way its length is written.
_MAX_STRING_BYTES = cython.declare(cython.Py_ssize_t, 0x7FFF)
# Up to here copying what a message carries costs less than sending it as a piece of its own.
_COPIED_BYTES = cython.declare(cython.Py_ssize_t, 4096)
# A piece that is full is half as large as this, or larger.
_PIECE_BYTES = cython.declare(cython.Py_ssize_t, 65536)
_FIRST_BYTES = cython.declare(cython.Py_ssize_t, 512)
_SIZE_BYTES = cython.declare(cython.Py_ssize_t, 4)

_BYTES: Final = frozenset((bytes, bytearray, memoryview))


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.cclass
class _Sink:
    """The bytes that a message is written to: pieces that are whole, and the one that is being written."""

    octets = cython.declare(cython.p_uchar)
    used = cython.declare(cython.Py_ssize_t)
    room = cython.declare(cython.Py_ssize_t)
    pieces = cython.declare(list)
    field = cython.declare(object)  # that is being written, for errors
    total = cython.declare(cython.Py_ssize_t)  # of the pieces

    def __dealloc__(self) -> None:
        PyMem_Free(self.octets)


@cython.final
@cython.cclass
class Writer:
    """Writes the messages of one class in one version."""

    layout = cython.declare(MessageLayout)

    def __init__(self, layout: Any) -> None:
        """Write what is laid out so."""
        self.layout = layout

    @cython.locals(sink=_Sink, field=FieldLayout)
    def write(self, message: Any, head: bytes | None = None) -> tuple[list[Any], int]:
        """Return the parts of an encoded message, in order, and how many bytes they are; or raise EncodeError.

        With a head they are a frame: its size in four bytes, the head, the message. What a message carries, if it is
        large or no bytes at all, is a part as it is, never copied.
        """
        sink = _empty_sink()
        try:
            if head is not None:
                _put_integer(sink, 0, _SIZE_BYTES)
                _put_bytes(sink, head)
            _put_message(self.layout, message, sink)
        except (AttributeError, OverflowError, TypeError, UnicodeEncodeError, struct.error) as error:
            what = f"{self.layout.message.__name__} v{self.layout.version}"
            if sink.field is not None:
                field = sink.field
                what = f"{what}: {field.path}"
            raise EncodeError(f"{what}: {error}") from error
        if head is not None:
            _put_size(sink)
        _cut(sink)
        return sink.pieces, sink.total


@cython.cfunc
@cython.inline
@cython.locals(sink=_Sink)
def _empty_sink() -> Any:
    """Return where nothing has been written yet."""
    sink = _Sink()
    sink.pieces = []
    sink.used = sink.room = sink.total = 0
    if not cython.compiled:
        sink.octets = bytearray()
    return sink


@cython.cfunc
@cython.inline
@cython.locals(field=FieldLayout, place=cython.p_char, found=cython.p_void)
def _of(message: Any, field: Any) -> Any:
    """Return the value of a field of an object that is of its class."""
    if cython.compiled:
        place = cython.cast(cython.p_char, cython.cast(cython.p_void, message)) + field.offset
        found = cython.cast(cython.pp_void, place)[0]
        if found != cython.NULL:
            return cython.cast(object, found)
    return getattr(message, field.name)


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(layout=MessageLayout, sink=_Sink, field=FieldLayout)
def _put_message(layout: Any, message: Any, sink: Any) -> int:
    """Write the fields of a message; what its version cannot carry is an error, unless it may be dropped."""
    if type(message) is not layout.message:
        raise TypeError(f"a {layout.message.__name__} is due, and not {message!r:.100}")
    for field in layout.absent:
        if field.ignorable:
            continue
        value = _of(message, field)
        if _differs(field, value):
            what = f"{layout.message.__name__}.{field.name} does not exist in version {layout.version}"
            raise EncodeError(f"{what}, and is {value!r}")
    for field in layout.fields:
        sink.field = field
        _put_value(field, _of(message, field), sink)
    if layout.is_flexible:
        _put_tags(layout, message, sink)
    return 0


@cython.cfunc
@cython.inline
@cython.returns(cython.bint)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout)
def _differs(field: Any, value: Any) -> bool:
    """Tell whether a value is not the default of its field."""
    if value is field.default:
        return False
    if field.is_list and type(value) is list:
        return len(value) > 0
    return value != field.default


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, sink=_Sink, kind=cython.Py_UCS4)
def _put_value(field: Any, value: Any, sink: Any) -> int:
    """Write one value."""
    kind = field.kind
    if kind == "l":
        return _put_integer(sink, value, 4)
    if kind == "q":
        return _put_integer(sink, value, 8)
    if kind == "h":
        return _put_integer(sink, value, 2)
    if kind == "T":
        return _put_text(field, value, sink)
    if kind == "A":
        return _put_array(field, value, sink)
    if kind in "BV":
        return _put_blob(field, value, sink)
    if kind == "M":
        if field.nullable:
            if value is None:
                return _put_integer(sink, -1, 1)
            _put_integer(sink, 1, 1)
        return _put_message(field.inner, value, sink)
    if kind == "b":
        return _put_integer(sink, value, 1)
    if kind == "?":
        return _put_integer(sink, 1 if value else 0, 1)
    if kind == "U":
        if len(value) != 16:
            raise EncodeError(f"{field.path} is not 16 bytes: {value!r}")
        return _put_bytes(sink, value)
    return _put_bytes(sink, struct.pack(">H" if kind == "H" else ">d", value))


@cython.cfunc
@cython.inline
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, count=cython.Py_ssize_t)
def _make_room(sink: Any, count: int) -> int:
    """See to it that so many bytes can be written."""
    if count > sink.room - sink.used:
        _grow(sink, count)
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, count=cython.Py_ssize_t, room=cython.Py_ssize_t, octets=cython.p_uchar)
def _grow(sink: Any, count: int) -> int:
    """Begin another piece, or have a larger one."""
    if sink.used >= _PIECE_BYTES // 2:
        _cut(sink)
        if count <= sink.room:
            return 0
    room = max(2 * sink.room, _FIRST_BYTES, sink.used + count)
    if cython.compiled:
        octets = cython.cast(cython.p_uchar, PyMem_Realloc(sink.octets, room))
        if octets == cython.NULL:
            raise MemoryError
        sink.octets = octets
    sink.room = room
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink)
def _cut(sink: Any) -> int:
    """End the piece that is being written."""
    if sink.used:
        if cython.compiled:
            piece = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, sink.octets), sink.used)
        else:
            piece = bytes(sink.octets)
            sink.octets.clear()
        sink.pieces.append(piece)
        sink.total += sink.used
        sink.used = 0
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, size=cython.longlong)
def _put_size(sink: Any) -> int:
    """Fill in the size of a frame, which is known last."""
    size = sink.total + sink.used - _SIZE_BYTES
    if size > 0x7FFFFFFF:
        raise EncodeError(f"a frame of {size} bytes")
    if sink.pieces:
        first = sink.pieces[0]
        sink.pieces[0] = int(size).to_bytes(4, "big") + first[4:]
    elif cython.compiled:
        sink.octets[0] = (size >> 24) & 0xFF
        sink.octets[1] = (size >> 16) & 0xFF
        sink.octets[2] = (size >> 8) & 0xFF
        sink.octets[3] = size & 0xFF
    else:
        sink.octets[:4] = size.to_bytes(4, "big")
    return 0


@cython.cfunc
@cython.inline
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(
    sink=_Sink,
    number=cython.longlong,
    bits=cython.ulonglong,
    width=cython.Py_ssize_t,
    index=cython.Py_ssize_t,
    half=cython.longlong,
    place=cython.p_uchar,
)
def _put_integer(sink: Any, value: Any, width: int) -> int:
    """Write a signed big-endian integer."""
    number = value
    if width < 8:
        half = 1
        half <<= 8 * width - 1
        if number < -half or number >= half:
            raise OverflowError(f"{value} does not fit in {width} bytes")
    _make_room(sink, width)
    if cython.compiled:
        bits = cython.cast(cython.ulonglong, number)
        place = sink.octets + sink.used
        for index in range(width):
            place[width - 1 - index] = bits & 0xFF
            bits >>= 8
    else:
        sink.octets += number.to_bytes(width, "big", signed=True)
    sink.used += width
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, count=cython.Py_ssize_t)
def _put_bytes(sink: Any, data: Any) -> int:
    """Copy bytes."""
    count = len(data)
    _make_room(sink, count)
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        memcpy(sink.octets + sink.used, view.buf, count)
        PyBuffer_Release(cython.address(view))
    else:
        sink.octets += data
    sink.used += count
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, value=cython.ulonglong)
def _put_uvarint(sink: Any, value: int) -> int:
    """Write an unsigned varint."""
    while value > 0x7F:
        _put_octet(sink, (value & 0x7F) | 0x80)
        value >>= 7
    return _put_octet(sink, value)


@cython.cfunc
@cython.inline
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(sink=_Sink, octet=cython.uchar)
def _put_octet(sink: Any, octet: int) -> int:
    _make_room(sink, 1)
    if cython.compiled:
        sink.octets[sink.used] = octet
    else:
        sink.octets.append(octet)
    sink.used += 1
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, sink=_Sink, size=cython.longlong)
def _put_length(field: Any, size: int, sink: Any) -> int:
    """Write a length or count; -1 stands for null."""
    if field.compact:
        return _put_uvarint(sink, size + 1)
    return _put_integer(sink, size, 2 if field.kind == "T" else 4)


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, sink=_Sink)
def _put_text(field: Any, value: Any, sink: Any) -> int:
    """Write a string."""
    if value is None and field.nullable:
        return _put_length(field, -1, sink)
    data = value.encode()
    if len(data) > _MAX_STRING_BYTES:
        raise OverflowError(f"string of {len(data)} bytes: at most {_MAX_STRING_BYTES} are allowed")
    _put_length(field, len(data), sink)
    return _put_bytes(sink, data)


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, sink=_Sink, size=cython.Py_ssize_t)
def _put_blob(field: Any, value: Any, sink: Any) -> int:
    """Write bytes: copied where they are few, else handed on as they are; they may be a slice of a file."""
    if value is None and field.nullable:
        return _put_length(field, -1, sink)
    size = len(value)
    _put_length(field, size, sink)
    if size <= _COPIED_BYTES and type(value) in _BYTES:
        return _put_bytes(sink, value)
    _cut(sink)
    sink.pieces.append(value)
    sink.total += size
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, element=FieldLayout, sink=_Sink)
def _put_array(field: Any, value: Any, sink: Any) -> int:
    """Write an array."""
    if value is None and field.nullable:
        return _put_length(field, -1, sink)
    _put_length(field, len(value), sink)
    element = field.element
    for item in value:
        _put_value(element, item, sink)
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(layout=MessageLayout, sink=_Sink, inner=_Sink, field=FieldLayout)
def _put_tags(layout: Any, message: Any, sink: Any) -> int:
    """Write the tagged section, without what has its default."""
    if not layout.tagged:
        return _put_octet(sink, 0)
    present: list[tuple[int, bytes]] = []
    for tag, field in layout.tagged:
        value = _of(message, field)
        if _differs(field, value):
            inner = _empty_sink()
            inner.field = sink.field = field
            _put_value(field, value, inner)
            _cut(inner)
            present.append((tag, b"".join(inner.pieces)))
    _put_uvarint(sink, len(present))
    for tag, data in present:
        _put_uvarint(sink, tag)
        _put_uvarint(sink, len(data))
        _put_bytes(sink, data)
    return 0
