# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
# mypy: disallow-untyped-decorators=False, disable-error-code="misc, no-any-return"
"""Reads messages, and the headers of requests, from bytes; compiled if there is a compiler.

Whatever the bytes are, nothing outside [position, end) is read, and the size of the message is bounded by theirs.
Compiled or interpreted, messages and errors are the same. The C types are in decorators and declarations.
"""

import struct
import time
from typing import Any, Final

import cython  # type: ignore[import-untyped]

from tidelog.protocol.wire.errors import WireError, misfit, too_many

if cython.compiled:
    from cython.cimports.cpython.buffer import (  # type: ignore[import-untyped]
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore[import-untyped]
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore[import-untyped]
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8  # type: ignore[import-untyped]
    from cython.cimports.tidelog.protocol.wire.layout import (  # type: ignore[import-untyped]
        FieldLayout,
        MessageLayout,
    )
else:
    from tidelog.protocol.wire.layout import FieldLayout, MessageLayout

    Py_buffer = object

__all__ = ["COMPILED", "MAX_ELEMENTS", "Reader", "read_request_header"]

COMPILED: Final[bool] = bool(cython.compiled)

# What one message may hold, over all its arrays and tags. Two bytes of a frame can become an object, at 60 bytes and
# 0.2 us: without a bound, a frame of 100 MiB takes gigabytes and stops the event loop for many seconds. Our own.
MAX_ELEMENTS = 1 << 18
# So many elements are made, in a millisecond, before other threads get their turn: compiled code gives them no other.
_AT_ONCE = cython.declare(cython.Py_ssize_t, 1024)
# Kafka's limit for a string, whichever way its length is written.
_MAX_STRING_BYTES = cython.declare(cython.Py_ssize_t, 0x7FFF)
_MAX_UVARINT_BYTES = cython.declare(cython.int, 5)


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.cclass
class _Source:
    """The bytes that a message is read from, and how far that has come."""

    octets = cython.declare(cython.p_const_uchar)
    buffer = cython.declare(object)
    position = cython.declare(cython.Py_ssize_t)
    end = cython.declare(cython.Py_ssize_t)
    elements = cython.declare(cython.Py_ssize_t)
    made = cython.declare(cython.Py_ssize_t)
    most = cython.declare(cython.Py_ssize_t)
    view = cython.declare(Py_buffer)

    def __dealloc__(self) -> None:
        PyBuffer_Release(cython.address(self.view))


@cython.cfunc
@cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, source=_Source)
def _open(buffer: Any, position: int, end: int) -> Any:
    """Return the bytes of a buffer from a position to an end, or to its own end if that is before."""
    source = _Source()
    source.buffer = buffer
    source.position = position
    source.elements = source.made = 0
    if cython.compiled:
        PyObject_GetBuffer(buffer, cython.address(source.view), PyBUF_SIMPLE)
        source.octets = cython.cast(cython.p_const_uchar, source.view.buf)
        source.end = min(end, source.view.len)
    else:
        source.octets = memoryview(buffer)[:end]
        source.end = len(source.octets)
    return source


@cython.final
@cython.cclass
class Reader:
    """Reads the messages of one class in one version."""

    layout = cython.declare(MessageLayout)

    def __init__(self, layout: Any) -> None:
        """Read what is laid out so."""
        self.layout = layout

    @cython.locals(source=_Source)
    def read(self, buffer: Any, position: int, end: int, most: int = MAX_ELEMENTS) -> tuple[Any, int]:
        """Read a message from a buffer; return it and the position after it, or raise WireError.

        Nothing at or after `end` is touched. The views in the message keep the buffer alive. With more than `most`
        elements and tags over all its arrays it is TooManyElements.
        """
        source = _open(buffer, position, end)
        source.most = most
        try:
            message = _make(self.layout, source)
        except (IndexError, UnicodeDecodeError) as error:
            what = f"{self.layout.message.__name__} v{self.layout.version} is cut short or malformed near"
            raise WireError(f"{what} position {source.position}: {error}") from error
        return message, source.position


@cython.cfunc
@cython.locals(layout=MessageLayout, source=_Source, field=FieldLayout, cls=type)
def _make(layout: Any, source: Any) -> Any:
    """Make a message of the bytes that come next."""
    cls = layout.message
    message = cls.__new__(cls)
    for field in layout.absent:
        _fill(message, field, [] if field.is_list else field.default)
    for field in layout.fields:
        _fill(message, field, _value(field, source))
    if layout.is_flexible:
        _take_tags(layout, message, source)
    return message


@cython.cfunc
@cython.inline
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(field=FieldLayout, place=cython.p_char)
def _fill(message: Any, field: Any, value: Any) -> int:
    """Give a new object the value of a field, which it has not got yet."""
    if cython.compiled:
        place = cython.cast(cython.p_char, cython.cast(cython.p_void, message)) + field.offset
        Py_INCREF(value)
        cython.cast(cython.pp_void, place)[0] = cython.cast(cython.p_void, value)
    else:
        setattr(message, field.name, value)
    return 0


@cython.cfunc
@cython.locals(field=FieldLayout, source=_Source, kind=cython.Py_UCS4, size=cython.longlong)
def _value(field: Any, source: Any) -> Any:
    """Read one value."""
    kind = field.kind
    if kind == "l":
        return _integer(source, 4)
    if kind == "q":
        return _integer(source, 8)
    if kind == "h":
        return _integer(source, 2)
    if kind in "TBV":
        return _sized(field, source)
    if kind == "A":
        return _array(field, source)
    if kind == "M":
        if field.nullable:
            size = _integer(source, 1)
            if size == -1:
                return None
            if size != 1:
                raise misfit(field.path, size, source.position, source.end)
        return _make(field.inner, source)
    if kind == "b":
        return _integer(source, 1)
    if kind == "?":
        return _integer(source, 1) != 0
    if kind == "H":
        return _integer(source, 2) & 0xFFFF
    if kind == "U":
        return bytes(_slice(source, 16))
    return struct.unpack(">d", _slice(source, 8))[0]


@cython.cfunc
@cython.locals(source=_Source, count=cython.Py_ssize_t, at=cython.Py_ssize_t)
def _slice(source: Any, count: int) -> Any:
    """Take so many bytes, as bytes."""
    _demand(source, count)
    at = source.position
    source.position = at + count
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, source.octets + at), count)
    return bytes(source.octets[at : at + count])


@cython.cfunc
@cython.inline
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(source=_Source, count=cython.Py_ssize_t)
def _demand(source: Any, count: int) -> int:
    """See to it that there are so many bytes."""
    if count > source.end - source.position:
        raise IndexError(f"{count} bytes are due, and the frame ends at position {source.end}")
    return 0


@cython.cfunc
@cython.inline
@cython.returns(cython.longlong)
@cython.exceptval(-1, check=True)
@cython.locals(
    source=_Source,
    width=cython.Py_ssize_t,
    at=cython.Py_ssize_t,
    index=cython.Py_ssize_t,
    value=cython.ulonglong,
)
def _integer(source: Any, width: int) -> int:
    """Read a signed big-endian integer."""
    _demand(source, width)
    at = source.position
    source.position = at + width
    if cython.compiled:
        value = 0
        if source.octets[at] > 127:
            value = value - 1
        for index in range(width):
            value = (value << 8) | source.octets[at + index]
        return cython.cast(cython.longlong, value)
    return int.from_bytes(source.octets[at : at + width], "big", signed=True)


@cython.cfunc
@cython.returns(cython.longlong)
@cython.exceptval(-1, check=True)
@cython.locals(
    source=_Source,
    value=cython.ulonglong,
    octet=cython.ulonglong,
    at=cython.Py_ssize_t,
    count=cython.int,
)
def _uvarint(source: Any) -> int:
    """Read an unsigned varint of at most 32 bits."""
    at = source.position
    if at < source.end and source.octets[at] < 0x80:
        source.position = at + 1
        return source.octets[at]
    value = 0
    for count in range(_MAX_UVARINT_BYTES):
        if at >= source.end:
            _demand(source, at + 1 - source.position)
        octet = source.octets[at]
        at += 1
        value |= (octet & 0x7F) << (7 * count)
        if octet < 0x80:
            if value >> 32:
                break
            source.position = at
            return value
    raise WireError(f"varint at position {at - 1} is wider than 32 bits")


@cython.cfunc
@cython.returns(cython.longlong)
@cython.exceptval(-2, check=True)
@cython.locals(field=FieldLayout, source=_Source)
def _length(field: Any, source: Any) -> int:
    """Read a length or count; -1 stands for null."""
    if field.compact:
        return _uvarint(source) - 1
    return _integer(source, 2 if field.kind == "T" else 4)


@cython.cfunc
@cython.locals(field=FieldLayout, source=_Source, size=cython.longlong, at=cython.Py_ssize_t)
def _sized(field: Any, source: Any) -> Any:
    """Read what stands after its length."""
    size = _length(field, source)
    at = source.position
    if size == -1 and field.nullable:
        return None
    if field.kind == "T" and size > _MAX_STRING_BYTES:
        raise WireError(f"string of {size} bytes at position {at}: at most {_MAX_STRING_BYTES} are allowed")
    if size < 0 or size > source.end - at:
        raise misfit(field.path, size, at, source.end)
    if field.kind == "T":
        if cython.compiled:
            text = PyUnicode_DecodeUTF8(
                cython.cast(cython.p_const_char, source.octets + at), size, cython.NULL
            )
        else:
            text = str(source.octets[at : at + size], "utf-8")
        source.position = at + size
        return text
    if field.kind == "B":
        return _slice(source, size)
    source.position = at + size
    if type(source.buffer) is not memoryview:
        source.buffer = memoryview(source.buffer)
    return source.buffer[at : at + size]


@cython.cfunc
@cython.locals(field=FieldLayout, element=FieldLayout, source=_Source, count=cython.longlong)
def _array(field: Any, source: Any) -> Any:
    """Read an array, its count bounded by the bytes that are left."""
    count = _length(field, source)
    if count == -1 and field.nullable:
        return None
    element = field.element
    if count < 0 or count > (source.end - source.position) // element.least_bytes:
        raise misfit(field.path, count, source.position, source.end)
    _count(source, count)
    return [_element(element, source) for _ in range(count)]


@cython.cfunc
@cython.locals(field=FieldLayout, source=_Source)
def _element(field: Any, source: Any) -> Any:
    """Read one element of an array, and after many let other threads go on."""
    source.made += 1
    if source.made == _AT_ONCE:
        source.made = 0
        time.sleep(0)
    return _value(field, source)


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(source=_Source, count=cython.longlong)
def _count(source: Any, count: int) -> int:
    """Count what the whole message holds."""
    source.elements += count
    if source.elements > source.most:
        raise too_many(source.most, source.position)
    return 0


@cython.cfunc
@cython.returns(cython.int)
@cython.exceptval(-1)
@cython.locals(
    layout=MessageLayout,
    source=_Source,
    field=FieldLayout,
    count=cython.longlong,
    _=cython.longlong,
    tag=cython.longlong,
    size=cython.longlong,
    end=cython.Py_ssize_t,
)
def _take_tags(layout: Any, message: Any, source: Any) -> int:
    """Read the tagged section: defaults first, then whatever is there; unknown tags are passed over."""
    for _, field in layout.tagged:
        _fill(message, field, [] if field.is_list else field.default)
    count = _uvarint(source)
    if count:
        _count(source, count)
    for _ in range(count):
        tag = _uvarint(source)
        size = _uvarint(source)
        if size > source.end - source.position:
            raise misfit("tagged field", size, source.position, source.end)
        end = source.position + size
        for known, field in layout.tagged:
            if known == tag:
                setattr(message, field.name, _value(field, source))
                if source.position != end:
                    raise misfit(field.path, size, source.position, end)
        source.position = end
    return 0


# -- the header of a request ----------------------------------------------------------------------------------------

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 10)


@cython.locals(source=_Source, key=cython.longlong, correlation_id=cython.longlong, size=cython.longlong)
def read_request_header(buffer: Any, position: int, end: int) -> tuple[int, int, bytes | None, int]:
    """Read what all request headers begin with: API key, version, correlation id and client id.

    Return key and version as one number (key << 16 | version), the correlation id, the client id's bytes or None, and
    the position after it: of the header's tags where the version is flexible, of the body where it is not.
    """
    if end - position < _HEADER_BYTES:
        raise WireError(f"a request of {end - position} bytes: its header alone has {_HEADER_BYTES} or more")
    source = _open(buffer, position, end)
    key = _integer(source, 4) & 0xFFFFFFFF
    correlation_id = _integer(source, 4)
    size = _integer(source, 2)
    client_id = None
    if size >= 0:
        if size > source.end - source.position:
            raise misfit("client id", size, source.position, source.end)
        client_id = _slice(source, size)
    return key, correlation_id, client_id, source.position
